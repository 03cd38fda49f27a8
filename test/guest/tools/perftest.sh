#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 400
# run: long
#
# perftest over RC on one device: every test, sizes, events, both directions, several queue
# pairs, lists, both atomics. It does not look at the figures: scripts/demo does.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}
require ib_write_bw ib_read_bw ib_send_bw ib_atomic_bw ib_write_lat ib_read_lat ib_send_lat ib_atomic_lat
gid=$(gid_index "$device") || fail "$device has no IPv4 GID"
port=18700
server_output=$(mktemp)

# pair TOOL ARGUMENT...: a server and a client.
pair() {
	local common output
	port=$((port + 1))
	common=(timeout "$(limit 60)" "$1" -d "$device" -x "$gid" -p "$port" -F "${@:2}")
	start_server "$port" "${common[@]}" >"$server_output" 2>&1
	output=$("${common[@]}" localhost 2>&1) || fail "client of ${common[*]}: $output"
	wait "$server" || fail "server of ${common[*]}: $(<"$server_output")"
	grep -qE '^ *[0-9]+ +[0-9]+ +[0-9.]+' <<<"$output" || fail "${common[*]} printed no result: $output"
	echo "ok: $*"
}

# The options of perftest lead to the same calls on both transports. On the wire the sizes and one of each suffice.
if [[ ${PEAL_TRANSPORT:-} == wire ]] && ! thorough; then
	for tool in ib_write_bw ib_read_bw ib_send_bw; do
		pair "$tool" -n 200 -s 64
		pair "$tool" -n 200 -s 65537
		pair "$tool" -n 200 -s 1024 -q 4 -b
	done
	pair ib_send_bw -n 200 -s 1024 -e
	for tool in ib_write_lat ib_read_lat ib_send_lat; do
		pair "$tool" -n 200 -s 64
	done
	pair ib_atomic_bw -n 200 -A FETCH_AND_ADD
	pair ib_atomic_lat -n 200 -A CMP_AND_SWAP
	exit 0
fi

# also_thorough COMMAND...: what another combination implies, or is one of many.
also_thorough() { ! thorough || "$@"; }

for tool in ib_write_bw ib_read_bw ib_send_bw; do
	for size in 1 65537; do
		pair "$tool" -n 200 -s "$size"
	done
	for size in 64 4096; do
		also_thorough pair "$tool" -n 200 -s "$size"
	done
	also_thorough pair "$tool" -n 20 -s 1048576 -t 8
	also_thorough pair "$tool" -n 200 -s 1024 -b
	also_thorough pair "$tool" -n 200 -s 1024 -q 4
	pair "$tool" -n 200 -s 1024 -q 4 -b
	pair "$tool" -n 128 -s 64 -l 16
done
pair ib_write_bw -n 200 -s 64 -Q 1
also_thorough pair ib_send_bw -n 200 -s 1024 -e
pair ib_send_bw -n 200 -s 1024 -e -b
pair ib_send_bw -n 200 -s 1024 -r 1
# 320 MB, or less where each packet takes a millisecond.
pair ib_write_bw -a -n $((20 / ${PEAL_SLOWNESS:-1}))

for tool in ib_write_lat ib_read_lat ib_send_lat; do
	for size in 2 64; do
		also_thorough pair "$tool" -n 200 -s "$size"
	done
	pair "$tool" -n 200 -s 4096
done
pair ib_send_lat -n 100 -s 64 -e

for kind in FETCH_AND_ADD CMP_AND_SWAP; do
	also_thorough pair ib_atomic_bw -n 200 -A "$kind"
	pair ib_atomic_bw -n 200 -A "$kind" -b
	pair ib_atomic_lat -n 200 -A "$kind"
done
