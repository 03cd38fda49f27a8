# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Counts the tests that passed, failed and were skipped, and prints a line for each and one for all. Runs nothing.

passed=0
failed=0
skipped=0

# Each takes a name. pass also takes the time, and skip the reason.
pass() {
	passed=$((passed + 1))
	echo "PASS $1${2:+ ($2 s)}"
}

fail() {
	failed=$((failed + 1))
	echo "FAIL $1"
}

skip() {
	skipped=$((skipped + 1))
	echo "SKIP $1: $2"
}

# summary: prints the closing line, and fails when a test failed.
summary() {
	echo "$passed passed, $failed failed, $skipped skipped"
	((failed == 0))
}
