# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs the tests that need no kernel module. These are meson's suites "unit" and "proto" and, under the thread sanitizer,
# "tsan". It gets the list of tests from meson.
# Needs common.sh, build.sh and results.sh.

# variant_arguments VARIANT: prints meson's arguments for build/VARIANT. With the sanitizers, compiling takes longer than
# the tests, and optimization makes it much slower. The C++ for the address sanitizer is therefore not optimized, which
# hides no errors. The C files are optimized, because they compile quickly and the tests spend their time in them.
variant_arguments() {
	local common="${user_arguments[*]}"
	case $1 in
	user) echo "$common" ;;
	asan) echo "$common -Doptimization=0 -Dc_args=-O1 -Db_sanitize=address,undefined -Db_lundef=false" ;;
	tsan) echo "$common -Doptimization=1 -Db_sanitize=thread -Db_lundef=false" ;;
	esac
}

# chosen_tests FOLDER SUITES NAME...: prints the tests of these suites whose names contain one of NAME.
chosen_tests() {
	local folder=$1 suites=$2
	shift 2
	/usr/bin/python3 - "$folder" "$suites" "$@" <<-'END'
		import json, subprocess, sys
		folder, suites, *names = sys.argv[1:]
		known = json.loads(subprocess.check_output(["meson", "introspect", "--tests", folder]))
		for test in known:
		    mine = {suite.split(":")[-1] for suite in test["suite"]} & set(suites.split())
		    if mine and (not names or any(name in test["name"] for name in names)):
		        print(test["name"])
	END
}

# report_log VARIANT TEST...: prints and counts the result of each test. A test that meson has not run counts as failed,
# because meson may have been killed.
report_log() {
	local log=$build/$1/meson-logs/testlog.json result name seconds
	local -A ran=()
	while IFS=$'\t' read -r result name seconds; do
		ran[$name]=1
		case $result in
		OK | EXPECTEDFAIL) pass "$1/$name" "$seconds" ;;
		SKIP) skip "$1/$name" "see build/$1/meson-logs/testlog.txt" ;;
		*) fail "$1/$name" && tests_output "$log" "$name" ;;
		esac
	done < <(/usr/bin/python3 - "$log" <<-'END'
		import json, sys
		for line in open(sys.argv[1]):
		    test = json.loads(line)
		    name = test["name"].split(" / ")[-1]
		    print(test["result"], name, f'{test["duration"]:.1f}', sep="\t")
	END
	)
	for name in "${@:2}"; do
		[[ ${ran[$name]:-} ]] || fail "$1/$name: was not run"
	done
}

# tests_output LOG NAME: prints the last lines of a test's output.
tests_output() {
	/usr/bin/python3 - "$1" "$2" <<-'END'
		import json, sys
		for line in open(sys.argv[1]):
		    test = json.loads(line)
		    if test["name"].split(" / ")[-1] == sys.argv[2]:
		        output = test.get("stdout", "") + test.get("stderr", "")
		        print("\n".join("    " + line for line in output.splitlines()[-40:]))
	END
}

# run_variant VARIANT SUITES NAME...
run_variant() {
	local variant=$1 suites=$2 folder=$build/$1 arguments tests
	shift 2
	read -r -a arguments <<<"$(variant_arguments "$variant")"
	if ! (with_lock "$variant" setup_user "$folder" "${arguments[@]}"); then
		fail "$variant/setup"
		return
	fi
	# Configure again if needed, because meson's list of tests comes from the last configuration.
	quietly ninja -C "$folder" build.ninja || die "meson could not set up $folder again"
	mapfile -t tests < <(chosen_tests "$folder" "$suites" "$@")
	((${#tests[@]})) || return 0
	rm -f "$folder/meson-logs/testlog.json"
	with_progress "building and running the unit tests ($variant)" steps_of_meson \
		with_lock "$variant" run_meson "$folder" "${tests[@]}"
	if [[ -s $folder/meson-logs/testlog.json ]]; then
		report_log "$variant" "${tests[@]}"
	else
		fail "$variant/build"
		tail -n 40 "$folder/test.log" | sed 's/^/    /'
	fi
}

# run_meson FOLDER TEST...: builds and runs the tests. It ignores the exit status, because meson's log has the failures.
# The thread sanitizer of gcc 12 does not work if the kernel uses many bits for address randomization.
run_meson() {
	setarch --addr-no-randomize meson test -C "$@" 2>&1 | tee "$1/test.log" || true
}

# steps_of_meson LOG: prints the progress of the compilation, or later of the tests.
steps_of_meson() {
	sed -n -E 's,^\[([0-9]+)/([0-9]+)\].*,\1 of \2 steps,p; s,^ *([0-9]+)/([0-9]+) .*,\1 of \2 tests,p' "$1" | tail -n 1
}

# run_unit_suite NAME...: runs all tests under the address sanitizer. Those of the transport core do not run without it, because
# the guest tests run this core without a sanitizer. The tests with threads also run under the thread sanitizer. With
# PEAL_THOROUGH all tests run in each way.
run_unit_suite() {
	local all="unit proto" plain=unit threads=tsan
	if [[ ${PEAL_THOROUGH:-} ]]; then
		plain=$all
		threads="$all tsan"
	fi
	have_userspace || return 0
	run_variant user "$plain" "$@"
	run_variant asan "$all" "$@"
	run_variant tsan "$threads" "$@"
}
