# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs the fuzz targets of test/fuzz under the address and undefined behaviour sanitizers. Each target runs the inputs in
# test/fuzz/corpus first, and then mutations of them for some seconds. Inputs that reach new code are left in
# build/fuzz/new/TARGET. Inputs that break a rule are left in build/fuzz/found.
# Needs common.sh, build.sh, results.sh and test-sim.sh.

# libFuzzer is part of clang.
fuzz_packages=(clang libclang-rt-14-dev llvm)
fuzz_targets=(parser responder requester)
fuzz_seconds=15
# Longer inputs are longer sequences of events.
fuzz_length=1024

build_fuzz() {
	local targets=("${fuzz_targets[@]/#/test/fuzz/fuzz-}")
	CC=clang CXX=clang++ setup_user "$build/fuzz" -Dbuildtype=debugoptimized -Doptimization=1
	with_progress "compiling the fuzz targets" compiled_by_ninja ninja -C "$build/fuzz" "${targets[@]}"
}

# fuzz TARGET ARGUMENT...
fuzz() {
	local target=$1
	shift
	# The address sanitizer of clang 14 does not work if the kernel uses many bits for address randomization.
	setarch --addr-no-randomize "$build/fuzz/test/fuzz/fuzz-$target" -timeout=20 -rss_limit_mb=2048 \
		-artifact_prefix="$build/fuzz/found/$target-" "$@"
}

# fuzz_target TARGET SECONDS: writes its output to build/fuzz/TARGET.log and its exit status to
# build/fuzz/TARGET.status.
fuzz_target() {
	local target=$1 seconds=$2 corpus=$repo/test/fuzz/corpus/$1 new=$build/fuzz/new/$1 status=0
	mkdir -p "$new" "$build/fuzz/found"
	{
		fuzz "$target" -runs=0 "$corpus" &&
			fuzz "$target" -max_len="$fuzz_length" -max_total_time="$seconds" -print_final_stats=1 "$new" "$corpus"
	} >"$build/fuzz/$target.log" 2>&1 || status=$?
	echo "$status" >"$build/fuzz/$target.status"
}

# report_fuzz TARGET SECONDS
report_fuzz() {
	local log=$build/fuzz/$1.log
	if [[ $(cat "$build/fuzz/$1.status" 2>/dev/null) == 0 ]]; then
		pass "fuzz/$1" "$2"
		awk '$1 == "stat::number_of_executed_units:" { runs = $2 } /cov: / { for (n = 1; n < NF; n++)
			if ($n == "cov:") cover = $(n + 1) } END { print "    " runs " runs, " cover " places reached" }' "$log"
	else
		fail "fuzz/$1"
		grep -v -E '^#[0-9]+|^(INFO|Loading)' "$log" | tail -n 40 | sed 's/^/    /'
	fi
}

# run_fuzz_suite [SECONDS] [NAME...]: runs all targets at the same time, each for so many seconds.
run_fuzz_suite() {
	local seconds=$fuzz_seconds target chosen=()
	if [[ ${1:-} =~ ^[0-9]+$ ]]; then
		seconds=$1
		shift
	fi
	have_userspace || return 0
	for target in "${fuzz_targets[@]}"; do
		! wanted "fuzz/$target" "$@" || chosen+=("$target")
	done
	((${#chosen[@]})) || return 0
	need_packages "${fuzz_packages[@]}"
	if ! (with_lock fuzz build_fuzz); then
		fail fuzz/build
		return 0
	fi
	for target in "${chosen[@]}"; do
		# The status of an earlier run must not count.
		rm -f "$build/fuzz/$target.status"
		fuzz_target "$target" "$seconds" &
	done
	wait
	for target in "${chosen[@]}"; do
		report_fuzz "$target" "$seconds"
	done
}
