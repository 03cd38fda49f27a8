#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# What scripts/test concludes from the files that the machines of guest tests leave: a death or a warning is a failure also
# if no test was running, a machine that hangs is ended, each test is counted once, and only expected skips are allowed.
# The test starts no machine.
set -euo pipefail
source "$(dirname "$0")/../../scripts/lib/common.sh"
source "$repo/scripts/lib/build.sh"
source "$repo/scripts/lib/debug-kernel.sh"
source "$repo/scripts/lib/debian-root.sh"
source "$repo/scripts/lib/results.sh"
source "$repo/scripts/lib/judge.sh"
source "$repo/scripts/lib/test-unit.sh"
source "$repo/scripts/lib/test-guest.sh"
suite=$(mktemp -d)
trap 'rm -rf "$suite" "$recorded"' EXIT
guest_kernel=6.1
look_every=1
group=$suite/001

wrong() {
	echo "FAILED: $*"
	exit 1
}

# machine TEST...: makes a new group with one machine, which has passed these tests. The queue has three.
machine() {
	local test
	rm -rf "$group"
	mkdir -p "$group"/{claims,machine-1}
	results=$group/machine-1
	for test in a b c; do
		echo "60 direct verbs/$test /bin/true" >>"$group/queue"
	done
	for test in "$@"; do
		touch "$results/booted"
		mkdir "$group/claims/direct-verbs-$test"
		echo "PASS direct verbs/$test" >>"$results/done"
	done
	echo "booting a virtual machine: QEMU" >"$results/messages"
	echo "peal_kick_file: loading out-of-tree module" >"$results/dmesg"
}

# runs TEST: the machine runs it.
runs() {
	touch "$results/booted"
	mkdir "$group/claims/direct-verbs-$1"
	echo "60 direct verbs/$1" >"$results/now"
}

# ends STATUS PATTERN: the machine ends. What is printed matches the pattern.
ends() {
	judge_end "$group" "$results" "$1" >"$suite/printed"
	# shellcheck disable=SC2053 # it is a pattern
	[[ $(<"$suite/printed") == $2 ]] || wrong "status $1: expected $2, got: $(<"$suite/printed")"
}

# counts PASSED FAILED
counts() {
	: >"$recorded"
	count_results "$group" >"$suite/printed"
	(($(recorded_as PASS) == $1 && $(recorded_as FAIL) == $2)) ||
		wrong "expected $1 passed and $2 failed, got: $(<"$recorded") $(<"$suite/printed")"
}

# age SECONDS FILE...
age() { touch -d "$1 seconds ago" "${@:2}"; }

machine a b c
ends 0 ""
counts 3 0

echo "--- a machine dies in a test"
machine a
runs b
echo "a sign of the death" >>"$results/dmesg"
ends 125 "FAIL verbs/b: the virtual machine ended in it*a sign of the death*"
counts 1 2

echo "--- a machine dies after the last test"
machine a b c
echo "vm: the guest died before the command ended" >>"$results/messages"
ends 125 "FAIL guest/end after verbs/c: *vm: the guest died*"
counts 3 1

echo "--- a machine dies before it has removed the name of the last test"
machine a b
runs c
echo "PASS direct verbs/c" >>"$results/done"
ends 125 "FAIL guest/end after verbs/c: *"
counts 3 1

echo "--- the kernel warns outside of a test, or in the second machine"
machine a b c
ends 99 "FAIL guest/end after verbs/c: *"
counts 3 1
machine
ends 99 "FAIL guest/end: *"

echo "--- a test has failed and is reported"
machine a b
echo "FAIL direct verbs/c" >>"$results/done"
ends 3 ""
counts 2 1

echo "--- a machine finds no test"
machine
ends 0 ""

echo "--- a machine does not boot"
machine
echo >"$results/dmesg"
ends 125 "a machine died before it loaded a module of peal; another one boots*"
[[ ! -e $group/broken ]] || wrong "no other machine boots"
ends 125 "FAIL guest/boot: *"
[[ -e $group/broken ]] || wrong "machines boot for ever"
machine
ends 125 "FAIL guest/boot: *"

echo "--- more machines boot only while tests are left"
machine a
take_seat "$group" || wrong "two tests are left, and no machine boots"
touch "$group/booting-1"
! take_seat "$group" || wrong "two machines boot for two tests, and a third one"
rm "$group"/booting-*
touch "$group/broken"
! take_seat "$group" || wrong "a machine boots although none can run a test"
machine a b c
! take_seat "$group" || wrong "a machine boots for no test"

echo "--- a machine that hangs is ended"
machine
rm "$results/messages"
! what_hangs "$results" || wrong "a machine hangs that does not boot yet"
echo "booting a virtual machine: QEMU" >"$results/messages"
age $((boot_limit - 30)) "$results/messages"
! what_hangs "$results" || wrong "a machine hangs while it may still boot"
age $((boot_limit + 30)) "$results/messages"
[[ $(what_hangs "$results") == *"runs no test"* ]] || wrong "a machine may boot for ever"
runs a
age 110 "$results/now"
! what_hangs "$results" || wrong "a test is not given its time"
age 130 "$results/now"
[[ $(what_hangs "$results") == *"in verbs/a" ]] || wrong "a test may run for ever"
machine a b c
age $((idle_limit + 60)) "$results/messages"
! what_hangs "$results" || wrong "a machine has just ended a test, and hangs"
age $((idle_limit + 60)) "$results/done"
what_hangs "$results" >/dev/null || wrong "a machine may power off for ever"

echo "--- a machine that still boots when others have taken all tests is ended"
# watched: runs watch_machine for a process that ends after two looks, and prints 10 or 20 if a signal ended it before.
watched() {
	local process status=0
	bash -c 'trap "exit 10" TERM; trap "exit 20" USR1; for n in {1..25}; do sleep 0.1; done' &
	process=$!
	watch_machine "$process" "$results" 2>"$suite/said"
	wait "$process" || status=$?
	echo "$status"
}
machine
mkdir "$group"/claims/{a,b,c}
[[ $(watched) == 10 ]] || wrong "a machine that nobody needs boots on"
grep -q "no test was left for it" "$suite/said" || wrong "nothing says why the machine was ended"
ends 130 ""
machine
mkdir "$group"/claims/{a,b,c}
touch "$results/booted"
[[ $(watched) == 0 ]] || wrong "a machine that has just taken the last test is ended"
machine
age $((boot_limit + 30)) "$results/messages"
[[ $(watched) == 20 ]] || wrong "a machine that hangs does not say where"

echo "--- a skip has to be expected"
cat >"$suite/expected" <<'END'
# KERNEL NAME REASON
7.2 services/smc the kernel has no SMC
debug * the kernel has no *
END
expected() { skip_is_expected "$suite/expected" "$@"; }
expected 7.2 services/smc "the kernel has no SMC" || wrong "an expected skip fails"
expected debug services/nfs "the kernel has no NFS over RDMA" || wrong "a pattern matches nothing"
! expected 6.1 services/smc "the kernel has no SMC" || wrong "another kernel may skip"
! expected 7.2 services/smc "strace is not installed" || wrong "any reason is expected"
! expected debug services/nfs "strace is not installed" || wrong "a missing tool is expected"
! expected "#" NAME "REASON" || wrong "a comment counts"
