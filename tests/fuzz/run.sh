#!/usr/bin/env bash
# Runs every fuzz target of the module in turn for $FUZZTIME each, a duration or a count
# of executions as in 20000x, prints how many executions each had, and fails on the
# first finding. Up to Go 1.26 a run that its duration ends can fail with nothing but
# "context deadline exceeded" (golang/go#75804); that is not a finding.
set -euo pipefail
cd "$(dirname "$0")/../.."
time=${FUZZTIME:-10m}
found=0
while read -r dir target; do
	log=$(mktemp)
	echo "fuzzing $dir $target for $time"
	if ! go test -vet=off "$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$time" >"$log" 2>&1 &&
		! { grep -qx '    context deadline exceeded' "$log" && ! grep -qE 'Failing input|panic|DATA RACE' "$log"; }; then
		cat "$log"
		rm -f "$log"
		exit 1
	fi
	grep -o 'execs: [0-9]*' "$log" | tail -n 1 || echo "execs: none but the corpus, which took all the time"
	rm -f "$log"
	found=$((found + 1))
done < <(git ls-files '*_test.go' | sed 's#^#./#' | xargs grep -oE '^func Fuzz[A-Za-z0-9_]*' | sed -E 's#^(.*)/[^/]*:func (Fuzz.*)#\1 \2#' | sort)
[ "$found" -gt 0 ] || { echo "no fuzz target found"; exit 1; }
echo "$found targets, nothing found"
