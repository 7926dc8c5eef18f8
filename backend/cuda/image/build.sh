#!/bin/sh
# build.sh NVCC DIR [I/N] compiles the kernels of the back end with that compiler: a fat binary for
# each .cu file, with code for sm_80 and sm_90a and PTX for what comes later, and manifest.json
# with the hashes of what each was made of. With I/N it compiles every N-th file, from number I on. It runs
# in the root of the repository.
set -eu
nvcc=$1 dir=$2 part=${3:-0/1}
include=backend/cuda/include
mkdir -p "$dir"
version=$("$nvcc" --version | sed -n 's/.*release.*, V//p')
[ -n "$version" ] || { echo "$nvcc does not tell its version" >&2; exit 1; }
headers=$(find $include -name '*.cuh' | LC_ALL=C sort)
sources=$(find backend/format backend/cuda/kernels -name '*.cu' | LC_ALL=C sort)
# Of those in the order of their sizes, so that parts take about as long.
sources=$(ls -S $sources | awk "(NR - 1) % ${part#*/} == ${part%/*}" | LC_ALL=C sort)
[ -n "$sources" ] || { echo "no kernels are part $part" >&2; exit 1; }
hash() { sha256sum "$1" | cut -d' ' -f1; }
# As many at once as there are processors, the longest first.
ls -S $sources | xargs -P "$(getconf _NPROCESSORS_ONLN)" -I{} sh -c '
	echo "$1"
	"$2" -std=c++17 -O3 -I "$3" -Werror all-warnings -Xfatbin -compress-all \
		-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_80,code=compute_80 \
		-fatbin "$1" -o "$4/$(basename "$1" .cu).fatbin"' sh {} "$nvcc" "$include" "$dir"
{
	printf '{\n\t"compiler": "nvcc %s",\n\t"headers": {' "$version"
	comma=
	for h in $headers; do
		printf '%s\n\t\t"%s": "%s"' "$comma" "$h" "$(hash "$h")"
		comma=,
	done
	printf '\n\t},\n\t"kernels": ['
	comma=
	for cu in $sources; do
		name=$(basename "$cu" .cu).fatbin
		printf '%s\n\t\t{"source": "%s", "source_sha256": "%s", "image": "%s", "image_sha256": "%s"}' \
			"$comma" "$cu" "$(hash "$cu")" "$name" "$(hash "$dir/$name")"
		comma=,
	done
	printf '\n\t]\n}\n'
} >"$dir/manifest.json"
