# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Three network namespaces in a row, for scripts/bench and for shell tests, which source it:
# source "$(dirname "$0")/../helpers/bottleneck.sh". The hosts share_a and share_b have a device of peal each, peal_a and peal_b.
# The router share_r between them forwards from a to b through a token bucket with a queue, and delays what b sends.
# test/bench/share.cpp runs flows from a to b.

# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# shellcheck disable=SC2034 # the tests use it
share_address=10.90.2.1
share_packet=1082 # bytes of an Ethernet frame with 1,024 bytes of a message

bottleneck_up() {
	local end net
	modprobe -a veth ib_uverbs peal sch_tbf sch_red sch_netem || fail "cannot load the modules"
	for end in a r b; do
		ip netns add "share_$end" || fail "cannot make a network namespace"
		ip -n "share_$end" link set lo up
	done
	ip netns exec share_r sysctl -qw net.ipv4.ip_forward=1
	for end in a b; do
		net=10.90.1
		[[ $end == a ]] || net=10.90.2
		ip link add "share_$end" mtu 1500 netns "share_$end" type veth peer name "to_$end" mtu 1500 netns share_r ||
			fail "cannot make a veth pair"
		printf '%s\n' "address add $net.254/24 dev to_$end" "link set to_$end up" | ip -n share_r -batch - ||
			fail "cannot set the addresses of the router"
		printf '%s\n' "address add $net.1/24 dev share_$end" "link set share_$end up" "route add default via $net.254" |
			ip -n "share_$end" -batch - || fail "cannot set the addresses of $end"
		ip netns exec "share_$end" sysctl -qw net.ipv4.tcp_ecn=1
		ip netns exec "share_$end" rdma link add "peal_$end" type peal netdev "share_$end" || fail "cannot make peal_$end"
		direct_off "peal_$end"
	done
	for end in a b; do
		wait_for device_ready "peal_$end" || fail "peal_$end is not ready: $(device_state "peal_$end")"
	done
}

bottleneck_down() {
	local end
	for end in a b; do
		peal_down "peal_$end"
	done
	for end in a r b; do
		ip netns delete "share_$end"
	done
}

# bottleneck MEGABITS MILLISECONDS fifo|red: the path from a to b. Its queue holds what the path holds, and at least 100
# packets. With RED it marks, from a quarter of that on, and from at least 20 packets on. The token bucket is too small for two
# packets, so it divides trains before they come to the queue.
bottleneck() {
	local rate=$1 trip=$2 kind=$3 holds queue from end
	holds=$((rate * 1000 * trip / 8))
	queue=$((holds > 100 * share_packet ? holds : 100 * share_packet))
	from=$((holds / 4 > 20 * share_packet ? holds / 4 : 20 * share_packet))
	tc -n share_r qdisc replace dev to_a root netem limit 100000 delay "${trip}ms" || fail "cannot set the delay"
	tc -n share_r qdisc delete dev to_b root 2>/dev/null
	tc -n share_r qdisc add dev to_b root handle 1: tbf rate "${rate}mbit" burst 1600 limit 10000000 ||
		fail "cannot set the rate"
	if [[ $kind == fifo ]]; then
		tc -n share_r qdisc add dev to_b parent 1:1 handle 2: bfifo limit "$queue"
	else
		tc -n share_r qdisc add dev to_b parent 1:1 handle 2: red limit "$((4 * queue))" min "$from" max "$((3 * from))" \
			avpkt "$share_packet" burst "$((from / share_packet + 1))" probability 0.1 bandwidth "${rate}mbit" ecn
	fi || fail "cannot set the queue"
	for end in a b; do
		peal link set "peal_$end" ecn "$([[ $kind == red ]] && echo on || echo off)" || fail "cannot set ecn"
	done
}

# queue_figure NAME: prints a figure of the queue's statistics: sent, dropped, backlog or marked, in packets.
queue_figure() {
	tc -n share_r -s qdisc show dev to_b | awk -v name="$1" '
		/^qdisc/ { here = $3 == "2:" }
		here && /Sent/ { gsub(/[(,]/, ""); figure["sent"] = $4; figure["dropped"] = $7 }
		here && /backlog/ { figure["backlog"] = $3 + 0 }
		here && /marked/ { figure["marked"] = $2 }
		END { print figure[name] + 0 }'
}

queue_is_empty() { (($(queue_figure backlog) == 0)); }
