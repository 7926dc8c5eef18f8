// Compares spc with ONNX Runtime on the same ONNX file: processes take turns, each
// reports the median of its runs, and the ratio is formed pair by pair.
//
//	node tests/bench/ort.mjs MODEL.onnx [--threads N] [--rounds N] [--runs N] [--sequence N] [--json]
//
// ONNX Runtime is the npm package onnxruntime-node, installed under out/ort (see the
// target bench-ort of the Makefile). Run with --worker it is the ONNX Runtime side.
import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

const args = process.argv.slice(2);
const flag = (name, value) => {
  const i = args.indexOf('--' + name);
  if (i < 0) return value;
  const [, v] = args.splice(i, typeof value === 'boolean' ? 1 : 2);
  return typeof value === 'boolean' ? true : Number(v);
};
const worker = flag('worker', false);
const json = flag('json', false);
const threads = flag('threads', 1);
const rounds = flag('rounds', 5);
const runs = flag('runs', 20);
const sequence = flag('sequence', 0);
const model = args[0];
const median = (v) => v.slice().sort((a, b) => a - b)[Math.floor(v.length / 2)];

async function onnxRuntime() {
  const ort = createRequire(join(process.cwd(), 'out/ort/package.json'))('onnxruntime-node');
  const session = await ort.InferenceSession.create(model, { intraOpNumThreads: threads, interOpNumThreads: 1 });
  const feeds = {};
  for (const m of session.inputMetadata) {
    const dims = m.shape.map((d) => (typeof d === 'number' && d > 0 ? d : d === 'sequence' && sequence ? sequence : 1));
    const n = dims.reduce((a, b) => a * b, 1);
    feeds[m.name] =
      m.type === 'int64'
        ? new ort.Tensor('int64', new BigInt64Array(n), dims)
        : new ort.Tensor('float32', Float32Array.from({ length: n }, (_, i) => (i % 17) / 17 - 0.5), dims);
  }
  for (let i = 0; i < 3; i++) await session.run(feeds);
  const ms = [];
  for (let i = 0; i < runs; i++) {
    const t = process.hrtime.bigint();
    await session.run(feeds);
    ms.push(Number(process.hrtime.bigint() - t) / 1e6);
  }
  console.log(JSON.stringify({ ms: median(ms) }));
}

function compare() {
  if (!existsSync('out/ort/node_modules/onnxruntime-node')) {
    console.error('ONNX Runtime is not installed: npm install --ignore-scripts --prefix out/ort onnxruntime-node@1.30.0');
    process.exit(1);
  }
  const run = (cmd, argv) => JSON.parse(execFileSync(cmd, argv, { encoding: 'utf8' }));
  const pairs = [];
  for (let i = 0; i < rounds; i++) {
    const ours = run('bin/spc', ['bench', model, '--threads', threads, '--runs', runs, '--json', ...(sequence ? ['--dim', `sequence=${sequence}`] : [])].map(String)).ms.p50;
    const theirs = run(process.execPath, [process.argv[1], model, '--worker', '--threads', threads, '--runs', runs, '--sequence', sequence].map(String)).ms;
    pairs.push({ spc_ms: ours, ort_ms: theirs, ratio: theirs / ours });
  }
  const ratios = pairs.map((p) => p.ratio);
  const out = {
    model, threads, rounds, runs,
    spc_ms: median(pairs.map((p) => p.spc_ms)),
    ort_ms: median(pairs.map((p) => p.ort_ms)),
    ratio: median(ratios), ratio_min: Math.min(...ratios), ratio_max: Math.max(...ratios),
  };
  if (json) return console.log(JSON.stringify(out));
  console.log(
    `${model}, ${threads} thread(s): spc ${out.spc_ms.toFixed(1)} ms, ONNX Runtime ${out.ort_ms.toFixed(1)} ms, ` +
      `ratio ${out.ratio.toFixed(2)} (${out.ratio_min.toFixed(2)} to ${out.ratio_max.toFixed(2)}) of ONNX Runtime's time to spc's`,
  );
}

worker ? await onnxRuntime() : compare();
