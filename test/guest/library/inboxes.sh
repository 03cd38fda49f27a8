#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Holds: Two processes with an inbox each get their messages and writes over one XRC connection of libpeal, whose target is one of
# theirs. The peer writes, reads and counts in the memory of each. On a device without XRC the domain is a sentence.
# Does not hold: rdma_rxe, which has no XRC.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
library_inboxes=$(helper library_inboxes) || skip "$library_inboxes"
export PEAL_DEVICE=${PEAL_DEV:-peal0}
work=$(mktemp -d)
receivers=()

note_messages "$PEAL_DEVICE"
for i in 0 1; do
	timeout "$(limit 60)" "$library_inboxes" "$work" receive "$i" >"$work/receiver$i" 2>&1 &
	receivers+=($!)
done
timeout "$(limit 60)" "$library_inboxes" "$work" send 2 >"$work/sender" 2>&1 ||
	fail "the peer: $(<"$work/sender") $(<"$work/receiver0") $(<"$work/receiver1")"
for i in 0 1; do
	wait "${receivers[i]}" || fail "process $i: $(<"$work/receiver$i")"
done
expect_path 2000
peal link set "$PEAL_DEVICE" without xrc || fail "the device keeps XRC"
"$library_inboxes" "$work" receive 2 >"$work/receiver2" 2>&1 && fail "a domain without XRC"
grep -q "opens no XRC domain" "$work/receiver2" || fail "a domain without XRC: $(<"$work/receiver2")"
peal link set "$PEAL_DEVICE" without none || fail "the device does not get XRC again"
