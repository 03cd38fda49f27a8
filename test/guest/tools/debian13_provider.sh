#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: direct, thorough wire
# timeout: 120
#
# The libibverbs of Debian 13 loads the provider that was built against it, and passes data. The test runs on the
# guest's kernel, in the Debian root that scripts/test makes.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
# shellcheck source=test/guest/helpers/debian13.sh
source "$(dirname "$0")/../helpers/debian13.sh"
device=${PEAL_DEV:-peal0}
gid=$(gid_index "$device")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

in_debian13 ibv_devinfo -d "$device" | grep -q PORT_ACTIVE || fail "expected an active port from Debian 13's ibv_devinfo"
for options in "" "-e" "-N"; do
	# shellcheck disable=SC2086 # an empty $options must not become a word
	start_server 18515 in_debian13 ibv_rc_pingpong -d "$device" -g "$gid" -c -n 200 $options >"$work/server" 2>&1 ||
		fail "ibv_rc_pingpong $options does not listen"
	# shellcheck disable=SC2086
	in_debian13 ibv_rc_pingpong -d "$device" -g "$gid" -c -n 200 $options 127.0.0.1 >"$work/client" 2>&1 ||
		fail "ibv_rc_pingpong $options failed: $(<"$work/client")"
	wait "$server" || fail "the server of ibv_rc_pingpong $options failed: $(<"$work/server")"
	# Only the server compares the data, and it exits with 0 if they are wrong.
	! grep -qi "invalid data" "$work/client" "$work/server" || fail "ibv_rc_pingpong $options: $(<"$work/server")"
done
start_server 18600 in_debian13 ib_write_bw -d "$device" -x "$gid" -F -n 500 -p 18600 >/dev/null ||
	fail "ib_write_bw does not listen"
in_debian13 ib_write_bw -d "$device" -x "$gid" -F -n 500 -p 18600 127.0.0.1 || fail "ib_write_bw failed"
wait "$server" || fail "the server of ib_write_bw failed"
