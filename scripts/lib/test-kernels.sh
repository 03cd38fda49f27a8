# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Compiles the modules for the kernels of Debian 12, 13 and sid, and the userspace part for Debian 13. A warning is a
# failure. It compiles for Debian 12 on this machine. Debian 13 and sid each have a Debian root in the cache, because
# headers, compiler and C library must match. It does not load the modules.
# Needs common.sh, build.sh and results.sh.

# run_kernels_suite NAME...
run_kernels_suite() {
	local kernel
	have_modules || return 0
	for kernel in 6.1-bookworm 6.12-trixie 7.2-sid; do
		matches "$kernel" "$@" || continue
		compile_kernel "$kernel"
	done
	! matches userspace-trixie "$@" || compile_userspace
}

# Compiles the provider against Debian 13's rdma-core. The test tools/debian13_provider runs it.
compile_userspace() {
	local begin=$SECONDS log=$build/compile-userspace-trixie.log
	if (compile_userspace_in_root) >"$log" 2>&1; then
		pass "kernels/userspace-trixie" "$((SECONDS - begin))"
	else
		fail "kernels/userspace-trixie"
		tail -n 40 "$log" | sed 's/^/    /'
	fi
}

compile_userspace_in_root() {
	local root
	root=$(debian_root trixie)
	mkdir -p "$root$repo"
	export build
	# shellcheck disable=SC2016 # the new shell expands it
	unshare --mount --propagation private bash -euc '
		mount --bind "$2" "$1$2"
		[[ -e $build/user-trixie/build.ninja ]] || chroot "$1" meson setup "$build/user-trixie" "$2"
		chroot "$1" meson compile -C "$build/user-trixie" peal-rdmav34
		printf "%s\\n" "$1" >"$build/user-trixie/root"' - "$root" "$repo"
}

# compile_kernel VERSION-SUITE
compile_kernel() {
	local kernel=$1 begin=$SECONDS log=$build/compile-$1.log
	mkdir -p "$build"
	if ! (compile_here_or_in_root "${kernel#*-}" "$build/compile-$kernel") >"$log" 2>&1; then
		fail "kernels/$kernel"
		tail -n 40 "$log" | sed 's/^/    /'
	elif grep -i -E 'warning' "$log" | grep -v 'Skipping BTF'; then
		fail "kernels/$kernel: warnings, see $log"
	else
		pass "kernels/$kernel $(<"$build/compile-$kernel/release")" "$((SECONDS - begin))"
	fi
}

compile_here_or_in_root() {
	if [[ $1 == bookworm ]]; then
		compile "$2" "$(headers_release)" make
	else
		compile_in_root "$1" "$2"
	fi
}

# compile FOLDER RELEASE MAKE-COMMAND...
compile() {
	local folder=$1 release=$2
	shift 2
	farm_sources "$folder"
	printf '%s\n' "$release" >"$folder/release"
	"$@" -sk -C "/lib/modules/$release/build" M="$folder/kernel" KCFLAGS=-Werror -j"$(nproc)" modules
}

# Mounts the checkout at its own path in the root, and /proc because objtool reads it. The mounts are private, so they
# disappear with the last process.
compile_in_root() {
	local root release
	root=$(debian_root "$1")
	release=$(basename "$(dirname "$(printf '%s\n' "$root"/lib/modules/*/build | sort -V | tail -n 1)")")
	mkdir -p "$root$repo"
	export -f compile farm_sources
	export repo
	# shellcheck disable=SC2016 # the new shell expands it
	unshare --mount --propagation private bash -euc '
		mount -t proc proc "$1/proc"
		mount --bind "$repo" "$1$repo"
		compile "$2" "$3" chroot "$1" make' - "$root" "$2" "$release"
}

# debian_root SUITE: prints the path of a root with that suite's kernel headers and compiler.
debian_root() {
	local suite=$1 root
	((EUID == 0)) || die "only root can make a Debian root for $suite"
	root=$(make_cache roots)/$suite
	with_lock "root-$suite" make_root "$suite" "$root"
	printf '%s\n' "$root"
}

# Uses the mirror and the apt settings of this machine. It ignores the expiry date of release files, because a slow mirror
# may have an expired one for sid.
make_root() {
	local suite=$1 root=$2 options=() packages=linux-headers-amd64,gcc,make,libc6-dev
	# The userspace part needs more packages. It is compiled only for Debian 13.
	[[ $suite != trixie ]] ||
		packages+=,g++,meson,ninja-build,pkg-config,libibverbs-dev,catch2,ibverbs-utils,perftest
	[[ $suite != trixie ]] || packages+=,zlib1g-dev,libnl-genl-3-dev
	[[ $(cat "$root.complete" 2>/dev/null) != "$packages" ]] || return 0
	need_packages mmdebstrap debian-archive-keyring
	need_space "$(dirname "$root")" 2500 "the Debian root of $suite"
	mapfile -t options < <(apt-config dump | sed -n -E '/^Acquire::(https?|Retries)\b.*"."*/s/^/--aptopt=/p')
	rm -rf "$root"
	quietly mmdebstrap --variant=essential --include="$packages" \
		--aptopt='Acquire::Check-Valid-Until "false"' "${options[@]}" \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' \
		"$suite" "$root" "$(debian_mirror)" || die "the Debian root of $suite cannot be made"
	echo "$packages" >"$root.complete"
}

# debian_mirror: prints the mirror from which this machine gets the release itself, not the updates.
debian_mirror() {
	local release mirror
	release=$(. /etc/os-release && echo "$VERSION_CODENAME")
	# shellcheck disable=SC2016 # apt expands it
	mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(SITE)' 'Created-By: Packages' |
		awk -v release="$release" '$1 == release && $2 == "main" { print $3; exit }')
	[[ -n $mirror ]] || die "apt on this machine has no source of Debian $release; run apt-get update"
	printf '%s\n' "$mirror"
}
