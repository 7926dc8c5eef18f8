#!/bin/sh
# libs.sh fetches the libraries of the page, of these versions, with npm, into assets/lib, with their licences, and checks that
# they are what libs.sha256 says. With -write it writes that file: look at what changed.
set -eu
cd "$(dirname "$0")"
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
# get NAME PACKAGE@VERSION FILE LICENCE...
get() {
	name=$1 package=$2 file=$3
	shift 3
	mkdir "$temp/$name"
	tarball=$(cd "$temp/$name" && npm pack --silent --ignore-scripts "$package")
	tar -xzf "$temp/$name/$tarball" -C "$temp/$name"
	cp "$temp/$name/package/$file" "assets/lib/$name.js"
	for licence; do cat "$temp/$name/package/$licence"; done >"assets/lib/$name.LICENSE"
}
get dagre @dagrejs/dagre@3.1.3 dist/dagre.min.js LICENSE
get chart chart.js@4.6.1 dist/chart.umd.min.js LICENSE.md
if [ "${1:-}" = -write ]; then
	(cd assets/lib && sha256sum -- *) >libs.sha256
fi
(cd assets/lib && sha256sum --quiet -c ../../libs.sha256)
