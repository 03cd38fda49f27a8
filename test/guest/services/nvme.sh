#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 240
# run: long
#
# NVMe over RDMA: the kernel's target (nvmet-rdma) and host (nvme-rdma) work over peal, both ends on one device. Data that
# depend on their position are written and read back, through queues of requests of many sizes and through a file system.
# The host disconnects and connects again many times. The device is removed under load and made again. While the host writes,
# "peal fault" ends its connection, and the host connects again by itself and writes the rest.
# It does not cover two machines.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
# shellcheck source=test/guest/helpers/block.sh
source "$(dirname "$0")/../helpers/block.sh"
# shellcheck source=test/guest/helpers/nvme.sh
source "$(dirname "$0")/../helpers/nvme.sh"
block_require
address=10.77.0.1
size=256
rounds=50
[[ ${PEAL_TRANSPORT:-direct} == direct ]] || thorough || rounds=10
work=$(mktemp -d)

# The tests that run next in this machine get a device without faults.
clean_up() {
	umount "$work/mnt" 2>/dev/null
	nvme_clean_up
	peal_down peal0
	peal_up peal0
	rm -rf "$work"
} 2>/dev/null
trap clean_up EXIT

connect() {
	nvme_connect $address
	disk=$nvme_disk
}

disconnect() { nvme_disconnect; }

nvme_load $size
peal_up peal0
nvme_make_target $address
block_move $size
disconnect

for ((round = 0; round < rounds; round++)); do
	connect
	"$block_data" write "$disk" 1 "$((round + 2))" 2 && "$block_data" check "$disk" 1 "$((round + 2))" ||
		fail "round $round"
	disconnect
done
echo "ok: connected $rounds times"

connect
mkdir "$work/mnt"
block_file_system "$work/mnt" 64 1

block_lose_device $size
wait_gone test -e "$nvme_controller" || fail "the controller outlived its device"
echo "ok: device removed under load"

nvme_port_off
peal link add peal0 netdev veth0 faults on || fail "cannot make peal0 with faults"
peal_up peal0
nvme_port_on || fail "the target does not listen again"
block_works_again

fired() { peal fault show peal0 --json | sed -n 's/.*"fired": \([0-9]*\).*/\1/p'; }
fault_fired() { (($(fired) > 0)); }
connected() { [[ $(<"$nvme_controller/state") == live ]]; }
reconnections() { dmesg | grep -c "Successfully reconnected"; }
reconnected() { (($(reconnections) > before)) && connected; }

# survives FAULT...: the fault ends a connection while the host writes. The host connects again, and all data are right.
survives() {
	local before writer
	before=$(reconnections)
	peal fault add peal0 "$@" >/dev/null || fail "cannot add the fault $*"
	salt=$((salt + 1))
	"$block_data" write "$disk" 16 $salt 2 &
	writer=$!
	wait_for fault_fired || fail "$* hits nothing"
	[[ $* == *count* ]] || wait_gone connected || fail "$* ends no connection"
	peal fault del peal0
	wait_for reconnected || fail "the host did not connect again after $*: $(dmesg | tail -n 5)"
	wait "$writer" || fail "writing while $*"
	"$block_data" check "$disk" 16 $salt 2 && "$block_data" check /dev/ram0 16 $salt || fail "the data after $*"
	echo "ok: connected again after $*"
}

salt=100
require_tool
connect
survives status general-err opcode send every 50 count 1
survives nak rem-access-err opcode read count 1
[[ ${PEAL_TRANSPORT:-} != wire ]] || survives drop
disconnect
