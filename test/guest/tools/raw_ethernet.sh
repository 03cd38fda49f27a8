#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 240
# run: long
# transport: any
#
# perftest's raw_ethernet_bw and raw_ethernet_lat work between the devices on veth0 and veth1: plain frames, frames with IP
# and UDP or TCP headers, IPv6, and VLAN tags. Both ends must succeed and print a result, and the frames that the device on
# veth1 receives must be those of the test. verbs/raw_packets compares the bytes of frames.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
require raw_ethernet_bw raw_ethernet_lat
rdma link show peal1/1 &>/dev/null || rdma link add peal1 type peal netdev veth1 || fail "no device on veth1"
wait_for port_active peal1 || fail "peal1 is not active"
first_line /sys/class/net/veth0/address
near=$line
first_line /sys/class/net/veth1/address
far=$line
count=400
server_output=$(mktemp)

has_result() { grep -qE '^ *[0-9]+ +[0-9]+ +[0-9.]+' <<<"$1"; }

# is_receiving: a raw packet queue pair on peal1 can receive. Its rule follows at once.
is_receiving() { [[ $(rdma resource show qp link peal1/1) == *RAW_PACKET\ state\ RT[RS]* ]]; }

ended() { ! kill -0 "$server" 2>/dev/null; }

# both TOOL ARGUMENT...: runs the tool on peal1 as the server and on peal0 as the client. The server ends when it has all
# frames. It may miss the first ones, because the tool has no way to say that it is ready. Then the client runs again.
both() {
	local output before common try
	common=(-n "$count" -F "${@:2}")
	before=$(counter peal1 frames_received)
	timeout "$(limit 60)" "$1" --server -d peal1 -B "$far" -E "$near" "${common[@]}" >"$server_output" 2>&1 &
	server=$!
	wait_for is_receiving || fail "the server of $* does not receive: $(<"$server_output") $(rdma resource show qp)"
	for try in 1 2 3; do
		output=$(timeout "$(limit 30)" "$1" --client -d peal0 -B "$near" -E "$far" "${common[@]}" 2>&1) ||
			[[ $1 == *lat ]] || fail "client of $*: $output"
		WAIT_LIMIT=2 wait_for ended && break
	done
	wait "$server" || fail "server of $* (try $try): $(<"$server_output")"
	has_result "$output" || has_result "$(<"$server_output")" || fail "$* printed no result: $output"
	(($(counter peal1 frames_received) - before >= count)) || fail "$*: too few frames came in"
	echo "ok: $*"
}

both raw_ethernet_bw -s 64
both raw_ethernet_bw -s 1024
both raw_ethernet_bw -s 1500 -m 1500
both raw_ethernet_bw -s 512 -J 10.77.0.2 -j 10.77.0.1
both raw_ethernet_bw -s 512 -J 10.77.0.2 -j 10.77.0.1 -K 4000 -k 5000
both raw_ethernet_bw -s 512 -J 10.77.0.2 -j 10.77.0.1 -K 4000 -k 5000 --tcp
both raw_ethernet_bw -s 512 --raw_ipv6 -J fd77::2 -j fd77::1 -K 4000 -k 5000
both raw_ethernet_bw -s 512 --vlan_en
both raw_ethernet_lat -s 64
both raw_ethernet_lat -s 512 -J 10.77.0.2 -j 10.77.0.1 -K 4000 -k 5000
