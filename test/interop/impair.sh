# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Transfers over an impaired wire, for wire/lossy_wire and i_loss.sh, which load wire.sh and make the wire. The
# functions print how long each transfer took, and count failures in impair_failures.

verify=build/guest/test/interop/verify
impair_failures=0

since() { awk -v us=$((${EPOCHREALTIME/./} - $1)) 'BEGIN { printf "%.1f s", us / 1e6 }'; }

# impair NAME NETEM...: impairs what both ends send from now on. "clean" means no impairment.
impair() {
	impairment=$1
	wire_loses=
	[[ $* != *loss* ]] || wire_loses=1
	shift
	wire_netem both "$@"
}

# attempt WHAT COMMAND...: prints how long it took. The test continues after a failure, so that one run shows all.
attempt() {
	local what=$1 begin=${EPOCHREALTIME/./} status=0
	shift
	"$@" || status=$?
	if ((status == 0)); then
		printf '%-24s %-34s %10s\n' "$impairment" "$what" "$(since "$begin")"
		return
	fi
	impair_failures=$((impair_failures + 1))
	printf '%-24s %-34s FAILED after %s\n' "$impairment" "$what" "$(since "$begin")"
	echo "    client: $(grep -h -v ^ok "$wire_work/client" | tail -n 2 | tr '\n' ' ')"
	echo "    server: $(tail -n 2 "$wire_work/server" | tr '\n' ' ')"
}

# transfer MEBIBYTES SECONDS: moves that many bytes by WRITE, READ and SEND, each within that time.
transfer() {
	local operation
	for operation in rc-write rc-read rc-send; do
		attempt "$operation $1 MiB" wire_pair b 4 "$2" "$verify" -d @DEVICE -g @GID -p @PORT --limit "$2" \
			--ops "$operation" --sizes 65536 --count $(($1 * 16))
	done
}

# ping SECONDS RPING_ARGUMENT...: rping with checked data ends in time.
ping() {
	attempt "rping ${*:2}" wire_cm_pair b 4 "$1" rping -s -a @ADDRESS -p @PORT -V "${@:2}" -- \
		rping -c -a @PEER -p @PORT -V "${@:2}"
}

# perf SECONDS PROGRAM ARGUMENT...: uses a timeout of 268 ms, which is above any round trip here.
perf() {
	attempt "${*:2}" wire_pair b 4 "$1" "$2" -d @DEVICE -x @GID -p @PORT -F -u 16 "${@:3}"
}

judge_impairments() { ((impair_failures == 0)) || fail "$impair_failures transfers"; }
