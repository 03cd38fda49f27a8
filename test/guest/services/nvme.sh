#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 240
# run: long
#
# NVMe over RDMA: the kernel's target (nvmet-rdma) and host (nvme-rdma) work over peal, both ends on one device. Data that
# depend on their position are written and read back, through queues of requests of many sizes and through a file system.
# The host disconnects and connects again many times. The device is removed under load and made again.
# It does not cover two machines.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
# shellcheck source=test/guest/helpers/nvme.sh
source "$(dirname "$0")/../helpers/nvme.sh"
block_data=$(dirname "$0")/../../../build/user/test/guest/block_data
[[ ${PEAL_DEV:-peal0} == peal0 ]] || skip "only peal0 is tested"
[[ -x $block_data ]] || skip "the helper 'block_data' is not built"
require mkfs.ext4
address=10.77.0.1
size=256
rounds=50
work=$(mktemp -d)

clean_up() {
	umount "$work/mnt" 2>/dev/null
	nvme_clean_up
	rm -rf "$work"
} 2>/dev/null
trap clean_up EXIT

nvme_load $size
peal_up peal0
nvme_make_target $address
direct_before=$(counter peal0 direct_messages)
wire_before=$(counter peal0 wire_messages)
nvme_connect $address
SECONDS=0
"$block_data" write "$nvme_disk" $size 1 4 || fail "writing"
echo "ok: wrote $size MiB in $SECONDS s"
SECONDS=0
"$block_data" check "$nvme_disk" $size 1 2 || fail "reading"
echo "ok: read $size MiB in $SECONDS s"
"$block_data" check /dev/ram0 $size 1 || fail "the target's disk"

direct=$(($(counter peal0 direct_messages) - direct_before))
wire=$(($(counter peal0 wire_messages) - wire_before))
if [[ ${PEAL_TRANSPORT:-direct} == wire ]]; then
	((wire > 1000)) || fail "expected messages on the wire, got $wire"
else
	((direct > 1000)) || fail "expected messages on the direct path, got $direct"
fi

nvme_disconnect
for ((round = 0; round < rounds; round++)); do
	nvme_connect $address
	"$block_data" write "$nvme_disk" 1 "$((round + 2))" 2 && "$block_data" check "$nvme_disk" 1 "$((round + 2))" ||
		fail "round $round"
	nvme_disconnect
done
echo "ok: connected $rounds times"

nvme_connect $address
mkdir "$work/mnt"
mkfs.ext4 -q -F "$nvme_disk" && mount "$nvme_disk" "$work/mnt" || fail "no file system"
"$block_data" write "$work/mnt/file" 64 77 || fail "writing a file"
cp -r /etc/udev /etc/default "$work/mnt/" || fail "copying files"
umount "$work/mnt"
nvme_disconnect
nvme_connect $address
mount "$nvme_disk" "$work/mnt" || fail "the file system is gone"
"$block_data" check "$work/mnt/file" 64 77 || fail "reading a file"
diff -r /etc/default "$work/mnt/default" || fail "copied files differ"
umount "$work/mnt"
echo "ok: file system"

# Both ends lose the device. The writer gets an error, or ends because its disk is gone.
"$block_data" write "$nvme_disk" $size 3 2 "$work/ready" 2>"$work/writer" &
writer=$!
wait_for test -e "$work/ready" || fail "the writer does not write"
peal_down peal0
wait "$writer"
status=$?
((status == 2)) || fail "expected the writer to get an error, got $status: $(<"$work/writer")"
wait_gone test -e "$nvme_controller" || fail "the controller outlived its device"
echo "ok: device removed under load"

nvme_port_off
peal_up peal0
nvme_port_on || fail "the target does not listen again"
nvme_connect $address
"$block_data" write "$nvme_disk" 4 9 2 && "$block_data" check "$nvme_disk" 4 9 || fail "after the removal"
nvme_disconnect
echo "ok: works again"
