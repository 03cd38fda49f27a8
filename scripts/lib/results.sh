# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Counts the tests that passed, failed and were skipped, prints a line for each and one for all, and shows where the time
# went. Runs nothing.

passed=0
failed=0
skipped=0
# Lines "SECONDS NAME": of the tests, and of the phases of this run.
durations=
phases=

# Each takes a name. pass also takes the time, and skip the reason.
pass() {
	passed=$((passed + 1))
	echo "PASS $1${2:+ ($2 s)}"
	[[ -z ${2:-} ]] || took "$2" "$1"
}

# took SECONDS TEST
took() { durations+="$1 $2"$'\n'; }

# phase NAME COMMAND...: notes how long the command took.
phase() {
	local name=$1 begin=$SECONDS
	shift
	"$@"
	phases+="$((SECONDS - begin)) $name"$'\n'
}

# show_times: the ten longest tests, and the phases.
show_times() {
	[[ -z $durations ]] || say "longest tests: $(sort -rg <<<"$durations" | listed 10)"
	[[ -z $phases ]] || say "phases: $(listed 20 <<<"$phases"), together $SECONDS s"
}

# listed COUNT: such lines, in one.
listed() { awk -v count="$1" 'NF && n++ < count { $1 = $1 " s"; printf "%s%s", (n > 1 ? ", " : ""), $0 }'; }

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
	show_times
	echo "$passed passed, $failed failed, $skipped skipped"
	((failed == 0))
}
