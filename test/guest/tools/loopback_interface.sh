#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 120
# run: long
# transport: direct, thorough wire
#
# A device on the loopback interface serves programs of a machine, or of a container, that has no other interface. Its GIDs
# are the interface's addresses, also those that it gets later. All kinds of queue pairs carry data. In a network namespace
# the device follows the interface, which is down at first. The connection manager refuses loopback addresses at once.
# It does not look at rates, and not at packets.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=lo-${2:-here}
port=18900
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
require ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ib_write_bw rdma rping

# gid_of ADDRESS: prints the index of the RoCE v2 GID, which is written as the kernel writes GIDs.
gid_of() {
	local file index line
	for file in "/sys/class/infiniband/$device/ports/1/gids/"*; do
		index=${file##*/}
		first_line "$file" && [[ $line == "$1" ]] || continue
		first_line "/sys/class/infiniband/$device/ports/1/gid_attrs/types/$index" && [[ $line == "RoCE v2" ]] || continue
		echo "$index" && return
	done
	return 1
}

# gid4 LAST-GROUPS: the GID of an IPv4 address, for example gid4 7f00:0001.
gid4() { gid_of "0000:0000:0000:0000:0000:ffff:$1"; }
gid6() { gid_of 0000:0000:0000:0000:0000:0000:0000:0001; }

# both TOOL ARGUMENT...: server and client must succeed.
both() {
	port=$((port + 1))
	start_server "$port" timeout "$(limit 30)" "$@" -p "$port" >"$work/server" 2>&1
	timeout "$(limit 30)" "$@" -p "$port" 127.0.0.1 >"$work/client" 2>&1 || fail "client of $*: $(<"$work/client")"
	wait "$server" || fail "server of $*: $(<"$work/server")"
	# Only the server of a ping-pong compares the data, and it exits with 0 if they are wrong.
	! grep -qi "invalid data" "$work/client" "$work/server" || fail "$*: $(<"$work/server")"
	echo "ok: $*"
}

# use_it: moves data of all kinds of queue pairs, and looks which path it took.
use_it() {
	local packets index line
	wait_for gid4 7f00:0001 || fail "no GID for 127.0.0.1: $(device_state "$device")"
	wait_for gid6 || fail "no GID for ::1"
	wait_for port_active "$device" || fail "$device is not active"
	packets=$(counter "$device" packets_sent)
	for index in $(gid4 7f00:0001) $(gid6); do
		both ibv_rc_pingpong -d "$device" -g "$index" -c -n 100 -m 4096 -s 20000
	done
	# Other namespaces than the initial one have no counters in sysfs.
	if [[ ! $packets ]]; then
		:
	elif [[ $PEAL_TRANSPORT == wire ]]; then
		(($(counter "$device" packets_sent) >= packets + 1000)) || fail "the connections did not use packets"
	else
		(($(counter "$device" packets_sent) == packets)) || fail "the connections used packets"
	fi
	for index in $(gid4 7f00:0001) $(gid6); do
		both ibv_uc_pingpong -d "$device" -g "$index" -c -n 100
		both ibv_ud_pingpong -d "$device" -g "$index" -c -n 100 -s 1000
	done
	both ib_write_bw -d "$device" -x "$(gid4 7f00:0001)" -n 100 -s 65536
}

# Runs in a namespace. Its loopback interface is down and has no address yet.
if [[ ${1:-} == inside ]]; then
	rdma link add "$device" type peal netdev lo || fail "no device in the namespace"
	[[ $PEAL_TRANSPORT != wire ]] || direct_off "$device"
	wait_for verbs_node "$device" || fail "$device has no node"
	! port_active "$device" || fail "$device is active while its interface is down"
	! gid4 7f00:0001 || fail "$device has a GID before its interface has the address"
	ip link set lo up
	use_it
	exit 0
fi

peal_up "$device" lo
use_it
guid=$(cat "/sys/class/infiniband/$device/node_guid")

# An address that comes later becomes a GID as well, and its path works.
ip address add 127.0.0.7/8 dev lo
wait_for gid4 7f00:0007 || fail "no GID for an address that was added later"
both ibv_rc_pingpong -d "$device" -g "$(gid4 7f00:0007)" -c -n 100
ip address add fd79::1/128 dev lo
wait_for gid_of fd79:0000:0000:0000:0000:0000:0000:0001 || fail "no GID for an IPv6 address that was added later"

# The core resolves no loopback addresses for RoCE, and says so without a delay.
timeout "$(limit 30)" rping -c -a 127.0.0.1 -C 1 >"$work/rping" 2>&1
status=$?
((status != 0 && status != 124)) || fail "rdma_cm and 127.0.0.1: $status: $(<"$work/rping")"

# Two containers, each with a device on its own loopback interface.
for name in a b; do
	ip netns add "box-$name" || fail "no namespace"
	ip netns exec "box-$name" "$0" inside "$name" || fail "in the namespace box-$name"
	[[ $(cat "/sys/class/infiniband/lo-$name/node_guid") != "$guid" ]] || fail "two devices have one GUID"
done
for name in a b; do
	ip netns delete "box-$name"
	wait_gone device_exists "lo-$name" || fail "lo-$name outlives its namespace"
done
peal_down "$device"
ip address delete 127.0.0.7/8 dev lo
ip address delete fd79::1/128 dev lo
