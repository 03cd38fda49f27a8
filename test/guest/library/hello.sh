#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: any
# timeout: 120
#
# Holds: The first example of libpeal writes into the memory of its peer and tells it so, through the direct path, as packets,
# between peal and rdma_rxe, and between two rdma_rxe. The program that accepts gets the message also if the packet is lost by
# which its peer confirms the connection (RTU), and the peer ends. What goes wrong is said in one sentence: no device, a port on
# which no program accepts, an address that no device reaches, a name that does not exist. The same program with verbs alone,
# which the documentation shows beside it, works too.
# Does not hold: test/unit/lib has the library's own cases.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
hello=build/user/userspace/lib/peal-hello
[[ -x $hello ]] || skip "libpeal is not built"
require nft
hello_verbs=$(helper hello_verbs) || skip "$hello_verbs"
work=$(mktemp -d)
modprobe -a rdma_cm rdma_ucm

# says SENTENCE COMMAND...: the command fails with this sentence on one line.
says() {
	local sentence=$1 status=0
	shift
	timeout "$(limit 30)" "$@" >"$work/output" 2>&1 || status=$?
	((status == 1)) || fail "$*: expected exit status 1, got $status: $(<"$work/output")"
	grep -q -E "$sentence" "$work/output" || fail "$*: expected '$sentence', got: $(<"$work/output")"
	(($(wc -l <"$work/output") == 1)) || fail "$*: expected one line, got: $(<"$work/output")"
	echo "ok: $(<"$work/output")"
}

# greet ADDRESS [PROGRAM]: one hello, from one program to another of this host.
greet() {
	local program=${2:-$hello}
	timeout "$(limit 60)" "$program" >"$work/server" 2>&1 &
	server=$!
	wait_for cm_listens_or_died 7174 || fail "hello does not listen: $(<"$work/server")"
	timeout "$(limit 30)" "$program" "$1" >"$work/client" 2>&1 || fail "to $1: $(<"$work/client")"
	wait "$server" || fail "the server failed: $(<"$work/server")"
	[[ $(<"$work/server") == hello ]] || fail "the server printed: $(<"$work/server")"
}

# wire_greet END FAMILY: as above, from the other end of a wire.
wire_greet() {
	wire_cm_pair "$1" "$2" 60 env PEAL_DEVICE=@DEVICE "$hello" -- env PEAL_DEVICE=@DEVICE "$hello" @PEER ||
		fail "server ${wire_device[$1]}: $(<"$wire_work/client") $(<"$wire_work/server")"
	[[ $(<"$wire_work/server") == hello ]] || fail "the server printed: $(<"$wire_work/server")"
	echo "ok: server ${wire_device[$1]}, IPv$2"
}

# lose_confirmations END: drops what comes to this end with the attribute RTU (0x14) in a SEND (0x64) of an unreliable datagram.
# UDP's header has 8 bytes, BTH 12, DETH 8, and the attribute is at the bytes 16 and 17 of the MAD.
lose_confirmations() {
	wire_on "$1" nft -f - <<-'RULES' || fail "cannot set the firewall"
		table inet lost {
			chain input {
				type filter hook input priority 0
				udp dport 4791 @th,64,8 0x64 @th,352,16 0x14 counter drop
			}
		}
	RULES
}

! device_exists peal0 || peal_down
says "there is no RDMA device; make one" "$hello"
interface_up
peal_up
PEAL_DEVICE=peal9 says "there is no RDMA device peal9; ibv_devices lists" "$hello"
note_messages peal0
greet 10.77.0.1
greet fd77::1
expect_path 2
greet 10.77.0.1 "$hello_verbs"
direct_off peal0
note_messages peal0
greet 10.77.0.1
PEAL_TRANSPORT=wire expect_path 1
says "no program at 10.77.0.1 accepts on port 7174; start it first" "$hello" 10.77.0.1
says "no RDMA device of this host reaches 192.0.2.1" "$hello" 192.0.2.1
says "the name nowhere.invalid is not known" "$hello" nowhere.invalid
peal_down

modprobe rdma_rxe || skip "this kernel has no rdma_rxe"
for kinds in "peal rxe" "rxe rxe"; do
	# shellcheck disable=SC2086 # two words
	wire_up $kinds
	for end in a b; do
		for family in 4 6; do
			wire_greet "$end" "$family"
		done
	done
	if [[ $kinds == peal* ]]; then
		lose_confirmations a
		wire_greet a 4
		wire_on a nft list chain inet lost input | grep -q 'packets [1-9]' || fail "no confirmation was dropped"
	fi
	wire_down
done
modprobe -r rdma_rxe
