"use strict";
// The list of models, what they do, and which is selected.

const every = 2000, span = 10000; // ms between looks, and that rates are of
let models = [], rows = new Map(), bounds = [], selected = null, timer = 0, looking = false;
const past = new Map(); // the statistics of that time by key

const say = text => { if ($("status").textContent !== text) $("status").textContent = text; };
const keyOf = (name, version) => JSON.stringify([name, version]);

// recent is what a model did in the last ten seconds, or has done at all where it did nothing.
function recent(key, s, at) {
  let list = past.get(key) || [];
  if (list.some(l => l.s.inference_stats.success.count > s.inference_stats.success.count)) list = []; // it counts from nothing again
  list.push({ at, s });
  while (list.length > 2 && at - list[1].at >= span) list.shift();
  past.set(key, list);
  const first = list[0], i = s.inference_stats, j = first.s.inference_stats;
  const ended = i.success.count + i.fail.count - j.success.count - j.fail.count, seconds = (at - first.at) / 1000;
  const fresh = i.success.count > j.success.count;
  const mean = (...names) => {
    const n = i[names[0]].count - (fresh ? j[names[0]].count : 0);
    return n > 0 ? names.reduce((t, k) => t + i[k].ns - (fresh ? j[k].ns : 0), 0) / n / 1000 : null;
  };
  const runs = s.execution_count - (fresh ? first.s.execution_count : 0);
  return {
    fresh, rate: ended > 0 && seconds > 0 ? ended / seconds : 0, rows: runs > 0 ? (s.inference_count - (fresh ? first.s.inference_count : 0)) / runs : null,
    queue: mean("queue"), compute: mean("compute_infer", "compute_input", "compute_output"),
  };
}

// look asks for everything, and shows it.
async function look() {
  clearTimeout(timer);
  if (looking || document.hidden) return;
  looking = true;
  try {
    const [index, stats, load] = await Promise.all([json("v2/repository/index", { method: "POST" }), json("v2/models/stats"), json("page/load")]);
    const now = performance.now(), of = (list, m) => list.find(x => x.name === m.name && x.version === m.version);
    bounds = load.bounds_us;
    models = index.map(m => {
      const key = keyOf(m.name, m.version), s = of(stats.model_stats, m), l = of(load.models, m);
      return Object.assign(m, { key, stats: s, now: s && recent(key, s, now), waiting: l ? l.waiting : 0, latency: l && l.latency });
    });
    for (const key of past.keys()) if (!models.some(m => m.key === key)) past.delete(key);
    admitted();
    list();
    follow();
    const m = models.find(m => m.key === selected);
    if (m) await describe(m);
    else detail = null, $("detail").replaceChildren();
    say("");
  } catch (e) {
    if (e instanceof Refused) refused(e);
    else say(e instanceof TypeError ? "the server does not answer" : e.message);
  }
  looking = false;
  if (!document.documentElement.dataset.ready) document.documentElement.dataset.ready = performance.now().toFixed(0);
  if ($("ask").hidden) timer = setTimeout(look, every);
}

// refused asks for a token.
function refused(e) {
  $("refused").textContent = token ? e.message : "";
  keep("");
  for (const id of ["list", "none", "forget"]) $(id).hidden = true;
  $("detail").replaceChildren();
  $("facts").replaceChildren();
  detail = null;
  say("");
  $("ask").hidden = false;
  $("token").value = "";
  $("token").focus();
}
function admitted() {
  $("ask").hidden = true;
  $("refused").textContent = "";
  $("forget").hidden = !token;
  if (!$("facts").dataset.server) {
    $("facts").dataset.server = "asked";
    json("v2").then(s => {
      $("title").textContent = s.name;
      document.title = s.name + (s.name === "spc" ? "" : ": spc");
      $("facts").dataset.server = "spc " + s.version;
      facts();
    }, () => delete $("facts").dataset.server);
  }
}

function facts() {
  const fact = (b, s) => el("span", {}, el("b", {}, b), " " + s), server = $("facts").dataset.server || "";
  $("facts").replaceChildren(...[
    server.startsWith("spc ") ? el("span", {}, server) : null,
    fact(models.filter(m => m.state === "READY").length + " of " + models.length, "ready"),
    fact(digits(models.reduce((s, m) => s + (m.now ? m.now.rate : 0), 0)), "requests/s"),
    fact(count(models.reduce((s, m) => s + m.waiting, 0)), "waiting"),
  ].filter(Boolean));
}

// list shows a row for each version; rows stay where they are, so that the focus does.
function list() {
  facts();
  $("list").hidden = !models.length;
  $("none").hidden = !!models.length;
  const old = rows;
  rows = new Map();
  let place = $("rows").firstChild;
  for (const m of models) {
    const row = old.get(m.key) || rowOf(m);
    rows.set(m.key, row);
    old.delete(m.key);
    for (const e of [row.line, row.why]) {
      if (place === e) place = e.nextSibling;
      else $("rows").insertBefore(e, place);
    }
    fill(row, m);
  }
  for (const row of old.values()) row.line.remove(), row.why.remove();
}

const columns = ["rate", "rows", "queue", "compute", "p50", "p99", "failed"];
const hides = { rows: " wide", queue: " wide", compute: " wide", p50: " mid", failed: " mid" }; // where there is less room

function rowOf(m) {
  const name = el("button", { class: "name" }, m.name, m.version ? el("span", { class: "kind" }, " " + m.version) : null);
  const cells = Object.fromEntries(columns.map(c => [c, el("td", { class: "r" + (hides[c] || "") })])), state = el("td", {});
  const why = el("td", { colspan: 2 + columns.length, class: "wrong" });
  const line = el("tr", { click: () => choose(m.key) }, el("th", { scope: "row" }, name), state, Object.values(cells));
  return { line, name, state, cells, why: el("tr", { class: "why", hidden: true, click: () => choose(m.key) }, why), reason: why };
}

function fill(row, m) {
  const set = (c, text, old) => {
    if (row.cells[c].textContent !== text) row.cells[c].textContent = text;
    row.cells[c].classList.toggle("old", !!old);
  };
  const s = m.stats && m.stats.inference_stats, now = m.now, none = "–";
  const was = row.state.dataset.is, is = m.state + m.reason;
  if (was !== is) row.state.replaceChildren(stateOf(m)), row.state.dataset.is = is;
  row.reason.textContent = m.reason;
  row.why.hidden = !m.reason;
  set("rate", now ? now.rate ? digits(now.rate) : "0" : none, now && !now.rate);
  set("rows", now && now.rows ? digits(now.rows) : none, now && !now.fresh);
  set("queue", now ? time(now.queue) : none, now && !now.fresh);
  set("compute", now ? time(now.compute) : none, now && !now.fresh);
  const [p50, , p99] = m.latency ? quantiles(bounds, m.latency) : [];
  set("p50", p50 ? time(p50.us) : none);
  set("p99", p99 ? time(p99.us) : none);
  set("failed", s ? count(s.fail.count) : none, s && !s.fail.count);
  mark(row, m.key);
}
function mark(row, key) {
  for (const e of [row.line, row.why]) e.classList.toggle("selected", key === selected);
  row.name.setAttribute("aria-pressed", key === selected);
}

// choose selects a model, and follow the one that the address names, else the first.
function choose(key) {
  const m = models.find(m => m.key === key);
  selected = key;
  history.replaceState(null, "", "#" + new URLSearchParams({ model: m.name, version: m.version }));
  for (const [k, row] of rows) mark(row, k);
  describe(m).catch(e => { if (e instanceof Refused) refused(e); else say(e.message); });
  if (matchMedia("(max-width: 800px)").matches) $("detail").scrollIntoView();
}
function follow() {
  const at = new URLSearchParams(location.hash.slice(1)), name = at.get("model");
  const all = models.filter(m => m.name === name && (!at.has("version") || m.version === at.get("version")));
  const named = all.findLast(m => m.state === "READY") || all[0];
  const first = models.find(m => m.state === "READY") || models[0];
  if (named) selected = named.key;
  else if (!models.some(m => m.key === selected)) selected = first ? first.key : null;
  for (const [k, row] of rows) mark(row, k);
}

function start() {
  startTheme();
  $("theme").addEventListener("click", () => { document.documentElement.dataset.theme = otherTheme(); });
  $("forget").addEventListener("click", () => { keep(""); refused(new Refused("")); });
  $("ask").addEventListener("submit", e => {
    e.preventDefault();
    keep($("token").value.trim());
    look();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && $("ask").hidden) look(); });
  window.addEventListener("hashchange", () => { follow(); look(); });
  look();
}
start();
