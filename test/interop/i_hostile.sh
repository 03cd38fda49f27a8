#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 2100
#
# The tests in which programs and administrators do their worst, for minutes each: PEAL_FUZZ_SECONDS (180) of
# scribbling and as much of wrong calls, with an innocent program's rate beside them, and of fields that change while they
# are used; PEAL_STORM_SECONDS (60) of each kind of storm. Half an hour of the first two: PEAL_FUZZ_SECONDS=900.
set -u
programs=$(dirname "$0")/../../build/user/test/guest
export PEAL_FUZZ_SECONDS=${PEAL_FUZZ_SECONDS:-180} PEAL_STORM_SECONDS=${PEAL_STORM_SECONDS:-60}
status=0

for test in scribbled_rings random_calls fields_change_in_use random_objects random_administrator; do
	echo "--- $test"
	"$programs/$test" || status=1
done
exit "$status"
