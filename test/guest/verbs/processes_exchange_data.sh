#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 60
#
# Two processes on one device exchange data with every operation of RC, UC and UD. Each byte, and the bytes around it, are
# compared at both ends. Messages take the path that they should.
# It does not show XRC (verbs/xrc), and FLUSH, which libibverbs of Debian 12 does not have (verbs/memory_placement).
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}
index=$(gid_index "$device") || fail "$device has no IPv4 GID"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
verify=build/guest/test/interop/verify
[[ -x $verify ]] || skip "verify is not built"
port=18800

# exchange ARGUMENT...: verify with these arguments at both ends
exchange() {
	port=$((port + 1))
	start_server "$port" "$verify" -d "$device" -g "$index" -p "$port" "$@" >"$work/server" 2>&1
	"$verify" -d "$device" -g "$index" -p "$port" "$@" localhost >"$work/client" 2>&1 && wait "$server" ||
		fail "$*: $(grep -v ^ok "$work/client") $(grep -v ^ok "$work/server")"
	echo "ok: $* ($(grep -c ^ok "$work/client") operations and sizes)"
}

note_messages "$device"
exchange --sizes 0,1,33,mtu,mtu+1,65536 --count 4
exchange --ops rc-atomic-write --count 32
exchange --sizes 1,mtu+1 --count 4 --srq
exchange --ops nak-access,nak-invalid,nak-operation,rnr
expect_path 300
