# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs guest tests on kernels that check themselves. Without names, the debug kernel runs tests with hostile programs,
# peers, memory and administrators for a few minutes. It also runs on-demand paging, because its locks nest with those of
# the memory manager. The kernel that detects data races runs tests in which many things happen at the same time. Each
# test prints its seed.
# Needs common.sh, debug-kernel.sh and test-guest.sh.

debug_smoke=(hostile/scribbled_rings hostile/random_packets hostile/random_objects hostile/random_calls
	lifecycle/random_administrator fairness/calls_cost_others_nothing verbs/on_demand_paging)
races_smoke=(verbs/threads_share_objects hostile/random_objects verbs/every_byte_arrives verbs/wait_for_peer
	verbs/completion_queues verbs/memory_regions verbs/memory_windows verbs/unreliable_connections verbs/datagrams
	lifecycle/device_removed_in_use wire/every_operation wire/lossy_wire lifecycle/random_administrator)

# run_debug_suite NAME...
run_debug_suite() {
	(($#)) || set -- "${debug_smoke[@]}"
	run_suite_on debug "$@"
}

# run_races_suite NAME...
run_races_suite() {
	(($#)) || set -- "${races_smoke[@]}"
	run_suite_on races "$@"
}

# run_suite_on KERNEL NAME...
run_suite_on() {
	guest_kernel=$1
	guest_slowness=${debug_slowness[$1]}
	# On two processors the debug kernel took 275 s to 304 s in two machines, and 363 s in one (software emulation).
	machine_processors=1
	shift
	run_machine_suite debug_tests "$@"
}

# Includes the long tests, because a caller may name one.
debug_tests() {
	guest_tests
	interop_tests
}
