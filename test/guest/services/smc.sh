#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: direct, thorough wire
# timeout: 120
# run: long
#
# SMC-R: sockets of the family AF_SMC, in two network namespaces with a device in each, find each other's device over their
# TCP connection and then use RDMA. smc_diag shows that they did not fall back to TCP. Data that depend on their position
# go both ways. RoCE v2 needs version 2 of SMC-R, hence a name that both hosts know (EID), and SMC has to be told which
# device belongs to which netdev (PNETID). Without that, sockets fall back to TCP and still work. When a device is removed
# under load, its connections end with an error, and later ones use TCP.
# It does not show that the other end notices, because SMC does not tell it, and an end that waits for data never asks.
# It does not cover SMC over RoCE v1, which peal does not speak.
set -u
# shellcheck disable=SC2154 # wire_work is wire.sh's
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
helpers=$(dirname "$0")/../helpers
stream_data=$(helper stream_data) || skip "$stream_data"
size=${SMC_MIB:-64}
connections=10
port=19500
modprobe -a smc smc_diag 2>/dev/null || skip "the kernel has no SMC"
"$helpers/smc_netlink.py" ueid PEAL.TEST || skip "the kernel has no version 2 of SMC-R"

# SMC remembers the networks by the names of devices, also of those that are gone.
clean_up() {
	"$helpers/smc_netlink.py" flush
	[[ ${PEAL_TRANSPORT:-direct} == wire ]] || set_scope netns
}
trap clean_up EXIT

# stream SERVER_KIND CLIENT_KIND MIB: a server at b and a client at a.
stream() {
	port=$((port + 1))
	wire_exec="exec" wire_on b "$stream_data" serve "$1" "${wire_v4[b]}" $port >"$wire_work/server" 2>&1 &
	server=$!
	wait_for server_listens_or_died_at_b || fail "the server does not listen: $(<"$wire_work/server")"
	wire_on a "$stream_data" talk "$2" "${wire_v4[b]}" $port "$3" >"$wire_work/client" 2>&1 ||
		fail "$1 server, $2 client: $(<"$wire_work/client") $(<"$wire_work/server") $(dmesg | tail -n 5)"
	wait "$server" || fail "the server: $(<"$wire_work/server")"
}

# has_moved_or_died MIB: through both devices, since $before was set.
has_moved_or_died() { (($(sum_of bytes) >= before + ($1 << 20))) || ! kill -0 $client; }

server_listens_or_died_at_b() { port_listens $port "$server" || ! kill -0 "$server"; }

wire_up peal peal 4500
if [[ ${PEAL_TRANSPORT:-direct} != wire ]]; then
	set_scope host
	direct_on peal_a
	direct_on peal_b
fi
note_messages peal_a peal_b
stream smc smc 4
grep -q "mode: TCP" "$wire_work/client" || fail "expected TCP without a PNETID, got: $(<"$wire_work/client")"
echo "ok: falls back to TCP without a PNETID"

for end in a b; do
	"$helpers/smc_netlink.py" ib "PEAL${end^}" "peal_$end" 1 || fail "no PNETID for peal_$end"
	wire_on "$end" "$helpers/smc_netlink.py" eth "PEAL${end^}" "wire_$end" || fail "no PNETID for wire_$end"
done
note_messages peal_a peal_b
before=$(sum_of bytes)
stream smc smcr "$size"
echo "ok: $size MiB over SMC-R, $(tail -n 1 "$wire_work/client")"
bytes=$(($(sum_of bytes) - before))
((bytes >= 2 * size << 20)) || fail "expected $((2 * size)) MiB through the devices, got $bytes bytes"
# A write has at most half of a receive buffer of 64 KiB.
expect_path $((64 * size))
for ((i = 0; i < connections; i++)); do
	stream smc smcr 1
done
echo "ok: $connections connections"
stream tcp smc 4
grep -q "mode: TCP" "$wire_work/client" || fail "expected TCP with a TCP server, got: $(<"$wire_work/client")"
echo "ok: a TCP server"

# The link groups end with their device. Its end of the connection gets an error, and later ones fall back again.
port=$((port + 1))
wire_exec="exec" wire_on b "$stream_data" serve smc "${wire_v4[b]}" $port >"$wire_work/server" 2>&1 &
server=$!
wait_for server_listens_or_died_at_b || fail "the server does not listen: $(<"$wire_work/server")"
before=$(sum_of bytes)
wire_exec="exec" wire_on a "$stream_data" talk smcr "${wire_v4[b]}" $port 4096 >"$wire_work/client" 2>&1 &
client=$!
wait_for has_moved_or_died 4 || fail "no data on the connection"
kill -0 $client 2>/dev/null || fail "the client ended: $(<"$wire_work/client")"
wire_on b rdma link delete peal_b || fail "cannot remove peal_b"
wait_gone device_exists peal_b || fail "peal_b is still there"
wait_gone kill -0 $server || fail "the server did not notice that the device is gone"
wait $server
status=$?
((status == 1 || status == 2)) || fail "expected the server to see an error, got $status: $(<"$wire_work/server")"
kill $client 2>/dev/null
wait $client
echo "ok: device removed under load: $(tail -n 1 "$wire_work/server")"
stream smc smc 4
grep -q "mode: TCP" "$wire_work/client" || fail "expected TCP without a device, got: $(<"$wire_work/client")"
echo "ok: falls back to TCP without a device"
wire_down
