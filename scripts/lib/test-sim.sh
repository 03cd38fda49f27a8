# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs the transport core in its simulated network. It runs the seeds that failed in the past and new random seeds under
# the address and undefined behaviour sanitizers. It also checks that the simulation detects broken rules.
# Needs common.sh, build.sh, results.sh and test-unit.sh.

sim_seeds=10000
# The time limit of one run of the simulation in seconds. It leaves enough time for a much slower machine.
sim_limit=900

# build_sim VARIANT: builds build/VARIANT/test/sim/sim.
build_sim() {
	local arguments
	read -r -a arguments <<<"$(variant_arguments "$1")"
	setup_user "$build/$1" "${arguments[@]}"
	with_progress "compiling the simulation" compiled_by_ninja ninja -C "$build/$1" test/sim/sim
}

# run_sim NAME ARGUMENT...: runs the simulation once, as a test. It prints the last lines of the output, which say how
# fast the simulation was or what failed.
run_sim() {
	local name=$1 log begin=$SECONDS status=0
	shift
	log=$build/asan/sim-$name.log
	ASAN_OPTIONS=detect_leaks=1 timeout "$sim_limit" setarch --addr-no-randomize \
		"$build/asan/test/sim/sim" --jobs "$(nproc)" "$@" >"$log" 2>&1 || status=$?
	if ((status == 0)); then
		pass "sim/$name" $((SECONDS - begin))
	else
		fail "sim/$name"
	fi
	tail -n 20 "$log" | sed 's/^/    /'
}

run_mutations() {
	local begin=$SECONDS log=$build/user/sim-mutations.log
	if "$repo/test/sim/mutate" "$build/user" >"$log" 2>&1; then
		pass "sim/mutations" $((SECONDS - begin))
	else
		fail "sim/mutations"
	fi
	sed 's/^/    /' "$log"
}

# wanted NAME CHOSEN...: succeeds if NAME contains one of CHOSEN, or if CHOSEN is empty.
wanted() {
	local name=$1 chosen
	shift
	(($#)) || return 0
	for chosen in "$@"; do
		[[ $name != *"$chosen"* ]] || return 0
	done
	return 1
}

# run_sim_suite NAME...
run_sim_suite() {
	local variant
	have_userspace || return 0
	for variant in asan user; do
		if ! (with_lock "$variant" build_sim "$variant"); then
			fail "sim/build-$variant"
			return 0
		fi
	done
	! wanted past "$@" || run_sim past --file "$repo/test/sim/seeds.txt"
	! wanted random "$@" || run_sim random --seeds "$sim_seeds"
	! wanted mutations "$@" || run_mutations
}
