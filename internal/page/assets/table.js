"use strict";
// The table of layers: only the rows in sight are elements.

const rowHeight = 28;
const grid = { rows: [], shown: [], sort: null, down: false, filter: "", weights: true, format: "" };

// columns: a title, a width, the value to sort by, and what stands there.
function columns() {
  const text = (title, width, f) => ({ title, width, value: f, show: f });
  const number = (title, width, value, write) => ({ title, width, right: true, value, show: r => { const v = value(r); return v == null ? "" : write(v); } });
  const own = i => {
    const at = r => r.of[i] || {}, suffix = two ? " " + "AB"[i] : "";
    return {
      zeros: number("zeros" + suffix, 62, r => at(r).l && at(r).l.sparsity, percent),
      format: { title: "format" + suffix, width: 92, value: r => at(r).l ? configured(at(r).l.format, at(r).l.config) : null, show: r => at(r).l ? [dot(formatColour(at(r).l.format)), configured(at(r).l.format, at(r).l.config)] : "" },
      stored: number("stored" + suffix, 78, r => at(r).l && at(r).l.stored_bytes, bytes),
      predicted: number("predicted" + suffix, 84, r => at(r).predicted || null, micros),
      measured: number("measured" + suffix, 84, r => at(r).measured || null, micros),
      at,
    };
  };
  const first = r => r.of[0] || r.of[1];
  const common = [
    text("name", 204, r => r.name),
    text("operator", 76, r => first(r).n.o),
    number("M × K", 92, r => first(r).l ? first(r).l.rows * first(r).l.cols : null, () => ""),
  ];
  common[2].show = r => first(r).l ? `${first(r).l.rows} × ${first(r).l.cols}` : "";
  const measured = models.map(m => !!m.measured);
  const a = own(0);
  if (!two) {
    return [...common, a.zeros, a.format, ...(measured[0] ? [a.measured] : []), a.predicted, a.stored,
      number("dense", 84, r => a.at(r).l && a.at(r).l.dense_bytes, bytes), text("pattern", 92, r => a.at(r).l ? a.at(r).l.pattern : ""), text("dtype", 56, r => a.at(r).l ? a.at(r).l.dtype : ""),
      text("reason", 520, r => a.at(r).l ? a.at(r).l.reason : a.at(r).n.x ? "interpreted: no kernel" : "")];
  }
  const b = own(1), which = measured[0] && measured[1] ? "measured" : "predicted";
  const ratio = number("A / B", 64, r => a.at(r)[which] && b.at(r)[which] ? a.at(r)[which] / b.at(r)[which] : null, x => x.toFixed(2) + "×");
  return [common[0], a.format, b.format, a[which], b[which], ratio, a.zeros, b.zeros, a.stored, b.stored, common[1], common[2]];
}

// collect makes a row for each node, or for each weight of one, of both models together.
function collect() {
  const by = new Map();
  for (const m of models) {
    for (const n of m.nodes) {
      if (n.o === "input" || n.o === "output") continue;
      const layers = layersOf(m, n);
      (layers.length ? layers : [null]).forEach((l, i) => {
        const key = JSON.stringify([n.n, i]);
        if (!by.has(key)) by.set(key, { node: n.n, name: layers.length > 1 ? n.n + " " + l.weight : n.n, of: [], order: by.size });
        const c = l && chosen(l);
        by.get(key).of[m.index] = { n, l, predicted: l && layers.length > 1 ? c && c.predicted_us : n.predicted, measured: i ? 0 : n.measured };
      });
    }
  }
  grid.rows = [...by.values()];
}

function buildTable() {
  const into = $("table");
  into.replaceChildren();
  const names = [...new Set(models.flatMap(m => m.layers.map(l => l.format)))];
  const refilter = () => { grid.filter = $("filter").value; grid.weights = $("weights").checked; grid.format = $("format").value; refreshTable(); };
  into.append(el("div", { id: "filters" },
    el("input", { id: "filter", type: "search", placeholder: "Filter: name, operator, why", "aria-label": "Filter by name, operator or reason", input: refilter }),
    el("select", { id: "format", "aria-label": "Format", change: refilter }, el("option", { value: "" }, "all formats"), names.map(f => el("option", { value: f }, f))),
    el("label", {}, el("input", { id: "weights", type: "checkbox", change: refilter, checked: true }), "weights only"),
    el("span", { id: "tally" })));
  into.append(el("div", { id: "rows", tabindex: "0", scroll: paintRows, click: e => {
    const tr = e.target.closest("tr[data-row]");
    if (tr) select(grid.shown[+tr.dataset.row].node);
  } }, el("table", {}, el("colgroup"), el("thead"), el("tbody"))));
  new ResizeObserver(paintRows).observe($("rows"));
  if (!models.some(m => m.layers.length)) $("weights").checked = grid.weights = false;
  rehead();
}

// rehead makes the columns anew, for what was measured may have come.
function rehead() {
  collect();
  grid.columns = columns();
  const t = $("rows").firstChild;
  t.children[0].replaceChildren(...grid.columns.map(c => { const e = el("col"); e.style.width = c.width + "px"; return e; }));
  t.children[1].replaceChildren(el("tr", {}, grid.columns.map((c, i) => el("th", { scope: "col", class: c.right ? "r" : null },
    el("button", { click: () => sortBy(c.title) }, c.title)))));
  refreshTable();
}

function sortBy(title) {
  const c = grid.columns.find(c => c.title === title);
  if (grid.sort !== title) grid.sort = title, grid.down = !!c.right;
  else if (grid.down === !!c.right) grid.down = !grid.down;
  else grid.sort = null;
  refreshTable();
}

function refreshTable() {
  const words = grid.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = grid.rows.filter(r => {
    const all = r.of.filter(Boolean);
    if (grid.weights && !all.some(o => o.l)) return false;
    if (grid.format && !all.some(o => o.l && o.l.format === grid.format)) return false;
    const text = (r.name + " " + all.map(o => o.n.o + (o.l ? " " + o.l.pattern + " " + o.l.reason : "")).join(" ")).toLowerCase();
    return words.every(w => text.includes(w));
  });
  const c = grid.columns.find(c => c.title === grid.sort);
  const compare = (a, b) => {
    const x = c.value(a), y = c.value(b);
    if (x == null || y == null) return (x == null) - (y == null) || a.order - b.order;
    const d = typeof x === "number" ? x - y : x < y ? -1 : x > y ? 1 : 0;
    return (grid.down ? -d : d) || a.order - b.order;
  };
  if (c) rows.sort(compare);
  grid.shown = rows;
  [...$("rows").querySelectorAll("th")].forEach((th, i) => {
    const on = grid.columns[i].title === grid.sort;
    if (on) th.setAttribute("aria-sort", grid.down ? "descending" : "ascending");
    else th.removeAttribute("aria-sort");
    th.firstChild.textContent = grid.columns[i].title + (on ? grid.down ? " ↓" : " ↑" : "");
  });
  $("tally").textContent = `${rows.length} of ${grid.rows.length} rows`;
  paintRows();
}

// showRow moves the row of what is selected into sight.
function showRow() {
  const box = $("rows"), i = grid.shown.findIndex(r => r.node === selected), top = i * rowHeight;
  if (i < 0 || top >= box.scrollTop && top + 2 * rowHeight <= box.scrollTop + box.clientHeight) return;
  box.scrollTop = Math.max(0, top - box.clientHeight / 2);
}

// paintRows makes elements of the rows in sight, or of all.
function paintRows(all) {
  const box = $("rows"), body = box.firstChild.children[2];
  const every = all === true, high = box.clientHeight || 600;
  const first = every ? 0 : Math.max(0, Math.floor(box.scrollTop / rowHeight) - 10), last = every ? grid.shown.length : Math.min(grid.shown.length, first + Math.ceil(high / rowHeight) + 20);
  const space = n => { const td = el("td", { colspan: grid.columns.length }); td.style.height = n * rowHeight + "px"; return el("tr", { class: "space" }, td); };
  const rows = [];
  if (first > 0) rows.push(space(first));
  for (let i = first; i < last; i++) {
    const r = grid.shown[i];
    rows.push(el("tr", { "data-row": i, class: r.node === selected ? "selected" : null }, grid.columns.map(c => {
      const v = c.show(r);
      return el("td", { class: c.right ? "r" : null, title: typeof v === "string" && v.length > 12 ? v : null }, v);
    })));
  }
  if (last < grid.shown.length) rows.push(space(grid.shown.length - last));
  body.replaceChildren(...rows);
}
