# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Provides the kernels that check themselves, "debug" and "races". They are Debian's 6.1 source with the configurations
# test/debug/{base,KIND}.config. Each configuration is built once, in the cache. The folder looks like that of
# fetch_kernel, with the built tree beside it.
# Needs common.sh and build.sh.

debug_source=linux-source-6.1
debug_packages=("$debug_source" gcc make flex bison bc libelf-dev xz-utils kmod)
debug_kinds=(debug races)
# How many times longer than on a stock kernel a test may take.
declare -A debug_slowness=([debug]=4 [races]=2)
# Arguments of make for the kernel itself. Modules are built with what the configuration offers.
declare -A debug_arguments=([races]=KCSAN_SANITIZE=n)

is_debug_kind() { [[ " ${debug_kinds[*]} " == *" $1 "* ]]; }

# debug_wishes KIND: prints the options that both files ask for.
debug_wishes() {
	cat "$repo/test/debug/base.config" "$repo/test/debug/$1.config" | grep CONFIG_
}

# fetch_debug_kernel KIND: prints the folder that has release, boot/vmlinuz-*, lib/modules/* and tree/.
fetch_debug_kernel() {
	local folder
	folder=$(make_cache "kernel-$1-$(debug_wishes "$1" | sha256sum | cut -c 1-16)")
	[[ -e $folder/complete ]] || with_cache_lock "kernel-$1" build_debug_kernel "$1" "$folder"
	printf '%s\n' "$folder"
}

# Callers may be part of a condition, in which errexit does not work, so each command that can fail is checked.
build_debug_kernel() {
	local kind=$1 folder=$2 begin=$SECONDS
	[[ ! -e $folder/complete ]] || return 0
	prune_cache
	need_packages "${debug_packages[@]}"
	need_space "$folder" 4000 "building the $kind kernel"
	say "building the $kind kernel (once, 10 to 20 minutes on two cores)"
	rm -rf "$folder/tree"
	mkdir -p "$folder/tree" "$folder/boot" || die "$folder cannot be written"
	tar -xf "/usr/src/$debug_source.tar.xz" --strip-components=1 -C "$folder/tree" ||
		die "the kernel's source cannot be unpacked in $folder"
	configure_debug_kernel "$kind" "$folder"
	with_progress "compiling the $kind kernel" compiled_by_make \
		make -C "$folder/tree" -j"$(nproc)" ${debug_arguments[$kind]:+"${debug_arguments[$kind]}"} bzImage modules ||
		die "the $kind kernel does not build"
	install_debug_kernel "$folder" || die "the $kind kernel cannot be installed in $folder"
	touch "$folder/complete"
	say "the $kind kernel took $((SECONDS - begin)) s"
}

# configure_debug_kernel KIND FOLDER: fails when other options rule out a wish, because make
# would drop the wish silently.
configure_debug_kernel() {
	local wish ignored=()
	debug_wishes "$1" >"$2/wishes"
	quietly make -C "$2/tree" KCONFIG_ALLCONFIG="$2/wishes" allnoconfig || die "the $1 kernel's configuration fails"
	while read -r wish; do
		[[ $wish != CONFIG_* ]] || grep -qxF "$wish" "$2/tree/.config" || ignored+=("$wish")
	done <"$2/wishes"
	((!${#ignored[@]})) || die "the $1 kernel cannot have: ${ignored[*]}"
}

# Removes the objects, which are not needed any more. It keeps what builds modules outside of the tree.
install_debug_kernel() {
	local folder=$1 release
	release=$(make -s -C "$folder/tree" kernelrelease) || return
	cp "$folder/tree/arch/x86/boot/bzImage" "$folder/boot/vmlinuz-$release" || return
	quietly make -C "$folder/tree" INSTALL_MOD_PATH="$folder" modules_install || return
	printf '%s\n' "$release" >"$folder/release" || return
	(
		cd "$folder/tree" &&
			find . \( -name '*.o' -o -name '*.a' -o -name '*.cmd' \) \
				-not -path './scripts/*' -not -path './tools/*' -delete &&
			rm -rf vmlinux arch/x86/boot Documentation drivers/gpu sound
	)
}
