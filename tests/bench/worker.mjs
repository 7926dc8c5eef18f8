// The ONNX Runtime side of a benchmark: a process that answers one JSON line for
// each JSON line that it reads.
//
//	node worker.mjs FOLDER THREADS
//
//	{"load": MODEL, "inputs": [{"name", "type", "dims", "file"}]}   {"ms": T}
//	{"run": N}                                                      {"runs": [ms, ...]}
//	{"outputs": FOLDER}                                             {"outputs": [{"name", "type", "dims", "file"}]}
//	{"optimise": MODEL, "level": LEVEL, "to": FILE}                 {}
//
// FOLDER is where npm installed onnxruntime-node. Tensors are files of raw bytes.
// What goes wrong is answered by {"error": TEXT}.
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';

const [folder, threads] = process.argv.slice(2);
const ort = createRequire(join(resolve(folder), 'package.json'))('onnxruntime-node');
const arrays = {
  float32: Float32Array, float64: Float64Array, int64: BigInt64Array, int32: Int32Array,
  int8: Int8Array, uint8: Uint8Array, bool: Uint8Array, float16: Uint16Array,
  int16: Int16Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
};
const now = () => Number(process.hrtime.bigint()) / 1e6;
let session, feeds;

const read = ({ name, type, dims, file }) => {
  const b = readFileSync(file);
  const bytes = b.buffer.slice(b.byteOffset, b.byteOffset + b.byteLength);
  return [name, new ort.Tensor(type, new arrays[type](bytes), dims)];
};

const commands = {
  async load(model, { inputs }) {
    if (session) await session.release();
    session = undefined;
    feeds = Object.fromEntries(inputs.map(read));
    const start = now();
    session = await ort.InferenceSession.create(model, { intraOpNumThreads: Number(threads), interOpNumThreads: 1 });
    return { ms: now() - start };
  },
  async run(n) {
    const runs = [];
    for (let i = 0; i < n; i++) {
      const start = now();
      await session.run(feeds);
      runs.push(now() - start);
    }
    return { runs };
  },
  async outputs(to) {
    const results = await session.run(feeds);
    const outputs = session.outputNames.map((name, i) => {
      const { type, dims, data } = results[name];
      const file = join(to, `${i}.bin`);
      writeFileSync(file, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
      return { name, type, dims, file };
    });
    return { outputs };
  },
  async optimise(model, { level, to }) {
    const options = { graphOptimizationLevel: level, optimizedModelFilePath: to, intraOpNumThreads: 1, interOpNumThreads: 1 };
    await (await ort.InferenceSession.create(model, options)).release();
    return {};
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  const name = Object.keys(request)[0];
  const answer = await commands[name](request[name], request).catch((e) => ({ error: String(e.message ?? e) }));
  process.stdout.write(JSON.stringify(answer) + '\n');
}
