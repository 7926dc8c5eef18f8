"use strict";
// A Drawing is a model's tree of groups, of which some are folded, and where all that shows lies. Each group is laid out by
// itself, by dagre where more than a row of boxes is in it, and is a box in the group around it.

const card = { width: 216, height: 42, pill: 26, pad: 14, head: 26, gap: 26 };

// most bounds what is laid out: lines between two boxes, ports of a group on a side, and edges in a group, beyond which its boxes
// stand in a column.
const most = { lines: 3, ports: 12, edges: 500 };

class Drawing {
  constructor(m) {
    this.model = m;
    this.leaf = new Array(m.nodes.length);
    this.groups = [];
    this.known = new Map(); // layouts, by what they follow from
    this.root = this.group({ title: "", kind: "root", children: m.tree }, null);
    for (const n of m.nodes) for (const from of n.i) this.connect(from, n.id);
    this.foldByDefault();
  }

  group(t, parent) {
    const g = { title: t.title, kind: t.kind, parent, folded: false, edges: [], pairs: new Map(), ports: { in: new Map(), out: new Map() }, first: -1, count: 0 };
    g.id = this.groups.push(g) - 1;
    g.children = t.children.map((c, at) => {
      const item = typeof c === "number" ? { node: this.model.nodes[c], parent: g } : this.group(c, g);
      if (item.node) this.leaf[c] = item;
      item.at = at;
      g.weighty = g.weighty || (item.node ? item.node.l.length > 0 : item.weighty); // it has a weight
      g.count += item.node ? 1 : item.count;
      if (g.first < 0) g.first = item.node ? c : item.first;
      return item;
    });
    return g;
  }

  // connect adds an edge to the groups that it passes through: into one it comes, and from one it goes, by a port for what
  // its start makes.
  connect(from, to) {
    const a = [], b = [];
    for (let i = this.leaf[from]; i; i = i.parent) a.push(i);
    for (let i = this.leaf[to]; i; i = i.parent) b.push(i);
    while (a.length > 1 && b.length > 1 && a[a.length - 2] === b[b.length - 2]) a.pop(), b.pop();
    // Both end with the group that has both.
    const add = (g, x, y) => {
      const way = x === "in" ? x : y === "out" ? y : null, value = way ? this.port(g, way, from) : from;
      // Of many lines between two boxes a few say as much.
      const pair = x + ">" + y, lines = g.pairs.get(pair) || g.pairs.set(pair, new Set()).get(pair);
      if (lines.has(value) || !way && lines.size >= most.lines) return;
      lines.add(value);
      g.edges.push({ from: x, to: y, value });
    };
    add(a[a.length - 1], a[a.length - 2].at, b[b.length - 2].at);
    for (let k = 1; k < a.length - 1; k++) add(a[k], a[k - 1].at, "out");
    for (let k = 1; k < b.length - 1; k++) add(b[k], "in", b[k - 1].at);
  }
  // port is the value by whose port another enters or leaves a group: its own but where there are many.
  port(g, way, value) {
    const ports = g.ports[way];
    if (!ports.has(value)) ports.set(value, ports.size < most.ports ? value : ports.last);
    ports.last = ports.get(value);
    return ports.last;
  }

  // foldByDefault leaves what one can take in: of groups that are not alike, those nearest to the whole are unfolded; where
  // hardly anything is left, also those of blocks that repeat, and the first of these blocks.
  foldByDefault() {
    const few = 90, hardly = 12;
    for (const g of this.groups) g.folded = g !== this.root;
    let shown = this.root.children.length;
    const unfold = g => {
      if (shown + g.children.length - 1 > few) return false;
      shown += g.children.length - 1;
      g.folded = false;
      return true;
    };
    const inside = g => g.children.filter(c => !c.node);
    for (let next = [this.root]; next.length;) next = next.flatMap(inside).filter(g => g.kind !== "repeat" && g.kind !== "body" && unfold(g));
    for (const g of this.groups) {
      if (shown >= hardly || g.kind !== "repeat" || g.parent.folded || !unfold(g)) continue;
      const first = inside(g)[0];
      for (let next = first ? [first] : []; next.length;) next = next.filter(unfold).flatMap(inside).filter(c => c.kind !== "body");
    }
  }

  foldAll(folded) {
    for (const g of this.groups) if (g !== this.root) g.folded = folded;
    this.forget();
  }
  forget() {
    for (const g of this.groups) g.place = null;
  }
  // toggle folds a group, or unfolds it.
  toggle(g) {
    g.folded = !g.folded;
    for (let p = g; p; p = p.parent) p.place = null;
  }
  // reveal unfolds what a node is in, and reports whether that changed anything.
  reveal(id) {
    let changed = false;
    for (let g = this.leaf[id].parent; g; g = g.parent) {
      if (g.folded) this.toggle(g), changed = true;
    }
    return changed;
  }
  // visible is the box that shows a node: its own, or that of the outermost folded group around it.
  visible(id) {
    let item = this.leaf[id];
    for (let g = item.parent; g; g = g.parent) if (g.folded) item = g;
    return item;
  }

  size(item) {
    if (item.node) return { w: card.width, h: item.node.o === "input" || item.node.o === "output" ? card.pill : card.height };
    if (item.folded) return { w: card.width, h: card.height + (item.weighty ? 12 : 0) + (item.kind === "repeat" ? 6 : 0) };
    return { w: item.place.w, h: item.place.h };
  }
  // side is where a value leaves or enters a box, from its left end.
  side(item, way, value) {
    if (item.node || item.folded) return card.width / 2;
    const at = item.place[way].get(item.ports[way].get(value));
    return at == null ? item.place.w / 2 : at;
  }

  // steps lays out what is not, group by group, and yields between them.
  *steps(g = this.root) {
    if (g.place) return;
    for (const c of g.children) if (!c.node && !c.folded) yield* this.steps(c);
    this.arrange(g);
    yield;
  }
  // now lays out all at once.
  now() {
    for (const _ of this.steps());
    this.flatten();
  }

  arrange(g) {
    const sizes = g.children.map(c => this.size(c));
    const ports = new Map(); // by their names in the layout, which do not depend on values
    const name = (end, way, value) => {
      if (typeof end === "number") return "" + end;
      const key = way + value;
      if (!ports.has(key)) ports.set(key, { id: way + ports.size, way, value });
      return ports.get(key).id;
    };
    const edges = g.edges.map(e => ({ v: name(e.from, "in", e.value), w: name(e.to, "out", e.value), e,
      start: typeof e.from === "number" ? this.side(g.children[e.from], "out", e.value) : null,
      end: typeof e.to === "number" ? this.side(g.children[e.to], "in", e.value) : null }));
    const key = JSON.stringify([sizes, edges.map(e => [e.v, e.w, e.start, e.end])]);
    let flat = this.known.get(key);
    if (!flat) {
      flat = this.row(sizes, edges) || (edges.length > most.edges ? this.column : this.layered).call(this, sizes, edges, [...ports.values()]);
      this.known.set(key, flat);
    }
    const root = g === this.root;
    const left = root ? 0 : card.pad, top = root ? 0 : card.head + card.pad / 2, bottom = root ? 0 : card.pad;
    const wide = Math.max(flat.w, root ? 0 : card.width - 2 * card.pad), shift = left + (wide - flat.w) / 2;
    const place = { w: wide + 2 * left, h: flat.h + top + bottom, in: new Map(), out: new Map(), boxes: [], lines: [] };
    place.boxes = flat.boxes.map(b => ({ x: b.x + shift, y: b.y + top }));
    for (const p of ports.values()) place[p.way].set(p.value, flat.ports.get(p.id) + shift);
    place.lines = edges.map((e, i) => {
      const points = flat.lines[i].map(p => [p[0] + shift, p[1] + top]);
      if (typeof e.e.from !== "number") points.unshift([place.in.get(e.e.value), 0]);
      if (typeof e.e.to !== "number") points.push([place.out.get(e.e.value), place.h]);
      return points;
    });
    g.place = place;
  }

  // row places boxes one under the other where each reads the one before and no other; null where they are more than that.
  row(sizes, edges) {
    const n = sizes.length;
    const next = new Array(n).fill(null);
    let enter = null, leave = null;
    for (const e of edges) {
      const from = typeof e.e.from === "number" ? e.e.from : -1, to = typeof e.e.to === "number" ? e.e.to : n;
      if (to !== from + 1) return null;
      if (from < 0) {
        if (enter) return null;
        enter = e;
      } else if (to === n) {
        if (leave) return null;
        leave = e;
      } else if (next[from]) return null;
      else next[from] = e;
    }
    const boxes = [];
    let y = 0, x = 0, least = 0;
    for (let i = 0; i < n; i++) {
      const e = i ? next[i - 1] : enter;
      // The line between two boxes is straight.
      x = i && e ? boxes[i - 1].x + e.start - e.end : i ? boxes[i - 1].x + (sizes[i - 1].w - sizes[i].w) / 2 : 0;
      boxes.push({ x, y });
      least = Math.min(least, x);
      y += sizes[i].h + card.gap;
    }
    let w = 0;
    boxes.forEach((b, i) => { b.x -= least; w = Math.max(w, b.x + sizes[i].w); });
    const ports = new Map();
    const lines = edges.map(e => {
      const line = [];
      if (e.start != null) line.push([boxes[e.e.from].x + e.start, boxes[e.e.from].y + sizes[e.e.from].h]);
      if (e.end != null) line.push([boxes[e.e.to].x + e.end, boxes[e.e.to].y]);
      if (e.start == null) ports.set(e.v, line[0][0]);
      if (e.end == null) ports.set(e.w, line[line.length - 1][0]);
      return line;
    });
    return { w, h: y - card.gap, boxes, lines, ports };
  }

  // column places boxes one under the other, whatever they read.
  column(sizes, edges, ports) {
    const w = Math.max(...sizes.map(s => s.w));
    let h = 0;
    const boxes = sizes.map(s => {
      const b = { x: (w - s.w) / 2, y: h };
      h += s.h + card.gap;
      return b;
    });
    const lines = edges.map(e => {
      const line = [];
      if (e.start != null) line.push([boxes[e.e.from].x + e.start, boxes[e.e.from].y + sizes[e.e.from].h]);
      if (e.end != null) line.push([boxes[e.e.to].x + e.end, boxes[e.e.to].y]);
      return line;
    });
    return { w, h: h - card.gap, boxes, lines, ports: new Map(ports.map((p, i) => [p.id, w * (i + 1) / (ports.length + 1)])) };
  }

  layered(sizes, edges, ports) {
    const g = new dagre.graphlib.Graph({ multigraph: true });
    g.setGraph({ nodesep: 22, ranksep: card.gap + 6, edgesep: 14 });
    sizes.forEach((s, i) => g.setNode("" + i, { width: s.w, height: s.h }));
    for (const p of ports) g.setNode(p.id, { width: 1, height: 1 });
    edges.forEach((e, i) => g.setEdge(e.v, e.w, { weight: 1 }, "" + i));
    dagre.layout(g);
    let least = Infinity, most = -Infinity, top = Infinity, low = -Infinity;
    const see = (x, y) => { least = Math.min(least, x); most = Math.max(most, x); top = Math.min(top, y); low = Math.max(low, y); };
    sizes.forEach((s, i) => {
      const n = g.node("" + i);
      see(n.x - s.w / 2, n.y - s.h / 2);
      see(n.x + s.w / 2, n.y + s.h / 2);
    });
    const lines = edges.map((e, i) => {
      const points = g.edge({ v: e.v, w: e.w, name: "" + i }).points.slice(1, -1).map(p => [p.x, p.y]);
      const v = g.node(e.v), w = g.node(e.w);
      if (e.start != null) points.unshift([v.x - v.width / 2 + e.start, v.y + v.height / 2]);
      if (e.end != null) points.push([w.x - w.width / 2 + e.end, w.y - w.height / 2]);
      for (const p of points) see(p[0], top);
      return points;
    });
    for (const p of ports) see(g.node(p.id).x, top);
    return {
      w: most - least, h: low - top,
      boxes: sizes.map((s, i) => { const n = g.node("" + i); return { x: n.x - s.w / 2 - least, y: n.y - s.h / 2 - top }; }),
      lines: lines.map(l => l.map(p => [p[0] - least, p[1] - top])),
      ports: new Map(ports.map(p => [p.id, g.node(p.id).x - least])),
    };
  }

  // flatten lists all boxes, those around others first, and lines, where they lie in the whole, and sorts them into stripes.
  flatten() {
    this.boxes = [];
    this.lines = [];
    const walk = (g, x, y) => {
      g.children.forEach((c, i) => {
        const at = g.place.boxes[i], s = this.size(c);
        c.box = { item: c, x: x + at.x, y: y + at.y, w: s.w, h: s.h, frame: !c.node && !c.folded };
        this.boxes.push(c.box);
        if (c.box.frame) walk(c, c.box.x, c.box.y);
      });
      for (const l of g.place.lines) if (l.length > 1) this.lines.push(l.map(p => [p[0] + x, p[1] + y]));
    };
    walk(this.root, 0, 0);
    this.w = this.root.place.w;
    this.h = this.root.place.h;
    this.stripes = { boxes: new Stripes(this.h), lines: new Stripes(this.h) };
    this.boxes.forEach(b => this.stripes.boxes.add(b, b.y, b.y + b.h));
    this.lines.forEach(l => {
      let low = Infinity, high = -Infinity;
      for (const p of l) low = Math.min(low, p[1]), high = Math.max(high, p[1]);
      this.stripes.lines.add(l, low, high);
    });
  }
}

// Stripes finds what lies between two heights.
class Stripes {
  constructor(height) {
    this.size = Math.max(200, height / 4000);
    this.rows = [];
    this.order = new Map();
  }
  add(thing, low, high) {
    this.order.set(thing, this.order.size);
    for (let i = Math.floor(low / this.size); i <= Math.floor(high / this.size); i++) (this.rows[i] || (this.rows[i] = [])).push(thing);
  }
  between(low, high) {
    const first = Math.max(0, Math.floor(low / this.size)), last = Math.floor(high / this.size);
    if (first === last) return this.rows[first] || [];
    const seen = new Set();
    for (let i = first; i <= last && i < this.rows.length; i++) for (const t of this.rows[i] || []) seen.add(t);
    return seen.size > 1 ? [...seen].sort((a, b) => this.order.get(a) - this.order.get(b)) : [...seen];
  }
}
