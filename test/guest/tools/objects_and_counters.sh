#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: direct
#
# "peal show" lists the objects of a program that runs, with their owner and what the module says about them, and hides keys
# from everybody but root. "peal stat" shows counters that agree with sysfs, and rates that agree with what a program sends.
# JSON has all of it. Commands about a device that is not there, or without the module, say what to do.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}
require ibv_rc_pingpong ibv_srq_pingpong python3 setpriv rdma
require_tool
tool=build/user/userspace/tools/peal
index=$(gid_index "$device") || fail "$device has no IPv4 GID"

# json EXPRESSION ARGUMENT...: prints the value of a Python expression about x, which is the JSON that the command prints.
json() {
	local expression=$1
	shift
	peal "$@" --json | python3 -c "import json, sys
x = [json.loads(line) for line in sys.stdin] if '--watch' in sys.argv else json.load(sys.stdin)
print($expression)" "$@" || fail "peal $* --json"
}

start_server 18515 ibv_rc_pingpong -d "$device" -g "$index" -n 100 >/dev/null
own="o in x if o['pid'] == $server"
[[ $(json "[o['type'] for $own]" show qp "$device") == "['RC']" ]] || fail "qp: $(peal show qp)"
lqpn=$(json "[o['lqpn'] for $own][0]" show qp)
rdma resource show qp link "$device/1" | grep -q "lqpn $lqpn " || fail "rdma does not show the queue pair $lqpn"
[[ $(json "[o['driver']['transport'] for $own][0]" show qp) == direct ]] || fail "qp: $(peal show qp -d)"
[[ $(json "[o['driver']['rq-posted'] > 0 for $own][0]" show qp) == True ]] || fail "qp: $(peal show qp -d)"
[[ $(json "[o['command'] for o in x if o['type'] == 'GSI'][0]" show qp) == "[ib_core]" ]] || fail "qp: $(peal show qp)"
peal show qp | grep -q "^$device .*RC .*ibv_rc_pingpong .*direct" || fail "the table of queue pairs: $(peal show qp)"
! peal show qp | grep -q DOORBELL || fail "details without --details: $(peal show qp)"
peal show qp --details | grep -q DOORBELL || fail "no details: $(peal show qp --details)"
[[ $(json "[o['command'] for $own]" show cq) == "['ibv_rc_pingpong']" ]] || fail "cq: $(peal show cq)"
[[ $(json "[o['command'] for $own]" show ctx) == "['ibv_rc_pingpong']" ]] || fail "ctx: $(peal show ctx)"
[[ $(json "[o['length'] for $own]" show mr) == "[4096]" ]] || fail "mr: $(peal show mr)"
[[ $(json "[o['rkey'].startswith('0x') for $own]" show mr) == "[True]" ]] || fail "mr: $(peal show mr)"
nobody=(setpriv --reuid 65534 --clear-groups --bounding-set=-all --inh-caps=-all)
"${nobody[@]}" "$tool" show mr --json | grep -q '"rkey": null' || fail "another user sees keys: $("${nobody[@]}" "$tool" show mr)"
echo "ok: queue pairs, completion queues, regions and contexts"

before=$(counter "$device" messages)
ibv_rc_pingpong -d "$device" -g "$index" -n 100 localhost >/dev/null || fail "ibv_rc_pingpong"
wait "$server" || fail "the server of ibv_rc_pingpong"
[[ $(json "x[0]['counters']['messages']" stat "$device") == $((before + 200)) ]] || fail "messages: $(peal stat)"
peal stat "$device" | grep -q "^$device  *direct_messages  *$(counter "$device" direct_messages)\$" || fail "the table: $(peal stat)"
! peal stat "$device" | grep -q " 0\$" || fail "a counter of 0 is shown: $(peal stat)"
zero=$(grep -lx 0 "/sys/class/infiniband/$device/ports/1/hw_counters/"* | head -n 1)
peal stat "$device" --all | grep -q "^$device  *${zero##*/}  *0\$" || fail "--all lacks $zero: $(peal stat --all)"
echo "ok: counters"

# The counter grows between two looks, at any time, so that the rate of the table is above 0 in one of them.
start_server 18516 ibv_rc_pingpong -d "$device" -g "$index" -p 18516 -n 1000000 >/dev/null
ibv_rc_pingpong -d "$device" -g "$index" -p 18516 -n 1000000 localhost >/dev/null &
client=$!
grows() { (($(counter "$device" messages) > before + 300)); }
wait_for grows || fail "the ping-pong does not begin"
# engine_time: the CPU time of the poller's thread in ms. It grows.
engine_time() {
	sed -n "s/.*($device-engine) //p" /proc/[0-9]*/stat 2>/dev/null | cut -d ' ' -f 12,13 | awk '{ print 10 * ($1 + $2) }'
}
least=$(engine_time)
engine=$(json "x[0]['counters']['engine_ms']" stat "$device")
most=$(engine_time)
((least <= engine && engine <= most)) || fail "engine_ms is $engine, and the thread had $least to $most ms"
[[ $(json "len(x)" stat "$device" --watch 0.2 --count 3) == 3 ]] || fail "expected three lines of JSON"
looks=$(json "[l[0]['per-second']['messages'] > 0 and l[0]['seconds'] >= 0.2 for l in x]" stat "$device" --watch 0.2 --count 2)
[[ $looks == "[True, True]" ]] || fail "rates: $looks"
peal stat "$device" --watch 0.2 --count 1 | grep -q -E "^$device  *messages  *[0-9]+  *[0-9]+\.[0-9]\$" || fail "no rate in the table"
! peal stat "$device" --watch 0.2 --count 1 | grep -q cq_overflows || fail "a counter that does not grow is shown"
kill "$client" "$server"
wait "$client" "$server" 2>/dev/null
echo "ok: rates"

start_server 18517 ibv_srq_pingpong -d "$device" -g "$index" -p 18517 >/dev/null
[[ $(json "[o['type'] for o in x if o['pid'] == $server]" show srq) == "['BASIC']" ]] || fail "srq: $(peal show srq)"
kill "$server"
wait "$server" 2>/dev/null
echo "ok: shared receive queues"

complains 1 'no such peal device as nothere; "peal link show"' peal show qp nothere
complains 1 'no such peal device as nothere' peal stat nothere
complains 1 'no such peal device as nothere' peal link del nothere
complains 2 '"peal show --help"' peal show
complains 2 '"pd" is no command; "peal show --help"' peal show pd
complains 2 '"frobnicate" is no command; "peal --help"' peal frobnicate
complains 2 '"peal link --help"' peal link
complains 2 '"peal stat --help"' peal stat --watch 0
complains 2 '--count requires --watch' peal stat --count 2
complains 2 'netdev DEV' peal link add "$device" veth1
complains 2 'has no value behind it' peal link add peal-new netdev veth1 ecn
complains 1 'no netdev nothere' peal link add peal-new netdev nothere
complains 1 'has an RDMA device already' peal link add peal-new netdev veth0
complains 1 'choose another name' peal link add "$device" netdev veth1
complains 1 'a port cannot show this rate' peal link add peal-new netdev veth1 rate 7
! device_exists peal-new || fail "a device with a refused option is left"
complains 1 'run the command as root' "${nobody[@]}" "$tool" link add peal-new netdev veth1
complains 1 'run the command as root' "${nobody[@]}" "$tool" link del "$device"
ip link add dummy.sit type sit 2>/dev/null || modprobe sit
complains 1 'is not supported' peal link add peal-new netdev sit0
[[ $(peal --version) == "peal "* ]] || fail "peal --version"
for command in "" link "link add" "link set" host show "show qp" stat doctor; do
	# shellcheck disable=SC2086 # the words of the command
	peal $command --help | grep -q "peal" || fail "peal $command --help"
done
if peal link show | grep -q $'\033'; then fail "colours without a terminal"; fi
script -qec "TERM=xterm $tool link show" /dev/null | grep -q $'\033\[1m' || fail "no colours on a terminal"
if script -qec "TERM=xterm NO_COLOR=1 $tool link show" /dev/null | grep -q $'\033'; then fail "colours in spite of NO_COLOR"; fi

peal link add peal-new netdev veth1 ecn on rate 40 || fail "a device with options"
[[ $(option peal-new ecn) == on && $(option peal-new rate) == 40 ]] || fail "$(peal link show peal-new)"
peal link del peal-new || fail "the device cannot be removed"
wait_gone device_exists peal-new || fail "the device is still there"
echo "ok: errors, help and links"
