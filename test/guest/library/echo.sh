#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Holds: The example "echo" of libpeal, whose server sleeps in edge-triggered epoll, returns two hundred lines without losing an
# event, and its server ends when the client does, also when the client is killed. Both ends end, and the client says why, when
# their device is removed.
# Does not hold: a host that dies without a word is noticed only by a request.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
echo_program=build/user/userspace/lib/peal-echo
[[ -x $echo_program ]] || skip "libpeal is not built"
export PEAL_DEVICE=${PEAL_DEV:-peal0}
work=$(mktemp -d)
modprobe -a rdma_cm rdma_ucm

serve() {
	timeout "$(limit 60)" "$echo_program" >"$work/server" 2>&1 &
	server=$!
	wait_for cm_listens_or_died 7472 || fail "echo does not listen: $(<"$work/server")"
}

note_messages "$PEAL_DEVICE"
serve
for ((i = 0; i < 200; i++)); do
	printf 'line %d %*s\n' "$i" $((i * 10)) x
done >"$work/lines"
timeout "$(limit 30)" "$echo_program" 10.77.0.1 <"$work/lines" >"$work/answers" || fail "client: $(<"$work/answers")"
wait "$server" || fail "server: $(<"$work/server")"
cmp "$work/lines" "$work/answers" || fail "the answers differ from the lines"
expect_path 400
echo "ok: 200 lines"

serve
exec {input}<> <(:)
"$echo_program" 10.77.0.1 <&"$input" >"$work/answers" &
client=$!
echo one >&"$input"
wait_for grep -q one "$work/answers" || fail "no answer: $(<"$work/answers") $(<"$work/server")"
kill -KILL "$client"
wait "$client" 2>/dev/null
wait "$server" || fail "the server of a killed client: $(<"$work/server")"
[[ ! -s $work/server ]] || fail "the server of a killed client says: $(<"$work/server")"
echo "ok: a client that is killed"

serve
: >"$work/answers"
"$echo_program" 10.77.0.1 <&"$input" >"$work/answers" &
client=$!
echo two >&"$input"
wait_for grep -q two "$work/answers" || fail "no answer: $(<"$work/answers") $(<"$work/server")"
peal_down "$PEAL_DEVICE"
wait "$server" || (($? != 124)) || fail "the server hangs without its device"
echo three >&"$input"
wait "$client" && fail "the client sends without its device: $(<"$work/answers")"
grep -q "open another one\|connect again" "$work/answers" || fail "the client of a device that is gone says: $(<"$work/answers")"
peal_up "$PEAL_DEVICE"
echo "ok: $(tail -n 1 "$work/answers")"
