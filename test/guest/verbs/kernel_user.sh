#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Kernel users of the verbs work. The test loads a module that is such a user (test/guest/helpers/kmod). The module
# runs its tests while it loads. Those of completion queues that the core polls run again with one CPU offline, and with slow
# completions ("peal fault"). A message that an administrator makes fail is an error to it.
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

# Faults on demand hit a kernel user as they hit a program.
require_tool
restore() {
	rmmod peal_kfail
	[[ ! -e $last ]] || echo 1 >"$last"
	peal_down
	peal_up
}
trap restore EXIT
peal_down
peal link add peal0 netdev veth0 faults on || fail "cannot make peal0 with faults"
((!wire)) || direct_off peal0
wait_for device_ready peal0
fired() { peal fault show peal0 --json | sed -n 's/.*"fired": \([0-9]*\)/\1/p'; }

peal fault add peal0 slow 1ms every 3 >/dev/null || fail "cannot slow completions down"
run_module polling_only=1
(($(fired) > 0)) || fail "no completion of the kernel user was slow"
peal fault del peal0
peal fault add peal0 status general-err count 1 >/dev/null || fail "cannot make a message fail"
! modprobe peal_ktest wire=$wire 2>/dev/null || fail "the kernel user did not see the error"
(($(fired) == 1)) || fail "the fault fired $(fired) times"
peal why | grep -q 'an administrator asked for this error by "peal fault"' || fail "no error of the kernel user: $(peal why)"
peal fault del peal0
run_module polling_only=1
