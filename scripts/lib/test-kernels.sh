# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Compiles the modules for the kernels of Debian 12, 13, sid and 13's backports, and the userspace part for Debian 13. A
# warning is a failure. It compiles for Debian 12 on this machine, and for the others in their roots. It does not load the modules.
# Needs common.sh, build.sh, debian-root.sh and results.sh.

# run_kernels_suite NAME...
run_kernels_suite() {
	local kernel
	have_modules || return 0
	for kernel in 6.1-bookworm 6.12-trixie 7.2-sid 7.3-trixie-backports; do
		matches "$kernel" "$@" || continue
		compile_kernel "$kernel"
	done
	! matches userspace-trixie "$@" || compile_userspace
}

# Compiles the provider against Debian 13's rdma-core. The test tools/debian13_provider runs it.
compile_userspace() {
	local begin=$SECONDS log=$build/compile-userspace-trixie.log
	if (build_debian13) >"$log" 2>&1; then
		pass "kernels/userspace-trixie" "$((SECONDS - begin))"
	else
		fail "kernels/userspace-trixie"
		tail -n 40 "$log" | sed 's/^/    /'
	fi
}

# compile_kernel VERSION-SUITE: in the folder of scripts/vm if that compiles with the same flags.
compile_kernel() {
	local kernel=$1 begin=$SECONDS log=$build/compile-$1.log folder=$build/compile-$1
	! is_newer_kernel "${kernel%%-*}" || folder=$build/kernel-${kernel%%-*}
	mkdir -p "$build"
	if ! (with_lock "kernel-${kernel%%-*}" compile "${kernel%%-*}" "$folder") >"$log" 2>&1; then
		fail "kernels/$kernel"
		tail -n 40 "$log" | sed 's/^/    /'
	elif grep -i -E 'warning' "$log" | grep -v 'Skipping BTF'; then
		fail "kernels/$kernel: warnings, see $log"
	else
		pass "kernels/$kernel $(<"$folder/release")" "$((SECONDS - begin))"
	fi
}

# compile KERNEL FOLDER
compile() {
	local folder=$2 tree
	choose_tree "$1" || return
	farm_sources "$folder"
	basename "$(dirname "$tree")" >"$folder/release" || return
	"${module_make[@]}" -sk -C "$tree" M="$folder/kernel" KCFLAGS=-Werror -j"$(nproc)" modules
}
