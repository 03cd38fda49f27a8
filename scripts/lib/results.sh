# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Counts the tests that passed, failed and were skipped. It prints a line for each test, a line with the sums, and the
# longest tests and phases.

# Lines "PASS NAME", "FAIL NAME", "SKIP NAME", "TIME SECONDS TEST" and "PHASE SECONDS NAME". They are in a file, so that
# suites which run side by side can share it.
recorded=$(mktemp)
trap 'rm -f "$recorded"' EXIT

record() { printf '%s\n' "$*" >>"$recorded"; }

# pass NAME [SECONDS]
pass() {
	record PASS "$1"
	echo "PASS $1${2:+ ($2 s)}"
	[[ -z ${2:-} ]] || record TIME "$2" "$1"
}

fail() {
	record FAIL "$1"
	echo "FAIL $1"
}

# skip NAME REASON
skip() {
	record SKIP "$1"
	echo "SKIP $1: $2"
}

# ticks: prints for how long this host's processors have worked, and for how long they have had nothing to do.
ticks() { awk '$1 == "cpu" { print $2 + $3 + $4 + $7 + $8 + $9, $5 + $6 }' /proc/stat; }

# busy SINCE: prints how busy they have been since then.
busy() { echo "$1 $(ticks)" | awk '{ printf "%d %% busy", 100 * ($3 - $1) / ($3 - $1 + $4 - $2 + 1) }'; }
first_ticks=$(ticks)

# phase NAME COMMAND...: runs the command and records its duration.
phase() {
	local name=$1 begin=$SECONDS since
	since=$(ticks)
	shift
	"$@"
	record PHASE "$((SECONDS - begin))" "$name ($(busy "$since"))"
}

# recorded_as WORD: prints how many lines there are.
recorded_as() { grep -c "^$1 " "$recorded" || true; }

# listed WORD COMMAND...: prints the lines "WORD SECONDS NAME", as the command leaves them, as one line.
listed() { sed -n -E "s/^$1 ([^ ]+) /\1 s /p" "$recorded" | "${@:2}" | sed -n 1,10p | paste -s -d ';' | sed 's/;/, /g'; }

# summary: prints the last lines of the run, and fails if a test failed.
summary() {
	local longest phases
	longest=$(listed TIME sort -rg)
	phases=$(listed PHASE cat)
	[[ -z $longest ]] || say "longest tests: $longest"
	[[ -z $phases ]] || say "phases: $phases, together $SECONDS s ($(busy "$first_ticks"))"
	echo "$(recorded_as PASS) passed, $(recorded_as FAIL) failed, $(recorded_as SKIP) skipped"
	(($(recorded_as FAIL) == 0))
}
