#!/usr/bin/env bash
# The demo: compile the shipped model dense and sparse, evaluate both on held-out
# images, and show why each weight got its format.
set -euo pipefail
cd "$(dirname "$0")/.."
spc=${SPC:-bin/spc}
mkdir -p out
run() { echo; echo "\$ spc $*"; "$spc" "$@"; }
run compile demo/model.onnx -o out/dense.spx
run compile demo/model.onnx -o out/sparse.spx --sparsity 0.8
run eval out/dense.spx --data demo/images.idx.gz --labels demo/labels.idx.gz --preprocess unit
run eval out/sparse.spx --data demo/images.idx.gz --labels demo/labels.idx.gz --preprocess unit
run run out/sparse.spx -i random:1
run inspect out/sparse.spx
echo
"$spc" eval out/dense.spx --data demo/images.idx.gz --labels demo/labels.idx.gz --preprocess unit --json > out/dense.json
"$spc" eval out/sparse.spx --data demo/images.idx.gz --labels demo/labels.idx.gz --preprocess unit --json > out/sparse.json
value() { printf '%.2f' "$(sed -n 's/.*"value": *\([0-9.]*\).*/\1/p' "$1" | head -n 1)"; }
echo "accuracy: dense $(value out/dense.json) %, sparse $(value out/sparse.json) %"
kilobytes() { echo "$(( ($(wc -c < "$1") + 500) / 1000 )) KB"; }
echo "file size: dense $(kilobytes out/dense.spx), sparse $(kilobytes out/sparse.spx)"
