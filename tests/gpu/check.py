"""Multiplies small weights with every kernel that formats have for f32, f16 and i8, through the same calls
as the benchmark, and compares: check.py LIBRARY IMAGES. Needs no PyTorch."""

import ctypes
import random
import struct
import sys

import spcgpu


def main():
    library, images = sys.argv[1:]
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    for result in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context)):
        assert result == 0, result
    driver, lib = spcgpu.Driver(images), spcgpu.Library(library)
    stream, seed = ctypes.c_void_p(), 3
    driver.call("cuStreamCreate", ctypes.byref(stream), 1)
    rng = random.Random(seed)
    m, n = 40, 17

    def draw(dtype, k):
        """A weight, two of each four of a row, and X, and their product."""
        number = {"f32": lambda: rng.uniform(-1, 1), "f16": lambda: rng.randint(-9, 9) / 8, "i8": lambda: rng.randint(-9, 9)}[dtype]
        w = (ctypes.c_float * (m * k))()
        for i in range(m):
            for j in range(0, k, 4):
                if dtype == "i8" and rng.random() < 0.3:  # groups that block leaves out
                    continue
                for at in rng.sample(range(4), 2):
                    w[i * k + j + at] = number()
        x = [rng.randint(0, 255) if dtype == "i8" else number() for _ in range(k * n)]
        return w, x, [sum(w[i * k + l] * x[l * n + j] for l in range(k)) for i in range(m) for j in range(n)]

    def turned(v, rows, columns):
        return [v[i * columns + j] for j in range(columns) for i in range(rows)]

    def pinned(size):
        at = ctypes.c_void_p()
        driver.call("cuMemHostAlloc", ctypes.byref(at), ctypes.c_size_t(size), 0)
        return at

    def upload(address, size):
        at, host = ctypes.c_uint64(), pinned(size)
        ctypes.memmove(host, address, size)
        driver.call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        driver.call("cuMemcpyHtoDAsync_v2", at, host, ctypes.c_size_t(size), stream)
        return at.value

    launched = divided = 0
    # K of f16 is enough for sums that blocks divide, which are launches of their own.
    for fmt, dtype, k in (
        ("ell", "f32", 24), ("csr", "f32", 24), ("dense", "f32", 24), ("dense", "f16", 640), ("nm", "f16", 640), ("csr", "f16", 1100),
        ("dense", "i8", 24), ("block", "i8", 24), ("nm", "i8", 24),
    ):
        w, x, want = draw(dtype, k)
        weight = lib.prepare(fmt, "", dtype, m, k, ctypes.addressof(w))
        kernels = lib.launches(weight, "sm_80", n)  # which the emulated GPU is
        assert sum(kernel["picked"] for kernel in kernels) == 1, kernels
        for kernel in kernels:
            parts = [upload(p["at"], p["bytes"]) for p in kernel["parts"]]
            letter = {"f32": "f", "f16": "e", "u8": "B"}
            cx = ctypes.create_string_buffer(struct.pack(f"{k * n}{letter[kernel['x']]}", *(turned(x, k, n) if kernel["tokens"] else x)))
            y = ctypes.create_string_buffer(struct.calcsize(f"{m * n}{letter[kernel['y']]}"))
            sums = ctypes.create_string_buffer(max(1, kernel["sums"]))
            dx, dy, ds = (upload(ctypes.addressof(b), ctypes.sizeof(b)) for b in (cx, y, sums))
            driver.launcher(kernel, parts, dx, dy, ds, stream.value)()
            out = pinned(ctypes.sizeof(y))
            driver.call("cuMemcpyDtoHAsync_v2", out, ctypes.c_uint64(dy), ctypes.c_size_t(ctypes.sizeof(y)), stream)
            driver.call("cuStreamSynchronize", stream)
            have = struct.unpack(f"{m * n}{letter[kernel['y']]}", ctypes.string_at(out.value, ctypes.sizeof(y)))
            # Sums of f16 are exact before they are rounded.
            absolute, relative = {"f32": (1e-5, 0), "f16": (1e-9, 2**-11), "i8": (1e-9, 0)}[dtype]
            for a, b in zip(have, turned(want, m, n) if kernel["tokens"] else want):
                assert abs(a - b) <= absolute + relative * abs(b), f"{kernel['key']} gives {a} for {b} (seed {seed})"
            launched += 1
            divided += kernel["sums"] > 0
        lib.release(weight)
    assert divided > 0
    print(f"{launched} kernels agree")


main()
