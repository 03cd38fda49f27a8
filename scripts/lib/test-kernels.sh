# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Compiles the modules for the kernels of Debian 12, 13, sid and 13's backports, and the userspace part for Debian 13. A
# warning is a failure. It compiles for Debian 12 on this machine, and for the others in their roots, in the folders of
# scripts/vm. It does not load these modules. The test tools/releases_of_libibverbs runs the provider.
# It also makes the packages, twice, and they must be equal. It installs them in fresh roots of Debian 12 and 13, where dkms
# compiles the modules, upgrades and removes them. A guest loads the modules that dkms has compiled on Debian 13.
# Needs common.sh, build.sh, debian-root.sh, results.sh and test-unit.sh.

# run_kernels_suite NAME...: the packages are made beside the compilations, because apt-get, Sphinx and lintian keep only one
# processor busy.
run_kernels_suite() {
	local kernel packages
	run_packages "$@" &
	packages=$!
	# shellcheck disable=SC2064 # this process is meant
	trap "kill $packages 2>/dev/null; exit 130" INT TERM
	for kernel in 6.1-bookworm 6.12-trixie 7.2-sid 7.3-trixie-backports; do
		! matches "$kernel" "$@" || try_compile "$kernel" compile_kernel "${kernel%%-*}"
	done
	! matches userspace-trixie "$@" || try_compile userspace-trixie build_debian13
	wait "$packages" || fail "kernels/packages: ended early"
	trap - INT TERM
}

# run_packages NAME...: making the packages again is only a check, so the installations do not wait for it.
run_packages() {
	local suite again=
	if matches packages "$@"; then
		try_compile packages "$repo/scripts/package"
		try_compile packages-again "$repo/scripts/package" --again &
		again=$!
	fi
	for suite in bookworm trixie; do
		! matches "packages-$suite" "$@" || try_compile "packages-$suite" install_packages_in "$suite"
	done
	! matches packages-trixie "$@" || try_compile packages-trixie-loaded load_packaged_modules trixie 6.12
	[[ -z $again ]] || wait "$again" || fail "kernels/packages-again: ended early"
}

# What the README's apt-get install finds installed already, so that the test does not depend on what the mirror has.
fresh_packages=dkms,linux-headers-amd64,ibverbs-utils,iproute2,libnl-genl-3-200,libjs-sphinxdoc,librdmacm1,g++,cmake,pkg-config

# install_packages_in SUITE: the root stays as it is, because what is installed goes to a layer above it, in a mount namespace
# that ends with the shell.
install_packages_in() {
	local root layer status=0
	root=$(installed_root "$1" "$fresh_packages") || return
	layer=$(mktemp -d "$build/install-XXXX")
	mkdir "$layer"/{upper,work,root}
	# shellcheck disable=SC2016 # the new shell expands it
	unshare --mount --propagation private bash -euc '
		mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
		mount -t proc proc "$2/root/proc"
		mkdir -p "$2/root/checkout/build"
		cp -r "$3/build/packages" "$2/root/checkout/build/"
		cp "$3"/scripts/lib/{install-check,later-packages} "$2/root/checkout/"
		exec chroot "$2/root" /checkout/install-check' - "$root" "$layer" "$repo" || status=$?
	rm -rf "$build/dkms-$1"
	((status)) || mv "$layer/upper/checkout/dkms" "$build/dkms-$1" || status=1
	rm -rf "$layer"
	return "$status"
}

# load_packaged_modules SUITE KERNEL: a guest of this kernel loads the modules that dkms has compiled for it in the suite's root.
load_packaged_modules() {
	local release folder
	release=$(root_release "$(kernel_root "$2")") || return
	folder=$build/dkms-$1/$release
	[[ -e $folder/peal.ko ]] || die "dkms has compiled no module for $release; it has for $(ls "$build/dkms-$1")"
	"$repo/scripts/vm" --kernel "$2" --bare --timeout 120 -- test/guest/helpers/packaged_modules.sh "$folder"
}

# try_compile NAME COMMAND...: a warning in what the command prints is a failure. The lines of with_progress are left out, because
# each quotes a line that happened to be the last of a log, which may be about something that the command itself judges.
try_compile() {
	local name=$1 begin=$SECONDS log=$build/compile-$1.log
	shift
	if ! ("$@") >"$log" 2>&1; then
		fail "kernels/$name"
		indented <"$log"
	elif grep -v -E '^[^:]+, [0-9]+ s(: |$)' "$log" | grep -i 'warning' |
		grep -v -e 'Skipping BTF' -e '^dpkg: warning: while removing'; then
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
