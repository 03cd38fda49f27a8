#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: any
#
# Holds: Unreliable connections of libpeal write and answer between peal and rdma_rxe, with the server on each of them: with the
# connection manager and by blobs, with receives of their own and with shared ones. Endpoints exchange datagrams of each length,
# and each tells its sender's address. The test does the same between two devices of peal.
# Does not hold: a wire that loses messages.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
library_ends=$(helper library_ends) || skip "$library_ends"
work=$(mktemp -d)
modprobe -a rdma_cm rdma_ucm

# on END ARGUMENT...: runs that end.
on() { wire_on "$1" env PEAL_DEVICE="${wire_device[$1]}" timeout "$(limit 60)" "$library_ends" "${@:2}"; }

# meet SERVER CLIENT: both ends of the wire. The client begins when the server listens. The closest addresses are those of IPv6.
meet() {
	local server
	rm -rf "$work/blobs"
	mkdir "$work/blobs"
	wire_exec="exec" on "$1" "$work/blobs" "${wire_v6[$2]}" >"$work/server" 2>&1 </dev/null &
	server=$!
	wait_for cm_listens_or_died 7482 && kill -0 "$server" || fail "library_ends does not listen: $(<"$work/server")"
	on "$2" "$work/blobs" "${wire_v6[$2]}" "${wire_v4[$1]}" >"$work/client" 2>&1 ||
		fail "client ${wire_device[$2]}: $(<"$work/client") server ${wire_device[$1]}: $(<"$work/server")"
	wait "$server" || fail "server ${wire_device[$1]}: $(<"$work/server")"
	echo "ok: server ${wire_device[$1]}, client ${wire_device[$2]}"
}

wire_up peal peal
wire_neighbours
meet a b
wire_down
modprobe rdma_rxe || skip "this kernel has no rdma_rxe"
wire_up peal rxe
wire_neighbours
meet a b
meet b a
wire_down
modprobe -r rdma_rxe
