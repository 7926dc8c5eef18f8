"use strict";
// What all pages share: elements, numbers as texts, colours and the theme. Names come from models and may be anything: they
// reach a page as text nodes and on canvases, nowhere else.

const $ = id => document.getElementById(id);

// el makes an element with attributes, of which functions are listeners, and children, of which strings are text.
function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, v] of Object.entries(attributes || {})) {
    if (typeof v === "function") e.addEventListener(name, v);
    else if (v === true) e.setAttribute(name, "");
    else if (v !== false && v != null) e.setAttribute(name, v);
  }
  for (const c of children.flat()) if (c != null) e.append(c);
  return e;
}

const digits = (x, n = 3) => Number(x.toPrecision(n)).toString();
function scaled(x, step, units) {
  let i = 0;
  while (Math.abs(x) >= 0.9995 * step && i < units.length - 1) x /= step, i++;
  return (i ? digits(x) : digits(x, Math.abs(x) >= 100 ? 4 : 3)) + units[i];
}
const bytes = x => scaled(x, 1000, [" B", " KB", " MB", " GB"]);
const count = x => scaled(x, 1000, ["", " K", " M", " G"]);
const percent = x => (100 * x).toFixed(1) + "%";
// micros writes microseconds.
const micros = x => x >= 999.5 ? digits(x / 1000) + " ms" : x >= 99.95 ? x.toFixed(0) + " µs" : digits(x) + " µs";

// colours are those of the theme, by the names that the style sheet has for them.
let colours = {};
function readColours() {
  const s = getComputedStyle(document.documentElement);
  colours = new Proxy({}, { get: (t, name) => t[name] || (t[name] = s.getPropertyValue("--" + name).trim()) });
}
// mix takes a share of one colour #rrggbb and the rest of another.
function mix(a, b, share) {
  const at = i => Math.round(parseInt(a.slice(i, i + 2), 16) * share + parseInt(b.slice(i, i + 2), 16) * (1 - share));
  return `rgb(${at(1)},${at(3)},${at(5)})`;
}
function dot(colour) {
  const e = el("span", { class: "dot" });
  e.style.background = colour;
  return e;
}

// startTheme takes the theme that was chosen last, or that of the system.
function startTheme() {
  let kept = null;
  try { kept = localStorage.getItem("spc-theme"); } catch (e) { /* none is kept where the browser forbids it */ }
  document.documentElement.dataset.theme = kept || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}
// otherTheme chooses the other theme, and returns its name.
function otherTheme() {
  const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("spc-theme", name); } catch (e) { /* as above */ }
  return name;
}
