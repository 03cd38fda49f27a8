#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Runs in a guest, for scripts/conformance. Runs rdma-core's test suite on peal0, and then on an rxe device on the same netdev.
# Leaves /results/peal and /results/rxe. It judges nothing.
set -u
here=$(dirname "$0")
# shellcheck source=test/guest/helpers/lib.sh
source "$here/../guest/helpers/lib.sh"
suite=/usr/share/doc/rdma-core/tests
modprobe -a rdma_cm rdma_ucm
# Some tests want huge pages.
echo 16 >/proc/sys/vm/nr_hugepages
work=$(mktemp -d)
cp -r "$suite" "$work/tests" || fail "install python3-pyverbs with its documentation"
gunzip "$work"/tests/*.gz

# run DEVICE RESULT
run() {
	local gid
	gid=$(gid_index "$1") || fail "$1 has no IPv4 GID"
	"$here/run_suite.py" "$work/tests" "$1" "$gid" "/results/$2" >"/results/$2.log" 2>&1 || fail "the suite on $1 did not end"
}

run peal0 peal
peal_down peal0
# scripts/conformance looks for warnings before this line.
echo "conformance: rdma_rxe is next" >/dev/kmsg
modprobe rdma_rxe || fail "no rdma_rxe"
rdma link add rxe0 type rxe netdev veth0 || fail "no rxe device"
wait_for device_ready rxe0 || fail "rxe0 is not ready"
run rxe0 rxe
