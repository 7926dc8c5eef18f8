#!/bin/sh
# nvcc.sh DIR unpacks the CUDA compiler of Debian (trixie, non-free) into DIR, where nothing is
# installed: packages are fetched with a package index of their own. Needs Debian's or
# Ubuntu's apt and about 2 GB of disk meanwhile. DIR/nvcc is the compiler.
set -eu
mkdir -p "$1"
dir=$(cd "$1" && pwd)
[ -x "$dir/nvcc" ] && exit 0
command -v apt-get >/dev/null || { echo "nvcc.sh needs apt-get" >&2; exit 1; }
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || { echo "nvcc.sh needs $keyring, of the package debian-archive-keyring" >&2; exit 1; }
apt=$dir/apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/deb"
echo "deb [signed-by=$keyring] http://deb.debian.org/debian trixie main contrib non-free" >"$apt/sources.list"
get() {
	apt-get -qq -o Dir::State="$apt" -o Dir::State::status=/dev/null -o Dir::Cache="$apt/cache" \
		-o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/nonexistent \
		-o APT::Sandbox::User=root -o APT::Architecture=amd64 "$@"
}
get update
(cd "$apt/deb" && get download nvidia-cuda-toolkit nvidia-cuda-dev libnvvm4 libcu++-dev libcudart12)
# Static libraries are most of what there is, and are not needed to compile kernels.
for deb in "$apt"/deb/*.deb; do
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$dir" --exclude='*.a' --exclude='./usr/share'
done
rm -r "$apt"
bin=$dir/usr/lib/nvidia-cuda-toolkit/bin
rm -f "$bin/nvcc.profile" "$bin/gcc" "$bin/g++"
cat >"$bin/nvcc.profile" <<EOF
NVVMIR_LIBRARY_DIR = $dir/usr/lib/nvidia-cuda-toolkit/libdevice
PATH += $bin:$dir/usr/bin:
INCLUDES += "-I$dir/usr/include" \$(_SPACE_)
EOF
cat >"$dir/nvcc" <<EOF
#!/bin/sh
export LD_LIBRARY_PATH="$dir/usr/lib/x86_64-linux-gnu\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
exec "$bin/nvcc" "\$@"
EOF
chmod +x "$dir/nvcc"
