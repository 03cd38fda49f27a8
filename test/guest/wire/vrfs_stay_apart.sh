#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 300
# run: long
# transport: any
#
# Two VRFs, and the part of the namespace that is in no VRF, have the same IPv4 and IPv6 addresses, and so have their
# peers. Each has a device of its own, and all devices move different data at the same time. Every packet reaches the
# device of its own VRF: the data is right, and each device gets exactly as many packets as the one device sent that may
# send to it. Packets between two programs of one VRF stay in it, and so do multicast packets.
# It does not look at the connection manager, which does not know VRFs (Documentation/wire.rst).
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
verify=build/guest/test/interop/verify
mcast=$(dirname "$0")/../../../build/guest/test/guest/multicast
[[ -x $verify && -x $mcast ]] || skip "verify or verbs/multicast is not built"
modprobe -a vrf veth dummy ib_uverbs || skip "this kernel has no VRFs"

address4=10.83.0.1 address6=fd83::1
peer4=10.83.0.2 peer6=fd83::2
domains="none red blue"
devices=(peal_none far_none peal_red far_red peal_blue far_blue)
declare -A control=([none]=10.84.0 [red]=10.84.1 [blue]=10.84.2) port=([none]=18600 [red]=18601 [blue]=18602)

# domain_up NAME: makes leg_NAME with the shared addresses, its peer in a namespace, and a veth pair
# for TCP outside of all VRFs. It looks for no duplicates (see wire_addresses in wire.sh).
domain_up() {
	local name=$1 peer="ip -n peer_$1"
	ip netns add "peer_$name" && ip link add "leg_$name" type veth peer name "far_$name" netns "peer_$name" &&
		ip link add "tcp_$name" type veth peer name far_tcp netns "peer_$name" || fail "cannot make the links of $name"
	[[ $name == none ]] || vrf_up "$name" || fail "cannot make the VRF $name"
	sysctl -qw "net/ipv6/conf/leg_$name/accept_dad=0" &&
		ip netns exec "peer_$name" sysctl -qw "net/ipv6/conf/far_$name/accept_dad=0" ||
		fail "cannot set the options of $name"
	ip address add "$address4/24" dev "leg_$name" && ip address add "$address6/64" dev "leg_$name" nodad &&
		ip link set "leg_$name" up && ip address add "${control[$name]}.1/24" dev "tcp_$name" &&
		ip link set "tcp_$name" up || fail "cannot set the addresses of $name"
	$peer link set lo up
	$peer address add "$peer4/24" dev "far_$name" && $peer address add "$peer6/64" dev "far_$name" nodad &&
		$peer link set "far_$name" up && $peer address add "${control[$name]}.2/24" dev far_tcp &&
		$peer link set far_tcp up || fail "cannot set the addresses of $name's peer"
	rdma link add "peal_$name" type peal netdev "leg_$name" || fail "cannot make peal_$name"
	ip netns exec "peer_$name" rdma link add "far_$name" type peal netdev "far_$name" || fail "cannot make far_$name"
	direct_off "peal_$name"
	direct_off "far_$name"
}

# vrf_up NAME: puts leg_NAME into it, and before that another device whose netdev has no address.
vrf_up() {
	ip link add "vrf_$1" type vrf table "$((100 + ${#1}))" && ip link set "vrf_$1" up &&
		ip link add "idle_$1" type dummy && ip link set "idle_$1" master "vrf_$1" && ip link set "idle_$1" up &&
		rdma link add "idle_$1" type peal netdev "idle_$1" && ip link set "leg_$1" master "vrf_$1"
}

domain_ready() { wire_ready "peal_$1" "$address4" "$address6" && wire_ready "far_$1" "$peer4" "$peer6"; }

# pair FAMILY NAME: runs verify between the two ends of that domain, with data of its own.
pair() {
	local name=$2 near=$address4 far=$peer4 arguments
	[[ $1 == 4 ]] || near=$address6 far=$peer6
	near=$(gid_of "peal_$name" "$near") && far=$(gid_of "far_$name" "$far") || return
	arguments=(-p "${port[$name]}" --seed "${port[$name]}" --ops "rc-send,rc-write,rc-read,uc-send,ud-send"
		--sizes "1,mtu,65536" --count 4)
	"$verify" -d "peal_$name" -g "$near" "${arguments[@]}" >"$wire_work/near_$name" 2>&1 &
	server=$!
	wait_for happens_or_died port_listens "${port[$name]}" &&
		ip netns exec "peer_$name" timeout "$(limit 60)" "$verify" -d "far_$name" -g "$far" \
			"${arguments[@]}" "${control[$name]}.1" >"$wire_work/far_$name" 2>&1 && wait "$server"
}

# note_packets: remembers what all devices have sent and got.
note_packets() {
	local device
	for device in "${devices[@]}"; do
		sent[$device]=$(counter "$device" packets_sent)
		got[$device]=$(packets_at "$device")
	done
}

# packets_at DEVICE: prints how many packets it got. A repetition may arrive after its queue pair is destroyed. Then only
# drop_qpn counts it, as it counts a packet of another VRF.
packets_at() { echo $(($(counter "$1" packets_received) + $(counter "$1" drop_qpn))); }

# differences SOURCE_OF: prints which devices got more or fewer packets since note_packets than their source sent. SOURCE_OF
# is peer_of or itself.
differences() {
	local device source count expected
	for device in "${devices[@]}"; do
		source=$("$1" "$device")
		count=$(($(packets_at "$device") - got[$device]))
		expected=$(($(counter "$source" packets_sent) - sent[$source]))
		((count == expected)) || echo "$device got $count packets, $source sent $expected."
	done
}

peer_of() { if [[ $1 == peal_* ]]; then echo "far_${1#*_}"; else echo "peal_${1#*_}"; fi; }

itself() { echo "$1"; }

no_differences() { [[ -z $(differences "$1") ]]; }

# nothing_strayed WHAT SOURCE_OF: fails unless each device got what its source sent, once the last packets have arrived.
nothing_strayed() {
	wait_for no_differences "$2" || fail "$1: packets strayed or were lost:" "$(differences "$2")"
	note_packets
}

# Runs all domains at once.
pairs() {
	local name running=() failed=''
	for name in $domains; do
		pair "$1" "$name" &
		running+=("$!")
	done
	for name in $domains; do
		wait "${running[0]}" || failed+=" $name: $(grep -hv ^ok "$wire_work/far_$name" "$wire_work/near_$name")"
		running=("${running[@]:1}")
	done
	[[ -z $failed ]] || fail "IPv$1:$failed"
	for name in "${devices[@]}"; do
		(($(packets_at "$name") > got[$name])) || fail "IPv$1: $name received nothing"
	done
	nothing_strayed "IPv$1" peer_of
}

# alone FAMILY NAME: runs both programs in this domain.
alone() {
	local name=$2 arguments near=$address4
	[[ $1 == 4 ]] || near=$address6
	arguments=(-d "peal_$name" -g "$(gid_of "peal_$name" "$near")" -p "${port[$name]}" --ops "rc-send,rc-write,rc-read"
		--sizes "1,65536" --count 4)
	start_server "${port[$name]}" "$verify" "${arguments[@]}" >"$wire_work/near_$name" 2>&1
	timeout "$(limit 60)" "$verify" "${arguments[@]}" localhost >"$wire_work/far_$name" 2>&1 && wait "$server" ||
		fail "two programs in $name, IPv$1: $(grep -hv ^ok "$wire_work/far_$name" "$wire_work/near_$name")"
}

groups() {
	PEAL_DEV=peal_$1 timeout "$(limit 60)" "$mcast" "each attached queue pair gets a copy*" >"$wire_work/groups" 2>&1 ||
		fail "groups in $1: $(<"$wire_work/groups")"
}

# The kernel's documentation of VRFs asks for this, because otherwise a VRF's device first sends to this host's own
# addresses outside of all VRFs.
vrfs_first() {
	local family
	for family in -4 -6; do
		ip "$family" rule add pref 32765 table local && ip "$family" rule del pref 0 || fail "cannot change the rules"
	done
}

local_first() {
	local family
	for family in -4 -6; do
		[[ -n $(ip "$family" rule show pref 32765) ]] || continue
		ip "$family" rule add pref 0 table local
		ip "$family" rule del pref 32765
	done
}

down() {
	local name
	for name in "${devices[@]}" idle_red idle_blue; do
		! device_exists "$name" || rdma link delete "$name"
	done
	for name in $domains; do
		ip netns delete "peer_$name"
		ip link delete "leg_$name"
		ip link delete "tcp_$name"
		ip link delete "vrf_$name"
		ip link delete "idle_$name"
	done 2>/dev/null
	local_first
	rm -rf "$wire_work"
}

trap down EXIT
declare -A sent=() got=()
# A packet that a full backlog loses would look like one that strayed.
sysctl -qw net.core.netdev_max_backlog=100000
for name in $domains; do
	domain_up "$name"
done
for name in $domains; do
	wait_for domain_ready "$name" || fail "$name is not ready: $(device_state "peal_$name"); $(device_state "far_$name")"
done
note_packets
for family in ${VRF_FAMILIES:-4 6}; do
	pairs "$family"
done
vrfs_first
for family in ${VRF_FAMILIES:-4 6}; do
	for name in $domains; do
		alone "$family" "$name"
	done
	nothing_strayed "two programs of one VRF, IPv$family" itself
done
for name in $domains; do
	groups "$name"
done
