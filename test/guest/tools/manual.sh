#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: any
# timeout: 180
# vm: bare
#
# Each command that the manual of the tool, the tool's help, and the README's parts "Install, add a link, run" and "On your own
# machine" show runs as it is written there, on a machine with the netdevs that they name. So do those commands of the page about
# CI services that need neither docker nor Kind. Completion in bash offers each command of the tool, and nothing that it refuses.
# Does not hold: what the commands print. The other tests of tools/ look at that.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
require_tool
require ibv_devinfo rdma nsenter
modprobe -a ib_uverbs rdma_ucm || fail "cannot load the RDMA core"
PATH=$PWD/build/user/userspace/tools:$PATH
unset -f peal
output=$(mktemp)

# The devices go with their netdevs.
clean_up() {
	rm -f "$output"
	for netdev in eth0 eth1; do
		ip link delete "$netdev"
	done
	ip netns delete peer
	ip netns delete node
} 2>/dev/null
trap clean_up EXIT
for number in 0 1; do
	ip link add "eth$number" type veth peer name "far$number" || fail "cannot make eth$number"
	ip address add "10.0.$number.1/24" dev "eth$number"
	ip link set "eth$number" up
	ip link set "far$number" up
done
# The peer of "peal doctor 10.0.0.2".
ip netns add peer
ip link set far0 netns peer
ip -n peer address add 10.0.0.2/24 dev far0
ip -n peer link set far0 up

# commands_of: the indented lines of a page of the manual, of the help or of the README that begin with one of these commands.
commands_of() { sed -nE '/^(    |  )(peal|ibv_devinfo|modprobe -a peal|nsenter) /{s/^ +//;s/ +#.*//;p}'; }

# serve_ping COMMAND...: starts this server of pings, and waits until it listens.
serve_ping() {
	"$@" </dev/null >/dev/null &
	server=$!
	wait_for cm_listens_or_died 7175 && kill -0 "$server"
}

end_ping() {
	kill "$server"
	wait "$server" 2>/dev/null
	wait_gone cm_listens 7175
}

# ping_peer COMMAND: runs "peal ping 10.0.0.2 ARGUMENT..." while the peer has a device and answers.
ping_peer() {
	local status=0 there=(ip netns exec peer peal)
	"${there[@]}" link add peer0 netdev far0 && wait_for device_ready peer0 &&
		serve_ping "${there[@]}" ping --listen --device peer0 || return 1
	eval "$1" >"$output" 2>&1 </dev/null || status=$?
	end_ping && "${there[@]}" link del peer0 && return "$status"
}

# fail_qp COMMAND: runs "peal fault now peal0 EVENT qp N" with the number of a queue pair that there is.
fail_qp() {
	local status=0
	start_server 18515 ibv_rc_pingpong -d peal0 >"$output" 2>&1 || return 1
	eval "${1% *} $(rdma resource show qp link peal0 | sed -nE 's/.* lqpn ([0-9]+) .*comm ibv_rc_pingpong.*/\1/p')" \
		>"$output" 2>&1 </dev/null || status=$?
	kill "$server"
	wait "$server" 2>/dev/null
	return "$status"
}

# dump_packets COMMAND: runs "peal dump peal0 ..." until it has begun to listen, and ends it.
dump_packets() { eval "timeout --preserve-status -s INT 3 $1" >"$output" 2>&1 </dev/null && grep -q "listening on" "$output"; }

# dump_qp COMMAND: runs "peal dump peal0 ... qp N" with the number of a queue pair that there is.
dump_qp() {
	local status=0
	start_server 18515 ibv_rc_pingpong -d peal0 >"$output" 2>&1 || return 1
	dump_packets "${1% *} $(rdma resource show qp link peal0 | sed -nE 's/.* lqpn ([0-9]+) .*comm ibv_rc_pingpong.*/\1/p')" ||
		status=$?
	kill "$server"
	wait "$server" 2>/dev/null
	return "$status"
}

# del_fault COMMAND: runs "peal fault del peal0 N" when the device has just got its first two rules.
del_fault() {
	peal link del peal0 && peal link add peal0 netdev eth0 faults on &&
		peal fault add peal0 rnr && peal fault add peal0 rnr && eval "$1"
} >"$output" 2>&1 </dev/null

# add_link_in_node COMMAND: runs "nsenter --net --target "$node" peal link add ..." for a process in a network namespace that has
# a netdev eth0, as a node of Kind has.
add_link_in_node() {
	local node status=0
	ip netns add node && ip link add name near0 type veth peer name eth0 netns node && ip -n node link set eth0 up &&
		ip link set near0 up || return 1
	ip netns exec node tail -f /dev/null &
	node=$!
	peal link del peal0
	in_node() { [[ $(readlink "/proc/$node/ns/net") != $(readlink /proc/self/ns/net) ]]; }
	wait_for in_node && eval "$1" && nsenter --net --target "$node" peal link del peal0 || status=1
	kill "$node"
	wait "$node" 2>/dev/null
	ip netns delete node
	return "$status"
} >"$output" 2>&1 </dev/null

# run_all NAME: runs the commands on its input. A device that an earlier page made goes before a command makes it again.
run_all() {
	local line name count=0
	while read -r line; do
		# The pages other than that of links take a device for granted.
		[[ $line == "peal link add "* ]] || device_exists peal0 || peal link add peal0 netdev eth0
		read -r _ _ _ name _ <<<"$line"
		[[ $line != "peal link add "* ]] || ! device_exists "$name" || peal link del "$name"
		! device_exists peal0 || wait_for port_active peal0
		# What would go on until it is interrupted ends after one interval.
		[[ $line != *--watch* || $line == *--count* ]] || line+=" --count 1"
		[[ $line != "peal ping 10.0.0.2"* || $line == *--count* ]] || line+=" --count 1"
		case $line in
		"peal ping --listen"*) eval "serve_ping $line" && end_ping ;;
		"peal ping 10.0.0.2"*) ping_peer "$line" ;;
		"peal dump"*" qp "*) dump_qp "$line" ;;
		"peal dump"*) dump_packets "$line" ;;
		"peal fault now"*" qp "*) fail_qp "$line" ;;
		"peal fault del peal0 "*) del_fault "$line" ;;
		nsenter*) add_link_in_node "$line" ;;
		*) eval "$line" >"$output" 2>&1 </dev/null ;;
		esac || fail "$1: $line: $(<"$output")"
		count=$((count + 1))
	done
	((count)) || fail "$1 has no command"
	echo "ok: $count commands of $1"
}

run_all Documentation/ci.rst < <(commands_of <Documentation/ci.rst)
for page in Documentation/manual/*.[78].rst; do
	run_all "$page" < <(commands_of <"$page")
done
run_all README.md < <(sed -n '/^## Install/,/^## Two/p; /^## On your own machine/,/^## Why/p' README.md | commands_of)

# leaves [COMMAND...]: prints the commands below this one that have no commands of their own.
leaves() {
	local name names
	names=$(peal "$@" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\)[ ,].*/\1/p')
	[[ $names ]] || { echo "$*" && return; }
	for name in $names; do
		leaves "$@" "$name"
	done
}

mapfile -t commands < <(leaves)
((${#commands[@]} >= 13)) || fail "the help shows ${#commands[@]} commands: ${commands[*]}"
mapfile -t all < <(printf '%s\n' "" "${commands[@]%% *}" "${commands[@]}" | sort -u)
for command in "${all[@]}"; do
	# shellcheck disable=SC2086 # the words of the command
	peal $command --help >"$output" || fail "peal $command --help"
	! commands_of <"$output" | grep -q . || run_all "peal $command --help" < <(commands_of <"$output")
done

# shellcheck source=userspace/tools/peal.bash
source userspace/tools/peal.bash

# completed WORD...: prints what completion offers for the last word.
completed() {
	COMP_WORDS=(peal "$@")
	COMP_CWORD=$#
	COMPREPLY=()
	_peal
	echo "${COMPREPLY[*]}"
}

[[ $(complete -p peal) == "complete -F _peal peal" ]] || fail "bash completes peal by $(complete -p peal)"
for command in "${commands[@]}"; do
	read -r first second <<<"$command"
	[[ " $(completed "") " == *" $first "* ]] || fail "completion does not offer $first: $(completed "")"
	[[ ! $second || " $(completed "$first" "") " == *" $second "* ]] || fail "completion does not offer $command"
done
for word in $(completed "") $(completed link "") $(completed host "") $(completed show ""); do
	[[ $word == --* || " ${commands[*]} " == *" $word "* ]] || fail "completion offers $word, which is no command"
done
! device_exists peal1 || peal link del peal1
peal link add peal7 netdev eth1 || fail "peal7 cannot be made"
[[ $(completed link del peal7) == peal7 && $(completed show qp peal7) == peal7 ]] || fail "completion does not offer peal7"
[[ $(completed link add peal8 n) == netdev && $(completed link add peal8 netdev eth) == "eth0 eth1" ]] ||
	fail "completion offers netdevs: $(completed link add peal8 netdev eth)"
for option in $(completed link set peal7 ""); do
	for value in $(completed link set peal7 "$option" ""); do
		peal link set peal7 "$option" "$value" || fail "completion offers $option $value, which is refused"
	done
done
for value in $(completed host set direct ""); do
	peal host set direct "$value" || fail "completion offers direct $value, which is refused"
done
[[ $(completed link add peal8 netdev eth1 ecn "") == "off asked on" ]] || fail "completion of options of a new device"
ping_options=$(completed ping "" | tr ' ' '\n' | grep ^--)
for option in $ping_options; do
	peal ping --help | grep -q -e "^  $option " || fail "completion offers $option"
done
for option in $(completed dump peal7 "" | tr ' ' '\n' | grep ^--); do
	peal dump --help | grep -q -e "[ ,]$option " || fail "completion offers $option"
done
for name in $(completed ping --operation ""); do
	status=0
	peal ping nowhere.invalid --operation "$name" 2>"$output" || status=$?
	((status == 1)) || fail "completion offers the operation $name: $(<"$output")"
done
[[ $(completed ping --device peal7) == peal7 ]] || fail "completion of ping --device: $(completed ping --device "")"
for option in $(completed stat "" | tr ' ' '\n' | grep ^--) $(completed show qp "" | tr ' ' '\n' | grep ^--); do
	{ peal stat --help && peal show qp --help; } | grep -q -e "$option" || fail "completion offers $option"
done
echo "ok: completion"
