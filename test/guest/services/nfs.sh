#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 240
# run: long
#
# NFS over RDMA: the kernel's server (nfsd, svcrdma) and client (xprtrdma) work over peal, both ends on one device, with
# NFS 4.1. A file whose data depend on their position is written and read back, also after the client has mounted the
# server again. The device is removed while a file is written, and made again: the writer waits, and the client connects
# again by itself. No programs of NFS are needed, because the test fills in the server's tables of clients and exports.
# It does not cover two machines.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
# shellcheck source=test/guest/helpers/nfs.sh
source "$(dirname "$0")/../helpers/nfs.sh"
block_data=$(helper block_data) || skip "$block_data"
address=10.77.0.1
size=64
rounds=5
work=$(mktemp -d)

clean_up() {
	umount "$work/mnt"
	nfs_stop "$work/export"
	rm -rf "$work"
} >/dev/null 2>&1
trap clean_up EXIT

peal_up peal0
nfs_load
mkdir "$work/export" "$work/mnt"
nfs_serve "$work/export" $((size * 2)) $address

mount_it() { nfs_mount $address $address "$work/mnt"; }

note_messages peal0
before=$(counter peal0 bytes)
mount_it
SECONDS=0
"$block_data" write "$work/mnt/file" $size 5 4 || fail "writing"
"$block_data" check "$work/mnt/file" $size 5 2 || fail "reading"
echo "ok: wrote and read $size MiB in $SECONDS s"
"$block_data" check "$work/export/file" $size 5 || fail "the server's file"
bytes=$(($(counter peal0 bytes) - before))
((bytes >= 2 * size << 20)) || fail "expected $((2 * size)) MiB through peal0, got $bytes bytes"
# A request and its answer are two messages, and the data of at most 1 MiB at least one.
expect_path $((6 * size))
for ((round = 0; round < rounds; round++)); do
	umount "$work/mnt" || fail "cannot unmount"
	mount_it
	"$block_data" check "$work/mnt/file" 4 5 || fail "round $round"
	cp -r /etc/default "$work/mnt/$round" && diff -r /etc/default "$work/mnt/$round" || fail "files in round $round"
done
echo "ok: mounted $rounds times"

# remove_while_writing: returns 1 if the removal met the client while it made a connection. Between two steps the next one
# fails with EINVAL (rdma_resolve_route). While the client waits for the server, the event of the removal ends the wait with
# ENODEV (rpcrdma_cm_event_handler). The client tries neither again, but reports it to the program (call_connect_status).
remove_while_writing() {
	rm -f "$work/ready"
	"$block_data" write "$work/mnt/file" $size 6 2 "$work/ready" 2>"$work/writer" &
	writer=$!
	wait_for test -e "$work/ready" || fail "the writer does not write"
	peal_down peal0
	kill -0 $writer 2>/dev/null || fail "the writer did not wait for the device: $(<"$work/writer")"
	peal_up peal0
	note_messages peal0
	wait $writer && return
	[[ $(<"$work/writer") == *@("Invalid argument"|"No such device") ]] || fail "the writer: $(<"$work/writer")"
	echo "the client gave up, because the device was removed while it connected"
	return 1
}

remove_while_writing || remove_while_writing || remove_while_writing || fail "the client gave up three times"
"$block_data" check "$work/mnt/file" $size 6 || fail "after the removal"
"$block_data" check "$work/export/file" $size 6 || fail "the server's file after the removal"
expect_path $size
echo "ok: device removed under load"
