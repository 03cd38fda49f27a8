#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 60
#
# rdma statistic gives queue pairs counters of their own, by number and automatically by type. The values of the port
# include each message once, also when the queue pairs are gone.
# It does not look at the values beyond messages and bytes.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}
require ibv_rc_pingpong rdma
index=$(gid_index "$device") || fail "$device has no IPv4 GID"
port=18710

# value TEXT NAME: prints the number that follows the name.
value() { sed -nE "s/.*\b$2 ([0-9]+).*/\1/p" <<<"$1" | head -n 1; }

of_port() { value "$(rdma statistic show link "$device/1")" "$1"; }

# pingpong COUNT: COUNT messages in each direction. It sets $shown to the counters of queue pairs while the server waits.
pingpong() {
	port=$((port + 1))
	start_server "$port" ibv_rc_pingpong -d "$device" -g "$index" -p "$port" -n "$1" -s 512 >/dev/null
	shown=$(rdma statistic qp show link "$device/1")
	ibv_rc_pingpong -d "$device" -g "$index" -p "$port" -n "$1" -s 512 localhost >/dev/null || fail "ibv_rc_pingpong"
	wait "$server" || fail "the server of ibv_rc_pingpong"
}

# sysfs_says NAME VALUE
sysfs_says() { (($(counter "$device" "$1") == $2)); }

before=$(counter "$device" messages)
pingpong 10
wait_for sysfs_says messages $((before + 20)) || fail "sysfs counted $(counter "$device" messages) after $before"
(($(of_port messages) == before + 20)) || fail "rdma statistic counted $(of_port messages) messages after $before"
[[ ! $shown ]] || fail "counters of queue pairs: $shown"
echo "ok: without a mode"

rdma statistic qp set link "$device/1" auto type on || fail "rdma statistic qp set auto type on"
bytes=$(of_port bytes)
pingpong 30
[[ $(value "$shown" cntn) && $shown == *"qp-type RC"* ]] || fail "no counters of RC queue pairs: $shown"
wait_for sysfs_says messages $((before + 80)) || fail "sysfs counted $(counter "$device" messages) after $before"
(($(of_port messages) == before + 80)) || fail "the port has $(of_port messages) messages, $before before"
(($(of_port bytes) == bytes + 60 * 512)) || fail "the port has $(of_port bytes) bytes after $bytes"
rdma statistic qp set link "$device/1" auto off || fail "rdma statistic qp set auto off"
echo "ok: by type"

# one_pingpong COMMAND...: runs the command while the server of ibv_rc_pingpong waits, with $lqpn set to its queue pair.
one_pingpong() {
	port=$((port + 1))
	start_server "$port" ibv_rc_pingpong -d "$device" -g "$index" -p "$port" -n 5 -s 512 >/dev/null
	# A kernel service may have queue pairs, too.
	lqpn=$(value "$(rdma resource show qp link "$device/1" | grep "type RC.*comm ibv_rc_pingpong")" lqpn)
	"$@"
	ibv_rc_pingpong -d "$device" -g "$index" -p "$port" -n 5 -s 512 localhost >/dev/null || fail "ibv_rc_pingpong"
	wait "$server" || fail "the server of ibv_rc_pingpong"
}

bind() {
	rdma statistic qp bind link "$device/1" lqpn "$lqpn" || fail "rdma statistic qp bind"
	shown=$(rdma statistic qp show link "$device/1")
	number=$(value "$shown" cntn)
	[[ $shown == *"LQPN: <$lqpn>"* && $(value "$shown" messages) == 0 ]] || fail "rdma statistic qp show: $shown"
}

bind_and_unbind() {
	bind
	rdma statistic qp unbind link "$device/1" cntn "$number" lqpn "$lqpn" || fail "rdma statistic qp unbind $number"
	[[ ! $(rdma statistic qp show link "$device/1") ]] || fail "the counters stay after the last unbind"
}

one_pingpong bind
wait_for sysfs_says messages $((before + 90)) || fail "sysfs counted $(counter "$device" messages) after $before"
shown=$(rdma statistic qp show link "$device/1")
[[ ! $shown ]] || fail "the counters stay without their queue pair: $shown"
one_pingpong bind_and_unbind
wait_for sysfs_says messages $((before + 100)) || fail "sysfs counted $(counter "$device" messages) after $before"
echo "ok: by number"
