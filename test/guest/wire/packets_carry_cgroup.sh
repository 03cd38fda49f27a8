#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 120
# transport: wire
#
# Netfilter sees the right cgroup in each packet. The packets of a program carry the cgroup in which it opened the
# device. Those of the connection manager carry the root cgroup. No packet carries the cgroup of the administrator that
# added the device.
# It looks at the output hook only. Documentation/wire.rst describes what BPF and other matches see.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
traffic=$(helper traffic) || skip "$traffic"
require nft rping
modprobe -a rdma_cm rdma_ucm nft_socket 2>/dev/null || skip "this kernel has no nft_socket"
# nft looks for cgroups only in this folder.
groups=/sys/fs/cgroup
scratch=$(mktemp -d)

# in_group NAME COMMAND...
in_group() {
	# shellcheck disable=SC2016 # the new shell expands it
	bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$groups/$1" "${@:2}"
}

# packets COUNTER: prints how many packets the counter has seen.
packets() { nft list counter inet whose "$1" | sed -n 's/.*packets \([0-9]*\).*/\1/p'; }

set_up() {
	local group
	mount -t cgroup2 none "$groups" || fail "cannot mount cgroup2"
	for group in adder one other; do
		mkdir "$groups/$group" || fail "cannot make the cgroup $group"
	done
	peal_down peal0
	in_group adder rdma link add peal0 type peal netdev veth0 || fail "cannot make peal0"
	direct_off peal0
	wait_for device_ready peal0 || fail "not ready: $(device_state peal0)"
	nft -f - <<-'RULES' || fail "cannot load the rules"
		table inet whose {
			counter adder { }
			counter one { }
			counter other { }
			counter mads { }
			counter mads_of_a_program { }
			chain mads {
				counter name mads
				socket cgroupv2 level 1 { "adder", "one", "other" } counter name mads_of_a_program
			}
			chain output {
				type filter hook output priority 0
				udp dport 4791 socket cgroupv2 level 1 "adder" counter name adder
				udp dport 4791 socket cgroupv2 level 1 "one" counter name one
				udp dport 4791 socket cgroupv2 level 1 "other" counter name other
				udp dport 4791 @th,104,24 1 jump mads
			}
		}
	RULES
}

programs() {
	local one
	PEAL_DEV=peal0 in_group one "$traffic" --messages 20 --size 5000 || fail "traffic in the cgroup one"
	one=$(packets one)
	((one >= 40)) || fail "expected at least 40 packets of the cgroup one, netfilter saw $one"
	(($(packets other) == 0)) || fail "netfilter saw $(packets other) packets of the cgroup other, which has no program"
	PEAL_DEV=peal0 in_group other "$traffic" --messages 20 --size 5000 || fail "traffic in the cgroup other"
	(($(packets other) >= 40)) || fail "expected at least 40 packets of the cgroup other, netfilter saw $(packets other)"
	(($(packets one) == one)) || fail "packets of another program count as those of the cgroup one"
}

connection_manager() {
	local server
	in_group one timeout "$(limit 60)" rping -s -a 10.77.0.1 -p 18900 -C 5 >"$scratch/server" 2>&1 &
	server=$!
	wait_for cm_listens 18900 || fail "rping does not listen: $(<"$scratch/server")"
	in_group other timeout "$(limit 60)" rping -c -a 10.77.0.1 -p 18900 -C 5 >"$scratch/client" 2>&1 ||
		fail "rping: $(<"$scratch/client") $(<"$scratch/server")"
	wait "$server" || fail "rping's server: $(<"$scratch/server")"
	(($(packets mads) >= 3)) || fail "expected three management datagrams, netfilter saw $(packets mads)"
	(($(packets mads_of_a_program) == 0)) ||
		fail "$(packets mads_of_a_program) management datagrams carry the cgroup of a program"
}

set_up
programs
connection_manager
(($(packets adder) == 0)) || fail "$(packets adder) packets carry the cgroup in which the device was added"
nft delete table inet whose
rm -rf "$scratch"
