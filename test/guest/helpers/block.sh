# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# What the tests of storage do with a disk that comes through peal0, for shell tests that have sourced lib.sh. The target's
# disk is /dev/ram0. The test defines connect, which sets $disk, and disconnect. Data depend on their position.

block_data=$(dirname "${BASH_SOURCE[0]}")/../../../build/guest/test/guest/block_data
disk=

# block_require: skips a test that cannot run.
block_require() {
	[[ -x $block_data ]] || skip "the helper 'block_data' is not built"
	require mkfs.ext4
}

# find_scsi_disk: sets $disk, and fails while there is none.
find_scsi_disk() {
	local path
	for path in /sys/block/sd*; do
		[[ -b /dev/${path##*/} ]] && disk=/dev/${path##*/} && return
	done
	return 1
}

# block_move MIB: connects, writes the disk and reads it back, through queues of requests of many sizes.
block_move() {
	note_messages peal0
	connect
	SECONDS=0
	"$block_data" write "$disk" "$1" 1 4 || fail "writing"
	echo "ok: wrote $1 MiB in $SECONDS s"
	SECONDS=0
	"$block_data" check "$disk" "$1" 1 2 || fail "reading"
	echo "ok: read $1 MiB in $SECONDS s"
	"$block_data" check /dev/ram0 "$1" 1 || fail "the target's disk"
	expect_path 1000
}

# block_file_system FOLDER MIB ROUNDS: makes a file system, with a file of that size. It is still there after each of the
# rounds, in which the initiator disconnects and connects. It is mounted at FOLDER.
block_file_system() {
	local folder=$1 size=$2 rounds=$3 round
	mkfs.ext4 -q -F "$disk" && mount "$disk" "$folder" || fail "no file system"
	"$block_data" write "$folder/file" "$size" 77 || fail "writing a file"
	cp -r /etc/default "$folder/" || fail "copying files"
	umount "$folder"
	for ((round = 0; round < rounds; round++)); do
		disconnect
		connect
		mount "$disk" "$folder" || fail "the file system is gone in round $round"
		"$block_data" check "$folder/file" 4 77 || fail "reading a file in round $round"
		umount "$folder"
	done
	mount "$disk" "$folder" || fail "the file system is gone"
	"$block_data" check "$folder/file" "$size" 77 || fail "reading a file"
	diff -r /etc/default "$folder/default" || fail "copied files differ"
	umount "$folder"
	echo "ok: connected again $rounds times, with a file system"
}

# block_lose_device MIB: removes peal0 while the disk is written. Both ends lose it. The writer gets an error, or ends because
# its disk is gone.
block_lose_device() {
	local ready writer status
	ready=$(mktemp -u)
	"$block_data" write "$disk" "$1" 3 2 "$ready" 2>"$ready.errors" &
	writer=$!
	wait_for test -e "$ready" || fail "the writer does not write"
	peal_down peal0
	wait "$writer"
	status=$?
	((status == 2)) || fail "expected the writer to get an error, got $status: $(<"$ready.errors")"
	rm -f "$ready" "$ready.errors"
}

# block_works_again: connects to a device and a target that were made again.
block_works_again() {
	connect
	"$block_data" write "$disk" 4 9 2 && "$block_data" check "$disk" 4 9 || fail "after the removal"
	disconnect
	echo "ok: works again"
}
