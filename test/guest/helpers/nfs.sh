# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# NFS over RDMA with the kernel's server (nfsd, svcrdma) and client (xprtrdma), for shell tests that have sourced lib.sh. No
# program of NFS is needed, because these functions fill in the server's tables of clients and exports.

nfsd=/proc/fs/nfsd

nfs_load() { modprobe -a nfsd rpcrdma nfsv4 2>/dev/null || skip "the kernel has no NFS over RDMA"; }

# nfs_serve FOLDER MIB CLIENT: serves a memory file system of that size at FOLDER to the client's address, as the root of
# NFS 4.1.
nfs_serve() {
	local for_ever=2147483647 flags
	mount -t tmpfs -o "size=$2M" none "$1" || fail "no file system to export"
	mountpoint -q $nfsd || mount -t nfsd none $nfsd || fail "no file system of nfsd"
	# Read and write, as root, asynchronously, from any port, without a check of subtrees, and with the number 0, which
	# makes it the root of NFS 4.
	flags=$((0x2000 | 0x400 | 0x10 | 0x2))
	echo "nfsd $3 $for_ever peal" >/proc/net/rpc/auth.unix.ip/channel || fail "client"
	echo "peal $1 $for_ever $flags 65534 65534 0" >/proc/net/rpc/nfsd.export/channel || fail "export"
	printf 'peal 1 \\x00000000 %s %s\n' "$for_ever" "$1" >/proc/net/rpc/nfsd.fh/channel || fail "root of the export"
	echo 10 >$nfsd/nfsv4gracetime
	echo "-2 -3 +4 +4.1" >$nfsd/versions 2>/dev/null || echo "-3 +4 +4.1" >$nfsd/versions
	echo "rdma 20049" >$nfsd/portlist || fail "the server does not listen: $(dmesg | tail -n 5)"
	echo 4 >$nfsd/threads || fail "the server does not start: $(dmesg | tail -n 5)"
}

# nfs_stop FOLDER
nfs_stop() {
	echo 0 >$nfsd/threads
	umount $nfsd "$1"
} >/dev/null 2>&1

# nfs_mount SERVER CLIENT FOLDER: mounts the root of the server at that address, from the client's address.
nfs_mount() {
	mount -i -t nfs4 -o "vers=4.1,proto=rdma,port=20049,addr=$1,clientaddr=$2" "$1:/" "$3" ||
		fail "cannot mount: $(dmesg | tail -n 5)"
}
