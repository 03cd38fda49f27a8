#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 150
# run: long
#
# "peal dump" shows each packet of a device, and each message of the direct path as the packets that would have carried it.
# Known programs send a known number of messages of each kind. The file has exactly their packets, in the order of their
# PSNs, with valid ICRCs (check_capture.py), and Wireshark's dissector agrees. The lines and the JSON are of the same packets.
# The file also has XRC, FLUSH, ATOMIC_WRITE, each NAK, and IPv6, which that dissector knows in part only. Both devices of a
# connection show it, with the tag of a VLAN. A device shows no message of another one. A dump that is killed leaves nothing.
# What goes wrong is said in one sentence.
# Does not hold: every header in words (test/unit/tools/dump.cpp).
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}
require ib_write_bw ib_read_bw ib_send_bw ib_atomic_bw ibv_rc_pingpong tshark tcpdump setpriv python3
require_tool
tool=build/user/userspace/tools/peal
gid=$(gid_index "$device") || fail "$device has no IPv4 GID"
work=$(mktemp -d)
port=18800
clean_up() {
	! device_exists peal-other || peal link del peal-other
	! device_exists peal-near || peal link del peal-near
	ip link delete near0
	ip netns delete other
	rm -rf "$work"
} 2>/dev/null
trap clean_up EXIT

listens() { grep -q "listening on" "$work/$1.err"; }

# start_dump NAME DEVICE ARGUMENT...: it runs until end_dump, and prints to NAME.out.
start_dump() {
	"$tool" dump "${@:2}" >"$work/$1.out" 2>"$work/$1.err" &
	dumps[$1]=$!
	wait_for listens "$1" || fail "peal dump ${*:2}: $(<"$work/$1.err")"
}

end_dump() {
	kill -INT "${dumps[$1]}"
	wait "${dumps[$1]}" || fail "peal dump ended with $?: $(<"$work/$1.err")"
	! grep -q "came too fast" "$work/$1.err" || fail "packets are missing: $(<"$work/$1.err")"
}
declare -A dumps

# exchange SERVER-DEVICE CLIENT-DEVICE ADDRESS TOOL ARGUMENT...
exchange() {
	local common
	port=$((port + 1))
	common=(timeout "$(limit 30)" "$4" -p "$port" -F -n 5 "${@:5}")
	start_server "$port" "${common[@]}" -d "$1" -x "$(gid_index "$1")" >"$work/server" 2>&1
	"${common[@]}" -d "$2" -x "$(gid_index "$2")" "$3" >"$work/client" 2>&1 || fail "${common[*]}: $(<"$work/client") $(<"$work/server")"
	wait "$server" || fail "server of ${common[*]}: $(<"$work/server")"
}

# expect NAME OPCODES: the lines of a dump are of so many packets of each operation. ACKs of the wire may stand for several
# messages, and challenges are no messages. What is sent again, because the emulated machine is slow, counts once. READs have
# 5000 bytes, unless a part is requested again.
expect() {
	local found
	found=$(awk '$8 != "ACKNOWLEDGE" && $7 != "CHALLENGE" && !/READ_REQUEST.* length [^5]/ && !seen[$6, $10]++ {count[$7 " " $8]++}
		END {for (name in count) print name, count[name]}' "$work/$1.out" | sort | paste -sd ,)
	[[ $found == "$2" ]] || fail "$1: expected $2, got $found"
	! grep damaged "$work/$1.out" || fail "$1: a packet is shown as damaged"
	echo "ok: $1: $found"
}

complains 1 "there is no such peal device" "$tool" dump no-such-device
complains 2 'there may be "qp" and a number' "$tool" dump "$device" qp
complains 2 'there may be "qp" and a number' "$tool" dump "$device" queue 7
complains 1 "$device has no queue pair 1234567; \"peal show qp $device\" lists them" "$tool" dump "$device" qp 1234567
complains 1 "/no/such/folder/file cannot be written" "$tool" dump "$device" -w /no/such/folder/file
complains 2 "--snaplen requires" "$tool" dump "$device" --snaplen 64
chmod -R a+rX build/user/userspace/tools 2>/dev/null
complains 1 "(Operation not permitted); run the command as root" \
	setpriv --reuid 65534 --clear-groups --bounding-set=-all --inh-caps=-all "$tool" dump "$device"

# The path MTU is 1024, so that a SEND of 5000 bytes has 5 packets.
start_dump file "$device" -w "$work/file.pcap"
start_dump short "$device" -w "$work/short.pcap" --snaplen 60
start_dump lines "$device"
start_dump json "$device" --json
exchange "$device" "$device" localhost ib_send_bw -m 1024 -s 5000
exchange "$device" "$device" localhost ib_write_bw -m 1024 -s 70000
exchange "$device" "$device" localhost ib_read_bw -m 1024 -s 5000
exchange "$device" "$device" localhost ib_atomic_bw
exchange "$device" "$device" localhost ib_atomic_bw -A CMP_AND_SWAP
exchange "$device" "$device" localhost ib_send_bw -m 1024 -c UC -s 3
for name in file short lines json; do
	end_dump "$name"
done
sums="RC ATOMIC_ACKNOWLEDGE 10,RC COMPARE_SWAP 5,RC FETCH_ADD 5,RC READ_REQUEST 5,RC READ_RESPONSE_FIRST 5"
sums+=",RC READ_RESPONSE_LAST 5,RC READ_RESPONSE_MIDDLE 15,RC SEND_FIRST 5,RC SEND_LAST 5,RC SEND_MIDDLE 15"
sums+=",RC WRITE_FIRST 5,RC WRITE_LAST 5,RC WRITE_MIDDLE 335,UC SEND_ONLY 5"
expect lines "$sums"
test/interop/check_capture.py --tshark --quiet "$work/file.pcap" || fail "the capture is not good"
tshark -n -r "$work/file.pcap" -T fields -e infiniband.bth.opcode -e infiniband.bth.psn -e udp.length -e frame.len \
	2>/dev/null >"$work/fields"
python3 - "$work" <<'END' || fail "the file, the lines and the JSON are not of the same packets"
import json
import os
import sys
work = sys.argv[1]
fields = [[int(value) for value in line.split()] for line in open(f"{work}/fields", encoding="utf-8")]
packets = [json.loads(line) for line in open(f"{work}/json.out", encoding="utf-8")]
lines = list(open(f"{work}/lines.out", encoding="utf-8"))
assert len(fields) == len(packets) == len(lines), (len(fields), len(packets), len(lines))
assert [field[1] for field in fields] == [packet["psn"] for packet in packets]
assert all(f" psn {packet['psn']}" in line for packet, line in zip(packets, lines))
assert {field[0] for field in fields} >= {0, 1, 2, 6, 7, 8, 12, 13, 14, 15, 17, 18, 19, 20, 36}
acks = [p["response"] for p in packets if p["opcode"].endswith("ACKNOWLEDGE")]
# As in expect.
packets = [p for p in packets if p["opcode"] != "RC ACKNOWLEDGE" and p["length"] in (None, 5000, 70000)]
packets = list({(p["qp"], p["psn"]): p for p in reversed(packets)}.values())[::-1]
# The payload is that of the messages.
assert sum(p["bytes"] for p in packets if p["opcode"].startswith("RC SEND_")) == 5 * 5000
assert sum(p["bytes"] for p in packets if p["opcode"].startswith("RC WRITE_")) == 5 * 70000
assert sum(p["bytes"] for p in packets if p["opcode"].startswith("RC READ_RESPONSE")) == 5 * 5000
# A READ takes as many PSNs as it has responses, and each response has the PSN that belongs to it.
read = sorted(p["psn"] for p in packets if p["opcode"].startswith("RC READ_RESPONSE"))
requests = sorted(p["psn"] for p in packets if p["opcode"] == "RC READ_REQUEST")
assert len(requests) == 5 and len(read) == 25, (requests, read)
assert all((psn + i) % (1 << 24) in read for psn in requests for i in range(5)), (requests, read)
assert set(acks) == {"ack"}, acks
assert os.path.getsize(f"{work}/short.pcap") == 24 + sum(16 + min(60, field[3]) for field in fields)
END
echo "ok: the file, the lines, the JSON, --snaplen"

# Packets that these programs do not send. A kernel before 6.2 refuses each FLUSH.
verify=build/guest/test/interop/verify
start_dump rest "$device" -w "$work/rest.pcap"
for case in "xrc|every operation works*" "xrc|a queue that the target cannot reach ends the connection" \
	"memory_placement|ATOMIC_WRITE over XRC*" "memory_placement|ATOMIC_WRITE writes eight bytes and nothing else" \
	"memory_placement|FLUSH needs rights that not every kernel can give"; do
	"$(helper "${case%|*}")" "${case#*|}" >"$work/case" 2>&1 && grep -q "All tests passed" "$work/case" ||
		fail "$case: $(<"$work/case")"
done
operations=rc-send,rc-send-inv,rc-write-imm,rc-read,rc-fetch-add,uc-send,ud-send,nak-access,nak-invalid,nak-operation,rnr
for address in 10.77.0.1 fd77::1; do
	index=$(gid_of "$device" "$address") || fail "$device has no GID for $address"
	verified=(timeout "$(limit 60)" "$verify" -d "$device" -g "$index" -p 18780 --count 2
		--sizes "1,mtu,3333,70000" --ops "$operations")
	start_server 18780 "${verified[@]}" >"$work/server" 2>&1
	"${verified[@]}" localhost >"$work/client" 2>&1 || fail "verify, $address: $(<"$work/client") $(<"$work/server")"
	wait "$server" || fail "the server of verify, $address: $(<"$work/server")"
done
end_dump rest
required=ipv4,ipv6,rnr-nak,nak-invalid-request,nak-remote-access,nak-remote-operation,rc-flush,rc-atomic-write,xrc-atomic-write
for name in write-{first,middle,last,only,only-imm} read-request read-response-{first,middle,last,only} send-only \
	compare-swap fetch-add atomic-acknowledge acknowledge; do
	required+=,xrc-$name
done
test/interop/check_capture.py --quiet --require "$required" "$work/rest.pcap" || fail "the capture of the other packets is not good"
echo "ok: XRC, FLUSH, ATOMIC_WRITE, NAKs, IPv6"

start_dump datagrams "$device"
exchange "$device" "$device" localhost ib_send_bw -c UD -s 500
end_dump datagrams
expect datagrams "UD SEND_ONLY 5"
[[ $(grep -c "UD SEND_ONLY psn [0-9]* bytes 500 from qp " "$work/datagrams.out") == 5 ]] || fail "lines of datagrams"

# One queue pair, to a pipe, until there are enough.
pingpong=(ibv_rc_pingpong -d "$device" -g "$gid" -p 18790 -n 5 -s 64)
start_server 18790 "${pingpong[@]}" >"$work/server" 2>&1
qpn=$(peal show qp "$device" --json | python3 -c "import json, sys
print([o['lqpn'] for o in json.load(sys.stdin) if o['pid'] == $server][0])")
"$tool" dump "$device" qp "$qpn" -c 3 -w - 2>"$work/pipe.err" | tcpdump -nr - >"$work/pipe.out" 2>"$work/tcpdump" &
pipe=$!
wait_for listens pipe || fail "peal dump qp $qpn: $(<"$work/pipe.err")"
start_dump one "$device" qp "$qpn"
timeout "$(limit 30)" "${pingpong[@]}" localhost >"$work/client" 2>&1 || fail "ibv_rc_pingpong: $(<"$work/client")"
wait "$server" || fail "the server of ibv_rc_pingpong: $(<"$work/server")"
wait "$pipe" || fail "peal dump -c 3 failed: $(<"$work/pipe.err") $(<"$work/tcpdump")"
end_dump one
[[ $(wc -l <"$work/pipe.out") == 3 ]] || fail "-c 3 shows another number: $(<"$work/pipe.out")"
[[ $(awk '{print $6}' "$work/one.out" | sort -u) == "$qpn" ]] || fail "not only $qpn: $(<"$work/one.out")"
echo "ok: one queue pair, -c, -w -"

# Two devices, in two network namespaces. Each shows what it sends and what it receives, in packets and, where that is
# allowed, without.
ip netns add other && ip link add near0 type veth peer name other0 && ip link set other0 netns other &&
	ip address add 10.78.0.1/24 dev near0 && ip -n other address add 10.78.0.2/24 dev other0 &&
	ip link set near0 up && ip -n other link set other0 up || fail "cannot make other0"
peal_up peal-near near0
ip netns exec other "$tool" link add peal-other netdev other0 || fail "cannot make peal-other"
[[ ${PEAL_TRANSPORT:-} != wire ]] || ip netns exec other "$tool" link set peal-other direct off
wait_for device_ready peal-other || fail "peal-other is not ready: $(device_state peal-other)"
set_scope host
# write_twice PREFIX: writes from peal-near to peal-other, by their addresses PREFIX.1 and PREFIX.2.
write_twice() {
	local i common
	for ((i = 0; i < 2; i++)); do
		port=$((port + 1))
		common=(timeout "$(limit 30)" ib_write_bw -p "$port" -F -n 100 -m 1024 -s 3000)
		ip netns exec other "${common[@]}" -d peal-other -x "$(gid_of peal-other "$1.2")" >"$work/server" 2>&1 &
		server=$!
		listens_there() { port_listens "$port" "$server" || ! kill -0 "$server"; }
		wait_for listens_there || fail "ib_write_bw does not listen: $(<"$work/server")"
		"${common[@]}" -d peal-near -x "$(gid_of peal-near "$1.1")" "$1.2" >"$work/client" 2>&1 ||
			fail "ib_write_bw: $(<"$work/client") $(<"$work/server")"
		wait "$server" || fail "the server of ib_write_bw: $(<"$work/server")"
	done
}
start_dump near peal-near
start_dump far peal-other
write_twice 10.78.0
end_dump near
end_dump far
expect near "RC WRITE_FIRST 200,RC WRITE_LAST 200,RC WRITE_MIDDLE 200"
expect far "RC WRITE_FIRST 200,RC WRITE_LAST 200,RC WRITE_MIDDLE 200"

# The same on a VLAN, in frames with its tag.
modprobe 8021q || fail "cannot load 8021q"
vlan="type vlan id 7 egress-qos-map 0:5"
# shellcheck disable=SC2086 # its words
ip link add link near0 name near0.7 $vlan && ip -n other link add link other0 name other0.7 $vlan &&
	ip address add 10.78.7.1/24 dev near0.7 && ip -n other address add 10.78.7.2/24 dev other0.7 &&
	ip link set near0.7 up && ip -n other link set other0.7 up || fail "cannot make the VLAN"
wait_for gid_of peal-near 10.78.7.1 && wait_for gid_of peal-other 10.78.7.2 || fail "no GID for the VLAN's addresses"
note_messages peal-near peal-other
start_dump near peal-near -w "$work/near.pcap"
start_dump far peal-other -w "$work/far.pcap"
write_twice 10.78.7
end_dump near
end_dump far
expect_path 50
for name in near far; do
	test/interop/check_capture.py --tshark --quiet --require vlan,rc-write-first,rc-acknowledge "$work/$name.pcap" ||
		fail "the capture on the VLAN is not good"
	found=$(tshark -n -r "$work/$name.pcap" -Y infiniband -T fields -e vlan.id -e vlan.priority 2>/dev/null | sort -u)
	[[ $found == $'7\t5' ]] || fail "$name: expected tags of VLAN 7 and priority 5, got: $found"
done
set_scope netns

start_dump alone peal-other
exchange "$device" "$device" localhost ib_write_bw -s 64
end_dump alone
[[ ! -s $work/alone.out ]] || fail "peal-other shows messages of $device: $(<"$work/alone.out")"

# A dump that is killed, and a device that goes.
start_dump killed peal-other
kill -KILL "${dumps[killed]}"
wait "${dumps[killed]}" 2>/dev/null
start_dump gone peal-other
peal_down peal-other
status=0
wait "${dumps[gone]}" || status=$?
((status == 1)) && grep -q "peal-other is gone" "$work/gone.err" || fail "the device goes: $status $(<"$work/gone.err")"
echo "ok: two devices, kill, removal"
