# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Provides Debian 13, Debian 13 with the kernel of its backports, and sid as roots in the cache, each with its kernel, the
# kernel's headers and the compiler, because headers, compiler and C library belong together. It runs commands in them. It
# loads nothing.
# Needs common.sh.

# The newer kernels, and where they come from.
declare -A newer_kernels=([6.12]=trixie [7.2]=sid [7.3]=trixie-backports)

is_newer_kernel() { [[ ${newer_kernels[$1]:-} ]]; }

# kernel_root KERNEL: prints the path of the root that has it. Debian replaces the kernel of sid now and then. Results on
# another version must not have this kernel's name.
kernel_root() {
	local root release
	root=$(debian_root "${newer_kernels[$1]}") || return
	release=$(root_release "$root") || return
	[[ $release == "$1".* ]] ||
		die "Debian ${newer_kernels[$1]} has the kernel $release now, not $1; change newer_kernels in scripts/lib/debian-root.sh"
	printf '%s\n' "$root"
}

# root_release ROOT: prints the release of its kernel.
root_release() { basename "$(dirname "$(printf '%s\n' "$1"/lib/modules/*/build | sort -V | tail -n 1)")"; }

# in_root ROOT COMMAND...: the checkout is mounted at its own path in the root, and /proc because objtool reads it. The
# mounts are private, they go when the last process does.
in_root() {
	mkdir -p "$1$repo"
	# shellcheck disable=SC2016 # the new shell expands it
	unshare --mount --propagation private bash -euc '
		mount -t proc proc "$2/proc"
		mount --bind "$1" "$2$1"
		shift
		exec chroot "$@"' - "$repo" "$@"
}

# link_roots SUITE...: makes build/root-SUITE, by which guests find the root (test/guest/helpers/debian.sh).
link_roots() {
	local suite root
	for suite in "$@"; do
		root=$(debian_root "$suite") && ln -sfn "$root" "$build/root-$suite" || return
	done
}

# debian_root SUITE: prints the path of a root with that suite's kernel, its headers and compiler. The name has a hash of the
# list of packages, so that a checkout with another list does not replace a root that is in use.
debian_root() {
	local suite=$1 packages=linux-headers-amd64,gcc,make,libc6-dev root
	((EUID == 0)) || die "only root can make a Debian root for $suite"
	if [[ $suite == trixie ]]; then
		# Its headers bring the kernel with them. It is also where the provider has to run.
		packages+=,g++,meson,ninja-build,pkg-config,libibverbs-dev,catch2,ibverbs-utils,perftest
		packages+=,zlib1g-dev,libnl-genl-3-dev,libcli11-dev,libfmt-dev,nlohmann-json3-dev,python3-pyverbs,iproute2
	else
		packages+=,linux-image-amd64
		# The newest libibverbs.
		[[ $suite != sid ]] || packages+=,ibverbs-utils,perftest
	fi
	root=$(make_cache roots) || return
	root+=/$suite-$(sha256sum <<<"unpacked $packages" | cut -c 1-16)
	[[ -e $root ]] || with_cache_lock "root-$suite" make_root "$suite" "$packages" "$root" || return
	note_use "$root"
	printf '%s\n' "$root"
}

# make_root SUITE PACKAGES ROOT: ROOT exists only when it is complete, because it is made under another name.
# The mirror, and how to reach it, are those of this machine. The release file of sid may be past its date on a
# mirror that lags. The packages are only unpacked, because running their scripts takes twice as long. finish_root
# does what the root needs of these scripts.
make_root() {
	local suite=$1 packages=$2 root=$3 new=$3.new mirror options=() sources
	[[ ! -e $root ]] || return 0
	prune_cache
	need_packages mmdebstrap debian-archive-keyring
	need_space "$(dirname "$root")" 2500 "the Debian root of $suite"
	mirror=$(debian_mirror) || return
	mapfile -t options < <(apt-config dump | sed -n -E '/^Acquire::(https?|Retries)\b.*"."*/s/^/--aptopt=/p')
	# A kernel from the backports runs with the rest of the release. Of what backports have, the newest is taken.
	sources=("deb $mirror $suite main")
	[[ $suite != *-backports ]] || sources+=("deb $mirror ${suite%-backports} main")
	rm -rf "$new"
	with_progress "making the Debian root of $suite" mmdebstrap --variant=extract \
		--include='?essential' --include="$packages" \
		--aptopt='Acquire::Check-Valid-Until "false"' "${options[@]}" \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-include=/usr/share/doc/rdma-core/*' \
		--aptopt="APT::Default-Release \"$suite\"" "$suite" "$new" "${sources[@]}" || die "the Debian root of $suite cannot be made"
	finish_root "$new" || die "the Debian root of $suite cannot be finished"
	mv "$new" "$root" || die "$root cannot be written"
}

# installed_root SUITE PACKAGES: prints the path of a root with these packages. Unlike in the other roots, the scripts of the
# packages have run, so that apt-get can install more there.
installed_root() {
	local root
	((EUID == 0)) || die "only root can make a Debian root of $1"
	root=$(make_cache roots) || return
	root+=/$1-$(sha256sum <<<"installed $2" | cut -c 1-16)
	[[ -e $root ]] || with_cache_lock "root-$1-installed" install_root "$1" "$2" "$root" || return
	note_use "$root"
	printf '%s\n' "$root"
}

# install_root SUITE PACKAGES ROOT
install_root() {
	local suite=$1 packages=$2 root=$3 mirror options=()
	[[ ! -e $root ]] || return 0
	prune_cache
	need_packages mmdebstrap debian-archive-keyring
	need_space "$(dirname "$root")" 1500 "a Debian root of $suite"
	mirror=$(debian_mirror) || return
	mapfile -t options < <(apt-config dump | sed -n -E '/^Acquire::(https?|Retries)\b.*"."*/s/^/--aptopt=/p')
	rm -rf "$root.new"
	with_progress "installing a Debian root of $suite" mmdebstrap --variant=apt --include="$packages" \
		"${options[@]}" "$suite" "$root.new" "deb $mirror $suite main" || die "the Debian root of $suite cannot be made"
	mv "$root.new" "$root" || die "$root cannot be written"
}

# finish_root ROOT: does what the scripts of the packages would do. It makes the links that compiling needs, the list of the
# kernel's modules and the kernel in /boot, which sid's package keeps beside the modules. It compiles the Python modules,
# because a guest would compile them again in each run.
finish_root() {
	local root=$1 link release
	release=$(root_release "$root")
	for link in awk:mawk cc:gcc c++:g++; do
		ln -s "${link#*:}" "$root/usr/bin/${link%:*}" || return
	done
	[[ -e $root/boot/vmlinuz-$release ]] ||
		ln "$root/usr/lib/modules/$release/vmlinuz" "$root/boot/vmlinuz-$release" || return
	chroot "$root" depmod "$release" || return
	[[ ! -e $root/usr/bin/python3 ]] || chroot "$root" sh -c 'python3 -m compileall -q /usr/lib/python3*'
}

# Where this machine gets Debian itself from, not its updates.
debian_mirror() {
	local release mirror
	release=$(. /etc/os-release && echo "$VERSION_CODENAME")
	# shellcheck disable=SC2016 # apt expands it
	mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(SITE)' 'Created-By: Packages' |
		awk -v release="$release" '$1 == release && $2 == "main" { print $3; exit }')
	[[ -n $mirror ]] || die "apt on this machine has no source of Debian $release; run apt-get update"
	printf '%s\n' "$mirror"
}
