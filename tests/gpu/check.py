"""Multiplies a small weight with every kernel that a format has for f32, through the same calls
as the benchmark, and compares: check.py LIBRARY IMAGES. Needs no PyTorch."""

import ctypes
import random
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
    m, k, n, nonzeros = 40, 24, 17, 6
    w = (ctypes.c_float * (m * k))()
    for i in range(m):
        for j in rng.sample(range(k), nonzeros):
            w[i * k + j] = rng.uniform(-1, 1)
    x = (ctypes.c_float * (k * n))(*(rng.uniform(-1, 1) for _ in range(k * n)))
    y = (ctypes.c_float * (m * n))()
    want = [sum(w[i * k + l] * x[l * n + j] for l in range(k)) for i in range(m) for j in range(n)]

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

    launched = 0
    for fmt in ("ell", "csr", "dense"):
        weight = lib.prepare(fmt, "", "f32", m, k, ctypes.addressof(w))
        kernels = lib.launches(weight, "sm_90", n)
        assert sum(kernel["picked"] for kernel in kernels) == 1, kernels
        for kernel in kernels:
            parts = [upload(p["at"], p["bytes"]) for p in kernel["parts"]]
            dx, dy = upload(ctypes.addressof(x), ctypes.sizeof(x)), upload(ctypes.addressof(y), ctypes.sizeof(y))
            driver.launcher(kernel, spcgpu.cells(kernel, parts, dx, dy), stream.value)()
            out = pinned(ctypes.sizeof(y))
            driver.call("cuMemcpyDtoHAsync_v2", out, ctypes.c_uint64(dy), ctypes.c_size_t(ctypes.sizeof(y)), stream)
            driver.call("cuStreamSynchronize", stream)
            have = (ctypes.c_float * (m * n)).from_address(out.value)
            worst = max(abs(a - b) for a, b in zip(have, want))
            assert worst < 1e-5, f"{kernel['name']} is off by {worst} (seed {seed})"
            launched += 1
        lib.release(weight)
    print(f"{launched} kernels agree")


main()
