#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 1500
#
# The tests in which programs and administrators do their worst, for minutes each: PEAL_FUZZ_SECONDS (180) of
# scribbling and as much of wrong calls, with an innocent program's rate beside them; PEAL_STORM_SECONDS (60) of each
# kind of storm. Half an hour of it: PEAL_FUZZ_SECONDS=900.
set -u
programs=$(dirname "$0")/../../build/user/test/guest
export PEAL_FUZZ_SECONDS=${PEAL_FUZZ_SECONDS:-180} PEAL_STORM_SECONDS=${PEAL_STORM_SECONDS:-60}
status=0

for test in "$programs/t_trust" "$programs/t_verbs_fuzz" "$programs/t_storm" "$programs/t_link_storm"; do
	echo "--- ${test##*/}"
	"$test" || status=1
done
exit "$status"
