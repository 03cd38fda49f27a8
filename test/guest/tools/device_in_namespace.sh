#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 120
# run: long
#
# Devices and network namespaces, as "rdma system" knows them. In shared mode every namespace sees every device, and no
# device can be moved. In exclusive mode "rdma dev set DEVICE netns NAME" moves a device, open programs lose it, and only
# its namespace sees it and its resources. Two containers with a device each connect by verbs and by the connection manager.
# A device that is moved without its netdev keeps its GIDs and its network: verbs work, the connection manager refuses.
# A device returns when its namespace ends.
# It does not look at sysfs in shared mode, nor at programs at work during a move (lifecycle/device_removed_in_use).
set -u
# shellcheck disable=SC2154 # wire_work is wire.sh's
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
require rdma rping ibv_rc_pingpong ibv_asyncwatch ibv_devinfo stdbuf
port=18950

# pingpong SERVER_NAMESPACE SERVER_DEVICE SERVER_GID CLIENT_NAMESPACE CLIENT_DEVICE CLIENT_GID ADDRESS: the client finds the
# server at ADDRESS by TCP.
pingpong() {
	local status=0
	port=$((port + 1))
	ip netns exec "$1" timeout "$(limit 30)" ibv_rc_pingpong -d "$2" -g "$3" -p $port -c -n 100 -s 20000 \
		>"$wire_work/server" 2>&1 &
	server=$!
	wait_for port_listens $port $server || fail "no server on $2: $(<"$wire_work/server")"
	ip netns exec "$4" timeout "$(limit 30)" ibv_rc_pingpong -d "$5" -g "$6" -p $port -c -n 100 -s 20000 "$7" \
		>"$wire_work/client" 2>&1 || status=$?
	wait $server || status=1
	((status == 0)) || fail "$2 and $5: $(<"$wire_work/client") $(<"$wire_work/server")"
	! grep -qi "invalid data" "$wire_work/client" "$wire_work/server" || fail "$2 and $5: wrong data"
}

listens_by_cm() { wire_on "$1" rdma resource show cm_id | grep -q "state LISTEN.*:$2"; }

# connect SERVER_END: rping between both ends.
connect() {
	local end=$1 client
	client=$(other_end "$1")
	port=$((port + 1))
	wire_exec="exec" wire_on "$end" timeout "$(limit 30)" rping -s -a "${wire_v4[$end]}" -p $port -C 10 -S 1000 -V \
		>"$wire_work/server" 2>&1 &
	server=$!
	wait_for happens_or_died listens_by_cm "$end" $port || fail "rping does not listen: $(<"$wire_work/server")"
	wire_on "$client" timeout "$(limit 30)" rping -c -a "${wire_v4[$end]}" -p $port -C 10 -S 1000 -V \
		>"$wire_work/client" 2>&1 || fail "rping to $end: $(<"$wire_work/client") $(<"$wire_work/server")"
	wait $server || fail "rping at $end: $(<"$wire_work/server")"
}

# refuses END: no program there can use the connection manager with that end's address.
refuses() {
	wire_on "$1" timeout "$(limit 30)" rping -s -a "${wire_v4[$1]}" -p 18949 -C 1 >"$wire_work/server" 2>&1
	(($? != 0 && $? != 124)) || fail "rping listens at $1 without a device there"
}

# inside END FUNCTION ARGUMENT...: runs a function of lib.sh or wire.sh in that end's namespace.
inside() {
	# shellcheck disable=SC2016 # the new shell expands it
	wire_on "$1" bash -c 'source "$0"; "$@"' "$wire_folder/wire.sh" "${@:2}"
}

sees() { ip netns exec "$1" rdma dev show "$2"; }

counted() { wire_on "$1" cat "/sys/class/infiniband/$2/ports/1/hw_counters/$3"; }

usable() { wire_on "$1" ibv_devinfo -d "$2" | grep -q PORT_ACTIVE; }

# ---- shared mode

ip netns add other || fail "cannot make a namespace"
sees other peal0 >/dev/null || fail "another namespace does not see peal0 in shared mode"
! rdma dev set peal0 netns other 2>"$wire_work/error" || fail "moved peal0 in shared mode"
grep -q "not supported" "$wire_work/error" || fail "expected 'not supported', got: $(<"$wire_work/error")"
! rdma system set netns exclusive 2>"$wire_work/error" || fail "changed the mode while there are namespaces"
ip netns delete other
wait_for rdma system set netns exclusive || fail "cannot change to exclusive mode"
rdma system show | grep -q "netns exclusive" || fail "the mode did not change: $(rdma system show)"
echo "ok: shared mode"

# ---- each device goes where its netdev is

wire_up peal peal 4500
# Since Linux 7.0 "rdma link add" makes a device in the caller's namespace, and "rdma link delete" finds it there.
if [[ $(uname -r) == 7.* ]]; then
	for end in a b; do
		! rdma dev show "peal_$end" 2>/dev/null || fail "peal_$end was not made in its namespace"
		sees "wire_$end" "peal_$end" >/dev/null || fail "wire_$end does not see the device that it made"
	done
	! wire_on a rdma link delete peal_b 2>/dev/null || fail "wire_a deleted the device of wire_b"
	! rdma link delete peal_b 2>/dev/null || fail "the initial namespace deleted the device of wire_b"
	sees wire_b peal_b >/dev/null || fail "peal_b is gone, although its namespace did not delete it"
	wire_on b rdma link delete peal_b || fail "wire_b cannot delete its device"
	wait_gone sees wire_b peal_b || fail "peal_b is still there"
	wire_on b rdma link add peal_b type peal netdev wire_b || fail "wire_b cannot make its device again"
	echo "ok: the devices were made, and one was deleted, in their namespaces"
else
	stdbuf -oL ibv_asyncwatch -d peal_a >"$wire_work/events" 2>&1 &
	watcher=$!
	wait_for grep -q "FD" "$wire_work/events" || fail "ibv_asyncwatch: $(<"$wire_work/events")"
	rdma dev set peal_a netns wire_a || fail "cannot move peal_a"
	rdma dev set peal_b netns wire_b || fail "cannot move peal_b"
	wait_for grep -qi "fatal" "$wire_work/events" || fail "a program kept its device: $(<"$wire_work/events")"
	kill $watcher
	wait $watcher 2>/dev/null
	echo "ok: the devices were moved to their namespaces"
fi
for end in a b; do
	wait_for usable $end "peal_$end" || fail "peal_$end is not usable: $(wire_on $end ibv_devinfo -d "peal_$end")"
	wait_for inside $end gid_of "peal_$end" "${wire_v4[$end]}" || fail "peal_$end has no GID"
	[[ ${PEAL_TRANSPORT:-direct} != wire ]] || inside $end direct_off "peal_$end"
	[[ ${PEAL_TRANSPORT:-direct} == wire ]] || inside $end direct_on "peal_$end"
done
[[ ${PEAL_TRANSPORT:-direct} == wire ]] || set_scope host
gid_a=$(inside a gid_of peal_a "${wire_v4[a]}")
gid_b=$(inside b gid_of peal_b "${wire_v4[b]}")

sees wire_a peal_a >/dev/null || fail "wire_a does not see peal_a"
! sees wire_a peal_b 2>/dev/null || fail "wire_a sees peal_b"
! rdma dev show peal_a 2>/dev/null || fail "the initial namespace still sees peal_a"
! ibv_devinfo -d peal_a >/dev/null 2>&1 || fail "a program of the initial namespace opened peal_a"
node=$(verbs_node peal_a) || fail "peal_a has no node"
! (exec 3<>"$node") 2>/dev/null || fail "a program of the initial namespace opened $node"
! (set_direct peal_a 1) >/dev/null 2>&1 || fail "the initial namespace sets options of peal_a"

before=$(counted a peal_a direct_messages)
pingpong wire_a peal_a "$gid_a" wire_b peal_b "$gid_b" "${wire_tcp[a]}"
connect a
connect b
pingpong wire_a peal_a "$gid_a" wire_a peal_a "$gid_a" 127.0.0.1
after=$(counted a peal_a direct_messages)
if [[ ${PEAL_TRANSPORT:-direct} == wire ]]; then
	((after == before)) || fail "the direct path was used, although it is off"
else
	((after > before)) || fail "the direct path was not used"
fi
echo "ok: two containers, each with its device"

# Resources belong to the namespace of the device.
wire_exec="exec" wire_on b timeout "$(limit 60)" ibv_rc_pingpong -d peal_b -g "$gid_b" -p 18948 >/dev/null 2>&1 &
holder=$!
wait_for port_listens 18948 $holder || fail "no program holds a queue pair"
[[ $(wire_on b rdma resource show qp link peal_b/1) == *"type RC"* ]] || fail "wire_b does not see its queue pair"
[[ $(rdma resource show) != *peal_b* ]] || fail "the initial namespace sees resources of peal_b"
[[ $(wire_on a rdma resource show) != *peal_b* ]] || fail "wire_a sees resources of peal_b"

# ---- a device goes without its netdev, also while a program waits with a queue pair

wire_on b rdma dev set peal_b netns wire_a || fail "cannot move peal_b to wire_a"
kill -0 $holder || fail "the program ended"
kill $holder
wait $holder
! sees wire_b peal_b 2>/dev/null || fail "wire_b still sees peal_b"
wait_for usable a peal_b || fail "peal_b is not usable in wire_a"
pingpong wire_a peal_b "$gid_b" wire_a peal_a "$gid_a" 127.0.0.1
refuses b
[[ $(wire_on a cat "/sys/class/infiniband/peal_b/ports/1/gids/$gid_b") == "$(expand_address "${wire_v4[b]}")" ]] ||
	fail "peal_b lost its GID"
if [[ ${PEAL_TRANSPORT:-direct} == wire ]]; then
	# Its packets still pass the network of its netdev.
	before=$(counted a peal_b packets_sent)
	pingpong wire_a peal_b "$gid_b" wire_a peal_a "$gid_a" 127.0.0.1
	(($(counted a peal_b packets_sent) > before + 100)) || fail "peal_b sent no packets"
	wire_on b ip link set wire_b down
	! usable a peal_b || fail "peal_b is active while its netdev is down"
	wire_on b ip link set wire_b up
	wait_for usable a peal_b || fail "peal_b is not active again"
fi
wire_on a rdma dev set peal_b netns wire_b || fail "cannot move peal_b back"
wait_for usable b peal_b || fail "peal_b is not usable again"
connect b
echo "ok: a device without its netdev"

# ---- namespaces end

rdma dev set peal0 netns wire_b || fail "cannot move peal0"
wire_on b rdma dev show peal0 >/dev/null || fail "peal0 is not in wire_b"
ip netns attach initial 1 || fail "the initial namespace gets no name"
wire_on a rdma dev set peal_a netns initial || fail "cannot move peal_a to the initial namespace"
ip netns delete initial
wait_for device_ready peal_a || fail "peal_a is not ready in the initial namespace: $(device_state peal_a)"
ip netns delete wire_b
wait_for device_ready peal0 || fail "peal0 did not return: $(device_state peal0)"
# The namespace takes its end of the veth pair with it, and so the other end, too.
wait_gone device_exists peal_b || fail "peal_b outlived its netdev"
wait_gone device_exists peal_a || fail "peal_a outlived its netdev"
wire_down
wait_for rdma system set netns shared || fail "cannot change back to shared mode"
[[ ${PEAL_TRANSPORT:-direct} == wire ]] || set_scope netns
echo "ok: namespaces end"
