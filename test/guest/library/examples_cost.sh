#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# vm: icount
# timeout: 900
# run: long
# transport: direct
#
# Holds: An operation of each example of libpeal takes no more instructions, of both ends and the kernel, by the rings than by
# libibverbs on the same device, plus 5 %. It allocates no memory, except for the progress bar of "cp". Documentation/libpeal.rst
# has the table that this prints, and behind it what the compiler executes for "hello".
# Does not hold: examples that are over after a few operations. The lines of the examples are counted when the page is built.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
built=build/user/userspace/lib
[[ $(uname -r) == 6.1.* && ${PEAL_SLOWNESS:-1} == 1 ]] || skip "the documented figures are those of the stock kernel 6.1"
[[ -x $built/peal-kv_store ]] || skip "libpeal is not built"
allocations=$(helper libcount_allocations.so) || skip "$allocations"
work=$(mktemp -d)
modprobe -a rdma_cm rdma_ucm
export PEAL_DEVICE=${PEAL_DEV:-peal0}
# The guest waits for files of the host, so the programs are in its own memory.
for name in lesson_send echo echo_many counter_and_lock kv_store cp parameter_server; do
	cp "$built/peal-$name" "$work" || fail "cannot copy $name"
done
cp "$built/libpeal.so.0" "$work" || fail "cannot copy libpeal"
export LD_LIBRARY_PATH=$work
examples=$work/peal-
rounds=2

# serve PORT NAME ARGUMENT...: starts a server, which listens on this port.
serve() {
	PEAL_ALLOCATIONS=$work/allocations.server "$examples$2" "${@:3}" >"$work/server" 2>&1 </dev/null &
	server=$!
	wait_for cm_listens_or_died "$1" && kill -0 "$server" || fail "$2 does not listen: $(<"$work/server")"
}

# The clock runs ahead while the processor has nothing to do, and deadlines pass. So this program runs whenever no other one does.
chrt --idle 0 bash -c 'while :; do :; done' &
idler=$!
trap 'kill $idler' EXIT
# This loop keeps the processor busy until then. The fields are the name and the policy, SCHED_IDLE.
stat=()
until [[ ${stat[1]:-} == "(bash)" && ${stat[40]} == 5 ]]; do
	read -ra stat <"/proc/$idler/stat" || fail "nothing keeps the processor busy"
done

# busy: sets $busy to the time in which the one processor ran other programs. The clock counts instructions, so this is how many they
# and the kernel have executed. Time in which all of them wait, for example to connect, is not in it.
busy() {
	local fields idle
	while read -ra fields; do
		[[ ${fields[0]} != cpu0 ]] || busy=${fields[7]}
	done </proc/schedstat
	read -r idle _ <"/proc/$idler/schedstat"
	((busy -= idle))
}

# call NAME ARGUMENT...: runs the client, and sets $took to the instructions meanwhile. The server may have ended or not.
call() {
	local begin
	busy
	begin=$busy
	PEAL_ALLOCATIONS=$work/allocations.client "$examples$1" "${@:2}" >"$work/client" 2>&1 <"${input:-/dev/null}" ||
		fail "$*: $(<"$work/client") server: $(<"$work/server")"
	busy
	took=$((busy - begin))
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
}

# without_arguments ARGUMENT...: subtracts from $took what the shell and the kernel do to start a program with these.
without_arguments() {
	local begin
	busy
	begin=$busy
	/bin/true "${@:1}"
	busy
	((took -= busy - begin))
}

# Each of these runs so many operations of an example.
lesson_send() {
	local words
	printf -v words 'colour blue %.0s' $(seq "$1")
	serve 7479 lesson_send
	# shellcheck disable=SC2086 # words
	call lesson_send 10.77.0.1 $words
	# The client has two arguments for each operation.
	# shellcheck disable=SC2086 # words
	without_arguments $words
}

echo_line() {
	yes line | head -n "$1" >"$work/lines"
	serve 7472 echo
	input=$work/lines call echo 10.77.0.1
}

echo_many() {
	serve 7473 echo_many
	call echo_many 10.77.0.1 10 $(($1 / 10))
}

counter_and_lock() {
	serve 7474 counter_and_lock 1
	call counter_and_lock 10.77.0.1 "$1"
}

kv_store() {
	serve 7475 kv_store
	call kv_store 10.77.0.1 count number "$1"
}

cp_chunk() {
	head -c $(($1 * 262144)) /dev/zero >"$work/file"
	serve 7476 cp "$work/copy"
	call cp "$work/file" 10.77.0.1
	rm "$work/copy"
}

parameter_server() {
	serve 7477 parameter_server 1 "$1"
	call parameter_server 10.77.0.1
}

# least FUNCTION COUNT: sets $took to the least of some runs, because other programs of the guest may run at any time.
least() {
	local i best
	for ((i = 0; i < rounds; i++)); do
		"$@"
		((i && took >= best)) || best=$took
	done
	took=$best
}

# instructions FUNCTION FEW MANY: sets $each, the instructions of one operation. What a run begins with and ends with is in both.
instructions() {
	local few
	least "$1" "$2"
	few=$took
	least "$1" "$3"
	each=$(((took - few) / ($3 - $2)))
}

# count_of END: prints how often that end of the last run has allocated.
count_of() { od -A n -t u8 "$work/allocations.$1"; }

# allocated FUNCTION FEW MANY: sets $each, the allocations of both ends in 1,000 operations.
allocated() {
	local few
	LD_PRELOAD=$allocations "$1" "$2"
	few=$(($(count_of client) + $(count_of server)))
	rm "$work"/allocations.*
	LD_PRELOAD=$allocations "$1" "$3"
	each=$((($(count_of client) + $(count_of server) - few) * 1000 / ($3 - $2)))
	rm "$work"/allocations.*
}

# cost EXAMPLE FUNCTION FEW MANY ALLOCATIONS OPERATION: prints a row. ALLOCATIONS is how many one operation may have.
cost() {
	local rings verbs
	instructions "$2" "$3" "$4"
	rings=$each
	PEAL_LIBIBVERBS=1 instructions "$2" "$3" "$4"
	verbs=$each
	allocated "$2" "$3" "$4"
	printf '%-17s  %-50s  %9d  %10d  %9d.%d\n' "$1" "$6" "$rings" "$verbs" $(((each + 50) / 1000)) $(((each + 50) / 100 % 10))
	((rings > 0 && rings * 100 < verbs * 105)) || fail "$1: $rings instructions by the rings, and $verbs by libibverbs"
	((each <= $5 * 1000 + 50)) || fail "$1: $each allocations in 1,000 operations"
}

printf '%-17s  %-50s  %9s  %10s  %11s\n' example operation rings libibverbs allocations
cost lesson_send lesson_send 200 2200 0 "a message of 48 bytes, and its answer"
cost echo echo_line 200 2200 0 "a line, and its echo, with a sleep in epoll"
cost echo_many echo_many 200 2200 0 "a message and its echo, one of 10 clients"
cost counter_and_lock counter_and_lock 200 2200 0 "a count, and a change under the lock"
cost kv_store kv_store 200 2200 0 "a put"
cost cp cp_chunk 10 110 2 "256 KiB of a file, read, summed and written"
cost parameter_server parameter_server 100 1100 0 "a round of one worker"

# compiled FILE INCLUDES...: prints what the compiler executes for a program. The first time it is read from the host.
compiled() {
	local begin i
	for i in 1 2; do
		busy
		begin=$busy
		"${CXX:-c++}" -std=c++20 -O2 "${@:2}" -c "$1" -o "$work/object" || fail "$1 does not compile"
		busy
	done
	printf '%-17s  %d million instructions\n' "$(basename "$1")" $(((busy - begin) / 1000000))
}

echo "compiled by $("${CXX:-c++}" -dumpfullversion), -O2:"
compiled userspace/lib/examples/hello.cpp -Iuserspace/lib -Iinclude/uapi
compiled test/guest/helpers/hello_verbs.cpp
