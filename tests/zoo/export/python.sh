#!/bin/sh
# Print a Python that has what exporting the zoo needs; Debian's is fetched with apt where none has it.
set -eu
packages="python3-torch python3-torchvision python3-onnx"
for python in python3 /usr/bin/python3; do
	if "$python" -c 'import torch, torchvision, onnx' 2>/dev/null; then
		echo "$python"
		exit
	fi
done
# shellcheck disable=SC2086
if command -v apt-get >/dev/null && { apt-get update -qq && apt-get install -qq -y --no-install-recommends $packages; } >/dev/null 2>&1 &&
	/usr/bin/python3 -c 'import torch, torchvision, onnx' 2>/dev/null; then
	echo /usr/bin/python3
	exit
fi
echo "the zoo is exported by Python with torch, torchvision and onnx, which could not be fetched: as root, apt-get install $packages" >&2
exit 1
