#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 60
# run: long
#
# A device without traffic uses no CPU. The test reads the scheduler's figures of the device's engine thread. The thread
# does not run at all, with and without programs that have the device open.
# It does not look at what happens under load.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}
traffic=$(helper traffic) || skip "$traffic"

engine=$(pgrep -x "$device-engine") || fail "expected a thread named $device-engine, there is none"

sleeps() { [[ $(sed -E 's/.*\) ([A-Z]).*/\1/' "/proc/$engine/stat") == [SI] ]]; }

# Prints the thread's time on the CPU in ns, and how often it was scheduled.
runs() { awk '{ print $1, $3 }' "/proc/$engine/schedstat"; }

# check WHEN: measures five seconds.
check() {
	local before after
	wait_for sleeps || fail "expected the engine to sleep $1, its state is $(cat "/proc/$engine/stat")"
	before=$(runs)
	sleep 5
	after=$(runs)
	echo "$1: CPU time and runs $before, 5 s later $after"
	[[ $before == "$after" ]] || fail "expected the engine not to run $1"
}

check "with no program"
start_traffic "$device" --idle
check "with an idle program"
kill "$program"
wait "$program" 2>/dev/null
exit 0
