"use strict";
// The state of the page, what changes it, and the address that leads to it.

const viewNames = ["graph", "table", "totals"];
let mode = "format"; // of colours
let view = "graph";
let selected = null; // the name of a node
let selectedGroup = null; // a model and a group of it
let views = [];
const stale = { table: true, totals: true };

const say = text => { $("status").textContent = text; };
const hashOf = name => "#layer=" + encodeURIComponent(name) + (view !== "graph" ? "&view=" + view : "");

function select(name, quiet) {
  selected = name;
  selectedGroup = null;
  if (!quiet) {
    const hash = name != null ? hashOf(name) : view !== "graph" ? "#view=" + view : "";
    history.replaceState(null, "", hash || location.pathname + location.search);
  }
  if (name != null) for (const v of views) if (v.model.byName.has(name)) v.show(v.model.byName.get(name), true);
  for (const v of views) v.draw();
  if (view === "table") showRow(), paintRows();
  detail();
}
function selectGroup(m, item) {
  selected = null;
  selectedGroup = { model: m, item };
  for (const v of views) v.draw();
  detail();
}

function show(name) {
  view = name;
  for (const t of viewNames) {
    $(t).hidden = t !== name;
    $("tab-" + t).setAttribute("aria-selected", t === name);
    $("tab-" + t).tabIndex = t === name ? 0 : -1;
  }
  document.querySelector(".colour").hidden = name !== "graph";
  refresh();
}
// refresh makes what the view shows anew where it is not as it should be.
function refresh() {
  if (view === "table" && stale.table) buildTable(), stale.table = false;
  if (view === "table") showRow(), paintRows();
  if (view === "totals" && stale.totals) totals(), stale.totals = false;
  if (view === "graph") for (const v of views) v.resized();
}

// follow goes where the address leads.
function follow() {
  const at = new URLSearchParams(location.hash.slice(1));
  const name = at.get("layer");
  show(viewNames.includes(at.get("view")) ? at.get("view") : name != null ? "graph" : view);
  if (name !== selected || name == null && !selectedGroup) select(name, true);
}

function legend() {
  const box = $("legend");
  box.replaceChildren();
  const key = (colour, text) => el("span", { class: "key" }, dot(colour), text);
  if (mode === "format") {
    const used = new Set(models.flatMap(m => m.layers.map(l => l.format)));
    box.append(...formats.filter(f => used.has(f)).map(f => key(formatColour(f), f)), key(colours.none, "no weight"));
    return;
  }
  const c = mode === "time" ? colours.hot : colours.zeros, ramp = el("span", { class: "ramp" });
  ramp.style.background = `linear-gradient(90deg, ${mix(c, colours.raised, 0.15)}, ${c})`;
  box.append(mode === "time" ? "0" : "0 %", ramp, mode === "time" ? micros(Math.max(...models.map(m => m.most))) + (models.every(m => m.measured) ? "" : " predicted") : "100 % zeros");
}

function head() {
  $("title").textContent = models.map(m => m.file).join("  and  ");
  document.title = "spc: " + models.map(m => m.file).join(", ");
  const box = $("facts");
  box.replaceChildren();
  if (two) return;
  const m = models[0], t = m.totals, fact = (b, s) => el("span", {}, el("b", {}, b), " " + s);
  if (t.weights) box.append(fact(percent(1 - t.nonzeros / t.weights), "zeros"), fact(bytes(t.stored_bytes), "of " + bytes(t.dense_bytes)));
  box.append(fact("" + m.layers.length, "weights"));
  if (m.measured) box.append(fact(micros(1000 * m.measured.ms), "measured"));
  if (m.predicted) box.append(fact(micros(m.predicted), "predicted"));
}

// repaint draws all anew, as after a change of the theme or of times.
function repaint() {
  readColours();
  chartDefaults();
  head();
  legend();
  detail();
  stale.totals = true;
  if (!stale.table) rehead();
  refresh();
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  repaint();
}
let hits = [], hitAt = -1;
function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  hits = [];
  hitAt = -1;
  for (const v of views) {
    v.hits = words.length ? new Set() : null;
    if (words.length) for (const n of v.model.nodes) {
      const of = (n.n + " " + n.o + " " + layersOf(v.model, n).map(l => configured(l.format, l.config)).join(" ")).toLowerCase();
      if (words.every(w => of.includes(w))) {
        v.hits.add(n.id);
        if (n.o !== "output" && !hits.includes(n.n)) hits.push(n.n);
      }
    }
    v.draw();
  }
  $("found").textContent = words.length ? hits.length + " found" : "";
}
function nextHit(step) {
  if (!hits.length) return;
  hitAt = (hitAt + step + hits.length) % hits.length;
  if (view === "totals") show("graph");
  select(hits[hitAt]);
  $("found").textContent = `${hitAt + 1} of ${hits.length}`;
}

async function measure() {
  const button = $("measure");
  button.disabled = true;
  try {
    for (const m of models) {
      say(`measuring ${m.file} …`);
      const answer = await fetch("profile?model=" + m.index, { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" });
      if (!answer.ok) throw new Error((await answer.text()).trim());
      m.measured = await answer.json();
      m.why = "";
      retime(m);
      repaint();
    }
    say("measured");
  } catch (e) {
    say("not measured: " + e.message);
  }
  button.disabled = false;
}

const neighbours = {
  ArrowUp: (m, n) => n.i.concat(n.f)[0], ArrowDown: (m, n) => m.readers[n.id].find(i => m.nodes[i].o !== "output"),
  ArrowLeft: (m, n) => n.id - 1, ArrowRight: (m, n) => n.id + 1,
};
function go(key) {
  if (view === "table") {
    const i = grid.shown.findIndex(r => r.node === selected) + { ArrowUp: -1, ArrowDown: 1 }[key];
    if (grid.shown[Math.max(0, i)]) select(grid.shown[Math.max(0, i)].node);
    return;
  }
  const m = models.find(m => selected != null && m.byName.has(selected)) || models[0];
  let id = selected == null ? 0 : neighbours[key](m, m.nodes[m.byName.get(selected)]);
  while (id != null && m.nodes[id] && m.nodes[id].o === "output") id += key === "ArrowLeft" ? -1 : 1;
  if (id != null && m.nodes[id]) select(m.nodes[id].n);
}

function keys(e) {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName);
  if (e.key === "Escape" && typing) {
    if (e.target.value && e.target.type === "search") e.target.value = "", e.target.dispatchEvent(new Event("input"));
    e.target.blur();
    return;
  }
  if (typing || e.ctrlKey || e.metaKey || e.altKey || $("keys").open) return;
  const actions = {
    "/": () => $("search").focus(), 1: () => tab("graph"), 2: () => tab("table"), 3: () => tab("totals"),
    "+": () => views.forEach(v => v.zoom(1.25)), "=": () => views.forEach(v => v.zoom(1.25)), "-": () => views.forEach(v => v.zoom(0.8)), 0: () => views.forEach(v => v.fit()),
    f: () => views.forEach(v => v.foldAll(true)), u: () => views.forEach(v => v.foldAll(false)),
    t: swap, "?": () => $("keys").showModal(), Escape: () => select(null),
  };
  let act = actions[e.key];
  if (neighbours[e.key] && (e.target === document.body || e.target.tagName === "CANVAS" || view === "table" && /^Arrow(Up|Down)$/.test(e.key))) act = () => go(e.key);
  if (e.key === "Enter" && e.target.tagName === "CANVAS") act = fold;
  if (!act) return;
  e.preventDefault();
  act();
}
function fold() {
  for (const v of views) {
    if (selectedGroup && selectedGroup.model === v.model) v.toggle(selectedGroup.item);
    else if (selected != null && v.model.byName.has(selected)) {
      const g = v.drawing.leaf[v.model.byName.get(selected)].parent;
      if (g !== v.drawing.root) v.toggle(g);
    }
  }
}
const swap = () => theme(otherTheme());
function tab(name) {
  show(name);
  const at = new URLSearchParams(location.hash.slice(1));
  if (name === "graph") at.delete("view");
  else at.set("view", name);
  history.replaceState(null, "", at.size ? "#" + at : location.pathname + location.search);
}

function listen() {
  for (const t of document.querySelectorAll("[role=tab]")) t.addEventListener("click", () => tab(t.dataset.view));
  document.querySelector("[role=tablist]").addEventListener("keydown", e => {
    const step = { ArrowLeft: 2, ArrowRight: 1 }[e.key];
    if (!step) return;
    tab(viewNames[(viewNames.indexOf(view) + step) % 3]);
    $("tab-" + view).focus();
    e.stopPropagation();
  });
  $("colour").addEventListener("change", e => { mode = e.target.value; legend(); views.forEach(v => v.draw()); });
  $("search").addEventListener("input", e => search(e.target.value));
  $("search").addEventListener("keydown", e => { if (e.key === "Enter") nextHit(e.shiftKey ? -1 : 1); });
  $("fold").addEventListener("click", () => views.forEach(v => v.foldAll(true)));
  $("unfold").addEventListener("click", () => views.forEach(v => v.foldAll(false)));
  $("fit").addEventListener("click", () => views.forEach(v => v.fit()));
  $("in").addEventListener("click", () => views.forEach(v => v.zoom(1.25)));
  $("out").addEventListener("click", () => views.forEach(v => v.zoom(0.8)));
  $("theme").addEventListener("click", swap);
  $("help").addEventListener("click", () => $("keys").showModal());
  $("measure").addEventListener("click", measure);
  $("measure").hidden = !data.live;
  document.addEventListener("keydown", keys);
  window.addEventListener("hashchange", follow);
  // Paper is white, and has room for all views and all rows.
  let before;
  window.addEventListener("beforeprint", () => {
    before = { theme: document.documentElement.dataset.theme, places: views.map(v => [v.k, v.x, v.y]) };
    for (const t of viewNames) $(t).hidden = false;
    theme("paper");
    if (stale.table) buildTable(), stale.table = false;
    totals();
    paintRows(true);
    views.forEach(v => v.print(700 / views.length, 820));
  });
  window.addEventListener("afterprint", () => {
    views.forEach((v, i) => { [v.k, v.x, v.y] = before.places[i]; v.printing = false; });
    theme(before.theme);
    show(view);
  });
}

function start() {
  startTheme();
  readColours();
  chartDefaults();
  models.forEach(prepare);
  for (const m of models) {
    const pane = el("div", { class: "pane" });
    $("canvases").append(pane);
    views.push(new View(pane, m));
    if (two) pane.append(el("div", { class: "name" }, m.letter + "  " + m.file));
  }
  listen();
  head();
  legend();
  follow();
  document.documentElement.dataset.ready = performance.now().toFixed(0); // ms after the page began to load
}
start();
