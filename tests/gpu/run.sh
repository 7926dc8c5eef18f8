#!/bin/sh
# run.sh OUT tests the CUDA back end on the first GPU of this machine and measures it, in under 8
# minutes, with the binaries that `make gpu` has built into out/gpu; it needs no Go. Tests need a
# driver, measurements Python 3 with PyTorch, the search for races compute-sanitizer. It runs in
# the root of the repository and writes into the folder OUT:
#
#	run.json        how each of its steps ended, as soon as it has
#	tests.log       the tests of the back end, each kernel against a product in float64
#	sanitizer.log   compute-sanitizer's reports on some of them
#	bench.json      ceilings, kernels beside libraries, models beside PyTorch; kernels.png, models.png
#	bench.log       how far that came
#	claims.json     what of that spc is meant to reach, and whether it does
#
# With SPC_GPU_TINY=1 everything runs at sizes that the emulator of tests/simt multiplies, with
# one test: a trial of this script, whose times mean nothing.
set -u
out=${1:?want a folder for the results}
tiny=${SPC_GPU_TINY:+--tiny}
mkdir -p "$out"
# Nothing of an earlier run stays.
for f in run.json tests.log sanitizer.log bench.json bench.log kernels.png models.png claims.json; do
	rm -f "$out/$f"
done
bin=$PWD/out/gpu
for f in gpu.test spc libspcgpu.so archs report commit manifest; do
	[ -e "$bin/$f" ] || { echo "run.sh: $bin/$f is missing: make gpu builds it" >&2; exit 1; }
done
limit=470 # seconds for all of it, of 8 minutes
began=$(date +%s)
left() { echo $((limit - $(date +%s) + began)); }
work=$(mktemp -d)
background=
# Each background job leads a process group, so that what it started ends with it.
finish() {
	for p in $background; do
		kill -TERM -- "-$p" 2>/dev/null
	done
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
status=0
summary=
# report NAME STATUS MESSAGE
report() {
	message=$(printf '%s' "$3" | tr '\t' ' ' | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g')
	summary="$summary${summary:+,
}  {\"step\": \"$1\", \"status\": \"$2\", \"message\": \"$message\", \"seconds\": $(($(date +%s) - began))}"
	printf '[\n%s\n]\n' "$summary" >"$out/run.json"
	echo "[$(($(date +%s) - began)) s] $1: $2${3:+: $3}"
}

# Where containers find the driver.
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64:/usr/local/nvidia/lib
# What PyTorch compiles is found again by the processes that measure it.
export TORCHINDUCTOR_CACHE_DIR="$work/inductor" TRITON_CACHE_DIR="$work/triton" TORCHINDUCTOR_FX_GRAPH_CACHE=1
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
"$bin/spc" devices >"$work/devices" 2>&1
grep -q cuda:0 "$work/devices" || { report device failed "$(tail -1 "$work/devices")"; exit 1; }
report device passed "$(grep cuda:0 "$work/devices")"
[ "$(sha256sum <backend/cuda/image/manifest.json)" = "$(cat "$bin/manifest")" ] || {
	report binaries failed "they are of other kernels than the images: make gpu builds them again"
	exit 1
}

# While nothing is measured: tests, the sanitizer's tools, the models' variants, and what PyTorch
# compiles.
setsid nice python3 tests/gpu/variants.py --spc "$bin/spc" --archs "$bin/archs" --out "$work" $tiny >"$work/variants.log" 2>&1 &
background=$!
setsid nice timeout 100 python3 tests/gpu/bench.py --warm $tiny >"$work/warm.log" 2>&1 &
warm=$!
background="$background $warm"

for tool in memcheck racecheck; do
	# A look-up of a kernel in a module that lacks it is an error of the driver's, and expected.
	options=
	[ $tool = memcheck ] && options='--report-api-errors no'
	if command -v compute-sanitizer >/dev/null; then
		(
			timeout 75 compute-sanitizer --tool $tool $options --error-exitcode 9 "$bin/gpu.test" -test.run 'TestKernelsOfFormats/(ell|nm|dense)_f16' >"$work/$tool.log" 2>&1
			echo $? >"$work/$tool.code"
		) &
		eval "$tool=$!"
	fi
done

# Of the emulator's GPU the tests take minutes.
timeout 85 "$bin/gpu.test" -test.v ${tiny:+-test.run TestOverlap} >"$out/tests.log" 2>&1
case $? in
0) report tests passed "$(grep -c '^ *--- PASS' "$out/tests.log") passed, $(grep -c '^ *--- SKIP' "$out/tests.log") skipped" ;;
124) report tests failed "stopped after 85 s" && status=1 ;;
*) report tests failed "$(grep -m1 -E '^ *[a-z_]+\.go:|^panic|^FAIL' "$out/tests.log")" && status=1 ;;
esac

: >"$out/sanitizer.log"
for tool in memcheck racecheck; do
	eval "pid=\${$tool:-}"
	if [ -z "$pid" ]; then
		report $tool "not run" "compute-sanitizer is not installed"
		continue
	fi
	wait "$pid"
	code=$(cat "$work/$tool.code")
	{ echo "== $tool"; head -c 200000 "$work/$tool.log"; } >>"$out/sanitizer.log"
	said=$(grep -m1 -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$work/$tool.log" || grep -m1 -iE 'Error:|not supported|Unable|failed' "$work/$tool.log")
	# The summary alone does not tell that the tests ran under the tool.
	if [ "$code" -eq 124 ]; then
		report $tool "not finished" "stopped after 75 s"
	elif [ "$code" -eq 0 ] && grep -qE 'SUMMARY: 0 (errors|hazards)' "$work/$tool.log" && grep -q '^PASS' "$work/$tool.log"; then
		report $tool passed "$said"
	elif grep -qE 'SUMMARY: [1-9]' "$work/$tool.log"; then
		report $tool failed "$said"
		status=1
	elif grep -qE 'SUMMARY: 0 (errors|hazards)' "$work/$tool.log" && grep -q '^FAIL' "$work/$tool.log"; then
		report $tool failed "the tests fail under it: $(grep -m1 -E '^ *[a-z_]+\.go:|^panic' "$work/$tool.log")"
		status=1
	else # the tool and not the code
		report $tool "not run" "${said:-exit status $code}"
	fi
done

kill -TERM -- "-$warm" 2>/dev/null
wait "$warm"
report warm-up finished "PyTorch compiled $(grep -c '^{' "$work/warm.log") networks for its cache"

# What it says goes to the screen and into a file.
mkfifo "$work/said"
tee "$out/bench.log" <"$work/said" &
tee=$!
seconds=$(left)
timeout "$seconds" python3 tests/gpu/bench.py --library "$bin/libspcgpu.so" --images backend/cuda/image --spc "$bin/spc" --models "$work" \
	--commit "$(cat "$bin/commit")" --seconds $((seconds - 15)) --out "$out" $tiny 2>"$work/said"
code=$?
wait "$tee"
case $code in
0) report bench passed "$(tail -1 "$out/bench.log")" ;;
124) report bench "not finished" "stopped after $seconds s: $(tail -1 "$out/bench.log")" && status=1 ;;
*) report bench failed "exit status $code: $(tail -1 "$out/bench.log")" && status=1 ;;
esac

if "$bin/report" -claims "$out" >"$work/claims" 2>&1; then
	cat "$work/claims"
	report claims finished "$(grep -c ' met (' "$work/claims") of $(wc -l <"$work/claims") met"
else
	report claims failed "$(tail -1 "$work/claims")"
	status=1
fi
exit $status
