#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 180
# run: long
#
# NFS over RDMA: the kernel's server (nfsd, svcrdma) and client (xprtrdma) work over peal, both ends on one device, with
# NFS 4.1. A file whose data depend on their position is written and read back, also after the client has mounted the
# server again. No programs of NFS are needed: the test fills in the server's tables of clients and exports.
# It does not cover two machines, nor a device that is removed meanwhile.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
block_data=$(dirname "$0")/../../../build/user/test/guest/block_data
[[ ${PEAL_DEV:-peal0} == peal0 ]] || skip "only peal0 is tested"
[[ -x $block_data ]] || skip "the helper 'block_data' is not built"
address=10.77.0.1
size=64
rounds=5
work=$(mktemp -d)
nfsd=/proc/fs/nfsd
for_ever=2147483647

clean_up() {
	umount "$work/mnt"
	echo 0 >$nfsd/threads
	umount $nfsd "$work/export"
	rm -rf "$work"
} >/dev/null 2>&1
trap clean_up EXIT

peal_up peal0
modprobe -a nfsd rpcrdma nfsv4 2>/dev/null || skip "the kernel has no NFS over RDMA"
mkdir "$work/export" "$work/mnt"
mount -t tmpfs -o size=$((size * 2))M none "$work/export" || fail "no file system to export"
mountpoint -q $nfsd || mount -t nfsd none $nfsd || fail "no file system of nfsd"

# Read and write, as root, asynchronously, from any port, without a check of subtrees, and with the number 0, which makes
# it the root of NFS 4.
flags=$((0x2000 | 0x400 | 0x10 | 0x2))
echo "nfsd $address $for_ever peal" >/proc/net/rpc/auth.unix.ip/channel || fail "client"
echo "peal $work/export $for_ever $flags 65534 65534 0" >/proc/net/rpc/nfsd.export/channel || fail "export"
printf 'peal 1 \\x00000000 %s %s\n' "$for_ever" "$work/export" >/proc/net/rpc/nfsd.fh/channel || fail "root of the export"
echo 10 >$nfsd/nfsv4gracetime
echo "-2 -3 +4 +4.1" >$nfsd/versions 2>/dev/null || echo "-3 +4 +4.1" >$nfsd/versions
echo "rdma 20049" >$nfsd/portlist || fail "the server does not listen: $(dmesg | tail -n 5)"
echo 4 >$nfsd/threads || fail "the server does not start: $(dmesg | tail -n 5)"

mount_it() {
	mount -i -t nfs4 -o "vers=4.1,proto=rdma,port=20049,addr=$address,clientaddr=$address" $address:/ "$work/mnt" ||
		fail "cannot mount: $(dmesg | tail -n 5)"
}

before=$(counter peal0 bytes)
mount_it
SECONDS=0
"$block_data" write "$work/mnt/file" $size 5 4 || fail "writing"
"$block_data" check "$work/mnt/file" $size 5 2 || fail "reading"
echo "ok: wrote and read $size MiB in $SECONDS s"
"$block_data" check "$work/export/file" $size 5 || fail "the server's file"
bytes=$(($(counter peal0 bytes) - before))
((bytes >= 2 * size << 20)) || fail "expected $((2 * size)) MiB through peal0, got $bytes bytes"
for ((round = 0; round < rounds; round++)); do
	umount "$work/mnt" || fail "cannot unmount"
	mount_it
	"$block_data" check "$work/mnt/file" 4 5 || fail "round $round"
	cp -r /etc/default "$work/mnt/$round" && diff -r /etc/default "$work/mnt/$round" || fail "files in round $round"
done
echo "ok: mounted $rounds times"
