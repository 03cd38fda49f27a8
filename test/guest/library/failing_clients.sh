#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: direct, thorough wire
#
# Holds: A program of libpeal that waits for one client gets it, although three others fail before: one is killed when it has
# the answer of the connection manager, one has a greeting of another version, and one never confirms the answer. The last one
# is refused after ten seconds.
# Does not hold: the connection manager speaks the same packets on both paths, so the path matters little.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
hello=build/user/userspace/lib/peal-hello
[[ -x $hello ]] || skip "libpeal is not built"
failing_client=$(helper failing_client) || skip "$failing_client"
export PEAL_DEVICE=${PEAL_DEV:-peal0}
work=$(mktemp -d)
modprobe -a rdma_cm rdma_ucm

# fails EXPECTED_STATUS HOW: a client fails in this way.
fails() {
	local status=0
	timeout "$(limit 30)" "$failing_client" 10.77.0.1 7174 "$2" 2>"$work/client" || status=$?
	((status == $1)) || fail "$2: expected exit status $1, got $status: $(<"$work/client") server: $(<"$work/server")"
	kill -0 "$server" || fail "$2: the server has ended: $(<"$work/server")"
	echo "ok: $2"
}

timeout "$(limit 60)" "$hello" >"$work/server" 2>&1 &
server=$!
wait_for cm_listens_or_died 7174 || fail "hello does not listen: $(<"$work/server")"
fails 137 dies
fails 0 version
fails 0 silent
timeout "$(limit 30)" "$hello" 10.77.0.1 >"$work/client" 2>&1 || fail "the client: $(<"$work/client")"
wait "$server" || fail "the server failed: $(<"$work/server")"
[[ $(<"$work/server") == hello ]] || fail "the server printed: $(<"$work/server")"
echo "ok: the client behind them"
