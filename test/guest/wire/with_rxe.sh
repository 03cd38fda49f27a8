#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 240
# transport: any
#
# peal in a network namespace works with rdma_rxe in the first one. The test runs every operation with checked data,
# each end once as the client, also with shared receive queues. It runs the connection manager, and perftest's READs and
# atomics, whose client uses the depth that the server advertises. `scripts/test interop` covers the whole matrix.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
require rping ib_read_bw ib_atomic_bw
verify=build/guest/test/interop/verify
[[ -x $verify ]] || skip "verify is not built"
modprobe rdma_rxe || skip "this kernel has no rdma_rxe"

complain() { fail "$1: $(grep -v ^ok "$wire_work/client") $(<"$wire_work/server")"; }

wire_up peal rxe 1500
for end in a b; do
	wire_pair "$end" 4 100 "$verify" -d @DEVICE -g @GID -p @PORT --sizes 0,1,33,mtu,mtu+1,65536 --count 4 ||
		complain "server ${wire_device[$end]}"
	wire_pair "$end" 6 100 "$verify" -d @DEVICE -g @GID -p @PORT --sizes 3,65536 --count 4 ||
		complain "IPv6, server ${wire_device[$end]}"
	wire_pair "$end" 4 100 "$verify" -d @DEVICE -g @GID -p @PORT --sizes 1,mtu+1,65536 --count 4 --srq ||
		complain "shared receive queue, server ${wire_device[$end]}"
	wire_cm_pair "$end" 4 60 rping -s -a @ADDRESS -p @PORT -V -C 20 -S 3000 -- \
		rping -c -a @PEER -p @PORT -V -C 20 -S 3000 || complain "rping, server ${wire_device[$end]}"
	for tool in ib_read_bw ib_atomic_bw; do
		wire_pair "$end" 4 60 "$tool" -d @DEVICE -x @GID -p @PORT -F -n 1000 ||
			complain "$tool, server ${wire_device[$end]}"
	done
	# rxe has ATOMIC_WRITE since Linux 6.2.
	if [[ $(uname -r) != 6.1.* ]]; then
		wire_pair "$end" 4 60 "$verify" -d @DEVICE -g @GID -p @PORT --ops rc-atomic-write --count 100 ||
			complain "ATOMIC_WRITE, server ${wire_device[$end]}"
	fi
	echo "ok: server ${wire_device[$end]}"
done
wire_down
modprobe -r rdma_rxe
