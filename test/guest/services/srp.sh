#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 180
# run: long
#
# SCSI over RDMA: the kernel's target (ib_srpt) and initiator (ib_srp) work over peal, both ends on one device. Data that
# depend on their position are written and read back, through queues of requests of many sizes and through a file system.
# The initiator logs out and in again. The device is removed under load and made again.
# It does not cover two machines.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
block_data=$(dirname "$0")/../../../build/user/test/guest/block_data
[[ ${PEAL_DEV:-peal0} == peal0 ]] || skip "only peal0 is tested"
[[ -x $block_data ]] || skip "the helper 'block_data' is not built"
require mkfs.ext4
address=10.77.0.1
port=5555
size=64
rounds=5
thorough && rounds=50
work=$(mktemp -d)
target=/sys/kernel/config/target
backend=$target/core/iblock_0/peal
disk=

modprobe -a ib_srpt ib_srp target_core_iblock sd_mod 2>/dev/null || skip "the kernel has no SRP"
modprobe brd rd_nr=1 rd_size=$((size * 1024)) || skip "the kernel has no RAM disk"
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config || fail "no configfs"

# The target port has the device's GUID as its name, and admits the initiator by its address.
make_target() {
	local group
	guid=$(</sys/class/infiniband/peal0/node_guid)
	group=$target/srpt/$guid/$guid
	mkdir -p "$group/lun/lun_0" "$group/acls/$address" || fail "no target port $guid: $(dmesg | tail -n 3)"
	ln -s "$backend" "$group/lun/lun_0/disk" || fail "no disk at the target"
	mkdir "$group/acls/$address/lun_0"
	ln -s "$group/lun/lun_0" "$group/acls/$address/lun_0/disk" || fail "no disk for the initiator"
	echo 1 >"$group/enable" || fail "the target is not enabled"
}

remove_target() {
	local group=$target/srpt/$guid/$guid
	[[ -d $group ]] || return 0
	echo 0 >"$group/enable"
	rm "$group/acls/$address/lun_0/disk"
	rmdir "$group/acls/$address/lun_0" "$group/acls/$address"
	rm "$group/lun/lun_0/disk"
	rmdir "$group/lun/lun_0" "$group" "$target/srpt/$guid"
}

# The target's identifier is the GUID of the device that its module found first.
log_in() {
	local name
	name=$(</sys/module/ib_srpt/parameters/srpt_service_guid)
	name=${name#0x}
	echo "id_ext=$name,ioc_guid=$name,dest=$address:$port,queue_size=32" >/sys/class/infiniband_srp/srp-peal0-1/add_target
} 2>/dev/null

# connect: sets $disk. The initiator removes an old target later than the call returns, and refuses a second one until then.
connect() {
	wait_for log_in || fail "cannot log in: $(dmesg | tail -n 5)"
	wait_for find_disk || fail "no disk appeared: $(dmesg | tail -n 5)"
}

find_disk() {
	local path
	for path in /sys/block/sd*; do
		[[ -b /dev/${path##*/} ]] && disk=/dev/${path##*/} && return
	done
	return 1
}

disconnect() {
	local path
	for path in /sys/class/srp_remote_ports/port-*; do
		[[ ! -e $path/delete ]] || echo 1 >"$path/delete" || fail "cannot log out"
	done
	wait_gone test -e "/sys/block/${disk##*/}" || fail "$disk is still there"
}

clean_up() {
	local path
	umount "$work/mnt"
	for path in /sys/class/srp_remote_ports/port-*; do
		[[ ! -e $path/delete ]] || echo 1 >"$path/delete"
	done
	remove_target
	rmdir "$backend" "${backend%/*}"
	rmmod ib_srp ib_srpt brd
	rm -rf "$work"
} >/dev/null 2>&1
trap clean_up EXIT

peal_up peal0
mkdir -p "$target/srpt" "$backend" || fail "no target in configfs"
echo "udev_path=/dev/ram0" >"$backend/control"
echo 1 >"$backend/enable" || fail "the target does not take /dev/ram0"
make_target
echo $port >$target/srpt/discovery_auth/rdma_cm_port || fail "the target does not listen"

direct_before=$(counter peal0 direct_messages)
wire_before=$(counter peal0 wire_messages)
connect
SECONDS=0
"$block_data" write "$disk" $size 1 4 || fail "writing"
echo "ok: wrote $size MiB in $SECONDS s"
SECONDS=0
"$block_data" check "$disk" $size 1 2 || fail "reading"
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
mkfs.ext4 -q -F "$disk" && mount "$disk" "$work/mnt" || fail "no file system"
"$block_data" write "$work/mnt/file" 16 77 || fail "writing a file"
cp -r /etc/default "$work/mnt/" || fail "copying files"
umount "$work/mnt"
for ((round = 0; round < rounds; round++)); do
	disconnect
	connect
	mount "$disk" "$work/mnt" || fail "the file system is gone in round $round"
	"$block_data" check "$work/mnt/file" 4 77 || fail "reading a file in round $round"
	umount "$work/mnt"
done
mount "$disk" "$work/mnt" || fail "the file system is gone"
"$block_data" check "$work/mnt/file" 16 77 || fail "reading a file"
diff -r /etc/default "$work/mnt/default" || fail "copied files differ"
umount "$work/mnt"
echo "ok: logged in $rounds times, with a file system"

# Both ends lose the device. The writer gets an error, or ends because its disk is gone.
"$block_data" write "$disk" $size 3 2 "$work/ready" 2>"$work/writer" &
writer=$!
wait_for test -e "$work/ready" || fail "the writer does not write"
peal_down peal0
wait "$writer"
status=$?
((status == 2)) || fail "expected the writer to get an error, got $status: $(<"$work/writer")"
wait_gone test -e "/sys/block/${disk##*/}" || fail "the disk outlived its device"
remove_target
echo "ok: device removed under load"

peal_up peal0
make_target
connect
"$block_data" write "$disk" 4 9 2 && "$block_data" check "$disk" 4 9 || fail "after the removal"
disconnect
echo "ok: works again"
