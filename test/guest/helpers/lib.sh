# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Helpers of the guest's shell tests (source "$(dirname "$0")/../helpers/lib.sh"). They wait for conditions, skip tests,
# make and remove peal0, and run servers. They never wait for a fixed time. A test exits with 0 (passed), 1 (failed) or 77
# (skipped). Helpers that poll start no programs, because this takes 50 to 200 ms under emulation.

# limit SECONDS: prints the time limit for this kernel. scripts/vm sets PEAL_SLOWNESS.
limit() { echo $(($1 * ${PEAL_SLOWNESS:-1})); }

# thorough: succeeds in `scripts/test all`. Other runs leave out expensive parts that add little.
thorough() { [[ ${PEAL_THOROUGH:-} ]]; }

WAIT_LIMIT=${WAIT_LIMIT:-$(limit 20)}

fail() {
	echo "FAILED: $*"
	exit 1
}

skip() {
	echo "$*"
	exit 77
}

# complains STATUS WORDS COMMAND...: the command of the tool fails with this status and one line, which has the words.
complains() {
	local status=0 output
	output=$("${@:3}" 2>&1 >/dev/null) || status=$?
	[[ $status == "$1" ]] || fail "expected status $1 of ${*:3}, got $status: $output"
	[[ $output == *"$2"* && $output == "peal: "* && $output != *$'\n'* ]] || fail "${*:3} says: $output"
	echo "ok: $output"
}

# pause: waits for 50 ms without starting a program. It reads from a pipe into which nothing is written. The shell keeps both
# ends open, and the pipe has no name any more.
pause() {
	[[ ${nothing:-} ]] || exec {nothing}<> <(:)
	read -r -t 0.05 -u "$nothing" || true
}

# wait_for COMMAND...: polls until the command succeeds. It fails after WAIT_LIMIT seconds.
wait_for() {
	local end=$((SECONDS + WAIT_LIMIT))
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || return 1
		pause
	done
}

# wait_gone COMMAND...: polls until the command fails. It fails after WAIT_LIMIT seconds.
wait_gone() {
	local end=$((SECONDS + WAIT_LIMIT))
	while "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || return 1
		pause
	done
}

# require TOOL...: skips the test if a tool is not installed.
require() {
	local tool
	for tool in "$@"; do
		command -v "$tool" >/dev/null || skip "$tool is not installed"
	done
}

# first_line FILE: reads the first line into the variable line. If the file is gone, line is empty.
first_line() { { line= && read -r line <"$1"; } 2>/dev/null || [[ $line ]]; }

# counter DEVICE NAME: prints the value of the counter.
counter() {
	local line
	first_line "/sys/class/infiniband/$1/ports/1/hw_counters/$2" && echo "$line"
}

# note_messages DEVICE...: remembers how many messages these devices have moved on each path.
note_messages() {
	noted_devices=("$@")
	noted_direct=$(sum_of direct_messages)
	noted_wire=$(sum_of wire_messages)
}

# sum_of COUNTER: prints the sum of the devices of note_messages.
sum_of() {
	local device sum=0
	for device in "${noted_devices[@]}"; do
		sum=$((sum + $(counter "$device" "$1")))
	done
	echo $sum
}

# expect_path LEAST: fails unless the devices have moved so many messages since then on the path of this test. With the direct
# path switched off they must not have used it.
expect_path() {
	local direct wire
	direct=$(($(sum_of direct_messages) - noted_direct))
	wire=$(($(sum_of wire_messages) - noted_wire))
	if [[ ${PEAL_TRANSPORT:-direct} == wire ]]; then
		((wire >= $1 && direct == 0)) || fail "expected $1 messages on the wire, got $wire, and $direct on the direct path"
	else
		((direct >= $1)) || fail "expected $1 messages on the direct path, got $direct, and $wire on the wire"
	fi
	echo "ok: $direct messages on the direct path, $wire on the wire"
}

port_active() {
	local line
	first_line "/sys/class/infiniband/$1/ports/1/state" && [[ $line == *ACTIVE* ]]
}

# verbs_node DEVICE: prints the path of its /dev/infiniband node, and fails while it is missing.
verbs_node() {
	local entry node line
	for entry in /sys/class/infiniband_verbs/uverbs*; do
		first_line "$entry/ibdev" && [[ $line == "$1" ]] || continue
		node=/dev/infiniband/${entry##*/}
		[[ -c $node ]] && echo "$node" && return
	done
	return 1
}

# gid_index DEVICE: prints the index of its RoCE v2 GID for an IPv4 address, and fails while there is none.
gid_index() {
	local port=/sys/class/infiniband/$1/ports/1 file index line
	for file in "$port"/gids/*; do
		index=${file##*/}
		first_line "$file" && [[ $line == 0000:0000:0000:0000:0000:ffff:* ]] || continue
		first_line "$port/gid_attrs/types/$index" && [[ $line == "RoCE v2" ]] || continue
		echo "$index" && return
	done
	return 1
}

# expand_address ADDRESS: prints the address in the form in which the kernel prints a GID.
expand_address() {
	local head=$1 tail='' groups=() last=()
	if [[ $1 != *:* ]]; then
		# shellcheck disable=SC2086 # four numbers
		printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x\n' ${1//./ }
		return
	fi
	[[ $1 != *::* ]] || head=${1%%::*} tail=${1#*::}
	IFS=: read -r -a groups <<<"$head"
	IFS=: read -r -a last <<<"$tail"
	while ((${#groups[@]} + ${#last[@]} < 8)); do
		groups+=(0)
	done
	groups+=("${last[@]}")
	groups=("${groups[@]/#/0x}")
	printf '%04x' "${groups[0]}"
	printf ':%04x' "${groups[@]:1}"
	echo
}

# gid_of DEVICE ADDRESS: prints the index of its RoCE v2 GID for the address, and fails while there is none.
gid_of() {
	local port=/sys/class/infiniband/$1/ports/1 file index wanted found
	wanted=$(expand_address "$2")
	for file in "$port"/gids/*; do
		# A device has 128 GIDs. To start a process for each would take seconds under emulation.
		{ read -r found <"$file"; } 2>/dev/null && [[ $found == "$wanted" ]] || continue
		index=${file##*/}
		{ read -r found <"$port/gid_attrs/types/$index"; } 2>/dev/null && [[ $found == "RoCE v2" ]] || continue
		echo "$index" && return
	done
	return 1
}

device_ready() { port_active "$1" && verbs_node "$1" && gid_index "$1"; }

device_state() {
	echo "port $(cat "/sys/class/infiniband/$1/ports/1/state"), node $(verbs_node "$1" || echo missing)," \
		"IPv4 GID $(gid_index "$1" || echo missing)"
}

device_exists() { [[ -e /sys/class/infiniband/$1 ]]; }

# interface_up: makes veth0 with its addresses, and its peer veth1.
interface_up() {
	if [[ ! -e /sys/class/net/veth0 ]]; then
		ip link add veth0 type veth peer name veth1 || fail "cannot make veth0"
	fi
	ip -batch - <<-'END'
		address replace 10.77.0.1/24 dev veth0
		address replace fd77::1/64 dev veth0 nodad
		link set veth1 up
		link set veth0 up
	END
}

# peal ARGUMENT...: the tool that was built.
peal() { "$(dirname "${BASH_SOURCE[0]}")/../../../build/user/userspace/tools/peal" "$@"; }

# require_tool: skips the test if the tool is not built, because its libraries are missing.
require_tool() { [[ -x $(dirname "${BASH_SOURCE[0]}")/../../../build/user/userspace/tools/peal ]] || skip "peal is not built"; }

# option DEVICE NAME: prints the value of an option.
option() { peal link show "$1" --json | sed -nE "s/.*\"$2\": \"?([^\",]*)\"?,?\$/\1/p"; }

set_direct() { peal link set "$1" direct "$2" || fail "cannot set the direct path of $1 to $2"; }

# direct_off DEVICE: makes the device send all messages as packets, also messages to itself. PEAL_TRANSPORT=wire does this
# for every device of peal_up.
direct_off() { set_direct "$1" 0; }

direct_on() { set_direct "$1" 1; }

# set_scope none|device|netns|host: between which queue pairs of this machine the direct path is allowed.
set_scope() { peal host set direct "$1" || fail "cannot allow the direct path for $1"; }

# peal_up [DEVICE [NETDEV]]: makes the device unless it exists, and waits until programs can use it.
peal_up() {
	local device=${1:-peal0} netdev=${2:-veth0}
	device_exists "$device" || rdma link add "$device" type peal netdev "$netdev" || fail "cannot make $device"
	[[ ${PEAL_TRANSPORT:-} != wire ]] || direct_off "$device"
	wait_for device_ready "$device" || fail "$device is not ready: $(device_state "$device")"
}

# peal_down [DEVICE]
peal_down() {
	local device=${1:-peal0}
	device_exists "$device" || return 0
	rdma link delete "$device" || fail "cannot remove $device"
	wait_gone device_exists "$device" || fail "$device is still there"
}

# port_listens PORT [PROCESS]: succeeds if a socket listens on the TCP port, in the network namespace of this process or of
# PROCESS.
port_listens() {
	local entry port table entries=()
	printf -v port '%04X' "$1"
	for table in tcp tcp6; do
		mapfile -t entries <"/proc/${2:-self}/net/$table" || return 1
		for entry in "${entries[@]}"; do
			# The fields are the local address, the empty remote address and the state LISTEN.
			[[ $entry != *:"$port "*:"0000 0A "* ]] || return 0
		done
	done
	return 1
}

# check_figure NAME FIGURE LIMIT: fails, and says it, if the figure is missing, or more than 5 % above the limit.
check_figure() {
	(($2 > 0 && $2 * 100 <= $3 * 105)) && return
	echo "$1: ${2/#0/no} instructions, limit $3 and 5 %"
	return 1
}

# start_server PORT COMMAND...: starts the command in the background, and waits until it listens on the TCP port. It sets
# $server.
start_server() {
	local port=$1
	shift
	"$@" &
	server=$!
	wait_for server_listens_or_died "$port" || fail "nothing listens on port $port: $*"
	kill -0 "$server" 2>/dev/null || fail "the server ended early: $*"
}

server_listens_or_died() { port_listens "$1" || ! kill -0 "$server"; }

# cm_listens PORT: succeeds if a program listens on this port of the connection manager.
cm_listens() { rdma resource show cm_id | grep -E "state LISTEN.*:$1( |\$)"; }

cm_listens_or_died() { cm_listens "$1" || ! kill -0 "$server"; }

# cm_pair SERVER... -- CLIENT...: runs two programs that use the connection manager. Both must succeed. @PORT becomes a new
# port number each time. A program without it uses 7174. The output is in $work/{server,client}.
# shellcheck disable=SC2154 # the test has a folder $work, and $next_port
cm_pair() {
	local listener caller word status port try
	for try in 1 2 3; do
		listener=() caller=() status=0 port=7174
		[[ $* != *@PORT* ]] || port=$((next_port++))
		for word in "$@"; do
			[[ $word == -- ]] && listener=("${caller[@]}") && caller=() && continue
			caller+=("${word//@PORT/$port}")
		done
		timeout "$(limit 60)" "${listener[@]}" >"$work/server" 2>&1 &
		server=$!
		wait_for cm_listens_or_died "$port" || fail "${listener[*]} does not listen: $(<"$work/server")"
		timeout "$(limit 60)" "${caller[@]}" >"$work/client" 2>&1 || status=$?
		# rcopy goes on waiting for clients.
		((status == 0)) && [[ ${listener[0]} != rcopy ]] || kill "$server" 2>/dev/null
		wait "$server" || [[ ${listener[0]} == rcopy ]] || status=$((status ? status : 1))
		# perftest measures the CPU's frequency, and gives up if the clock of a busy host is uneven.
		((status != 0 && try < 3)) && grep -q "Correlation coefficient" "$work/client" "$work/server" || break
	done
	((status == 0)) || fail "${caller[*]} ($status): $(<"$work/client") server: $(<"$work/server")"
	echo "ok: ${caller[*]}"
}

# helper NAME: prints the path of a program of helpers/. Those with libpeal are in the folder of the library. Call it as:
# program=$(helper NAME) || skip "$program"
helper() {
	local program build
	build=$(dirname "${BASH_SOURCE[0]}")/../../../build
	for program in "$build"/{guest,user}/test/guest/"$1"; do
		[[ ! -x $program ]] || { echo "$program" && return; }
	done
	echo "the helper '$1' is not built"
	return 1
}

# start_traffic DEVICE ARGUMENT...: starts the helper "traffic", and returns when it is at work. It sets $program.
start_traffic() {
	local ready
	ready=$(mktemp -u)
	PEAL_DEV=$1 "$traffic" --ready "$ready" "${@:2}" &
	program=$!
	wait_for test -e "$ready" || fail "the program did not come to work"
	rm "$ready"
}

ended() { ! kill -0 "$1" 2>/dev/null; }

now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

# timed COMMAND...: fails the test unless the command succeeds in five seconds.
timed() {
	local begin took
	begin=$(now_ms)
	timeout --signal=KILL 60 "$@" || fail "$* failed with $?"
	took=$(($(now_ms) - begin))
	echo "$*: $took ms"
	((took <= $(limit 5000))) || fail "expected '$*' to take at most $(limit 5000) ms, it took $took ms"
}
