#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 180
# run: long
# transport: any
#
# The peer netdev and this host send frames of every shape, right and wrong (wire_drop.py). Each frame is taken, or is
# dropped and counted with its reason, or is left to its other receiver. No queue pair is connected, because other tests
# show what a connected one does with packets.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}
require ibv_rc_pingpong rdma ip

ip link set veth0 mtu 9000 && ip link set veth1 mtu 9000 || fail "cannot set the MTU"
ip link add link veth0 name veth0.5 type vlan id 5 || skip "this kernel has no VLANs"
ip address add 10.77.5.1/24 dev veth0.5
ip address add fd77:5::1/64 dev veth0.5 nodad
ip link set veth0.5 up
ip link add peal-other type dummy && ip address add 10.78.0.1/24 dev peal-other && ip link set peal-other up

# The host can answer the frames.
peer=$(</sys/class/net/veth1/address)
ip neighbour replace 10.77.0.2 lladdr "$peer" nud permanent dev veth0 &&
	ip neighbour replace fd77::2 lladdr "$peer" nud permanent dev veth0 || fail "cannot make neighbours"

cleanup() {
	ip neighbour del 10.77.0.2 dev veth0
	ip neighbour del fd77::2 dev veth0
	ip link del veth0.5
	ip link del peal-other
	ip link set veth1 mtu 1500
	ip link set veth0 mtu 1500
}
trap cleanup EXIT

# A server that waits for its client already has a queue pair.
start_server 18515 ibv_rc_pingpong -d "$device" -g "$(gid_index "$device")"
qpn=$(rdma resource show qp | sed -n -E "/link $device\//s/.* lqpn ([0-9]+) .*type RC .*/\1/p" | head -n 1)
[[ $qpn ]] || fail "no queue pair is listed: $(rdma resource show qp)"

/usr/bin/python3 "$(dirname "$0")/../helpers/wire_drop.py" "$device" veth0 veth1 "$qpn" || fail "see above"
kill "$server"
wait "$server" 2>/dev/null
[[ -z $(ss -Huan "sport = :4791") ]] || fail "port 4791 is open: $(ss -Huan)"
exit 0
