#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 240
# run: long
# transport: wire
#
# A device survives changes of the network while programs use it. The test deletes the device's namespace and its VLAN,
# unloads the module while packets wait in a queue, slows the queue down, redirects lo to itself, takes the link down and
# up, and uses rdma_rxe at the same time. After each change the device works again, and no netdev or packet is left
# behind. The programs check the data. The test needs peal, the helper "traffic", ibv_rc_pingpong, ib_write_bw and tc.
# The test does not use a second machine.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
traffic=$(helper traffic) || skip "$traffic"
require ibv_rc_pingpong ib_write_bw tc
scratch=$(mktemp -d)

works() { PEAL_DEV=$1 timeout "$(limit 60)" "$traffic" --messages 100 --size 5000 || fail "$1 does not work: $2"; }

log_is_quiet() { ! dmesg | grep -q 'waiting for .* to become free' || fail "a netdev could not go: $(dmesg | tail -n 3)"; }

# Makes a device in a new namespace. The programs that use it run outside, so that they do not keep the namespace alive.
namespace_up() {
	ip netns add life || fail "cannot make a namespace"
	ip link add life0 netns life type veth peer name life1
	ip -n life link set lo up
	ip -n life address add 10.81.0.1/24 dev life0
	ip -n life link set life0 up
	ip link set life1 up
	ip netns exec life rdma link add peal_life type peal netdev life0 || fail "cannot make the device"
	direct_off peal_life
	wait_for device_ready peal_life || fail "not ready: $(device_state peal_life)"
}

namespace_ends() {
	local round
	for round in 1 2 3; do
		namespace_up
		start_traffic peal_life --until-removed
		ip netns delete life
		wait_for ended "$program" || fail "the program still runs"
		wait "$program" || fail "the program did not end well"
		wait_gone device_exists peal_life || fail "the device outlived its namespace"
		wait_gone ip link show life1 || fail "the namespace's netdev is still there"
	done
	log_is_quiet
	works peal0 "after a namespace with a device ended"
}

# The module is unloaded while packets are in a queue for seconds. Unloading does not wait for these packets, and freeing
# them later does not touch freed memory.
module_leaves_packets() {
	modprobe sch_netem || skip "this kernel has no netem"
	tc qdisc add dev lo root netem delay 4s limit 10000 || fail "cannot delay lo"
	start_traffic peal0 --until-removed
	wait_for packets_wait || fail "no packet is in the queue"
	timed modprobe -r peal
	wait_for ended "$program" || fail "the program still runs"
	wait "$program" || fail "the program did not end well"
	packets_wait || fail "no packet was left behind: $(tc -s qdisc show dev lo)"
	modprobe peal || fail "cannot load the module again"
	WAIT_LIMIT=$(limit 30) wait_for queue_is_empty || fail "the packets stay: $(tc -s qdisc show dev lo)"
	tc qdisc delete dev lo root
	peal_up peal0
	direct_off peal0
	works peal0 "after the module came back"
}

packets_wait() { tc -s qdisc show dev lo | grep -q 'backlog [1-9]'; }

queue_is_empty() { tc -s qdisc show dev lo | grep -q 'backlog 0b 0p'; }

# A VLAN is removed while a queue pair uses its address. The removal does not wait for the queue pair.
vlan_leaves() {
	local index
	ip link add link veth0 name veth0.9 type vlan id 9 && ip address add 10.81.9.1/24 dev veth0.9 &&
		ip link set veth0.9 up || fail "cannot make the VLAN"
	wait_for vlan_gid || fail "the VLAN's address is no GID"
	index=$(vlan_gid)
	start_server 18516 ibv_rc_pingpong -p 18516 -d peal0 -g "$index" -n 1000000 >"$scratch/out" 2>&1
	ibv_rc_pingpong -p 18516 -d peal0 -g "$index" -n 1000000 localhost >"$scratch/out2" 2>&1 &
	program=$!
	wait_for moved 50 || fail "the ping-pong over the VLAN does not run: $(cat "$scratch"/out*)"
	timed ip link delete veth0.9
	kill "$program" "$server" 2>/dev/null
	wait "$program" "$server" 2>/dev/null
	log_is_quiet
	works peal0 "after its VLAN was removed"
}

vlan_gid() {
	local port=/sys/class/infiniband/peal0/ports/1 file
	for file in "$port"/gids/*; do
		[[ $(<"$file") == *:ffff:0a51:0901 ]] || continue
		[[ $(cat "$port/gid_attrs/types/${file##*/}" 2>/dev/null) == "RoCE v2" ]] && echo "${file##*/}" && return
	done
	return 1
}

# moved N: succeeds if the device has received at least N packets since the last success.
moved() {
	local now
	now=$(counter peal0 packets_received)
	((now >= ${moved_from:-0} + $1)) && moved_from=$now
}

# The queue is slower than the programs, also on a slow kernel. The programs wait for the queue, and it refuses no packet.
# The timeout is longer than usual, because otherwise the windows would be too small to fill the queue.
slow_queue() {
	local unsent full index slowness=${PEAL_SLOWNESS:-1} load
	load=(ib_write_bw -d peal0 -u 20 -q 16 -s 65536 -n $((32 / slowness)) -t 32)
	unsent=$(counter peal0 packets_unsent)
	full=$(counter peal0 full_queues)
	modprobe sch_tbf 2>/dev/null
	tc qdisc add dev lo root tbf rate $((40000 / slowness / slowness))kbit burst 64k limit 4m || fail "cannot slow lo down"
	index=$(gid_index peal0)
	start_server 18515 "${load[@]}" -x "$index" >"$scratch/out" 2>&1
	timeout "$(limit 100)" "${load[@]}" -x "$index" localhost >"$scratch/out2" 2>&1 &&
		wait "$server" || fail "ib_write_bw in a slow queue: $(cat "$scratch"/out*)"
	tc qdisc delete dev lo root
	(($(counter peal0 packets_unsent) == unsent)) || fail "packets were refused: $(counter peal0 packets_unsent)"
	(($(counter peal0 full_queues) > full)) || fail "nobody waited for the queue"
}

# lo redirects each packet to its own ingress, so the device receives a packet inside the call that sends it.
straight_back() {
	modprobe -a cls_matchall act_mirred sch_ingress 2>/dev/null
	sysctl -qw net.ipv4.conf.lo.accept_local=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.lo.rp_filter=0
	tc qdisc add dev lo clsact && tc filter add dev lo egress matchall action mirred ingress redirect dev lo ||
		fail "cannot redirect lo"
	works peal0 "with lo leading straight back"
	tc -s filter show dev lo egress | grep -q 'Sent [1-9]' || fail "nothing was redirected"
	tc qdisc delete dev lo clsact
	works peal0 "after that"
}

# Connections survive when the link goes down for a short time. Each time the stack drops all routes.
link_flaps() {
	local flap
	printf 'link set lo down\nlink set lo up\n' >"$scratch/flap"
	start_server 18515 ibv_rc_pingpong -d peal0 -g "$(gid_index peal0)" -n 2000 >"$scratch/out" 2>&1
	ibv_rc_pingpong -d peal0 -g "$(gid_index peal0)" -n 2000 localhost >"$scratch/out2" 2>&1 &
	program=$!
	wait_for moved 20 || fail "the ping-pong does not run: $(cat "$scratch"/out*)"
	for flap in {1..5}; do
		ip -batch "$scratch/flap" || fail "cannot flap lo"
		wait_for moved_or_ended 50 || fail "no packet after flap $flap"
	done
	wait "$program" && wait "$server" || fail "the ping-pong did not survive: $(cat "$scratch"/out*)"
}

moved_or_ended() { moved "$1" || ended "$program"; }

# rdma_rxe uses port 4791 in the same namespace. Each device must get its own packets.
beside_rxe() {
	modprobe rdma_rxe || return 0
	ip link add life2 type veth peer name life3 && ip link set life3 up && ip address add 10.82.0.1/24 dev life2 &&
		ip link set life2 up || fail "cannot make life2"
	rdma link add rxe_life type rxe netdev life2 || fail "cannot make rxe_life"
	wait_for device_ready rxe_life || fail "rxe_life is not ready"
	works peal0 "beside rxe"
	start_server 18517 ibv_rc_pingpong -p 18517 -d rxe_life -g "$(gid_index rxe_life)" -n 100 >"$scratch/out" 2>&1
	timeout "$(limit 30)" ibv_rc_pingpong -p 18517 -d rxe_life -g "$(gid_index rxe_life)" -n 100 localhost >"$scratch/out2" 2>&1 ||
		fail "rxe beside peal: $(cat "$scratch"/out*)"
	wait "$server" || fail "rxe beside peal"
	works peal0 "beside rxe"
	rdma link delete rxe_life
	ip link delete life2
	modprobe -r rdma_rxe
	works peal0 "after rxe has gone"
}

direct_off peal0
for part in ${LIFE_PARTS:-straight_back link_flaps beside_rxe vlan_leaves slow_queue namespace_ends module_leaves_packets}; do
	begin=$(now_ms)
	"$part"
	echo "$part: $(($(now_ms) - begin)) ms"
done
rm -rf "$scratch"
