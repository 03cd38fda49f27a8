#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 300
# run: long
# transport: any
#
# Two devices of one kernel use the direct path only while packets between them pass the network. The test connects two
# network namespaces and compares the counters of direct messages. No message goes direct before an administrator allows
# it between namespaces, if either device has switched it off, through a firewall, after the wire was cut, or to another
# device that has the peer's address. Two devices in one namespace need no permission. The test checks the data on both
# paths. It needs ib_write_bw, nft, the interop program "verify" and the tool peal.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
require ib_write_bw nft
verify=build/guest/test/interop/verify
peal=build/user/userspace/tools/peal
[[ -x $verify && -x $peal ]] || skip "verify or the tool peal is not built"

direct_of_both() { echo $(($(counter peal_a direct_messages) + $(counter peal_b direct_messages))); }

# switch A B: sets the option `direct` of both ends.
switch() {
	if ! "$peal" link set peal_a direct "$1" || ! "$peal" link set peal_b direct "$2"; then
		fail "cannot switch"
	fi
}

# run_checked: checks the data of every operation of a reliable connection, and of one of an unreliable one. It prints how many messages went direct.
run_checked() {
	local before
	before=$(direct_of_both)
	wire_pair a 4 60 "$verify" -d @DEVICE -g @GID -p @PORT --ops rc-send,rc-write,rc-read,rc-fetch-add,uc-send \
		--sizes 0,1,4096,65536 --count 6 >/dev/null ||
		fail "verify: $(<"$wire_work/client") $(<"$wire_work/server")"
	echo $(($(direct_of_both) - before))
}

wire_up peal peal 1500
wire_neighbours

# scope WHERE: sets between which devices of this host messages may go direct.
scope() { "$peal" host set direct "$1" || fail "cannot set the host's direct"; }
trap 'scope netns' EXIT

switch 1 1
carried=$(run_checked) || fail "by default: $carried"
((carried == 0)) || fail "between two namespaces $carried messages went direct by default"
asked=$(($(counter peal_a locality_challenges) + $(counter peal_b locality_challenges)))
((asked == 0)) || fail "a device asked $asked times for another that it must not use"
echo "packets between two namespaces by default"

# neighbours: makes two devices in the initial namespace. They reach each other over the loopback device. The RDMA core
# still asks for the MAC address on the veth pair, where no netdev of the same host answers. The neighbour entries are
# therefore permanent.
neighbours() {
	local end address=10.76.1.1
	ip link add near_c type veth peer name near_d || return 1
	for end in c d; do
		ip address add "$address/24" dev "near_$end" && ip link set "near_$end" up || return 1
		rdma link add "peal_$end" type peal netdev "near_$end" || return 1
		wait_for gid_of "peal_$end" "$address" || return 1
		address=10.76.2.1
	done
	ip neighbour replace 10.76.2.1 lladdr "$(</sys/class/net/near_d/address)" nud permanent dev near_c
	ip neighbour replace 10.76.1.1 lladdr "$(</sys/class/net/near_c/address)" nud permanent dev near_d
}

# neighbours_run OPERATIONS SIZES: checks the data between these devices. It prints how many messages went direct.
neighbours_run() {
	local before arguments=(--ops "$1" --sizes "$2" --count 20)
	before=$(($(counter peal_c direct_messages) + $(counter peal_d direct_messages)))
	timeout "$(limit 60)" "$verify" -d peal_c -g "$(gid_of peal_c 10.76.1.1)" -p 18700 "${arguments[@]}" >&2 &
	local server=$!
	wait_for port_listens 18700 || return 1
	timeout "$(limit 60)" "$verify" -d peal_d -g "$(gid_of peal_d 10.76.2.1)" -p 18700 "${arguments[@]}" 10.76.1.1 >&2 ||
		return 1
	wait "$server" || return 1
	echo $(($(counter peal_c direct_messages) + $(counter peal_d direct_messages) - before))
}

neighbours || fail "cannot make two devices in one namespace"
for operations in "rc-send,rc-write,rc-read 1,4096,65536" "uc-send,uc-write-imm 1,4096,65536" "ud-send,ud-send-imm 1,1024"; do
	# shellcheck disable=SC2086 # two words
	carried=$(neighbours_run $operations) || fail "between two devices in one namespace: $operations"
	((carried > 0)) || fail "nothing went direct between two devices in one namespace: $operations"
	echo "direct between two devices in one namespace: $carried messages ($operations)"
	for where in device none; do
		scope $where
		# shellcheck disable=SC2086 # two words
		carried=$(neighbours_run $operations) || fail "between two devices in one namespace: $operations"
		((carried == 0)) || fail "with direct $where, $carried messages went direct between two devices: $operations"
	done
	scope netns
done
peal_down peal_c
peal_down peal_d
ip link delete near_c

scope host
build/guest/test/guest/two_devices || fail "requests were lost by a change of transport"

for ends in "0 0" "0 1" "1 0"; do
	# shellcheck disable=SC2086 # two words
	switch $ends
	carried=$(run_checked) || fail "with direct $ends: $carried"
	((carried == 0)) || fail "with direct $ends $carried messages went direct"
done
switch 1 1
carried=$(run_checked) || fail "$carried"
((carried > 0)) || fail "nothing went direct: asked $(counter peal_a locality_challenges), answered $(counter peal_b locality_responses)"
echo "direct when both allow it: $carried messages"

# A firewall drops every RoCE packet. No message arrives on either path.
before=$(direct_of_both)
wire_on b nft -f - <<-RULES || fail "cannot set the firewall"
	table inet wall {
		chain in {
			type filter hook input priority 0; policy accept;
			udp dport 4791 drop
		}
	}
RULES
if wire_pair a 4 60 ib_write_bw -d @DEVICE -x @GID -p @PORT -n 100 -s 64; then
	fail "a firewall did not stop the messages"
fi
[[ $(direct_of_both) == "$before" ]] || fail "messages went direct past a firewall"
wire_on b nft delete table inet wall
echo "a firewall is respected"

# The wire is cut while messages go direct. The proof expires, the messages use the wire again, and the retries run out.
goes_direct() { (($(direct_of_both) > before + 1000)); }

cut_when_direct() {
	wait_for goes_direct && wire_netem both loss 100%
}
cut_when_direct &
cutter=$!
if wire_pair a 4 60 ib_write_bw -d @DEVICE -x @GID -p @PORT -D "$(limit 30)" -s 64; then
	fail "the messages went on over a wire that was cut"
fi
wait "$cutter" || fail "the messages did not go direct before the cut"
grep -q "status 12" "$wire_work/client" || grep -qi "retry" "$wire_work/client" ||
	fail "not the retry counter: $(tail -n 3 "$wire_work/client")"
wire_netem both
echo "a cut wire ends it"

# A second pair of namespaces has the same addresses. The devices of each pair only reach each other.
twins() {
	ip link add wire_c type veth peer name wire_d || return 1
	local end address=10.78.0.1
	for end in c d; do
		ip netns add "wire_$end" && ip link set "wire_$end" netns "wire_$end" || return 1
		ip -n "wire_$end" address add "$address/24" dev "wire_$end"
		ip -n "wire_$end" link set lo up
		ip -n "wire_$end" link set "wire_$end" up
		ip netns exec "wire_$end" rdma link add "peal_$end" type peal netdev "wire_$end" || return 1
		wait_for gid_of "peal_$end" "$address" || return 1
		address=10.78.0.2
	done
}

twin_run() {
	local gid_c gid_d
	gid_c=$(gid_of peal_c 10.78.0.1)
	gid_d=$(gid_of peal_d 10.78.0.2)
	ip netns exec wire_c timeout "$(limit 60)" "$verify" -d peal_c -g "$gid_c" -p 18600 --ops rc-send,rc-write,rc-read \
		--sizes 1,4096,65536 --count 20 &
	local server=$!
	wait_for port_listens 18600 "$server" || return 1
	ip netns exec wire_d timeout "$(limit 60)" "$verify" -d peal_d -g "$gid_d" -p 18600 --ops rc-send,rc-write,rc-read \
		--sizes 1,4096,65536 --count 20 10.78.0.1 || return 1
	wait "$server"
}

twins || fail "cannot make the twins"
twin_run >"$wire_work/twins" 2>&1 &
twin=$!
carried=$(run_checked) || fail "beside its twin: $carried"
wait "$twin" || fail "the twins: $(<"$wire_work/twins")"
((carried > 0)) || fail "nothing went direct beside a twin"
(($(counter peal_d direct_messages) + $(counter peal_c direct_messages) > 0)) || fail "the twins did not go direct"
echo "the same addresses twice: $carried messages direct"
peal_down peal_c
peal_down peal_d
ip netns delete wire_c
ip netns delete wire_d
wire_down
