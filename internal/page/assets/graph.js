"use strict";
// A View draws a model's graph on a canvas, and moves over it.

const near = 0.34; // the zoom from which on boxes have text

class View {
  constructor(pane, m) {
    this.model = m;
    this.pane = pane;
    this.drawing = new Drawing(m);
    this.canvas = el("canvas", { tabindex: "0", role: "application", "aria-label": "Graph of " + m.file + ". Arrows go from layer to layer." });
    pane.append(this.canvas);
    this.k = 1;
    this.x = this.y = 0;
    this.hits = null; // nodes that a search found
    this.texts = new Map();
    this.laid = Promise.resolve();
    this.drawing.now();
    this.listen();
    new ResizeObserver(() => this.resized()).observe(pane);
  }

  resized() {
    const w = this.pane.clientWidth, h = this.pane.clientHeight, ratio = window.devicePixelRatio || 1;
    if (!w || !h || this.printing) return;
    const first = !this.w;
    this.size(w, h, ratio);
    if (first) this.start();
    this.draw(true);
  }
  size(w, h, ratio) {
    this.canvas.width = Math.round(w * ratio);
    this.canvas.height = Math.round(h * ratio);
    Object.assign(this, { w, h, ratio });
  }
  // print draws the whole on paper of a size.
  print(w, h) {
    this.printing = true;
    this.size(w, h, 3);
    this.fit();
    this.draw(true);
  }
  // start shows the beginning, in a legible size.
  start() {
    const d = this.drawing, top = two ? 52 : 24, first = d.boxes[0];
    this.k = Math.min(1, Math.max(0.8, (this.w - 48) / d.w));
    this.x = d.w * this.k + 32 < this.w ? (this.w - d.w * this.k) / 2 : this.w / 2 - (first.x + first.w / 2) * this.k;
    this.y = d.h * this.k + top + 24 < this.h ? (this.h - d.h * this.k) / 2 : top;
  }
  fit() {
    const d = this.drawing;
    this.k = Math.min(1.2, (this.w - 40) / d.w, (this.h - 64) / d.h);
    this.x = (this.w - d.w * this.k) / 2;
    this.y = (this.h - d.h * this.k) / 2;
    this.draw();
  }
  zoom(by, x = this.w / 2, y = this.h / 2) {
    const d = this.drawing;
    const least = Math.min(0.3, 0.8 * Math.min(this.w / d.w, this.h / d.h));
    const k = Math.min(2.5, Math.max(least, this.k * by));
    this.x = x - (x - this.x) * k / this.k;
    this.y = y - (y - this.y) * k / this.k;
    this.k = k;
    this.draw();
  }
  // show moves a node into sight, unfolded where that is asked for.
  show(id, unfold) {
    if (this.busy) return this.laid.then(() => this.show(id, unfold));
    if (unfold && this.drawing.reveal(id)) {
      this.relay();
      if (this.busy) return this.laid.then(() => this.show(id));
    }
    const b = this.drawing.visible(id).box;
    if (!b) return;
    const x = this.x + b.x * this.k, y = this.y + b.y * this.k, w = b.w * this.k, h = b.h * this.k;
    if (x < 16 || y < 48 || x + w > this.w - 16 || y + h > this.h - 48) {
      if (this.k < 0.5) this.k = 0.9;
      this.x = this.w / 2 - (b.x + b.w / 2) * this.k;
      this.y = this.h / 2 - (b.y + b.h / 2) * this.k;
    }
    this.draw();
  }
  // at is where a node's box lies on the page.
  at(id) {
    const b = this.drawing.visible(id).box, r = this.canvas.getBoundingClientRect();
    return { x: r.left + this.x + (b.x + b.w / 2) * this.k, y: r.top + this.y + (b.y + Math.min(b.h / 2, 20)) * this.k };
  }

  // relay lays out what is not, and keeps the box of an item where it is. What is large is done in pieces, between which the page lives.
  relay(keep) {
    const d = this.drawing;
    const was = keep && keep.box && { x: keep.box.x, y: keep.box.y };
    const done = () => {
      d.flatten();
      if (was) {
        this.x += (was.x - keep.box.x) * this.k;
        this.y += (was.y - keep.box.y) * this.k;
      }
      this.draw();
    };
    const steps = d.steps();
    const piece = budget => {
      const end = performance.now() + budget;
      do {
        if (steps.next().done) return true;
      } while (performance.now() < end);
      return false;
    };
    if (piece(60)) {
      done();
      return this.laid;
    }
    this.busy = true;
    say("laying out …");
    return this.laid = new Promise(resolve => {
      const on = () => {
        if (!piece(14)) return setTimeout(on);
        this.busy = false;
        say("");
        done();
        resolve();
      };
      setTimeout(on);
    });
  }
  toggle(g) {
    if (this.busy) return;
    this.drawing.toggle(g);
    this.relay(g);
  }
  foldAll(folded) {
    if (this.busy) return this.laid;
    this.drawing.foldAll(folded);
    return this.relay().then(() => { this.start(); this.draw(); });
  }

  hit(px, py) {
    const x = (px - this.x) / this.k, y = (py - this.y) / this.k;
    let best = null;
    for (const b of this.drawing.stripes.boxes.between(y, y)) {
      if (x >= b.x && x <= b.x + b.w && y >= b.y && y <= b.y + b.h && (!best || b.w * b.h <= best.w * best.h)) best = b;
    }
    return best;
  }

  listen() {
    const c = this.canvas;
    const point = e => { const r = c.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
    let down = null, moved = false, pinch = null;
    const fingers = new Map();
    c.addEventListener("pointerdown", e => {
      if (e.button) return;
      c.setPointerCapture(e.pointerId);
      fingers.set(e.pointerId, point(e));
      down = point(e);
      moved = false;
      c.focus({ preventScroll: true });
    });
    c.addEventListener("pointermove", e => {
      const p = point(e);
      if (!fingers.has(e.pointerId)) {
        c.classList.toggle("over", !!this.hit(...p));
        const b = this.hit(...p);
        c.title = b ? b.item.node ? b.item.node.n : b.item.title : "";
        return;
      }
      const was = fingers.get(e.pointerId);
      fingers.set(e.pointerId, p);
      if (fingers.size === 2) {
        const [a, b] = [...fingers.values()], wide = Math.hypot(a[0] - b[0], a[1] - b[1]);
        if (pinch) this.zoom(wide / pinch, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
        pinch = wide;
        moved = true;
        return;
      }
      if (moved || Math.hypot(p[0] - down[0], p[1] - down[1]) > 4) {
        moved = true;
        c.classList.add("drag");
        this.x += p[0] - was[0];
        this.y += p[1] - was[1];
        this.draw();
      }
    });
    const up = e => {
      if (!fingers.delete(e.pointerId)) return;
      pinch = null;
      c.classList.remove("drag");
      if (moved || e.type !== "pointerup") return;
      const b = this.hit(...point(e));
      if (!b) return select(null);
      // The mark at a group's right end folds it, all else of it selects it.
      const [x, y] = point(e).map((p, i) => (p - (i ? this.y : this.x)) / this.k);
      if (!b.item.node && x > b.x + b.w - 34 && y < b.y + 30) return this.toggle(b.item);
      if (b.item.node) select(b.item.node.n);
      else selectGroup(this.model, b.item);
    };
    c.addEventListener("pointerup", up);
    c.addEventListener("pointercancel", up);
    c.addEventListener("dblclick", e => {
      const b = this.hit(...point(e));
      if (b && !b.item.node && !b.frame) this.toggle(b.item);
    });
    c.addEventListener("wheel", e => {
      e.preventDefault();
      const line = e.deltaMode ? 20 : 1;
      // Fingers that move apart are wheels with Ctrl, of small steps.
      if (e.ctrlKey || e.metaKey) this.zoom(Math.exp(-Math.max(-60, Math.min(60, e.deltaY * line)) * 0.008), ...point(e));
      else if (e.shiftKey) this.pan(-(e.deltaY || e.deltaX) * line, 0);
      else this.pan(-e.deltaX * line, -e.deltaY * line);
    }, { passive: false });
  }
  pan(x, y) {
    this.x += x;
    this.y += y;
    this.draw();
  }

  // draw draws at the next frame.
  draw(at) {
    if (at === true) return this.paint();
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.paint();
    });
  }

  paint() {
    if (!this.w || this.pane.offsetParent === null) return;
    const g = this.canvas.getContext("2d"), d = this.drawing, k = this.k;
    // Some of the graph stays in sight.
    this.x = Math.min(this.w - 60, Math.max(60 - d.w * k, this.x));
    this.y = Math.min(this.h - 60, Math.max(60 - d.h * k, this.y));
    g.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    g.fillStyle = colours.bg;
    g.fillRect(0, 0, this.w, this.h);
    g.setTransform(this.ratio * k, 0, 0, this.ratio * k, this.ratio * this.x, this.ratio * this.y);
    const low = -this.y / k, high = (this.h - this.y) / k, left = -this.x / k, right = (this.w - this.x) / k;
    const boxes = d.stripes.boxes.between(low, high).filter(b => b.y < high && b.y + b.h > low && b.x < right && b.x + b.w > left);
    const text = k >= near;
    for (const b of boxes) if (b.frame && b.h * k > 3) this.frame(g, b);
    // Where boxes are specks, lines are a haze that takes longest to draw.
    if (k * card.height > 2.5) this.paintLines(g, d.stripes.lines.between(low, high), text);
    if (text) for (const b of boxes) b.frame ? this.title(g, b) : this.box(g, b);
    else this.specks(g, boxes);
    this.outline(g, boxes);
  }

  paintLines(g, lines, near) {
    g.strokeStyle = colours.edge;
    g.lineWidth = near ? 1.25 : Math.min(3, 0.7 / this.k);
    g.beginPath();
    lines.forEach((l, i) => {
      g.moveTo(l[0][0], l[0][1]);
      if (l.length === 2 && Math.abs(l[0][0] - l[1][0]) > 2 && near) {
        const y = (l[0][1] + l[1][1]) / 2;
        g.bezierCurveTo(l[0][0], y, l[1][0], y, l[1][0], l[1][1]);
      } else if (near && l.length > 2) {
        for (let j = 1; j < l.length - 1; j++) {
          const last = j === l.length - 2;
          g.quadraticCurveTo(l[j][0], l[j][1], last ? l[j + 1][0] : (l[j][0] + l[j + 1][0]) / 2, last ? l[j + 1][1] : (l[j][1] + l[j + 1][1]) / 2);
        }
      } else for (let j = 1; j < l.length; j++) g.lineTo(l[j][0], l[j][1]);
      // One path of all would take long to fill in.
      if (i % 64 === 63) g.stroke(), g.beginPath();
    });
    g.stroke();
  }

  frame(g, b) {
    g.fillStyle = colours.frame;
    g.strokeStyle = colours.line;
    g.lineWidth = 1;
    round(g, b.x, b.y, b.w, b.h, 8);
    g.fill();
    g.stroke();
  }
  // title names a frame, above lines that pass there.
  title(g, b) {
    g.font = font(11.5, 600);
    const text = this.tail(g, b.item.kind === "repeat" ? "×" + b.item.children.length + "  " + tidy(b.item.title) : tidy(b.item.title, b.item.parent), b.w - 48, 11);
    g.fillStyle = colours.frame;
    g.fillRect(b.x + 8, b.y + 6, g.measureText(text).width + 8, 16);
    g.fillStyle = colours.muted;
    g.textBaseline = "middle";
    g.fillText(text, b.x + 12, b.y + 14);
    this.mark(g, b.x + b.w - 16, b.y + 14, false);
  }

  // mark is what folds or unfolds.
  mark(g, x, y, folded) {
    g.strokeStyle = colours.muted;
    g.lineWidth = 1.5;
    g.beginPath();
    g.moveTo(x - 4, y);
    g.lineTo(x + 4, y);
    if (folded) g.moveTo(x, y - 4), g.lineTo(x, y + 4);
    g.stroke();
  }

  box(g, b) {
    const item = b.item, dim = this.hits && !this.has(item);
    g.globalAlpha = dim ? 0.28 : 1;
    if (item.node) this.node(g, b, item.node);
    else this.folded(g, b, item);
    g.globalAlpha = 1;
  }
  has(item) {
    return item.node ? this.hits.has(item.node.id) : item.children.some(c => this.has(c));
  }

  node(g, b, n) {
    const pill = n.o === "input" || n.o === "output";
    const paint = colourOf(this.model, n);
    g.fillStyle = pill ? colours.bg : paint.fill;
    g.strokeStyle = pill ? colours.edge : paint.line;
    g.lineWidth = 1;
    round(g, b.x, b.y, b.w, b.h, pill ? b.h / 2 : 6);
    g.fill();
    g.stroke();
    g.textBaseline = "middle";
    if (pill) {
      g.font = font(11.5, 500);
      g.fillStyle = colours.muted;
      g.textAlign = "center";
      g.fillText(this.fitted(g, n.n + "  " + (n.t || ""), b.w - 20, 11), b.x + b.w / 2, b.y + b.h / 2 + 0.5);
      g.textAlign = "left";
      return;
    }
    g.fillStyle = paint.band;
    round(g, b.x, b.y, 5, b.h, [6, 0, 0, 6]);
    g.fill();
    const right = rightOf(this.model, n);
    g.font = font(11, 500);
    g.fillStyle = paint.muted;
    const taken = right ? g.measureText(right).width + 10 : 0;
    if (right) g.fillText(right, b.x + b.w - taken, b.y + 28.5);
    g.fillText(this.fitted(g, below(this.model, n), b.w - 22 - taken, 11), b.x + 13, b.y + 28.5);
    g.font = font(12.5, 600);
    g.fillStyle = paint.ink;
    g.fillText(this.tail(g, tidy(n.n, b.item.parent, n.l.length && n.o), b.w - 24, 12.5), b.x + 13, b.y + 13.5);
    if (n.f.length) { // what comes from far is named, not drawn
      g.fillStyle = colours.muted;
      g.font = font(10, 500);
      const names = n.f.map(f => tidy(this.model.nodes[f].n)).join(", ");
      g.fillText(this.fitted(g, "↳ " + names, b.w - 16, 10), b.x + 8, b.y - 7);
    }
  }

  folded(g, b, item) {
    g.fillStyle = colours.raised;
    g.strokeStyle = colours.edge;
    g.lineWidth = 1;
    if (item.kind === "repeat") {
      for (const s of [6, 3]) round(g, b.x + s, b.y + s, b.w - 6, b.h - 6, 6), g.fill(), g.stroke();
    }
    const w = item.kind === "repeat" ? b.w - 6 : b.w, h = item.kind === "repeat" ? b.h - 6 : b.h;
    round(g, b.x, b.y, w, h, 6);
    g.fill();
    g.stroke();
    g.textBaseline = "middle";
    g.font = font(12.5, 600);
    g.fillStyle = colours.ink;
    const times = item.kind === "repeat" ? "×" + item.children.length + "  " : "";
    const wide = g.measureText(times).width;
    g.fillText(times, b.x + 12, b.y + 13.5);
    g.fillText(this.tail(g, tidy(item.title, item.parent), w - 40 - wide, 12.5), b.x + 12 + wide, b.y + 13.5);
    g.font = font(11, 500);
    g.fillStyle = colours.muted;
    g.fillText(this.fitted(g, holds(this.model, item), w - 22, 11), b.x + 12, b.y + 28);
    this.mark(g, b.x + w - 16, b.y + 14, true);
    // A speck for each node inside.
    const inside = leaves(item).filter(n => n.l.length).slice(0, 400), width = w - 24;
    const each = Math.min(7, width / Math.max(inside.length, 1));
    inside.forEach((n, i) => {
      g.fillStyle = colourOf(this.model, n).band;
      g.fillRect(b.x + 12 + i * each, b.y + h - 9, Math.max(each - 1, each * 0.8), 4);
    });
  }

  // thin leaves of several boxes in one pixel the first.
  thin(boxes) {
    const seen = new Set(), k = this.k;
    if (k * card.height > 4) return boxes;
    return boxes.filter(b => {
      const at = Math.floor(b.y * k) * 65536 + Math.floor(b.x * k);
      return !seen.has(at) && seen.add(at);
    });
  }
  // specks draws boxes that are too small for text, those of one colour together.
  specks(g, boxes) {
    const by = new Map();
    for (const b of this.thin(boxes.filter(b => !b.frame))) {
      const n = b.item.node;
      let c = n ? n.l.length || mode !== "format" ? colourOf(this.model, n).band : colours.edge : colours.faint;
      if (this.hits && this.has(b.item)) c = colours.mark;
      if (!by.has(c)) by.set(c, []);
      by.get(c).push(b);
    }
    for (const [c, list] of by) {
      g.fillStyle = c;
      for (const b of list) g.fillRect(b.x, b.y, b.w, b.h);
    }
  }

  outline(g, boxes) {
    const line = (b, colour, wide) => {
      g.strokeStyle = colour;
      g.lineWidth = Math.max(wide, 1.5 / this.k);
      round(g, b.x - 2.5, b.y - 2.5, b.w + 5, b.h + 5, 8);
      g.stroke();
    };
    if (this.hits) for (const b of boxes) if (!b.frame && this.has(b.item)) line(b, colours.mark, 2);
    const id = selected != null ? this.model.byName.get(selected) : null;
    const item = id != null ? this.drawing.visible(id) : selectedGroup && selectedGroup.model === this.model ? selectedGroup.item : null;
    if (item && item.box && boxes.includes(item.box)) line(item.box, colours.accent, 2.5);
  }

  // fitted is a text cut at its end so that it is at most so wide; tail is one cut at its beginning, as names are told apart
  // by their ends.
  tail(g, s, width, size) {
    const halves = s.split(" … ");
    if (halves.length !== 2 || g.measureText(s).width <= width) return this.fitted(g, s, width, size, true);
    const half = (width - g.measureText(" … ").width) / 2;
    return halves.map(h => this.fitted(g, h, half, size, true)).join(" … ");
  }
  fitted(g, s, width, size, tail) {
    const key = size + (tail ? "<" : ">") + Math.round(width) + "|" + s;
    let out = this.texts.get(key);
    if (out == null) {
      const cut = n => n >= s.length ? s : tail ? "…" + s.slice(s.length - n) : s.slice(0, n) + "…";
      let low = 0, high = s.length;
      while (low < high) {
        const n = (low + high + 1) >> 1;
        if (g.measureText(cut(n)).width <= width) low = n;
        else high = n - 1;
      }
      out = cut(low);
      if (this.texts.size > 20000) this.texts.clear();
      this.texts.set(key, out);
    }
    return out;
  }
}

const font = (size, weight) => weight + " " + size + "px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Noto Sans', 'DejaVu Sans', sans-serif";
function round(g, x, y, w, h, r) {
  g.beginPath();
  g.roundRect(x, y, w, h, r);
}
// tidy is a name without what the group around it has in its own, and without the operator at its end.
function tidy(name, parent, op) {
  for (let p = parent; p && p.title; p = p.parent) {
    if (name.startsWith(p.title) && /[/.]/.test(name[p.title.length] || "")) {
      name = name.slice(p.title.length);
      break;
    }
  }
  if (op && name.endsWith("/" + op) && name.length > op.length + 2) name = name.slice(0, -op.length - 1);
  return name.replace(/(^| … )[/.]/g, "$1");
}
function leaves(item) {
  return item.node ? [item.node] : item.leaves || (item.leaves = item.children.flatMap(leaves));
}
// holds says what a group holds, by operator.
function holds(m, item) {
  if (item.holds) return item.holds;
  const list = leaves(item).filter(n => n.o !== "input" && n.o !== "output"), by = new Map();
  for (const n of list) by.set(n.o, (by.get(n.o) || 0) + 1);
  const parts = [...by].sort((a, b) => b[1] - a[1]).slice(0, 4).map(([o, n]) => n > 1 ? n + " " + o : o);
  return item.holds = list.length + " nodes: " + parts.join(", ");
}
// below is a node's second line, rightOf what stands at its end.
function below(m, n) {
  const l = layersOf(m, n)[0];
  return l ? `${n.o} ${l.rows}×${l.cols}` : n.o + (n.x ? ", interpreted" : "") + (n.t ? "  " + n.t.replace(/^[a-z0-9]+/, "") : "");
}
function rightOf(m, n) {
  const l = layersOf(m, n)[0];
  if (mode === "time") return n.time ? micros(n.time) : "";
  if (mode === "zeros") return l ? percent(zeros(m, n)) : "";
  return l ? configured(l.format, l.config) : "";
}
// colourOf is how a node is painted in the mode that is chosen.
function colourOf(m, n) {
  const surface = colours.raised, plain = { fill: surface, line: colours.line, band: colours.none, ink: colours.ink, muted: colours.muted };
  if (mode === "format") {
    const l = layersOf(m, n)[0];
    if (!l) return plain;
    const c = formatColour(l.format);
    return { fill: mix(c, surface, 0.1), line: mix(c, surface, 0.45), band: c, ink: colours.ink, muted: colours.muted };
  }
  let share = 0, c = colours.hot;
  if (mode === "time") share = m.most ? Math.sqrt(n.time / m.most) : 0;
  else {
    if (!n.l.length) return plain;
    share = zeros(m, n);
    c = colours.zeros;
  }
  const fill = mix(c, surface, 0.04 + 0.6 * share);
  return { fill, line: mix(c, colours.line, 0.2 + 0.5 * share), band: mix(c, surface, 0.15 + 0.85 * share), ink: colours.ink, muted: share > 0.5 ? colours.ink : colours.muted };
}
