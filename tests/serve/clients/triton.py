"""Calls spc serve by Debian's python3-geventhttpclient and python3-rapidjson, on which tritonclient.http is built, by the requests that it
sends, and reads what perf_analyzer reads.

    python3 triton.py WORLD

Sources: triton-inference-server/client, src/python/library/tritonclient/http; triton-inference-server/perf_analyzer, src/model_parser.cc and
src/client_backend/triton/triton_client_backend.cc."""

import gzip
import zlib
from urllib.parse import quote

import gevent.pool
import gevent.ssl
import rapidjson
from geventhttpclient import HTTPClient
from geventhttpclient.url import URL

from checks import VALUES, check, floats, holds, strings, world

client = HTTPClient.from_url(URL("http://" + world["open"]["http"]), concurrency=1, connection_timeout=60, network_timeout=60)


def read(response, status=200):
    """The JSON of an answer, of an error its text."""
    body = response.read()
    assert response.status_code == status, f"status {response.status_code} {bytes(body)!r}, want {status}"
    v = rapidjson.loads(body)
    if status != 200:
        assert isinstance(v["error"], str) and v["error"], v
    return v


def get(path, status=200):
    return read(client.get("/" + path), status)


def post(path, body, status=200):
    """Of an empty body geventhttpclient sends neither a length nor a type."""
    return read(client.post("/" + path, body=body, headers={}) if body else client.post(request_uri="/" + path, body=""), status)


def tensor(name, datatype, shape, data):
    """An input: bytes are sent behind the JSON, and a list in it."""
    t = {"name": name, "shape": shape, "datatype": datatype}
    if isinstance(data, bytes):
        t["parameters"] = {"binary_data_size": len(data)}
    else:
        t["data"] = data
    return t


def infer(model, inputs, version="", request_id="", outputs=None, parameters=None, request=None, response=None, status=200, client=client, headers=None):
    """Sends a request as tritonclient makes it; inputs are (name, datatype, shape, data), outputs (name, binary, classes)."""
    q, p, headers = {}, dict(parameters or {}), dict(headers or {})
    if request_id:
        q["id"] = request_id
    q["inputs"] = [tensor(*t) for t in inputs]
    if outputs:
        q["outputs"] = []
        for name, binary, classes in outputs:
            q["outputs"].append({"name": name, "parameters": dict({"classification": classes} if classes else {}, binary_data=binary)})
    else:
        p["binary_data_output"] = True
    if p:
        q["parameters"] = p
    text = rapidjson.dumps(q)
    raw = [t[3] for t in inputs if isinstance(t[3], bytes)]
    body = text.encode() + b"".join(raw)
    if request == "gzip":
        headers["Content-Encoding"], body = "gzip", gzip.compress(body)
    elif request == "deflate":
        headers["Content-Encoding"], body = "deflate", zlib.compress(body)
    if response:
        headers["Accept-Encoding"] = response
    if raw:
        headers["Inference-Header-Content-Length"] = len(text)
    at = f"/v2/models/{quote(model)}" + (f"/versions/{version}" if version else "") + "/infer"
    r = client.post(request_uri=at, body=body, headers=headers) if headers else client.post(request_uri=at, body=body)
    return read(r, status) if status != 200 else result(r)


def result(response):
    """An answer as tritonclient takes it apart: the JSON, and the bytes of outputs by their names."""
    body = bytes(response.read())
    assert response.status_code == 200, f"status {response.status_code} {body!r}"
    encoding, length = response.get("Content-Encoding"), response.get("Inference-Header-Content-Length")
    if encoding == "gzip":
        body = gzip.decompress(body)
    elif encoding == "deflate":
        body = zlib.decompress(body)
    if length is None:
        return rapidjson.loads(body), {}
    m, at, raw = rapidjson.loads(body[: int(length)]), int(length), {}
    for o in m["outputs"]:
        size = o.get("parameters", {}).get("binary_data_size")
        if size is not None:
            raw[o["name"]], at = body[at : at + size], at + size
    assert at == len(body), f"{len(body) - at} bytes are of no output"
    return m, raw


def equal(got, want):
    assert got == want, f"{got!r}, want {want!r}"


def answer(got, contents, **fields):
    """Raises unless the output y has these bytes."""
    holds(got[0], fields)
    equal(got[1], {"y": contents})


row = [("x", "FP32", [1, 3], floats(1, 2, 3))]


def descriptions():
    extensions = ["binary_tensor_data", "classification", "model_configuration", "model_repository", "sequence", "statistics"]
    x, y = {"name": "x", "datatype": "FP32", "shape": [-1, 3]}, {"name": "y", "datatype": "FP32", "shape": [-1, 3]}
    for path in ("v2/health/live", "v2/health/ready"):
        check("GET /" + path, "is 200", lambda: equal(client.get("/" + path).status_code, 200))
    for model, status in (("line", 200), ("line/versions/2", 200), ("bad", 503), ("none", 404)):
        check("GET /v2/models/M/ready", model, lambda: equal(client.get(f"/v2/models/{model}/ready").status_code, status))
    check("GET /v2", "name and extensions", lambda: holds(get("v2"), {"name": "spc", "extensions": extensions}))
    check("GET /v2/models/M", "inputs and outputs", lambda: holds(get("v2/models/line"), {"name": "line", "versions": ["1", "2"], "inputs": [x], "outputs": [y]}))
    check("GET /v2/models/M", "a quoted name", lambda: holds(get("v2/models/" + quote("two words")), {"name": "two words"}))
    check("GET /v2/models/M", "an unknown model", lambda: get("v2/models/none", 404))
    check("GET /v2/models/M/config", "of a version", lambda: holds(get("v2/models/line/versions/1/config"), {"name": "line", "max_batch_size": 16}))
    check("GET /v2/models/M/stats", "an unknown model", lambda: get("v2/models/none/stats", 404))
    check("GET /v2/models/stats", "all models", lambda: equal(len(get("v2/models/stats")["model_stats"]), 23))
    for path in ("v2/logging", "v2/trace/setting", "v2/models/line/trace/setting", "v2/systemsharedmemory/status", "v2/cudasharedmemory/status"):
        check("any other path", "/" + path, lambda: get(path, 404))
    for path in ("v2/systemsharedmemory/unregister", "v2/cudasharedmemory/region/r/unregister"):
        check("any other path", "/" + path, lambda: post(path, "", 404))


def repository():
    def index():
        models = {(m["name"], m["version"]): m["state"] for m in post("v2/repository/index", "")}
        equal((models["line", "1"], models["line", "2"], models["bad", "1"]), ("READY", "READY", "UNAVAILABLE"))

    def call(path, body, status=200):
        r = client.post(request_uri="/v2/repository/models/" + path, body=rapidjson.dumps(body))
        equal(r.status_code, status)
        r.read()

    check("POST /v2/repository/index", "an empty body", index)
    check("POST /v2/repository/models/M/unload", "unload_dependents", lambda: call("spare/unload", {"parameters": {"unload_dependents": False}}))
    check("POST /v2/models/M/infer", "an unloaded model", lambda: infer("spare", row, status=503))
    check("POST /v2/repository/models/M/load", "an empty object", lambda: call("spare/load", {}))
    check("POST /v2/models/M/infer", "a model that was loaded again", lambda: answer(infer("spare", row), floats(3, 5, 7)))
    check("POST /v2/repository/models/M/load", "a configuration", lambda: call("spare/load", {"parameters": {"config": "{}"}}, 501))
    check("POST /v2/repository/models/M/load", "an unknown model", lambda: call("none/load", {}, 404))


def inference():
    def one(what, f):
        check("POST /v2/models/M/infer", what, f)

    one("bytes each way", lambda: answer(infer("line", row, "1", "7"), floats(3, 5, 7), id="7", model_name="line", model_version="1"))
    one("JSON in, bytes out", lambda: answer(infer("line", [("x", "FP32", [1, 3], [1.0, 2.0, 3.0])]), floats(2, 5, 8)))
    one("bytes in, JSON out", lambda: holds(infer("line", row, outputs=[("y", False, 0)])[0], {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [2, 5, 8]}]}))
    one("an output by its name, in bytes", lambda: answer(infer("line", row, "1", outputs=[("y", True, 0)]), floats(3, 5, 7)))
    one("classes in bytes", lambda: answer(infer("line", row, "1", outputs=[("y", True, 2)]), strings(b"7:2", b"5:1")))
    one("priority, timeout, parameters of its own", lambda: answer(infer("line", row, "1", parameters={"priority": 1, "timeout": 2000000, "mine": "yes"}), floats(3, 5, 7)))
    one("no rows", lambda: answer(infer("line", [("x", "FP32", [0, 3], b"")]), b""))
    for of, data in VALUES.items():
        one(of, lambda: answer(infer(of, [("x", of, [1, 2], data)]), data + data))
    for number in (1001, "gevent"):
        for step, (start, end) in enumerate(((True, False), (False, False), (False, True)), 1):
            p = {"sequence_id": number, "sequence_start": start, "sequence_end": end}
            one(f"step {step} of sequence {number}", lambda: equal(infer("sums", [("x", "FP32", [1, 2], floats(1, 10))], parameters=p)[1], {"after": floats(step, 10 * step)}))
    many, doubled = [("x", "FP32", [2000, 3], floats(*[3] * 6000))], floats(*[7] * 6000)
    for encoding in ("gzip", "deflate"):
        one(f"a body of {encoding}", lambda: answer(infer("line", many, "1", request=encoding), doubled))
        one(f"an answer of {encoding}", lambda: answer(infer("line", many, "1", response=encoding), doubled))
        one(f"an answer of {encoding}, as JSON", lambda: holds(infer("line", many, "1", outputs=[("y", False, 0)], response=encoding)[0], {"outputs": [{"data": [7] * 6000}]}))
    one("an unknown model", lambda: infer("none", row, status=404))
    one("an unknown version", lambda: infer("line", row, "3", status=404))
    one("a wrong type", lambda: infer("line", [("x", "INT32", [1, 3], bytes(12))], status=400))
    one("shared memory is refused", lambda: read(client.post("/v2/models/line/infer", body=rapidjson.dumps({"inputs": [
        {"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 12}}], "parameters": {"binary_data_output": True}})), 501))
    one("the timeout is over", lambda: infer("late", row, parameters={"timeout": 100000}, status=504))

    def together():
        c = HTTPClient.from_url(URL("http://" + world["open"]["http"]), concurrency=8)
        pool = gevent.pool.Pool(None)
        jobs = [pool.apply_async(infer, ("line", [("x", "FP32", [1, 3], floats(i, i, i))], "1"), {"client": c}) for i in range(100)]
        pool.join()
        for i, j in enumerate(jobs):
            answer(j.get(), floats(*[2 * i + 1] * 3))
        c.close()

    one("100 requests over eight connections", together)


def perf_analyzer():
    """The fields that perf_analyzer reads, with the types that it takes them for: a number of another type or a field that is not there
    ends it."""

    def metadata():
        m = get("v2/models/line")
        assert isinstance(m["name"], str)
        for t in m["inputs"] + m["outputs"]:
            assert isinstance(t["name"], str) and isinstance(t["datatype"], str)
            assert all(type(d) is int for d in t["shape"]), t

    def config(model, scheduler):
        c = get(f"v2/models/{model}/config")
        assert isinstance(c["name"], str) and isinstance(c["platform"], str) and c["platform"] != "ensemble", c
        assert type(c["max_batch_size"]) is int
        for name, key in (("model_transaction_policy", "decoupled"), ("response_cache", "enable")):
            assert name not in c or type(c[name][key]) is bool, c[name]
        for t in c["input"] + c["output"]:
            assert isinstance(t["name"], str) and type(t.get("optional", False)) is bool and type(t.get("is_shape_tensor", False)) is bool, t
        equal([k for k in ("sequence_batching", "dynamic_batching", "ensemble_scheduling") if k in c], [scheduler])
        m = get(f"v2/models/{model}")
        equal([t["name"] for t in c["input"] + c["output"]], [t["name"] for t in m["inputs"] + m["outputs"]])

    def statistics(path, models):
        stats = get(path)["model_stats"]
        equal(len(stats), models)
        for s in stats:
            assert isinstance(s["name"], str) and isinstance(s["version"], str)
            numbers = [s["inference_count"], s["execution_count"]]
            for part in ("success", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"):
                numbers += [s["inference_stats"][part]["count"], s["inference_stats"][part]["ns"]]
            assert all(type(n) is int and 0 <= n < 2**64 for n in numbers), s

    check("GET /v2", "perf_analyzer", lambda: all(isinstance(e, str) for e in get("v2")["extensions"]))
    check("GET /v2/models/M", "perf_analyzer", metadata)
    check("GET /v2/models/M/config", "perf_analyzer", lambda: config("line", "dynamic_batching"))
    check("GET /v2/models/M/config", "perf_analyzer, sequences", lambda: config("sums", "sequence_batching"))
    check("GET /v2/models/M/stats", "perf_analyzer", lambda: statistics("v2/models/line/stats", 2))
    check("GET /v2/models/stats", "perf_analyzer", lambda: statistics("v2/models/stats", 23))


def secured():
    def context(cafile=None):
        c = gevent.ssl.create_default_context(cafile=world["ca"])
        c.load_cert_chain(world["cert"], world["key"])
        return c

    c = HTTPClient.from_url(URL("https://" + world["closed"]["http"]), ssl_options={}, ssl_context_factory=context, insecure=True)
    token = {"Authorization": "Bearer " + world["token"]}
    check("POST /v2/models/M/infer", "TLS, a certificate and a token", lambda: answer(infer("line", row, client=c, headers=token), floats(2, 5, 8)))
    check("POST /v2/models/M/infer", "no token", lambda: infer("line", row, client=c, status=401))
    check("GET /v2/health/live", "without a token", lambda: equal(c.get("/v2/health/live").status_code, 200))


descriptions()
inference()
repository()
perf_analyzer()
secured()
client.close()
