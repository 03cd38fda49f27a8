#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 240
# run: long
# transport: any
#
# Other programs can read the packets on the wire. The test captures packets with every opcode, over IPv4, IPv6 and a
# VLAN, with every NAK that can be provoked. check_capture.py checks lengths, padding and ICRC. Wireshark's dissector
# checks the rest. Only those packets ask for an acknowledgment that the requester wants to ask.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
require ethtool tcpdump tshark rping
read -r -a kinds <<<"${WIRE_KINDS:-peal peal}"
verify=build/guest/test/interop/verify
capture=$wire_work/capture.pcap
[[ -x $verify ]] || skip "verify is not built"

# traffic FAMILY ARGUMENT...
traffic() {
	wire_pair b "$1" 60 "$verify" -d @DEVICE -g @GID -p @PORT "${@:2}" ||
		fail "IPv$1, ${*:2}: $(grep -v ^ok "$wire_work/client") $(<"$wire_work/server")"
}

required=ud-send-only,ud-send-only-imm,ack,rnr-nak,nak-sequence,nak-invalid-request,nak-remote-access
required+=,nak-remote-operation,mad,ipv4,ipv6
faults=nak-access,nak-invalid,nak-operation,rnr
if [[ ${kinds[*]} == *rxe* ]]; then
	# rxe answers a message that is too long with a remote operation error.
	faults=nak-access,nak-operation,rnr
	required=${required/,nak-invalid-request/}
fi
for name in send-{first,middle,last,last-imm,only,only-imm} write-{first,middle,last,last-imm,only,only-imm}; do
	required+=,rc-$name,uc-$name
done
for name in send-{last,only}-invalidate read-request read-response-{first,middle,last,only} acknowledge \
	atomic-acknowledge compare-swap fetch-add; do
	required+=,rc-$name
done

wire_up "${kinds[@]}" 1500
wire_neighbours
[[ ${kinds[*]} != "peal peal" ]] || wire_vlan
wire_capture a "$capture"
traffic 4 --sizes 0,1,2,3,33,mtu-1,mtu,mtu+1,3333 --count 2
traffic 4 --ops "$faults"
traffic 6 --sizes 1,2,mtu,3333 --count 1
if [[ ${kinds[*]} == "peal peal" ]]; then
	required+=,vlan
	traffic vlan4 --sizes 1,3333 --count 1
	traffic vlan6 --sizes 1,3333 --count 1
fi
wire_cm_pair b 4 30 rping -s -a @ADDRESS -p @PORT -V -C 3 -S 100 -- rping -c -a @PEER -p @PORT -V -C 3 -S 100 ||
	fail "rping: $(<"$wire_work/client") $(<"$wire_work/server")"
wire_netem a loss 10%
traffic 4 --ops rc-write,rc-send --sizes 16384 --count 32
wire_end_capture
[[ ! -d /results ]] || cp "$capture" "/results/capture-${kinds[0]}-${kinds[1]}.pcap"
test/interop/check_capture.py --tshark --require "$required" "$capture" || fail "the capture is not good"

# Of the packets that leave together only the last one may ask for an acknowledgment. The tracepoint says which do.
if [[ ${kinds[*]} == "peal peal" ]]; then
	tracing=/sys/kernel/tracing
	mountpoint -q $tracing || mount -t tracefs tracefs $tracing || fail "no tracefs"
	echo 8192 >$tracing/buffer_size_kb
	echo 1 >$tracing/events/peal/peal_packet_sent/enable
	wire_netem a
	wire_capture a "$capture"
	traffic 4 --ops rc-write,rc-send --sizes 33,mtu+1,65536 --count 32
	wire_end_capture
	echo 0 >$tracing/events/peal/peal_packet_sent/enable
	tshark -r "$capture" -Y "infiniband.bth.a == 1" -T fields -e infiniband.bth.destqp -e infiniband.bth.psn \
		>"$wire_work/asking" 2>/dev/null
	/usr/bin/python3 - $tracing/trace "$wire_work/asking" <<-'END' || fail "other packets ask for an acknowledgment"
		import re, sys
		sent = re.compile(r"to 0x(\w+) opcode 0x\w+ psn 0x(\w+) packets (\d+) .* ack\b")
		traced = {(int(m[1], 16), int(m[2], 16) + int(m[3]) - 1 & 0xffffff) for m in sent.finditer(open(sys.argv[1]).read())}
		seen = {tuple(int(word, 0) for word in line.split()) for line in open(sys.argv[2])}
		print(len(seen), "packets ask for an acknowledgment")
		sys.exit(bool(seen - traced) or len(seen) < 100)
	END
fi
wire_down
