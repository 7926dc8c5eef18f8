#!/usr/bin/env bash
# run.sh DIR PACKAGE... runs the short tests of packages on a processor with AVX-512, VNNI and VBMI
# that Bochs emulates (bochs.sh), each package on a machine of its own, as many at a time as there
# are processors. For those who change kernels and have no such processor. Needs cpio and xorriso.
# TESTS='Regexp' chooses tests, SKIP leaves some out.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$1
shift
for tool in cpio xorriso; do
	command -v $tool >/dev/null || { echo "run.sh needs $tool (apt install cpio xorriso)" >&2; exit 1; }
done
sh "$here/bochs.sh" "$dir"
dir=$(cd "$dir" && pwd)

# one PACKAGE: builds its tests and a disk that runs them, and boots it.
one() {
	local package=$1 work tree disk start=$SECONDS
	work=$(mktemp -d "$dir/run.XXXXXX")
	tree=$work/tree disk=$work/disk
	mkdir -p "$tree"/{bin,proc,dev,tmp} "$disk"
	CGO_ENABLED=0 go test -c -vet=off -ldflags='-s -w' -o "$tree/test" "$package"
	if ! [ -e "$tree/test" ]; then
		rm -r "$work" # no tests
		return 0
	fi
	echo "-test.short -test.v -test.run=${TESTS:-^Test} -test.skip=${SKIP:-^$}" >"$tree/arguments"
	cp "$dir/busybox" "$tree/bin"
	cp "$here/init" "$tree/init"
	chmod +x "$tree/init"
	(cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$disk/initrd.gz"
	ln "$dir/vmlinuz" "$dir/ldlinux.c32" "$disk"
	cp "$dir/isolinux.bin" "$disk" # xorriso writes into it
	cp "$here/isolinux.cfg" "$disk"
	xorriso -report_about FAILURE -as mkisofs -quiet -o "$work/disk.iso" -b isolinux.bin -c boot.cat \
		-no-emul-boot -boot-load-size 4 -boot-info-table "$disk" 2>"$work/xorriso" || { cat "$work/xorriso"; return 1; }
	ln "$dir/BIOS-bochs-latest" "$dir/vgabios.bin" "$work"
	(cd "$work" && timeout "${LIMIT:-3600}" "$dir/bochs" -q -f "$here/machine" </dev/null >screen 2>&1) || true
	if grep -aq '^exit status 0' "$work/output"; then
		echo "ok $package $((SECONDS - start)) s"
		rm -r "$work"
	else
		echo "FAIL $package $((SECONDS - start)) s, see $work"
		tail -n 40 "$work/output"
		return 1
	fi
}

if [ "${ONE:-}" ]; then
	one "$1"
else
	export ONE=yes
	printf '%s\n' "$@" | xargs -P "$(nproc)" -n 1 "$here/run.sh" "$dir"
fi
