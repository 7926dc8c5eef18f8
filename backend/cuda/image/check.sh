#!/bin/sh
# check.sh NVCC DIR compiles the kernels into DIR, looks through the machine code of wgmma, and compares
# them with the images beside this script, if those were made by the same compiler. It runs in the
# root of the repository.
set -eu
images=backend/cuda/image
rm -rf "$2"
sh $images/build.sh "$1" "$2"
for dump in "$(dirname "$1")/cuobjdump" "$(dirname "$1")/usr/bin/cuobjdump" cuobjdump; do
	command -v "$dump" >/dev/null && break
done
python3 $images/inflight.py "$dump" "$2"/*.fatbin
compiler() { sed -n 's/.*"compiler": "\(.*\)".*/\1/p' "$1/manifest.json"; }
if [ "$(compiler "$2")" != "$(compiler $images)" ]; then
	echo "the kernels compile with $(compiler "$2"); their images, of $(compiler $images), were not compared"
	exit 0
fi
diff -r -x '*.sh' -x '*.py' -x '*.go' -x '*.grid.json' "$2" $images
echo "the kernels compile with $(compiler "$2") to their images"
