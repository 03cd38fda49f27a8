#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: direct, thorough wire
# timeout: 60
#
# The standard tools describe the device correctly: ibv_devinfo, and rdma link, resource and statistic. Unlike in other tests,
# libibverbs chooses among all providers that are installed.
# It does not compare every limit (verbs/states_and_limits).
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}
require ibv_devinfo rdma

# expect TEXT PATTERN...: each pattern is found in the text.
expect() {
	local text=$1 pattern
	shift
	for pattern in "$@"; do
		grep -qE "$pattern" <<<"$text" || fail "expected /$pattern/, got: $text"
	done
}

# among_all COMMAND...: without the shorter list of providers that scripts/lib/guest-tests puts in place.
among_all() { unshare --mount sh -c 'umount /etc/libibverbs.d 2>/dev/null; exec "$@"' sh "$@"; }

info=$(among_all ibv_devinfo -v -d "$device") || fail "ibv_devinfo: $info"
expect "$info" "hca_id:\s+$device" "state:\s+PORT_ACTIVE" "link_layer:\s+Ethernet" \
	"active_mtu:\s+1024" "GID\[.*RoCE v2" "GID\[.*::ffff:10\.77\.0\.1" "phys_port_cnt:\s+1" \
	"max_qp:\s+[1-9]" "node_guid:\s+[0-9a-f:]+[1-9a-f]" "max_msg_sz:\s+0x80000000"
expect "$info" "atomic_cap:\s+ATOMIC_GLOB"

list=$(among_all ibv_devices)
expect "$list" "$device\s+[0-9a-f]{16}"

link=$(rdma link show "$device/1") || fail "rdma link show"
expect "$link" "link $device/1 state ACTIVE physical_state LINK_UP netdev "
expect "$(rdma dev show "$device")" "$device: node_type ca"

resources=$(rdma resource show "$device") || fail "rdma resource show"
expect "$resources" "pd [0-9]+" "cq [0-9]+" "qp [0-9]+" "cm_id [0-9]+" "mr [0-9]+" "ctx 0"

details=$(rdma resource show qp link "$device/1" -dd) || fail "rdma resource show qp -dd"
expect "$details" "type GSI" "drv_transport packets" "drv_sq-entries [1-9]" "drv_rq-posted [1-9]"
expect "$(rdma resource show cq dev "$device" -dd)" "drv_written [0-9]+" "drv_overflowed 0"
start_server 18690 ibv_rc_pingpong -d "$device" -g "$(gid_index "$device")" -p 18690 >/dev/null
owner="ctxn [1-9][0-9]* pid $server comm ibv_rc_pingpong"
expect "$(rdma resource show ctx dev "$device" -dd)" "ctxn [1-9][0-9]* pid $server comm ibv_rc_pingpong"
# A region and a queue pair use the domain.
expect "$(rdma resource show pd dev "$device" -dd)" "pdn [0-9]+ local_dma_lkey 0x0 users 2 $owner"
# The program asks for local writes.
expect "$(rdma resource show mr dev "$device" -dd)" \
	"mrlen 4096 pdn [1-9][0-9]* pid $server comm ibv_rc_pingpong drv_access 0x1 drv_windows 0"
expect "$(rdma resource show cq dev "$device" -dd)" "cqe [0-9]+ users 2 .*$owner"
expect "$(rdma resource show qp link "$device/1" -dd)" "type RC .* pid $server .* drv_rq-posted 500"
kill "$server"

# A shared receive queue names the queue pairs that use it.
start_server 18691 ibv_srq_pingpong -d "$device" -g "$(gid_index "$device")" -p 18691 -q 2 >/dev/null
numbers=$(rdma resource show qp link "$device/1" pid "$server" | sed -E 's/.* lqpn ([0-9]+) .*/\1/' | sort -n)
[[ $(wc -l <<<"$numbers") == 2 ]] || fail "expected two queue pairs, got: $numbers"
expect "$(rdma resource show srq dev "$device" -dd)" \
	"srqn [0-9]+ type BASIC lqpn ${numbers//$'\n'/,} pdn [1-9][0-9]* pid $server comm ibv_srq_pingpon"
expect "$(rdma resource show pd dev "$device" -dd)" "users 4 ctxn [1-9][0-9]* pid $server comm ibv_srq_pingpon"
kill "$server"

counters=$(rdma statistic show link "$device/1") || fail "rdma statistic show"
expect "$counters" "posts [0-9]+" "kicks [0-9]+" "errors [0-9]+"

for file in "/sys/class/infiniband/$device/ports/1/hw_counters/"{posts,kicks}; do
	[[ $(<"$file") =~ ^[0-9]+$ ]] || fail "expected a number in $file"
done
