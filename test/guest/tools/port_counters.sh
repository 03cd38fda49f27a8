#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: wire
# timeout: 60
#
# The counters of the port, as every RDMA device shows them: the files of ports/1/counters, which monitoring programs read,
# and the answers to performance management MADs. They say the same as peal's own counters and as rdma statistic. perfquery
# gets no answer from any RoCE port (Documentation/counters.rst); the test notices when it does.
# It does not look at the direct path, whose messages never reach the port.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}
counters=/sys/class/infiniband/$device/ports/1/counters
require ibv_rc_pingpong perfquery python3 rdma
index=$(gid_index "$device") || fail "$device has no IPv4 GID"

# says FILE NAME [UNIT]: the file says the value of peal's counter, in units of UNIT.
says() { (($(<"$counters/$1") == $(counter "$device" "$2") / ${3:-1})); }

# says_short FILE NAME: the same for a counter of 16 bits, which stops at its largest value.
says_short() {
	local value
	value=$(counter "$device" "$2")
	(($(<"$counters/$1") == (value < 65535 ? value : 65535)))
}

# statistic_says NAME: rdma statistic shows the same as the file.
statistic_says() {
	local shown
	shown=" $(rdma statistic show link "$device/1") "
	[[ $shown == *" $1 $(counter "$device" "$1") "* ]]
}

all_say() {
	says port_xmit_packets packets_sent && says port_rcv_packets packets_received &&
		says port_xmit_data packet_bytes_sent 4 && says port_rcv_data packet_bytes_received 4 &&
		says_short port_rcv_errors drops && says_short port_xmit_discards packets_unsent &&
		statistic_says packets_sent && statistic_says packets_received
}

# ipv6_gid: prints the index of the RoCE v2 GID of fd77::1, and the GID.
ipv6_gid() {
	local file type port=/sys/class/infiniband/$device/ports/1
	for file in "$port"/gids/*; do
		{ read -r gid <"$file" && read -r type <"$port/gid_attrs/types/${file##*/}"; } 2>/dev/null || continue
		[[ $gid != fd77:* || $type != "RoCE v2" ]] || echo "${file##*/} $gid"
	done
}

[[ -d $counters ]] || fail "$counters is missing"
start_server 18700 ibv_rc_pingpong -d "$device" -g "$index" -p 18700 -n 50 >/dev/null
ibv_rc_pingpong -d "$device" -g "$index" -p 18700 -n 50 localhost >/dev/null || fail "ibv_rc_pingpong"
wait "$server" || fail "the server of ibv_rc_pingpong"
wait_for all_say || fail "the files differ from peal's counters: $(grep . "$counters"/port_*)"
# 50 messages of 4096 bytes in each direction.
(($(<"$counters/port_xmit_data") >= 2 * 50 * 4096 / 4)) || fail "port_xmit_data: $(<"$counters/port_xmit_data")"
(($(<"$counters/port_xmit_packets") >= 2 * 50)) || fail "port_xmit_packets: $(<"$counters/port_xmit_packets")"
echo "ok: sysfs"

modprobe ib_umad || skip "this kernel has no ib_umad"
umad=
for entry in /sys/class/infiniband_mad/umad*; do
	[[ $(<"$entry/ibdev") != "$device" ]] || umad=/dev/infiniband/${entry##*/}
done
[[ $umad ]] || fail "$device has no umad device"
wait_for test -c "$umad" || fail "$umad is missing"

# The core does not recognise the answer to a query from an IPv4 address, because it compares the GRH with a GID.
read -r index gid < <(ipv6_gid) || fail "$device has no IPv6 GID"

# Get of PortCountersExtended twice, of ClassPortInfo, of PortCounters of all ports; then of a port that does not exist, of an
# unknown attribute, and a Set.
mapfile -t answers < <("$(dirname "$0")/../helpers/pma_query.py" "$umad" "$gid" "$index" \
	1:1d:1 1:1d:1 1:1:0 1:12:ff 1:1d:2 1:15:1 2:12:1)
((${#answers[@]} == 7)) || fail "7 answers expected: ${answers[*]}"
read -r status sent_before _ packets_before _ <<<"${answers[0]}"
read -r status sent _ packets _ <<<"${answers[1]}"
[[ $status == 0x0 ]] || fail "PortCountersExtended: ${answers[1]}"
# The first answer and the second query are packets, of 256 bytes of MAD each.
((packets >= packets_before + 2 && sent >= sent_before + 2 * 256 / 4)) ||
	fail "the counters did not count the queries: ${answers[0]}, then ${answers[1]}"
[[ ${answers[2]} == 0x0 && ${answers[3]} == 0x0 ]] || fail "ClassPortInfo, PortCounters: ${answers[2]}, ${answers[3]}"
[[ ${answers[4]} == 0x1c ]] || fail "a port that does not exist: ${answers[4]}"
[[ ${answers[5]} == 0xc ]] || fail "an unknown attribute: ${answers[5]}"
[[ ${answers[6]} == 0x8 ]] || fail "a Set: ${answers[6]}"
echo "ok: MADs"

answer=$(perfquery -C "$device" -P 1 2>&1) && fail "perfquery can ask a RoCE port now: $answer"
[[ $answer == *"client_register for mgmt 1 failed"* ]] || fail "perfquery fails for another reason: $answer"
echo "ok: perfquery"
