#!/bin/sh
# run.sh OUT tests the CUDA back end on the first GPU of this machine and measures it, in under 8
# minutes, with the binaries that `make gpu` has built into out/gpu; it needs no Go. Tests need a
# driver, measurements Python 3 with PyTorch, the search for races compute-sanitizer. It runs in
# the root of the repository and writes into the folder OUT:
#
#	tests.log       the tests of the back end, each kernel against a product in float64
#	sanitizer.log   compute-sanitizer's reports on some of them
#	bench.json      ceilings, kernels beside libraries, models beside PyTorch; kernels.png
#	run.json        how each of these ended
set -u
out=${1:?want a folder for the results}
mkdir -p "$out"
bin=out/gpu
for f in gpu.test spc libspcgpu.so archs; do
	[ -e $bin/$f ] || { echo "run.sh: $bin/$f is missing: make gpu builds it" >&2; exit 1; }
done
began=$(date +%s)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
summary=
# report NAME STATUS MESSAGE
report() {
	message=$(printf '%s' "$3" | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g')
	summary="$summary${summary:+,
}  {\"step\": \"$1\", \"status\": \"$2\", \"message\": \"$message\"}"
	printf '[\n%s\n]\n' "$summary" >"$out/run.json"
	echo "$1: $2 $3"
}

# Where containers find the driver.
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64:/usr/local/nvidia/lib
$bin/spc devices | tee "$work/devices"
grep -q cuda:0 "$work/devices" || { report device failed "$(tail -1 "$work/devices")"; exit 1; }
[ "$(sha256sum <backend/cuda/image/manifest.json)" = "$(cat $bin/manifest)" ] || {
	report binaries failed "they are of other kernels than the images: make gpu builds them again"
	exit 1
}

# The models that are measured, while the tests run.
$bin/archs -o "$work" -only resnet50,bert-base,minilm,transformer-big >"$work/archs.log" 2>&1 &
archs=$!

timeout 120 $bin/gpu.test -test.v >"$out/tests.log" 2>&1
case $? in
0) report tests passed "$(grep -c '^ *--- PASS' "$out/tests.log") passed, $(grep -c '^ *--- SKIP' "$out/tests.log") skipped" ;;
124) report tests failed "stopped after 120 s" && status=1 ;;
*) report tests failed "$(grep -m1 -E '^ *[a-z_]+\.go:|^panic|^FAIL' "$out/tests.log")" && status=1 ;;
esac

: >"$out/sanitizer.log"
for tool in memcheck racecheck; do
	if ! command -v compute-sanitizer >/dev/null; then
		report $tool "not run" "compute-sanitizer is not installed"
		continue
	fi
	# A look-up of a kernel in a module that lacks it is an error of the driver's, and expected.
	options=
	[ $tool = memcheck ] && options='--report-api-errors no'
	timeout 45 compute-sanitizer --tool $tool $options --error-exitcode 9 $bin/gpu.test -test.run 'TestKernelsOfFormats/(ell|nm|dense)_f16' >"$work/log" 2>&1
	code=$?
	{ echo "== $tool"; head -c 200000 "$work/log"; } >>"$out/sanitizer.log"
	said=$(grep -m1 -E 'ERROR SUMMARY|RACECHECK SUMMARY|Error:|not supported' "$work/log")
	if [ $code -eq 124 ]; then
		report $tool "not finished" "stopped after 45 s"
	elif [ $code -eq 0 ] && grep -qE 'SUMMARY: 0 (errors|hazards)' "$work/log"; then
		report $tool passed "$said"
	elif grep -qE 'SUMMARY: [1-9]' "$work/log"; then
		report $tool failed "$said"
		status=1
	else # the tool and not the code
		report $tool "not run" "${said:-exit status $code}"
	fi
done

wait $archs || { report models failed "$(tail -1 "$work/archs.log")"; status=1; }
left=$((460 - $(date +%s) + began)) # of 8 minutes
PYTHONUNBUFFERED=1 timeout $left python3 tests/gpu/bench.py --library $PWD/$bin/libspcgpu.so --images backend/cuda/image --spc $PWD/$bin/spc --models "$work" \
	--commit "$(cat $bin/commit)" --seconds $((left - 60)) --out "$out" 2>"$out/bench.log"
code=$?
if [ $code -eq 0 ]; then
	report bench passed "$(tail -1 "$out/bench.log")"
else
	report bench failed "exit status $code: $(tail -1 "$out/bench.log")"
	status=1
fi
exit $status
