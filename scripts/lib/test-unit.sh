# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs the tests that need no kernel module: meson's suites "unit", "proto", "tsan" and "plain", the simulation, and the fuzz
# targets.
# Needs common.sh, build.sh and results.sh.

sim_seeds=10000
# A run of the simulation ends after so many seconds. It leaves enough time for a much slower machine.
sim_limit=900
# Longer inputs are longer sequences of events.
fuzz_targets=(parser responder requester)
fuzz_seconds=15
fuzz_length=1024

# matches NAME PATTERN...: whether the name contains one of these, or there are none.
matches() {
	local name=$1 pattern
	shift
	(($#)) || return 0
	for pattern in "$@"; do
		[[ $name != *"$pattern"* ]] || return 0
	done
	return 1
}

# indented [COUNT]: the end of its input, below the line of a result.
indented() { tail -n "${1:-40}" | sed 's/^/    /'; }

# setup_variant VARIANT: sets up build/VARIANT. With the sanitizers, compiling takes longer than the tests, and optimization
# makes it much slower. The C++ is therefore not optimized, which hides no errors. The C files are optimized, because they
# compile quickly and the tests spend their time in them. clang compiles the tests in half the time that gcc takes. But its
# thread sanitizer reports READ_ONCE() and WRITE_ONCE(), which are volatile, as data races.
setup_variant() {
	local arguments=("${user_arguments[@]}") compiler=()
	case $1 in
	asan)
		compiler=(with_clang)
		arguments+=(-Doptimization=0 -Dc_args=-O1 "-Db_sanitize=address,undefined" -Db_lundef=false)
		;;
	tsan) arguments+=(-Doptimization=0 -Dc_args=-O1 -Db_sanitize=thread -Db_lundef=false) ;;
	esac
	with_lock "$1" "${compiler[@]}" setup_user "$build/$1" "${arguments[@]}"
}

# meson_results FOLDER: prints lines of RESULT, seconds and name, with tabs between them. Below a test that failed there are
# lines of "output", "-" and the end of its output.
meson_results() {
	/usr/bin/python3 - "$1/meson-logs/testlog.json" <<-'END'
		import json, sys
		for line in open(sys.argv[1]):
		    test = json.loads(line)
		    print(test["result"], f'{test["duration"]:.1f}', test["name"].split(" / ")[-1], sep="\t")
		    if test["result"] not in ("OK", "EXPECTEDFAIL", "SKIP"):
		        output = test.get("stdout", "") + test.get("stderr", "")
		        print(*("output\t-\t" + line for line in output.splitlines()[-40:]), sep="\n")
	END
}

# run_variant VARIANT SUITES NAME...: a test that meson has not run counts as failed, because meson may have been killed.
run_variant() {
	local variant=$1 folder=$build/$1 suites test tests=() result seconds name
	local -A ran=()
	read -r -a suites <<<"${2// / --suite }"
	shift 2
	if ! (setup_variant "$variant"); then
		fail "$variant/setup"
		return
	fi
	# Configure again if needed, because meson's list of tests comes from the last configuration.
	with_lock "$variant" quietly ninja -C "$folder" build.ninja || die "meson could not set up $folder again"
	while read -r test; do
		! matches "$test" "$@" || tests+=("$test")
	done < <(meson test -C "$folder" --no-rebuild --list --suite "${suites[@]}" | sed -n 's,^peal:.* / ,,p')
	((${#tests[@]})) || return 0
	rm -f "$folder/meson-logs/testlog.json"
	with_progress "building and running the unit tests ($variant)" \
		with_lock "$variant" run_meson "$folder" "${tests[@]}"
	if [[ ! -s $folder/meson-logs/testlog.json ]]; then
		fail "$variant/build"
		indented <"$folder/test.log"
		return
	fi
	while IFS=$'\t' read -r result seconds name; do
		[[ $result == output ]] || ran[$name]=1
		case $result in
		OK | EXPECTEDFAIL) pass "$variant/$name" "$seconds" ;;
		SKIP) skip "$variant/$name" "see build/$variant/meson-logs/testlog.txt" ;;
		output) printf '    %s\n' "$name" ;;
		*) fail "$variant/$name" ;;
		esac
	done < <(meson_results "$folder")
	for test in "${tests[@]}"; do
		[[ ${ran[$test]:-} ]] || fail "$variant/$test: was not run"
	done
}

# run_meson FOLDER TEST...: builds and runs the tests. It ignores the exit status, because meson's log has the failures.
# The tests may share the processors with guests. The thread sanitizer of gcc 12 does not work if the kernel uses many bits
# for address randomization.
run_meson() {
	setarch --addr-no-randomize meson test -t 4 -C "$@" 2>&1 | tee "$1/test.log" || true
}

# run_unit_suite NAME...: runs the tests under the address sanitizer, and those with threads also under the thread sanitizer.
# Only those that need it run without a sanitizer, because the guest tests run the same code without one. With PEAL_THOROUGH all
# tests run in each of the three ways.
run_unit_suite() {
	run_variant asan "unit proto" "$@"
	run_variant tsan "tsan${PEAL_THOROUGH:+ unit proto}" "$@"
	run_variant user "plain${PEAL_THOROUGH:+ unit proto}" "$@"
}

# run_sim NAME ARGUMENT...: runs the simulation once, as a test. It prints the last lines of the output, which say how
# fast the simulation was or what failed.
run_sim() {
	local name=$1 log=$build/asan/sim-$1.log begin=$SECONDS
	shift
	if ASAN_OPTIONS=detect_leaks=1 timeout "$sim_limit" setarch --addr-no-randomize \
		"$build/asan/test/sim/sim" --jobs "$(nproc)" "$@" >"$log" 2>&1; then
		pass "sim/$name" $((SECONDS - begin))
	else
		fail "sim/$name"
	fi
	indented 20 <"$log"
}

# How connections share a bottleneck. One seed, because the limits are about shares, which vary from seed to seed.
run_bottleneck() {
	local log=$build/user/bottleneck.log begin=$SECONDS
	if timeout "$sim_limit" "$build/user/test/bottleneck/bottleneck" --jobs "$(nproc)" >"$log" 2>&1; then
		pass sim/bottleneck $((SECONDS - begin))
	else
		fail sim/bottleneck
		grep FAIL "$log" | indented
	fi
}

# run_sim_suite NAME...: runs the transport core in its simulated network, under the address and undefined behaviour
# sanitizers: the seeds that failed in the past, and new random seeds. It also checks that the simulation detects broken rules,
# and how connections share a bottleneck.
run_sim_suite() {
	local variant begin
	for variant in asan user; do
		if ! (setup_variant "$variant" && with_progress "compiling the simulation" \
			with_lock "$variant" ninja -C "$build/$variant" test/sim/sim test/bottleneck/bottleneck); then
			fail "sim/build-$variant"
			return
		fi
	done
	! matches past "$@" || run_sim past --file "$repo/test/sim/seeds.txt"
	! matches random "$@" || run_sim random --seeds "$sim_seeds"
	! matches bottleneck "$@" || run_bottleneck
	matches mutations "$@" || return 0
	begin=$SECONDS
	if "$repo/test/sim/mutate" "$build/user" >"$build/user/sim-mutations.log" 2>&1; then
		pass sim/mutations $((SECONDS - begin))
	else
		fail sim/mutations
	fi
	indented 999 <"$build/user/sim-mutations.log"
}

# Compiles the fuzz targets of test/fuzz under the address and undefined behaviour sanitizers.
build_fuzz() {
	with_clang setup_user "$build/fuzz" -Dbuildtype=debugoptimized -Doptimization=1
	with_progress "compiling the fuzz targets" ninja -C "$build/fuzz" "${fuzz_targets[@]/#/test/fuzz/fuzz-}"
}

# fuzz_target TARGET SECONDS: runs the inputs in test/fuzz/corpus, and then mutations of them. Inputs that reach new code are
# left in build/fuzz/new/TARGET, and inputs that break a rule in build/fuzz/found. The address sanitizer of clang 14 does not
# work if the kernel uses many bits for address randomization.
fuzz_target() {
	local corpus=$repo/test/fuzz/corpus/$1 new=$build/fuzz/new/$1 target
	target=(setarch --addr-no-randomize "$build/fuzz/test/fuzz/fuzz-$1" -timeout=20 -rss_limit_mb=2048
		-artifact_prefix="$build/fuzz/found/$1-")
	mkdir -p "$new" "$build/fuzz/found"
	"${target[@]}" -runs=0 "$corpus" &&
		"${target[@]}" -max_len="$fuzz_length" -max_total_time="$2" -print_final_stats=1 "$new" "$corpus"
}

# run_fuzz_suite [SECONDS] [NAME...]: runs all targets at the same time, each for so many seconds.
run_fuzz_suite() {
	local seconds=$fuzz_seconds target log
	local -A process=()
	if [[ ${1:-} =~ ^[0-9]+$ ]]; then
		seconds=$1
		shift
	fi
	for target in "${fuzz_targets[@]}"; do
		! matches "fuzz/$target" "$@" || process[$target]=
	done
	((${#process[@]})) || return 0
	if ! (with_lock fuzz build_fuzz); then
		fail fuzz/build
		return
	fi
	for target in "${!process[@]}"; do
		fuzz_target "$target" "$seconds" >"$build/fuzz/$target.log" 2>&1 &
		process[$target]=$!
	done
	for target in "${!process[@]}"; do
		log=$build/fuzz/$target.log
		if wait "${process[$target]}"; then
			pass "fuzz/$target" "$seconds"
			awk '$1 == "stat::number_of_executed_units:" { runs = $2 } /cov: / { for (n = 1; n < NF; n++)
				if ($n == "cov:") cover = $(n + 1) } END { print "    " runs " runs, " cover " places reached" }' "$log"
		else
			fail "fuzz/$target"
			grep -v -E '^#[0-9]+|^(INFO|Loading)' "$log" | indented
		fi
	done
}
