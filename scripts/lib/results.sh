# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Counts the tests that passed, failed and were skipped. It prints a line for each test, a line with the sums, and the
# longest tests and phases.

passed=0
failed=0
skipped=0
# Lines "SECONDS NAME" for the tests and for the phases of this run.
durations=
phases=

# pass NAME [SECONDS]
pass() {
	passed=$((passed + 1))
	echo "PASS $1${2:+ ($2 s)}"
	[[ -z ${2:-} ]] || took "$2" "$1"
}

# took SECONDS TEST
took() { durations+="$1 $2"$'\n'; }

# phase NAME COMMAND...: runs the command and records its duration.
phase() {
	local name=$1 begin=$SECONDS
	shift
	"$@"
	phases+="$((SECONDS - begin)) $name"$'\n'
}

show_times() {
	[[ -z $durations ]] || say "longest tests: $(sort -rg <<<"$durations" | listed 10)"
	[[ -z $phases ]] || say "phases: $(listed 20 <<<"$phases"), together $SECONDS s"
}

# listed COUNT: joins the first COUNT lines "SECONDS NAME" to one line.
listed() { awk -v count="$1" 'NF && n++ < count { $1 = $1 " s"; printf "%s%s", (n > 1 ? ", " : ""), $0 }'; }

fail() {
	failed=$((failed + 1))
	echo "FAIL $1"
}

# skip NAME REASON
skip() {
	skipped=$((skipped + 1))
	echo "SKIP $1: $2"
}

# summary: prints the last lines of the run, and fails if a test failed.
summary() {
	show_times
	echo "$passed passed, $failed failed, $skipped skipped"
	((failed == 0))
}
