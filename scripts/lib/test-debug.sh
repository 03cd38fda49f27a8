# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs guest tests on the debug kernel. Without names, those in which programs, peers, memory and administrators do
# their worst, in a few minutes; each prints its seed.
# Needs common.sh, debug-kernel.sh and test-guest.sh.

debug_smoke=(t_trust t_ud_trust t_packet_fuzz t_storm t_verbs_fuzz t_link_storm)

# run_debug_suite NAME...
run_debug_suite() {
	guest_kernel=debug
	guest_slowness=$debug_slowness
	(($#)) || set -- "${debug_smoke[@]}"
	run_machine_suite guest_tests "$@"
}
