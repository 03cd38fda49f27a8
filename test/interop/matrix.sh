# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# The interoperation matrix, for i_matrix_*.sh. It runs stock programs and verify over a wire that is up. Each end is
# the client once. It prints a table with "pass" or the reason. known_reason names what the other device cannot do;
# these rows do not fail the test.

matrix_failures=0
verify=build/guest/test/interop/verify
sizes=0,1,3,33,mtu-1,mtu,mtu+1,65536,8388608

# direction CLIENT_END
direction() { echo "${wire_device[$1]%_?} asks ${wire_device[$(other_end "$1")]%_?}"; }

# Prints the programs' error messages, or how they ended.
reason() {
	local line
	line=$(grep -h -i -E 'fail|error|invalid|unable|couldn|not supported|unexpected|differ|wrong' \
		"$wire_work/client" "$wire_work/server" | head -n 1)
	[[ -n $line ]] || line="status $1, no words"
	echo "${line:0:100}"
}

# known_reason NAME CLIENT_END: prints why it cannot work between these two, and fails when there is no reason.
known_reason() {
	case "$1, $(direction "$2")" in
	verify\ nak-invalid*asks\ rxe) echo "rxe calls it a remote operation error" ;;
	verify\ rc-atomic-write,*) [[ $(uname -r) == 6.1.* ]] && echo "rxe has it since 6.2" ;;
	verify\ uc-*rxe\ asks*) echo "rxe sends from several CPUs and overtakes itself; UC loses what is overtaken" ;;
	*) return 1 ;;
	esac
}

# row NAME COMMAND...: the rest is as for wire_pair, with the family in $family.
row() {
	local name=$1 client cells=() status begin known
	shift
	for client in a b; do
		begin=${EPOCHREALTIME/./}
		status=0
		"$runner" "$(other_end "$client")" "$family" "$seconds" "$@" || status=$?
		if ((status == 0)) && ! grep -q -i 'invalid data' "$wire_work/client" "$wire_work/server"; then
			cells+=("pass ($(((${EPOCHREALTIME/./} - begin) / 100000)) ds)")
			continue
		fi
		if known=$(known_reason "$name" "$client"); then
			cells+=("no: $known")
			continue
		fi
		cells+=("FAIL: $(reason "$status")")
		matrix_failures=$((matrix_failures + 1))
		echo "--- $name, $(direction "$client"): client, then server"
		tail -n 8 "$wire_work/client" "$wire_work/server"
	done
	printf '%-28s| %-24s| %s\n' "$name" "${cells[@]}" | tee -a "$wire_work/table"
}

perftest() { row "$1" "${1%% *}" -d @DEVICE -x @GID -p @PORT -F "${@:2}"; }

perftest_rows() {
	local tool
	for tool in ib_write_bw ib_read_bw ib_send_bw; do
		perftest "$tool" -n 100
		perftest "$tool 33" -n 100 -s 33
		perftest "$tool 8 MiB" -n 5 -t 2 -s 8388608
	done
	perftest ib_write_bw\ both\ ways -n 100 -b
	for tool in ib_write_lat ib_read_lat ib_send_lat; do
		perftest "$tool" -n 100 -s 8
	done
	for tool in ib_atomic_bw ib_atomic_lat; do
		perftest "$tool add" -n 100 -A FETCH_AND_ADD
		perftest "$tool swap" -n 100 -A CMP_AND_SWAP
	done
	perftest ib_send_bw\ UC -c UC -n 100 -s 1024
	perftest ib_send_lat\ UC -c UC -n 100 -s 64
	perftest ib_write_bw\ UC -c UC -n 100 -s 1024
	perftest ib_send_bw\ UD -c UD -n 100 -s 1024
	perftest ib_send_lat\ UD -c UD -n 100 -s 64
}

pingpong() { row "$1" "${1%% *}" -d @DEVICE -g @GID -p @PORT -c "${@:2}"; }

pingpong_rows() {
	pingpong ibv_rc_pingpong -n 100
	pingpong ibv_rc_pingpong\ 1\ MB -n 10 -s 1000000
	pingpong ibv_rc_pingpong\ events -n 100 -e
	pingpong ibv_uc_pingpong -n 100
	pingpong ibv_ud_pingpong -n 100 -s 1000
	pingpong ibv_srq_pingpong -n 100 -q 4
}

verify_rows() {
	local operation
	for operation in $("$verify" --list); do
		row "verify $operation" "$verify" -d @DEVICE -g @GID -p @PORT --ops "$operation" --count 4 \
			--sizes "$sizes" --limit 60
	done
}

# Operations that take receives, from a shared receive queue at both ends.
shared_rows() {
	local operation
	for operation in $("$verify" --list | grep -E 'send|imm'); do
		row "verify $operation, SRQ" "$verify" -d @DEVICE -g @GID -p @PORT --ops "$operation" --count 4 \
			--sizes "$sizes" --limit 60 --srq
	done
}

cm() { row "$1" "${@:2}"; }

cm_rows() {
	local runner=wire_cm_pair
	cm "rping" rping -s -a @ADDRESS -p @PORT -V -C 20 -S 1000 -- rping -c -a @PEER -p @PORT -V -C 20 -S 1000
	cm "rping 65000" rping -s -a @ADDRESS -p @PORT -V -C 10 -S 65000 -- rping -c -a @PEER -p @PORT -V -C 10 -S 65000
	cm "ucmatose" ucmatose -b @ADDRESS -p @PORT -c 4 -C 10 -- ucmatose -s @PEER -b @ADDRESS -p @PORT -c 4 -C 10
}

# run_matrix: runs both families. Only IPv4 gets the long list.
run_matrix() {
	local family=4 seconds=120 runner=wire_pair
	printf '%-28s| %-24s| %s\n' "client asks server" "$(direction a)" "$(direction b)" >"$wire_work/table"
	verify_rows
	sizes=1,mtu+1,65536 shared_rows
	perftest_rows
	pingpong_rows
	cm_rows
	family=6
	sizes=1,mtu+1,65536 verify_rows
	pingpong ibv_rc_pingpong\ IPv6 -n 100
	pingpong ibv_ud_pingpong\ IPv6 -n 100 -s 1000
	echo "--- the matrix; the figures are tenths of a second"
	cat "$wire_work/table"
	((matrix_failures == 0)) || fail "$matrix_failures of the matrix"
}
