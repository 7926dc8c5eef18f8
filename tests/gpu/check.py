"""Multiplies small weights with every kernel that formats have for f32 and for i8, through the same calls
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
    m, k, n = 40, 24, 17

    def draw(dtype):
        """A weight, two of each four of a row, and X, and their product."""
        number = (lambda: rng.uniform(-1, 1)) if dtype == "f32" else lambda: rng.randint(-9, 9)
        w = (ctypes.c_float * (m * k))()
        for i in range(m):
            for j in range(0, k, 4):
                for at in rng.sample(range(4), 2):
                    w[i * k + j + at] = number()
        x = [number() if dtype == "f32" else rng.randint(0, 255) for _ in range(k * n)]
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

    launched = 0
    for fmt, dtype in (("ell", "f32"), ("csr", "f32"), ("dense", "f32"), ("dense", "i8"), ("block8", "i8"), ("nm8", "i8")):
        w, x, want = draw(dtype)
        weight = lib.prepare(fmt, "", dtype, m, k, ctypes.addressof(w))
        kernels = lib.launches(weight, "sm_90", n)
        assert sum(kernel["picked"] for kernel in kernels) == 1, kernels
        for kernel in kernels:
            parts = [upload(p["at"], p["bytes"]) for p in kernel["parts"]]
            cx = ({"f32": ctypes.c_float, "u8": ctypes.c_uint8}[kernel["x"]] * (k * n))(*(turned(x, k, n) if kernel["tokens"] else x))
            y = (ctypes.c_float * (m * n))()
            dx, dy = upload(ctypes.addressof(cx), ctypes.sizeof(cx)), upload(ctypes.addressof(y), ctypes.sizeof(y))
            driver.launcher(kernel, spcgpu.cells(kernel, parts, dx, dy), stream.value)()
            out = pinned(ctypes.sizeof(y))
            driver.call("cuMemcpyDtoHAsync_v2", out, ctypes.c_uint64(dy), ctypes.c_size_t(ctypes.sizeof(y)), stream)
            driver.call("cuStreamSynchronize", stream)
            have = (ctypes.c_float * (m * n)).from_address(out.value)
            worst = max(abs(a - b) for a, b in zip(have, turned(want, m, n) if kernel["tokens"] else want))
            assert worst < (1e-5 if dtype == "f32" else 1e-9), f"{kernel['name']} is off by {worst} (seed {seed})"
            launched += 1
        lib.release(weight)
    print(f"{launched} kernels agree")


main()
