# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Two RDMA devices at the ends of a wire, for shell tests: source "$(dirname "$0")/../helpers/wire.sh". The ends are
# called a and b, and their devices peal_a, rxe_b and so on.
#
#   wire_up peal rxe 1500        both ends in this machine, a veth pair between them
#   wire_up_two peal rxe 1500    end b in the second machine of scripts/vm --peers 2
#
# In one machine a peal end has its own network namespace. rxe 6.1 sends and receives only in the initial namespace, so an
# rxe end stays there. Two rxe ends reach each other through routing rules that bypass the local table. Impairments apply
# to the veth pair. The programs use TCP on a second pair, which has no impairments. The helpers wait for conditions, never
# for a fixed time.

# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

wire_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
wire_work=$(mktemp -d)
wire_port=19000
wire_agent_port=7100
declare -A wire_kind=() wire_device=() wire_namespace=() wire_netdev=() wire_tcp=() wire_remote=()
declare -A wire_v4=([a]=10.78.0.1 [b]=10.78.0.2) wire_v6=([a]=fd78::1 [b]=fd78::2)
declare -A wire_vlan_v4=([a]=10.78.7.1 [b]=10.78.7.2) wire_vlan_v6=([a]=fd78:7::1 [b]=fd78:7::2)

other_end() { if [[ $1 == a ]]; then echo b; else echo a; fi; }

# wire_on END COMMAND...: runs the command in the machine and the namespace of that end. With wire_exec=exec the command
# replaces this shell, so that a background job is the command itself.
wire_on() {
	local end=$1
	shift
	if [[ -n ${wire_remote[$end]:-} ]]; then
		${wire_exec:-} "$wire_folder/../../interop/agent.py" run "${wire_tcp[$end]}" "$wire_agent_port" "$@"
	elif [[ -n ${wire_namespace[$end]:-} ]]; then
		${wire_exec:-} ip netns exec "${wire_namespace[$end]}" "$@"
	else
		${wire_exec:-} "$@"
	fi
}

# wire_ask END FUNCTION ARGUMENT...: runs a function of lib.sh or of this file in that end's machine, but not in its
# namespace.
wire_ask() {
	local end=$1
	shift
	if [[ -n ${wire_remote[$end]:-} ]]; then
		# shellcheck disable=SC2016 # the new shell expands it
		wire_on "$end" bash -c 'source "$0"; "$@"' "$wire_folder/wire.sh" "$@"
	else
		"$@"
	fi
}

# ------------------------------------------------------------------ making the wire

wire_load() {
	case $1 in
	rxe) modprobe rdma_rxe ;;
	*) modprobe "$1" ;;
	esac
}

# wire_up KIND_A KIND_B [MTU]
wire_up() {
	local end mtu=${3:-1500}
	wire_down
	wire_kind=([a]=$1 [b]=$2)
	modprobe -a veth ib_uverbs rdma_ucm
	ip link add wire_a mtu "$mtu" type veth peer name wire_b mtu "$mtu" || fail "cannot make the veth pair"
	ip link add calm_a type veth peer name calm_b || fail "cannot make the second veth pair"
	wire_netdev=([a]=wire_a [b]=wire_b)
	wire_tcp=([a]=10.79.0.1 [b]=10.79.0.2)
	for end in a b; do
		[[ ${wire_kind[$end]} == rxe ]] || wire_make_namespace "$end"
		wire_addresses "$end" "address add ${wire_tcp[$end]}/24 dev calm_$end" "link set calm_$end up"
	done
	[[ $1$2 != rxerxe ]] || wire_past_local
	for end in a b; do
		wire_device_up "$end"
	done
}

# wire_up_two KIND_A KIND_B [MTU]
wire_up_two() {
	local end
	[[ ${PEAL_VM_PEERS:-1} == 2 ]] || skip "this needs two machines: scripts/vm --peers 2"
	wire_tcp=([a]=10.80.0.1 [b]=10.80.0.2)
	wire_remote=([b]=1)
	WAIT_LIMIT=120 wait_for wire_on b true || fail "the other machine does not answer"
	wire_down
	wire_kind=([a]=$1 [b]=$2)
	wire_netdev=([a]=eth0 [b]=eth0)
	for end in a b; do
		wire_on "$end" modprobe -a ib_uverbs rdma_ucm
		wire_on "$end" ip link set eth0 mtu "${3:-1500}" || fail "cannot set eth0's MTU"
		wire_addresses "$end"
	done
	for end in a b; do
		wire_device_up "$end"
	done
}

wire_make_namespace() {
	wire_namespace[$1]=wire_$1
	ip netns add "wire_$1" || fail "cannot make a network namespace"
	ip link set "wire_$1" netns "wire_$1"
	ip link set "calm_$1" netns "wire_$1"
	ip -n "wire_$1" link set lo up
}

# wire_ip END COMMAND...: runs commands of ip at that end. Each COMMAND is one argument. It stops at the first failure.
wire_ip() {
	local command
	if [[ -n ${wire_remote[$1]:-} ]]; then
		for command in "${@:2}"; do
			# shellcheck disable=SC2086 # its words
			wire_on "$1" ip $command || return
		done
	else
		printf '%s\n' "${@:2}" | ip ${wire_namespace[$1]:+-n "${wire_namespace[$1]}"} -batch -
	fi
}

# wire_addresses END [COMMAND...]: runs the commands of ip, sets that end's addresses and takes its netdev up. Duplicates of the
# link-local address are not looked for. That takes up to two seconds, in which the kernel cannot ask for a neighbour without a
# packet at hand. So the connection manager drops an IPv6 peer's first request, and the next one comes four seconds later.
wire_addresses() {
	wire_ip "$1" "${@:2}" "address add ${wire_v4[$1]}/24 dev ${wire_netdev[$1]}" \
		"address add ${wire_v6[$1]}/64 dev ${wire_netdev[$1]} nodad" || return
	wire_on "$1" sysctl -qw "net/ipv6/conf/${wire_netdev[$1]}/accept_dad=0" || return
	wire_ip "$1" "link set ${wire_netdev[$1]} up"
}

# Both ends are in one namespace. Only packets that arrive may use the local table, because otherwise packets that leave
# would not pass the wire.
wire_past_local() {
	local end other family
	for end in a b; do
		sysctl -qw "net.ipv4.conf.wire_$end.accept_local=1" "net.ipv4.conf.wire_$end.rp_filter=0"
	done
	sysctl -qw net.ipv4.conf.all.rp_filter=0
	for family in -4 -6; do
		ip "$family" rule add pref 100 lookup local
		ip "$family" rule del pref 0
		for end in a b; do
			ip "$family" rule add pref 1 iif "wire_$end" lookup local
		done
	done
	for end in a b; do
		other=$(other_end "$end")
		ip -4 rule add pref 10 to "${wire_v4[$end]}/32" lookup 78
		ip -4 route add "${wire_v4[$end]}/32" dev "wire_$other" src "${wire_v4[$other]}" table 78
		ip -6 rule add pref 10 to "${wire_v6[$end]}/128" lookup 78
		ip -6 route add "${wire_v6[$end]}/128" dev "wire_$other" src "${wire_v6[$other]}" table 78
	done
	wire_tcp=([a]=127.0.0.1 [b]=127.0.0.1)
}

wire_device_up() {
	local end=$1 kind=${wire_kind[$1]} device
	device=${kind}_$end
	wire_device[$end]=$device
	wire_ask "$end" wire_load "$kind" || fail "cannot load the module of $device"
	wire_on "$end" rdma link add "$device" type "$kind" netdev "${wire_netdev[$end]}" || fail "cannot make $device"
	# In exclusive mode the device may be seen only in the end's namespace. Then the caller does the rest there.
	wire_ask "$end" device_exists "$device" || return 0
	[[ $kind != peal ]] || wire_ask "$end" direct_off "$device" || fail "$device cannot be told to use the wire"
	wait_for wire_ask "$end" wire_ready "$device" "${wire_v4[$end]}" "${wire_v6[$end]}" ||
		fail "$device is not ready: $(wire_ask "$end" device_state "$device")"
}

wire_ready() { port_active "$1" && verbs_node "$1" && gid_of "$1" "$2" && gid_of "$1" "$3"; }

# wire_vlan: adds VLAN 7 with its own addresses on both ends, and looks for no duplicates (see wire_addresses).
wire_vlan() {
	local end netdev
	for end in a b; do
		netdev=${wire_netdev[$end]}
		wire_on "$end" modprobe 8021q
		wire_ip "$end" "link add link $netdev name $netdev.7 type vlan id 7" \
			"address add ${wire_vlan_v4[$end]}/24 dev $netdev.7" \
			"address add ${wire_vlan_v6[$end]}/64 dev $netdev.7 nodad" &&
			wire_on "$end" sysctl -qw "net/ipv6/conf/$netdev.7/accept_dad=0" &&
			wire_ip "$end" "link set $netdev.7 up" || fail "cannot make the VLAN"
	done
	for end in a b; do
		wait_for wire_gid "$end" vlan4 || fail "no GID for the VLAN's IPv4 address"
		wait_for wire_gid "$end" vlan6 || fail "no GID for the VLAN's IPv6 address"
	done
}

# wire_down: removes the wire, also one that a failed test has left.
wire_down() {
	local end
	for end in a b; do
		wire_ask "$end" wire_remove_devices "$end" || exit 1
	done
	for end in a b; do
		[[ ! -e /run/netns/wire_$end ]] || ip netns delete "wire_$end"
		[[ ${wire_netdev[$end]:-} != eth0 ]] || wire_on "$end" ip address flush dev eth0 to 10.78.0.0/16
		[[ ${wire_netdev[$end]:-} != eth0 ]] || wire_on "$end" ip -6 address flush dev eth0 to fd78::/16
	done
	for end in wire_a calm_a; do
		ip link delete "$end" 2>/dev/null
	done
	# The kernel removes a namespace some time after its name is gone.
	wait_gone wire_remains || fail "the wire's netdevs are still there"
	wire_local_again
	wire_namespace=()
}

wire_remove_devices() {
	local kind
	for kind in peal rxe; do
		peal_down "${kind}_$1"
	done
}

wire_remains() { ip link show wire_a || ip link show wire_b || ip link show calm_a; }

wire_local_again() {
	local family
	ip -4 rule show pref 100 | grep -q local || return 0
	for family in -4 -6; do
		ip "$family" rule add pref 0 lookup local
		ip "$family" rule del pref 100
		while ip "$family" rule del pref 1 2>/dev/null; do :; done
		while ip "$family" rule del pref 10 2>/dev/null; do :; done
		ip "$family" route flush table 78
	done
}

# ------------------------------------------------------------------ impairments

# wire_netem END|both [ARGUMENT...]: applies netem to the packets that this end sends. Without an argument it removes netem.
wire_netem() {
	local end ends=$1
	shift
	modprobe sch_netem
	[[ $ends != both ]] || ends="a b"
	for end in $ends; do
		wire_on "$end" tc qdisc delete dev "${wire_netdev[$end]}" root 2>/dev/null
		(($# == 0)) ||
			wire_on "$end" tc qdisc add dev "${wire_netdev[$end]}" root netem limit 100000 "$@" ||
			fail "cannot set netem $*"
	done
}

# wire_neighbours: sets permanent neighbour entries at both ends, so that a lost ARP packet cannot fail a test.
wire_neighbours() {
	local end other mac address
	for end in a b; do
		other=$(other_end "$end")
		mac=$(wire_on "$other" cat "/sys/class/net/${wire_netdev[$other]}/address")
		address="lladdr $mac nud permanent dev ${wire_netdev[$end]}"
		wire_ip "$end" "neighbour replace ${wire_v4[$other]} $address" "neighbour replace ${wire_v6[$other]} $address"
	done
}

# ------------------------------------------------------------------ captures

wire_capturing() { grep -q "listening on" "$wire_work/tcpdump"; }

# wire_capture END FILE: captures what passes that end's netdev until wire_end_capture. Both netdevs take no trains from
# now on. So the kernel divides them before the capture, which then shows every packet.
wire_capture() {
	local end
	for end in a b; do
		wire_on "$end" ethtool -K "${wire_netdev[$end]}" tx-udp-segmentation off || fail "cannot divide trains"
	done
	wire_exec="exec" wire_on "$1" tcpdump -i "${wire_netdev[$1]}" -U -n -s 0 -B 16384 -w "$2" 2>"$wire_work/tcpdump" &
	wire_tcpdump=$!
	wait_for wire_capturing || fail "tcpdump does not start: $(<"$wire_work/tcpdump")"
}

wire_end_capture() {
	kill -INT "$wire_tcpdump"
	wait "$wire_tcpdump"
	grep -q "^0 packets dropped by kernel" "$wire_work/tcpdump" || fail "tcpdump lost packets: $(<"$wire_work/tcpdump")"
}

# ------------------------------------------------------------------ running programs

# wire_address END FAMILY: FAMILY is 4, 6, vlan4 or vlan6.
wire_address() {
	case $2 in
	4) echo "${wire_v4[$1]}" ;;
	6) echo "${wire_v6[$1]}" ;;
	vlan4) echo "${wire_vlan_v4[$1]}" ;;
	vlan6) echo "${wire_vlan_v6[$1]}" ;;
	esac
}

# wire_gid END FAMILY: prints the index of that end's GID for its address of that family.
wire_gid() { wire_ask "$1" gid_of "${wire_device[$1]}" "$(wire_address "$1" "$2")"; }

# wire_listens END PORT: succeeds if the server at that end listens. In this machine it reads the ports of the server's
# network namespace through the server's process.
wire_listens() {
	if [[ -n ${wire_remote[$1]:-} ]]; then
		[[ -n $(wire_on "$1" ss -Hltn "sport = :$2") ]]
	else
		port_listens "$2" "$server"
	fi
}

wire_cm_listens() { wire_ask "$1" cm_listens "$2"; }

# happens_or_died CONDITION...: succeeds if the condition holds or the server has ended.
happens_or_died() { "$@" || ! kill -0 "$server"; }

# wire_serve CONDITION END PORT COMMAND...: starts the command at that end, and waits until "CONDITION END PORT" holds. It
# fails if the command ends earlier. It sets $server. CONDITION is wire_listens or wire_cm_listens.
wire_serve() {
	local condition=$1 end=$2 port=$3
	shift 3
	wire_exec="exec" wire_on "$end" "$@" &
	server=$!
	wait_for happens_or_died "$condition" "$end" "$port" || return 1
	kill -0 "$server" 2>/dev/null
}

# wire_arguments END FAMILY COMMAND...: replaces @DEVICE, @GID, @PORT and @ADDRESS with the values of this end. It prints
# one argument on each line.
wire_arguments() {
	local end=$1 argument address gid
	address=$(wire_address "$end" "$2")
	gid=$(wire_gid "$end" "$2")
	for argument in "${@:3}"; do
		argument=${argument//@DEVICE/${wire_device[$end]}}
		argument=${argument//@GID/$gid}
		argument=${argument//@ADDRESS/$address}
		printf '%s\n' "${argument//@PORT/$wire_port}"
	done
}

# wire_pair SERVER_END FAMILY SECONDS COMMAND...: runs the same program at both ends. The client gets the server's TCP
# address as its last argument. The output is in $wire_work/{server,client}.
wire_pair() {
	local there=() here=()
	wire_port=$((wire_port + 1))
	mapfile -t there < <(wire_arguments "$1" "$2" timeout "$(limit "$3")" "${@:4}")
	mapfile -t here < <(wire_arguments "$(other_end "$1")" "$2" timeout "$(limit "$3")" "${@:4}" "${wire_tcp[$1]}")
	wire_both wire_listens "$1" "$wire_port"
}

# wire_cm_pair SERVER_END FAMILY SECONDS SERVER_COMMAND -- CLIENT_COMMAND: runs two programs that use the connection
# manager. @PEER in the client's command is the server's address. A program without @PORT uses 7174.
wire_cm_pair() {
	local there=() here=() words=() word port=7174
	wire_port=$((wire_port + 1))
	[[ $* != *@PORT* ]] || port=$wire_port
	for word in "${@:4}"; do
		[[ $word == -- ]] && words=("${here[@]}") && here=() && continue
		here+=("${word//@PEER/$(wire_address "$1" "$2")}")
	done
	mapfile -t there < <(wire_arguments "$1" "$2" timeout "$(limit "$3")" "${words[@]}")
	mapfile -t here < <(wire_arguments "$(other_end "$1")" "$2" timeout "$(limit "$3")" "${here[@]}")
	wire_both wire_cm_listens "$1" "$port"
}

# wire_both CONDITION SERVER_END PORT: runs the command "there" as the server, and "here" as the client at the other end.
wire_both() {
	local status=0
	: >"$wire_work/client"
	if wire_serve "$1" "$2" "$3" "${there[@]}" >"$wire_work/server" 2>&1 </dev/null; then
		wire_on "$(other_end "$2")" "${here[@]}" >"$wire_work/client" 2>&1 </dev/null || status=$?
	else
		status=1
	fi
	wire_end_server "$status"
}

# A server keeps waiting if the client has failed. It also keeps waiting if the client's only DREQ was lost, because the CM
# does not repeat a DREQ for an id that the program has destroyed. If wire_loses is set, a server that waits for a lost
# DREQ is not a failure.
wire_end_server() {
	local status=$1 ended=
	if ((status)) || { [[ -n ${wire_loses:-} ]] && ! wait_gone kill -0 "$server"; }; then
		kill "$server" 2>/dev/null
		ended=1
	fi
	wait "$server" || [[ -n $ended ]] || status=1
	return "$status"
}
