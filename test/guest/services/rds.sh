#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: direct, thorough wire
# timeout: 120
# vm: cpus 1
# run: long
#
# RDS (reliable datagram sockets, AF_RDS) over RDMA: messages of many sizes, RDMA in both directions into memory that a
# message has mapped, between two sockets of one device. All data depend on their position. RDS works again after the device
# was removed, also if it had an atomic that cannot be sent.
# RDS over RDMA exists in the initial network namespace only (rds_set_transport), so both sockets are there. No atomic can
# succeed, because RDS posts all of them as masked atomics (rds_ib_xmit_atomic), which have no standard form on the wire,
# and maps memory without the right to atomics (rds_ib_post_reg_frmr), except with on-demand paging (rds_ib_get_mr). The
# device is not removed under load, because RDS frees its protection domain later than it leaves the device
# (rds_ib_remove_one), so it has to be unloaded first. The machine has one processor, because rds_ib_free_mr() gives a region
# to the list of free ones before it counts the region's pages. A flush on another processor can forget them in between,
# and the module then warns of its own count when it is unloaded.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
rds_data=$(helper rds_data) || skip "$rds_data"
address=10.77.0.1
server=
work=$(mktemp -d)

# In Linux 7.2 the module rds_rdma is unloaded while its workqueue still runs. That ends in a warning about lost objects or in
# a panic, with rdma_rxe as well.
can_unload() { [[ $(uname -r) != 7.* ]]; }

clean_up() {
	kill "$server" 2>/dev/null
	wait "$server"
	rm -rf "$work"
	! can_unload || modprobe -r rds_rdma
}
trap clean_up EXIT

peal_up peal0
modprobe -a rds rds_rdma 2>/dev/null || skip "the kernel has no RDS over RDMA"

start_serving() {
	"$rds_data" serve $address >"$work/server" 2>&1 &
	server=$!
	wait_for serves_or_died || fail "the server does not start"
	kill -0 "$server" 2>/dev/null || fail "the server ended: $(<"$work/server")"
}

serves_or_died() { first_line "$work/server" && [[ $line == ready ]] || ! kill -0 "$server"; }

talk() {
	timeout "$(limit 60)" "$rds_data" talk $address $address "$@" >"$work/client" 2>&1 ||
		fail "$*: $(<"$work/client") $(<"$work/server") $(dmesg | tail -n 5)"
	kill -0 "$server" 2>/dev/null || fail "the server ended: $(<"$work/server")"
	echo "ok: $* $(<"$work/client")"
}

stop_serving() {
	"$rds_data" quit $address $address || fail "cannot ask the server to end"
	wait_gone kill -0 "$server" || fail "the server does not end"
	wait "$server" || fail "the server: $(<"$work/server")"
}

note_messages peal0
before=$(counter peal0 bytes)
start_serving
talk messages
talk rdma
talk stream 64
bytes=$(($(counter peal0 bytes) - before))
((bytes >= 64 << 20)) || fail "expected at least 64 MiB through peal0, got $bytes bytes"
# The stream has 64 messages of 16 fragments each, and more.
expect_path 1000
stop_serving

can_unload || {
	echo "ok: the removal of the device is left out, because RDS of this kernel cannot be unloaded"
	exit 0
}

# RDS tries to send an atomic for ever, and sends nothing else on the connection, also for other sockets.
start_serving
talk atomic
kill "$server"
wait "$server"

modprobe -r rds_rdma || fail "RDS does not leave the device"
peal_down peal0
peal_up peal0
modprobe rds_rdma || fail "RDS does not return"
start_serving
talk messages
talk rdma
stop_serving
