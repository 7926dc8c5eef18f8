"""Calls spc serve by Debian's python3-grpcio, with stubs that python3-grpc-tools makes of the service's .proto, by the requests that
tritonclient.grpc and KServe's InferenceGRPCClient send.

    python3 stubs.py WORLD

Sources: triton-inference-server/client, src/python/library/tritonclient/grpc; kserve/kserve, python/kserve/kserve/inference_client.py and
protocol/infer_type.py."""

import asyncio
import importlib
import json
import os
import queue
import sys
import tempfile

import grpc
from grpc_tools import protoc

from checks import VALUES, check, floats, holds, soon, strings, world

folder = tempfile.mkdtemp(dir=world["dir"])
where, name = os.path.split(world["proto"])
if protoc.main(["protoc", "-I", where, f"--python_out={folder}", f"--grpc_python_out={folder}", name]):
    sys.exit("protoc makes no stubs")
sys.path.insert(0, folder)
pb = importlib.import_module("inference_pb2")
rpc = importlib.import_module("inference_pb2_grpc")

LARGEST = 2**31 - 1
SERVICE = "/inference.GRPCInferenceService/"
# The options of a channel of tritonclient's.
OPTIONS = [
    ("grpc.max_send_message_length", LARGEST),
    ("grpc.max_receive_message_length", LARGEST),
    ("grpc.keepalive_time_ms", LARGEST),
    ("grpc.keepalive_timeout_ms", 20000),
    ("grpc.keepalive_permit_without_calls", False),
    ("grpc.http2.max_pings_without_data", 2),
]
channel = grpc.insecure_channel(world["open"]["grpc"], options=OPTIONS)
stub = rpc.GRPCInferenceServiceStub(channel)
Input, Output = pb.ModelInferRequest.InferInputTensor, pb.ModelInferRequest.InferRequestedOutputTensor


def triton(model, inputs, version="", request_id="", outputs=None, sequence=None, priority=0, timeout=None, parameters=None):
    """A request as tritonclient makes it: fields in its order, and inputs as bytes. Inputs are (name, datatype, shape, bytes)."""
    q = pb.ModelInferRequest()
    q.model_name, q.model_version = model, version
    if request_id:
        q.id = request_id
    for name, datatype, shape, data in inputs:
        q.inputs.extend([Input(name=name, shape=shape, datatype=datatype)])
        q.raw_input_contents.extend([data])
    for name, classes in outputs or []:
        o = Output(name=name)
        if classes:
            o.parameters["classification"].int64_param = classes
        q.outputs.extend([o])
    if sequence:
        number, start, end = sequence
        if isinstance(number, str):
            q.parameters["sequence_id"].string_param = number
        else:
            q.parameters["sequence_id"].int64_param = number
        q.parameters["sequence_start"].bool_param = start
        q.parameters["sequence_end"].bool_param = end
    if priority:
        q.parameters["priority"].uint64_param = priority
    if timeout is not None:
        q.parameters["timeout"].int64_param = timeout
    for k, v in (parameters or {}).items():
        kind = {str: "string_param", bool: "bool_param", int: "int64_param", float: "double_param"}[type(v)]
        setattr(q.parameters[k], kind, v)
    return q


row = [("x", "FP32", [1, 3], floats(1, 2, 3))]


def infer(q, stub=stub, metadata=(), timeout=None, compression=grpc.Compression.NoCompression):
    return stub.ModelInfer(request=q, metadata=metadata, timeout=timeout, compression=compression)


def refused(f, code, text=""):
    """Raises unless a call fails with a code."""
    try:
        got = f()
    except grpc.RpcError as e:
        assert e.code() == code and text in e.details(), f"{e.code()} {e.details()}, want {code} with {text}"
        return
    raise AssertionError(f"{got!r}, want {code}")


def equal(got, want):
    assert got == want, f"{got!r}, want {want!r}"


def answer(m, contents, **fields):
    """Raises unless an answer's first output has these bytes."""
    for k, v in fields.items():
        equal(getattr(m, k), v)
    equal(list(m.raw_output_contents), [contents])


def descriptions():
    check("ServerLive", "tritonclient", lambda: equal(stub.ServerLive(request=pb.ServerLiveRequest(), metadata=(), timeout=None).live, True))
    check("ServerReady", "tritonclient", lambda: equal(stub.ServerReady(request=pb.ServerReadyRequest(), metadata=()).ready, True))
    check("ServerMetadata", "tritonclient", lambda: equal(stub.ServerMetadata(request=pb.ServerMetadataRequest(), metadata=()).name, "spc"))
    for model, version, want in (("line", "", True), ("line", "2", True), ("bad", "", False)):
        check("ModelReady", f"tritonclient, {model} {version}", lambda: equal(stub.ModelReady(request=pb.ModelReadyRequest(name=model, version=version), metadata=()).ready, want))

    def metadata():
        m = stub.ModelMetadata(request=pb.ModelMetadataRequest(name="line", version=""), metadata=())
        equal((m.name, list(m.versions), m.platform), ("line", ["1", "2"], "spc_spx"))
        equal([(t.name, t.datatype, list(t.shape)) for t in list(m.inputs) + list(m.outputs)], [("x", "FP32", [-1, 3]), ("y", "FP32", [-1, 3])])

    def config():
        c = stub.ModelConfig(request=pb.ModelConfigRequest(name="line", version=""), metadata=()).config
        equal((c.name, c.max_batch_size, c.WhichOneof("scheduling_choice")), ("line", 16, "dynamic_batching"))
        equal([(t.name, t.data_type, list(t.dims)) for t in list(c.input) + list(c.output)], [("x", pb.TYPE_FP32, [3]), ("y", pb.TYPE_FP32, [3])])

    def index():
        models = {(m.name, m.version): m.state for m in stub.RepositoryIndex(request=pb.RepositoryIndexRequest(), metadata=()).models}
        equal((models["line", "1"], models["line", "2"], models["bad", "1"]), ("READY", "READY", "UNAVAILABLE"))

    check("ModelMetadata", "tritonclient", metadata)
    check("ModelConfig", "tritonclient", config)
    check("RepositoryIndex", "tritonclient", index)


def repository():
    def unload():
        q = pb.RepositoryModelUnloadRequest(model_name="spare")
        q.parameters["unload_dependents"].bool_param = False
        stub.RepositoryModelUnload(request=q, metadata=())
        refused(lambda: infer(triton("spare", row)), grpc.StatusCode.UNAVAILABLE, "spare")

    def load():
        stub.RepositoryModelLoad(request=pb.RepositoryModelLoadRequest(model_name="spare"), metadata=())
        answer(infer(triton("spare", row)), floats(3, 5, 7))

    def configured():
        q = pb.RepositoryModelLoadRequest(model_name="spare")
        q.parameters["config"].string_param = "{}"
        refused(lambda: stub.RepositoryModelLoad(request=q), grpc.StatusCode.UNIMPLEMENTED)

    check("RepositoryModelUnload", "tritonclient", unload)
    check("RepositoryModelLoad", "tritonclient", load)
    check("RepositoryModelLoad", "tritonclient with a configuration", configured)
    # KServe's message has one field, the model's name, which is number 1.
    for method in ("RepositoryModelUnload", "RepositoryModelLoad"):
        call = channel.unary_unary(SERVICE + method)
        check(method, "KServe's message", lambda: equal(call(b"\x0a\x05spare"), b""))
    check("ModelInfer", "a model that KServe's message loaded", lambda: answer(infer(triton("spare", row)), floats(3, 5, 7)))


def inference():
    check("ModelInfer", "tritonclient", lambda: answer(infer(triton("line", row, "1", "7")), floats(3, 5, 7), id="7", model_name="line", model_version="1"))
    check("ModelInfer", "tritonclient with an output and its own parameters",
          lambda: answer(infer(triton("line", row, outputs=[("y", 0)], priority=1, timeout=2000000, parameters={"a": "b", "c": True, "d": 7, "e": 0.5})), floats(2, 5, 8)))
    check("ModelInfer", "tritonclient with classes", lambda: answer(infer(triton("line", row, "1", outputs=[("y", 2)])), strings(b"7:2", b"5:1")))
    for of, data in VALUES.items():
        check("ModelInfer", f"tritonclient, {of}", lambda: answer(infer(triton(of, [("x", of, [1, 2], data)])), data + data))
    for number in (1001, "python"):
        for step, (start, end) in enumerate(((True, False), (False, False), (False, True)), 1):
            check("ModelInfer", f"tritonclient, step {step} of sequence {number}",
                  lambda: answer(infer(triton("sums", [("x", "FP32", [1, 2], floats(1, 10))], sequence=(number, start, end))), floats(step, 10 * step)))
    for name, kind in (("gzip", grpc.Compression.Gzip), ("deflate", grpc.Compression.Deflate)):
        check("ModelInfer", f"tritonclient, compressed by {name}",
              lambda: answer(infer(triton("line", [("x", "FP32", [500, 3], floats(*[3] * 1500))], "1"), compression=kind), floats(*[7] * 1500)))
    check("ModelInfer", "compressed by gzip, more than --max-body once it is not",
          lambda: refused(lambda: infer(triton("line", [("x", "FP32", [10**6, 3], bytes(12 * 10**6))]), compression=grpc.Compression.Gzip), grpc.StatusCode.RESOURCE_EXHAUSTED))
    check("ModelInfer", "an unknown model", lambda: refused(lambda: infer(triton("none", row)), grpc.StatusCode.NOT_FOUND, "none"))
    check("ModelInfer", "shared memory is refused", lambda: refused(lambda: infer(shared()), grpc.StatusCode.UNIMPLEMENTED))
    check("ModelInfer", "the client's timeout is over", late)
    check("ModelInfer", "the client cancels", cancel)
    check("ModelStatistics", "requests past their deadline and cancelled ones have failed", lambda: soon(lambda: failed(DEADLINES // 2 + 2)))
    check("ModelStreamInfer", "tritonclient", stream)


def shared():
    q = triton("line", [])
    q.inputs.extend([Input(name="x", shape=[1, 3], datatype="FP32")])
    q.inputs[0].parameters["shared_memory_region"].string_param = "region"
    q.inputs[0].parameters["shared_memory_byte_size"].int64_param = 12
    return q


DEADLINES = 5


def late():
    """Requests past their deadline. A machine that is busy may be too late to say so once, but not each time."""
    codes = []
    for _ in range(DEADLINES):
        try:
            infer(triton("late", row), timeout=0.3)
        except grpc.RpcError as e:
            codes.append(e.code())
    equal(len(codes), DEADLINES)
    assert codes.count(grpc.StatusCode.DEADLINE_EXCEEDED) > DEADLINES // 2, codes


def cancel():
    call = stub.ModelInfer.future(request=triton("late", row), metadata=(), timeout=None)
    try:
        call.result(timeout=0.5)
        raise AssertionError("there is an answer")
    except grpc.FutureTimeoutError:
        call.cancel()
    equal(call.code(), grpc.StatusCode.CANCELLED)


def failed(count):
    """Raises unless of the requests for late none ended well, and so many are known to have failed: one whose client gave up before it was sent is not."""
    s = stub.ModelStatistics(request=pb.ModelStatisticsRequest(name="late", version=""), metadata=()).model_stats[0].inference_stats
    equal(s.success.count, 0)
    assert s.fail.count >= count, s


def stream():
    """Requests from a queue, as tritonclient's stream takes them, the next after an answer."""
    requests = queue.Queue()
    requests.put(triton("line", row, "1", "1"))
    got = []
    for r in stub.ModelStreamInfer(iter(requests.get, None), metadata=(), timeout=None):
        got.append((r.infer_response.id, r.error_message != "", list(r.infer_response.raw_output_contents)))
        requests.put({1: triton("none", row, request_id="2"), 2: triton("line", row, request_id="3")}.get(len(got)))
    equal(got, [("1", False, [floats(3, 5, 7)]), ("2", True, []), ("3", False, [floats(2, 5, 8)])])


def statistics():
    """The fields that perf_analyzer reads of each model (triton_client_backend.cc, ParseStatistics)."""
    for s in stub.ModelStatistics(request=pb.ModelStatisticsRequest(name="FP32", version="1"), metadata=()).model_stats:
        equal((s.name, s.version, s.inference_count, s.execution_count), ("FP32", "1", 1, 1))
        for part in ("success", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"):
            d = getattr(s.inference_stats, part)
            equal((part, d.count), (part, 0 if part.startswith("cache") else 1))
        assert s.inference_stats.success.ns >= s.inference_stats.compute_infer.ns > 0, s


async def kserve():
    """KServe's client: grpc.aio, retries of what is unavailable, and contents with types unless they are arrays."""
    retry = {"maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 1),
               ("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": retry}]}))]
    async with grpc.aio.insecure_channel(world["open"]["grpc"], options=options) as c:
        stub = rpc.GRPCInferenceServiceStub(c)
        got = {
            "ServerLive": (await stub.ServerLive(pb.ServerLiveRequest(), timeout=60, metadata=None)).live,
            "ServerReady": (await stub.ServerReady(pb.ServerReadyRequest(), timeout=60, metadata=None)).ready,
            "ModelReady": (await stub.ModelReady(pb.ModelReadyRequest(name="line"), timeout=60, metadata=None)).ready,
        }
        for method, ok in got.items():
            check(method, "KServe", lambda: equal(ok, True))
        typed = pb.ModelInferRequest(id="k", model_name="line", model_version="1", inputs=[{"name": "x", "shape": [1, 3], "datatype": "FP32", "contents": {"fp32_contents": [1, 2, 3]}}], raw_input_contents=[])
        m = await stub.ModelInfer(request=typed, metadata=tuple(), timeout=60)
        check("ModelInfer", "KServe, typed", lambda: equal((m.id, list(m.outputs[0].contents.fp32_contents), list(m.raw_output_contents)), ("k", [3, 5, 7], [])))
        texts = pb.ModelInferRequest(model_name="BYTES", inputs=[{"name": "x", "shape": [1, 2], "datatype": "BYTES", "contents": {"bytes_contents": [b"a", b"\0"]}}])
        t = await stub.ModelInfer(request=texts, metadata=tuple(), timeout=60)
        check("ModelInfer", "KServe, BYTES typed", lambda: equal(list(t.outputs[0].contents.bytes_contents), [b"a", b"\0"] * 2))
        half = pb.ModelInferRequest(model_name="FP16", inputs=[{"name": "x", "shape": [1, 2], "datatype": "FP16", "parameters": {"binary_data_size": pb.InferParameter(int64_param=4)}}], raw_input_contents=[VALUES["FP16"]])
        h = await stub.ModelInfer(request=half, metadata=tuple(), timeout=60)
        check("ModelInfer", "KServe, an array", lambda: answer(h, VALUES["FP16"] * 2))
        try:
            await stub.ModelInfer(request=pb.ModelInferRequest(model_name="none"), metadata=tuple(), timeout=60)
            code = None
        except grpc.RpcError as e:
            code = e.code()
        check("ModelInfer", "KServe, an unknown model", lambda: equal(code, grpc.StatusCode.NOT_FOUND))


def secured():
    def read(key):
        with open(world[key], "rb") as f:
            return f.read()

    creds = grpc.ssl_channel_credentials(root_certificates=read("ca"), private_key=read("key"), certificate_chain=read("cert"))
    token = (("authorization", "Bearer " + world["token"]),)
    with grpc.secure_channel(world["closed"]["grpc"], creds, options=OPTIONS) as c:
        s = rpc.GRPCInferenceServiceStub(c)
        check("ModelInfer", "TLS, a certificate and a token", lambda: answer(infer(triton("line", row), s, token), floats(2, 5, 8)))
        check("ModelInfer", "no token", lambda: refused(lambda: infer(triton("line", row), s), grpc.StatusCode.UNAUTHENTICATED))
        check("ServerLive", "without a token", lambda: equal(s.ServerLive(pb.ServerLiveRequest()).live, True))
    with grpc.secure_channel(world["closed"]["grpc"], grpc.ssl_channel_credentials(root_certificates=read("ca")), options=OPTIONS) as c:
        check("ServerLive", "no certificate of the client's", lambda: refused(lambda: rpc.GRPCInferenceServiceStub(c).ServerLive(pb.ServerLiveRequest(), timeout=3), grpc.StatusCode.UNAVAILABLE))
    with grpc.insecure_channel(world["unix"]["grpc"], options=OPTIONS) as c:
        check("ModelInfer", "at a socket", lambda: answer(infer(triton("line", row), rpc.GRPCInferenceServiceStub(c)), floats(2, 5, 8)))


def others():
    for method in ("TraceSetting", "LogSettings", "SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "CudaSharedMemoryStatus", "CudaSharedMemoryUnregister"):
        check("any other method", method, lambda: refused(lambda: channel.unary_unary(SERVICE + method)(b""), grpc.StatusCode.UNIMPLEMENTED))
    check("Health/Check", "of the server", lambda: equal(channel.unary_unary("/grpc.health.v1.Health/Check")(b""), b"\x08\x01"))
    check("Health/Check", "an unknown model", lambda: refused(lambda: channel.unary_unary("/grpc.health.v1.Health/Check")(b"\x0a\x04none"), grpc.StatusCode.NOT_FOUND))

    def watch():
        states = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"\x0a\x05spare")
        equal(next(states), b"\x08\x01")
        stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="spare"))
        equal(next(states), b"\x08\x02")
        stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="spare"))
        equal(next(states), b"\x08\x01")
        states.cancel()

    check("Health/Watch", "a model that is unloaded and loaded", watch)


descriptions()
inference()
check("ModelStatistics", "perf_analyzer", statistics)
repository()
asyncio.run(kserve())
secured()
others()
channel.close()
