#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 240
# run: long
# transport: any
#
# Consecutive packets leave as trains, in IPv4 and IPv6, and arrive byte-exact whatever happens to the trains on their
# way: a netdev takes none, or cannot do what they need, a queue divides or drops them, a rule of the firewall changes,
# copies or drops some of them, tc mirrors them. Packets that are sent again leave alone, so they pass also where each train
# is lost.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
require ethtool nft tc
verify=build/guest/test/interop/verify
[[ -x $verify ]] || skip "verify is not built"

# Of 64 KiB each, so 1,024 packets of a path MTU of 1024.
messages=16

frames() { wire_on a cat "/sys/class/net/${wire_netdev[a]}/statistics/tx_packets"; }
# counter END NAME: a counter of that end's device.
counter() { wire_on "$1" rdma -j statistic show link "${wire_device[$1]}" | grep -o "\"$2\":[0-9]*" | cut -d: -f2; }

# transfer WHAT GID OPERATION: sets `sent` to the packets that end a sent, and `left` to the frames in which they left.
transfer() {
	local before_frames before_packets
	before_frames=$(frames) before_packets=$(counter a packets_sent)
	wire_pair b "$2" 60 "$verify" -d @DEVICE -g @GID -p @PORT --limit 60 --ops "$3" --sizes 65536 --count "$messages" ||
		fail "$1, IPv$2, $3: $(tail -n 2 "$wire_work/client" "$wire_work/server")"
	sent=$(($(counter a packets_sent) - before_packets)) left=$(($(frames) - before_frames))
	echo "$1, IPv$2, $3: $sent packets in $left frames"
}

# every WHAT [OPERATION...]
every() {
	local version operation
	for version in 4 6; do
		for operation in "${@:2}"; do
			transfer "$1" "$version" "$operation"
		done
	done
}

# rules END FAMILY CHAIN: the firewall of that end has these rules, and no others.
rules() {
	printf 'flush ruleset\ntable %s trains {\nchain out {\n%s\n}\n}\n' "$2" "$3" >"$wire_work/rules"
	wire_on "$1" nft -f "$wire_work/rules" || fail "nft refuses: $3"
}

wire_up peal peal 1500
wire_neighbours

for version in 4 6; do
	for operation in rc-write rc-read rc-send uc-write; do
		transfer "trains" "$version" "$operation"
		# Of a READ, end a sends only the requests.
		[[ $operation == rc-read ]] || ((left * 8 < sent)) || fail "the packets do not leave in trains"
	done
done

# feature NAME: the sender's netdev does without it, so that no trains are made, or the kernel divides them.
for feature in tx-udp-segmentation generic-segmentation-offload scatter-gather tx-checksumming; do
	wire_on a ethtool -K wire_a "$feature" off || fail "cannot switch off $feature"
	every "without $feature" rc-read rc-write
	((left >= sent)) || fail "trains leave without $feature"
	wire_on a ethtool -K wire_a "$feature" on || fail "cannot switch on $feature"
done
wire_on a ethtool -K wire_a tx-checksumming on scatter-gather on generic-segmentation-offload on tx-udp-segmentation on
for segments in 0 1; do
	wire_on a ip link set wire_a gso_max_segs "$segments" || fail "cannot limit the packets of a train"
	every "gso_max_segs $segments" rc-write rc-send
	((left >= sent)) || fail "trains leave that the netdev does not take"
done
wire_on a ip link set wire_a gso_max_segs 65535 || fail "cannot restore the limit"
transfer "again" 4 rc-write
((left * 8 < sent)) || fail "there are no trains any more"

wire_on a tc qdisc add dev wire_a root tbf rate 400mbit burst 6kb limit 1mb || fail "cannot set tbf"
every "divided by tbf" rc-write rc-send
((left * 2 > sent)) || fail "tbf divides nothing"
wire_on a tc qdisc replace dev wire_a root tbf rate 200mbit burst 6kb limit 20kb || fail "cannot set tbf"
every "a short queue" rc-write rc-send
wire_on a tc qdisc delete dev wire_a root
wire_netem a loss 3% duplicate 3% delay 100us reorder 50%
every "netem" rc-write rc-send
wire_netem a

modprobe -a act_mirred cls_matchall dummy
rules a inet "type filter hook output priority 0
	udp dport 4791 numgen random mod 20 0 drop"
before=$(counter a retransmits)
every "some trains dropped" rc-write rc-send
(($(counter a retransmits) > before)) || fail "the rule drops nothing"
rules a inet "type route hook output priority 0
	udp dport 4791 meta mark set 1 ip dscp set cs1"
transfer "marked" 4 rc-write
rules a ip "type filter hook output priority 0
	udp dport 4791 numgen random mod 4 0 dup to ${wire_v4[b]} device wire_a"
before=$(counter b duplicates)
transfer "some trains copied" 4 rc-write
(($(counter b duplicates) > before)) || fail "the rule copies nothing"
# What is sent again leaves alone, so it passes where no train does.
for end in a b; do
	rules "$end" inet "type filter hook output priority 0
		udp dport 4791 meta length > 1500 drop"
done
every "every train dropped" rc-write rc-read rc-send
for end in a b; do
	wire_on "$end" nft flush ruleset
done

wire_on a ip link add mirror type dummy && wire_on a ip link set mirror up || fail "cannot make a dummy"
wire_on a tc qdisc add dev wire_a clsact || fail "cannot add clsact"
wire_on a tc filter add dev wire_a egress matchall action mirred egress mirror dev mirror || fail "cannot mirror"
every "mirrored" rc-write
wire_down
