# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs rdma-core's own test suite. Needs lib.sh.

conformance=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../conformance" && pwd)

# Patterns of tests that may be skipped, besides those of test/conformance/skips.txt.
may_skip=()
# The versions in the title of Documentation/conformance.rst, if that page must have the same totals.
suite_title=

# run_suite TESTS DEVICE COMMAND...: runs a copy of the suite in TESTS, with COMMAND in front. It fails unless each test
# passes, or is skipped for a reason of test/conformance/skips.txt or because of may_skip.
run_suite() {
	local tests=$1 device=$2 gid work
	shift 2
	[[ -e $tests/run_tests.py ]] || skip "the documentation of the package python3-pyverbs is not installed"
	modprobe -a rdma_cm rdma_ucm
	# Some tests want huge pages.
	echo 16 >/proc/sys/vm/nr_hugepages
	gid=$(gid_index "$device") || fail "$device has no IPv4 GID"
	work=$(mktemp -d)
	cp -r "$tests" "$work/tests"
	gunzip "$work"/tests/*.gz
	"$@" "$conformance/run_suite.py" "$work/tests" "$device" "$gid" "$work/result" >"$work/output" 2>&1 || {
		tail -n 40 "$work/output"
		fail "the suite did not end"
	}
	[[ -z ${PEAL_SUITE_RESULT:-} ]] || cp "$work/result" "$PEAL_SUITE_RESULT"
	grep -v -E '^(passed|skipped)' "$work/output"
	grep -E '^(passed|skipped)' "$work/output" | sort -k 2nr | head -n 5
	"$conformance/conformance.py" judge "$work/result" ${suite_title:+--title "$suite_title"} "${may_skip[@]}" ||
		fail "the list above"
}
