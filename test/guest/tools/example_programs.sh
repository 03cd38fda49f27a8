#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 120
#
# The examples of librdmacm that tools/connect_on_one_host does not run work between two programs of one host: sockets over
# RDMA (riostream, rcopy) and the synchronous calls (rdma_client, rdma_xclient). Two examples fail as they do on other devices:
# rdma_xclient with XRC, and udpong. ibstat describes the device, and
# ibv_asyncwatch reports when its port goes down and up.
# Most of the examples compare no data. rcopy's file is compared here, and riostream compares its own.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}
address=10.77.0.1
next_port=18850
work=$(mktemp -d)
modprobe -a rdma_cm rdma_ucm ib_umad
require riostream rcopy rdma_server rdma_xserver ibstat ibv_asyncwatch stdbuf rdma udpong

cm_pair riostream -p @PORT -S 4096 -C 10 -I 50 -T v -- riostream -s $address -p @PORT -S 4096 -C 10 -I 50 -T v
cm_pair riostream -p @PORT -S 65536 -C 4 -I 10 -T v -T a -- riostream -s $address -p @PORT -S 65536 -C 4 -I 10 -T v -T a
head -c 3000001 /dev/urandom >"$work/source"
cm_pair rcopy -p @PORT -- rcopy "$work/source" "$address:$work/copy" -p @PORT
cmp "$work/source" "$work/copy" || fail "rcopy's copy differs"
cm_pair rdma_server -s $address -p @PORT -- rdma_client -s $address -p @PORT
cm_pair rdma_xserver -p @PORT -- rdma_xclient -s $address -p @PORT

# rdma_xserver cannot serve XRC. It asks librdmacm for a shared receive queue in the protection domain of its id, which has
# none (rdma_create_srq_ex).
port=$((next_port++))
timeout "$(limit 40)" rdma_xserver -p $port -c x >"$work/server" 2>&1 &
server=$!
wait_for cm_listens_or_died $port || fail "rdma_xserver -c x does not listen: $(<"$work/server")"
! timeout "$(limit 40)" rdma_xclient -s $address -p $port -c x >"$work/client" 2>&1 || fail "rdma_xclient -c x works"
wait $server
grep -q "rdma_create_srq.*Invalid argument" "$work/server" || fail "rdma_xserver -c x: $(<"$work/server") $(<"$work/client")"
echo "ok: rdma_xserver -c x fails as expected"

# udpong cannot connect through any RoCE device, also not through rdma_rxe, because librdmacm makes an address handle without a
# GRH for it (ds_add_qp_dest).
! timeout "$(limit 40)" udpong -s $address -p $((next_port++)) -C 10 -S 1000 >"$work/client" 2>&1 || fail "udpong works"
grep -q "rconnect: No such file or directory" "$work/client" || fail "udpong: $(<"$work/client")"
echo "ok: udpong fails as expected"

status=$(ibstat "$device" 1) || fail "ibstat: $status"
[[ $status == *"State: Active"*"Physical state: LinkUp"*"Link layer: Ethernet"* ]] || fail "ibstat: $status"
ibstat -l | grep -qx "$device" || fail "ibstat -l: $(ibstat -l)"
echo "ok: ibstat"

if [[ $device == peal0 ]]; then
	stdbuf -oL ibv_asyncwatch -d "$device" >"$work/events" 2>&1 &
	watcher=$!
	wait_for grep -q FD "$work/events" || fail "ibv_asyncwatch: $(<"$work/events")"
	ip link set veth1 down
	wait_for grep -q PORT_ERR "$work/events" || fail "no event when the link went down: $(<"$work/events")"
	ibstat "$device" 1 | grep -q "State: Down" || fail "ibstat while the link is down: $(ibstat "$device" 1)"
	ip link set veth1 up
	wait_for grep -q PORT_ACTIVE "$work/events" || fail "no event when the link came up: $(<"$work/events")"
	kill $watcher
	wait $watcher 2>/dev/null
	wait_for device_ready "$device" || fail "$device is not ready again"
	echo "ok: ibv_asyncwatch"
fi
rm -rf "$work"
exit 0
