#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 2100
#
# The hostile tests and the random administrator run for minutes each. Scribbling, wrong calls and fields that change in
# use take PEAL_FUZZ_SECONDS (180) each. An innocent program's rate is measured beside the first two. Each kind of storm
# takes PEAL_STORM_SECONDS (60). PEAL_FUZZ_SECONDS=900 makes half an hour of the first two.
set -u
programs=$(dirname "$0")/../../build/guest/test/guest
export PEAL_FUZZ_SECONDS=${PEAL_FUZZ_SECONDS:-180} PEAL_STORM_SECONDS=${PEAL_STORM_SECONDS:-60}
status=0

for test in scribbled_rings random_calls fields_change_in_use random_objects random_administrator; do
	echo "--- $test"
	"$programs/$test" || status=1
done
exit "$status"
