# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs the tests that need no kernel module: meson's suite "unit" and, under the thread sanitizer, "tsan". It knows the tests
# from meson and has no list of its own.
# Needs common.sh, build.sh and results.sh.

# variant_arguments VARIANT: how meson sets build/VARIANT up. With the sanitizers the compiler takes longer than the tests, and
# much longer when it optimizes more. The address sanitizer finds at least as much in C++ that is not optimized; C files compile
# quickly and are where the tests spend their time.
variant_arguments() {
	local common="${user_arguments[*]}"
	case $1 in
	user) echo "$common" ;;
	asan) echo "$common -Doptimization=0 -Dc_args=-O1 -Db_sanitize=address,undefined -Db_lundef=false" ;;
	tsan) echo "$common -Doptimization=1 -Db_sanitize=thread -Db_lundef=false" ;;
	esac
}

# chosen_tests FOLDER SUITES NAME...: the names of the tests of these suites that match one of the names.
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

# report_log VARIANT: prints a line for each test that meson has run and counts it.
report_log() {
	local log=$build/$1/meson-logs/testlog.json result name seconds
	while IFS=$'\t' read -r result name seconds; do
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
}

# tests_output LOG NAME: the end of what a test printed.
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
	# The list of tests is the one of the last configuration: bring that up to date first.
	quietly ninja -C "$folder" build.ninja || die "meson could not set up $folder again"
	mapfile -t tests < <(chosen_tests "$folder" "$suites" "$@")
	((${#tests[@]})) || return 0
	# meson builds what these tests need, then runs them.
	# The thread sanitizer of gcc 12 cannot run where the kernel spreads mappings widely.
	rm -f "$folder/meson-logs/testlog.json"
	with_progress "building and running the unit tests ($variant)" steps_of_meson \
		with_lock "$variant" run_meson "$folder" "${tests[@]}"
	if [[ -s $folder/meson-logs/testlog.json ]]; then
		report_log "$variant"
	else
		fail "$variant/build"
		tail -n 40 "$folder/test.log" | sed 's/^/    /'
	fi
}

# run_meson FOLDER TEST...: a test that fails is in meson's log.
run_meson() {
	setarch --addr-no-randomize meson test -C "$@" 2>&1 | tee "$1/test.log" || true
}

# steps_of_meson LOG: how far the compiler is, or then the tests.
steps_of_meson() {
	sed -n -E 's,^\[([0-9]+)/([0-9]+)\].*,\1 of \2 steps,p; s,^ *([0-9]+)/([0-9]+) .*,\1 of \2 tests,p' "$1" | tail -n 1
}

# run_suite SUITE NAME...: as it is, then under the address sanitizer. What has threads runs under the thread sanitizer, and
# with PEAL_THOROUGH the rest does, too.
run_suite() {
	local suite=$1 threads=tsan
	[[ -z ${PEAL_THOROUGH:-} ]] || threads="$suite tsan"
	shift
	have_userspace || return 0
	run_variant user "$suite" "$@"
	run_variant asan "$suite" "$@"
	run_variant tsan "$threads" "$@"
}
