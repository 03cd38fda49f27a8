#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: any
# timeout: 120
#
# Holds: The lessons and the larger examples of libpeal do what they say, through the direct path, as packets, and between peal
# and rdma_rxe with the server on each of them. Clients that count by atomics lose no count, and the lock keeps them apart. The
# store returns what was put, and a client that reads while the server writes gets only whole values. A copied file has the same
# bytes, also an empty one, and a file that does not exist is a sentence. Two programs connect without the connection manager, by
# blobs in files. The parameter server, whose connections share receives, finds the parameters. A lease ends when the client gives
# it back and when the server takes it back, and then the client cannot write. Each subscriber of a multicast group gets the lines
# of a publisher, and its address.
# Does not hold: whether a read met a write in the store is up to the timing; test/unit/lib/examples.cpp has each mixture.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
examples=build/user/userspace/lib/peal-
[[ -x ${examples}kv_store ]] || skip "libpeal is not built"
work=$(mktemp -d)
modprobe -a rdma_cm rdma_ucm

# on END NAME ARGUMENT...: runs an example at that end of the wire, or on peal0 if there is no wire.
on() {
	local end=$1 name=$2
	shift 2
	set -- env PEAL_DEVICE="${wire_device[$end]:-peal0}" timeout "$(limit 60)" "$examples$name" "$@"
	if [[ ${wire_device[$end]:-} ]]; then
		wire_on "$end" "$@"
	else
		${wire_exec:-} "$@"
	fi
}

# serve PORT NAME ARGUMENT...: starts a server, which listens on this port.
serve() {
	wire_exec="exec" on "$server_end" "${@:2}" >"$work/server" 2>&1 </dev/null &
	server=$!
	wait_for cm_listens_or_died "$1" && kill -0 "$server" || fail "$2 does not listen: $(<"$work/server")"
}

served() { wait "$server" || fail "the server: $(<"$work/server")"; }

# call FILE NAME ARGUMENT...: runs a client, whose output goes to this file.
call() {
	on "$client_end" "${@:2}" >"$work/$1" 2>&1 </dev/null || fail "${*:2}: $(<"$work/$1") server: $(<"$work/server")"
}

# prints FILE TEXT: the file has exactly this.
prints() { [[ $(<"$work/$1") == "$2" ]] || fail "expected '$2', got: $(<"$work/$1")"; }

# calls COUNT NAME ARGUMENT...: runs so many clients at the same time.
calls() {
	local i clients=()
	for ((i = 0; i < $1; i++)); do
		call "client$i" "${@:2}" &
		clients+=($!)
	done
	for i in "${clients[@]}"; do
		wait "$i" || fail "$2: a client failed"
	done
}

# lesson PORT NAME OUTPUT_OF_SERVER OUTPUT_OF_CLIENT ARGUMENT...: the outputs have words for lines.
lesson() {
	serve "$1" "$2"
	call client "$2" "${@:5}"
	served
	prints server "${3// /$'\n'}"
	prints client "${4// /$'\n'}"
}

count_and_lock() {
	serve 7474 counter_and_lock 3
	calls 3 counter_and_lock "$1" 20
	served
	prints server "counter 60, balance 120 after 60 changes, lock 0"
}

store() {
	serve 7475 kv_store
	call client kv_store "$1" put colour green
	call client kv_store "$1" put shape "a circle"
	call client kv_store "$1" put colour "blue and more"
	call client kv_store "$1" get colour
	prints client "blue and more"
	call client kv_store "$1" get shape
	prints client "a circle"
	call client kv_store "$1" get size
	prints client "not found"
	call watch kv_store "$1" watch number 200 &
	watch=$!
	call client kv_store "$1" count number 200
	wait "$watch" || fail "the watch failed: $(<"$work/watch")"
	echo "ok: $(<"$work/watch")"
	kill "$server"
	wait "$server" 2>/dev/null
}

# copy BYTES ADDRESS
copy() {
	head -c "$1" /dev/urandom >"$work/file"
	serve 7476 cp "$work/copy"
	call client cp "$work/file" "$2"
	served
	cmp "$work/file" "$work/copy" || fail "a copy of $1 bytes differs"
	grep -q "checksum equal" "$work/client" || fail "the sender: $(<"$work/client")"
	grep -q "checksum equal" "$work/server" || fail "the receiver: $(<"$work/server")"
	(($1 == 0)) || grep -q "#] 100 %" "$work/client" || fail "no progress: $(<"$work/client")"
}

train() {
	local i
	serve 7477 parameter_server 2 30
	calls 2 parameter_server "$1"
	served
	for i in 0 1; do
		grep -q "^loss 0\.0" "$work/client$i" || fail "worker $i: $(<"$work/client$i")"
	done
}

lessons() {
	lesson 7478 lesson_write "12 -5 7" "" "$1" 12 -5 7
	lesson 7479 lesson_send "colour=blue shape=circle" "new new replaced" "$1" colour green shape circle colour blue
	lesson 7480 lesson_read "" "two zero three" "$1" 2 0 3
}

# meets: two programs that know each other by files only. A file that is no blob is a sentence.
meets() {
	rm -f "$work"/blob*
	wire_exec="exec" on "$server_end" hello_by_file "$work/blob1" "$work/blob2" >"$work/server" 2>&1 </dev/null &
	server=$!
	call client hello_by_file "$work/blob2" "$work/blob1" "by a file"
	served
	prints server "by a file"
	on "$client_end" hello_by_file "$work/blob2" "$work/server" >"$work/client" 2>&1 && fail "hello_by_file takes any file"
	grep -q "these 10 bytes are no blob of libpeal" "$work/client" || fail "a file that is no blob: $(<"$work/client")"
}

# leases: a lease that was given back, and one that was taken back, by which the client writes no more.
leases() {
	serve 7481 lease
	call client lease "$1"
	served
	prints server $'given back: first\ntaken back: second'
	grep -q "^refused: the peer's memory does not allow the request.*bind its window again" "$work/client" ||
		fail "a late write: $(<"$work/client")"
}

joined() { grep -q joined "$work/subscriber0" && grep -q joined "$work/subscriber1"; }

# publishes: each of two subscribers at the server's end gets every line, because both have joined and nothing is lost here.
publishes() {
	local i subscribers=() lines=() from=10.77.0.1
	[[ ! ${wire_device[$client_end]:-} ]] || from=${wire_v4[$client_end]}
	for i in 0 1; do
		: >"$work/subscriber$i"
		wire_exec="exec" on "$server_end" publish 239.1.2.3 20 >"$work/subscriber$i" 2>&1 </dev/null &
		subscribers+=($!)
	done
	wait_for joined || fail "the subscribers do not join: $(<"$work/subscriber0") $(<"$work/subscriber1")"
	mapfile -t lines < <(printf 'line %d\n' {1..20})
	printf '%s\n' "${lines[@]}" | on "$client_end" publish 239.1.2.3 >"$work/client" 2>&1 || fail "publish: $(<"$work/client")"
	for i in 0 1; do
		wait "${subscribers[i]}" || fail "a subscriber: $(<"$work/subscriber$i")"
		{
			echo joined
			printf '%s\n' "${lines[@]}" | sed -E "s/line ([0-9]+)/\1 & from ::ffff:$from/"
			echo missed 0
		} | cmp - "$work/subscriber$i" || fail "a subscriber: $(<"$work/subscriber$i")"
	done
}

# try_all ADDRESS: every example, with the server at this address.
try_all() {
	local part begin took=
	for part in lessons meets count_and_lock store "copy 2000001" "copy 0" train leases publishes; do
		begin=$(now_ms)
		# shellcheck disable=SC2086 # a function and its argument
		$part "$1"
		took+=", $part $(($(now_ms) - begin)) ms"
	done
	echo "ok: server ${wire_device[$server_end]:-peal0}, client ${wire_device[$client_end]:-peal0}$took"
}

server_end=a client_end=b
interface_up
peal_up
note_messages peal0
try_all 10.77.0.1
expect_path 500
direct_off peal0
note_messages peal0
try_all 10.77.0.1
PEAL_TRANSPORT=wire expect_path 500
PEAL_DEVICE=peal0 "${examples}cp" "$work/nothing" 10.77.0.1 >"$work/client" 2>&1 && fail "cp sends a file that does not exist"
prints client "$work/nothing cannot be read"
peal_down

modprobe rdma_rxe || skip "this kernel has no rdma_rxe"
wire_up peal rxe
try_all "${wire_v4[a]}"
server_end=b client_end=a
try_all "${wire_v4[b]}"
wire_down
modprobe -r rdma_rxe
