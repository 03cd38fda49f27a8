#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 240
# run: long
#
# The device goes away while programs use it: by rdma link delete, with its namespace, with its netdev, with the module.
# Each command returns soon, the programs learn of it, and the device can be made again. Programs that are killed leave
# nothing behind. Packets that a fault holds for longer ("peal fault add delay") delay neither.
# The state of each object afterwards is not looked at (verbs/states_and_limits does that).
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
traffic=$(helper traffic) || skip "$traffic"
programs=()

# start DEVICE ARGUMENT...
start() {
	start_traffic "$@"
	programs+=("$program")
}

# Starts busy and idle programs.
start_programs() {
	programs=()
	start "$1" --until-removed
	start "$1" --until-removed --size 8000000
	start "$1" --until-removed --idle
	start "$1" --until-removed --shared
	start "$1" --until-removed --shared --idle
}

programs_end_well() {
	local program
	for program in "${programs[@]}"; do
		wait_for ended "$program" || fail "a program still runs: $(cat "/proc/$program/stack")"
		wait "$program" || fail "a program did not end well"
	done
}

works() { PEAL_DEV=$1 "$traffic" --messages 200 --size 5000 || fail "$1 does not work: $2"; }

make_netdev() {
	ip link add trm0 type veth peer name trm1 && ip link set trm1 up &&
		ip address add 10.79.0.1/24 dev trm0 && ip link set trm0 up || fail "cannot make trm0"
}

link_delete() {
	local round rounds=1
	! thorough || rounds=3
	for ((round = 1; round <= rounds; round++)); do
		start_programs peal0
		timed rdma link delete peal0
		programs_end_well
		! device_exists peal0 || fail "peal0 is still there"
		peal_up
		works peal0 "after rdma link delete, round $round"
	done
}

# This program never lets a queue pair become empty. The removal must not wait for that.
stubborn_program() {
	programs=()
	start peal0 --stubborn
	start peal0 --stubborn
	timed rdma link delete peal0
	kill -KILL "${programs[@]}"
	wait "${programs[@]}" 2>/dev/null
	peal_up
	works peal0 "after it was removed under programs that went on posting"
}

# The device goes to another namespace, and comes back when that one ends. The core presents the move as a removal.
namespace_move() {
	rdma system set netns exclusive || fail "cannot make devices exclusive"
	ip netns add moved || fail "cannot make a namespace"
	start_programs peal0
	timed rdma dev set peal0 netns moved
	programs_end_well
	wait_gone device_exists peal0 || fail "peal0 is still in the first namespace"
	ip netns delete moved
	wait_for device_exists peal0 || fail "peal0 did not come back"
	rdma system set netns shared || fail "cannot share devices again"
	peal_up
	works peal0 "after a visit to another namespace"
}

netdev_delete() {
	make_netdev
	peal_up peal9 trm0
	start_programs peal9
	timed ip link delete trm0
	programs_end_well
	wait_gone device_exists peal9 || fail "peal9 outlived its netdev"
	works peal0 "after another device's netdev was removed"
}

resources_are() { [[ $(rdma resource show "$2") == "$1" ]]; }

killed() {
	local before program
	before=$(rdma resource show peal0)
	programs=()
	start peal0
	start peal0 --size 8000000
	start peal0 --idle
	start peal0 --shared
	for program in "${programs[@]}"; do
		kill -KILL "$program"
		wait "$program" 2>/dev/null
	done
	wait_for resources_are "$before" peal0 ||
		fail "expected the resources '$before', got '$(rdma resource show peal0)'"
	works peal0 "after programs were killed"
}

holds_packets() { peal fault show peal9 --json | grep -q '"fired": [1-9]'; }

# The packets of the programs that run are late by ten seconds from now on.
hold_packets() {
	peal fault add peal9 delay 10s >/dev/null || fail "cannot add a fault"
	wait_for holds_packets || fail "no packet is held: $(peal fault show peal9)"
}

# First the programs are killed, and then the module goes.
packets_are_held() {
	local before
	make_netdev
	peal link add peal9 netdev trm0 direct off faults on || fail "cannot make peal9"
	wait_for device_ready peal9 || fail "peal9 is not ready: $(device_state peal9)"
	before=$(rdma resource show peal9)
	programs=()
	start peal9
	start peal9 --size 8000000
	hold_packets
	kill -KILL "${programs[@]}"
	wait "${programs[@]}" 2>/dev/null
	wait_for resources_are "$before" peal9 || fail "expected the resources '$before', got '$(rdma resource show peal9)'"
	peal fault del peal9
	works peal9 "while it holds packets of programs that were killed"
	programs=()
	start peal9 --until-removed
	start peal9 --until-removed --size 8000000
	hold_packets
	timed modprobe -r peal
	programs_end_well
	ip link delete trm0
	modprobe peal || fail "cannot load the module again"
	peal_up
	works peal0 "after the module went with packets that it held"
}

module_remove() {
	start_programs peal0
	timed modprobe -r peal
	programs_end_well
	! grep -q '^peal ' /proc/modules || fail "the module is still there"
	modprobe peal || fail "cannot load the module again"
	peal_up
	works peal0 "after the module was loaded again"
}

# Makes, moves and removes devices at the same time, many times.
churn() {
	local round rounds=4
	! thorough || rounds=10
	for ((round = 1; round <= rounds; round++)); do
		programs=()
		start peal0 --until-removed
		rdma link delete peal0 || fail "cannot remove peal0 in round $round"
		peal_up
		programs_end_well
	done
	works peal0 "after $rounds removals"
}

link_delete
stubborn_program
namespace_move
netdev_delete
killed
packets_are_held
module_remove
churn
