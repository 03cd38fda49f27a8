#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# vm: icount
# timeout: 3000
# transport: any
#
# The timer of a queue pair that is busy and loses nothing expires rarely, at most twice in a millisecond. The function
# tracer counts the calls of its handler. The guest's clock counts instructions, so a millisecond is long enough for dozens
# of messages, and the count repeats. It runs ahead while the guest waits for files of a busy host, so the time limit is long.
# Does not hold: how late a loss is noticed (wire/lossy_wire has losses).
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
require ib_write_bw ss
tracing=/sys/kernel/tracing
messages=20000
WAIT_LIMIT=1000000

mountpoint -q "$tracing" || mount -t tracefs tracefs "$tracing" || skip "no tracefs"
wire_up peal peal
echo peal_timer_expired >"$tracing/set_ftrace_filter" || fail "cannot trace the timer's handler"
echo function >"$tracing/current_tracer"
: >"$tracing/trace"
wire_pair b 4 1000000 ib_write_bw -d @DEVICE -x @GID -p @PORT -F -s 64 -n "$messages" || fail "ib_write_bw failed"
expiries=$(grep -c peal_timer_expired "$tracing/trace")
echo nop >"$tracing/current_tracer"
# Column 5 is the rate in millions a second.
milliseconds=$(awk -v n="$messages" '/^ *[0-9]+ +[0-9]+ +[0-9.]+/ { printf "%d\n", n / $5 / 1000 }' "$wire_work/client")
echo "$expiries expiries in $milliseconds ms"
((milliseconds > 100)) || fail "expected more than 100 ms of messages"
((expiries >= 1)) || fail "expected that the tracer sees the timer"
((expiries <= 2 * milliseconds)) || fail "expected at most $((2 * milliseconds))"
