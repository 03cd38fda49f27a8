# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs the tests of the subjects below test/guest/ in virtual machines: one machine for all tests that ask for the same
# "vm:" options, and a fresh one for the rest when a test hangs or kills it. The tests themselves are
# run by guest-tests, in the guest.
# Needs common.sh, build.sh and results.sh.

# What the tests run besides what scripts/vm needs: tools that look at processes, programs of the connection manager, a
# second implementation of packets, rules that drop them, programs that read them.
guest_packages=(procps strace rdmacm-utils python3-scapy nftables tcpdump tshark)
# What the machines boot: --kernel of scripts/vm, and how many times longer than on a stock kernel a test may take.
guest_kernel=6.1
guest_slowness=1
# Is called with the folder in which a machine that has ended left its results.
after_machine=:

# guest_tests: the source of every test, FOLDER/NAME.sh or FOLDER/NAME.cpp; helpers/ holds none.
guest_tests() {
	find "$repo/test/guest" -mindepth 2 -maxdepth 2 \( -name '*.sh' -o -name '*.cpp' \) -not -path '*/helpers/*' | sort
}

# test_name SOURCE: FOLDER/NAME; those of test/interop have no folder.
test_name() {
	local name=${1%.*}
	name=${name#"$repo/test/guest/"}
	printf '%s\n' "${name#"$repo/test/interop/"}"
}

# test_program SOURCE: what the guest runs, the script itself or the compiled program.
test_program() {
	case $1 in
	*.sh) printf '%s\n' "$1" ;;
	*.cpp) printf '%s\n' "$build/user/test/guest/$(basename "$1" .cpp)" ;;
	esac
}

# test_option SOURCE KEY: what the test says in a line "# KEY: VALUE" or "// KEY: VALUE".
test_option() { sed -n -E "s,^(#|//) $2: *(.*[^ ]) *\$,\2,p" "$1" | head -n 1; }

# vm_options SOURCE: "bare, cpus 1" in a test means --bare --cpus 1.
vm_options() {
	test_option "$1" vm | tr ',' '\n' | sed -E 's/^ *(--)?([a-z])/--\2/' | tr '\n' ' '
}

interop_tests() { printf '%s\n' "$repo"/test/interop/i_*.sh; }

# carriers_of SOURCE: those it runs on; PEAL_CARRIERS may exclude some.
carriers_of() {
	local carrier all="direct wire"
	case $(test_option "$1" carrier) in
	direct | any) all=direct ;;
	wire) all=wire ;;
	esac
	for carrier in $all; do
		[[ " ${PEAL_CARRIERS:-direct wire} " != *" $carrier "* ]] || echo "$carrier"
	done
}

# run_guest_suite NAME...: the tests whose names contain one of these, or all.
run_guest_suite() { run_machine_suite guest_tests "$@"; }

run_interop_suite() { run_machine_suite interop_tests "$@"; }

# run_machine_suite LIST NAME...
run_machine_suite() {
	local list=$1 path options carrier group
	local -A groups=()
	shift
	need_packages "${guest_packages[@]}"
	if ! (build_modules "$guest_kernel" && build_test_module "$guest_kernel" && build_user); then
		fail "guest/build"
		return
	fi
	while read -r path; do
		matches "$(test_name "$path")" "$@" || continue
		if [[ ! -x $(test_program "$path") ]]; then
			fail "$(test_name "$path"): not compiled or not executable"
			continue
		fi
		options=$(vm_options "$path")
		for carrier in $(carriers_of "$path"); do
			groups["$carrier $options"]+=$path$'\n'
		done
	done < <("$list")
	for group in "${!groups[@]}"; do
		mapfile -t pending < <(printf '%s' "${groups[$group]}")
		carrier=${group%% *}
		run_group "${group#* }"
	done
}

# matches NAME PATTERN...
matches() {
	local name=$1 pattern
	shift
	(($#)) || return 0
	for pattern in "$@"; do
		[[ $name != *"$pattern"* ]] || return 0
	done
	return 1
}

# run_group OPTIONS: runs what is in pending; each machine takes at least one test off that list.
run_group() {
	local results
	while ((${#pending[@]})); do
		results=$(mktemp -d "$build/vm/results-XXXX")
		list_tests >"$results/list"
		run_machine "$1" "$results"
		count_results "$results"
		"$after_machine" "$results"
		rm -rf "$results"
	done
}

# One line for each test: its limit in seconds, its name and what to run.
list_tests() {
	local path limit
	for path in "${pending[@]}"; do
		limit=$(test_option "$path" timeout)
		limit=${limit:-60}
		[[ $carrier != wire ]] || limit=$((limit * 2))
		printf '%s %s %s\n' "$((limit * guest_slowness))" "$(test_name "$path")" "$(test_program "$path")"
	done
}

# run_machine OPTIONS RESULTS: ends a machine in which a test runs far past its limit, which is when the
# guest cannot even end that test.
run_machine() {
	local options results=$2 machine status=0
	read -r -a options <<<"$1"
	PEAL_VM_RESULTS=$results PEAL_VM_DMESG=$results/dmesg PEAL_VM_NOBUILD=1 PEAL_CARRIER=$carrier \
		"$repo/scripts/vm" --kernel "$guest_kernel" --timeout 5400 "${options[@]}" -- scripts/lib/guest-tests 2>"$results/messages" &
	machine=$!
	# shellcheck disable=SC2064 # the number of this machine is meant, not that of a later one
	trap "kill $machine 2>/dev/null; exit 130" INT TERM
	watch_machine "$machine" "$results"
	wait "$machine" || status=$?
	trap - INT TERM
	machine_status=$status
}

watch_machine() {
	local name limit begin
	while kill -0 "$1" 2>/dev/null; do
		sleep 1
		begin=$(stat -c %Y "$2/now" 2>/dev/null) || continue
		read -r limit name <"$2/now" || continue
		if (($(date +%s) > begin + limit + 60)); then
			echo "the guest does not answer any more in $name" >>"$2/messages"
			kill "$1" 2>/dev/null || true
			return
		fi
	done
}

# count_results RESULTS: takes what has run off pending, and the test in which the machine died.
count_results() {
	local result name path left=() first=1
	local -A outcome=()
	if [[ ! -e $1/now ]]; then
		report_death "guest/boot: no test could be run" "$1"
		pending=()
		return
	fi
	while read -r result name; do
		outcome[$name]=$result
	done < <(cat "$1/done" 2>/dev/null)
	case ${outcome[kmemleak]:-} in
	PASS) passed=$((passed + 1)) ;;
	FAIL) failed=$((failed + 1)) ;;
	esac
	for path in "${pending[@]}"; do
		name=$(test_name "$path")
		case ${outcome[$name]:-} in
		PASS) passed=$((passed + 1)) ;;
		FAIL) failed=$((failed + 1)) ;;
		SKIP) skipped=$((skipped + 1)) ;;
		*)
			if ((first)) && ((machine_status != 3)); then
				report_death "$name: the virtual machine ended in it" "$1"
				first=0
			else
				left+=("$path")
			fi
			;;
		esac
	done
	pending=("${left[@]}")
}

report_death() {
	fail "$1"
	tail -n 40 "$2/messages" | sed 's/^/    /'
}
