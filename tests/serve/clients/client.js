// Calls spc serve by @grpc/grpc-js, with messages that @grpc/proto-loader makes of the service's .proto, and prints a line of JSON for
// each check: the call, what was checked, and what is wrong with what came.
//
//   node client.js WORLD MODULES
//
// WORLD is where the servers are (World in server.go) as JSON, MODULES the folder that has node_modules.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const {createRequire} = require('node:module');
const world = JSON.parse(process.argv[2]);
const load = createRequire(process.argv[3] + '/');
const grpc = load('@grpc/grpc-js');
const {inference} = grpc.loadPackageDefinition(load('@grpc/proto-loader').loadSync(world.proto, {keepCase: true, longs: String, enums: String, defaults: true, oneofs: true}));

const SERVICE = '/inference.GRPCInferenceService/';
const any = {'grpc.max_receive_message_length': -1, 'grpc.max_send_message_length': -1};
const open = new inference.GRPCInferenceService(world.open.grpc, grpc.credentials.createInsecure(), any);
const code = grpc.status;

async function check(call, what, f) {
  let wrong;
  try {
    await f();
  } catch (e) {
    wrong = String(e.message || e).slice(0, 300) || 'failed';
  }
  console.log(JSON.stringify({call, what, wrong}));
}

// ask makes a call of one answer.
function ask(client, method, request, {metadata = new grpc.Metadata(), ...options} = {}) {
  return new Promise((resolve, reject) => client[method](request, metadata, options, (e, r) => (e ? reject(e) : resolve(r))));
}

// refused asserts that a call fails with a code.
async function refused(promise, want, text = '') {
  const e = await promise.then(r => assert.fail(`answered ${JSON.stringify(r)}`), e => e);
  assert.strictEqual(e.code, want, `${e.code} ${e.details || e.message}, want ${want}`);
  assert(e.details.includes(text), `${e.details}, want ${text}`);
}

// holds asserts that a value has what is wanted, and perhaps more.
function holds(got, want, at = '') {
  if (want !== null && typeof want === 'object' && !Array.isArray(want) && !Buffer.isBuffer(want)) {
    for (const k in want) holds(got && got[k], want[k], `${at}.${k}`);
  } else {
    assert.deepStrictEqual(got, want, `${at} is ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
  }
}

const floats = (...x) => Buffer.from(new Float32Array(x).buffer);
const typed = (model, more) => ({model_name: model, inputs: [{name: 'x', datatype: 'FP32', shape: [1, 3], contents: {fp32_contents: [1, 2, 3]}}], ...more});
const raw = (model, more) => ({model_name: model, inputs: [{name: 'x', datatype: 'FP32', shape: [1, 3]}], raw_input_contents: [floats(1, 2, 3)], ...more});
const sum = (id, more) => ({model_name: 'sums', inputs: [{name: 'x', datatype: 'FP32', shape: [1, 2]}], raw_input_contents: [floats(1, 10)], parameters: {sequence_id: {int64_param: id}, ...more}});
const yes = {bool_param: true};

// stream sends requests and collects the answers; with wait each is sent once the one before is answered.
function stream(client, requests, {wait = false, metadata = new grpc.Metadata()} = {}) {
  return new Promise((resolve, reject) => {
    const s = client.ModelStreamInfer(metadata), got = [];
    let next = 0;
    const send = () => (next < requests.length ? s.write(requests[next++]) : s.end());
    s.on('data', m => { got.push(m); if (wait) send(); });
    s.on('error', reject);
    s.on('end', () => resolve(got));
    if (wait) send(); else for (let i = 0; i <= requests.length; i++) send();
  });
}

async function descriptions() {
  const extensions = ['binary_tensor_data', 'classification', 'model_configuration', 'model_repository', 'sequence', 'statistics'];
  const tensor = name => [{name, datatype: 'FP32', shape: ['-1', '3']}];
  for (const [method, what, request, want] of [
    ['ServerLive', 'live', {}, {live: true}],
    ['ServerReady', 'ready', {}, {ready: true}],
    ['ServerMetadata', 'name and extensions', {}, {name: 'spc', extensions}],
    ['ModelReady', 'of a version', {name: 'line', version: '1'}, {ready: true}],
    ['ModelReady', 'a model that does not load', {name: 'bad'}, {ready: false}],
    ['ModelMetadata', 'inputs and outputs', {name: 'line'}, {name: 'line', versions: ['1', '2'], inputs: tensor('x'), outputs: tensor('y')}],
    ['ModelConfig', 'how it is served', {name: 'line'}, {config: {name: 'line', max_batch_size: 16, scheduling_choice: 'dynamic_batching'}}],
    ['RepositoryIndex', 'all models', {}, {models: {0: {name: 'BF16', version: '1', state: 'READY', reason: ''}}}],
    ['RepositoryModelUnload', 'a model', {model_name: 'spare'}, {}],
    ['RepositoryModelLoad', 'a model', {model_name: 'spare'}, {}],
  ]) await check(method, what, async () => holds(await ask(open, method, request), want));
  for (const method of ['ModelReady', 'ModelMetadata', 'ModelConfig', 'ModelStatistics', 'RepositoryModelLoad', 'RepositoryModelUnload'])
    await check(method, 'an unknown model', () => refused(ask(open, method, {name: 'none', model_name: 'none'}), code.NOT_FOUND, 'none'));
}

async function infer() {
  await check('ModelInfer', 'typed', async () => holds(await ask(open, 'ModelInfer', typed('line', {id: '7', model_version: '1'})),
    {model_name: 'line', model_version: '1', id: '7', outputs: {0: {name: 'y', datatype: 'FP32', shape: ['1', '3'], contents: {fp32_contents: [3, 5, 7]}}}, raw_output_contents: []}));
  await check('ModelInfer', 'as bytes', async () => holds(await ask(open, 'ModelInfer', raw('line')), {model_version: '2', outputs: {0: {shape: ['1', '3']}}, raw_output_contents: [floats(2, 5, 8)]}));
  await check('ModelInfer', 'BYTES typed', async () => holds(
    await ask(open, 'ModelInfer', {model_name: 'BYTES', inputs: [{name: 'x', datatype: 'BYTES', shape: [1, 2], contents: {bytes_contents: [Buffer.from('a'), Buffer.from([0, 255])]}}]}),
    {outputs: {0: {contents: {bytes_contents: [Buffer.from('a'), Buffer.from([0, 255]), Buffer.from('a'), Buffer.from([0, 255])]}}}}));
  await check('ModelInfer', 'INT64 typed', async () => holds(
    await ask(open, 'ModelInfer', {model_name: 'INT64', inputs: [{name: 'x', datatype: 'INT64', shape: [1, 2], contents: {int64_contents: ['-9223372036854775808', '9007199254740993']}}]}),
    {outputs: {0: {contents: {int64_contents: ['-9223372036854775808', '9007199254740993', '-9223372036854775808', '9007199254740993']}}}}));
  await check('ModelInfer', '300 requests at a time', async () => {
    const answers = await Promise.all(Array.from({length: 300}, (_, i) => ask(open, 'ModelInfer', {...raw('line', {model_version: '1', id: String(i)}), raw_input_contents: [floats(i, i + 1, -i)]})));
    answers.forEach((m, i) => holds(m, {id: String(i), raw_output_contents: [floats(2 * i + 1, 2 * i + 3, 1 - 2 * i)]}));
  });
  const rows = 450000, x = new Float32Array(3 * rows).map((_, i) => i), y = x.map(v => 2 * v + 1);
  const large = n => ({model_name: 'line', model_version: '1', inputs: [{name: 'x', datatype: 'FP32', shape: [n, 3]}], raw_input_contents: [Buffer.from(x.buffer, 0, 12 * n)]});
  await check('ModelInfer', '5.4 MB each way', async () => {
    const [b] = (await ask(open, 'ModelInfer', large(rows))).raw_output_contents;
    assert(b.equals(Buffer.from(y.buffer)), 'other bytes');
  });
  await check('ModelInfer', 'more than --max-body', () => refused(ask(open, 'ModelInfer', {...raw('line'), raw_input_contents: [Buffer.alloc(9 << 20)]}), code.RESOURCE_EXHAUSTED));
  for (const [name, number] of [['deflate', 1], ['gzip', 2]])
    await check('ModelInfer', `compressed by ${name}`, async () => {
      const c = new inference.GRPCInferenceService(world.open.grpc, grpc.credentials.createInsecure(), {'grpc.default_compression_algorithm': number, ...any});
      try {
        holds(await ask(c, 'ModelInfer', large(1000)), {raw_output_contents: [Buffer.from(y.buffer, 0, 12000)]});
      } finally {
        c.close();
      }
    });
  await check('ModelInfer', 'an unknown model', () => refused(ask(open, 'ModelInfer', typed('none')), code.NOT_FOUND, 'none'));
  await check('ModelInfer', 'a wrong shape', () => refused(ask(open, 'ModelInfer', {...raw('line'), inputs: [{name: 'x', datatype: 'FP32', shape: [3, 1]}]}), code.INVALID_ARGUMENT, 'line'));
  await check('ModelInfer', 'a model that does not load', () => refused(ask(open, 'ModelInfer', typed('bad')), code.UNAVAILABLE, 'bad'));
}

async function streams() {
  await check('ModelStreamInfer', 'answers in order', async () => {
    const got = await stream(open, Array.from({length: 50}, (_, i) => raw('line', {id: String(i), model_version: '1'})));
    assert.strictEqual(got.length, 50);
    got.forEach((m, i) => holds(m, {error_message: '', infer_response: {id: String(i), raw_output_contents: [floats(3, 5, 7)]}}));
  });
  await check('ModelStreamInfer', 'one after the other, an error among them', async () => {
    const got = await stream(open, [typed('line', {id: '1'}), typed('none', {id: '2'}), typed('line', {id: '3'})], {wait: true});
    holds(got, {length: 3, 0: {error_message: '', infer_response: {id: '1'}}, 1: {infer_response: {id: '2'}}, 2: {infer_response: {outputs: {0: {contents: {fp32_contents: [2, 5, 8]}}}}}});
    assert.match(got[1].error_message, /none/);
  });
  await check('ModelStreamInfer', 'two sequences in turns', async () => {
    const got = await stream(open, [sum(1, {sequence_start: yes}), sum(2, {sequence_start: yes}), sum(1), sum(2, {sequence_end: yes}), sum(1, {sequence_end: yes})]);
    assert.deepStrictEqual(got.map(m => m.infer_response.raw_output_contents[0]), [floats(1, 10), floats(1, 10), floats(2, 20), floats(2, 20), floats(3, 30)]);
  });
  await check('ModelStreamInfer', 'the client leaves', async () => {
    const s = open.ModelStreamInfer();
    const ended = new Promise(resolve => s.on('error', resolve));
    s.write(raw('late'));
    setTimeout(() => s.cancel(), 500);
    assert.strictEqual((await ended).code, code.CANCELLED);
  });
}

// failed waits until so many requests for late are known to have failed; one whose client gave up before it was sent is not.
async function failed(count) {
  let got;
  for (let i = 0; i < 100; i++) {
    got = (await ask(open, 'ModelStatistics', {name: 'late'})).model_stats[0].inference_stats;
    if (got.fail.count >= count) break;
    await new Promise(resolve => setTimeout(resolve, 20));
  }
  assert(got.success.count === '0' && got.fail.count >= count, JSON.stringify(got));
}

async function waits() {
  await check('ModelStatistics', 'a request of a stream whose client has left has failed', () => failed(1));
  // A machine that is busy may be too late to say so once, but not each time.
  await check('ModelInfer', 'the deadline is over', async () => {
    const codes = [];
    for (let i = 0; i < 5; i++) codes.push(await ask(open, 'ModelInfer', raw('late'), {deadline: Date.now() + 300}).catch(e => e.code));
    assert(codes.filter(c => c === code.DEADLINE_EXCEEDED).length > 2, String(codes));
  });
  await check('ModelInfer', 'the client cancels', async () => {
    let call;
    const done = new Promise((resolve, reject) => { call = open.ModelInfer(raw('late'), (e, r) => (e ? reject(e) : resolve(r))); });
    setTimeout(() => call.cancel(), 500);
    await refused(done, code.CANCELLED);
  });
  await check('ModelStatistics', 'requests past their deadline and cancelled ones have failed', () => failed(5));
}

async function secured() {
  const read = f => fs.readFileSync(f);
  const tls = grpc.credentials.createSsl(read(world.ca), read(world.key), read(world.cert));
  const token = new grpc.Metadata();
  token.set('authorization', `Bearer ${world.token}`);
  const closed = new inference.GRPCInferenceService(world.closed.grpc, tls);
  await check('ModelInfer', 'TLS, a certificate and a token', async () => holds(await ask(closed, 'ModelInfer', raw('line'), {metadata: token}), {raw_output_contents: [floats(2, 5, 8)]}));
  await check('ModelInfer', 'no token', () => refused(ask(closed, 'ModelInfer', raw('line')), code.UNAUTHENTICATED));
  await check('ModelStreamInfer', 'TLS, a certificate and a token', async () => holds(await stream(closed, [raw('line')], {metadata: token}), {length: 1, 0: {infer_response: {raw_output_contents: [floats(2, 5, 8)]}}}));
  await check('ModelStreamInfer', 'no token', () => refused(stream(closed, [raw('line')]), code.UNAUTHENTICATED));
  await check('ServerReady', 'without a token', async () => holds(await ask(closed, 'ServerReady', {}), {ready: true}));
  const calls = grpc.credentials.createFromMetadataGenerator((_, done) => done(null, token));
  const both = new inference.GRPCInferenceService(world.closed.grpc, grpc.credentials.combineChannelCredentials(tls, calls));
  await check('ServerMetadata', 'a token among the credentials', async () => holds(await ask(both, 'ServerMetadata', {}), {name: 'spc'}));
  const none = new inference.GRPCInferenceService(world.closed.grpc, grpc.credentials.createSsl(read(world.ca)));
  await check('ServerLive', 'no certificate of the client\'s', () => refused(ask(none, 'ServerLive', {}, {deadline: Date.now() + 2000}), code.UNAVAILABLE));
  await check('RepositoryModelLoad', 'without --admin', () => refused(ask(closed, 'RepositoryModelLoad', {model_name: 'spare'}, {metadata: token}), code.UNIMPLEMENTED));
  const unix = new inference.GRPCInferenceService(world.unix.grpc, grpc.credentials.createInsecure());
  await check('ModelInfer', 'at a socket', async () => holds(await ask(unix, 'ModelInfer', raw('line')), {raw_output_contents: [floats(2, 5, 8)]}));
  for (const c of [closed, both, none, unix]) c.close();
}

// bytes calls a method with messages as bytes: those of health, and such as there are not.
async function bytes() {
  const same = b => b;
  const method = path => ({path, requestStream: false, responseStream: false, requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same});
  const names = {Check: '/grpc.health.v1.Health/Check', Trace: SERVICE + 'TraceSetting', Log: SERVICE + 'LogSettings', Shared: SERVICE + 'SystemSharedMemoryStatus'};
  const Client = grpc.makeGenericClientConstructor(Object.fromEntries(Object.entries(names).map(([k, path]) => [k, method(path)])), 'bytes');
  const c = new Client(world.open.grpc, grpc.credentials.createInsecure());
  await check('Health/Check', 'of the server', async () => assert.deepStrictEqual(await ask(c, 'Check', Buffer.alloc(0)), Buffer.from([8, 1])));
  await check('Health/Check', 'of a model that does not load', async () => assert.deepStrictEqual(await ask(c, 'Check', Buffer.from('\x0a\x03bad')), Buffer.from([8, 2])));
  for (const name of ['Trace', 'Log', 'Shared']) await check('any other method', names[name], () => refused(ask(c, name, Buffer.alloc(0)), code.UNIMPLEMENTED));
  c.close();
}

(async () => {
  for (const f of [descriptions, infer, streams, waits, secured, bytes]) await f();
  open.close();
})();
