#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 240
# run: long
# transport: any
#
# Many namespaces with a device each end at once. peal waits for one grace period for all that end together, not for one
# each. A program's call that stalls in one namespace delays the removal of its device. Meanwhile devices in other
# namespaces are made and removed, and namespaces that end at the same time lose theirs.
# The test prints how long the end takes with and without devices. NETNS_COUNT is the number of namespaces. With
# NETNS_TIMES=1 the test only measures the times.
# It does not look at what programs in the namespaces see (lifecycle/network_changes).
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
stall=$(dirname "$0")/../../../build/guest/test/guest/stall
modprobe -a dummy veth ib_uverbs
count=${NETNS_COUNT:-24}
scratch=$(mktemp -d)
tracing=/sys/kernel/tracing

# namespace_up NAME [DEVICE]: makes a namespace with a netdev, and with a device if it is named.
namespace_up() {
	ip netns add "$1" && ip -n "$1" link add dummy0 type dummy && ip -n "$1" address add 10.85.0.1/24 dev dummy0 &&
		ip -n "$1" link set dummy0 up || fail "cannot make the namespace $1"
	[[ -z ${2:-} ]] || ip netns exec "$1" rdma link add "$2" type peal netdev dummy0 || fail "cannot make $2"
}

# The end of a namespace shows only in a veth of its own, which goes with it. The other end of the veth is here.
witness() { ip link add "seen$1" type veth peer name witness netns "$2" || fail "cannot make the witness of $2"; }

seen() { ip -o link show type veth | grep -q ': seen'; }

# all_end [DEVICES]: makes and ends $count namespaces. It sets $took, in ms.
all_end() {
	local i begin
	for ((i = 0; i < count; i++)); do
		namespace_up "many$i" "${1:+many$i}"
		witness "$i" "many$i"
	done
	begin=$(now_ms)
	for ((i = 0; i < count; i++)); do
		echo "netns delete many$i"
	done | ip -batch - || fail "cannot end the namespaces"
	WAIT_LIMIT=$(limit 600) wait_gone seen || fail "the namespaces do not end"
	took=$(($(now_ms) - begin))
	! device_exists "many0" || fail "many0 outlived its namespace"
}

# The return address says which function of peal is the caller.
count_waits() {
	mountpoint -q "$tracing" || mount -t tracefs tracefs "$tracing" || return 1
	[[ -e $tracing/kprobe_events ]] || return 1
	# shellcheck disable=SC2016 # $stack is the kernel's
	printf '%s\n' 'p:waits/grace synchronize_net caller=+0($stack):symbol' \
		'p:waits/barrier rcu_barrier caller=+0($stack):symbol' 'p:waits/batch cleanup_net' >"$tracing/kprobe_events" &&
		echo >"$tracing/trace" && echo 1 >"$tracing/events/waits/enable"
}

# waits NAME: how many waits peal began.
waits() { grep -c "$1: .*caller=.*peal" "$tracing/trace"; }

end_count() {
	echo 0 >"$tracing/events/waits/enable"
	echo >"$tracing/kprobe_events"
}

many_at_once() {
	local with counted=1 batches
	count_waits || counted=
	all_end devices
	with=$took
	if [[ -n $counted ]]; then
		batches=$(grep -c 'batch: ' "$tracing/trace")
		echo "$count namespaces in $batches batches: $(waits grace) waits for a grace period, $(waits barrier) for callbacks"
		if [[ -z ${NETNS_TIMES:-} ]]; then
			(($(waits grace) <= batches && $(waits barrier) <= batches)) || fail "peal waits for each namespace"
			((batches < count / 2)) || fail "there were $batches batches of $count namespaces: this shows nothing"
		fi
		end_count
	fi
	all_end
	echo "$count namespaces ended in $with ms with a device each, in $took ms without"
}

# start_stall DEVICE: sets $program.
start_stall() {
	wait_for verbs_node "$1" || fail "$1 has no node"
	"$stall" "$(verbs_node "$1")" "$scratch/$1" &
	program=$!
	wait_for stalls_or_died "$scratch/$1"
	[[ -e $scratch/$1 ]] && return
	wait "$program"
	(($? == 77)) || fail "no call stalls on $1"
	skip "this kernel has no userfaultfd"
}

stalls_or_died() { [[ -e $1 ]] || ! kill -0 "$program"; }

release() {
	kill -KILL "$1"
	wait "$1" 2>/dev/null
}

stalled_call() {
	local first second i
	[[ -x $stall ]] || { echo "the helper 'stall' is not built" && return; }
	for i in first second third other; do
		namespace_up "$i" "peal_$i"
	done
	start_stall peal_first
	first=$program
	start_stall peal_second
	second=$program
	# The stack ends this namespace alone, and the next two together after it.
	ip netns delete first
	wait_gone verbs_node peal_first || fail "nobody removes peal_first"
	ip netns delete third
	ip netns delete second
	ip link add link0 type dummy
	timeout "$(limit 20)" rdma link add peal_link type peal netdev link0 || fail "cannot make a device meanwhile"
	timeout "$(limit 20)" rdma link delete peal_link || fail "cannot remove a device meanwhile"
	timeout "$(limit 20)" rdma link delete peal_other || fail "cannot remove another namespace's device meanwhile"
	device_exists peal_first || fail "peal_first is gone: nothing stalls"
	release "$first"
	wait_gone device_exists peal_first || fail "peal_first stays although nothing stalls any more"
	wait_gone device_exists peal_third || fail "peal_third waits for the call on peal_second"
	device_exists peal_second || fail "peal_second is gone: nothing stalls"
	release "$second"
	wait_gone device_exists peal_second || fail "peal_second stays although nothing stalls any more"
	ip netns delete other
}

down() {
	local name
	[[ ! -e $tracing/events/waits ]] || end_count
	for program in $(jobs -p); do
		release "$program"
	done
	for name in $(ip netns list | grep -oE '^(many[0-9]+|first|second|third|other)\b'); do
		ip netns delete "$name"
	done
	ip link delete link0 2>/dev/null
	rm -rf "$scratch"
}

trap down EXIT
# Otherwise the RDMA core makes every device visible in every namespace, which would add to the time of the end.
[[ -z ${NETNS_TIMES:-} ]] || rdma system set netns exclusive || fail "there are other namespaces"
many_at_once
[[ -n ${NETNS_TIMES:-} ]] || stalled_call
