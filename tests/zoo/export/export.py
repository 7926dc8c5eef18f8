#!/usr/bin/env python3
"""Export the members of the zoo of architectures as ONNX: export.py --out DIR [--small] [NAME ...]"""

import argparse
import io
import multiprocessing
import os
import sys
import time
import warnings
import zlib

import onnx
import torch

import networks  # enters its members
import vision  # enters its members
from member import MEMBERS, Member
from prepare import calibrate, jitter, subdue

LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "list")


def listed() -> list:
    """The names in the list, which must be those of the table."""
    with open(LIST) as file:
        lines = [line.split("#")[0].split() for line in file]
    names = [fields[0] for fields in lines if fields]
    if set(names) != set(MEMBERS):
        sys.exit(f"tests/zoo/list and the networks here differ in {sorted(set(names) ^ set(MEMBERS))}")
    return names


def annotate(model: onnx.ModelProto, made: Member) -> None:
    """Write the ranges of inputs, and which outputs are compared, into the metadata."""
    ranges = {f"zoo.input.{name}": f"{i.range[0]} {i.range[1]}" for name, i in made.inputs.items() if i.range is not None}
    if made.compared is not None:
        ranges["zoo.outputs"] = " ".join(made.compared)
    onnx.helper.set_model_props(model, ranges)


def forget_sizes(graph: onnx.GraphProto) -> None:
    """Drop the sizes of what branches put out, which the exporter guesses and, behind a split, guesses wrongly."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                forget_sizes(attribute.g)
                for output in attribute.g.output:
                    if output.type.HasField("tensor_type"):
                        for size in output.type.tensor_type.shape.dim:
                            size.Clear()


def export(name: str, small: bool, path: str) -> None:
    """Write a member, with weights that depend on nothing but its name, to path."""
    start = time.time()
    torch.manual_seed(zlib.crc32(name.encode()))
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    made = MEMBERS[name](small)
    made.module.eval()

    def draw() -> list:
        return [i.draw() for i in made.inputs.values()]

    with torch.no_grad():
        jitter(made.module)
        subdue(made.module)
        calibrate(made.module, draw, draws=32 if small else 8)
    data = io.BytesIO()
    torch.onnx.export(
        made.module, tuple(draw()), data, opset_version=made.opset, do_constant_folding=True,
        input_names=list(made.inputs), output_names=made.outputs,
    )
    model = onnx.load_from_string(data.getvalue())
    forget_sizes(model.graph)
    annotate(model, made)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    weights = sum(parameter.numel() for parameter in made.module.parameters())
    print(f"{name}: {len(model.graph.node)} nodes, {weights} weights, {time.time() - start:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="the folder for NAME.onnx")
    parser.add_argument("--small", action="store_true", help="the same architectures with fewer channels, layers and pixels")
    parser.add_argument("--list", action="store_true", help="print the members")
    parser.add_argument("names", nargs="*", metavar="NAME", help="members to export; all without one")
    args = parser.parse_args()
    names = listed()
    if args.list:
        print("\n".join(names))
        return
    if args.out is None:
        parser.error("--out is needed")
    unknown = [name for name in args.names if name not in MEMBERS]
    if unknown:
        parser.error(f"no such members: {' '.join(unknown)}")
    os.makedirs(args.out, exist_ok=True)
    failed = []
    for name in args.names or names:
        # A process each gives the memory of one before the next begins.
        process = multiprocessing.Process(target=export, args=(name, args.small, os.path.join(args.out, name + ".onnx")))
        process.start()
        process.join()
        if process.exitcode != 0:
            failed.append(name)
    if failed:
        sys.exit(f"not exported: {' '.join(failed)}")


if __name__ == "__main__":
    main()
