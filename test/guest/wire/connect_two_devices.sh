#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 400
# run: long
# transport: any
#
# The connection manager, UD and multicast work between two devices in two network namespaces, over IPv4 and IPv6. Each
# end is the client once. One case removes one end's device under its connections.
set -u
# shellcheck disable=SC2154 # wire_work is wire.sh's
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
read -r -a kinds <<<"${WIRE_KINDS:-peal peal}"
require rping ucmatose udaddy mckey rstream ib_send_bw ibv_ud_pingpong rdma

# cm SERVER_END FAMILY SERVER... -- CLIENT...
cm() {
	wire_cm_pair "$1" "$2" 60 "${@:3}" ||
		fail "IPv$2, server at $1: ${*:3}: $(<"$wire_work/client") $(<"$wire_work/server")"
	echo "ok: IPv$2, server at $1: ${*:3}"
}

# both FAMILY SERVER... -- CLIENT...: runs it twice, so that each end is the server once.
both() {
	cm a "$@"
	cm b "$@"
}

# plain SERVER_END FAMILY COMMAND...
plain() {
	wire_pair "$1" "$2" 60 "${@:3}" ||
		fail "IPv$2, server at $1: ${*:3}: $(<"$wire_work/client") $(<"$wire_work/server")"
	echo "ok: IPv$2, server at $1: ${*:3}"
}

wire_up "${kinds[@]}" 1500
for family in 4 6; do
	both "$family" rping -s -a @ADDRESS -p @PORT -C 10 -S 1000 -V -- rping -c -a @PEER -p @PORT -C 10 -S 1000 -V
	both "$family" udaddy -b @ADDRESS -- udaddy -s @PEER
	plain b "$family" ibv_ud_pingpong -d @DEVICE -g @GID -p @PORT -n 100
done
cm b 4 ucmatose -b @ADDRESS -p @PORT -c 20 -- ucmatose -s @PEER -p @PORT -c 20
cm a 4 rstream -b @ADDRESS -p @PORT -S 20000 -C 50 -- rstream -s @PEER -p @PORT -S 20000 -C 50
cm a 4 ib_send_bw -d @DEVICE -R -p @PORT -n 100 -- ib_send_bw -d @DEVICE -R -p @PORT -n 100 @PEER
plain a 4 ib_send_bw -d @DEVICE -x @GID -p @PORT -c UD -n 100 -s 1024
plain a 4 ib_send_lat -d @DEVICE -x @GID -p @PORT -c UD -n 100 -s 64

# joined END HEX: whether the network stack at that end is in the group.
joined() { wire_on "$1" grep -qi "$2" /proc/net/igmp; }

# multicast RECEIVER_END
multicast() {
	local end=$1 sender status=0
	sender=$(other_end "$end")
	wire_exec="exec" wire_on "$end" timeout "$(limit 60)" mckey -m 239.1.1.9 -b "${wire_v4[$end]}" >"$wire_work/server" 2>&1 &
	server=$!
	wait_for joined "$end" 090101EF || fail "mckey does not join at $end: $(<"$wire_work/server")"
	wire_on "$sender" timeout "$(limit 60)" mckey -m 239.1.1.9 -b "${wire_v4[$sender]}" -s >"$wire_work/client" 2>&1 || status=$?
	wait "$server" || status=1
	((status == 0)) || fail "mckey to $end: $(<"$wire_work/client") $(<"$wire_work/server")"
	echo "ok: mckey to $end"
}

multicast a
multicast b
wire_down
