#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: direct, thorough wire
# timeout: 180
# run: long
#
# SCSI over RDMA: the kernel's target (ib_srpt) and initiator (ib_srp) work over peal, both ends on one device. Data that
# depend on their position are written and read back, through queues of requests of many sizes and through a file system.
# The initiator logs out and in again. The device is removed under load and made again.
# It does not cover two machines: see with_rxe.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
# shellcheck source=test/guest/helpers/srp.sh
source "$(dirname "$0")/../helpers/srp.sh"
block_require
address=10.77.0.1
size=64
rounds=5
thorough && rounds=50
work=$(mktemp -d)

clean_up() {
	umount "$work/mnt"
	srp_clean_up
	rm -rf "$work"
} >/dev/null 2>&1

connect() { srp_connect peal0 "$(srp_identifier)" $address; }

disconnect() { srp_disconnect; }

srp_load $size
trap clean_up EXIT
peal_up peal0
srp_make_target peal0 $address

block_move $size
mkdir "$work/mnt"
block_file_system "$work/mnt" 16 $rounds

block_lose_device $size
wait_gone test -e "/sys/block/${disk##*/}" || fail "the disk outlived its device"
srp_remove_target
echo "ok: device removed under load"

peal_up peal0
srp_make_target peal0 $address
block_works_again
