"use strict";
// Where time and bytes go.

function totals() {
  const into = $("totals");
  drop(into);
  const ops = new Map(); // by operator: for each model the time
  for (const m of models) for (const n of m.nodes) {
    if (n.o === "input" || n.o === "output") continue;
    if (!ops.has(n.o)) ops.set(n.o, models.map(() => ({ time: 0, nodes: 0, predicted: 0, moved: 0 })));
    const at = ops.get(n.o)[m.index];
    at.time += n.time;
    at.predicted += n.predicted;
    at.moved += moved(m, n);
    at.nodes++;
  }
  if (two) into.append(summary());
  const grid = el("div", { class: "grid" });
  into.append(grid);
  const section = title => { const d = el("div", {}, el("h3", {}, title)); grid.append(d); return d; };
  const how = models.every(m => m.measured) ? "measured" : models.some(m => m.measured) ? "measured where it was, else predicted" : "predicted";
  const tint = m => m.index ? colours.hot : colours.accent;
  const list = [...ops].filter(([, at]) => at.some(a => a.time)).sort((x, y) => Math.max(...y[1].map(a => a.time)) - Math.max(...x[1].map(a => a.time))).slice(0, 16);
  if (list.length) {
    const d = section("Time by operator, " + how);
    let sets = models.map(m => ({ label: m.letter || (m.measured ? "measured" : "predicted"), data: list.map(([, at]) => at[m.index].time), colour: tint(m) }));
    if (!two && models[0].measured && models[0].predicted) sets.push({ label: "predicted", data: list.map(([, at]) => at[0].predicted || null), colour: mix(colours.accent, colours.bg, 0.4) });
    bars(d, "Time by operator", list.map(([o, at]) => `${o} (${Math.max(...at.map(a => a.nodes))})`), sets, micros);
  }
  const movers = [...ops].filter(([, at]) => at.some(a => a.moved)).sort((x, y) => Math.max(...y[1].map(a => a.moved)) - Math.max(...x[1].map(a => a.moved))).slice(0, 16);
  if (movers.length) bars(section("Bytes moved by operator, at least"), "Bytes by operator", movers.map(([o, at]) => `${o} (${Math.max(...at.map(a => a.nodes))})`), models.map(m => ({ label: m.letter, data: movers.map(([, at]) => at[m.index].moved), colour: tint(m) })), bytes);
  const by = (value, n) => { // the nodes with the largest values in any model
    const names = new Map();
    for (const m of models) for (const k of m.nodes) names.set(k.n, Math.max(names.get(k.n) || 0, value(m, k)));
    return [...names].filter(x => x[1] > 0).sort((a, b) => b[1] - a[1]).slice(0, n).map(x => x[0]);
  };
  const of = (m, name, value) => { const id = m.byName.get(name); return id == null ? null : value(m, m.nodes[id]); };
  const stored = (m, n) => layersOf(m, n).reduce((s, l) => s + l.stored_bytes, 0), dense = (m, n) => layersOf(m, n).reduce((s, l) => s + l.dense_bytes, 0);
  const largest = by(stored, 16);
  if (largest.length) {
    const d = section("Bytes of weights by layer");
    const sets = models.map(m => ({ label: m.letter || "stored", data: largest.map(n => of(m, n, stored)), colour: tint(m) }));
    if (!two) sets.push({ label: "dense", data: largest.map(n => of(models[0], n, dense)), colour: colours.none });
    bars(d, "Bytes by layer", largest.map(n => tidy(n)), sets, bytes, i => select(largest[i]));
  }
  const slow = by((m, n) => n.time, 20);
  if (slow.length) {
    const d = section("Time by layer, " + how);
    bars(d, "Time by layer", slow.map(n => tidy(n)), models.map(m => ({ label: m.letter, data: slow.map(n => of(m, n, (m, k) => k.time)), colour: tint(m) })), micros, i => select(slow[i]));
  }
  const kinds = [...new Set(models.flatMap(m => m.layers.map(l => l.format)))];
  if (kinds.length) {
    const d = section("Bytes and time by format");
    d.append(el("table", { class: "small" }, el("thead", {}, el("tr", {}, [two ? "model" : null, "format", "layers", "stored", "dense", "time"].filter(Boolean).map((h, i) => el("th", { class: i > (two ? 1 : 0) ? "r" : null }, h)))),
      el("tbody", {}, models.flatMap(m => kinds.map(f => {
        const ls = m.layers.filter(l => l.format === f), names = new Set(ls.map(l => l.name));
        if (!ls.length) return null;
        const t = m.nodes.reduce((s, n) => s + (names.has(n.n) ? n.time : 0), 0);
        return el("tr", {}, two ? el("td", {}, m.letter) : null, el("td", {}, dot(formatColour(f)), f), [ls.length, bytes(ls.reduce((s, l) => s + l.stored_bytes, 0)), bytes(ls.reduce((s, l) => s + l.dense_bytes, 0)), t ? micros(t) : ""].map(v => el("td", { class: "r" }, "" + v)));
      })))));
  }
}

// summary is a table of two models.
function summary() {
  const row = (name, f, write, ratio = true) => {
    const v = models.map(f);
    return v.every(x => x == null) ? null : el("tr", {}, el("td", {}, name), v.map(x => el("td", { class: "r" }, x == null ? "" : write(x))), el("td", { class: "r" }, ratio && v[0] && v[1] ? (v[0] / v[1]).toFixed(2) + "×" : ""));
  };
  return el("table", { class: "small" },
    el("thead", {}, el("tr", {}, el("th", {}, ""), models.map(m => el("th", { class: "r" }, `${m.letter}  ${m.file}`)), el("th", { class: "r" }, "A / B"))),
    el("tbody", {},
      row("measured, median", m => m.measured && 1000 * m.measured.ms, micros),
      row("predicted", m => m.predicted || null, micros),
      row("zeros", m => m.totals.weights ? 1 - m.totals.nonzeros / m.totals.weights : null, percent, false),
      row("bytes of weights", m => m.totals.stored_bytes, bytes),
      row("bytes of the file", m => m.bytes, bytes),
      row("nodes", m => m.nodes.filter(n => n.o !== "input" && n.o !== "output").length, x => "" + x)));
}
