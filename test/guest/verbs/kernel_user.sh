#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Kernel users of the verbs work. The test loads a module that is such a user (test/guest/helpers/kmod). The module
# runs its tests while it loads. Those of completion queues that the core polls run again with one CPU offline.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
modinfo peal_ktest peal_kfail >/dev/null || fail "peal_ktest.ko and peal_kfail.ko are not built"
modprobe peal_kfail || fail "peal_kfail does not load: $(dmesg | tail -n 1)"
trap 'rmmod peal_kfail' EXIT
wire=0
[[ ${PEAL_TRANSPORT:-direct} != wire ]] || wire=1

run_module() {
	modprobe peal_ktest wire=$wire "$@" ||
		fail "a kernel user's test failed: $(dmesg | grep 'peal_ktest: ' | tail -n 2)"
	rmmod peal_ktest || fail "peal_ktest does not unload"
}

run_module
last=/sys/devices/system/cpu/cpu$(($(nproc --all) - 1))/online
if [[ -e $last ]]; then
	echo 0 >"$last" || fail "cannot take a CPU offline"
	trap 'echo 1 >"$last"; rmmod peal_kfail' EXIT
	run_module polling_only=1
fi
