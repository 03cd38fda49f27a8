#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: direct, thorough wire
# run: long
# timeout: 120
#
# ibv_rc_pingpong works between two processes, with checked data, several sizes, events and the new send API. So do
# ibv_srq_pingpong, with several queue pairs on one shared receive queue, and ibv_xsrq_pingpong, with one and two clients.
# It does not look at the times, nor at the data of ibv_xsrq_pingpong, which cannot check them.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}
require ibv_rc_pingpong ibv_srq_pingpong ibv_xsrq_pingpong
gid=$(gid_index "$device") || fail "$device has no IPv4 GID"
port=18600
program=ibv_rc_pingpong
work=$(mktemp -d)

# pingpong ARGUMENT...
pingpong() {
	local common
	port=$((port + 1))
	common=(timeout "$(limit 30)" "$program" -d "$device" -g "$gid" -p "$port" -c "$@")
	start_server "$port" "${common[@]}" >"$work/server" 2>&1
	"${common[@]}" localhost >"$work/client" 2>&1 || fail "client of ${common[*]}: $(<"$work/client")"
	wait "$server" || fail "server of ${common[*]}: $(<"$work/server")"
	# Only the server compares the data, and it exits with 0 if they are wrong.
	! grep -qi "invalid data" "$work/client" "$work/server" || fail "${common[*]}: $(<"$work/server")"
	echo "ok: $program $*"
}

# xrc CLIENTS ARGUMENT...: the server has one queue pair for each client, and one shared receive queue.
xrc() {
	local common client clients=()
	port=$((port + 1))
	common=(timeout "$(limit 30)" ibv_xsrq_pingpong -d "$device" -g "$gid" -p "$port" "${@:2}")
	start_server "$port" "${common[@]}" -c "$1" >"$work/server" 2>&1
	for ((client = 0; client < $1; client++)); do
		"${common[@]}" localhost >"$work/client-$client" 2>&1 &
		clients+=("$!")
	done
	for client in "${clients[@]}"; do
		wait "$client" || fail "a client of ${common[*]}: $(cat "$work"/client-*)"
	done
	wait "$server" || fail "server of ${common[*]}: $(<"$work/server")"
	echo "ok: ibv_xsrq_pingpong with $1 clients, ${*:2}"
}

# 20 MB there and back are too many where a packet takes a millisecond.
few=$((20 / ${PEAL_SLOWNESS:-1}))

pingpong -n 300
pingpong -n 300 -e
sizes="1 4096 1000000"
! thorough || sizes="1 7 64 1000 4096 65536 1000000"
for size in $sizes; do
	pingpong -n "$few" -s "$size"
	pingpong -n "$few" -s "$size" -e
done
pingpong -n 50 -r 1
pingpong -n 50 -r 2 -e
pingpong -n 100 -m 256
pingpong -n 100 -m 4096 -s 20000

if ibv_rc_pingpong -h 2>&1 | grep -q -- --new_send; then
	pingpong -n 300 -N
	pingpong -n 300 -N -e -s 9000
fi

program=ibv_srq_pingpong
pingpong -n 300
pingpong -n 300 -q 4 -e
pingpong -n "$few" -q 2 -s 1000000

xrc 1 -n 300
xrc 2 -n 100 -e
rm -rf "$work"
