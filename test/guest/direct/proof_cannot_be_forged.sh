#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 400
# run: long
# transport: any
#
# Programs cannot forge the proof that two devices are in one kernel. Messages go direct only while packets pass in both
# directions. The test closes the network while messages go direct. Programs with CAP_NET_RAW in one or both namespaces
# then forge responses or relay the packets around the network, but the messages must end. A response that arrives too
# late must not count either. The test needs ib_write_bw, nft, setpriv, the interop program "verify" and the tool peal.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
require ib_write_bw nft setpriv
verify=build/guest/test/interop/verify
peal=build/user/userspace/tools/peal
forge=$(dirname "$0")/../helpers/locality_forge.py
[[ -x $verify && -x $peal ]] || skip "verify or the tool peal is not built"

of_both() { echo $(($(counter peal_a "$1") + $(counter peal_b "$1"))); }

forgers=()
declare -A dropped=()
finish() {
	((${#forgers[@]} == 0)) || kill "${forgers[@]}" 2>/dev/null
	"$peal" host set direct netns
}
trap finish EXIT

# ------------------------------------------------------------------ closing the network

# close END...: drops every RoCE packet that the network carries to these ends. It does not drop broadcasts, because the
# stack gives a copy of a broadcast back to its sender, and this copy was never in the network.
close() {
	local end
	for end in "$@"; do
		wire_on "$end" nft -f - <<-RULES || fail "cannot set the firewall"
			table netdev wall {
				chain in {
					type filter hook ingress device wire_$end priority 0; policy accept;
					meta pkttype unicast udp dport 4791 drop
				}
			}
		RULES
	done
}

open_all() {
	local end
	for end in a b; do
		wire_on "$end" nft delete table netdev wall 2>/dev/null
	done
}

goes_direct() { (($(of_both direct_messages) > before + 1000)); }

close_when_direct() { WAIT_LIMIT=$(limit 60) wait_for goes_direct && close "$@"; }

# ends_when_closed NAME END...: sends direct messages from b to a, closes the network to these ends, and checks that the
# messages end.
ends_when_closed() {
	local name=$1 closer ended=
	shift
	before=$(of_both direct_messages)
	close_when_direct "$@" &
	closer=$!
	wire_pair a 4 60 ib_write_bw -d @DEVICE -x @GID -p @PORT -D "$(limit 20)" -s 64 || ended=1
	wait "$closer" || fail "$name: nothing went direct: $(tail -n 3 "$wire_work/client")"
	[[ -n $ended ]] || fail "$name: the messages went on past a network that is closed on the way to $*"
	grep -q "status 12" "$wire_work/client" || grep -qi "retry" "$wire_work/client" ||
		fail "$name: not the retry counter: $(tail -n 3 "$wire_work/client")"
	open_all
	echo "$name: the messages end"
}

# ------------------------------------------------------------------ forging

# forge END ACTION WAY [SOCKET...]: starts locality_forge.py in the background. It has no capability except CAP_NET_RAW.
forge() {
	local end=$1 action=$2 way=$3
	shift 3
	: >"$wire_work/forged_$end"
	dropped[$end]=$(counter "peal_$end" drop_path)
	wire_exec="exec" wire_on "$end" setpriv --bounding-set=-all,+net_raw --inh-caps=-all,+net_raw \
		/usr/bin/python3 "$forge" "$action" "wire_$end" "${wire_v4[$end]}" "$way" "$@" >"$wire_work/forged_$end" 2>&1 &
	forgers+=($!)
	wait_for grep -q ready "$wire_work/forged_$end" || fail "no forger: $(<"$wire_work/forged_$end")"
}

# forgers_end END...: ends the forgers. It checks that they sent forged packets at these ends and that the devices dropped
# them.
forgers_end() {
	local end
	for end in "$@"; do
		wait_for grep -q "put in" "$wire_work/forged_$end"
	done
	kill "${forgers[@]}" 2>/dev/null
	wait "${forgers[@]}" 2>/dev/null
	forgers=()
	for end in "$@"; do
		grep -q "put in" "$wire_work/forged_$end" || fail "nothing was forged at $end: $(<"$wire_work/forged_$end")"
		(($(counter "peal_$end" drop_path) > dropped[$end])) || fail "peal_$end has not dropped what was forged"
	done
}

wire_up peal peal 1500
wire_neighbours
for end in a b; do
	"$peal" link set "peal_$end" direct 1 || fail "cannot allow direct"
done
"$peal" host set direct host || fail "cannot allow direct between namespaces"

ends_when_closed "no way there" a
ends_when_closed "no way back" b

for way in lo broadcast; do
	forge b answer "$way"
	ends_when_closed "responses forged by $way" b
	forgers_end b

	forge a relay "$way" "$wire_work/at_a_$way" "$wire_work/at_b_$way"
	forge b relay "$way" "$wire_work/at_b_$way" "$wire_work/at_a_$way"
	ends_when_closed "packets relayed by $way" a b
	forgers_end a b
done

# ------------------------------------------------------------------ late responses

# run_delayed MILLISECONDS: sends a few messages with this delay in each direction. It prints how many went direct.
run_delayed() {
	local before
	before=$(of_both direct_messages)
	wire_netem both delay "$1ms"
	wire_pair a 4 60 "$verify" -d @DEVICE -g @GID -p @PORT --ops rc-send --sizes 1,2,3,4 --count 4 --timeout 18 >/dev/null ||
		fail "verify: $(<"$wire_work/client") $(<"$wire_work/server")"
	wire_netem both
	echo $(($(of_both direct_messages) - before))
}

late=$(of_both locality_late)
carried=$(run_delayed 400) || fail "$carried"
((carried == 0)) || fail "responses after 800 ms proved something: $carried messages went direct"
(($(of_both locality_late) > late)) || fail "no response was late"
echo "late responses do not count"
carried=$(run_delayed 5) || fail "$carried"
((carried > 0)) || fail "responses after 10 ms proved nothing: asked $(of_both locality_challenges), late $(of_both locality_late)"
echo "responses in time do: $carried messages direct"
wire_down
