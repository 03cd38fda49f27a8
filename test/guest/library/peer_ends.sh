#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: any
# timeout: 180
#
# Holds: Of two programs of libpeal that have connected by blobs, without the connection manager, one closes. The other one gets
# what was sent before, and its wait ends with a sentence that says so, as does its next request. If the peer ends without a word,
# the next request fails and says that the peer does not answer. This is so on the direct path, as packets, and between peal and
# rdma_rxe, whichever of them closes.
# Does not hold: that a farewell is the peer's, and what happens if the network loses it. test/unit/lib/offer.cpp has these cases.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
library_peer=$(helper library_peer) || skip "$library_peer"
work=$(mktemp -d)
modprobe -a rdma_cm rdma_ucm

# on END ARGUMENT...: runs library_peer at that end of the wire, or on peal0 if there is no wire.
on() {
	local end=$1
	shift
	set -- env PEAL_DEVICE="${wire_device[$end]:-peal0}" timeout "$(limit 90)" "$library_peer" "$@"
	if [[ ${wire_device[$end]:-} ]]; then
		wire_on "$end" "$@"
	else
		${wire_exec:-} "$@"
	fi
}

# meet END TRANSPORT ROLE OTHER_END ROLE: starts both programs. $first and $second are their processes.
meet() {
	rm -f "$work"/blob*
	wire_exec="exec" on "$1" "$work/blob1" "$work/blob2" "$2" "$3" >"$work/first" 2>&1 </dev/null &
	first=$!
	wire_exec="exec" on "$4" "$work/blob2" "$work/blob1" "$2" "$5" >"$work/second" 2>&1 </dev/null &
	second=$!
}

# ends WHICH: this one ends well.
ends() { wait "${!1}" || fail "the $1 program: $(<"$work/first") / $(<"$work/second")"; }

# closes END OTHER_END TRANSPORT
closes() {
	meet "$1" "$3" closes "$2" hears
	ends first
	ends second
	(($(grep -c "the peer has closed the connection" "$work/second") == 2)) || fail "$3: the end says: $(<"$work/second")"
}

connected() { grep -q connected "$work/second"; }

# dies END OTHER_END
dies() {
	meet "$1" rc dies "$2" posts
	ends first
	wait_for connected || fail "the program whose peer died: $(<"$work/second")"
	touch "$work/blob2.dead"
	ends second
	grep -q "the peer does not answer" "$work/second" || fail "a request to a dead peer says: $(<"$work/second")"
}

# try_all END OTHER_END
try_all() {
	closes "$1" "$2" rc
	closes "$1" "$2" uc
	dies "$1" "$2"
	echo "ok: ${wire_device[$1]:-peal0} ends before ${wire_device[$2]:-peal0}"
}

interface_up
peal_up
note_messages peal0
try_all a b
expect_path 3
direct_off peal0
note_messages peal0
try_all a b
PEAL_TRANSPORT=wire expect_path 3
peal_down

modprobe rdma_rxe || skip "this kernel has no rdma_rxe"
wire_up peal rxe
try_all a b
try_all b a
wire_down
wire_up rxe rxe
try_all a b
wire_down
modprobe -r rdma_rxe
