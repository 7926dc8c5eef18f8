"""Calls spc serve by Debian's python3-httpx, on which KServe's InferenceRESTClient is built, by the requests that it sends.

    python3 kserve.py WORLD

Source: kserve/kserve, python/kserve/kserve/inference_client.py and protocol/infer_type.py."""

import asyncio
import json
import ssl
import uuid

import httpx

from checks import VALUES, check, floats, holds, world

HEADER = "inference-header-content-length"


def equal(got, want):
    assert got == want, f"{got!r}, want {want!r}"


def request(model, inputs, request_id=None, outputs=None, parameters=None):
    """A request's body and headers; inputs are (name, datatype, shape, data) with bytes, which follow the JSON, or a list."""
    raw, tensors = [], []
    for name, datatype, shape, data in inputs:
        t = {"name": name, "shape": shape, "datatype": datatype}
        if isinstance(data, bytes):
            t["parameters"] = {"binary_data_size": len(data)}
            raw.append(data)
        else:
            t["data"] = data
        tensors.append(t)
    q = {"id": request_id or str(uuid.uuid4()), "model_name": model, "inputs": tensors}
    if outputs:
        q["outputs"] = outputs
    if parameters:
        q["parameters"] = parameters
    text = json.dumps(q, separators=(",", ":")).encode()
    if raw:
        return text + b"".join(raw), {HEADER: str(len(text)), "content-type": "application/octet-stream"}
    return text, {"content-type": "application/json"}


async def infer(client, base, model, inputs, headers=None, **more):
    body, own = request(model, inputs, **more)
    r = await client.post(f"{base}/v2/models/{model}/infer", content=body, headers={**(headers or {}), **own}, timeout=60)
    if not r.is_success:
        assert r.headers["content-type"] == "application/json" and r.json()["error"], r.text
        return r.status_code, None, None
    length = int(r.headers.get(HEADER, len(r.content)))
    m, at, raw = json.loads(r.content[:length]), length, []
    for o in m["outputs"]:
        size = (o.get("parameters") or {}).get("binary_data_size")
        if size is None:
            assert o["data"] is not None
        else:
            raw.append(r.content[at : at + size])
            at += size
    return 200, m, raw


async def plain():
    base = "http://" + world["open"]["http"]
    row, bytes_row = [("x", "FP32", [1, 3], [1.0, 2.0, 3.0])], [("x", "FP32", [1, 3], floats(1, 2, 3))]
    async with httpx.AsyncClient(timeout=60) as c:
        for path, key in (("/v2/health/live", "live"), ("/v2/health/ready", "ready")):
            r = await c.get(base + path)
            check("GET " + path, "the body says so", lambda: equal((r.status_code, r.json().get(key)), (200, True)))
        for model, want in (("line", 200), ("bad", 503), ("none", 404)):
            r = await c.get(f"{base}/v2/models/{model}/ready")
            check("GET /v2/models/M/ready", model, lambda: equal(r.status_code, want))

        async def one(what, want, raw, model, inputs, **more):
            status, m, got = await infer(c, base, model, inputs, **more)

            def judge():
                equal(status, want if isinstance(want, int) else 200)
                if not isinstance(want, int):
                    holds(m, want)
                    equal(got, raw)

            check("POST /v2/models/M/infer", what, judge)

        await one("lists", {"id": "7", "model_name": "line", "outputs": [{"name": "y", "shape": [1, 3], "datatype": "FP32", "data": [2, 5, 8]}]}, [], "line", row, request_id="7")
        await one("bytes in, lists out", {"outputs": [{"data": [2, 5, 8]}]}, [], "line", bytes_row)
        await one("bytes each way", {"outputs": [{"name": "y"}]}, [floats(2, 5, 8)], "line", bytes_row, parameters={"binary_data_output": True})
        await one("an output in bytes", {"outputs": [{"name": "y"}]}, [floats(2, 5, 8)], "line", row, outputs=[{"name": "y", "parameters": {"binary_data": True}}])
        await one("FP16 each way", {"outputs": [{"datatype": "FP16", "shape": [1, 4]}]}, [VALUES["FP16"] * 2], "FP16", [("x", "FP16", [1, 2], VALUES["FP16"])], parameters={"binary_data_output": True})
        await one("BYTES as texts", {"outputs": [{"data": ["a", "ü", "a", "ü"]}]}, [], "BYTES", [("x", "BYTES", [1, 2], ["a", "ü"])])
        await one("an unknown model", 404, None, "none", row)
        await one("a wrong shape", 400, None, "line", [("x", "FP32", [3, 1], [1.0, 2.0, 3.0])])


async def secured():
    """TLS, where httpx offers HTTP/1.1 alone unless its part for HTTP/2 is installed."""
    base = "https://" + world["closed"]["http"]
    context = ssl.create_default_context(cafile=world["ca"])
    context.load_cert_chain(world["cert"], world["key"])
    token = {"authorization": "Bearer " + world["token"]}
    async with httpx.AsyncClient(verify=context, timeout=60) as c:
        status, m, _ = await infer(c, base, "line", [("x", "FP32", [1, 3], [1.0, 2.0, 3.0])], headers=token)
        check("POST /v2/models/M/infer", "TLS, a certificate and a token", lambda: equal((status, m["outputs"][0]["data"]), (200, [2, 5, 8])))
        refused, _, _ = await infer(c, base, "line", [("x", "FP32", [1, 3], [1.0, 2.0, 3.0])])
        check("POST /v2/models/M/infer", "no token", lambda: equal(refused, 401))
        r = await c.get(base + "/v2/health/ready")
        check("GET /v2/health/ready", "without a token", lambda: equal(r.json()["ready"], True))


asyncio.run(plain())
asyncio.run(secured())
