#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Makes and removes what scripts/bench measures, with the helpers of the guest tests. It measures nothing.
#
#   stage.sh device-up KIND NUMBER MTU   one device on a veth pair, for programs that both run on it: "DEVICE GID ADDRESS"
#   stage.sh device-down KIND NUMBER
#   stage.sh wire-up KIND MTU            two devices with a veth pair between them: that line for each end, and its namespace
#   stage.sh wire-delay [DELAY]          delays the packets of each direction, or no longer
#   stage.sh wire-direct                 messages between the two peal devices go direct, if the host allows it
#   stage.sh host-direct [SCOPE]         sets where the host allows the direct path, or prints it
#   stage.sh wire-down
#   stage.sh bottleneck-up               two hosts and a router between them (bottleneck.sh)
#   stage.sh bottleneck MEGABITS MILLISECONDS fifo|red
#   stage.sh bottleneck-down
#
# siw has connections of its own, so its GID is "-".
set -uo pipefail
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../../test/guest/helpers/wire.sh"
# shellcheck source=test/guest/helpers/bottleneck.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../../test/guest/helpers/bottleneck.sh"
trap 'rm -rf "$wire_work"' EXIT
peal=build/user/userspace/tools/peal

device_up() {
	local kind=$1 number=$2 mtu=$3 device=$1_bench gid=- ready=device_ready
	local netdev=bench$((number * 2)) peer=bench$((number * 2 + 1)) address=198.18.$((90 + number)).1
	wire_load "$kind" 2>/dev/null || fail "this kernel has no ${kind/#rxe/rdma_rxe}"
	modprobe -a veth ib_uverbs rdma_ucm 2>/dev/null || fail "this kernel has no veth or no RDMA core"
	ip link add "$netdev" mtu "$mtu" type veth peer name "$peer" mtu "$mtu" || fail "cannot make a veth pair"
	ip address add "$address/24" dev "$netdev"
	ip link set "$peer" up
	ip link set "$netdev" up
	rdma link add "$device" type "$kind" netdev "$netdev" || fail "cannot make $device"
	[[ $kind != siw ]] || ready=port_active
	wait_for "$ready" "$device" || fail "$device is not ready: $(device_state "$device")"
	[[ $kind == siw ]] || gid=$(gid_index "$device")
	echo "$device $gid $address"
}

device_down() {
	rdma link delete "$1_bench" 2>/dev/null
	ip link delete "bench$(($2 * 2))" 2>/dev/null
	true
}

two_devices() {
	local end
	wire_load "$1" 2>/dev/null || fail "this kernel has no ${1/#rxe/rdma_rxe}"
	modprobe veth 2>/dev/null || fail "this kernel has no veth"
	wire_up "$1" "$1" "$2" >&2
	for end in a b; do
		echo "${wire_device[$end]} $(wire_gid "$end" 4) ${wire_tcp[$end]} ${wire_namespace[$end]:--}"
	done
}

# delay [DELAY]: another run of this script has made the wire.
delay() {
	wire_netdev=([a]=wire_a [b]=wire_b)
	[[ ! -e /run/netns/wire_a ]] || wire_namespace=([a]=wire_a [b]=wire_b)
	wire_netem both ${1:+delay "$1"}
}

# Guest tests make a wire for packets, so its devices do not allow the direct path.
allow_direct() {
	local end
	for end in a b; do
		"$peal" link set "peal_$end" direct on || fail "cannot allow peal_$end the direct path"
	done
}

host_direct() {
	if (($#)); then
		"$peal" host set direct "$1" || fail "cannot set where the host allows the direct path"
	else
		"$peal" host show --json | sed -n 's/.*"direct": *"\([a-z]*\)".*/\1/p' | grep . || fail "cannot read the host's direct"
	fi
}

case $1 in
device-up) device_up "${@:2}" ;;
device-down) device_down "${@:2}" ;;
wire-up) two_devices "${@:2}" ;;
wire-direct) allow_direct ;;
host-direct) host_direct "${@:2}" ;;
wire-delay) delay "${@:2}" ;;
wire-down) wire_down ;;
bottleneck-up)
	wire_load peal 2>/dev/null || fail "this machine has no peal"
	bottleneck_up
	;;
bottleneck) bottleneck "${@:2}" ;;
bottleneck-down)
	bottleneck_down
	true
	;;
esac
