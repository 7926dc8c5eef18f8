#!/bin/sh
# check.sh NVCC DIR [I/N] compiles the kernels into DIR, looks through the machine code of wgmma, and compares
# them with the images beside this script, if those were made by the same compiler. With I/N it does so for a
# part of them, see build.sh. It runs in the root of the repository.
set -eu
images=backend/cuda/image
rm -rf "$2"
sh $images/build.sh "$1" "$2" "${3:-0/1}"
for dump in "$(dirname "$1")/cuobjdump" "$(dirname "$1")/usr/bin/cuobjdump" cuobjdump; do
	command -v "$dump" >/dev/null && break
done
# A part may have no wgmma, without which this says that it can read none.
python3 $images/inflight.py "$dump" "$2"/*.fatbin ${3:+$images/block.fatbin}
compiler() { sed -n 's/.*"compiler": "\(.*\)".*/\1/p' "$1/manifest.json"; }
if [ "$(compiler "$2")" != "$(compiler $images)" ]; then
	echo "the kernels compile with $(compiler "$2"); their images, of $(compiler $images), were not compared"
	exit 0
fi
if [ -n "${3:-}" ]; then
	for image in "$2"/*.fatbin; do
		cmp "$image" "$images/$(basename "$image")"
	done
	echo "part $3 of the kernels compiles with $(compiler "$2") to its images"
	exit 0
fi
diff -r -x '*.sh' -x '*.py' -x '*.go' -x '*.grid.json' "$2" $images
echo "the kernels compile with $(compiler "$2") to their images"
