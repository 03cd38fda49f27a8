#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: any
# timeout: 60
#
# Tools find the netdev of a device below device/net/ in sysfs, also when the netdev has no parent of its own. The link has the
# present name of the netdev, and only the netdev's namespace sees it. Beside it are the files by which programs place their
# threads, and a path that programs do not take for another port of the same card.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
before=$(ls /sys/devices/peal 2>/dev/null)

# netdevs DEVICE: prints the names below device/net/, in this namespace or in that of the command in $within.
within=()
netdevs() { "${within[@]}" ls "/sys/class/infiniband/$1/device/net/" | tr '\n' ' '; }
shows() { [[ $(netdevs "$1") == "${2:+$2 }" ]]; }

ip link add sys0 type veth peer name sys1
rdma link add peal-sys type peal netdev sys0 || fail "cannot make a device"
shows peal-sys sys0 || fail "expected sys0, got: $(netdevs peal-sys)"
[[ $(readlink -f /sys/class/infiniband/peal-sys/device/net/sys0) == "$(readlink -f /sys/class/net/sys0)" ]] ||
	fail "the link leads to $(readlink -f /sys/class/infiniband/peal-sys/device/net/sys0)"
wait_for verbs_node peal-sys
node=$(verbs_node peal-sys)
[[ $(readlink -f "/sys/class/infiniband_verbs/${node##*/}/device") == "$(readlink -f /sys/class/infiniband/peal-sys/device)" ]] ||
	fail "the uverbs device has another parent"

# A virtual netdev is near to every processor.
folder=/sys/class/infiniband/peal-sys/device
[[ $(<$folder/numa_node) == -1 ]] || fail "numa_node: $(<$folder/numa_node)"
[[ $(<$folder/local_cpulist) == "$(</sys/devices/system/cpu/online)" ]] || fail "local_cpulist: $(<$folder/local_cpulist)"
((0x$(tr -d , <$folder/local_cpus) == (1 << $(nproc --all)) - 1)) || fail "local_cpus: $(<$folder/local_cpus)"

# NCCL joins devices whose paths differ in the last four characters only, because it takes them for ports of one card.
ip link add sys2 type veth peer name sys3
rdma link add peal-sys2 type peal netdev sys2 || fail "cannot make a second device"
paths=("$(readlink -f $folder)" "$(readlink -f /sys/class/infiniband/peal-sys2/device)")
[[ ${paths[1]} != "${paths[0]::-4}"* && ${paths[0]} != "${paths[1]::-4}"* ]] || fail "NCCL joins ${paths[*]}"
rdma link delete peal-sys2
wait_gone device_exists peal-sys2 || fail "peal-sys2 is left"
ip link delete sys2

ip link set sys0 name renamed0
shows peal-sys renamed0 || fail "after a new name: $(netdevs peal-sys)"
[[ -e /sys/class/infiniband/peal-sys/device/net/renamed0/address ]] || fail "the link leads nowhere"

# Other namespaces see the device, but not its netdev.
ip netns add other
within=(ip netns exec other)
shows peal-sys "" || fail "another namespace sees $(netdevs peal-sys)"
"${within[@]}" ip link add sys0 type veth peer name sys1
"${within[@]}" rdma link add peal-other type peal netdev sys0 || fail "no device in the namespace"
shows peal-other sys0 || fail "the namespace of the netdev sees $(netdevs peal-other)"
within=()
shows peal-other "" || fail "the initial namespace sees $(netdevs peal-other)"
shows peal-sys renamed0 || fail "after another device: $(netdevs peal-sys)"

# A netdev that moves to another namespace takes the link with it.
parent=$(readlink -f /sys/class/infiniband/peal-sys/device)
ip link set renamed0 netns other
wait_gone device_exists peal-sys || fail "the device outlives its netdev"
[[ ! -e $parent ]] || fail "$parent is left"
rdma link delete peal-other
ip netns delete other
wait_gone device_exists peal-other || fail "peal-other is left"
# The kernel ends a namespace later than the command returns. The pair of the netdev in it goes then.
wait_gone test -e /sys/class/net/sys1 || fail "sys1 outlives the namespace of its peer"

# A device that could not be made leaves nothing.
ip link add sys0 type veth peer name sys1
! rdma link add "0123456789012345678901234567890123456789012345678901234567890123456789" type peal netdev sys0 2>/dev/null ||
	fail "a name that is too long was accepted"
rdma link add peal-sys type peal netdev sys0 && rdma link delete peal-sys || fail "a device after a failure"
ip link delete sys0
[[ $(ls /sys/devices/peal) == "$before" ]] || fail "left over: $(ls /sys/devices/peal), before: $before"
