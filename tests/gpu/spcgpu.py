"""The kernels of the back end, launched with the driver's own calls.

Weights are prepared by libspcgpu.so (tests/gpu/lib), kernels come from the images in
backend/cuda/image. Needs nothing but Python, so that it runs on the emulator too.
"""

import ctypes
import glob
import json
import os


class Failed(Exception):
    pass


class Driver:
    """libcuda.so.1, with the images loaded into the current context."""

    def __init__(self, images):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.modules = []
        for path in sorted(glob.glob(os.path.join(images, "*.fatbin"))):
            with open(path, "rb") as f:
                image = f.read()
            module = ctypes.c_void_p()
            self.call("cuModuleLoadFatBinary", ctypes.byref(module), image)
            self.modules.append(module)
        self.functions = {}

    def call(self, name, *args):
        result = getattr(self.cuda, name)(*args)
        if result != 0:
            raise Failed(f"{name}: CUDA error {result}")

    def function(self, name):
        if name not in self.functions:
            f = ctypes.c_void_p()
            for module in self.modules:
                if self.cuda.cuModuleGetFunction(ctypes.byref(f), module, name.encode()) == 0:
                    break
            else:
                raise Failed(f"no image has {name}")
            self.functions[name] = f
        return self.functions[name]

    def launcher(self, kernel, parts, x, y, sums, stream):
        """A function that queues what a kernel launches; parts, x, y and sums are addresses on the device."""
        at = {"x": x, "y": y, "sums": sums, **{f"part{i}": p for i, p in enumerate(parts)}}
        launches = [self.launch(one, [at[c] if isinstance(c, str) else c for c in one["cells"]], stream) for one in kernel["launches"]]

        def run():
            for launch in launches:
                launch()

        return run

    def launch(self, one, cells, stream):
        """A function that queues a launch with these parameters, each in eight bytes."""
        f = self.function(one["name"])
        if one["shared"] > 48 << 10:  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.call("cuFuncSetAttribute", f, 8, one["shared"])
        values = (ctypes.c_uint64 * len(cells))(*cells)
        pointers = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(values) + 8 * i for i in range(len(cells))))
        shape = [ctypes.c_uint(v) for v in one["grid"] + one["block"]]
        shared = ctypes.c_uint(one["shared"])

        def run():
            assert values is not None  # pointers point into it
            self.call("cuLaunchKernel", f, *shape, shared, ctypes.c_void_p(stream() if callable(stream) else stream), pointers, None)

        return run


class Library:
    """libspcgpu.so."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.libc = ctypes.CDLL(None)
        for name in ("spc_prepare", "spc_launches", "spc_grid"):
            getattr(self.lib, name).restype = ctypes.c_void_p

    def ask(self, name, *args):
        text = getattr(self.lib, name)(*args)
        answer = json.loads(ctypes.string_at(text))
        self.libc.free(ctypes.c_void_p(text))
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def prepare(self, fmt, config, dtype, m, k, values):
        """values is the address of m*k floats. Returns the number of the weight."""
        return self.ask("spc_prepare", fmt.encode(), config.encode(), dtype.encode(), ctypes.c_int(m), ctypes.c_int(k), ctypes.c_void_p(values))["weight"]

    def launches(self, weight, arch, n, batch=1):
        return self.ask("spc_launches", ctypes.c_int64(weight), arch.encode(), ctypes.c_int(n), ctypes.c_int(batch)).get("kernels", [])

    def grid(self, arch):
        """What kernels are picked by on an architecture."""
        return self.ask("spc_grid", arch.encode()).get("grid", "the data sheet")

    def release(self, weight):
        self.lib.spc_release(ctypes.c_int64(weight))
