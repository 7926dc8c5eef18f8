"""Times the kernels of the back end beside those of NVIDIA's and PyTorch's libraries, and whole
models beside PyTorch: bench.py --library FILE --images DIR --spc FILE --models DIR --out DIR.

Kernels are timed in one process, one after another in each of some rounds, each after a write
that leaves nothing of its operands in the L2 cache, by events on the device. Every result of a
kernel is compared with the product in float64. Needs PyTorch with CUDA. What fails is listed
with its message.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time

import torch

import spcgpu

SEED = 7
SHAPES = [("transformer-big feed-forward", 4096, 1024), ("bert feed-forward", 3072, 768), ("square", 4096, 4096), ("resnet50 3x3, 512 channels", 512, 4608)]
COLUMNS = [1, 16, 128, 1024]
SPARSITIES = [0.5, 0.8, 0.9]
BLOCK = 32


def log(*args):
    print(f"[{time.perf_counter() - START:6.1f} s]", *args, file=sys.stderr, flush=True)


START = time.perf_counter()


class Timer:
    def __init__(self):
        self.flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
        self.cycles = 1_000_000  # about half a millisecond

    def interleaved(self, candidates, rounds=25, warmup=3):
        """Microseconds of each function of a dict, by its name: median, p10, p90."""
        times = {name: [] for name in candidates}
        for r in range(rounds + warmup):
            events = []
            for name, f in candidates.items():
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                # The device is kept busy until all that is timed is queued: a library may take the
                # processor long for a launch.
                torch.cuda._sleep(self.cycles)
                self.flush.zero_()
                begin.record()
                f()
                end.record()
                events.append((name, begin, end))
            torch.cuda.synchronize()
            if r >= warmup:
                for name, begin, end in events:
                    times[name].append(begin.elapsed_time(end) * 1e3)
        return {name: spread(t) for name, t in times.items()}


def spread(t):
    t = sorted(t)
    return {"median": statistics.median(t), "p10": t[len(t) // 10], "p90": t[-1 - len(t) // 10]}


def ceilings(timer):
    out = {}
    a = torch.randn(1 << 30, device="cuda")  # 4 GiB
    b = torch.empty_like(a)
    us = timer.interleaved({"copy": lambda: b.copy_(a)}, rounds=10)["copy"]["median"]
    out["copy_bytes_per_second"] = 2 * a.numel() * 4 / us * 1e6
    del a, b
    torch.backends.cuda.matmul.allow_tf32 = False
    for name, dtype, n in (("f16", torch.float16, 8192), ("bf16", torch.bfloat16, 8192), ("f32", torch.float32, 4096)):
        x, y = (torch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
        us = timer.interleaved({"matmul": lambda: x @ y}, rounds=10)["matmul"]["median"]
        out[f"matmul_{name}_flops"] = 2 * n**3 / us * 1e6
    return out


def uniform(m, k, sparsity, gen):
    """A weight with as many nonzeros in each row."""
    keep = max(1, round(k * (1 - sparsity)))
    order = torch.rand(m, k, generator=gen).argsort(dim=1)[:, :keep]
    return torch.randn(m, k, generator=gen) * torch.zeros(m, k).scatter_(1, order, 1.0)


def blocks(m, k, sparsity, gen):
    """One with as many blocks in each row of blocks, and their columns."""
    down, across = m // BLOCK, k // BLOCK
    keep = max(1, round(across * (1 - sparsity)))
    order = torch.rand(down, across, generator=gen).argsort(dim=1)[:, :keep].sort(dim=1).values
    mask = torch.zeros(down, across).scatter_(1, order, 1.0).repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return torch.randn(m, k, generator=gen) * mask, order


def pairs(m, k, gen):
    """One with two nonzeros in every four."""
    order = torch.rand(m, k // 4, 4, generator=gen).argsort(dim=2)[:, :, :2]
    mask = torch.zeros(m, k // 4, 4).scatter_(2, order, 1.0).reshape(m, k)
    return torch.randn(m, k, generator=gen) * mask


class Ours:
    """A weight in a format of the back end, its parts on the device."""

    def __init__(self, driver, library, fmt, config, w, dtype="f16"):
        self.driver, self.library, self.fmt, self.w = driver, library, fmt, w.contiguous()
        m, k = w.shape
        self.weight = library.prepare(fmt, config, dtype, m, k, self.w.data_ptr())
        self.parts = {}

    def candidates(self, x, y):
        """Functions by format and kernel; the one that is picked has a star."""
        m, k, n = self.w.shape[0], self.w.shape[1], x.shape[1]
        out = {}
        for kernel in self.library.launches(self.weight, n):
            at = []
            for p in kernel["parts"]:
                if p["at"] not in self.parts:
                    host = torch.frombuffer((ctypes.c_uint8 * p["bytes"]).from_address(p["at"]), dtype=torch.uint8)
                    self.parts[p["at"]] = host.cuda()
                at.append(self.parts[p["at"]].data_ptr())
            cells = spcgpu.product(kernel, at, x.data_ptr(), y.data_ptr(), m, k, n, (n, 1, 0), (n, 1, 0))
            name = self.fmt + " " + kernel["name"] + ("*" if kernel["picked"] else "")
            out[name] = self.driver.launcher(kernel, cells, lambda: torch.cuda.current_stream().cuda_stream)
        return out

    def release(self):
        self.library.release(self.weight)


class BlockedELL:
    """cuSPARSE's Blocked-ELL, which PyTorch does not offer."""

    def __init__(self, w, order):
        self.lib = None
        for name in ("libcusparse.so.12", "libcusparse.so.11"):
            try:
                self.lib = ctypes.CDLL(name)
                break
            except OSError:
                pass
        if self.lib is None:
            raise RuntimeError("no cuSPARSE library")
        m, k = w.shape
        keep = order.shape[1]
        self.columns = order.to(torch.int32).contiguous().cuda()
        tiles = w.reshape(m // BLOCK, BLOCK, k // BLOCK, BLOCK).permute(0, 2, 1, 3)
        kept = torch.gather(tiles, 1, order[:, :, None, None].expand(-1, -1, BLOCK, BLOCK))
        self.values = kept.permute(0, 2, 1, 3).reshape(m, keep * BLOCK).half().contiguous().cuda()
        self.handle, self.a = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cusparseCreate", ctypes.byref(self.handle))
        self.call("cusparseCreateBlockedEll", ctypes.byref(self.a), ctypes.c_int64(m), ctypes.c_int64(k), ctypes.c_int64(BLOCK), ctypes.c_int64(keep * BLOCK),
                  ctypes.c_void_p(self.columns.data_ptr()), ctypes.c_void_p(self.values.data_ptr()), 2, 0, 2)  # 32-bit indices from 0, f16

    def call(self, name, *args):
        result = getattr(self.lib, name)(*args)
        if result != 0:
            raise RuntimeError(f"{name}: {result}")

    def multiply(self, x, y):
        def dense(t):
            d = ctypes.c_void_p()
            self.call("cusparseCreateDnMat", ctypes.byref(d), ctypes.c_int64(t.shape[0]), ctypes.c_int64(t.shape[1]), ctypes.c_int64(t.shape[1]), ctypes.c_void_p(t.data_ptr()), 2, 2)
            return d

        b, c = dense(x), dense(y)
        one, zero, size = ctypes.c_float(1), ctypes.c_float(0), ctypes.c_size_t()
        args = [self.handle, 0, 0, ctypes.byref(one), self.a, b, ctypes.byref(zero), c, 0, 13]  # sums in f32, the algorithm for Blocked-ELL
        self.call("cusparseSpMM_bufferSize", *args, ctypes.byref(size))
        room = torch.empty(max(1, size.value), dtype=torch.uint8, device="cuda")

        def run():
            self.call("cusparseSetStream", self.handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
            self.call("cusparseSpMM", *args, ctypes.c_void_p(room.data_ptr()))

        return run


def csr(w):
    """A sparse matrix with indices of 32 bits."""
    a = w.to_sparse_csr()
    return torch.sparse_csr_tensor(a.crow_indices().int(), a.col_indices().int(), a.values(), a.shape)


def kernels(timer, driver, library, rows, save, deadline):
    """Appends a row for each weight and number of columns."""
    gen = torch.Generator().manual_seed(SEED)
    for title, m, k in SHAPES:
        dense = uniform(m, k, 0, gen)
        weights = [("dense", 0, dense, [("dense", "")], None), ("2:4", 0.5, pairs(m, k, gen), [("nm", "2:4")], None)]
        for s in SPARSITIES:
            weights.append(("uniform", s, uniform(m, k, s, gen), [("ell", ""), ("csr", "")], None))
            w, order = blocks(m, k, s, gen)
            weights.append((f"block {BLOCK}x{BLOCK}", s, w, [("block", f"{BLOCK}x{BLOCK}")], order))
        for pattern, sparsity, w, formats, order in weights:
            if time.perf_counter() > deadline:
                rows.append({"shape": title, "error": "out of time"})
                return
            log(title, pattern, sparsity)
            w = w.half().float()  # what the kernels hold
            wd = w.half().cuda()
            ours, errors = [], {}
            for fmt, config in formats:
                try:
                    ours.append(Ours(driver, library, fmt, config, w))
                except spcgpu.Failed as e:
                    errors[fmt] = str(e)
            libraries = {}

            def offer(name, make):
                try:
                    libraries[name] = make()
                except Exception as e:  # whatever a library raises
                    errors[name] = f"{type(e).__name__}: {e}".splitlines()[0]

            if sparsity > 0:
                offer("cuSPARSE CSR", lambda: (lambda a: lambda x, y: lambda: a @ x)(csr(wd)))
                offer("cuSPARSE COO", lambda: (lambda a: lambda x, y: lambda: torch.sparse.mm(a, x))(wd.to_sparse_coo().coalesce()))
            if order is not None:
                offer("PyTorch BSR", lambda: (lambda a: lambda x, y: lambda: a @ x)(wd.to_sparse_bsr(BLOCK)))
                offer("cuSPARSE Blocked-ELL", lambda: BlockedELL(w, order).multiply)
            if pattern == "2:4":
                offer("cuSPARSELt", lambda: (lambda a: lambda x, y: lambda: a @ x)(torch.sparse.to_sparse_semi_structured(wd)))
            for n in COLUMNS:
                x = torch.randn(k, n, generator=gen).half().cuda()
                y = torch.empty(m, n, dtype=torch.float16, device="cuda")
                want = wd.double() @ x.double()
                candidates = {"cuBLAS dense": lambda: torch.matmul(wd, x)}
                row = {"shape": title, "m": m, "k": k, "n": n, "pattern": pattern, "sparsity": sparsity, "us": {}, "relative_l2": {}, "errors": dict(errors)}
                rows.append(row)
                makers = dict(libraries)
                for o in ours:
                    try:
                        makers.update({name: lambda x, y, f=f: f for name, f in o.candidates(x, y).items()})
                    except spcgpu.Failed as e:
                        row["errors"][o.fmt] = str(e)
                for name, make in makers.items():
                    try:
                        f = make(x, y)
                        y.fill_(float("nan"))
                        out = f()
                        out = out if torch.is_tensor(out) else y
                        off = ((out.to_dense() if out.layout != torch.strided else out).double() - want).norm() / want.norm()
                        row["relative_l2"][name] = off.item()
                        if row["relative_l2"][name] < 5e-3:
                            candidates[name] = f
                        else:
                            row["errors"][name] = f"relative l2 error {off.item()}"
                    except Exception as e:
                        row["errors"][name] = f"{type(e).__name__}: {e}".splitlines()[0]
                try:
                    row["us"] = timer.interleaved(candidates)
                except Exception as e:
                    row["errors"]["timing"] = str(e)
                    return  # the context is gone
                row["ours"] = sum(len(library.launches(o.weight, n)) for o in ours)
            save()
            for o in ours:
                o.release()


def torch_models():
    """Models of PyTorch by the names of ours, with an input each."""

    def resnet50():
        import torchvision

        return torchvision.models.resnet50(weights=None), torch.randn(1, 3, 224, 224)

    def bert(layers, hidden, heads, inner, tokens):
        from transformers import BertConfig, BertModel

        model = BertModel(BertConfig(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=inner))
        return model, torch.randint(0, 30000, (1, tokens))

    def encoder():
        layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
        return torch.nn.TransformerEncoder(layer, 6), torch.randn(1, 128, 1024)

    return {
        "resnet50": resnet50,
        "bert-base": lambda: bert(12, 768, 12, 3072, 128),
        "minilm": lambda: bert(6, 384, 12, 1536, 128),
        "transformer-big": encoder,
    }


def wall(f, runs=60, warmup=10):
    """Milliseconds of a function that waits for the device."""
    times = []
    for i in range(runs + warmup):
        begin = time.perf_counter()
        f()
        if i >= warmup:
            times.append((time.perf_counter() - begin) * 1e3)
    return spread(times)


def pytorch(make, out, compiled):
    """Puts latencies in f16 from an input on the host to an output there into out."""
    model, sample = make()
    model = model.eval().cuda().half()
    host = sample.pin_memory()

    def runner(m):
        def run():
            x = host.cuda(non_blocking=True)
            x = x.half() if x.is_floating_point() else x
            y = m(x)
            y = y[0] if not torch.is_tensor(y) else y
            return y.float().cpu()

        return run

    with torch.inference_mode():
        out["eager"] = wall(runner(model))
        try:
            static = host.cuda()
            static = static.half() if static.is_floating_point() else static
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    model(static)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = model(static)
                y = (y[0] if not torch.is_tensor(y) else y).float()

            def replay():
                static.copy_(host, non_blocking=True)
                graph.replay()
                return y.cpu()

            out["cuda graph"] = wall(replay)
        except Exception as e:
            out["cuda graph"] = {"error": f"{type(e).__name__}: {e}".splitlines()[0]}
        if not compiled:
            return
        try:
            out["compiled"] = wall(runner(torch.compile(model, dynamic=False)))
        except Exception as e:
            out["compiled"] = {"error": f"{type(e).__name__}: {e}".splitlines()[0]}


# Of each model: how it is pruned.
VARIANTS = {
    "dense": [],
    "uniform 80%": ["--sparsity", "0.8", "--format", "ell"],
    "2:4": ["--pattern", "2:4", "--format", "nm"],
    "block 32x32 80%": ["--pattern", "block:32x32", "--sparsity", "0.8", "--format", "block"],
}


def models(spc, folder, rows, save, deadline):
    """Appends a row for each model; PyTorch compiles them at last, as long as there is time."""
    makers = torch_models()
    for name, make in makers.items():
        row = {"model": name, "precision": "f16", "batch": 1, "pytorch_ms": {}, "ms": {}, "errors": {}}
        rows.append(row)
        if time.perf_counter() > deadline:
            row["error"] = "out of time"
            continue
        log(name, "PyTorch")
        try:
            pytorch(make, row["pytorch_ms"], False)
        except Exception as e:
            row["errors"]["pytorch"] = f"{type(e).__name__}: {e}".splitlines()[0]
        torch.cuda.empty_cache()
        for variant, flags in VARIANTS.items():
            log(name, "spc", variant)
            path = os.path.join(folder, "variant.spx")
            size = ["--dim", "batch=1", "--dim", "sequence=128"] if name != "resnet50" else []
            try:
                subprocess.run([spc, "compile", os.path.join(folder, name + ".onnx"), "-o", path, *flags], check=True, capture_output=True, text=True, timeout=120)
                done = subprocess.run([spc, "bench", path, "--device", "cuda", "--precision", "f16", "--runs", "60", "--json", *size], check=True, capture_output=True, text=True, timeout=120)
                row["ms"][variant] = json.loads(done.stdout)["ms"]
            except subprocess.CalledProcessError as e:
                row["errors"][variant] = e.stderr.strip()
            except subprocess.TimeoutExpired as e:
                row["errors"][variant] = str(e)
        save()
    for row in rows:
        if "error" in row or time.perf_counter() > deadline:
            continue
        log(row["model"], "PyTorch, compiled")
        try:
            pytorch(makers[row["model"]], row["pytorch_ms"], True)
        except Exception as e:
            row["errors"]["compiled"] = f"{type(e).__name__}: {e}".splitlines()[0]
        save()


def plot(results, folder):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [r for r in results["kernels"] if r.get("us")]
    shapes = list(dict.fromkeys(r["shape"] for r in rows))
    figure, axes = plt.subplots(1, len(shapes), figsize=(5 * len(shapes), 4), sharey=True, squeeze=False)
    for ax, shape in zip(axes[0], shapes):
        lines = {}
        for r in rows:
            if r["shape"] != shape or r["pattern"] == "dense":
                continue
            ours = [v["median"] for name, v in r["us"].items() if name.endswith("*")]
            if ours:
                lines.setdefault(f"{r['pattern']} {r['sparsity']:.0%}", []).append((r["n"], r["us"]["cuBLAS dense"]["median"] / min(ours)))
        for label, points in lines.items():
            ax.plot(*zip(*points), marker="o", label=label)
        ax.axhline(1, color="black", linewidth=0.8)
        ax.set(title=shape, xscale="log", yscale="log", xlabel="columns of X")
    axes[0][0].set_ylabel("speed-up over cuBLAS, dense f16")
    axes[0][-1].legend(fontsize=7)
    figure.suptitle(f"{results['device']}, {results['date']}, {results['commit']}")
    figure.tight_layout()
    figure.savefig(os.path.join(folder, "kernels.png"), dpi=110)


def main():
    p = argparse.ArgumentParser()
    for flag in ("library", "images", "spc", "models", "out"):
        p.add_argument("--" + flag, required=True)
    p.add_argument("--commit", default="unknown")
    p.add_argument("--seconds", type=float, default=290, help="after which nothing new is measured")
    a = p.parse_args()
    timer = Timer()
    torch.zeros(1, device="cuda")  # makes the context
    driver, library = spcgpu.Driver(a.images), spcgpu.Library(a.library)
    version = ctypes.c_int()
    driver.call("cuDriverGetVersion", ctypes.byref(version))
    results = {
        "device": torch.cuda.get_device_name(), "driver": f"{version.value // 1000}.{version.value % 1000 // 10}", "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"), "commit": a.commit, "seed": SEED,
    }

    def save():
        with open(os.path.join(a.out, "bench.json"), "w") as f:
            json.dump(results, f, indent=1)

    log("ceilings")
    results["ceilings"] = ceilings(timer)
    save()
    results["kernels"], results["models"] = [], []
    kernels(timer, driver, library, results["kernels"], save, START + 0.5 * a.seconds)
    save()
    models(a.spc, a.models, results["models"], save, START + a.seconds)
    save()
    try:
        plot(results, a.out)
    except Exception as e:  # the numbers are there
        log(f"no plot: {type(e).__name__}: {e}")
    # Of ours: all must have run, and be right.
    bad = sum(r.get("ours", -1) != sum(name.rstrip("*").endswith(("_mma", "_mmasp", "_simt")) for name in r["us"]) for r in results["kernels"] if "us" in r)
    log(f"{len(results['kernels'])} cells, {bad} of them with kernels that fail or are wrong")
    sys.exit(1 if bad else 0)


main()
