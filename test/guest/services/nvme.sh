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
block_data=$(dirname "$0")/../../../build/user/test/guest/block_data
[[ ${PEAL_DEV:-peal0} == peal0 ]] || skip "only peal0 is tested"
[[ -x $block_data ]] || skip "the helper 'block_data' is not built"
require mkfs.ext4
address=10.77.0.1
size=256
rounds=10
thorough && rounds=50
work=$(mktemp -d)
nvmet=/sys/kernel/config/nvmet
subsystem=$nvmet/subsystems/peal
disk=

modprobe -a nvmet_rdma nvme_rdma 2>/dev/null || skip "the kernel has no NVMe over RDMA"
modprobe brd rd_nr=1 rd_size=$((size * 1024)) || skip "the kernel has no RAM disk"
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config || fail "no configfs"

# The port listens on peal0's address as long as the subsystem is linked to it.
port_on() { ln -s "$subsystem" $nvmet/ports/1/subsystems/peal; }
port_off() { rm -f $nvmet/ports/1/subsystems/peal; }

make_target() {
	mkdir -p "$subsystem/namespaces/1" $nvmet/ports/1
	echo 1 >"$subsystem/attr_allow_any_host"
	echo -n /dev/ram0 >"$subsystem/namespaces/1/device_path"
	echo 1 >"$subsystem/namespaces/1/enable" || fail "the target does not take /dev/ram0"
	echo rdma >$nvmet/ports/1/addr_trtype
	echo ipv4 >$nvmet/ports/1/addr_adrfam
	echo $address >$nvmet/ports/1/addr_traddr
	echo 4420 >$nvmet/ports/1/addr_trsvcid
	port_on || fail "the target does not listen"
}

# connect: sets $disk.
connect() {
	local answer=
	exec {fabrics}<>/dev/nvme-fabrics
	echo -n "transport=rdma,traddr=$address,trsvcid=4420,nqn=peal,nr_io_queues=2,queue_size=32,ctrl_loss_tmo=5" >&$fabrics ||
		fail "cannot connect: $(dmesg | tail -n 3)"
	read -r answer <&$fabrics
	exec {fabrics}>&-
	[[ $answer =~ instance=([0-9]+) ]] || fail "expected the number of a controller, got '$answer'"
	controller=/sys/class/nvme/nvme${BASH_REMATCH[1]}
	wait_for find_disk || fail "no disk appeared: $(ls "$controller")"
}

# The namespace may have a number of its own with multipath.
find_disk() {
	local path
	for path in "$controller"/nvme*n1 /sys/class/nvme-subsystem/nvme-subsys*/nvme*n1; do
		[[ ${path##*/} != *c*n* && -b /dev/${path##*/} ]] && disk=/dev/${path##*/} && return
	done
	return 1
}

disconnect() {
	echo 1 >"$controller/delete_controller" || fail "cannot disconnect"
	wait_gone test -e "$controller" || fail "$controller is still there"
}

clean_up() {
	umount "$work/mnt" 2>/dev/null
	for controller in /sys/class/nvme/nvme*/delete_controller; do
		[[ ! -e $controller ]] || echo 1 >"$controller"
	done
	port_off
	rmdir $nvmet/ports/1 2>/dev/null
	echo 0 >"$subsystem/namespaces/1/enable"
	rmdir "$subsystem/namespaces/1" "$subsystem"
	rmmod nvme_rdma nvmet_rdma brd
	rm -rf "$work"
} 2>/dev/null
trap clean_up EXIT

peal_up peal0
make_target
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
mkfs.ext4 -q -F "$disk" && mount "$disk" "$work/mnt" || fail "no file system"
"$block_data" write "$work/mnt/file" 64 77 || fail "writing a file"
cp -r /etc/udev /etc/default "$work/mnt/" || fail "copying files"
umount "$work/mnt"
disconnect
connect
mount "$disk" "$work/mnt" || fail "the file system is gone"
"$block_data" check "$work/mnt/file" 64 77 || fail "reading a file"
diff -r /etc/default "$work/mnt/default" || fail "copied files differ"
umount "$work/mnt"
echo "ok: file system"

# Both ends lose the device. The writer gets an error, or ends because its disk is gone.
"$block_data" write "$disk" $size 3 2 "$work/ready" 2>"$work/writer" &
writer=$!
wait_for test -e "$work/ready" || fail "the writer does not write"
peal_down peal0
wait "$writer"
status=$?
((status == 2)) || fail "expected the writer to get an error, got $status: $(<"$work/writer")"
wait_gone test -e "$controller" || fail "the controller outlived its device"
echo "ok: device removed under load"

port_off
peal_up peal0
port_on || fail "the target does not listen again"
connect
"$block_data" write "$disk" 4 9 2 && "$block_data" check "$disk" 4 9 || fail "after the removal"
disconnect
echo "ok: works again"
