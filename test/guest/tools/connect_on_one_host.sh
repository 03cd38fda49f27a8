#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 180
#
# The connection manager and what stands on it, between two programs of one host: their management datagrams go
# through the loopback interface, their connections as the device's carrier has it.
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

listens() { rdma resource show cm_id | grep -E "state LISTEN.*:$1( |\$)"; }

# pair NAME SERVER... -- CLIENT...: both must succeed. @PORT is a new port number each time; who names none means
# 7174.
pair() {
	local name=$1 server=() client=() word pid status=0 port=7174
	shift
	[[ $* != *@PORT* ]] || port=$((next_port++))
	for word in "$@"; do
		[[ $word == -- ]] && server=("${client[@]}") && client=() && continue
		client+=("${word//@PORT/$port}")
	done
	timeout "$(limit 60)" "${server[@]}" >"$work/server" 2>&1 &
	pid=$!
	wait_for server_is_up "$pid" "$port" || fail "$name: nobody listens: $(<"$work/server")"
	timeout "$(limit 60)" "${client[@]}" >"$work/client" 2>&1 || status=$?
	((status == 0)) || kill "$pid" 2>/dev/null
	wait "$pid" || status=$((status ? status : 1))
	((status == 0)) || fail "$name ($status): client: $(<"$work/client") server: $(<"$work/server")"
	echo "ok: $name"
}

server_is_up() { listens "$2" || ! kill -0 "$1"; }

for address in "$v4" "$v6"; do
	pair "rping $address" rping -s -a "$address" -p @PORT -C 20 -S 1000 -V -- \
		rping -c -a "$address" -p @PORT -C 20 -S 1000 -V
done
pair "rping 65000" rping -s -a "$v4" -p @PORT -C 20 -S 65000 -V -- rping -c -a "$v4" -p @PORT -C 20 -S 65000 -V
pair ucmatose ucmatose -b "$v4" -p @PORT -c 20 -- ucmatose -s "$v4" -p @PORT -c 20
pair udaddy udaddy -b "$v4" -c 5 -C 20 -- udaddy -s "$v4" -c 5 -C 20
pair "udaddy IPv6" udaddy -b "$v6" -- udaddy -s "$v6"
pair rstream rstream -b "$v4" -p @PORT -S 20000 -C 50 -- rstream -s "$v4" -p @PORT -S 20000 -C 50
pair "ib_send_bw -R" ib_send_bw -d "$device" -R -p @PORT -n 100 -- ib_send_bw -d "$device" -R -p @PORT -n 100 "$v4"

# cmtime's client ends with 1 when all went well, and its server never: its table says how far it came.
connect_times() {
	local pid port=$((next_port++))
	timeout "$(limit 60)" cmtime -b "$v4" -p "$port" -c 50 >"$work/server" 2>&1 &
	pid=$!
	wait_for listens "$port" || fail "cmtime: nobody listens: $(<"$work/server")"
	timeout "$(limit 60)" cmtime -s "$v4" -p "$port" -c 50 >"$work/client" 2>&1
	kill "$pid"
	wait "$pid"
	grep -q '^destroy ' "$work/client" || fail "cmtime: client: $(<"$work/client") server: $(<"$work/server")"
	echo "ok: cmtime: $(grep '^connect ' "$work/client")"
}

connect_times

# A device that nobody listens on refuses; it does not leave the program waiting.
timeout "$(limit 30)" rping -c -a "$v4" -p 18799 -C 1 >"$work/client" 2>&1
status=$?
((status != 0 && status != 124)) || fail "a connection that nobody listens for: $status"
grep -qi reject "$work/client" || fail "not rejected: $(<"$work/client")"
echo "ok: nobody listens"

# group_member ADDRESS: has a queue pair been attached (the core of the test is in mckey itself)?
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
# Programs that end without a word leave nothing behind.
rdma resource show qp link "$device/1" | grep -v "type GSI" | grep . && fail "queue pairs are left"
exit 0
