#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 600
# run: long
# transport: any
# vm: bare
#
# The measurements of scripts/demo work. The test runs one round of them on peal and rdma_rxe. Every measurement must print
# a result for both devices, first when it is done and again in the table. Afterwards the devices and the netdev of the
# demo must be gone. The test needs perftest and a machine without a device.
# The test does not judge the results. A run that is not thorough therefore does one iteration in five.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
require ib_write_bw ib_read_bw ib_send_bw ib_atomic_bw ib_write_lat ib_read_lat ib_send_lat

thorough || export PEAL_DEMO_SHARE=5
output=$(PEAL_DEMO_DEVICES="peal0 rxe0" PEAL_DEMO_REPEAT=1 scripts/lib/demo-run 2>&1) || fail "demo-run: $output"
echo "$output"
table=$(sed -n '/^test  *unit  *peal0  *rxe0  *to rxe0$/,/^$/p' <<<"$output")
number='[0-9]+(\.[0-9]+)?'
figures=" +$number +$number +$number x"
for row in {write,read,send}_bw\ {64\ B,4\ KiB,64\ KiB,1\ MiB} "atomic_bw 8 B" {write,read,send}_lat\ 8\ B; do
	(($(grep -cE "^$row +(k msg/s|us) $figures\$" <<<"$output") == 2)) || fail "$row is not there twice"
	grep -qE "^$row +(k msg/s|us) $figures\$" <<<"$table" || fail "$row is not in the table"
done
for device in peal0 rxe0; do
	! device_exists "$device" || fail "$device is still there"
done
! ip link show demo0 || fail "demo0 is still there"
modprobe -r rdma_rxe
