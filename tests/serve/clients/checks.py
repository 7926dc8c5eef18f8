"""What the scripts of this folder share: each prints a line of JSON for each check."""

import json
import struct
import sys
import time
import traceback

world = json.loads(sys.argv[1]) if len(sys.argv) > 1 else None


def check(call, what, f):
    """Prints whether f raises nothing."""
    wrong = None
    try:
        f()
    except Exception as e:
        at = traceback.extract_tb(e.__traceback__)[-1]
        wrong = f"{type(e).__name__} in line {at.lineno}: {e}"[:400]
    print(json.dumps({"call": call, "what": what, "wrong": wrong}), flush=True)


def holds(got, want, at=""):
    """Raises unless got has what is wanted; objects may have more."""
    if isinstance(want, dict):
        assert isinstance(got, dict), f"{at} is {got!r}, want {want!r}"
        for k, v in want.items():
            assert k in got, f"{at} has no {k}"
            holds(got[k], v, f"{at}.{k}")
    elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for i, v in enumerate(want):
            holds(got[i], v, f"{at}[{i}]")
    else:
        assert type(got) is type(want) and got == want, f"{at} is {got!r}, want {want!r}"


def floats(*x):
    """The bytes of floats."""
    return struct.pack(f"<{len(x)}f", *x)


def strings(*x):
    """The bytes of a tensor of strings: each behind its length."""
    return b"".join(struct.pack("<I", len(s)) + s for s in x)


# Two elements of each type as bytes.
VALUES = {
    "BOOL": b"\1\0",
    "UINT8": b"\1\xff",
    "UINT16": struct.pack("<2H", 1, 65535),
    "UINT32": struct.pack("<2I", 1, 2**32 - 1),
    "UINT64": struct.pack("<2Q", 1, 2**64 - 1),
    "INT8": struct.pack("<2b", -128, 127),
    "INT16": struct.pack("<2h", -(2**15), 2**15 - 1),
    "INT32": struct.pack("<2i", -(2**31), 2**31 - 1),
    "INT64": struct.pack("<2q", -(2**63), 2**63 - 1),
    "FP16": struct.pack("<2e", 1.5, -2),
    "BF16": b"\x80\x3f\0\xc0",
    "FP32": floats(0.5, -2),
    "FP64": struct.pack("<2d", 0.1, -2),
    "BYTES": strings(b"a", b"\0\xff"),
}


def soon(f):
    """Calls f until it raises nothing, for two seconds."""
    end = time.time() + 2
    while True:
        try:
            return f()
        except AssertionError:
            if time.time() > end:
                raise
            time.sleep(0.02)
