#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
#   packaged_modules.sh FOLDER
#
# Loads the modules in the folder, makes a device and exchanges messages. scripts/test kernels calls it in a guest on which no
# other module of peal is loaded.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/lib.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[[ ! -e /sys/module/peal ]] || fail "a module is loaded already"
modprobe -a ib_uverbs rdma_ucm || fail "cannot load the RDMA core"
for module in peal_kick_file peal; do
	depends=$(modinfo -F depends "$1/$module.ko") || fail "$1/$module.ko is no module"
	for other in ${depends//,/ }; do
		[[ $other == peal* ]] || modprobe "$other" || fail "cannot load $other"
	done
	insmod "$1/$module.ko" || fail "cannot load $module.ko"
	[[ $(<"/sys/module/$module/srcversion") == "$(modinfo -F srcversion "$1/$module.ko")" ]] || fail "another $module is loaded"
done
interface_up
peal link add peal0 netdev veth0 || fail "cannot make peal0"
wait_for device_ready peal0 || fail "peal0 is not ready: $(device_state peal0)"
gid=$(gid_index peal0)
start_server 18515 ibv_rc_pingpong -d peal0 -g "$gid" -c -n 100 >"$work/server" 2>&1
ibv_rc_pingpong -d peal0 -g "$gid" -c -n 100 127.0.0.1 >"$work/client" 2>&1 || fail "$(<"$work/client")"
wait "$server" || fail "$(<"$work/server")"
! grep -qi "invalid data" "$work/server" "$work/client" || fail "wrong data: $(<"$work/server")"
echo "ok: $(uname -r), $(modinfo -F vermagic "$1/peal.ko")"
