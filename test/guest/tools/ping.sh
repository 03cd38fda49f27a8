#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: any
# timeout: 150
#
# Holds: "peal ping" executes each operation on the direct path, on the wire, between two network namespaces, and with
# rdma_rxe at one end or at both, and says which path it was. Each end notices wrong bytes, lengths and values, which a
# program of libpeal sends instead of a right peer, and says where they are. What else goes wrong is said in one sentence each:
# no device, no server, a wrong address, no route, a port that is down, a peer that ends, is silent or is something else.
# A client that stops keeps no other waiting. ^C prints what was measured.
# Does not hold: whether the times are right.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
require_tool
require python3 nft
tool=$PWD/build/user/userspace/tools/peal
[[ -e ${tool%/*}/peal-ping.so ]] || skip "peal-ping.so is not built"
false_ping=$(helper false_ping) || skip "$false_ping"
work=$(mktemp -d)
modprobe -a rdma_cm rdma_ucm

# says SENTENCE [ARGUMENT...]: peal ping fails with this sentence, which is the only line of the standard error.
says() {
	local sentence=$1 status=0
	shift
	timeout "$(limit 40)" "$tool" ping "$@" >"$work/output" 2>"$work/error" || status=$?
	((status == 1)) || fail "$*: expected exit status 1, got $status: $(<"$work/output") $(<"$work/error")"
	grep -q -e "^peal: .*$sentence" "$work/error" || fail "$*: expected '$sentence', got: $(<"$work/error")"
	(($(wc -l <"$work/error") == 1)) || fail "$*: expected one line, got: $(<"$work/error")"
	echo "ok: $(<"$work/error")"
}

# run_ping ARGUMENT...: a ping that must succeed, also on a busy host.
run_ping() { timeout "$(limit 60)" "$tool" ping --timeout 30 "$@"; }

# serve [COMMAND...]: starts this server, or peal ping --listen, and waits until it listens.
serve() {
	(($#)) || set -- "$tool" ping --listen --device "$device"
	"$@" >"$work/server" 2>&1 &
	server=$!
	wait_for cm_listens_or_died 7175 || fail "nothing listens: $(<"$work/server")"
	kill -0 "$server" 2>/dev/null || fail "the server ended: $(<"$work/server")"
}

# connected FILE: the client that prints to this file has connected.
connected() { grep -q OPERATION "$1"; }

# A server that is killed goes from the list of listeners a little later.
no_server() {
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	wait_gone cm_listens 7175 || fail "the port is still taken"
}

# judge PATH SIZES FILE: fails unless the JSON in the file says that all is right, with this path (null for none).
judge() {
	python3 - "$@" <<'END' || fail "the JSON: $(<"$3")"
import json, sys
path, sizes, file = sys.argv[1:]
result = json.load(open(file))
assert result["ok"] and result["mtu"] in (1024, 2048, 4096) and result["gid"] and result["peer_gid"], "the path"
assert (result["path"] or "null") == path, f"path {result['path']}"
names = ["SEND", "SEND_WITH_IMM", "WRITE", "WRITE_WITH_IMM", "READ"]
rows = [(name, int(size)) for name in names for size in sizes.split(",")] + [("FETCH_ADD", 8), ("COMPARE_SWAP", 8)]
assert [(row["operation"], row["size"]) for row in result["operations"]] == rows, "the rows"
for row in result["operations"]:
    assert row["verdict"] == "ok" and row["why"] == "" and row["count"] == 3, row
    assert 0 < row["min_us"] <= row["median_us"] <= row["max_us"], row
END
}

# ---- no device ----
! device_exists peal0 || peal_down
says "there is no RDMA device; make one" 10.77.0.1
says "there is no RDMA device; make one" --listen
interface_up
peal_up
device=peal0
says "there is no RDMA device peal9; ibv_devices lists" 10.77.0.1 --device peal9
says "there is no RDMA device peal9; ibv_devices lists" --listen --device peal9

# ---- the two paths of one device ----
sizes=1,64,4096,65536,2097152
serve
note_messages peal0
run_ping 10.77.0.1 --count 3 --json >"$work/json" || fail "direct: $(<"$work/json") $(<"$work/server")"
judge direct "$sizes" "$work/json"
PEAL_TRANSPORT=direct expect_path 81
direct_off peal0
note_messages peal0
run_ping fd77::1 --count 3 --json >"$work/json" || fail "wire: $(<"$work/json") $(<"$work/server")"
judge wire "$sizes" "$work/json"
PEAL_TRANSPORT=wire expect_path 81
run_ping 10.77.0.1 --size 3,5K --operation read,send --count 2 >"$work/table" 2>&1 ||
	fail "the table: $(<"$work/table")"
[[ $(sed -nE 's/^(READ|SEND) +([0-9]+) +2 .* ok$/\1 \2/p' "$work/table" | tr '\n' ,) == "READ 3,READ 5120,SEND 3,SEND 5120," ]] ||
	fail "the table: $(<"$work/table")"
grep -q "^peal0 to 10.77.0.1: 8 operations, every byte right; wire path, MTU 1024, GID ::ffff:10.77.0.1, the peer's" \
	"$work/table" || fail "the last line: $(<"$work/table")"
grep -q "^::ffff:10.77.0.1: 81 operations, every byte right$" "$work/server" || fail "the server: $(<"$work/server")"
grep -q "^fd77::1: 81 operations, every byte right$" "$work/server" || fail "the server: $(<"$work/server")"
direct_on peal0
echo "ok: both paths"

# ---- clients that stop, that are interrupted, and that ask for too much ----
"$tool" ping 10.77.0.1 --interval 0.1 --count 1000 --operation write --size 64 >"$work/stopped" 2>&1 &
stopped=$!
wait_for connected "$work/stopped" || fail "no connection: $(<"$work/stopped")"
kill -STOP "$stopped"
run_ping 10.77.0.1 --count 1 >"$work/table" 2>&1 || fail "beside a stopped client: $(<"$work/table")"
kill -CONT "$stopped"
measured() { (($(counter peal0 messages) > before + 10)); }
before=$(counter peal0 messages)
wait_for measured || fail "the client does not continue: $(<"$work/stopped")"
kill -INT "$stopped"
wait "$stopped" || fail "^C: exit status $?: $(<"$work/stopped")"
grep -q -E "^WRITE +64 +[0-9]+ +[0-9]+\.[0-9] .* ok$" "$work/stopped" &&
	grep -q -E "^peal0 to 10.77.0.1: [1-9][0-9]* operations, every byte right; direct path" "$work/stopped" ||
	fail "^C: $(<"$work/stopped")"
says "10.77.0.1 takes messages of at most 2097152 bytes; type \"peal ping --listen --size 4194304\" there" 10.77.0.1 --size 4M
no_server
serve "$tool" ping --listen --size 4M --device peal0
run_ping 10.77.0.1 --count 1 --size 4M >"$work/table" 2>&1 || fail "4 MiB: $(<"$work/table")"
echo "ok: a stopped client, ^C, and 4 MiB"

# ---- failures ----
"$tool" ping 10.77.0.1 --interval 0.1 --count 1000 >"$work/output" 2>"$work/error" &
client=$!
wait_for connected "$work/output" || fail "no connection: $(<"$work/error")"
no_server
wait "$client"
(($? == 1)) || fail "a peer that ended: $(<"$work/output") $(<"$work/error")"
grep -q "^peal: SEND of 1 bytes: the peer has closed the connection" "$work/error" &&
	grep -q "^peal: no program at 10.77.0.1 accepts on port 7175; type \"peal ping --listen\" there" "$work/error" &&
	grep -q -E "^SEND +1 .* failed$" "$work/output" || fail "a peer that ended: $(<"$work/output") $(<"$work/error")"
echo "ok: a peer that ended"
says "no program at 10.77.0.1 accepts on port 7175; type \"peal ping --listen\" there" 10.77.0.1
says "no program at 10.77.0.1 accepts on port 7199; type" 10.77.0.1 --port 7199
says "no RDMA device of this host reaches 192.0.2.1" 192.0.2.1
says "the network of this host knows no 10.77.0.99" 10.77.0.99 --timeout 2
says "the name nowhere.invalid is not known" nowhere.invalid
status=0
"$tool" ping 2>"$work/error" || status=$?
((status == 2)) || fail "without an argument: exit status $status"

# false_server HOW: the next client finds this server.
false_server() { serve "$false_ping" serve peal0 "$1"; }

false_server read
says "READ of 2000 bytes: this host has 1 wrong byte, the first at offset 1000, with" 10.77.0.1 --size 2000 --operation read
grep -q -E "^READ +2000 .* wrong data$" "$work/output" || fail "wrong bytes: $(<"$work/output")"
wait "$server"
false_server read
"$tool" ping 10.77.0.1 --size 2000 --operation write,read --json >"$work/json" 2>/dev/null && fail "wrong bytes: exit status 0"
wait "$server"
python3 - "$work/json" <<'END' || fail "the JSON of wrong bytes: $(<"$work/json")"
import json, sys
result = json.load(open(sys.argv[1]))
write, read = result["operations"]
assert not result["ok"] and write["verdict"] == "ok" and read["verdict"] == "wrong data", result
assert read["count"] == 1 and "at offset 1000" in read["why"], read
END
false_server value
says "FETCH_ADD of 8 bytes: this host has [1-8] wrong byte" 10.77.0.1 --operation fetch-add
wait "$server"
false_server silent
# It has one client, so the next connection finds no server.
timeout "$(limit 40)" "$tool" ping 10.77.0.1 --operation write,read --size 64 --timeout 3 >"$work/output" 2>"$work/error" &&
	fail "a silent peer: $(<"$work/output")"
grep -q "^peal: WRITE of 64 bytes: 10.77.0.1 has not answered in 3 s; see whether its \"peal ping\" still runs" "$work/error" &&
	grep -q "^peal: no program at 10.77.0.1 accepts on port 7175; type" "$work/error" || fail "a silent peer: $(<"$work/error")"
no_server
false_server ends
says "WRITE of 1 bytes: the peer has closed the connection" 10.77.0.1 --operation write,read
[[ $(grep -c -E "^READ .* ok$" "$work/output") == 4 && $(grep -c -E "^WRITE .* failed$" "$work/output") == 1 ]] ||
	fail "after a connection that ended: $(<"$work/output")"
wait "$server"
false_server garbage
says "does not answer as \"peal ping\" of this version does" 10.77.0.1
no_server
false_server nothing
says "the program at 10.77.0.1 on port 7175 is not \"peal ping\"; type \"peal ping --listen\" there" 10.77.0.1
wait "$server"
serve
timeout "$(limit 60)" "$false_ping" ask peal0 10.77.0.1 >"$work/output" 2>&1 || fail "$(<"$work/output") $(<"$work/server")"
server_counts() { grep -q "^::ffff:10.77.0.1: 10 operations, 10 with wrong bytes" "$work/server"; }
wait_for server_counts || fail "the server does not say what was wrong: $(<"$work/server")"
sed 's/^/ok: /' "$work/output"
ip link set veth0 down
wait_gone port_active peal0
says "port 1 of peal0, by which 10.77.0.1 is reached, is not up; set its link up" 10.77.0.1 --timeout 2
interface_up
no_server
peal_down

# ---- two network namespaces, and rdma_rxe ----
# between PATH SERVER_END: a ping from the other end.
between() {
	local status=0
	wire_serve wire_cm_listens "$2" 7175 "$tool" ping --listen --device "${wire_device[$2]}" >"$work/server" 2>&1 ||
		fail "server ${wire_device[$2]}: $(<"$work/server")"
	wire_on "$(other_end "$2")" timeout "$(limit 60)" "$tool" ping "$(wire_address "$2" 4)" --count 3 --size 1,5000,100000 --json --timeout 30 \
		>"$work/json" 2>"$work/error" || status=$?
	((status == 0)) || fail "server ${wire_device[$2]}: $(<"$work/json") $(<"$work/error") $(<"$work/server")"
	judge "$1" 1,5000,100000 "$work/json"
	no_server
	echo "ok: server ${wire_device[$2]}"
}

wire_up peal peal
between wire a
# Of the packets with 1024 bytes none arrives.
wire_on a nft -f - <<'END' || fail "cannot drop long packets"
table inet long { chain in { type filter hook input priority 0; udp dport 4791 udp length > 600 drop; }; }
END
wire_serve wire_cm_listens a 7175 "$tool" ping --listen --device peal_a >"$work/server" 2>&1 || fail "$(<"$work/server")"
wire_on b timeout "$(limit 60)" "$tool" ping 10.78.0.1 --size 64,5000 --operation write,fetch-add --timeout 4 --count 2 \
	>"$work/output" 2>"$work/error" && fail "long packets are dropped, and the exit status is 0"
grep -q '^peal: WRITE of 5000 bytes: .*; shorter messages have passed, so see .* ("peal doctor 10.78.0.1")$' "$work/error" &&
	(($(wc -l <"$work/error") == 1)) && grep -q -E "^WRITE +64 .* ok$" "$work/output" &&
	grep -q -E "^FETCH_ADD +8 .* ok$" "$work/output" || fail "long packets are dropped: $(<"$work/output") $(<"$work/error")"
echo "ok: $(<"$work/error")"
no_server
wire_on a nft delete table inet long
set_scope host
direct_on peal_a
direct_on peal_b
between direct b
set_scope netns
wire_down
modprobe rdma_rxe || exit 0
wire_up peal rxe
between null a
between wire b
wire_down
wire_up rxe rxe
between null a
wire_down
modprobe -r rdma_rxe
