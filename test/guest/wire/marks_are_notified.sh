#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 120
# transport: any
#
# Two devices in two network namespaces. A firewall on the way marks each packet that says that its sender reacts to marks
# (ECN). The data arrives, and the receiver notifies the sender. The counters of both devices are what a capture shows. With
# the option off, and with traffic classes that ask for nothing, no packet is marked.
# The bytes of each packet and forged packets are in wire/marks_and_notifications.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
require ethtool tcpdump nft
verify=build/guest/test/interop/verify
peal=build/user/userspace/tools/peal
[[ -x $verify && -x $peal ]] || skip "verify or the tool peal is not built"

# captured FILTER: prints how many captured packets match.
captured() { tcpdump -n -r "$wire_work/capture" "udp dst port 4791 and ($1)" 2>/dev/null | wc -l; }

# note: remembers the counters.
note() {
	local end name
	for end in a b; do
		for name in np_ecn_marked_roce_packets np_cnp_sent rp_cnp_handled rp_cnp_ignored drop_qpn drop_state; do
			before[$end-$name]=$(counter "peal_$end" "$name")
		done
	done
}

# rise END NAME: prints how much the counter has risen.
rise() { echo $(($(counter "peal_$1" "$2") - before[$1-$2])); }

# Packets for a queue pair that has just been destroyed, or is in error.
late() { echo $(($(rise "$1" drop_qpn) + $(rise "$1" drop_state))); }

# equal WHAT COUNTED CAPTURED LATE
equal() {
	(($2 <= $3 && $3 <= $2 + $4)) || fail "$1: counted $2, captured $3, late $4"
	echo "$1: $2, captured $3, late $4"
}

marked='src host 10.78.0.1 and ip[1] & 3 == 3'
notifications='src host 10.78.0.2 and udp[8] == 0x81'

all_captured() {
	(($(captured "$marked") >= $(rise b np_ecn_marked_roce_packets) &&
		$(captured "$notifications") >= $(rise b np_cnp_sent)))
}

# run_marked ECN
run_marked() {
	local end
	for end in a b; do
		"$peal" link set "peal_$end" ecn "$1" || fail "cannot set ecn"
	done
	note
	wire_capture b "$wire_work/capture"
	wire_pair b 4 90 "$verify" -d @DEVICE -g @GID -p @PORT --ops rc-write,rc-send,rc-read,uc-send --sizes 1,65536 --count 4 ||
		fail "ecn $1: $(grep -v ^ok "$wire_work/client") $(<"$wire_work/server")"
	# tcpdump writes some time after the packets have passed.
	wait_for all_captured
	wire_end_capture
	equal "ecn $1, marked" "$(rise b np_ecn_marked_roce_packets)" "$(captured "$marked")" "$(late b)"
	equal "ecn $1, notifications handled" "$(rise a rp_cnp_handled)" "$(rise b np_cnp_sent)" "$(late a)"
	equal "ecn $1, notifications" "$(rise b np_cnp_sent)" "$(captured "$notifications")" 0
	(($(captured '(udp[8] == 0x11 or udp[8] == 0x12 or udp[8] == 0x81) and ip[1] & 3 != 0') == 0)) ||
		fail "ecn $1: acknowledgements or notifications may be marked"
	test/interop/check_capture.py --quiet "$wire_work/capture" || fail "the capture is not good"
}

declare -A before=()
wire_up peal peal 1500
wire_neighbours
for end in a b; do
	wire_on "$end" nft -f - <<-'RULES' || fail "cannot load the rules"
		table inet router {
			chain out {
				type filter hook postrouting priority 0
				udp dport 4791 ip ecn { ect0, ect1 } ip ecn set ce
			}
		}
	RULES
done
for ecn in off asked; do
	run_marked $ecn
	(($(rise b np_ecn_marked_roce_packets) + $(rise b np_cnp_sent) == 0)) || fail "ecn $ecn: packets were marked"
	(($(captured 'ip[1] & 3 != 0') == 0)) || fail "ecn $ecn: packets may be marked"
done
run_marked on
for end in a b; do
	(($(rise $end np_ecn_marked_roce_packets) > 0 && $(rise $end np_cnp_sent) > 0)) || fail "$end notified nobody"
done
(($(rise a rp_cnp_handled) > 0)) || fail "a handled no notification"
(($(rise a rp_cnp_ignored) == 0 && $(rise b rp_cnp_ignored) == 0)) || fail "notifications were ignored"
(($(captured 'udp[8] <= 0x17 and udp[8] != 0x11 and ip[1] & 3 != 3') == 0)) || fail "data was not marked"
wire_down
