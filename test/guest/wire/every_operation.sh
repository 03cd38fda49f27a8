#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 240
# run: long
# transport: any
#
# Every operation works between two devices in two network namespaces, with checked data. The test uses IPv4, IPv6 and a
# VLAN, the smallest path MTU, the largest one with veth's default MTU, and the largest one with jumbo frames. Each end
# is the client once. Requests that must be refused are refused with the right status.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
read -r -a kinds <<<"${WIRE_KINDS:-peal peal}"
verify=build/guest/test/interop/verify
[[ -x $verify ]] || skip "verify is not built"

# check SERVER_END FAMILY ARGUMENT...
check() {
	local begin=${EPOCHREALTIME/./}
	wire_pair "$1" "$2" 100 "$verify" -d @DEVICE -g @GID -p @PORT "${@:3}" ||
		fail "IPv$2, server at $1, ${*:3}: $(grep -v ^ok "$wire_work/client") $(<"$wire_work/server")"
	echo "ok: IPv$2, server at $1, ${*:3} ($(((${EPOCHREALTIME/./} - begin) / 1000)) ms)"
}

wire_up "${kinds[@]}" 1500
check a 4
check b 4 --sizes 0,1,mtu+1,65536 --count 4
check a 6 --sizes 0,1,mtu+1,65536 --count 4
# rxe answers a message that is too long with a remote operation error.
[[ ${kinds[*]} == *rxe* ]] || check b 4 --ops nak-invalid
check b 4 --ops nak-access,nak-operation,rnr
[[ ${kinds[*]} == *rxe* ]] || check b 4 --ops rc-atomic-write --count 64
check a 4 --ops rc-send,rc-write,rc-read --sizes $((8388608 / ${PEAL_SLOWNESS:-1})) --count 2
if [[ ${kinds[*]} == "peal peal" ]]; then
	wire_vlan
	check a vlan4 --sizes 1,mtu,65536 --count 4
	check b vlan6 --sizes 1,mtu,65536 --count 4
fi

wire_up "${kinds[@]}" 4500
check a 4 --sizes "1,mtu-1,mtu,mtu+1,65536,$((1000000 / ${PEAL_SLOWNESS:-1}))" --count 4
wire_down
