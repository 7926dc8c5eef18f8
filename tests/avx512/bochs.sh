#!/bin/sh
# bochs.sh DIR builds Bochs, an emulator of x86 that has AVX-512 (QEMU has none), from Debian's source (trixie) into
# DIR, and unpacks what it boots there: a kernel, a boot loader and busybox (bookworm). Nothing is
# installed: packages are fetched with a package index of their own. Needs Debian's or Ubuntu's apt,
# make and g++. DIR/bochs is the emulator.
set -eu
mkdir -p "$1"
dir=$(cd "$1" && pwd)
[ -x "$dir/bochs" ] && exit 0
command -v apt-get >/dev/null || { echo "bochs.sh needs apt-get" >&2; exit 1; }
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || { echo "bochs.sh needs $keyring, of the package debian-archive-keyring" >&2; exit 1; }
apt=$dir/apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/deb"
cat >"$apt/sources.list" <<EOF
deb [signed-by=$keyring] http://deb.debian.org/debian bookworm main
deb-src [signed-by=$keyring] http://deb.debian.org/debian trixie main
EOF
get() {
	tool=$1
	shift
	"$tool" -qq -o Dir::State="$apt" -o Dir::State::status=/dev/null -o Dir::Cache="$apt/cache" \
		-o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/nonexistent \
		-o APT::Sandbox::User=root -o APT::Architecture=amd64 "$@"
}
get apt-get update
# That package has no kernel but depends on the newest.
linux=$(get apt-cache show linux-image-cloud-amd64 | sed -n 's/^Depends: \(linux-image[^ ,]*\).*/\1/p' | head -n 1)
(cd "$apt/deb" && get apt-get download "$linux" bochsbios vgabios isolinux syslinux-common busybox-static)
for deb in "$apt"/deb/*.deb; do
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$apt"
done
mv "$apt"/boot/vmlinuz-* "$dir/vmlinuz"
mv "$apt/usr/lib/ISOLINUX/isolinux.bin" "$apt/usr/lib/syslinux/modules/bios/ldlinux.c32" "$dir"
mv "$apt/usr/share/bochs/BIOS-bochs-latest" "$apt/usr/share/vgabios/vgabios.bin" "$dir"
mv "$apt/bin/busybox" "$dir"
(cd "$apt" && get apt-get source --download-only --tar-only bochs && tar -xf bochs_*.orig.tar.*)
cd "$apt"/bochs-*/
./configure --enable-cpu-level=6 --enable-x86-64 --enable-avx --enable-evex --enable-all-optimizations \
	--enable-long-phy-address --enable-pci --enable-cdrom --disable-plugins --disable-docbook --with-nogui \
	CFLAGS=-O2 CXXFLAGS=-O2 >"$dir/build.log" 2>&1 || { tail "$dir/build.log" >&2; exit 1; }
make -j"$(nproc)" >>"$dir/build.log" 2>&1 || { tail "$dir/build.log" >&2; exit 1; }
mv bochs "$dir/bochs"
rm -r "$apt"
