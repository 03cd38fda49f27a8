#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 180
#
# The connection manager, and programs that use it, work between two programs of one host. Their management datagrams
# pass the loopback interface. Their connections use the device's path, direct or wire.
# It does not cover two hosts (wire/connect_two_devices).
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}
v4=10.77.0.1
v6=fd77::1
next_port=18800
work=$(mktemp -d)
modprobe -a rdma_cm rdma_ucm
require rping ucmatose cmtime udaddy mckey rstream ib_send_bw rdma

for address in "$v4" "$v6"; do
	cm_pair rping -s -a "$address" -p @PORT -C 20 -S 1000 -V -- \
		rping -c -a "$address" -p @PORT -C 20 -S 1000 -V
done
cm_pair rping -s -a "$v4" -p @PORT -C 20 -S 65000 -V -- rping -c -a "$v4" -p @PORT -C 20 -S 65000 -V
cm_pair ucmatose -b "$v4" -p @PORT -c 20 -- ucmatose -s "$v4" -p @PORT -c 20
cm_pair udaddy -b "$v4" -c 5 -C 20 -- udaddy -s "$v4" -c 5 -C 20
cm_pair udaddy -b "$v6" -- udaddy -s "$v6"
cm_pair rstream -b "$v4" -p @PORT -S 20000 -C 50 -- rstream -s "$v4" -p @PORT -S 20000 -C 50
cm_pair ib_send_bw -d "$device" -R -p @PORT -n 100 -- ib_send_bw -d "$device" -R -p @PORT -n 100 "$v4"

# cmtime's client ends with 1 on success, and its server never ends, so the table says how far it came.
connect_times() {
	local pid port=$((next_port++))
	timeout "$(limit 60)" cmtime -b "$v4" -p "$port" -c 50 >"$work/server" 2>&1 &
	pid=$!
	wait_for cm_listens "$port" || fail "cmtime: nobody listens: $(<"$work/server")"
	timeout "$(limit 60)" cmtime -s "$v4" -p "$port" -c 50 >"$work/client" 2>&1
	kill "$pid"
	wait "$pid"
	grep -q '^destroy ' "$work/client" || fail "cmtime: client: $(<"$work/client") server: $(<"$work/server")"
	echo "ok: cmtime: $(grep '^connect ' "$work/client")"
}

connect_times

# A device without a listener refuses at once, so that the program does not wait.
timeout "$(limit 30)" rping -c -a "$v4" -p 18799 -C 1 >"$work/client" 2>&1
status=$?
((status != 0 && status != 124)) || fail "a connection that nobody listens for: $status"
grep -qi reject "$work/client" || fail "not rejected: $(<"$work/client")"
echo "ok: nobody listens"

# group_member ADDRESS: whether a queue pair is attached. mckey itself checks the data.
group_member() { grep -qi "$1" /proc/net/igmp /proc/net/igmp6; }

# mckey GROUP HEX ADDRESS
multicast() {
	local pid status=0
	timeout "$(limit 60)" mckey -m "$1" -b "$3" >"$work/server" 2>&1 &
	pid=$!
	wait_for group_member "$2" || fail "mckey $1 does not join: $(<"$work/server")"
	timeout "$(limit 60)" mckey -m "$1" -b "$3" -s >"$work/client" 2>&1 || status=$?
	wait "$pid" || status=1
	((status == 0)) || fail "mckey $1: sender: $(<"$work/client") receiver: $(<"$work/server")"
	echo "ok: mckey $1"
}

multicast 239.1.1.9 090101EF "$v4"
# Programs that are killed leave nothing behind.
rdma resource show qp link "$device/1" | grep -v "type GSI" | grep . && fail "queue pairs are left"
exit 0
