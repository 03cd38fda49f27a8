# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Provides what a VM boots: a stock Debian kernel, unpacked in the cache, an initrd of a few modules, and a module
# folder that has peal's modules too. It never touches this system's /boot and boot loader.
# Needs common.sh and build.sh.

# Modules that stage 1 of the guest needs to reach the host's files.
initrd_modules=(virtio_pci 9pnet_virtio 9p overlay virtio_console)
# Modules for the image of guest-image.sh. A kernel without them sees only the host's files.
image_modules=(virtio_blk erofs)

# fetch_kernel RELEASE: prints the folder that has boot/vmlinuz-RELEASE and lib/modules/RELEASE.
fetch_kernel() {
	local release=$1 folder
	folder=$(make_cache "kernel-$1")
	[[ -e $folder/complete ]] || with_cache_lock "fetch-$release" unpack_kernel "$release" "$folder"
	printf '%s\n' "$folder"
}

unpack_kernel() {
	local release=$1 folder=$2 version download
	[[ ! -e $folder/complete ]] || return 0
	need_space "$folder" 700 "unpacking the kernel"
	version=$(dpkg-query -W -f '${Version}' "linux-headers-$release")
	download=$(mktemp -d)
	(with_cache_lock packages download_package "$download" "linux-image-$release=$version") || return
	with_progress "unpacking the Debian kernel $release" dpkg -x "$download"/*.deb "$folder" ||
		die "the kernel package cannot be unpacked in $folder"
	rm -rf "$download"
	with_progress "listing the modules of $release" depmod -b "$folder" "$release"
	touch "$folder/complete"
}

# download_package FOLDER NAME=VERSION: the caller holds the lock "packages", because another script may update the lists.
download_package() {
	local fetch=("${apt_get[@]}" -o APT::Sandbox::User=root download "$2")
	cd "$1" || return
	with_progress "fetching the Debian package ${2%%=*}" "${fetch[@]}" && return
	((EUID != 0)) || update_packages
	with_progress "fetching the Debian package ${2%%=*}" "${fetch[@]}" ||
		die "$2 cannot be downloaded; run apt-get update && apt-get install linux-headers-amd64, so that headers and mirror agree"
}

# unpacked_kernel RELEASE FOLDER: prints the path of the kernel without its compression, because an emulated processor takes
# 3 s to decompress it.
unpacked_kernel() {
	local image=$2/boot/vmlinuz-$1 kernel=$2/vmlinux-$1
	if [[ ! -e $kernel ]]; then
		"$repo/scripts/lib/unpack-kernel" "$image" >"$kernel.$$" || die "$image cannot be unpacked"
		mv "$kernel.$$" "$kernel"
	fi
	printf '%s\n' "$kernel"
}

# make_initrd RELEASE FOLDER: prints the path of an initrd with busybox, guest-init, and initrd_modules with the modules that they
# need, numbered in loading order.
make_initrd() {
	local release=$1 folder=$2 sum initrd stage module number=100
	sum=$(cat "$repo/scripts/lib/guest-init" "$repo/scripts/lib/kernel.sh" | sha256sum | cut -c 1-16)
	initrd=$folder/initrd-$sum
	if [[ ! -e $initrd ]]; then
		stage=$(mktemp -d)
		mkdir -p "$stage"/{bin,proc,sys,dev,modules,image,lower,upper,newroot}
		cp "$(command -v busybox)" "$stage/bin/busybox"
		while read -r module; do
			number=$((number + 1))
			xzcat -f "$module" >"$stage/modules/$number.ko"
		done < <({
			for module in "${initrd_modules[@]}"; do
				modprobe -d "$folder" -S "$release" --show-depends "$module"
			done
			for module in "${image_modules[@]}"; do
				modprobe -q -d "$folder" -S "$release" --show-depends "$module" || true
			done
		} | awk '$1 == "insmod" && !seen[$2]++ { print $2 }')
		install -m 755 "$repo/scripts/lib/guest-init" "$stage/init"
		(cd "$stage" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$initrd.$$"
		mv "$initrd.$$" "$initrd"
		rm -rf "$stage"
	fi
	printf '%s\n' "$initrd"
}

# stage_modules RELEASE FOLDER BUILT: prints the guest's module folder. It has the kernel's own modules, and below
# extra/ those modules of peal and its tests that are built in BUILT.
stage_modules() {
	local release=$1 folder=$2 built=$3
	with_lock modules link_modules "$folder/lib/modules/$release" "$release" "$built"
	printf '%s\n' "$built/root/lib/modules/$release"
}

link_modules() {
	local from=$1 release=$2 built=$3 module to changed=0
	to=$built/root/lib/modules/$release
	mkdir -p "$to/extra"
	ln -sfn "$from/kernel" "$to/kernel"
	cp "$from"/modules.{order,builtin,builtin.modinfo} "$to/"
	for module in "$built"/kernel/*.ko "$built"/ktest/*.ko; do
		[[ -e $module ]] || continue
		cmp -s "$module" "$to/extra/${module##*/}" && continue
		# A new file replaces the old one, so that a running VM keeps the module that it started with.
		cp --remove-destination "$module" "$to/extra/"
		changed=1
	done
	if ((changed)) || [[ ! -e $to/modules.dep.bin ]]; then
		depmod -b "$built/root" "$release"
	fi
}
