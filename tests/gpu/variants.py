"""Writes the models that are measured, in the variants that are compared:
variants.py --spc FILE --archs FILE --out DIR [--tiny]. Needs no PyTorch, and runs while the GPU is
tested. DIR/MODEL.VARIANT.spx is there once it is whole, and DIR/MODEL.VARIANT.failed, with the
reason, where there will be none.
"""

import argparse
import concurrent.futures
import os
import subprocess

# How a model is pruned in each variant.
VARIANTS = {
    "dense": ["--format", "dense"],
    "2:4": ["--pattern", "2:4", "--format", "nm"],
    "block 64x64 80%": ["--pattern", "block:64x64", "--sparsity", "0.8", "--format", "block"],
    "uniform 80%": ["--sparsity", "0.8", "--format", "ell"],
}

# The variants of each model.
MODELS = {
    "bert-base": ["dense", "2:4", "block 64x64 80%"],
    "transformer-big": ["dense", "2:4", "block 64x64 80%"],
    "resnet50": ["dense", "uniform 80%", "2:4", "block 64x64 80%"],
    "minilm": ["dense", "uniform 80%", "2:4", "block 64x64 80%"],
}
TINY = {"bert": MODELS["bert-base"], "encoder": MODELS["transformer-big"], "resnet": MODELS["resnet50"]}


def path(folder, model, variant):
    return os.path.join(folder, model + "." + variant.replace(" ", "-").replace(":", "") + ".spx")


def failed(file):
    return file.removesuffix(".spx") + ".failed"


def compile(spc, folder, model, variant):
    file = path(folder, model, variant)
    command = [spc, "compile", os.path.join(folder, model + ".onnx"), "-o", file, "--target", "cuda", *VARIANTS[variant]]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        with open(failed(file), "w") as f:
            f.write(done.stderr.strip() or f"exit status {done.returncode}")


def main():
    p = argparse.ArgumentParser()
    for flag in ("spc", "archs", "out"):
        p.add_argument("--" + flag, required=True)
    p.add_argument("--tiny", action="store_true", help="of models that take milliseconds")
    a = p.parse_args()
    models = TINY if a.tiny else MODELS
    with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 4)) as pool:
        for model, variants in models.items():
            made = subprocess.run([a.archs, "-o", a.out, "-only", model], capture_output=True, text=True)
            for v in variants:
                if made.returncode != 0:
                    with open(failed(path(a.out, model, v)), "w") as f:
                        f.write(made.stderr.strip())
                else:
                    pool.submit(compile, a.spc, a.out, model, v)


if __name__ == "__main__":
    main()
