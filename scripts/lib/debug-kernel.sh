# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Provides the kernels that check themselves, "debug" and "races". They are Debian's 6.1 source with the configurations
# test/debug/{base,KIND}.config. Each configuration is built once, in the cache. The folder looks like that of
# fetch_kernel, with the built tree beside it.
# Needs common.sh and build.sh.

debug_source=linux-source-6.1
debug_packages=("$debug_source" gcc make flex bison bc libelf-dev xz-utils kmod)
# How many times longer than on a stock kernel a test may take.
declare -A debug_slowness=([debug]=4 [races]=2)
# Arguments of make for the kernel itself. Modules are built with what the configuration offers.
declare -A debug_arguments=([races]=KCSAN_SANITIZE=n)

is_debug_kind() { [[ ${debug_slowness[$1]:-} ]]; }

# fetch_debug_kernel KIND: prints the folder that has release, boot/vmlinuz-*, lib/modules/* and tree/.
fetch_debug_kernel() {
	local folder wishes
	wishes=$(grep -h CONFIG_ "$repo"/test/debug/{base,"$1"}.config)
	folder=$(make_cache "kernel-$1-$(sha256sum <<<"$wishes" | cut -c 1-16)")
	[[ -e $folder/complete ]] || with_cache_lock "kernel-$1" build_debug_kernel "$1" "$folder" "$wishes"
	printf '%s\n' "$folder"
}

# build_debug_kernel KIND FOLDER WISHES: callers may be part of a condition, in which errexit does not work, so each command
# that can fail is checked. make drops a wish silently when other options rule it out.
build_debug_kernel() {
	local kind=$1 folder=$2 begin=$SECONDS wish ignored=()
	[[ ! -e $folder/complete ]] || return 0
	prune_cache
	need_packages "${debug_packages[@]}"
	need_space "$folder" 4000 "building the $kind kernel"
	say "building the $kind kernel (once, 10 to 20 minutes on two cores)"
	rm -rf "$folder/tree"
	mkdir -p "$folder/tree" "$folder/boot" || die "$folder cannot be written"
	tar -xf "/usr/src/$debug_source.tar.xz" --strip-components=1 -C "$folder/tree" ||
		die "the kernel's source cannot be unpacked in $folder"
	printf '%s\n' "$3" >"$folder/wishes"
	quietly make -C "$folder/tree" KCONFIG_ALLCONFIG="$folder/wishes" allnoconfig || die "the $kind kernel's configuration fails"
	while read -r wish; do
		[[ $wish != CONFIG_* ]] || grep -qxF "$wish" "$folder/tree/.config" || ignored+=("$wish")
	done <<<"$3"
	((!${#ignored[@]})) || die "the $kind kernel cannot have: ${ignored[*]}"
	with_progress "compiling the $kind kernel" \
		make -C "$folder/tree" -j"$(nproc)" ${debug_arguments[$kind]:+"${debug_arguments[$kind]}"} bzImage modules ||
		die "the $kind kernel does not build"
	install_debug_kernel "$folder" || die "the $kind kernel cannot be installed in $folder"
	touch "$folder/complete"
	say "the $kind kernel took $((SECONDS - begin)) s"
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
