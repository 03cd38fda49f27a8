# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Builds the kernel modules and the userspace part below build/. make and ninja decide what has
# to be redone; a build that fails prints the compiler's output. Installs nothing into this system.
# Needs common.sh, for modules debug-kernel.sh too.

build_packages=(gcc g++ make linux-headers-amd64 meson ninja-build pkg-config libibverbs-dev
	librdmacm-dev libnl-3-dev libnl-genl-3-dev libnl-route-3-dev catch2 zlib1g-dev)

# The newest 6.1 kernel whose headers are installed here.
headers_release() {
	local folders
	folders=$(printf '%s\n' /lib/modules/6.1*/build | sort -V | tail -n 1)
	[[ -e $folders/Makefile ]] || die "the headers of a 6.1 kernel are missing; install linux-headers-amd64 of Debian 12"
	basename "$(dirname "$folders")"
}

have_modules() { [[ -e $repo/kernel/Kbuild ]]; }

have_userspace() { [[ -e $repo/meson.build ]]; }

# farm_sources FOLDER: kernel/ and include/ side by side as links, so that objects stay out of the sources.
farm_sources() {
	mkdir -p "$1/kernel"
	cp -rsf "$repo/kernel/." "$1/kernel/"
	ln -sfn "$repo/include" "$1/include"
	find "$1/kernel" -xtype l -delete
}

# make_modules FOLDER KBUILD [MAKE-ARGUMENT...]: FOLDER/kernel/peal.ko and peal_door.ko.
make_modules() {
	local folder=$1 kbuild=$2
	shift 2
	farm_sources "$folder"
	quietly make -C "$kbuild" M="$folder/kernel" -j"$(nproc)" "$@" modules ||
		die "the kernel modules do not build against $kbuild"
}

# setup_user FOLDER [MESON-ARGUMENT...]
setup_user() {
	local folder=$1
	shift
	[[ -e $folder/build.ninja ]] && return
	quietly meson setup "$@" "$folder" "$repo" ||
		die "meson could not set up $folder"
}

make_user() {
	setup_user "$@"
	quietly ninja -C "$1" || die "the userspace part does not build in $1"
}

# kernel_tree KERNEL: prints the tree that modules are built against.
kernel_tree() {
	if is_debug_kind "$1"; then
		echo "$(fetch_debug_kernel "$1")/tree"
	else
		echo "/lib/modules/$(headers_release)/build"
	fi
}

# What make is told besides.
module_arguments=()

# build_modules KERNEL: 6.1, debug or races.
build_modules() {
	have_modules || return 0
	with_lock "kernel-$1" make_modules "$build/kernel-$1" "$(kernel_tree "$1")" "${module_arguments[@]}"
}

# The modules with which t_kernel_user.sh tests the verbs as a kernel user, and t_nomem.cpp makes allocations fail.
make_test_module() {
	local folder=$1
	mkdir -p "$folder"
	cp -rsf "$repo/test/guest/kmod/." "$folder/"
	quietly make -C "$2" M="$folder" modules || die "the test modules do not build against $2"
}

build_test_module() {
	with_lock "ktest-$1" make_test_module "$build/kernel-$1/ktest" "$(kernel_tree "$1")"
}

build_user() {
	have_userspace || return 0
	with_lock user make_user "$build/user" -Dbuildtype=debugoptimized
}
