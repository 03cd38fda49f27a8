# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Counts what passed, failed and was skipped, prints a line for each and one for all. Runs nothing.

passed=0
failed=0
skipped=0

# The three take a name and, in the way each needs it, more: time, nothing, reason.
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

# summary: the closing line; fails when something failed.
summary() {
	echo "$passed passed, $failed failed, $skipped skipped"
	((failed == 0))
}
