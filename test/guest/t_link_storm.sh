#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 240
# carrier: any
#
# An administrator at random, under programs at work: a device and its netdev come, go, change their names, addresses,
# MTU and namespace in any order. Programs on another device notice nothing; afterwards all is as it was.
# PEAL_STORM_SECONDS, default 20, is how long; PEAL_STORM_SEED repeats one.
# What programs on the device itself are told is t_removal's matter.
set -u
# shellcheck source=test/guest/lib.sh
source "$(dirname "$0")/lib.sh"
[[ ${PEAL_DEV:-peal0} == peal* ]] || skip "this is about peal"
traffic=$(dirname "$0")/../../build/user/test/guest/traffic
[[ -x $traffic ]] || skip "the helper 'traffic' is not built"
seed=${PEAL_STORM_SEED:-$((SRANDOM & 0x7fff))}
RANDOM=$seed
echo "seed: $seed (replay with PEAL_STORM_SEED)"
scratch=$(mktemp -d)
netdev=sto0
declare -A count=()

make_netdev() {
	ip link add sto0 type veth peer name sto1 && ip link set sto1 up &&
		ip address add 10.79.1.1/24 dev sto0 && ip link set sto0 up
	netdev=sto0
}

# Not in the other namespace, and not deleted.
in_home() { [[ -e /sys/class/net/$netdev ]]; }

link_add() { rdma link add peal9 type peal netdev "$netdev"; }
link_again() { rdma link add "peal$RANDOM" type peal netdev "$netdev"; }
link_delete() { rdma link delete peal9; }
down() { ip link set "$netdev" down; }
up() { ip link set "$netdev" up; }
mtu() { ip link set "$netdev" mtu $((600 + RANDOM % 8000)); }
address_add() { ip address add "10.79.1.$((2 + RANDOM % 9))/24" dev "$netdev"; }
address_delete() { ip address delete "10.79.1.$((2 + RANDOM % 9))/24" dev "$netdev"; }
address6() { ip address add "fd79::$((RANDOM % 99))/64" dev "$netdev" nodad; }
flush() { ip address flush dev "$netdev" && ip address add 10.79.1.1/24 dev "$netdev"; }
mac() { ip link set "$netdev" address "02:00:00:00:00:$((10 + RANDOM % 80))"; }
vlan() { ip link add link "$netdev" name sto.5 type vlan id 5 && ip link set sto.5 up; }
vlan_gone() { ip link delete sto.5; }
move() { ip link set "$netdev" netns storm; }
move_back() { ip -n storm link set "$netdev" netns 1; }
namespace_gone() {
	ip netns delete storm
	ip netns add storm
}
rename() {
	local name=sto$((RANDOM % 2 * 2))
	ip link set "$netdev" name "$name" && netdev=$name
}
netdev_gone() { ip link delete "$netdev"; }
netdev_again() { in_home || make_netdev; }
carrier() { "$(dirname "$traffic")/peal-option" peal9 direct $((RANDOM % 2)); }
program_dies() { pkill -KILL -f "^$traffic --messages 100000 --size" -n; }

actions=(link_add link_add link_add link_again link_delete link_delete down up up mtu address_add address_delete address6
	flush mac vlan vlan_gone move move_back move_back namespace_gone rename netdev_gone netdev_again netdev_again carrier
	program_dies)

# Programs that begin again whenever they end, however that was.
storm_program() {
	while [[ ! -e $scratch/stop ]]; do
		PEAL_DEV=peal9 "$traffic" --messages 100000 --size "$1" >/dev/null 2>&1 || sleep 0.05
	done
}

innocent() {
	while [[ ! -e $scratch/stop ]]; do
		"$traffic" --messages 500 || return 1
	done
}

devices() { rdma link show | awk '{ print $2 }'; }
devices_are() { [[ $(devices) == "$1" ]]; }

before=$(devices)
ip netns add storm
make_netdev
link_add || fail "cannot make a device"
storm_program 50 &
programs=($!)
storm_program 300000 &
programs+=($!)
innocent >"$scratch/innocent" 2>&1 &
innocent=$!

end=$((SECONDS + ${PEAL_STORM_SECONDS:-20}))
while ((SECONDS < end)); do
	action=${actions[RANDOM % ${#actions[@]}]}
	# Most of them fail, because what they are about is not there now.
	"$action" >"$scratch/said" 2>&1 && count[$action]=$((${count[$action]:-0} + 1))
done
touch "$scratch/stop"
wait "$innocent" || fail "an innocent program: $(<"$scratch/innocent")"

ip netns delete storm
ip link delete sto.5 2>/dev/null
ip link delete "$netdev" 2>/dev/null
wait_for devices_are "$before" || fail "expected the devices '$before', got '$(devices)'"
for program in "${programs[@]}"; do
	wait_gone kill -0 "$program" || fail "a program does not end: $(cat /proc/"$(pgrep -P "$program" | head -n 1)"/stack)"
done
for action in "${!count[@]}"; do
	echo "$action: ${count[$action]}"
done
PEAL_DEV=peal0 "$traffic" --messages 200 || fail "peal0 does not work afterwards"
rm -rf "$scratch"
