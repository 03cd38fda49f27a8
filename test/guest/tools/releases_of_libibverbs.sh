#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: direct, thorough wire
# timeout: 180
#
# Holds: One file of the provider serves the libibverbs of Debian 12, 13 and sid, which have three different private ABIs and
# op tables, and programs of two of them exchange data. If it cannot serve a libibverbs, a program sees no device, and one line
# on stderr says why. The test runs on the guest's kernel, in the Debian roots that scripts/test makes.
# Does not hold: other releases. test/unit/provider_library.cpp has the tables of all of them.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
# shellcheck source=test/guest/helpers/debian.sh
source "$(dirname "$0")/../helpers/debian.sh"
require cc
device=${PEAL_DEV:-peal0}
gid=$(gid_index "$device")
provider=$checkout/build/user/userspace/provider/libpeal
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The suite of the server's programs, and that of the client's. Those of the guest itself are of Debian 12.
in_suite() {
	if [[ $1 == bookworm ]]; then
		"${@:2}"
	else
		in_debian "$@"
	fi
}

# expect_data SERVER CLIENT: only the server compares the data, and it exits with 0 if they are wrong.
expect_data() {
	local options
	for options in "" "-e" "-N"; do
		# shellcheck disable=SC2086 # an empty $options must not become a word
		start_server 18515 in_suite "$1" ibv_rc_pingpong -d "$device" -g "$gid" -c -n 200 $options >"$work/server" 2>&1 ||
			fail "ibv_rc_pingpong $options of $1 does not listen"
		# shellcheck disable=SC2086
		in_suite "$2" ibv_rc_pingpong -d "$device" -g "$gid" -c -n 200 $options 127.0.0.1 >"$work/client" 2>&1 ||
			fail "ibv_rc_pingpong $options of $2 failed: $(<"$work/client")"
		wait "$server" || fail "the server of ibv_rc_pingpong $options of $1 failed: $(<"$work/server")"
		! grep -qi "invalid data" "$work/client" "$work/server" || fail "ibv_rc_pingpong $options: $(<"$work/server")"
	done
	echo "ok: a server of $1 and a client of $2"
}

# expect_reason TEXT COMMAND...: the program must see no device, and say why in one line.
expect_reason() {
	local text=$1
	shift
	"$@" >"$work/output" 2>"$work/errors"
	! grep -q "$device" "$work/output" || fail "the provider served a libibverbs that it does not know: $*"
	[[ $(grep -c "$text" "$work/errors") == 1 ]] || fail "expected one line with '$text', got: $(<"$work/errors")"
	echo "ok: $(<"$work/errors")"
}

use_debian trixie sid
for suite in trixie sid; do
	in_debian "$suite" ibv_devinfo -d "$device" | grep -q PORT_ACTIVE || fail "expected an active port from ibv_devinfo of $suite"
	expect_data "$suite" "$suite"
	start_server 18600 in_debian "$suite" ib_write_bw -d "$device" -x "$gid" -F -n 500 -p 18600 >/dev/null ||
		fail "ib_write_bw of $suite does not listen"
	in_debian "$suite" ib_write_bw -d "$device" -x "$gid" -F -n 500 -p 18600 127.0.0.1 || fail "ib_write_bw of $suite failed"
	wait "$server" || fail "the server of ib_write_bw of $suite failed"
done
expect_data bookworm sid

# A library that has a function of release 65, but no private ABI of it.
mkdir "$work/config"
echo 'void ibv_create_comp_cntr(void) {}' | cc -shared -x c -o "$work/odd.so" - || fail "cannot compile"
expect_reason "libpeal: .*newer than release 65" env LD_PRELOAD="$work/odd.so" ibv_devices
# A later release looks for a name that the provider does not have.
cp "$provider.so" "$work/libpeal.so"
echo "driver $work/libpeal" >"$work/config/peal.driver"
mount --bind "$work/config" /etc/libibverbs.d || fail "cannot replace the list of providers"
expect_reason "couldn't load driver '$work/libpeal-rdmav34.so'" ibv_devices
umount /etc/libibverbs.d
