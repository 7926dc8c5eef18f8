"""Measures kernels of the back end beside those of NVIDIA's and PyTorch's libraries, and whole
models beside PyTorch:
bench.py --library FILE --images DIR --spc FILE --models DIR --out DIR [--tiny].

Kernels are timed in one process, one after another in each of some rounds, each after a write
that leaves nothing of its operands in the L2 cache, by events on the device. Every result is
compared with the product in float64. What fails is listed with its message. Models come from
variants.py, which may still be writing them. Each of STEPS has a limit of its own, and what
was measured is in DIR/bench.json after every weight and model, so that a run that is cut off
loses nothing else. Needs PyTorch with CUDA.
"""

import argparse
import concurrent.futures
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time

START = time.perf_counter()

import torch

import libraries
import networks
import spcgpu
import variants

SEED = 7


def log(*args):
    print(f"[{time.perf_counter() - START:6.1f} s]", *args, file=sys.stderr, flush=True)


def message(e):
    if isinstance(e, subprocess.TimeoutExpired):  # the command names folders of this machine
        return f"TimeoutExpired: {os.path.basename(e.cmd[0])} {e.cmd[1]} was stopped after {e.timeout:.0f} s"
    return (f"{type(e).__name__}: {e}".splitlines() or [""])[0]


class Weight:
    """A weight to measure, and for which claim: group is a name that tests/gpu/report knows, count
    how often the weight is in its model."""

    def __init__(self, group, shape, m, k, columns, pattern, sparsity, formats, dtype="f16", block=0, count=1):
        self.group, self.shape, self.m, self.k, self.columns, self.pattern, self.sparsity = group, shape, m, k, columns, pattern, sparsity
        self.formats, self.dtype, self.block, self.count = formats, dtype, block, count

    def cells(self):
        return [
            {"group": self.group, "shape": self.shape, "count": self.count, "m": self.m, "k": self.k, "n": n, "dtype": self.dtype, "pattern": self.pattern, "sparsity": self.sparsity}
            for n in self.columns
        ]


def resnet50():
    """The weights of ResNet50 that are pruned, as matrices, and how many there are of each."""
    count, inside = {}, 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            outside = 4 * width
            shapes = [(width, inside), (width, 9 * width), (outside, width)] + ([(outside, inside)] if block == 0 else [])
            for s in shapes:
                count[s] = count.get(s, 0) + 1
            inside = outside
    return count


def weights(tiny):
    """What the claims are about, the most telling first."""
    ell, csr = [("ell", "")], [("csr", "")]
    out = []
    for (m, k), count in {(1024, 1024): 24, (4096, 1024): 6, (1024, 4096): 6}.items():
        out.append(Weight("ell transformer-big", "transformer-big", m, k, [1024], "uniform", 0.65, ell, count=count))
    for (m, k), count in resnet50().items():
        out.append(Weight("ell resnet50", "resnet50", m, k, [128], "uniform", 0.81, ell, count=count))
    for size in (128, 256, 512, 1024):
        out.append(Weight("ell synthetic", "square", size, size, [128, 1024], "uniform", 0.6, ell))
    for m, k, columns in ((4096, 4096, [4096]), (8192, 4096, [4096]), (4096, 8192, [4096, 8192])):
        out.append(Weight("2:4", "wide", m, k, columns, "2:4", 0.5, [("nm", "2:4")]))
    for size in (32, 64):
        for m, k, columns in ((4096, 4096, [512, 1024, 4096]), (4096, 1024, [512, 1024]), (3072, 768, [512, 1024])):
            out.append(Weight(f"block {size}", "square" if m == k else "feed-forward", m, k, columns, "block", 0.8, [("block", f"{size}x{size}")], block=size))
    few = [1, 2, 4, 8, 16, 32, 64]
    for sparsity in (0.5, 0.7, 0.8, 0.9):
        out.append(Weight(f"few columns {sparsity:.0%}", "square", 4096, 4096, few, "uniform", sparsity, ell))
    for sparsity in (0.5, 0.7, 0.8, 0.9):
        out.append(Weight(f"few columns {sparsity:.0%}", "square", 4096, 4096, few, "unstructured", sparsity, csr))
    for m, k, columns in ((4096, 4096, [4096]), (8192, 4096, [4096])):
        out.append(Weight("2:4 int8", "wide", m, k, columns, "2:4", 0.5, [("nm", "")], dtype="i8"))
    for sparsity in (0.5, 0.7, 0.8, 0.9):
        out.append(Weight(f"few columns {sparsity:.0%}", "tall", 11008, 4096, few, "uniform", sparsity, ell))
    if tiny:  # of the same groups, patterns and formats, sizes that an emulator multiplies
        for w in out:
            w.m, w.k = (max(2 * w.block, 64, v // 64 // 64 * 64) for v in (w.m, w.k))
            w.columns = sorted({max(1, n // 64) for n in w.columns})
        out = list({(w.group, w.pattern, w.m, w.k): w for w in reversed(out)}.values())[::-1]
    return out


class Timer:
    """Times what is queued on the device."""

    def __init__(self, tiny):
        self.flush = torch.empty((1 if tiny else 256) << 20, dtype=torch.int8, device="cuda")
        self.tiny = tiny
        torch.cuda._sleep(1000)
        begin, end = self.events()
        begin.record()
        torch.cuda._sleep(1_000_000)
        end.record()
        torch.cuda.synchronize()
        self.cycles = 1_000_000 / max(1e-3, begin.elapsed_time(end) * 1e3)  # of a microsecond

    @staticmethod
    def events():
        return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def once(self, f, delay):
        """Queues f after a write of more than the L2 cache, on a device that is kept busy until f is
        queued: a library may take the processor long for a launch."""
        begin, end = self.events()
        torch.cuda._sleep(int(self.cycles * delay))
        self.flush.zero_()
        begin.record()
        f()
        end.record()
        return begin, end

    def interleaved(self, candidates, least=5, most=20, each=20e3):
        """Microseconds of each function of a dict, by its name: median, p10, p90, and of how many
        rounds. What takes long is timed in fewer rounds, for about each microseconds in all."""
        if not candidates:
            return {}
        delay, rounds = {}, {}
        for name, f in candidates.items():
            f()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            f()
            delay[name] = min(20e3, 50 + 1.5e6 * (time.perf_counter() - begin))
            a, b = self.once(f, delay[name])
            torch.cuda.synchronize()
            rounds[name] = 1 if self.tiny else max(least, min(most, int(each / max(1, a.elapsed_time(b) * 1e3))))
        times = {name: [] for name in candidates}
        for r in range(max(rounds.values())):
            pairs = [(name, *self.once(f, delay[name])) for name, f in candidates.items() if r < rounds[name]]
            torch.cuda.synchronize()
            for name, begin, end in pairs:
                times[name].append(begin.elapsed_time(end) * 1e3)
        return {name: {**spread(t), "rounds": len(t)} for name, t in times.items()}


def spread(t):
    t = sorted(t)
    return {"median": statistics.median(t), "p10": t[len(t) // 10], "p90": t[-1 - len(t) // 10]}


def ceilings(bench):
    """A copy, and products as large as their libraries like them."""
    timer, out = bench.timer, bench.results["ceilings"]
    size = 1 << (16 if bench.tiny else 30)  # 4 GiB
    a = torch.empty(size, dtype=torch.float32, device="cuda").normal_()
    b = torch.empty_like(a)
    us = timer.interleaved({"copy": lambda: b.copy_(a)})["copy"]["median"]
    out["copy_bytes_per_second"] = 2 * a.numel() * 4 / us * 1e6
    del a, b
    torch.backends.cuda.matmul.allow_tf32 = False
    for name, dtype, n in (("f16", torch.float16, 8192), ("bf16", torch.bfloat16, 8192), ("f32", torch.float32, 4096)):
        n = 64 if bench.tiny else n
        x, y = (torch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
        us = timer.interleaved({"matmul": lambda: torch.matmul(x, y)})["matmul"]["median"]
        out[f"matmul_{name}_flops"] = 2 * n**3 / us * 1e6


def draw(w, index):
    """The values of a weight on the device, f32 of values that its type has, and for blocks the
    columns of blocks that each row of blocks has."""
    gen = torch.Generator(device="cuda").manual_seed(SEED + index)

    def rand(*shape):
        return torch.rand(*shape, generator=gen, device="cuda")

    order = None
    if w.pattern == "uniform":  # as many nonzeros in each row
        keep = max(1, round(w.k * (1 - w.sparsity)))
        mask = torch.zeros(w.m, w.k, device="cuda").scatter_(1, rand(w.m, w.k).topk(keep, dim=1).indices, 1)
    elif w.pattern == "unstructured":
        mask = (rand(w.m, w.k) >= w.sparsity).float()
    elif w.pattern == "2:4":
        mask = torch.zeros(w.m, w.k // 4, 4, device="cuda").scatter_(2, rand(w.m, w.k // 4, 4).topk(2, dim=2).indices, 1).reshape(w.m, w.k)
    elif w.pattern == "block":  # as many blocks in each row of blocks
        down, across = w.m // w.block, w.k // w.block
        order = rand(down, across).topk(max(1, round(across * (1 - w.sparsity))), dim=1).indices.sort(dim=1).values
        mask = torch.zeros(down, across, device="cuda").scatter_(1, order, 1).repeat_interleave(w.block, 0).repeat_interleave(w.block, 1)
    else:
        mask = torch.ones(w.m, w.k, device="cuda")
    values = torch.randn(w.m, w.k, generator=gen, device="cuda")
    if w.dtype == "i8":
        values = (2 * values).round().clamp(-7, 7)
        values += values == 0
        return values * mask, order
    values = values.half().float()
    return (values + (values == 0)) * mask, order  # none of what is kept is 0


class Prepared:
    """A weight in formats of the back end: prepared on other threads, then on the device."""

    def __init__(self, bench, w, index, formats):
        self.bench, self.formats, self.w, self.parts = bench, formats, w, {}
        self.values, self.order = draw(w, index)
        self.host = self.values.cpu().contiguous()
        library, address = bench.library, self.host.data_ptr()
        self.jobs = {fmt: bench.pool.submit(library.prepare, fmt, config, w.dtype, w.m, w.k, address) for fmt, config in formats}
        self.numbers, self.errors = {}, {}

    def wait(self):
        for fmt, job in self.jobs.items():
            try:
                self.numbers[fmt] = job.result()
            except spcgpu.Failed as e:
                self.errors[fmt] = str(e)
        self.jobs, self.host = {}, None
        return self

    def kernels(self, n):
        """Every kernel of the formats for n columns, by the name of a candidate, with its format."""
        out = {}
        for fmt, number in self.numbers.items():
            for kernel in self.bench.library.launches(number, self.bench.results["arch"], n):
                out[f"{fmt} {kernel['key']}"] = {"format": fmt, **kernel}
        return out

    def launcher(self, kernel, x, y):
        at = []
        for p in kernel["parts"]:
            key = (kernel["format"], p["at"])
            if key not in self.parts:
                host = torch.frombuffer((ctypes.c_uint8 * p["bytes"]).from_address(p["at"]), dtype=torch.uint8)
                self.parts[key] = host.cuda()
            at.append(self.parts[key].data_ptr())
        sums = torch.empty(max(1, kernel["sums"] // 4), dtype=torch.float32, device="cuda")
        launch = self.bench.driver.launcher(kernel, at, x.data_ptr(), y.data_ptr(), sums.data_ptr(), lambda: torch.cuda.current_stream().cuda_stream)
        kept = (x, y, sums)

        def run():
            assert kept  # as long as it may be launched
            launch()

        return run

    def release(self):
        self.wait()
        for number in self.numbers.values():
            self.bench.library.release(number)


TYPES = {"f16": torch.float16, "f32": torch.float32, "bf16": torch.bfloat16, "i8": torch.int8, "u8": torch.uint8, "i32": torch.int32}

# How far a result in f16 may be off in relative l2 norm; a library may sum in f16, and in a model
# roundings add up.
OURS, THEIRS, MODEL = 2e-3, 2e-2, 5e-2


class Operands:
    """X and Y of a product for n columns, in each type and layout that some kernel wants."""

    def __init__(self, w, values, n, index):
        gen = torch.Generator(device="cuda").manual_seed(SEED + 1000 * n + index)
        x = torch.randn(w.k, n, generator=gen, device="cuda")
        self.x = (x.abs().round().clamp(0, 3) if w.dtype == "i8" else x.half()).double()
        self.want = values.double() @ self.x
        self.made = {}

    def get(self, which, dtype, tokens):
        key = which, dtype, tokens
        if key not in self.made:
            t = self.x if which == "x" else self.want
            self.made[key] = (t.t() if tokens else t).to(TYPES[dtype]).contiguous()
        return self.made[key]

    def off(self, y, tokens=False):
        return off((y.to_dense() if y.layout != torch.strided else y), self.want, tokens)


def off(y, want, tokens):
    """How far a result is from the product, in relative l2 norm."""
    return float(((y.t() if tokens else y).double() - want).norm() / want.norm())


def close(error, limit):
    if not error <= limit:
        raise spcgpu.Failed(f"is off by {error:.2g}")
    return error


def semi_structured(wd, of):
    """cuSPARSELt as PyTorch's semi-structured tensors call it, and with the algorithm that it finds to
    be the fastest. of(x) is X[K,N] as it wants it."""
    tensor, packed = torch.sparse.SparseSemiStructuredTensorCUSPARSELT.from_dense(wd), torch._cslt_compress(wd)

    def searched(x, y):
        x = of(x)
        best = torch._cslt_sparse_mm_search(packed, x)
        return lambda: torch._cslt_sparse_mm(packed, x, alg_id=best)

    return {"cuSPARSELt/PyTorch": lambda x, y: lambda: torch.mm(tensor, of(x)), "cuSPARSELt/searched": searched}


def others(w, p, errors):
    """Functions of the libraries that take X and Y and return one that queues the product, by name."""
    out = {}

    def offer(name, make):
        try:
            out.update(make())
        except Exception as e:  # whatever a library raises
            errors[name] = message(e)

    if w.dtype == "i8":
        wd = p.values.to(torch.int8)
        offer("cuBLASLt dense", lambda: libraries.Dense(wd).offers())

        offer("cuSPARSELt", lambda: semi_structured(wd, lambda x: x.t()))
        return out
    wd = p.values.half()
    offer("cuBLASLt dense", lambda: libraries.Dense(wd).offers())
    out["cuBLASLt dense/torch.matmul"] = lambda x, y: lambda: torch.matmul(wd, x)
    if w.pattern == "2:4":
        offer("cuSPARSELt", lambda: semi_structured(wd, lambda x: x))

        def cutlass():
            a = torch.sparse.SparseSemiStructuredTensorCUTLASS.from_dense(wd)
            return {"PyTorch semi-structured/CUTLASS": lambda x, y: lambda: torch.mm(a, x)}

        offer("PyTorch semi-structured", cutlass)
    if w.pattern == "block":
        offer("cuSPARSE BSR", lambda: libraries.bsr(wd, p.order, w.block).offers())
        offer("cuSPARSE Blocked-ELL", lambda: libraries.blocked_ell(wd, p.order, w.block).offers())

        def blocks():
            a = wd.to_sparse_bsr((w.block, w.block))
            return {"PyTorch block-sparse/BSR": lambda x, y: lambda: torch.matmul(a, x)}

        offer("PyTorch block-sparse", blocks)
    if w.pattern in ("uniform", "unstructured"):
        offer("cuSPARSE CSR", lambda: libraries.csr(wd).offers())
        offer("cuSPARSE COO", lambda: libraries.coo(wd).offers())
    return out


def measure(bench, w, p, dense, cell, index):
    """Measures a cell; True where nothing more can be measured."""
    n, errors = cell["n"], cell["errors"]
    errors.update(p.errors | dense.errors)
    if w.dtype != "i8":
        bench.bad += len(p.errors) + len(dense.errors)
    o = Operands(w, p.values, n, index)
    candidates, ours = {}, {}
    for prepared, kernels, want in ((p, p.kernels(n), o.want), (dense, dense.kernels(n), dense.values.double() @ o.x)):
        for name, kernel in kernels.items():
            try:
                x, y = o.get("x", kernel["x"], kernel["tokens"]), torch.empty_like(o.get("y", kernel["y"], kernel["tokens"]))
                f = prepared.launcher(kernel, x, y)
                y.fill_(-1 if not y.is_floating_point() else float("nan"))
                f()
                torch.cuda.synchronize()
                cell["relative_l2"][name] = close(off(y, want, kernel["tokens"]), OURS)
                candidates[name] = f
                ours[name] = {key: kernel[key] for key in ("format", "picked", "predicted_us", "work")} | {"kernel": kernel["key"]}
            except Exception as e:
                errors[name] = message(e)
                bench.bad += 1
    for name, make in others(w, p, errors).items():
        try:
            integer = w.dtype == "i8"
            x, y = o.get("x", "i8" if integer else "f16", integer), torch.empty_like(o.get("y", "i32" if integer else "f16", integer))
            f = make(x, y)
            y.fill_(0)
            out = f()
            torch.cuda.synchronize()
            # PyTorch returns its result, which for integers is no wider than they are: not compared then.
            if torch.is_tensor(out) and integer:
                candidates[name] = f
                continue
            cell["relative_l2"][name] = close(o.off(out) if torch.is_tensor(out) else o.off(y, integer), THEIRS)
            candidates[name] = f
        except libraries.Missing:
            pass
        except Exception as e:
            errors[name] = message(e)
    try:
        cell["us"], cell["ours"] = bench.timer.interleaved(candidates), ours
    except Exception as e:
        errors["timing"] = message(e)
        return True  # the context is gone
    return False


def kernels(bench, group):
    """Measures the weights whose group begins so."""
    todo = [(i, w, cells) for i, (w, cells) in enumerate(bench.plan) if w.group.startswith(group)]
    ahead, queue = 4, []
    for at in range(len(todo)):
        while len(queue) < ahead and at + len(queue) < len(todo):
            i, w, _ = todo[at + len(queue)]
            queue.append(Prepared(bench, w, i, w.formats))
        i, w, cells = todo[at]
        p = queue.pop(0).wait()
        dense = bench.dense(w)
        if bench.late():
            for q in [p, *queue]:
                q.release()
            raise Late()
        for cell in cells:
            if bench.late():
                break
            if measure(bench, w, p, dense, cell, i):
                raise RuntimeError(cell["errors"]["timing"])
        log(f"{w.group}: {w.shape} {w.m} x {w.k} {w.pattern} {w.sparsity:.0%}", *bench.best(w, cells))
        p.release()
        bench.save()


class Late(Exception):
    """The time of a step is over."""


def wall(f, runs, warmup):
    """Milliseconds of a function that waits for the device."""
    times = []
    for i in range(runs + warmup):
        begin = time.perf_counter()
        f()
        if i >= warmup:
            times.append((time.perf_counter() - begin) * 1e3)
    return spread(times)


class Network:
    """A network of PyTorch in f16 on the device: latencies from inputs on the host to outputs in
    f32 there."""

    def __init__(self, net, batch):
        torch.manual_seed(SEED)
        self.model, self.host = net.make().eval().cuda().half(), [t.pin_memory() for t in net.inputs(batch)]
        self.out = None

    def upload(self):
        on = [t.cuda(non_blocking=True) for t in self.host]
        return [t.half() if t.is_floating_point() else t for t in on]

    def download(self, outputs):
        """Into memory that the device reaches by itself, and that stays."""
        if self.out is None:
            self.out = [torch.empty(y.shape, dtype=y.dtype).pin_memory() for y in outputs]
        for to, y in zip(self.out, outputs):
            to.copy_(y, non_blocking=True)
        torch.cuda.current_stream().synchronize()

    def eager(self, model):
        return lambda: self.download([y.float() for y in model(*self.upload())])

    def graph(self, model):
        inputs = self.upload()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(*inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = [y.float() for y in model(*inputs)]

        def replay():
            for to, t in zip(inputs, self.host):
                to.copy_(t, non_blocking=True)
            graph.replay()
            self.download(outputs)

        return replay


def pytorch(net, batch, out, ways, tiny, compiled):
    """Puts latencies of these ways into out, or why there is none."""
    with torch.no_grad() if compiled else torch.inference_mode():
        n = Network(net, batch)
        model = torch.compile(n.model, dynamic=False) if compiled else n.model
        for name, way in ways.items():
            try:
                out[name] = wall(getattr(n, way)(model), 2 if tiny else 60, 1 if tiny else 10)
            except Exception as e:
                out[name] = {"error": message(e)}


PLAIN = {"eager": "eager", "CUDA graph": "graph"}
COMPILED = {"compiled": "eager", "compiled, CUDA graph": "graph"}


def nets(tiny):
    return {n.name: n for n in (networks.tiny() if tiny else networks.published())}


def rows(tiny):
    """The models by batch, with their variants: those of the claims first."""
    out = []
    models = variants.TINY if tiny else variants.MODELS
    for name, of in models.items():
        large = name in ("bert-base", "transformer-big", "bert", "encoder")
        for batch, some in (((8, of),) if large else ((1, of), (8, ["dense"]))):
            out.append({"model": name, "precision": "f16", "batch": batch, "tokens": 0 if "resnet" in name else 16 if tiny else 128, "variants": some, "pytorch_ms": {}, "ms": {}, "errors": {}})
    return out


def run_spc(bench, row, variant, command, *flags):
    """Runs the command line on a variant of a model, once it is there, and returns what it prints."""
    path = variants.path(bench.a.models, row["model"], variant)
    while not os.path.exists(path):
        if os.path.exists(variants.failed(path)):
            with open(variants.failed(path)) as f:
                raise RuntimeError(f.read().strip())
        if bench.late():
            raise Late()
        time.sleep(0.1)
    dims = [f"batch={row['batch']}", *nets(bench.tiny)[row["model"]].dims]
    args = [bench.a.spc, *command(path), "--device", "cuda", "--precision", "f16", *flags]
    for d in dims:
        args += ["--dim", d]
    done = subprocess.run(args, capture_output=True, text=True, timeout=max(5, bench.left()))
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1])
    return json.loads(done.stdout)


def models(bench):
    # Nothing else uses the processor from the first model on.
    files = [variants.path(bench.a.models, row["model"], v) for row in bench.results["models"] for v in row["variants"]]
    until = time.perf_counter() + bench.left() / 2
    while time.perf_counter() < until and not all(os.path.exists(f) or os.path.exists(variants.failed(f)) for f in files):
        time.sleep(0.1)
    for row in bench.results["models"]:
        if bench.late():
            raise Late()
        log(f"{row['model']}, batch {row['batch']}: PyTorch")
        try:
            pytorch(nets(bench.tiny)[row["model"]], row["batch"], row["pytorch_ms"], PLAIN, bench.tiny, False)
        except Exception as e:
            row["errors"]["PyTorch"] = message(e)
        torch.cuda.empty_cache()
        for variant in row["variants"]:
            if bench.late():
                raise Late()
            try:
                runs = ["--runs", "2", "--warmup", "1"] if bench.tiny else ["--runs", "60"]
                row["ms"][variant] = run_spc(bench, row, variant, lambda path: ["bench", path], "--json", *runs)["ms"]
                log(f"{row['model']}, batch {row['batch']}: spc {variant}: {row['ms'][variant]['p50']:.4g} ms")
            except Late:
                raise
            except Exception as e:
                row["errors"][variant] = message(e)
                bench.bad += 1
        bench.save()


def compiled(bench):
    """PyTorch compiles its networks each in a process of its own, which can be ended."""
    for row in bench.results["models"]:
        if bench.late():
            raise Late()
        log(f"{row['model']}, batch {row['batch']}: PyTorch, compiled")
        args = [sys.executable, __file__, "--compiled", row["model"], "--batch", str(row["batch"])] + (["--tiny"] if bench.tiny else [])
        try:
            done = subprocess.run(args, capture_output=True, text=True, timeout=max(5, bench.left()))
            if done.returncode != 0:
                raise RuntimeError((done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1])
            row["pytorch_ms"].update(json.loads(done.stdout.splitlines()[-1]))
        except subprocess.TimeoutExpired:
            row["pytorch_ms"]["compiled"] = {"error": "out of time"}
            raise Late()
        except Exception as e:
            row["errors"]["PyTorch, compiled"] = message(e)
        bench.save()


def verify(bench):
    """Compares models on the GPU with themselves on the processor."""
    for row in bench.results["models"]:
        for variant in row["variants"]:
            if row["batch"] > 1 and len(row["variants"]) == 1 or variant not in row["ms"]:
                continue
            if bench.late():
                raise Late()
            try:
                flags = ["--json", "--seeds", "1", "--tolerance", str(MODEL)]
                outputs = run_spc(bench, row, variant, lambda path: ["verify", path, path], *flags)["outputs"]
                row.setdefault("relative_l2", {})[variant] = max(float(o["rel_l2"]) for o in outputs)
            except Late:
                raise
            except Exception as e:
                row["errors"][f"{variant}, verify"] = message(e)
                bench.bad += 1
        bench.save()


# In their order: the name, what it does, and the part of the time that is over at its end. What a
# step leaves, the next ones have.
STEPS = [
    ("ceilings", ceilings, 0.05),
    ("ell", lambda bench: kernels(bench, "ell"), 0.15),
    ("2:4", lambda bench: kernels(bench, "2:4"), 0.24),
    ("block", lambda bench: kernels(bench, "block"), 0.32),
    ("models", models, 0.58),
    ("few columns", lambda bench: kernels(bench, "few columns"), 0.78),
    ("compiled", compiled, 0.92),
    ("verify", verify, 1.0),
]


def driver(cuda):
    """The driver's version, as far as it is told, and the newest CUDA that it knows."""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, timeout=20, check=True)
        return f"{done.stdout.splitlines()[0].strip()}, {cuda}"
    except Exception:
        return cuda


class Bench:
    def __init__(self, a):
        self.a, self.tiny, self.bad, self.limit, self.prepared = a, a.tiny, 0, 0.0, {}
        torch.zeros(1, device="cuda")  # makes the context
        self.timer = Timer(a.tiny)
        self.driver, self.library = spcgpu.Driver(a.images), spcgpu.Library(a.library)
        self.pool = concurrent.futures.ThreadPoolExecutor(max(2, (os.cpu_count() or 2) - 2))
        version = ctypes.c_int()
        self.driver.call("cuDriverGetVersion", ctypes.byref(version))
        arch = "sm_%d%d" % torch.cuda.get_device_capability()
        self.plan = [(w, w.cells()) for w in weights(a.tiny)]
        for _, cells in self.plan:
            for c in cells:
                c.update({"us": {}, "ours": {}, "relative_l2": {}, "errors": {}})
        self.results = {
            "device": torch.cuda.get_device_name(), "arch": arch, "driver": driver(f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"), "torch": torch.__version__,
            "libraries": libraries.versions(), "picked_by": self.library.grid(arch), "date": time.strftime("%Y-%m-%d"), "commit": a.commit, "seed": SEED, "tiny": a.tiny,
            "steps": [], "ceilings": {}, "kernels": [c for _, cells in self.plan for c in cells], "models": rows(a.tiny),
        }

    def left(self):
        """Seconds of the step."""
        return START + self.limit - time.perf_counter()

    def late(self):
        return self.left() <= 0

    def dense(self, w):
        """A dense weight of the same size, the last few of which are kept."""
        key = w.m, w.k, w.dtype
        if key not in self.prepared:
            while len(self.prepared) > 3:
                self.prepared.pop(next(iter(self.prepared))).release()
            formats = [("dense", "")] if w.dtype != "i8" else [("dense", "")]
            self.prepared[key] = Prepared(self, Weight("dense", w.shape, w.m, w.k, [], "dense", 0, formats, w.dtype), 0, formats).wait()
        return self.prepared[key]

    @staticmethod
    def best(w, cells):
        """Of each cell how many times as fast the picked kernel is as cuBLASLt."""
        out = []
        for c in cells:
            picked = [c["us"][name]["median"] for name, k in c["ours"].items() if k["picked"] and k["format"] == w.formats[0][0]]
            dense = [v["median"] for name, v in c["us"].items() if name.startswith("cuBLASLt dense")]
            out.append(f"N={c['n']}: " + (f"{min(dense) / picked[0]:.2f}" if picked and dense else "-"))
        return out

    def save(self):
        path = os.path.join(self.a.out, "bench.json")
        with open(path + ".part", "w") as f:
            json.dump(self.results, f, separators=(",", ":"))
        os.replace(path + ".part", path)

    def run(self):
        for name, step, share in STEPS:
            self.limit = share * self.a.seconds
            begin, ended = time.perf_counter(), "done"
            log(f"== {name}, until {self.limit:.0f} s")
            try:
                step(self)
            except Late:
                ended = "out of time"
            except Exception as e:
                ended = message(e)
                self.bad += 1
            self.results["steps"].append({"step": name, "seconds": round(time.perf_counter() - begin, 1), "ended": ended})
            log(f"== {name}: {ended}")
            self.save()
            if name == "few columns":
                plots(self.results, self.a.out)
        plots(self.results, self.a.out)


def plots(results, folder):
    """kernels.png and models.png, where there is matplotlib."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError as e:
        log(f"no plots: {e}")
        return
    title = f"{results['device']}, driver {results['driver']}, {results['date']}, {results['commit']}"
    lines = {}
    for c in results["kernels"]:
        picked = [c["us"][name]["median"] for name, k in c["ours"].items() if k["picked"] and not k["format"].startswith("dense") and name in c["us"]]
        dense = [v["median"] for name, v in c["us"].items() if name.startswith("cuBLASLt dense")]
        if picked and dense:
            kind = c["group"].split()[0] if not c["group"].startswith("few") else "few columns"
            lines.setdefault(kind, {}).setdefault(f"{c['m']}x{c['k']} {c['pattern']} {c['sparsity']:.0%}" + (" int8" if c["dtype"] == "i8" else ""), []).append((c["n"], min(dense) / min(picked)))
    figure, axes = plt.subplots(1, max(1, len(lines)), figsize=(5 * max(1, len(lines)), 4.5), squeeze=False)
    for ax, (kind, of) in zip(axes[0], lines.items()):
        for label, points in of.items():
            ax.plot(*zip(*sorted(points)), marker="o", markersize=3, linewidth=1, label=label)
        ax.axhline(1, color="black", linewidth=0.8)
        ax.set(title=kind, xscale="log", yscale="log", xlabel="columns of X")
        ax.legend(fontsize=5)
    axes[0][0].set_ylabel("speed-up over cuBLASLt, dense, f16 or i8")
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(os.path.join(folder, "kernels.png"), dpi=110)
    plt.close(figure)

    figure, axes = plt.subplots(1, max(1, len(results["models"])), figsize=(3.2 * max(1, len(results["models"])), 4), squeeze=False)
    for ax, row in zip(axes[0], results["models"]):
        bars = {f"PyTorch {name}": v["median"] for name, v in row["pytorch_ms"].items() if "median" in v}
        bars.update({f"spc {name}": v["p50"] for name, v in row["ms"].items()})
        ax.barh(list(bars), list(bars.values()), color=["#888" if b.startswith("PyTorch") else "#27c" for b in bars])
        ax.invert_yaxis()
        ax.set(title=f"{row['model']}, batch {row['batch']}", xlabel="ms")
        ax.tick_params(axis="y", labelsize=6)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(os.path.join(folder, "models.png"), dpi=110)
    plt.close(figure)


def main():
    p = argparse.ArgumentParser()
    for flag in ("library", "images", "spc", "models", "out"):
        p.add_argument("--" + flag)
    p.add_argument("--commit", default="unknown")
    p.add_argument("--seconds", type=float, default=300, help="after which nothing new is measured")
    p.add_argument("--tiny", action="store_true", help="sizes that an emulator multiplies: what runs, not how fast")
    p.add_argument("--warm", action="store_true", help="have PyTorch compile its networks, for its cache, and measure nothing")
    p.add_argument("--compiled", metavar="MODEL", help="print the latencies of one network that PyTorch compiles")
    p.add_argument("--batch", type=int, default=1)
    a = p.parse_args()
    if a.warm or a.compiled:
        known = nets(a.tiny)
        for name, batch in [(a.compiled, a.batch)] if a.compiled else [(r["model"], r["batch"]) for r in rows(a.tiny)]:
            out = {}
            pytorch(known[name], batch, out, COMPILED if a.compiled else {"compiled": "eager"}, a.tiny, True)
            print(json.dumps(out), flush=True)
        return
    missing = [flag for flag in ("library", "images", "spc", "models", "out") if not getattr(a, flag)]
    if missing:
        p.error("missing: " + " ".join("--" + m for m in missing))
    bench = Bench(a)
    bench.save()
    bench.run()
    measured = sum(bool(c["us"]) for c in bench.results["kernels"])
    log(f"{measured} of {len(bench.results['kernels'])} products measured, {bench.bad} kernels, models and steps failed or are wrong")
    sys.exit(1 if bench.bad else 0)


if __name__ == "__main__":
    main()
