#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 60
# transport: direct
#
# peal's works run while memory is short, because storage may depend on them. The test checks that each workqueue of
# peal has a rescuer thread (WQ_MEM_RECLAIM), which runs works when no other thread can be made.
# It does not make memory short.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}

# A thread's name has 15 characters. Newer kernels put a prefix before the workqueue's name.
has_rescuer() { pgrep -x "${1:0:15}" >/dev/null || pgrep -x "kworker/R-${1:0:5}.*" >/dev/null; }

for queue in peal "peal-$device-cpu"; do
	has_rescuer "$queue" || fail "expected the workqueue $queue to have a rescuer, it has none"
done
[[ -w /sys/devices/virtual/workqueue/peal/nice ]] || fail "expected an administrator to choose the nice value of peal's works"
exit 0
