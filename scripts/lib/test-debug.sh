# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs guest tests on kernels that check themselves. Without names: on the debug kernel those in which programs, peers,
# memory and administrators do their worst, in a few minutes; on that which looks for data races those in which many
# things happen at once. Each prints its seed.
# Needs common.sh, debug-kernel.sh and test-guest.sh.

debug_smoke=(t_trust t_ud_trust t_packet_fuzz t_storm t_verbs_fuzz t_link_storm t_neighbours)
races_smoke=(t_races t_storm t_data t_rnr t_cq t_mr t_mw t_uc t_ud t_removal t_wire_pair t_wire_loss t_link_storm)

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
	shift
	run_machine_suite debug_tests "$@"
}

# Those that take long, too, for who names them.
debug_tests() {
	guest_tests
	interop_tests
}
