# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Completion of the commands of peal in bash. It offers what may come next: commands, devices, netdevs, options and values.

# _peal_names FOLDER: the names of the entries of a folder.
_peal_names() {
	local entry
	for entry in "$1"/*; do
		[[ ! -e $entry ]] || echo "${entry##*/}"
	done
}

_peal_devices() { _peal_names /sys/class/infiniband; }

# _peal_values OPTION KIND: the values of an option of a device or of the host.
_peal_values() {
	case $2-$1 in
	device-direct) echo on off ;;
	device-ecn) echo off asked on ;;
	device-rate) echo auto 10 25 40 50 100 200 400 ;;
	device-max-rd-atomic) echo 1 16 128 ;;
	device-max-*) echo max ;;
	device-faults) echo on off ;;
	device-without) echo none rc uc ud xrc raw srq atomic mw odp ;;
	host-direct) echo none device netns host ;;
	esac
}

# _peal_pairs KIND COUNT: COUNT words of the command line belong to pairs of an option and its value; the last is not complete.
_peal_pairs() {
	if (($2 % 2 == 0)); then
		_peal_values "${COMP_WORDS[COMP_CWORD - 1]}" "$1"
	elif [[ $1 == host ]]; then
		echo direct
	else
		echo direct rate ecn max-{rd-atomic,qp,cq,mr,wr,cqe,sge,inline} without
		[[ ${COMP_WORDS[2]} != add ]] || echo faults
	fi
}

# _peal_fault_words COUNT: COUNT words of the command line belong to a rule; the last is not complete.
_peal_fault_words() {
	local kind=${COMP_WORDS[COMP_CWORD - $1 + 1]} before=${COMP_WORDS[COMP_CWORD - 1]} pairs=1
	[[ $kind != @(status|nak|receive|delay|slow) ]] || pairs=2
	if (($1 == 1)); then
		echo status nak receive rnr drop corrupt mark delay reorder duplicate unsent slow no-memory
	elif (($1 == 2 && pairs == 2)); then
		[[ $kind != @(delay|slow) ]] || { echo 100us 5ms 1s && return; }
		[[ $kind == nak ]] || echo loc-{len,qp-op,prot,access}-err {retry,rnr-retry}-exc-err wr-flush-err general-err
		echo rem-{inv-req,access,op}-err
	elif ((($1 - pairs) % 2)); then
		echo count every chance seed
		[[ $kind == no-memory ]] || echo qp
		[[ $kind == @(no-memory|slow) ]] || echo peer
		[[ $kind != @(status|nak|receive|rnr) ]] || echo opcode
	else
		case $before in
		opcode) echo send write read atomic flush ;;
		chance) echo 1/10 1/100 1/1000 ;;
		esac
	fi
}

# _peal_words: all that may come next.
_peal_words() {
	local at=$COMP_CWORD
	((at > 1)) || { echo link host show stat why fault doctor dump ping --help --version && return; }
	case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
	"link add")
		case $at in
		3) ;;
		4) echo netdev ;;
		5) _peal_names /sys/class/net ;;
		*) _peal_pairs device $((at - 5)) ;;
		esac
		;;
	"link set") ((at == 3)) && _peal_devices || _peal_pairs device $((at - 3)) ;;
	"link del" | "link delete") ((at != 3)) || _peal_devices ;;
	"link show") _peal_devices && echo --json ;;
	"host set") _peal_pairs host $((at - 2)) ;;
	"host show") echo --json ;;
	link\ *) echo add del show set --help ;;
	host\ *) echo show set --help ;;
	show\ *) ((at == 2)) && echo qp cq mr srq ctx --help || { _peal_devices && echo --details --json; } ;;
	stat\ *) _peal_devices && echo --watch --count --all --json ;;
	why\ *) _peal_devices && echo --json ;;
	"fault add") ((at == 3)) && _peal_devices || _peal_fault_words $((at - 3)) ;;
	"fault show") _peal_devices && echo --json ;;
	"fault del" | "fault delete") ((at != 3)) || _peal_devices ;;
	"fault now")
		case $at in
		3) _peal_devices ;;
		4) echo device-fatal port-err port-active qp-fatal cq-err ;;
		5) [[ ${COMP_WORDS[4]} != @(qp-fatal|cq-err) ]] || echo qp ;;
		esac
		;;
	fault\ *) echo add show del now --help ;;
	doctor\ *) echo --json ;;
	dump\ *)
		case ${COMP_WORDS[at - 1]} in
		-c | --count | --snaplen | -w | --write | qp) ;;
		*) ((at == 2)) && _peal_devices || echo qp --count --write --snaplen --json ;;
		esac
		;;
	ping\ *)
		case ${COMP_WORDS[at - 1]} in
		--device) _peal_devices ;;
		--operation) echo send send-imm write write-imm read fetch-add compare-swap ;;
		--port) echo 7175 ;;
		--size) echo 1 64 4K 64K 1M ;;
		--count | --interval | --timeout) ;;
		*) echo --listen --device --port --size --operation --count --interval --timeout --json ;;
		esac
		;;
	esac
}

_peal() {
	# The words have no spaces.
	mapfile -t COMPREPLY < <(compgen -W "$(_peal_words)" -- "${COMP_WORDS[COMP_CWORD]}")
}

complete -F _peal peal
