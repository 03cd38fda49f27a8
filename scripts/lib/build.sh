# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Builds the kernel modules and the userspace part below build/. make and ninja decide what to rebuild. A build that
# fails prints the compiler's output. Installs nothing into this system.
# Needs common.sh, and debug-kernel.sh and debian-root.sh for modules.

# Packages for the modules and the provider, for the tests, and for a virtual machine.
build_packages=(gcc g++ make linux-headers-amd64 meson ninja-build pkg-config libibverbs-dev
	libnl-genl-3-dev libcli11-dev libfmt-dev nlohmann-json3-dev)
test_packages=(catch2 cmake libnl-3-dev libnl-route-3-dev librdmacm-dev zlib1g-dev)
# A faster compiler and linker, for tests. They have sanitizers and libFuzzer, too.
clang_packages=(clang libclang-rt-14-dev lld llvm)
vm_packages=(qemu-system-x86 busybox-static python3 xz-utils zstd kmod mount hostname iproute2 rdma-core ibverbs-utils
	ibverbs-providers perftest)
# Packages that the guest tests need in addition to those of a virtual machine.
guest_packages=(procps e2fsprogs strace rdmacm-utils infiniband-diags open-iscsi python3-pyverbs python3-scapy nftables
	iptables ethtool tcpdump tshark)

# Prints the newest 6.1 kernel whose headers are installed here.
headers_release() {
	local folders
	folders=$(printf '%s\n' /lib/modules/6.1*/build | sort -V | tail -n 1)
	[[ -e $folders/Makefile ]] || die "the headers of a 6.1 kernel are missing; install linux-headers-amd64 of Debian 12"
	basename "$(dirname "$folders")"
}

# How meson sets a folder up. Without this option, a quarter of the compiler's work on a file of C++ tests is for names of
# variables, and backtraces do not need them.
user_arguments=(-Dbuildtype=debugoptimized -Dcpp_args=-g1)

# farm_sources FOLDER: links kernel/ and include/ side by side, so that objects stay out of the sources. Objects that
# make has left among the sources, perhaps of another kernel, stay out of FOLDER.
farm_sources() {
	local folder
	while read -r folder; do
		mkdir -p "$1/$folder"
		find "$repo/$folder" -maxdepth 1 \( -name '*.[chS]' ! -name '*.mod.c' -o -name Kbuild \) \
			-exec cp -sf -t "$1/$folder" {} +
	done < <(cd "$repo" && find kernel -type d)
	ln -sfn "$repo/include" "$1/include"
	find "$1/kernel" -xtype l -delete
}

# The make that compiles modules.
module_make=(make)

# make_modules FOLDER KBUILD [MAKE-ARGUMENT...]: makes FOLDER/kernel/peal.ko and peal_kick_file.ko.
make_modules() {
	local folder=$1 kbuild=$2
	shift 2
	farm_sources "$folder"
	with_progress "compiling the kernel modules" \
		"${module_make[@]}" -C "$kbuild" M="$folder/kernel" -j"$(nproc)" "$@" modules ||
		die "the kernel modules do not build against $kbuild"
}

# setup_user FOLDER [MESON-ARGUMENT...]: sets the folder up with the tests, even if it was set up without them.
setup_user() {
	local folder=$1
	shift
	if [[ ! -e $folder/build.ninja ]]; then
		with_progress "configuring ${folder##*/}" meson setup "$@" "$folder" "$repo" ||
			die "meson could not set up $folder"
	elif ! has_tests "$folder"; then
		with_progress "configuring the tests" meson setup --reconfigure "$@" -Dtests=true "$folder" "$repo" ||
			die "meson could not set up $folder with the tests"
	fi
}

# with_clang COMMAND...: meson, which the command runs, reads these names.
with_clang() {
	need_packages "${clang_packages[@]}"
	CC=clang CXX=clang++ CC_LD=lld CXX_LD=lld "$@"
}

# has_tests FOLDER: whether it was set up with the tests, and with all that they need.
has_tests() { grep -q '^build test/unit/ring-test:' "$1/build.ninja" 2>/dev/null; }

# make_user FOLDER [MESON-ARGUMENT...]: builds what users get, the programs of test/bench, and those of the guests that use
# libpeal. Meson compiles the unit tests when it runs them.
make_user() {
	setup_user "$@"
	with_progress "compiling the provider" ninja -C "$1" installed bench guest-library ||
		die "the userspace part does not build in $1"
}

# make_guest FOLDER [MESON-ARGUMENT...]: builds the other programs that run in guests.
make_guest() {
	with_clang setup_user "$@"
	with_progress "compiling the guest tests" ninja -C "$1" guest ||
		die "the guest tests do not build in $1"
}

# make_provider FOLDER [MESON-ARGUMENT...]: builds only the provider and the tool. The folder may have tests.
make_provider() {
	local folder=$1
	if [[ ! -e $folder/build.ninja ]]; then
		with_progress "configuring the provider" meson setup "${@:2}" -Dtests=false "$folder" "$repo" ||
			die "meson could not set up $folder"
	fi
	with_progress "compiling the provider" ninja -C "$folder" installed ||
		die "the provider does not build in $folder"
}

# Further arguments of make.
module_arguments=()

# choose_tree KERNEL: sets tree, which modules are built against, and how make is called. A newer kernel's tree is in
# its root. A warning is a failure on Debian's kernels. Callers are often part of a condition, in which errexit does not work.
choose_tree() {
	local root
	if is_debug_kind "$1"; then
		tree=$(fetch_debug_kernel "$1")/tree || return
		return
	fi
	module_arguments+=(KCFLAGS=-Werror)
	if is_newer_kernel "$1"; then
		root=$(kernel_root "$1") || return
		tree=/lib/modules/$(root_release "$root")/build
		module_make=(in_root "$root" make)
	else
		tree=/lib/modules/$(headers_release)/build || return
	fi
}

# build_modules KERNEL: KERNEL is 6.1, 6.12, 7.2, 7.3, debug or races.
build_modules() {
	local tree module_make=("${module_make[@]}") module_arguments=("${module_arguments[@]}")
	choose_tree "$1" || return
	with_lock "kernel-$1" make_modules "$build/kernel-$1" "$tree" "${module_arguments[@]}"
}

# Builds the modules of test/guest/helpers/kmod. With them, verbs/kernel_user tests the verbs as a kernel user,
# lifecycle/allocations_fail makes allocations fail, and verbs/dma_buffers has buffers that move.
make_test_module() {
	local folder=$1
	mkdir -p "$folder"
	cp -rsf "$repo/test/guest/helpers/kmod/." "$folder/"
	with_progress "compiling the test modules" "${module_make[@]}" -C "$2" M="$folder" modules ||
		die "the test modules do not build against $2"
}

build_test_module() {
	local tree module_make=("${module_make[@]}") module_arguments=()
	choose_tree "$1" || return
	with_lock "ktest-$1" make_test_module "$build/kernel-$1/ktest" "$tree"
}

# What users get is compiled as in debian/rules, several files of a library together. The headers take most of the time.
installed_arguments=("${user_arguments[@]}" -Dunity=on -Dunity_size=8)

# Builds the provider and the guest tests. The tests have a folder of their own, because clang compiles them in less than half
# the time that gcc takes. Users get what gcc compiles.
build_user() {
	with_lock user make_user "$build/user" "${installed_arguments[@]}" &&
		with_lock guest make_guest "$build/guest" "${user_arguments[@]}"
}

build_provider() {
	with_lock user make_provider "$build/user" "${installed_arguments[@]}"
}

# Builds the provider with the compiler and the headers of Debian 13, as a check.
build_debian13() {
	local root
	root=$(debian_root trixie) || return
	with_lock user-trixie make_debian13 "$root" "$build/user-trixie"
}

# make_debian13 ROOT FOLDER: FOLDER/root has the path of the root, because another root may have other libraries.
make_debian13() {
	local root=$1 folder=$2
	[[ $(cat "$folder/root" 2>/dev/null) == "$root" ]] || rm -rf "$folder"
	if [[ ! -e $folder/build.ninja ]]; then
		with_progress "configuring the provider for Debian 13" in_root "$root" meson setup "${user_arguments[@]}" \
			"$folder" "$repo" || return
		printf '%s\n' "$root" >"$folder/root"
	fi
	with_progress "compiling the provider for Debian 13" in_root "$root" meson compile -C "$folder" installed
}
