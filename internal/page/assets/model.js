"use strict";
// The models of the page, and what follows from their data.

const data = JSON.parse($("data").textContent);
const models = data.models;
const two = models.length > 1;

const rate = x => scaled(x / 1e6, 1000, [" MFLOP/s", " GFLOP/s", " TFLOP/s"]);
const work = x => scaled(x / 1e3, 1000, [" KFLOP", " MFLOP", " GFLOP", " TFLOP"]);
const configured = (format, config) => config ? format + " " + config : format;
const formats = ["dense", "ell", "nm", "block", "csr", "hyb", "bitmap", "pair"];
const formatColour = f => formats.includes(f) ? colours[f] : colours.none;

// prepare adds to a model what follows from its data.
function prepare(m, index) {
  m.index = index;
  m.letter = two ? "AB"[index] : "";
  m.byName = new Map();
  m.pictures = new Map(Object.entries(m.pictures));
  m.readers = m.nodes.map(() => []);
  m.nodes.forEach((n, i) => {
    n.id = i;
    n.i = n.i || [];
    n.f = n.f || [];
    n.l = n.l || [];
    if (n.o !== "output" && !m.byName.has(n.n)) m.byName.set(n.n, i);
    for (const from of n.i.concat(n.f)) m.readers[from].push(i);
  });
  retime(m);
}

// retime reads what was measured.
function retime(m) {
  let predicted = 0, measured = 0, most = 0;
  const times = new Map(m.measured && Object.entries(m.measured.us)); // names may be those of an object's own members
  for (const n of m.nodes) {
    n.predicted = n.s ? n.s * 1e6 : 0;
    n.measured = m.measured && n.o !== "input" && n.o !== "output" && times.get(n.n) || 0;
    predicted += n.predicted;
    measured += n.measured;
  }
  m.predicted = predicted;
  m.timed = measured;
  for (const n of m.nodes) {
    n.time = m.measured ? n.measured : n.predicted;
    most = Math.max(most, n.time);
  }
  m.most = most;
  m.total = m.measured ? measured : predicted;
}

const layersOf = (m, n) => n.l.map(i => m.layers[i]);
const chosen = l => (l.candidates || []).find(c => c.chosen);
// timesOf are those of a layer's candidate for l.n columns, predicted and measured, 0 where there is none. Where the layer has times for several
// numbers of columns, predicted_us and measured_us are means over these.
function timesOf(l, c) {
  const k = (l.points || []).findIndex(p => p.n === l.n);
  if (k < 0) return { c, predicted: c.predicted_us, measured: c.measured_us || 0 };
  const measured = c.measured_us > 0 && !(c.scaled_points || []).includes(k);
  return { c, predicted: measured ? 0 : c.points_us[k], measured: measured ? c.points_us[k] : 0 };
}
// own is the time that a layer's candidate took in the model, where that is its node's and comparable: on one thread, and with
// as many columns as were predicted for.
function own(m, n, l) {
  const columns = n.w / (2 * l.rows * l.cols);
  return m.measured && m.measured.threads === 1 && n.l.length === 1 && Math.abs(columns - l.n) < 0.01 * l.n ? n.measured : 0;
}
// zeros is the share of zeros in a node's weights.
function zeros(m, n) {
  let all = 0, non = 0;
  for (const l of layersOf(m, n)) all += l.rows * l.cols, non += l.nonzeros;
  return all ? 1 - non / all : 0;
}
// moved is the bytes that a node reads and writes at least once, its weights as they are stored.
const moved = (m, n) => (n.b || 0) + layersOf(m, n).reduce((s, l) => s + l.stored_bytes - l.dense_bytes, 0);
// place is where a node lies in the roofline: operations and bytes, and the seconds that they take.
function place(m, n) {
  let flops = n.w || 0, dense = 0, issued = 0;
  const all = moved(m, n);
  for (const l of layersOf(m, n)) {
    const c = chosen(l), whole = 2 * l.rows * l.cols * l.n;
    dense += whole;
    issued += c ? Math.min(c.work, whole) : whole;
  }
  if (dense) flops *= issued / dense;
  // What moves faster than a cache can is a view, or is computed with another node.
  if (all / (n.time / 1e6) > 4 * m.machine.next.bandwidth * (m.measured ? m.measured.threads : 1)) return null;
  return flops > 0 && all > 0 && n.time > 0 ? { flops, moved: all, seconds: n.time / 1e6, x: flops / all, y: flops / (n.time / 1e6) } : null;
}
