#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 120
# run: long
#
# Holds: The example "echo_many" of libpeal, whose server has one thread and a coroutine for each client, serves clients that are
# connected at the same time and that send side by side: 1,000 on the direct path, and 200 by packets. Each gets its own
# messages back. Clients that are killed end their coroutines, and the server goes on.
# Does not hold: test/unit/lib has the library's own cases. How long a client waits for the others is not judged.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
echo_many=build/user/userspace/lib/peal-echo_many
[[ -x $echo_many ]] || skip "libpeal is not built"
export PEAL_DEVICE=${PEAL_DEV:-peal0}
work=$(mktemp -d)
modprobe -a rdma_cm rdma_ucm
ulimit -n 4096
clients=1000
[[ ${PEAL_TRANSPORT:-direct} == direct ]] || clients=200

# connections: prints how many queue pairs the server has.
connections() { rdma resource show qp pid "$server_pid" | grep -c RC; }
all_connected() { (($(connections) == $1)); }

timeout "$(limit 110)" "$echo_many" >"$work/server" 2>&1 &
server=$!
wait_for cm_listens_or_died 7473 || fail "echo_many does not listen: $(<"$work/server")"
read -r server_pid <"/proc/$server/task/$server/children"

# These wait for messages that never come to an end.
"$echo_many" 10.77.0.1 20 1000000 >"$work/killed" 2>&1 &
killed=$!
wait_for all_connected 20 || fail "$(connections) of 20 clients are connected: $(<"$work/killed") $(<"$work/server")"
kill -KILL "$killed"
wait "$killed" 2>/dev/null
wait_for all_connected 0 || fail "$(connections) connections of killed clients are left: $(<"$work/server")"
echo "ok: clients that are killed"

note_messages "$PEAL_DEVICE"
timeout "$(limit 100)" "$echo_many" 10.77.0.1 "$clients" 5 >"$work/client" 2>&1 || fail "the clients: $(<"$work/client")"
grep -q "^$clients of $clients clients got all answers" "$work/client" || fail "the clients: $(<"$work/client")"
expect_path $((2 * 5 * clients))
wait "$server" || fail "the server failed: $(<"$work/server")"
# A server that was sending to a client when that was killed says so, and does not count it.
served=$(sed -n 's/^served \([0-9]*\) clients$/\1/p' "$work/server")
((served >= clients && served <= clients + 20)) || fail "the server printed: $(<"$work/server")"
echo "ok: $clients clients"
