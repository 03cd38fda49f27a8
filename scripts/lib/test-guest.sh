# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs the tests below test/guest/ in virtual machines. Tests with the same "vm:" options share a queue. One or more
# machines take tests from it, beginning with the tests that have the longest limit. A machine boots once and runs tests
# on both paths. If a test fails, a new machine continues. In the guest, guest-tests runs the tests.
# Needs common.sh, build.sh, debug-kernel.sh, debian-root.sh, results.sh, judge.sh and matches of test-unit.sh.

# The kernel that the machines boot (scripts/vm --kernel).
guest_kernel=${PEAL_KERNEL:-6.1}
# How many machines run at the same time. If this is empty, machines_at_once decides.
guest_machines=${PEAL_MACHINES:-}
# How many of this host's processors a machine keeps busy. It has two, and most tests poll on both of them.
machine_processors=2
# Only the first suite of a run builds the programs. Unit tests that run beside a later one hold the lock of their folder.
user_is_built=
# Called when a machine has ended, with its results folder.
after_machine=:

# A machine takes no new test after about so many seconds.
machine_seconds=9000
# How long a machine may take to boot, in seconds. A stock kernel takes 4 s, and on busy processors 20 s.
boot_limit=90
# How long it may take to power off, or for anything else that is no test, in seconds.
idle_limit=300
# How often a machine is looked at, in seconds. Once a second, the programs that a look starts took a twelfth of two processors.
look_every=5

# A test with such a line runs programs of Debian 13 and sid.
uses_roots='^source .*/helpers/debian\.sh'

# A test with such a line installs the packages of scripts/package.
uses_packages='^packages='

# The tests that always run on the newer kernels. They show that the modules load, that programs and kernel users reach the
# device, and that data moves on both paths.
smoke_tests=(verbs/post_and_poll verbs/memory_regions verbs/kernel_user tools/devinfo)
# The tests that the debug kernel runs: with hostile programs, peers, memory and administrators for a few minutes, and on-demand
# paging, because its locks nest with those of the memory manager.
debug_smoke=(hostile/scribbled_rings hostile/random_packets hostile/random_objects
	hostile/random_calls lifecycle/random_administrator fairness/calls_cost_others_nothing
	verbs/on_demand_paging)
# The tests that run where data races are detected. In them many things happen at the same time.
races_smoke=(verbs/threads_share_objects hostile/random_objects verbs/every_byte_arrives verbs/wait_for_peer
	verbs/completion_queues verbs/memory_regions verbs/memory_windows verbs/unreliable_connections verbs/datagrams
	lifecycle/device_removed_in_use wire/every_operation wire/lossy_wire
	lifecycle/random_administrator)

# guest_tests: lists the source of every test, FOLDER/NAME.sh or FOLDER/NAME.cpp. helpers/ has no tests.
guest_tests() {
	find "$repo/test/guest" -mindepth 2 -maxdepth 2 \( -name '*.sh' -o -name '*.cpp' \) -not -path '*/helpers/*' | sort
}

# short_tests, long_tests: list the tests without and with a line "run: long" in their head.
short_tests() { guest_tests | xargs grep -L -E '^(#|//) run: long$'; }
long_tests() { guest_tests | xargs grep -l -E '^(#|//) run: long$'; }

interop_tests() { printf '%s\n' "$repo"/test/interop/i_*.sh; }

# A caller may name a long test, or one of interop.
debug_tests() {
	guest_tests
	interop_tests
}

# run_guest_suite NAME...: runs the tests whose names contain one of these. Without a name it runs the short tests, or with
# PEAL_THOROUGH all tests.
run_guest_suite() {
	if (($#)) || [[ ${PEAL_THOROUGH:-} ]]; then
		run_machine_suite guest_tests "$@"
	else
		run_machine_suite short_tests
	fi
}

# Long tests wait most of their time, for timeouts, for removed devices and for file systems.
run_long_suite() {
	machine_processors=1
	run_machine_suite long_tests "$@"
}

run_smoke_suite() {
	local guest_kernel name chosen=()
	for name in "${smoke_tests[@]}"; do
		! matches "$name" "$@" || chosen+=("$name")
	done
	((${#chosen[@]})) || return 0
	for guest_kernel in "${!newer_kernels[@]}"; do
		if ((EUID == 0)); then
			run_machine_suite guest_tests "${chosen[@]}"
		else
			skip "smoke ($guest_kernel)" "only root can make the Debian root that the kernel is in"
		fi
	done
}

# Run one machine, because the time limits of these tests assume that no other machine uses the processors.
run_interop_suite() {
	guest_machines=1
	run_machine_suite interop_tests "$@"
}

run_debug_suite() {
	(($#)) || set -- "${debug_smoke[@]}"
	run_checking_suite debug "$@"
}

run_races_suite() {
	(($#)) || set -- "${races_smoke[@]}"
	run_checking_suite races "$@"
}

# run_checking_suite KERNEL NAME...: on two processors the debug kernel took 275 s to 304 s in two machines, and 363 s in one
# (software emulation).
run_checking_suite() {
	guest_kernel=$1
	machine_processors=1
	run_machine_suite debug_tests "${@:2}"
}

# run_machine_suite LIST NAME...
run_machine_suite() {
	local list=$1 suite machines group worker workers=() begin=$SECONDS
	shift
	need_packages "${guest_packages[@]}"
	if ! (build_modules "$guest_kernel" && build_test_module "$guest_kernel" && { [[ $user_is_built ]] || build_user; }); then
		fail "$(title guest/build direct "$guest_kernel")"
		return
	fi
	user_is_built=1
	suite=$(mktemp -d "$build/vm/suite-XXXX")
	queue_tests "$list" "$suite" "$@"
	if awk '{ print $4 }' "$suite"/*/queue 2>/dev/null | xargs grep -q -s "$uses_roots" && ! (link_roots trixie sid); then
		fail "guest/roots"
		return
	fi
	if awk '{ print $4 }' "$suite"/*/queue 2>/dev/null | xargs grep -q -s "$uses_packages" && ! packages_are_made &&
		! "$repo/scripts/package" >&2; then
		fail "guest/packages"
		return
	fi
	record PHASE "$((SECONDS - begin))" "compiling for the guests ($guest_kernel)"
	machines=$(machines_at_once)
	for ((worker = 0; worker < machines; worker++)); do
		run_machines "$suite" &
		workers+=("$!")
	done
	# shellcheck disable=SC2064 # these workers are meant
	trap "kill ${workers[*]} 2>/dev/null; exit 130" INT TERM
	tell_progress "$suite" "${workers[@]}"
	trap - INT TERM
	for group in "$suite"/*/; do
		count_results "${group%/}"
	done
	rm -rf "$suite"
	explain_instructions
}

# explain_instructions: if a message costs more instructions than it may, this prints which functions have grown.
explain_instructions() {
	local path rows=()
	for path in direct wire; do
		grep -q "^FAIL .*\b$path/instructions\b" "$recorded" || continue
		mapfile -t rows < <(find "$repo/test/profiles" -name "$path-*.txt" -printf '%f\n' | sort | sed 's/\.txt$//; s/-/ /g')
		say "comparing the profiles of messages ($path) with those in test/profiles"
		"$repo/scripts/profile" --compare "${rows[@]}" || true
	done
}

# packages_are_made: whether build/packages has the packages of this commit, and no file has changed since. scripts/test kernels
# may have made them.
packages_are_made() {
	[[ -z $(git -C "$repo" status --porcelain) ]] &&
		compgen -G "$build/packages/peal-tools_*.$(git -C "$repo" rev-parse --short HEAD)_*.deb" >/dev/null
}

# machines_at_once: prints how many machines to run. On a host of two processors without KVM, the tests below verbs/ took 220 s
# and 240 s in two machines and 201 s and 196 s in one, because emulated processors wait for others that do not run. Each
# machine may use 3 GiB.
machines_at_once() {
	local free
	free=$(awk '$1 == "MemAvailable:" { print int($2 / 1048576) }' /proc/meminfo)
	if [[ -n $guest_machines ]]; then
		echo "$guest_machines"
	else
		echo $(($(nproc) >= 2 * machine_processors && free >= 8 ? 2 : 1))
	fi
}

# test_option SOURCE KEY: prints the VALUE of the test's line "# KEY: VALUE" or "// KEY: VALUE".
test_option() { sed -n -E "s,^(#|//) $2: *(.*[^ ]) *\$,\2,p" "$1" | head -n 1; }

# transports_of SOURCE: prints the paths that the test runs on: direct, wire. PEAL_TRANSPORTS may exclude some.
transports_of() {
	local transport all="direct wire"
	case $(test_option "$1" transport) in
	direct | any) all=direct ;;
	wire) all=wire ;;
	"direct, thorough wire") [[ ${PEAL_THOROUGH:-} ]] || all=direct ;;
	esac
	for transport in $all; do
		[[ " ${PEAL_TRANSPORTS:-direct wire} " != *" $transport "* ]] || echo "$transport"
	done
}

# queue_tests LIST SUITE NAME...: makes SUITE/GROUP/{options,queue} of the tests whose names contain one of NAME. A group has all
# tests that need the same machine. A line of a queue has the limit in seconds, the transport, the name, and the program, which
# is the script itself or the compiled program. Small groups come first, so that all machines can share the largest group at
# the end.
queue_tests() {
	local list=$1 suite=$2 path name program transport limit options number=1
	local -A groups=()
	shift 2
	while read -r path; do
		name=${path#"$repo"/test/*/}
		name=${name%.*}
		program=$path
		[[ $path != *.cpp ]] || program=$build/guest/test/guest/${name##*/}
		matches "$name" "$@" || continue
		if ((EUID)) && grep -q "$uses_roots" "$path"; then
			skip "$name" "only root can make the Debian roots that the programs are in"
			continue
		fi
		if ((EUID)) && grep -q "$uses_packages" "$path"; then
			skip "$name" "only root can make the packages"
			continue
		fi
		if [[ ! -x $program ]]; then
			fail "$name: not compiled or not executable"
			continue
		fi
		# Other work may share the processors.
		limit=$(test_option "$path" timeout)
		limit=$((${limit:-60} * ${debug_slowness[$guest_kernel]:-1} * 2))
		# "bare, cpus 1" becomes --bare --cpus 1.
		options=$(test_option "$path" vm | sed -E 's/(^|, *)([a-z])/ --\2/g')
		for transport in $(transports_of "$path"); do
			# Packets take longer than copying.
			[[ $transport == direct ]] || limit=$((limit * 2))
			groups[x$options]+="$limit $transport $name $program"$'\n'
		done
	done < <("$list")
	while read -r _ options; do
		printf -v path '%s/%03d' "$suite" "$((number++))"
		mkdir -p "$path/claims"
		printf '%s\n' "${options#x}" >"$path/options"
		printf '%s' "${groups[$options]}" | sort -s -k 1,1nr >"$path/queue"
	done < <(for options in "${!groups[@]}"; do
		echo "$(wc -l <<<"${groups[$options]}") $options"
	done | sort -n)
}

# run_machines SUITE: boots one machine after the other until no queue has tests left.
run_machines() {
	local group options
	for group in "$1"/*/; do
		group=${group%/}
		read -r -a options <"$group/options" || true
		while locked "$group/seats.lock" take_seat "$group"; do
			run_machine "$group" "${options[@]}"
		done
	done
}

# take_seat GROUP: decides whether to boot another machine. It does so only if more tests are left than machines are
# booting.
take_seat() {
	local booting
	booting=$(find "$1" -maxdepth 1 -name 'booting-*' | wc -l)
	(($(tests_left "$1") > booting)) && [[ ! -e $1/broken ]] && touch "$1/booting-$BASHPID"
}

# tests_left GROUP: prints how many tests no machine has taken.
tests_left() { echo $(($(wc -l <"$1/queue") - $(find "$1/claims" -mindepth 1 | wc -l))); }

# run_machine GROUP OPTION...: runs a machine, and leaves its results in a new folder in GROUP. A test may take longer than
# machine_seconds. Then it is the only one of its machine.
run_machine() {
	local group=$1 results machine lines counter seconds status=0
	shift
	seconds=$(awk -v least="$machine_seconds" '$1 > least { least = $1 } END { print least }' "$group/queue")
	results=$(mktemp -d "$group/machine-XXXX")
	exec {lines}> >(count_lines)
	counter=$!
	PEAL_VM_RESULTS=$group PEAL_VM_DMESG=$results/dmesg PEAL_VM_NOBUILD=1 \
		setpriv --pdeathsig TERM "$repo/scripts/vm" --kernel "$guest_kernel" --timeout $((seconds + 1800)) "$@" -- \
		scripts/lib/guest-tests "${results##*/}" "$guest_kernel" "$seconds" 1>&"$lines" 2>>"$results/messages" &
	machine=$!
	exec {lines}>&-
	# shellcheck disable=SC2064 # the number of this machine is meant, not that of a later one
	trap "kill $machine 2>/dev/null; exit 130" INT TERM
	watch_machine "$machine" "$results"
	wait "$machine" || status=$?
	trap - INT TERM
	wait "$counter" || true
	rm -f "$group/booting-$BASHPID"
	judge_end "$group" "$results" "$status"
	"$after_machine" "$results"
}

# watch_machine PROCESS RESULTS: waits until the machine ends. It ends the machine if that hangs, if that still boots when others
# have taken all tests, and if scripts/test was killed, because this subshell then has another parent.
watch_machine() {
	local why parent begin=$SECONDS
	while kill -0 "$1" 2>/dev/null; do
		wait_for_end "$1"
		[[ ! -e $2/now && ! -e $2/done ]] || rm -f "${2%/*}/booting-$BASHPID"
		# In this order, because the machine may boot at any moment and take the last test itself.
		if (($(tests_left "${2%/*}") == 0)) && [[ ! -e $2/booted ]]; then
			touch "$2/unneeded"
			kill "$1" 2>/dev/null || true
			say "a machine was ended, because it still booted after $((SECONDS - begin)) s, and no test was left for it"
			return
		fi
		if read -r _ _ _ parent _ <"/proc/$BASHPID/stat" && ((parent != $$)); then
			kill "$1" 2>/dev/null
			exit 1
		fi
		why=$(what_hangs "$2") || continue
		echo "$why" >>"$2/messages"
		# The kernel log then says where the processors are.
		kill -USR1 "$1" 2>/dev/null || true
		return
	done
}

# wait_for_end PROCESS: waits until the process ends, but no longer than look_every seconds. A trap interrupts it.
wait_for_end() {
	timeout --foreground "$look_every" tail --pid="$1" -s 0.5 -f /dev/null &
	wait "$!" || true
}

# what_hangs RESULTS: fails if the machine does not hang. Otherwise it prints what hangs: a test far past its limit, because the
# guest could not end that test itself, or a guest that has run no test for long. The latter hangs while it boots, loads peal
# or powers off. What scripts/vm does before the guest boots may take longer.
what_hangs() {
	local limit=$idle_limit name begin why="the guest does not answer any more, and runs no test"
	[[ -e $1/booted ]] || limit=$boot_limit
	limit=$((limit * ${debug_slowness[$guest_kernel]:-1}))
	if begin=$(stat -c %Y "$1/now" 2>/dev/null); then
		read -r limit _ name 2>/dev/null <"$1/now" || return 1
		limit=$((limit + 60))
		why="the guest does not answer any more in $name"
	else
		grep -q -s '^booting a virtual machine' "$1/messages" || return 1
		begin=$(stat -c %Y "$1/messages" "$1/done" 2>/dev/null | sort -n | tail -n 1) || true
	fi
	(($(date +%s) > begin + limit)) && echo "$why"
}

# judge_end GROUP RESULTS STATUS: reports a failure if a test was running when the machine ended, if the machine died or warned
# outside of a test, or if no test could be run. The next machine takes the other tests.
judge_end() {
	local transport name
	[[ ! -e $2/unneeded ]] || return 0
	if read -r _ transport name 2>/dev/null <"$2/now" && ! grep -q -s " $transport $name\$" "$2/done"; then
		echo "FAIL $transport $name" >>"$2/done"
		show_death "FAIL $(title "$name" "$transport" "$guest_kernel"): the virtual machine ended in it" "$2"
		return
	fi
	# 3: guest-tests has reported the failure after which it ended. Without a result and without an error, another machine took
	# the last test while this one booted.
	(($3 != 0 && $3 != 3)) || return 0
	if [[ ! -s $2/done ]] && (($3 != 99)); then
		# Emulation rarely crashes a stock kernel while it boots. This is no result of a test, so one more machine boots.
		if ! grep -q -s "peal_kick_file: loading" "$2/dmesg" && mkdir "$1/boot-failed" 2>/dev/null; then
			show_death "a machine died before it loaded a module of peal; another one boots" "$2"
			return
		fi
		touch "$1/broken"
		echo "FAIL direct guest/boot" >>"$2/done"
		show_death "FAIL $(title guest/boot direct "$guest_kernel"): no test could be run" "$2"
		return
	fi
	name=
	! read -r _ transport name < <(tail -n 1 "$2/done" 2>/dev/null) || name=" after $(title "$name" "$transport" "$guest_kernel")"
	echo "FAIL direct guest/end" >>"$2/done"
	# scripts/vm says what its exit status means.
	show_death "FAIL $(title guest/end direct "$guest_kernel")$name: the virtual machine died or warned outside of a test ($3)" "$2"
}

# show_death LINE RESULTS: prints the line, and what scripts/vm said. That includes the kernel log's end, unless the machine was
# ended from outside.
show_death() {
	{
		echo "$1"
		{
			tail -n 100 "$2/messages"
			grep -q "^--- the kernel log" "$2/messages" || tail -n 40 "$2/dmesg"
		} 2>/dev/null | sed 's/^/    /'
	} | count_lines
}

# Prints "N of N", the numbers of ended and of all tests. kmemleak, guest/boot and guest/end are in no queue.
ended_tests() {
	find "$suite" -name 'done' -exec cat {} + | awk -v all="$(cat "$suite"/*/queue | wc -l)" '
		$NF != "kmemleak" && $NF != "guest/boot" && $NF != "guest/end" { n++ }
		END { print n + 0 " of " all }'
}

# Adds the number of ended tests, the number of all tests and the time so far to the line of each result.
count_lines() {
	local line
	while IFS= read -r line; do
		case $line in
		PASS* | FAIL* | SKIP*) line+=" [$(ended_tests), $SECONDS s]" ;;
		esac
		printf '%s\n' "$line"
	done
}

# tell_progress SUITE WORKER...: waits until the workers have ended. Every minute it prints which tests run.
tell_progress() {
	local suite=$1 now name transport next=$((SECONDS + 30)) running
	shift
	while kill -0 "$@" 2>/dev/null; do
		wait_for_end "$1"
		((SECONDS >= next)) || continue
		next=$((SECONDS + 60))
		running=
		for now in "$suite"/*/machine-*/now; do
			read -r _ transport name 2>/dev/null <"$now" || continue
			grep -q " $transport $name\$" "${now%/now}/done" 2>/dev/null ||
				running+=" $name ($transport) for $(($(date +%s) - $(stat -c %Y "$now"))) s,"
		done
		say "running:$running $(ended_tests) have ended, $SECONDS s"
	done
	wait "$@" || true
}

# count_results GROUP: records the results of all machines. A test that no machine has run counts as failed.
count_results() {
	local transport name
	cat "$1"/machine-*/done 2>/dev/null >>"$recorded" || true
	sed 's/^/TIME /' "$1"/machine-*/durations 2>/dev/null >>"$recorded" || true
	while read -r _ transport name _; do
		grep -q -s -h " $transport $name\$" "$1"/machine-*/done ||
			fail "$(title "$name" "$transport" "$guest_kernel"): was not run"
	done <"$1/queue"
}
