"use strict";
// Calls of the server. Where it wants a token, the one that was given goes with each call.

const kept = "spc-token";
let token = "";
try { token = sessionStorage.getItem(kept) || ""; } catch (e) { /* none is kept where the browser forbids it */ }
function keep(t) {
  token = t;
  try {
    if (t) sessionStorage.setItem(kept, t);
    else sessionStorage.removeItem(kept);
  } catch (e) { /* as above */ }
}

// Refused is the error of a call that wants a token, or another one.
class Refused extends Error {}

// call sends a request, and throws what the server says is wrong.
async function call(path, options = {}) {
  const headers = Object.assign({}, options.headers);
  if (token) headers.Authorization = "Bearer " + token;
  const answer = await fetch(path, Object.assign({ cache: "no-cache" }, options, { headers }));
  if (answer.ok) return answer;
  const text = await answer.text();
  let why = text.trim() || answer.statusText;
  try { why = JSON.parse(text).error || why; } catch (e) { /* it is no JSON */ }
  throw answer.status === 401 ? new Refused(why) : new Error(`${answer.status}: ${why}`);
}
const json = async (path, options) => (await call(path, options)).json();

const at = encodeURIComponent;
const ofModel = (m, what) => `v2/models/${at(m.name)}/versions/${at(m.version)}${what}`;
const ofPage = (m, what) => `page/models/${at(m.name)}/versions/${at(m.version)}/${what}`;

// half reads a 16-bit float.
function half(x) {
  const sign = x >> 15 ? -1 : 1, power = x >> 10 & 31, rest = x & 1023;
  if (power === 31) return rest ? NaN : sign * Infinity;
  return sign * (power ? (1 + rest / 1024) * 2 ** (power - 15) : rest / 1024 * 2 ** -14);
}
const widened = new Float32Array(1), widenedBits = new Uint32Array(widened.buffer);
function brain(x) {
  widenedBits[0] = x << 16;
  return widened[0];
}

// datatypes make arrays of numbers of bytes.
const datatypes = {
  FP32: b => new Float32Array(b), FP64: b => new Float64Array(b),
  FP16: b => Float32Array.from(new Uint16Array(b), half), BF16: b => Float32Array.from(new Uint16Array(b), brain),
  INT8: b => new Int8Array(b), INT16: b => new Int16Array(b), INT32: b => new Int32Array(b), INT64: b => Array.from(new BigInt64Array(b), Number),
  UINT8: b => new Uint8Array(b), UINT16: b => new Uint16Array(b), UINT32: b => new Uint32Array(b), UINT64: b => Array.from(new BigUint64Array(b), Number),
  BOOL: b => new Uint8Array(b),
};

// infer runs a model on one tensor, which is sent as its bytes, and returns the outputs with their elements, but for those of strings.
async function infer(m, name, datatype, shape, elements) {
  const head = new TextEncoder().encode(JSON.stringify({
    inputs: [{ name, datatype, shape, parameters: { binary_data_size: elements.byteLength } }], parameters: { binary_data_output: true },
  }));
  const answer = await call(ofModel(m, "/infer"), {
    method: "POST", body: new Blob([head, elements]), headers: { "Content-Type": "application/octet-stream", "Inference-Header-Content-Length": "" + head.length },
  });
  const bytes = await answer.arrayBuffer(), length = answer.headers.get("Inference-Header-Content-Length");
  const end = length ? +length : bytes.byteLength;
  let place = end;
  return JSON.parse(new TextDecoder().decode(bytes.slice(0, end))).outputs.map(o => {
    const size = o.parameters && o.parameters.binary_data_size;
    const own = size != null ? bytes.slice(place, place += size) : null;
    return Object.assign(o, { data: own ? datatypes[o.datatype] ? datatypes[o.datatype](own) : null : o.data && o.data.flat(Infinity) });
  });
}
