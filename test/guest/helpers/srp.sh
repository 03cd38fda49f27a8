# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# SCSI over RDMA with the kernel's target and initiator, for shell tests that have sourced lib.sh. The target's disk is
# /dev/ram0.

# shellcheck source=test/guest/helpers/block.sh
source "$(dirname "${BASH_SOURCE[0]}")/block.sh"

srp_target=/sys/kernel/config/target
srp_backend=$srp_target/core/iblock_0/peal
srp_port=5555

# srp_load MIB: loads the modules, and makes the RAM disk.
srp_load() {
	modprobe -a ib_srpt ib_srp target_core_iblock sd_mod 2>/dev/null || skip "the kernel has no SRP"
	modprobe brd rd_nr=1 rd_size=$(($1 * 1024)) || skip "the kernel has no RAM disk"
	mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config || fail "no configfs"
	mkdir -p $srp_target/srpt $srp_backend || fail "no target in configfs"
	echo "udev_path=/dev/ram0" >$srp_backend/control
	echo 1 >$srp_backend/enable || fail "the target does not take /dev/ram0"
}

# srp_make_target DEVICE ADDRESS: the target port has the GUID of the device as its name. It admits the initiators that log in
# at ADDRESS, because ib_srpt names an initiator by the address that it connected to.
srp_make_target() {
	local guid group
	guid=$(<"/sys/class/infiniband/$1/node_guid")
	group=$srp_target/srpt/$guid/$guid
	mkdir -p "$group/lun/lun_0" "$group/acls/$2" || fail "no target port $guid: $(dmesg | tail -n 3)"
	ln -s $srp_backend "$group/lun/lun_0/disk" || fail "no disk at the target"
	mkdir "$group/acls/$2/lun_0"
	ln -s "$group/lun/lun_0" "$group/acls/$2/lun_0/disk" || fail "no disk for the initiator"
	echo 1 >"$group/enable" || fail "the target is not enabled"
	echo $srp_port >$srp_target/srpt/discovery_auth/rdma_cm_port || fail "the target does not listen"
}

# srp_remove_target: removes the ports of all devices, also of those that are gone.
srp_remove_target() {
	local group acl
	for group in "$srp_target"/srpt/*:*/*:*; do
		[[ -d $group ]] || continue
		echo 0 >"$group/enable"
		for acl in "$group"/acls/*; do
			rm "$acl/lun_0/disk"
			rmdir "$acl/lun_0" "$acl"
		done
		rm "$group/lun/lun_0/disk"
		rmdir "$group/lun/lun_0" "$group" "${group%/*}"
	done
}

# srp_identifier: prints the target's identifier. It is the GUID of the device that the target's module found first.
srp_identifier() {
	local identifier
	identifier=$(</sys/module/ib_srpt/parameters/srpt_service_guid)
	echo "${identifier#0x}"
}

# srp_log_in DEVICE IDENTIFIER ADDRESS
srp_log_in() {
	echo "id_ext=$2,ioc_guid=$2,dest=$3:$srp_port,queue_size=32" >"/sys/class/infiniband_srp/srp-$1-1/add_target"
} 2>/dev/null

# srp_connect DEVICE IDENTIFIER ADDRESS: sets srp_disk. The initiator removes an old target later than the call returns, and
# refuses a second one until then.
srp_connect() {
	wait_for srp_log_in "$@" || fail "cannot log in: $(dmesg | tail -n 5)"
	wait_for find_scsi_disk || fail "no disk appeared: $(dmesg | tail -n 5)"
	srp_disk=$disk
}

srp_disconnect() {
	srp_log_out || fail "cannot log out"
	wait_gone test -e "/sys/block/${srp_disk##*/}" || fail "$srp_disk is still there"
}

srp_log_out() {
	local path
	for path in /sys/class/srp_remote_ports/port-*; do
		[[ ! -e $path/delete ]] || echo 1 >"$path/delete" || return
	done
}

# Removes the initiator, the target and the modules, whatever is left of them.
srp_clean_up() {
	srp_log_out
	srp_remove_target
	rmdir $srp_target/srpt $srp_backend ${srp_backend%/*}
	rmmod ib_srp ib_srpt brd
} >/dev/null 2>&1
