# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Provides the debug kernel: Debian's 6.1 source with the configuration in test/debug/kernel.config, built once for
# each configuration in the cache. The folder looks like that of fetch_kernel, with the built tree beside it.
# Needs common.sh.

debug_source=linux-source-6.1
debug_packages=("$debug_source" gcc make flex bison bc libelf-dev xz-utils kmod)
debug_config=$repo/test/debug/kernel.config
# How many times longer than on a stock kernel a test may take.
debug_slowness=4

# debug_kernel_folder: prints where it is, or will be.
debug_kernel_folder() {
	make_cache "kernel-debug-$(sha256sum <"$debug_config" | cut -c 1-16)"
}

# fetch_debug_kernel: prints the folder that holds release, boot/vmlinuz-*, lib/modules/* and tree/.
fetch_debug_kernel() {
	local folder
	folder=$(debug_kernel_folder)
	[[ -e $folder/complete ]] || with_lock debug-kernel build_debug_kernel "$folder"
	printf '%s\n' "$folder"
}

build_debug_kernel() {
	local folder=$1 begin=$SECONDS
	[[ ! -e $folder/complete ]] || return 0
	need_packages "${debug_packages[@]}"
	need_space "$folder" 4000 "building the debug kernel"
	say "building the debug kernel (once, 10 to 20 minutes on two cores)"
	rm -rf "$folder/tree"
	mkdir -p "$folder/tree" "$folder/boot"
	tar -xf "/usr/src/$debug_source.tar.xz" --strip-components=1 -C "$folder/tree"
	configure_debug_kernel "$folder/tree"
	quietly make -C "$folder/tree" -j"$(nproc)" bzImage modules || die "the debug kernel does not build"
	install_debug_kernel "$folder"
	touch "$folder/complete"
	say "the debug kernel took $((SECONDS - begin)) s"
}

# A wish that the other options do not allow would otherwise be dropped in silence.
configure_debug_kernel() {
	local wish ignored=()
	quietly make -C "$1" KCONFIG_ALLCONFIG="$debug_config" allnoconfig || die "the debug kernel's configuration fails"
	while read -r wish; do
		[[ $wish != CONFIG_* ]] || grep -qxF "$wish" "$1/.config" || ignored+=("$wish")
	done <"$debug_config"
	((!${#ignored[@]})) || die "the debug kernel cannot have: ${ignored[*]}"
}

# Objects are not needed any more; what builds modules outside of the tree stays.
install_debug_kernel() {
	local folder=$1 release
	release=$(make -s -C "$folder/tree" kernelrelease)
	cp "$folder/tree/arch/x86/boot/bzImage" "$folder/boot/vmlinuz-$release"
	quietly make -C "$folder/tree" INSTALL_MOD_PATH="$folder" modules_install ||
		die "the debug kernel's modules cannot be installed"
	printf '%s\n' "$release" >"$folder/release"
	(
		cd "$folder/tree" || exit
		find . \( -name '*.o' -o -name '*.a' -o -name '*.cmd' \) -not -path './scripts/*' -not -path './tools/*' -delete
		rm -rf vmlinux arch/x86/boot Documentation drivers/gpu sound
	)
}
