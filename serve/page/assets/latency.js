"use strict";
// How long requests took: from how many took up to each of the server's bounds, in microseconds.

// quantile is the time that a share of the requests take at most, as their buckets tell: within one, times count as spread evenly over its logarithm.
function quantile(bounds, counts, share) {
  const all = counts.reduce((s, n) => s + n, 0);
  if (!all) return null;
  let left = share * all, i = 0;
  while (i < counts.length - 1 && left > counts[i]) left -= counts[i++];
  if (i === bounds.length) return bounds[i - 1];
  const high = bounds[i], low = i ? bounds[i - 1] : high * bounds[0] / bounds[1];
  return low * (high / low) ** Math.min(1, left / counts[i]);
}
const quantiles = (bounds, counts) => [0.5, 0.9, 0.99].map(q => ({ name: "p" + 100 * q, us: quantile(bounds, counts, q) }));

// time writes microseconds, up to minutes.
const time = us => us == null ? "–" : us >= 999500 ? digits(us / 1e6) + " s" : micros(us);

// svg is el for elements of drawings.
function svg(tag, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, v] of Object.entries(attributes)) e.setAttribute(name, v);
  e.append(...children);
  return e;
}

// histogram draws the counts over the logarithm of time, with quantiles.
function histogram(bounds, counts) {
  const width = 440, height = 188, left = 2, right = width - 2, top = 54, bottom = height - 24;
  const first = counts.findIndex(n => n > 0), last = counts.findLastIndex(n => n > 0);
  // A few more than are used, so that one bar is not the whole chart.
  const from = Math.max(0, first - 3), to = Math.min(counts.length - 1, Math.max(last + 3, from + 9));
  const edge = i => i < 0 ? bounds[0] ** 2 / bounds[1] : i < bounds.length ? bounds[i] : bounds[bounds.length - 1] ** 2 / bounds[bounds.length - 2];
  const low = Math.log(edge(from - 1)), high = Math.log(edge(to));
  const x = us => left + (Math.min(Math.max(Math.log(us), low), high) - low) / (high - low) * (right - left);
  const most = Math.max(...counts), marks = quantiles(bounds, counts);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "latency", "aria-label": "Histogram of the times of requests: " + marks.map(m => m.name + " " + time(m.us)).join(", ") });
  for (let i = from; i <= to; i++) {
    if (!counts[i]) continue;
    const a = x(edge(i - 1)), b = x(edge(i)), h = Math.max(1.5, counts[i] / most * (bottom - top));
    drawing.append(svg("rect", { class: "bar", x: a + 0.75, y: bottom - h, width: Math.max(1, b - a - 1.5), height: h, rx: 1.5 },
      svg("title", {}, `${i ? time(bounds[i - 1]) : "0"} to ${i < bounds.length ? time(bounds[i]) : "more"}: ${counts[i]}`)));
  }
  drawing.append(svg("line", { class: "axis", x1: left, x2: right, y1: bottom + 0.5, y2: bottom + 0.5 }));
  for (let t = 10; t < 1e9; t *= 10) {
    for (const step of high - low > Math.log(300) ? [1] : [1, 2, 5]) {
      const us = t * step, l = Math.log(us);
      if (l < low || l > high) continue;
      const c = x(us), anchor = c < 24 ? "start" : c > width - 24 ? "end" : "middle";
      drawing.append(svg("line", { class: "axis", x1: c, x2: c, y1: bottom, y2: bottom + 4 }), svg("text", { x: anchor === "start" ? left : anchor === "end" ? right : c, y: bottom + 17, "text-anchor": anchor }, time(us)));
    }
  }
  // Each label has a line of its own, so that none covers another.
  marks.forEach((m, i) => {
    const c = x(m.us), y = 13 + 16 * i, flip = c > width - 110;
    drawing.append(svg("line", { class: "mark", x1: c, x2: c, y1: y - 9, y2: bottom }),
      svg("text", { class: "quantile", x: flip ? c - 5 : c + 5, y, "text-anchor": flip ? "end" : "start" }, svg("tspan", { class: "which" }, m.name + " "), time(m.us)));
  });
  return drawing;
}
