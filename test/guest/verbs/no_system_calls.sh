#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 200
# run: long
# transport: direct
#
# The data path makes no system call except the kick. Polling makes none. Posting makes none while the engine is awake.
# The system calls that strace sees agree with the device's own counters.
# The test does not check the number of kicks, because that depends on the machine's load.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}
traffic=$(helper traffic) || skip "$traffic"
require strace rdma
trace=$(mktemp)

# counter NAME
counter() { rdma statistic show link "$device/1" | sed -nE "s/.* $1 ([0-9]+).*/\1/p"; }

# run_traced MESSAGES: sets kicks, others, counted_kicks and counted_posts.
# The program itself yields its CPU while it polls, so these calls are not the provider's.
run_traced() {
	local kicks_before posts_before
	kicks_before=$(counter kicks)
	posts_before=$(counter posts)
	# With -y, strace says which file a call is for. Kicks are for "[peal]".
	strace -f -qq -y -o "$trace" -e 'trace=!sched_yield,clock_nanosleep' \
		"$traffic" --messages "$1" --size 4096 || fail "the traced program failed"
	counted_kicks=$(($(counter kicks) - kicks_before))
	counted_posts=$(($(counter posts) - posts_before))
	kicks=$(grep -c 'lseek([0-9]*<anon_inode:\[peal\]>' "$trace")
	others=$(grep -vc 'lseek([0-9]*<anon_inode:\[peal\]>' "$trace")
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

# The kernel counts the system calls of ib_write_bw at full speed. strace would slow it down so much that the engine
# would never wake up. With a spare CPU, most posts find the engine awake and make no system call. How many do depends
# on the load of the machine, so a hundred are enough here.
tracing=/sys/kernel/tracing
[[ -e $tracing/trace ]] || mount -t tracefs none $tracing || fail "no tracefs"
event=$tracing/events/raw_syscalls/sys_enter
messages=20000
port=18600

# lseek is number 8 on x86-64.
traced_seeks() { sed -nE 's/.*id: +8 .* hitcount: +([0-9]+).*/\1/p' "$event/hist"; }

# run_perftest MESSAGES: sets seeks, kicks and posts of one run, the sum of both ends.
run_perftest() {
	local kicks_before posts_before
	local command=(ib_write_bw -d "$device" -F -s 64 -n "$1" -p $((++port)))
	kicks_before=$(counter kicks)
	posts_before=$(counter posts)
	echo 'hist:keys=id if comm == "ib_write_bw"' >"$event/trigger" || skip "this kernel has no histogram triggers"
	start_server "$port" timeout "$(limit 60)" "${command[@]}" >/dev/null 2>&1 || fail "ib_write_bw does not listen"
	timeout "$(limit 60)" "${command[@]}" 127.0.0.1 >/dev/null 2>&1 || fail "ib_write_bw failed"
	wait "$server"
	seeks=$(traced_seeks)
	echo '!hist:keys=id if comm == "ib_write_bw"' >"$event/trigger"
	kicks=$(($(counter kicks) - kicks_before))
	posts=$(($(counter posts) - posts_before))
	echo "ib_write_bw: $posts posts, $kicks kicks, ${seeks:=0} calls of lseek of both ends"
}

run_perftest 100
set_up=$((seeks - kicks))
# One CPU is never spare, and on a slow machine the posts are so rare that the engine does not wake up.
can_wake=$(($(nproc) > 1 && ${PEAL_SLOWNESS:-1} == 1))
# Other machines on the same processors may slow this one down for a while.
end=$((SECONDS + can_wake * 80))
attempts=0
while ((attempts++ < 5 || SECONDS < end)); do
	run_perftest $messages
	((posts == messages)) || fail "expected $messages posts, got $posts"
	more=$((seeks - kicks - set_up))
	((more >= -20 && more <= 20)) ||
		fail "expected $kicks kicks and the $set_up calls of the set-up, got $seeks calls of lseek"
	((kicks > posts - 100)) || exit 0
done
((can_wake)) || exit 0
fail "expected posts that find the engine awake and make no system call in one of $((attempts - 1)) runs"
