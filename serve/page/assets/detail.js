"use strict";
// What stands at the right: all that is known of one version of a model.

let detail = null; // what is shown: its key, and the parts that are made anew when what they show changes

const sizes = shape => shape.length ? shape.map(n => n < 0 ? "any" : n).join(" × ") : "scalar";
const chip = (...what) => el("span", { class: "chip" }, ...what);

// state is a state with a colour, and words.
function stateOf(m) {
  const e = el("span", { class: "state " + m.state.toLowerCase() }, el("span", { class: "dot" }), m.state.toLowerCase());
  if (m.state === "READY" && m.reason) e.lastChild.textContent = "ready, but not what its file is";
  return e;
}

// part makes one part of the detail anew where what it shows has changed.
function part(name, key, make) {
  if (detail.keys[name] === key) return;
  detail.keys[name] = key;
  detail.parts[name].replaceChildren(...[make()].flat().filter(Boolean));
}

// describe shows a model of the list, and asks the server for what the list has not.
async function describe(m) {
  if (!detail || detail.key !== m.key) {
    detail = { key: m.key, keys: {}, parts: {} };
    $("detail").replaceChildren(...["head", "load", "latency", "ports", "try"].map(name => detail.parts[name] = el("section", { class: name })));
    $("detail").scrollTop = 0;
  }
  const mine = detail;
  part("head", JSON.stringify([m.state, m.reason]), () => [
    el("h2", {}, m.name, el("span", { class: "kind" }, m.version ? ` version ${m.version}` : "")),
    el("div", { class: "chips" }, chip(stateOf(m)), m.state === "READY" ? chip(reportLink(m)) : null),
    m.reason ? el("p", { class: "wrong reason" }, m.reason) : null,
  ]);
  showLoad(m);
  if (m.state !== "READY") {
    for (const name of ["ports", "try"]) part(name, "", () => []);
    return;
  }
  const [about, config] = await Promise.all([json(ofModel(m, "")), json(ofModel(m, "/config"))]);
  if (detail !== mine) return;
  const states = (config.sequence_batching && config.sequence_batching.state || []).map(s => s.input_name);
  part("ports", JSON.stringify([about, config]), () => ports(about, config, states));
  part("try", JSON.stringify([about.inputs, states]), () => {
    const box = el("div");
    tryForm(box, m, about.inputs, states);
    return box;
  });
}

function ports(about, config, states) {
  const batching = config.dynamic_batching;
  const rows = list => list.map(p => el("tr", {}, el("td", {}, p.name, states.includes(p.name) ? el("span", { class: "kind" }, " state") : null), el("td", {}, p.datatype), el("td", {}, sizes(p.shape))));
  const group = (title, list) => [el("tr", {}, el("th", { colspan: 3, scope: "rowgroup" }, title)), ...rows(list)];
  return [
    el("h3", {}, "Inputs and outputs"),
    el("div", { class: "scroll" }, el("table", { class: "small ports" }, el("tbody", {}, group("inputs", about.inputs)), el("tbody", {}, group("outputs", about.outputs)))),
    el("p", { class: "note" }, batching ? `Up to ${config.max_batch_size} rows run together` + (batching.max_queue_delay_microseconds ? `, for which a request waits up to ${time(batching.max_queue_delay_microseconds)}.` : ".") :
      states.length ? "Requests are parts of sequences, whose states the server keeps." : "Each request runs alone."),
  ];
}

// showLoad shows what the list knows of a model.
function showLoad(m) {
  const s = m.stats, all = s && s.inference_stats;
  part("load", JSON.stringify([s, m.waiting, m.now]), () => !s ? [] : [el("dl", { class: "facts" }, [
    ["requests", count(all.success.count) + (m.now.rate ? `, ${digits(m.now.rate)} a second` : "")],
    ["failed", count(all.fail.count)],
    ["waiting", count(m.waiting)],
    ["runs", count(s.execution_count) + (s.execution_count ? `, of ${digits(s.inference_count / s.execution_count)} rows in the mean` : "")],
    ["last", s.last_inference ? new Date(s.last_inference).toLocaleTimeString() : "never"],
  ].flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]))]);
  part("latency", JSON.stringify(m.latency), () => !m.latency || !m.latency.some(n => n) ? [] : [el("h3", {}, "How long requests take"), histogram(bounds, m.latency)]);
}

// reportLink leads to a model's report. A link carries no token, so with one the report is fetched and opened as what was fetched.
function reportLink(m) {
  const link = el("a", { href: ofPage(m, "report"), target: "_blank", rel: "noopener", class: "report" }, "Report");
  link.addEventListener("click", async e => {
    if (!token) return;
    e.preventDefault();
    const opened = open("", "_blank"); // while the click allows it
    try {
      const page = await (await call(link.href)).blob(), address = URL.createObjectURL(page);
      if (opened) opened.location = address;
      else location = address;
    } catch (e) {
      if (opened) opened.close();
      if (e instanceof Refused) refused(e);
      else say(e.message);
    }
  });
  return link;
}
