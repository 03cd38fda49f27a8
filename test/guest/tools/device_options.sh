#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: direct, thorough wire
# timeout: 60
#
# The options of a device can be read, set and refused through generic netlink, and they take effect. ibv_devinfo shows
# the effect of max-rd-atomic, and sysfs that of rate. The counters of a ping-pong show the effect of "direct", the device's
# and the host's. wire/marks_and_notifications shows that of ecn. Only the initial network namespace may set the host's. Wrong netdevs are refused when a device is made.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}
require ibv_devinfo ibv_rc_pingpong rdma setpriv
require_tool
tool=build/user/userspace/tools/peal

# refused WORDS COMMAND...: the command fails and says these words.
refused() {
	local words=$1 output
	shift
	output=$("$@" 2>&1) && fail "not refused: $*"
	grep -q "$words" <<<"$output" || fail "expected \"$words\" from $*, got: $output"
}

value() { option "$device" "$1"; }

attribute() { ibv_devinfo -v -d "$device" | awk -v name="$1:" '$1 == name { print $2 }'; }

ping_pong() {
	local index
	index=$(gid_index "$device")
	start_server 18515 ibv_rc_pingpong -d "$device" -g "$index" -n 20
	ibv_rc_pingpong -d "$device" -g "$index" -n 20 localhost || fail "ping-pong"
	wait "$server" || fail "the ping-pong's server"
}

direct_before=$(value direct)
[[ $(value max-rd-atomic) == 16 ]] || fail "max-rd-atomic is 16 by default, not $(value max-rd-atomic)"
[[ $(attribute max_qp_rd_atom) == 16 ]] || fail "ibv_devinfo: $(attribute max_qp_rd_atom)"

peal link set "$device" max-rd-atomic 128 || fail "cannot set max-rd-atomic"
[[ $(value max-rd-atomic) == 128 && $(attribute max_qp_rd_atom) == 128 &&
	$(attribute max_qp_init_rd_atom) == 128 ]] || fail "max-rd-atomic is not in effect"
peal link set "$device" max-rd-atomic 16 || fail "cannot set max-rd-atomic back"

# rate DEVICE: prints the number of Gb/s that sysfs shows.
rate() { sed -E 's/^([0-9.]+) Gb.*/\1/' "/sys/class/infiniband/$1/ports/1/rate"; }

[[ $(value rate) == 0 && $(rate "$device") == 10 ]] || fail "the rate of veth: $(value rate), $(rate "$device")"
for gbps in 25 40 50 100 200 400; do
	"$tool" link set "$device" rate $gbps || fail "cannot set the rate to $gbps"
	[[ $(value rate) == "$gbps" && $(rate "$device") == "$gbps" ]] ||
		fail "rate $gbps: $(value rate), sysfs $(rate "$device")"
done
[[ $(attribute active_width) == 4X ]] || fail "ibv_devinfo: active_width $(attribute active_width)"
refused "a port cannot show this rate" peal link set "$device" rate 7
refused "not permitted" setpriv --reuid 65534 --clear-groups --bounding-set=-all --inh-caps=-all \
	"$tool" link set "$device" rate 10
[[ $(value rate) == 400 ]] || fail "a refused request changed the rate"
peal link set "$device" rate 0 || fail "cannot set the rate back"
[[ $(rate "$device") == 10 ]] || fail "the rate of veth, set back: $(rate "$device")"

[[ $(value ecn) == asked ]] || fail "ecn is \"asked\" by default, not $(value ecn)"
for ecn in off on asked; do
	"$tool" link set "$device" ecn $ecn || fail "cannot set ecn to $ecn"
	[[ $(value ecn) == "$ecn" && $(value max-rd-atomic) == 16 ]] || fail "ecn is not $ecn: $(peal link show "$device")"
done
refused "ecn is off, asked or on" peal link set "$device" ecn 3
refused "ecn is off, asked or on" peal link set "$device" ecn ""
refused "not permitted" setpriv --reuid 65534 --clear-groups --bounding-set=-all --inh-caps=-all \
	"$tool" link set "$device" ecn on
[[ $(value ecn) == asked ]] || fail "a refused request changed ecn"

# Netdevs without hardware: one that tells no speed, and one that tells 10 Mb/s.
ip link add dummy.opt type dummy || fail "cannot make a dummy netdev"
modprobe tun || fail "the module tun is missing"
ip tuntap add tap.opt mode tap || fail "cannot make a tap netdev"
for netdev in dummy.opt tap.opt; do
	ip link set "$netdev" up
	rdma link add peal-opt type peal netdev "$netdev" || fail "cannot add a device on $netdev"
	[[ $(rate peal-opt) == 10 ]] || fail "the rate on $netdev: $(rate peal-opt)"
	rdma link delete peal-opt
	wait_gone device_exists peal-opt || fail "the device on $netdev is still there"
	ip link delete "$netdev"
done

refused "Numerical result out of range" peal link set "$device" max-rd-atomic 0
refused "Numerical result out of range" peal link set "$device" max-rd-atomic 129
refused "Numerical result out of range" peal link set "$device" direct 2
for wrong in 256 "" x -1; do
	refused "direct is on or off" peal link set "$device" direct "$wrong"
done
refused "max-rd-atomic is max or a number from 1 to 128" peal link set "$device" max-rd-atomic 4294967297
refused "no such peal device" peal link show no-such-device
refused "no such peal device" peal link set no-such-device direct 0
refused "not permitted" setpriv --reuid 65534 --clear-groups --bounding-set=-all --inh-caps=-all \
	"$tool" link set "$device" direct 0
[[ $(value direct) == "$direct_before" ]] || fail "a refused request changed something"

netdev=$(sed 's/.* netdev //; s/ *$//' <<<"$(rdma link show "$device/1")")
ip link add link "$netdev" name vlan.7 type vlan id 7 || fail "cannot make a VLAN"
refused "File exists" rdma link add peal-opt type peal netdev "$netdev"
refused "not supported" rdma link add peal-opt type peal netdev vlan.7
ip link delete vlan.7

rdma link add peal-opt type peal netdev veth1 || fail "cannot add a second device"
[[ $(peal link show | wc -l) == 3 ]] || fail "the dump does not show two devices: $(peal link show)"
rdma link delete peal-opt
wait_gone device_exists peal-opt || fail "the second device is still there"
[[ $(peal link show | wc -l) == 2 ]] || fail "a removed device is still shown"

# carried_direct: runs a ping-pong and prints how many of its messages took the direct path.
carried_direct() {
	local before
	before=$(counter "$device" direct_messages)
	ping_pong >&2
	echo $(($(counter "$device" direct_messages) - before))
}

for direct in 0 1; do
	"$tool" link set "$device" direct $direct || fail "cannot set direct"
	carried=$(carried_direct) || fail "$carried"
	((direct ? carried >= 40 : carried == 0)) || fail "direct $direct: $carried messages were carried directly"
done

[[ $(peal host show) == "direct netns" ]] || fail "the default of the host is netns, not $(peal host show)"
for scope in none device netns host; do
	"$tool" host set direct $scope || fail "cannot set the host's direct"
	[[ $(peal host show) == "direct $scope" ]] || fail "the host's direct is not $scope: $(peal host show)"
	carried=$(carried_direct) || fail "$carried"
	if [[ $scope == none ]]; then
		((carried == 0)) || fail "direct none: $carried messages were carried directly"
	else
		((carried >= 40)) || fail "direct $scope: $carried messages were carried directly"
	fi
done
peal host set direct netns || fail "cannot set the host's direct back"

ip netns add container || fail "cannot make a network namespace"
refused "only from the initial network namespace" ip netns exec container "$tool" host set direct host
[[ $(ip netns exec container "$tool" host show) == "direct netns" ]] || fail "a container cannot read the host's direct"
ip netns delete container
refused "not permitted" setpriv --reuid 65534 --clear-groups --bounding-set=-all --inh-caps=-all \
	"$tool" host set direct host
refused "none, device, netns or host" peal host set direct everywhere
[[ $(peal host show) == "direct netns" ]] || fail "a refused request changed the host's direct"
peal link set "$device" direct "$direct_before"
