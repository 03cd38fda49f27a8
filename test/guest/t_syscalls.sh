#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 120
#
# The data path makes no system call but the kick: polling makes none, posting makes none while
# the engine is awake, and what strace sees agrees with the device's own counters.
# It does not say how many kicks there should be: that depends on the machine's load.
set -u
# shellcheck source=test/guest/lib.sh
source "$(dirname "$0")/lib.sh"
device=${PEAL_DEV:-peal0}
traffic=$(dirname "$0")/../../build/user/test/guest/traffic
[[ $device == peal* ]] || skip "only peal promises this"
[[ -x $traffic ]] || skip "the helper 'traffic' is not built"
require strace rdma
trace=$(mktemp)

# counter NAME
counter() { rdma statistic show link "$device/1" | sed -nE "s/.* $1 ([0-9]+).*/\1/p"; }

# run_traced MESSAGES: sets kicks, others, counted_kicks and counted_posts.
# The program itself yields its CPU while it polls: that is not the provider's doing.
run_traced() {
	local kicks_before posts_before
	kicks_before=$(counter kicks)
	posts_before=$(counter posts)
	# Raw numbers: strace takes our ioctls for others with the same number.
	strace -f -qq -X raw -o "$trace" -e 'trace=!sched_yield,clock_nanosleep' \
		"$traffic" --messages "$1" --size 4096 || fail "the traced program failed"
	counted_kicks=$(($(counter kicks) - kicks_before))
	counted_posts=$(($(counter posts) - posts_before))
	kicks=$(grep -c 'ioctl([0-9]*, 0xb70[12][,)]' "$trace")
	others=$(grep -vc 'ioctl([0-9]*, 0xb70[12][,)]' "$trace")
	echo "$1 messages: $kicks kicks traced, $counted_kicks counted, $counted_posts posts," \
		"$others other system calls"
}

few=100
many=1100
run_traced "$few"
others_few=$others
run_traced "$many"

((kicks == counted_kicks)) || fail "expected as many kicks counted as traced ($kicks), got $counted_kicks"
((counted_posts == 2 * many)) || fail "expected $((2 * many)) posts, got $counted_posts"
((kicks <= counted_posts + many)) || fail "expected at most one kick for each post, got $kicks"
((others - others_few <= 20)) ||
	fail "expected no system call for a message but the kick; 1000 messages made" \
		"$((others - others_few)) more: $(cut -d' ' -f2- "$trace" | cut -d'(' -f1 | sort | uniq -c | sort -rn | head -n 5)"
rm -f "$trace"
