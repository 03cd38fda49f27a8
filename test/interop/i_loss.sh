#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: any
# timeout: 3000
#
# 100 MiB arrive over wires that lose, duplicate, reorder and delay packets, and rping works there. perftest runs with
# delay and reordering, next to the same delay without reordering. WIRE_KINDS="rxe rxe" shows what rdma_rxe does on the
# same wires.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../guest/helpers/wire.sh"
# shellcheck source=test/interop/impair.sh
source "$(dirname "$0")/impair.sh"
require rping tc ib_write_bw
read -r -a kinds <<<"${WIRE_KINDS:-peal peal}"
bytes=${WIRE_MEBIBYTES:-100}
limit=${WIRE_LIMIT:-150}

# delayed NAME NETEM...: programs that must finish, however late and in whatever order packets come.
delayed() {
	local tool
	impair "$@"
	for tool in ib_write_bw ib_send_bw ib_read_bw; do
		perf "$limit" "$tool" -n 200 -s 65536
	done
	perf "$limit" ib_write_lat -n 200 -s 8
	ping "$limit" -S 65000 -C 100
	ping "$limit" -S 1000 -C 300
}

wire_up "${kinds[@]}" 1500
wire_neighbours
impair clean
transfer "$bytes" "$limit"
ping "$limit" -S 65000 -C 100
for percent in 0.1 1 5; do
	impair "loss $percent%" loss "$percent%"
	transfer "$bytes" "$limit"
	ping "$limit" -S 65000 -C 100
done
impair "5% early" delay 1ms reorder 5%
transfer "$bytes" "$limit"
impair "5% late" delay 1ms reorder 95%
transfer "$bytes" "$limit"
impair "duplicate 1%" duplicate 1%
transfer "$bytes" "$limit"
impair "jitter 10 ms" delay 10ms 10ms
transfer "$bytes" "$limit"
delayed "delay 2 ms" delay 2ms
delayed "2 +- 1 ms, 25% reordered" delay 2ms 1ms reorder 25% 50% duplicate 1%
wire_down
judge_impairments
