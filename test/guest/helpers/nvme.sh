# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# NVMe over RDMA with the kernel's target and host, for shell tests that have sourced lib.sh. No program of NVMe is needed.

nvmet=/sys/kernel/config/nvmet
nvme_subsystem=$nvmet/subsystems/peal

# nvme_load MIB: loads the modules, and makes the RAM disk /dev/ram0.
nvme_load() {
	modprobe -a nvmet_rdma nvme_rdma 2>/dev/null || skip "the kernel has no NVMe over RDMA"
	modprobe brd rd_nr=1 rd_size=$(($1 * 1024)) || skip "the kernel has no RAM disk"
	mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config || fail "no configfs"
}

# The port listens as long as the subsystem is linked to it.
nvme_port_on() { ln -s "$nvme_subsystem" $nvmet/ports/1/subsystems/peal; }
nvme_port_off() { rm -f $nvmet/ports/1/subsystems/peal; }

# nvme_make_target ADDRESS: the target serves /dev/ram0.
nvme_make_target() {
	mkdir -p "$nvme_subsystem/namespaces/1" $nvmet/ports/1
	echo 1 >"$nvme_subsystem/attr_allow_any_host"
	echo -n /dev/ram0 >"$nvme_subsystem/namespaces/1/device_path"
	echo 1 >"$nvme_subsystem/namespaces/1/enable" || fail "the target does not take /dev/ram0"
	echo rdma >$nvmet/ports/1/addr_trtype
	echo ipv4 >$nvmet/ports/1/addr_adrfam
	echo "$1" >$nvmet/ports/1/addr_traddr
	echo 4420 >$nvmet/ports/1/addr_trsvcid
	nvme_port_on || fail "the target does not listen"
}

nvme_remove_target() {
	nvme_port_off
	rmdir $nvmet/ports/1 2>/dev/null
	echo 0 >"$nvme_subsystem/namespaces/1/enable"
	rmdir "$nvme_subsystem/namespaces/1" "$nvme_subsystem"
}

# nvme_connect ADDRESS: sets nvme_disk and nvme_controller.
nvme_connect() {
	local answer=
	exec {fabrics}<>/dev/nvme-fabrics
	echo -n "transport=rdma,traddr=$1,trsvcid=4420,nqn=peal,nr_io_queues=2,queue_size=32,ctrl_loss_tmo=5,reconnect_delay=1" >&$fabrics ||
		fail "cannot connect: $(dmesg | tail -n 3)"
	read -r answer <&$fabrics
	exec {fabrics}>&-
	[[ $answer =~ instance=([0-9]+) ]] || fail "expected the number of a controller, got '$answer'"
	nvme_controller=/sys/class/nvme/nvme${BASH_REMATCH[1]}
	wait_for nvme_find_disk || fail "no disk appeared: $(ls "$nvme_controller")"
}

# The namespace may have a number of its own with multipath.
nvme_find_disk() {
	local path
	for path in "$nvme_controller"/nvme*n1 /sys/class/nvme-subsystem/nvme-subsys*/nvme*n1; do
		[[ ${path##*/} != *c*n* && -b /dev/${path##*/} ]] && nvme_disk=/dev/${path##*/} && return
	done
	return 1
}

nvme_disconnect() {
	echo 1 >"$nvme_controller/delete_controller" || fail "cannot disconnect"
	wait_gone test -e "$nvme_controller" || fail "$nvme_controller is still there"
}

# Removes the controllers, the target and the modules, whatever is left of them.
nvme_clean_up() {
	local path
	for path in /sys/class/nvme/nvme*/delete_controller; do
		[[ ! -e $path ]] || echo 1 >"$path"
	done
	nvme_remove_target
	rmmod nvme_rdma nvmet_rdma brd
} 2>/dev/null
