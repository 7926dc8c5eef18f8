"use strict";
// Forms that try a model: on an image, or on a request as JSON.

const field = (label, input) => el("label", { class: "field" }, el("span", {}, label), input);
const option = (name, chosen) => el("option", { value: name, selected: chosen }, name);

// running shows that a run goes on, what is wrong with it, and how long what it calls by its argument takes. What run returns makes the elements to show:
// of several runs only the last does.
async function running(form, run) {
  const { button, said, result } = form, turn = form.turn = (form.turn || 0) + 1;
  button.disabled = true;
  said.className = "note";
  said.textContent = "running …";
  try {
    let took = 0;
    const shown = await run(async ask => {
      const began = performance.now(), answer = await ask();
      took = performance.now() - began;
      return answer;
    });
    if (turn !== form.turn) return;
    result.replaceChildren(...shown());
    said.textContent = `answered in ${time(1000 * took)}, as this browser sees it`;
  } catch (e) {
    if (e instanceof Refused) refused(e);
    if (turn !== form.turn) return;
    result.replaceChildren();
    said.className = "wrong";
    said.textContent = e.message;
  }
  button.disabled = false;
}

// tryForm makes the form of a model with such inputs, but for those that take states.
function tryForm(into, m, inputs, states) {
  const shape = imageInput(inputs.filter(i => !states.includes(i.name)));
  into.append(el("h3", {}, shape && !states.length ? "Try it on an image" : "Try it"));
  if (shape && !states.length) imageForm(into, m, shape);
  else jsonForm(into, m, inputs);
}

let preprocessing = null; // as the server has it

function imageForm(into, m, shape) {
  const form = { button: el("button", { type: "submit", class: "primary", disabled: true }, "Run"), said: el("p", { class: "note", role: "status" }), result: el("div", { class: "result" }) };
  const image = el("input", { type: "file", accept: "image/*", class: "image" }), names = el("input", { type: "file", accept: ".txt,text/plain", class: "names" });
  const how = el("select", { class: "how" }), softmax = el("input", { type: "checkbox", class: "softmax" });
  const sizes = ["width", "height"].map(k => el("input", { type: "number", min: 1, max: 4096, value: shape[k] > 0 ? shape[k] : 224, "aria-label": k, class: k }));
  const seen = el("canvas", { width: 1, height: 1 }), figure = el("figure", { hidden: true }, seen, el("figcaption", {}, ""));
  const drop = el("div", { class: "drop" }, field("Image, or drop one here", image));
  const box = el("form", { class: "try" }, drop,
    el("div", { class: "fields" }, field("Preprocessing", how), shape.width < 0 || shape.height < 0 ? el("div", { class: "field" }, el("span", {}, "Width and height"), el("span", { class: "pair" }, sizes)) : null,
      field("Names of the classes, a line each", names), el("label", { class: "check" }, softmax, " softmax of what comes out"), form.button),
    form.said, figure, form.result);
  let labels = null, file = null, outputs = null;
  const show = () => outputs.map(o => outputOf(o, labels, softmax.checked));
  const run = () => running(form, async timed => {
    const picture = await decode(file), [w, h] = [shape.width > 0 ? shape.width : +sizes[0].value, shape.height > 0 ? shape.height : +sizes[1].value];
    const list = planes(picture, shape.channels).map(p => resize(p, picture.width, picture.height, w, h));
    paint(seen, list, w, h);
    figure.hidden = false;
    figure.lastChild.textContent = `${picture.width} × ${picture.height}` + (w === picture.width && h === picture.height ? "" : `, resized to ${w} × ${h}`);
    const sent = elements(list, w * h, preprocessing[how.value][shape.channels], shape.datatype, shape.last);
    const answer = await timed(() => infer(m, shape.name, shape.datatype, shape.last ? [1, h, w, shape.channels] : [1, shape.channels, h, w], sent));
    return () => {
      outputs = answer;
      return show();
    };
  });
  const take = f => {
    if (!f) return;
    file = f;
    if (how.value) run();
  };
  image.addEventListener("change", () => take(image.files[0]));
  for (const kind of ["dragenter", "dragover"]) drop.addEventListener(kind, e => { e.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", e => {
    e.preventDefault();
    drop.classList.remove("over");
    image.files = e.dataTransfer.files; // which tells no one that it has changed
    take(image.files[0]);
  });
  names.addEventListener("change", async () => {
    labels = names.files[0] ? (await names.files[0].text()).split(/\r?\n/).map(l => l.trim()) : null;
    if (outputs) form.result.replaceChildren(...show());
  });
  softmax.addEventListener("change", () => { if (outputs) form.result.replaceChildren(...show()); });
  how.addEventListener("change", () => { if (file) run(); });
  box.addEventListener("submit", e => { e.preventDefault(); if (file) run(); });
  into.append(box);
  numbers().then(p => {
    const usual = shape.datatype === "UINT8" ? "none" : shape.channels === 3 ? "imagenet" : "unit";
    how.append(...Object.keys(p).sort().map(name => option(name, name === usual)));
    form.button.disabled = false;
    if (file) run();
  }, e => {
    if (e instanceof Refused) refused(e);
    form.said.className = "wrong";
    form.said.textContent = e.message;
  });
}

async function numbers() {
  preprocessing = preprocessing || await json("page/preprocessing");
  return preprocessing;
}

// most is how many classes are shown, and how many elements of what are no classes.
const most = 5, mostElements = 24;

// outputOf shows the largest elements of an output with one axis that counts, or the first of another.
function outputOf(o, labels, softmax) {
  const title = el("h4", {}, o.name, el("span", { class: "kind" }, ` ${o.datatype} ${o.shape.join(" × ")}`));
  if (!o.data) return el("div", {}, title, el("p", { class: "note" }, "no elements of this type are shown"));
  const x = Array.from(o.data, Number);
  if (o.datatype === "BYTES" || x.length < 2 || o.shape.filter(n => n !== 1).length !== 1) {
    const few = Array.from(o.data.slice(0, mostElements), v => typeof v === "number" ? digits(v, 5) : "" + v).join(", ");
    return el("div", {}, title, el("code", { class: "values" }, few + (o.data.length > mostElements ? `, … ${count(o.data.length)} elements` : "")));
  }
  const highest = x.reduce((a, b) => Math.max(a, b), -Infinity), sum = x.reduce((s, v) => s + Math.exp(v - highest), 0);
  const value = v => softmax ? Math.exp(v - highest) / sum : v, write = v => softmax ? percent(v) : digits(v, 5);
  const top = x.map((v, i) => ({ i, v: value(v) })).sort((a, b) => b.v - a.v).slice(0, most);
  const low = Math.min(0, ...top.map(t => t.v)), span = Math.max(0, top[0].v) - low;
  return el("div", {}, title, el("table", { class: "top" },
    el("thead", { class: "unseen" }, el("tr", {}, ["class", "share", "value"].map(n => el("th", { scope: "col" }, n)))),
    el("tbody", {}, top.map(t => {
      const meter = el("span", { class: "meter" });
      meter.style.width = (span > 0 ? 100 * (t.v - low) / span : 0) + "%";
      return el("tr", {}, el("td", {}, labels && labels[t.i] ? `${labels[t.i]} ` : "", el("span", { class: "kind" }, "" + t.i)), el("td", { class: "bars", "aria-hidden": "true" }, meter), el("td", { class: "r", "data-value": t.v }, write(t.v)));
    }))));
}

// editable is the most characters of a request that is shown to be edited.
const editable = 200000;

// neat writes a request or an answer with a line for each tensor and its elements beside it.
const neat = text => text.replace(/,?\{"(name|model_name)":/g, s => "\n  " + s).replace(/\],"outputs":/g, '],\n "outputs":').replace(/\]\}$/, "\n]}").trim();

function jsonForm(into, m, inputs) {
  const form = { button: el("button", { type: "submit", class: "primary" }, "Run"), said: el("p", { class: "note", role: "status" }), result: el("div", { class: "result" }) };
  const text = el("textarea", { rows: 9, spellcheck: "false", autocomplete: "off", wrap: "soft", class: "request" }), again = el("button", { type: "button" }, "Start over");
  let whole = null; // a request that is too long to be edited
  const fill = async () => {
    form.button.disabled = true;
    form.said.className = "note";
    form.said.textContent = "";
    try {
      const made = await (await call(ofPage(m, "example"))).text();
      whole = made.length > editable ? made : null;
      text.value = whole ? "" : neat(made);
      text.placeholder = whole ? `A random request of ${bytes(whole.length)} is ready, too long to be shown. Run sends it.` : "";
    } catch (e) {
      if (e instanceof Refused) refused(e);
      text.value = neat(JSON.stringify({ inputs: inputs.map(i => ({ name: i.name, datatype: i.datatype, shape: i.shape.map(n => Math.max(1, n)), data: [] })) }));
      form.said.textContent = "Its elements have to be filled in: " + e.message;
    }
    form.button.disabled = false;
  };
  again.addEventListener("click", fill);
  const box = el("form", { class: "try" }, field("Request", text), el("div", { class: "fields" }, form.button, again), form.said, form.result);
  box.addEventListener("submit", e => {
    e.preventDefault();
    running(form, async timed => {
      const body = text.value.trim() || whole || "";
      const answer = await timed(async () => (await call(ofModel(m, "/infer"), { method: "POST", headers: { "Content-Type": "application/json" }, body })).text());
      return () => [el("pre", { class: "answer", tabindex: "0", "aria-label": "The answer" }, neat(answer.slice(0, 8000)) + (answer.length > 8000 ? ` … ${bytes(answer.length)} in all` : ""))];
    });
  });
  into.append(box);
  fill();
}
