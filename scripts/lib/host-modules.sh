# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Builds peal for the running kernel, loads what a measurement on this machine needs, and unloads at the script's end what it has
# loaded. Measures nothing.
# Needs common.sh and build.sh.

release=$(uname -r)
loaded=()

# remember MODULE...: unload removes these, too, unless they are loaded already. Others may load them later, or nobody.
remember() {
	local module
	for module in "$@"; do
		[[ -e /sys/module/$module ]] || loaded+=("$module")
	done
}

# load MODULE...: loads the modules that are not loaded yet, and remembers them for unload.
load() {
	local module
	for module in "$@"; do
		[[ ! -e /sys/module/${module//-/_} ]] || continue
		modprobe "$module" 2>/dev/null || return 1
		loaded+=("$module")
	done
}

load_file() {
	local name
	name=$(basename "$1" .ko)
	[[ ! -e /sys/module/$name ]] || die "$name is loaded already; remove its devices and rmmod it first"
	insmod "$1" || die "this kernel refuses $name.ko; dmesg says why"
	loaded+=("$name")
}

# A module that is unloaded takes its devices with it, also those that another program has made meanwhile.
is_used() {
	case $1 in
	veth) [[ $(ip -o link show type veth) ]] ;;
	rdma_rxe | siw) [[ $(rdma link show) ]] ;;
	*) false ;;
	esac
}

unload() {
	local i
	for ((i = ${#loaded[@]} - 1; i >= 0; i--)); do
		! is_used "${loaded[i]}" || continue
		modprobe -r "${loaded[i]}" 2>/dev/null || rmmod "${loaded[i]}" 2>/dev/null || true
	done
}

# load_peal SCRIPT: builds and loads the modules of peal. SCRIPT is what to run instead on a kernel that cannot load them.
load_peal() {
	local folder=$build/kernel-$release/kernel
	((EUID == 0)) || die "only root can load modules"
	[[ -e /proc/modules ]] || die "this kernel takes no modules; run $1 without --host"
	need_packages "${build_packages[@]}" kmod iproute2 rdma-core ibverbs-utils ibverbs-providers perftest
	[[ -e /lib/modules/$release/build ]] || need_packages "linux-headers-$release"
	with_lock "kernel-$release" make_modules "$build/kernel-$release" "/lib/modules/$release/build"
	build_provider
	trap unload EXIT
	remember configfs crc32_generic crc32_pclmul ib_core iw_cm ib_cm
	load ib_core ib_uverbs rdma_cm || die "this kernel has no RDMA core modules; run $1 without --host"
	load_file "$folder/peal_kick_file.ko"
	load_file "$folder/peal.ko"
	remember veth rdma_ucm rdma_rxe siw sch_netem sch_tbf sch_red udmabuf
}
