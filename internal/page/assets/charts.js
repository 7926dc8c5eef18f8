"use strict";
// Charts of Chart.js in the colours of the theme.

const shown = new Map(); // charts by their canvases

// chart puts a chart of a height into an element, and describes it for those who do not see it.
function chart(into, height, label, config) {
  const box = el("div", { class: "chart" }), c = el("canvas", { role: "img", "aria-label": label });
  box.style.height = height + "px";
  box.append(c);
  into.append(box);
  config.options = Object.assign({ animation: false, responsive: true, maintainAspectRatio: false }, config.options);
  shown.set(c, new Chart(c, config));
  return c;
}
// drop frees the charts in an element.
function drop(e) {
  for (const c of e.querySelectorAll("canvas")) {
    const made = shown.get(c);
    if (made) made.destroy(), shown.delete(c);
  }
  e.replaceChildren();
}

function chartDefaults() {
  Chart.defaults.color = colours.muted;
  Chart.defaults.borderColor = colours.line;
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.font.size = 11;
  Chart.defaults.plugins.legend.labels.boxWidth = 10;
  Chart.defaults.plugins.legend.labels.boxHeight = 10;
  Chart.defaults.plugins.tooltip.displayColors = false;
}
const axis = (text, more) => Object.assign({ title: { display: !!text, text }, grid: { color: colours.line }, border: { display: false } }, more);
const short = (s, n = 30) => s.length > n ? s.slice(0, n / 2) + "…" + s.slice(-n / 2 + 1) : s;

// bars is a chart of horizontal bars: sets have a label, a colour or one for each bar, and numbers.
function bars(into, label, names, sets, write, click) {
  return chart(into, 46 + names.length * (sets.length > 1 ? 26 : 20), label, {
    type: "bar",
    data: { labels: names, datasets: sets.map(s => ({ label: s.label, data: s.data, backgroundColor: s.colour, borderWidth: 0, borderRadius: 2, barPercentage: 0.86, categoryPercentage: 0.82 })) },
    options: {
      indexAxis: "y",
      onClick: (e, found) => { if (click && found.length) click(found[0].index); },
      onHover: (e, found) => { if (click) e.native.target.style.cursor = found.length ? "pointer" : ""; },
      scales: {
        x: axis("", { beginAtZero: true, ticks: { callback: v => write(v), maxTicksLimit: 6, maxRotation: 0, autoSkipPadding: 14 } }),
        y: axis("", { grid: { display: false }, ticks: { autoSkip: false, color: colours.ink, callback: i => short(names[i]) } }),
      },
      plugins: {
        legend: { display: sets.length > 1, align: "end" },
        tooltip: { callbacks: { title: t => names[t[0].dataIndex], label: t => (sets.length > 1 ? t.dataset.label + " " : "") + write(t.parsed.x) } },
      },
    },
  });
}

function candidateBars(into, m, n, l) {
  const list = l.candidates.map(c => timesOf(l, c)).sort((a, b) => (a.predicted || a.measured) - (b.predicted || b.measured));
  const times = list.map(k => k.measured || k.c.chosen && own(m, n, l) || null), measured = times.some(t => t);
  const names = list.map(({ c }) => (c.chosen ? "● " : "") + configured(c.format, c.config) + (c.dtype !== l.dtype ? " " + c.dtype : ""));
  const sets = [{ label: "predicted", data: list.map(k => k.predicted || null), colour: list.map(({ c }) => mix(formatColour(c.format), colours.panel, c.chosen && !measured ? 1 : 0.45)) }];
  if (measured) sets.push({ label: "measured", data: times, colour: list.map(({ c }) => formatColour(c.format)) });
  return bars(into, "Predicted " + (measured ? "and measured " : "") + "times of the candidates", names, sets, micros);
}

function rowHistogram(into, p) {
  const names = p.counts.map((_, i) => p.step > 1 ? `${p.first + i * p.step}–${p.first + (i + 1) * p.step - 1}` : "" + (p.first + i));
  return chart(into, 150, "Histogram of the nonzeros in a row", {
    type: "bar",
    data: { labels: names, datasets: [{ data: p.counts, backgroundColor: colours.accent, barPercentage: 1, categoryPercentage: 0.94, maxBarThickness: 36, borderRadius: 2 }] },
    options: {
      scales: {
        x: axis("nonzeros in a row", { grid: { display: false }, ticks: { maxRotation: 0, autoSkipPadding: 12 } }),
        y: axis("rows", { ticks: { precision: 0, maxTicksLimit: 4 } }),
      },
      plugins: { legend: { display: false }, tooltip: { callbacks: { title: t => names[t[0].dataIndex] + " nonzeros", label: t => t.parsed.y + " rows" } } },
    },
  });
}

// roofline shows where all nodes lie, and one of them.
function roofline(into, m, n) {
  const all = m.nodes.map(k => ({ n: k, p: place(m, k) })).filter(k => k.p);
  const mine = n && place(m, n);
  if (!all.length) return null;
  const threads = m.measured ? m.measured.threads || 1 : 1;
  const peak = m.machine.peak * threads, slow = m.machine.memory * threads, fast = m.machine.next.bandwidth * threads;
  let low = Infinity, high = 0, floor = peak, top = peak;
  for (const k of all) low = Math.min(low, k.p.x), high = Math.max(high, k.p.x), floor = Math.min(floor, k.p.y), top = Math.max(top, k.p.y);
  low = Math.max(low / 2, high / 1e5);
  high = Math.max(high * 2, peak / slow * 4);
  floor = Math.max(floor / 2, peak / 1e5);
  const roof = (label, bandwidth, dash) => ({
    label, type: "line", showLine: true, pointRadius: 0, borderColor: colours.faint, borderWidth: 1.25, borderDash: dash,
    data: [{ x: low, y: low * bandwidth }, { x: peak / bandwidth, y: peak }, { x: high, y: peak }].filter(p => p.x >= low && p.x <= high),
  });
  const points = (list, colour, radius) => ({ label: "", data: list.map(k => ({ x: k.p.x, y: k.p.y, k })), backgroundColor: colour, borderColor: colours.panel, borderWidth: radius > 4 ? 1.5 : 0, radius, hoverRadius: radius + 1 });
  return chart(into, 240, "Roofline: operations a second over operations a byte", {
    type: "scatter",
    data: { datasets: [
      ...(mine ? [points([{ n, p: mine }], colours.hot, 6)] : []),
      points(all.filter(k => k.n !== n), mix(colours.accent, colours.panel, 0.55), 3),
      roof("memory", slow, []), roof("cache behind level 2", fast, [5, 4]),
    ] },
    options: {
      onClick: (e, found) => { const raw = found.length && found[0].element.$context.raw; if (raw && raw.k) select(raw.k.n.n); },
      scales: {
        x: axis("FLOP per byte moved", { type: "logarithmic", min: low, max: high, ticks: { maxTicksLimit: 7, maxRotation: 0, callback: v => /^1/.test(v.toExponential()) ? digits(v) : "" } }),
        y: axis("", { type: "logarithmic", min: floor, max: top * 2, ticks: { callback: v => /^1/.test(v.toExponential()) ? rate(v) : "" } }),
      },
      plugins: {
        legend: { align: "end", labels: { filter: i => i.text !== "", usePointStyle: true, pointStyle: "line" } },
        tooltip: { filter: t => !!t.raw.k, callbacks: { label: t => [t.raw.k.n.n, `${rate(t.raw.y)}, ${percent(t.raw.y / peak)} of the peak`, `${digits(t.raw.x)} FLOP per byte`] } },
      },
    },
  });
}
