#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 180
# run: long
#
# SCSI over RDMA: the kernel's target (ib_srpt) and initiator (ib_srp) work over peal, both ends on one device. Data that
# depend on their position are written and read back, through queues of requests of many sizes and through a file system.
# The initiator logs out and in again. The device is removed under load and made again.
# It does not cover two machines: see with_rxe.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
# shellcheck source=test/guest/helpers/srp.sh
source "$(dirname "$0")/../helpers/srp.sh"
block_data=$(dirname "$0")/../../../build/user/test/guest/block_data
[[ ${PEAL_DEV:-peal0} == peal0 ]] || skip "only peal0 is tested"
[[ -x $block_data ]] || skip "the helper 'block_data' is not built"
require mkfs.ext4
address=10.77.0.1
size=64
rounds=5
thorough && rounds=50
work=$(mktemp -d)

clean_up() {
	umount "$work/mnt"
	srp_clean_up
	rm -rf "$work"
} >/dev/null 2>&1

connect() { srp_connect peal0 "$(srp_identifier)" $address; }

srp_load $size
trap clean_up EXIT
peal_up peal0
srp_make_target peal0 $address

direct_before=$(counter peal0 direct_messages)
wire_before=$(counter peal0 wire_messages)
connect
SECONDS=0
"$block_data" write "$srp_disk" $size 1 4 || fail "writing"
echo "ok: wrote $size MiB in $SECONDS s"
SECONDS=0
"$block_data" check "$srp_disk" $size 1 2 || fail "reading"
echo "ok: read $size MiB in $SECONDS s"
"$block_data" check /dev/ram0 $size 1 || fail "the target's disk"

direct=$(($(counter peal0 direct_messages) - direct_before))
wire=$(($(counter peal0 wire_messages) - wire_before))
if [[ ${PEAL_TRANSPORT:-direct} == wire ]]; then
	((wire > 1000)) || fail "expected messages on the wire, got $wire"
else
	((direct > 1000)) || fail "expected messages on the direct path, got $direct"
fi

mkdir "$work/mnt"
mkfs.ext4 -q -F "$srp_disk" && mount "$srp_disk" "$work/mnt" || fail "no file system"
"$block_data" write "$work/mnt/file" 16 77 || fail "writing a file"
cp -r /etc/default "$work/mnt/" || fail "copying files"
umount "$work/mnt"
for ((round = 0; round < rounds; round++)); do
	srp_disconnect
	connect
	mount "$srp_disk" "$work/mnt" || fail "the file system is gone in round $round"
	"$block_data" check "$work/mnt/file" 4 77 || fail "reading a file in round $round"
	umount "$work/mnt"
done
mount "$srp_disk" "$work/mnt" || fail "the file system is gone"
"$block_data" check "$work/mnt/file" 16 77 || fail "reading a file"
diff -r /etc/default "$work/mnt/default" || fail "copied files differ"
umount "$work/mnt"
echo "ok: logged in $rounds times, with a file system"

# Both ends lose the device. The writer gets an error, or ends because its disk is gone.
"$block_data" write "$srp_disk" $size 3 2 "$work/ready" 2>"$work/writer" &
writer=$!
wait_for test -e "$work/ready" || fail "the writer does not write"
peal_down peal0
wait "$writer"
status=$?
((status == 2)) || fail "expected the writer to get an error, got $status: $(<"$work/writer")"
wait_gone test -e "/sys/block/${srp_disk##*/}" || fail "the disk outlived its device"
srp_remove_target
echo "ok: device removed under load"

peal_up peal0
srp_make_target peal0 $address
connect
"$block_data" write "$srp_disk" 4 9 2 && "$block_data" check "$srp_disk" 4 9 || fail "after the removal"
srp_disconnect
echo "ok: works again"
