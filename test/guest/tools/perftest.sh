#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 400
# run: long
#
# The perftest programs work over RC on one device. The test runs every program as a server and a client on the same
# device, and both must succeed and print a result. It varies the message size, events, directions, the number of queue
# pairs, lists of requests and the kind of atomic. It needs perftest and a device with an IPv4 GID.
# The test does not judge the results. scripts/demo measures performance.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}
require ib_write_bw ib_read_bw ib_send_bw ib_atomic_bw ib_write_lat ib_read_lat ib_send_lat ib_atomic_lat
gid=$(gid_index "$device") || fail "$device has no IPv4 GID"
port=18700
server_output=$(mktemp)

# pair TOOL ARGUMENT...: runs a server and a client. perftest compares the processor's counter with the clock first. If other
# work has kept the processor from it meanwhile, it prints that they do not correlate, and no result. Then both run again.
pair() {
	local common output try
	for try in 1 2 3; do
		port=$((port + 1))
		common=(timeout "$(limit 60)" "$1" -d "$device" -x "$gid" -p "$port" -F "${@:2}")
		start_server "$port" "${common[@]}" >"$server_output" 2>&1
		output=$("${common[@]}" localhost 2>&1) || fail "client of ${common[*]}: $output"
		wait "$server" || fail "server of ${common[*]}: $(<"$server_output")"
		grep -qE '^ *[0-9]+ +[0-9]+ +[0-9.]+' <<<"$output" && break
		((try < 3)) && [[ $output == *"Correlation coefficient"* ]] || fail "${common[*]} printed no result: $output"
	done
	echo "ok: $*"
}

# perftest's options make the same calls on both transports, so the wire tests only some sizes and one case of each kind.
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

# also_thorough COMMAND...: runs the command only in a thorough run, because other combinations cover most of it.
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
# This moves 320 MB. A slow kernel moves less, because each packet takes a millisecond there.
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
