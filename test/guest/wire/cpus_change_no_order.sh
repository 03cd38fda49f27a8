#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 120
# transport: any
#
# A thread that changes its CPU while it sends does not make the packets of its connection overtake each other. The answers
# arrive on the CPU of the receiver, and then always on one CPU, as a netdev with receive packet steering delivers them.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
program=build/guest/test/guest/changing_cpus
(($(nproc) > 1)) || skip "there is one CPU"

wire_up peal peal 1500
for cpus in 0 1 2; do
	wire_on a bash -c "echo $cpus >/sys/class/net/wire_a/queues/rx-0/rps_cpus" || fail "cannot choose the CPUs of answers"
	echo "the CPUs of answers: $cpus"
	"$program" || fail "packets overtake each other"
done
wire_down
