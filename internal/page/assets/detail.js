"use strict";
// What stands at the right: of a layer all that is known, of a group what it holds, else of the model.

function detail() {
  const into = $("detail");
  drop(into);
  for (const m of models) {
    const part = el("section", { class: "model" });
    into.append(part); // charts need their width
    if (two) part.append(el("div", { class: "which" }, m.letter + "  " + m.file));
    if (selected != null) {
      const id = m.byName.get(selected);
      if (id == null) part.append(el("p", { class: "note" }, "It has no node of this name."));
      else describe(part, m, m.nodes[id]);
    } else if (selectedGroup) {
      if (selectedGroup.model === m) describeGroup(part, m, selectedGroup.item);
    } else overview(part, m);
  }
  into.scrollTop = 0;
}

const link = name => el("a", { href: hashOf(name) }, name);
const chip = (...what) => el("span", { class: "chip" }, ...what);
const facts = pairs => el("dl", { class: "facts" }, pairs.filter(p => p && p[1] !== "" && p[1] != null).map(([k, ...v]) => [el("dt", {}, k), el("dd", {}, ...v)]).flat());
const links = list => list.flatMap((n, i) => i ? [", ", n.o === "output" ? n.n : link(n.n)] : [n.o === "output" ? n.n : link(n.n)]);

function describe(into, m, n) {
  const layers = layersOf(m, n);
  into.append(el("h2", {}, n.n));
  const t = time(m, n);
  into.append(el("div", { class: "chips" }, chip(n.o), n.t ? chip(n.t) : null, t ? chip(t) : null, n.x ? chip("interpreted: no kernel") : null));
  for (const l of layers) describeWeight(into, m, n, l, layers.length > 1);
  if (place(m, n)) {
    into.append(el("h3", {}, "Roofline"));
    roofline(into, m, n);
    const p = place(m, n);
    into.append(el("p", { class: "note" }, `${work(p.flops)} and ${bytes(p.moved)} at least in ${micros(p.seconds * 1e6)}${m.measured ? "" : ", as predicted"}. Roofs are those of the profile ${m.machine.name} for f32, of ${threadsOf(m)}.`));
  }
  const froms = n.i.concat(n.f).map(i => m.nodes[i]), to = m.readers[n.id].map(i => m.nodes[i]);
  into.append(el("h3", {}, "In the graph"), facts([
    ["reads", ...(froms.length ? links(froms) : ["nothing"])],
    ["read by", ...(to.length ? links(to.slice(0, 30)) : ["nothing"]), ...(to.length > 30 ? [` and ${to.length - 30} more`] : [])],
    layers.length ? null : ["work", n.w ? work(n.w) : ""],
    layers.length ? null : ["bytes moved", n.b ? bytes(n.b) : ""],
  ]));
}

const threadsOf = m => { const t = m.measured ? m.measured.threads : 1; return t === 1 ? "one thread" : t + " threads"; };
function time(m, n) {
  if (m.measured && n.measured) return `${micros(n.measured)}, ${percent(n.measured / m.timed)} of the time`;
  return n.predicted ? `${micros(n.predicted)} predicted` : "";
}

function describeWeight(into, m, n, l, several) {
  if (several) into.append(el("h3", {}, "Weight " + l.weight));
  into.append(el("div", { class: "chips" },
    chip(dot(formatColour(l.format)), configured(l.format, l.config)), chip(`${l.rows} × ${l.cols}`), chip(percent(l.sparsity) + " zeros"),
    l.pattern !== l.format ? chip(l.pattern) : null, chip(l.dtype), chip(`${bytes(l.stored_bytes)} of ${bytes(l.dense_bytes)}`)));
  into.append(el("p", { class: "reason" }, l.reason));
  if (l.candidates && l.candidates.length) {
    into.append(el("h3", {}, `Candidates, for ${l.n === 1 ? "1 column" : l.n + " columns"}`));
    candidateBars(into, m, n, l);
    const how = el("div", { class: "scroll" });
    into.append(el("details", {}, el("summary", {}, "Work, efficiency, and why"), how));
    const mean = l.points && l.points.length ? "mean " : "";
    if (mean) how.append(el("p", { class: "note" }, `Means are over ${l.points.map(p => p.n).join(", ")} columns; work and efficiency are for ${l.n}.`));
    how.append(el("table", { class: "small" },
      el("thead", {}, el("tr", {}, ["format", "stored", "work", "efficiency", mean + "predicted", mean + "measured"].map((h, i) => el("th", { class: i ? "r" : null }, h)))),
      el("tbody", {}, l.candidates.flatMap(c => [
        el("tr", { class: c.chosen ? "chosen" : null }, [configured(c.format, c.config), bytes(c.stored_bytes), work(c.work), percent(c.efficiency), micros(c.predicted_us), c.measured_us ? micros(c.measured_us) : ""].map((v, i) => el("td", { class: i ? "r" : null }, v))),
        el("tr", {}, el("td", { class: "why", colspan: "6" }, [c.kernel, c.why].filter(Boolean).join(": "))),
      ]))));
  }
  const p = m.pictures.get(l.weight);
  if (!p || !p.whole) return;
  into.append(el("h3", {}, "Nonzeros"));
  const exact = !p.corner;
  const both = el("div", { class: "pictures" }, figure(p, exact ? "all of it" : "all of it, by density", unpack4, p.whole, p.w, p.h));
  if (p.corner) both.append(figure(p, `the first ${p.ch} × ${p.cw} elements`, unpack1, p.corner, p.cw, p.ch));
  into.append(both);
  into.append(el("h3", {}, "Nonzeros in a row"));
  rowHistogram(into, p);
}

const raw = s => Uint8Array.from(atob(s), c => c.charCodeAt(0));
// The levels of a picture's cells, 0 to 1.
const unpack4 = b => i => (b[i >> 1] >> (i % 2 ? 0 : 4) & 15) / 15;
const unpack1 = b => i => b[i >> 3] >> (7 - i % 8) & 1;

function figure(p, text, unpack, packed, w, h) {
  const c = el("canvas", { width: w, height: h, role: "img", "aria-label": "Nonzeros: " + text }), g = c.getContext("2d");
  const level = unpack(raw(packed)), image = g.createImageData(w, h);
  const parse = s => [1, 3, 5].map(i => parseInt(s.slice(i, i + 2), 16)), ink = parse(colours.accent), paper = parse(colours.panel);
  for (let i = 0; i < w * h; i++) {
    const x = level(i);
    for (let k = 0; k < 3; k++) image.data[4 * i + k] = ink[k] * x + paper[k] * (1 - x);
    image.data[4 * i + 3] = 255;
  }
  g.putImageData(image, 0, 0);
  return el("figure", {}, c, el("figcaption", {}, text));
}

function describeGroup(into, m, g) {
  const list = leaves(g).filter(n => n.o !== "input" && n.o !== "output");
  into.append(el("h2", {}, (g.kind === "repeat" ? "×" + g.children.length + "  " : "") + tidy(g.title)));
  const sum = list.reduce((s, n) => s + n.time, 0);
  const stored = list.flatMap(n => layersOf(m, n)).reduce((s, l) => s + l.stored_bytes, 0);
  into.append(el("div", { class: "chips" }, chip(list.length + " nodes"), sum ? chip(`${micros(sum)}, ${percent(sum / m.total)} of the time`) : null, stored ? chip(bytes(stored) + " of weights") : null));
  into.append(el("h3", {}, "Nodes"));
  nodeList(into, m, list);
}

function nodeList(into, m, list) {
  into.append(el("table", { class: "small list" }, el("tbody", {}, list.slice(0, 300).map(n => {
    const l = layersOf(m, n)[0];
    return el("tr", {}, el("td", {}, link(n.n)), el("td", {}, l ? [dot(formatColour(l.format)), configured(l.format, l.config)] : n.o), el("td", { class: "r" }, n.time ? micros(n.time) : ""));
  }))));
  if (list.length > 300) into.append(el("p", { class: "note" }, `and ${list.length - 300} more, see the table`));
}

// interpreted lists the operators without a kernel.
function interpreted(m) {
  const by = new Map();
  for (const n of m.nodes) if (n.x) by.set(n.o, (by.get(n.o) || 0) + 1);
  return [...by].map(([o, n]) => n > 1 ? `${o} (${n})` : o).join(", ");
}

function overview(into, m) {
  const t = m.totals;
  if (!two) into.append(el("h2", {}, m.file));
  into.append(facts([
    ["weights", t.weights ? `${count(t.weights)}, ${percent(1 - t.nonzeros / t.weights)} zeros` : "none"],
    t.prunable ? ["prunable", `${count(t.prunable)}, ${percent(t.prunable_zeros / t.prunable)} zeros`] : null,
    !t.weights ? null : ["stored", `${bytes(t.stored_bytes)}, dense ${bytes(t.dense_bytes)}`],
    ["file", bytes(m.bytes)],
    ["measured", m.measured ? `${micros(1000 * m.measured.ms)}, the median of ${m.measured.runs} runs, and ${micros(1000 * m.measured.min)} the least; ${m.measured.device}, ${threadsOf(m)}` : "no: " + (m.why || "not asked for")],
    ["interpreted", interpreted(m)],
    ["made by", m.options.command && m.options.command.length ? el("code", {}, m.options.command.join(" ")) : ""],
  ]));
  const by = new Map();
  for (const l of m.layers) by.set(l.format, (by.get(l.format) || 0) + 1);
  if (by.size) into.append(el("div", { class: "chips" }, [...by].map(([f, n]) => chip(dot(formatColour(f)), `${n} ${f}`))));
  const slow = m.nodes.filter(n => n.time).sort((a, b) => b.time - a.time).slice(0, 12);
  if (slow.length) {
    into.append(el("h3", {}, "Where the time goes" + (m.measured ? "" : ", as predicted")));
    bars(into, "The slowest nodes", slow.map(n => tidy(n.n, null, n.l.length && n.o)), [{ data: slow.map(n => n.time), colour: slow.map(n => { const l = layersOf(m, n)[0]; return l ? formatColour(l.format) : colours.none; }) }], micros, i => select(slow[i].n));
  }
  if (m.nodes.some(k => place(m, k))) {
    into.append(el("h3", {}, "Roofline"));
    roofline(into, m, null);
  }
}
