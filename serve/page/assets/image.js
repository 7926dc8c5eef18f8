"use strict";
// Images as spc run makes tensors of them: channels as many as the model takes, resized by a triangle filter, which averages where it shrinks,
// and normalised by the server's numbers.

// decode reads an image file: its bytes of red, green, blue and opacity. Colours stay as the file has them, and opacity is taken no notice of.
async function decode(file) {
  let picture;
  try {
    picture = await createImageBitmap(file, { colorSpaceConversion: "none", premultiplyAlpha: "none" });
  } catch (e) {
    throw new Error(`${file.name || "this file"} is no image that the browser reads`);
  }
  const canvas = el("canvas", { width: picture.width, height: picture.height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(picture, 0, 0);
  picture.close();
  return context.getImageData(0, 0, canvas.width, canvas.height);
}

// planes are the channels of an image, 3, or 1 by the luma of JFIF.
function planes(image, channels) {
  const n = image.width * image.height, p = image.data;
  const out = Array.from({ length: channels }, () => new Float64Array(n));
  for (let i = 0; i < n; i++) {
    const r = p[4 * i], g = p[4 * i + 1], b = p[4 * i + 2];
    if (channels === 1) out[0][i] = 19595 * r + 38470 * g + 7471 * b + 32768 >> 16;
    else out[0][i] = r, out[1][i] = g, out[2][i] = b;
  }
  return out;
}

// weights are, for each of to places, the places of from that it is made of, from the first on, and their shares. A triangle as wide as two places of
// the coarser of both lies over each.
function weights(from, to) {
  const scale = from / to, wide = Math.max(1, scale);
  return Array.from({ length: to }, (_, i) => {
    const centre = (i + 0.5) * scale - 0.5, first = Math.max(0, Math.floor(centre - wide)), end = Math.min(from, Math.ceil(centre + wide));
    const shares = [];
    let sum = 0;
    for (let k = first; k < end; k++) shares.push(Math.max(0, 1 - Math.abs(k - centre) / wide)), sum += shares[k - first];
    return { first, shares: shares.map(s => s / sum) };
  });
}

// resize brings a plane of a width and a height to others, in steps of 1/257.
function resize(plane, width, height, w, h) {
  if (width === w && height === h) return plane;
  const across = weights(width, w), down = weights(height, h);
  const rows = new Float64Array(w * height), out = new Float64Array(w * h);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < w; x++) {
      const a = across[x];
      let s = 0;
      for (let k = 0; k < a.shares.length; k++) s += a.shares[k] * plane[y * width + a.first + k];
      rows[y * w + x] = s;
    }
  }
  for (let y = 0; y < h; y++) {
    const d = down[y];
    for (let x = 0; x < w; x++) {
      let s = 0;
      for (let k = 0; k < d.shares.length; k++) s += d.shares[k] * rows[(d.first + k) * w + x];
      out[y * w + x] = Math.floor(s * 257 + 0.5) / 257;
    }
  }
  return out;
}

// elements are those of a model's input: planes of a size as preprocessing has it, whose channels come first or last.
function elements(list, size, p, datatype, last) {
  const channels = list.length, out = datatype === "UINT8" ? new Uint8Array(channels * size) : new Float32Array(channels * size);
  for (let c = 0; c < channels; c++) {
    const plane = list[p.from[c]];
    for (let i = 0; i < size; i++) {
      const v = Math.fround((plane[i] - p.mean[c]) / p.std[c]);
      out[last ? i * channels + c : c * size + i] = datatype === "UINT8" ? Math.min(Math.max(v + 0.5, 0), 255) : v;
    }
  }
  return out;
}

// paint shows planes, 0 to 255, on a canvas.
function paint(canvas, list, width, height) {
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = list[c % list.length][i];
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// imageInput is how a model's only input is an image, if it is: where channels, height and width are, which may be -1 for any.
function imageInput(inputs) {
  if (inputs.length !== 1) return null;
  const { name, datatype, shape } = inputs[0];
  if (datatype !== "FP32" && datatype !== "UINT8" || shape.length !== 4 || shape[0] !== 1 && shape[0] !== -1) return null;
  for (const last of [false, true]) {
    const channels = shape[last ? 3 : 1], [height, width] = last ? [shape[1], shape[2]] : [shape[2], shape[3]];
    if ((channels === 3 || channels === 1) && (height > 3 || height < 0) && (width > 3 || width < 0)) return { name, datatype, channels, height, width, last };
  }
  return null;
}
