#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: direct, thorough wire
# timeout: 180
# run: long
#
# iSCSI over RDMA: the kernel's target (ib_isert) and initiator (ib_iser, with open-iscsi's daemon) work over peal, both
# ends on one device. Data that depend on their position are written and read back, through queues of requests of many
# sizes and through a file system. The initiator logs out and in again.
# It does not cover two machines, nor a device that is removed meanwhile. The session survives that and continues when the
# device is back, but then iscsiadm cannot log out ("could not read session targetname"), so the disk would stay for later
# tests.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
# shellcheck source=test/guest/helpers/block.sh
source "$(dirname "$0")/../helpers/block.sh"
block_require
require iscsid iscsiadm
address=10.77.0.1
portal=$address:3260
name=iqn.2026-01.test.peal:disk
size=64
rounds=3
thorough && rounds=50
work=$(mktemp -d)
target=/sys/kernel/config/target
backend=$target/core/iblock_0/peal
group=$target/iscsi/$name/tpgt_1

modprobe -a iscsi_target_mod ib_isert ib_iser target_core_iblock sd_mod 2>/dev/null || skip "the kernel has no iSER"
modprobe brd rd_nr=1 rd_size=$((size * 1024)) || skip "the kernel has no RAM disk"
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config || fail "no configfs"

make_target() {
	mkdir -p $target/iscsi "$backend" || fail "no target in configfs"
	echo "udev_path=/dev/ram0" >"$backend/control"
	echo 1 >"$backend/enable" || fail "the target does not take /dev/ram0"
	mkdir -p "$group/lun/lun_0" "$group/np/$portal" || fail "no target: $(dmesg | tail -n 3)"
	ln -s "$backend" "$group/lun/lun_0/disk" || fail "no disk at the target"
	echo 1 >"$group/attrib/generate_node_acls"
	echo 0 >"$group/attrib/demo_mode_write_protect"
	echo 0 >"$group/attrib/authentication"
	echo 1 >"$group/np/$portal/iser" || fail "the target does not listen with RDMA: $(dmesg | tail -n 3)"
	echo 1 >"$group/enable" || fail "the target is not enabled"
}

remove_target() {
	echo 0 >"$group/enable"
	rm "$group/lun/lun_0/disk"
	rmdir "$group/np/$portal" "$group/lun/lun_0" "$group" "${group%/*}" "$backend" "${backend%/*}"
}

iscsi() { iscsiadm -m node -T $name -p $portal "$@" >"$work/iscsiadm" 2>&1; }

connect() {
	iscsi --login || fail "cannot log in: $(<"$work/iscsiadm") $(dmesg | tail -n 5)"
	wait_for find_scsi_disk || fail "no disk appeared: $(dmesg | tail -n 5)"
}

disconnect() {
	iscsi --logout || fail "cannot log out: $(<"$work/iscsiadm")"
	wait_gone test -e "/sys/block/${disk##*/}" || fail "$disk is still there"
}

clean_up() {
	umount "$work/mnt"
	iscsi --logout
	kill "$(</run/iscsid.pid)"
	remove_target
	rmmod ib_iser ib_isert brd
	rm -rf "$work"
} >/dev/null 2>&1
trap clean_up EXIT

peal_up peal0
make_target
mkdir -p /run/lock/iscsi
iscsid || fail "iscsid does not start"
iscsiadm -m node -o new -T $name -p $portal,1 -I iser >"$work/iscsiadm" 2>&1 || fail "iscsiadm: $(<"$work/iscsiadm")"

block_move $size
mkdir "$work/mnt"
block_file_system "$work/mnt" 16 $rounds
disconnect
