# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Compiles the modules for the kernels of Debian 12, 13, sid and 13's backports, and the userspace part for Debian 13. A
# warning is a failure. It compiles for Debian 12 on this machine, and for the others in their roots, in the folders of
# scripts/vm. It does not load the modules. The test tools/releases_of_libibverbs runs the provider.
# Needs common.sh, build.sh, debian-root.sh, results.sh and test-unit.sh.

# run_kernels_suite NAME...
run_kernels_suite() {
	local kernel
	for kernel in 6.1-bookworm 6.12-trixie 7.2-sid 7.3-trixie-backports; do
		! matches "$kernel" "$@" || try_compile "$kernel" compile_kernel "${kernel%%-*}"
	done
	! matches userspace-trixie "$@" || try_compile userspace-trixie build_debian13
}

# try_compile NAME COMMAND...
try_compile() {
	local name=$1 begin=$SECONDS log=$build/compile-$1.log
	shift
	if ! ("$@") >"$log" 2>&1; then
		fail "kernels/$name"
		indented <"$log"
	elif grep -i -E 'warning' "$log" | grep -v 'Skipping BTF'; then
		fail "kernels/$name: warnings, see $log"
	else
		pass "kernels/$name$(sed -n 's/^release: / /p' "$log")" "$((SECONDS - begin))"
	fi
}

compile_kernel() {
	local tree folder=$build/kernel-$1
	choose_tree "$1" || return
	basename "$(dirname "$tree")" | sed 's/^/release: /'
	with_lock "kernel-$1" farm_sources "$folder" &&
		with_lock "kernel-$1" "${module_make[@]}" -sk -C "$tree" M="$folder/kernel" "${module_arguments[@]}" -j"$(nproc)" modules
}
