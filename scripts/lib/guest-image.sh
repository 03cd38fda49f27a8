# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Provides a file system image with the programs and libraries of the Debian packages that guests use. A guest lays it over
# the host's files, which it sees over 9p. To start a program takes about 40 requests over 9p, which is half of the time
# that the start takes under emulation, and the image answers them in the guest. All other files still come over 9p.
# Needs common.sh and build.sh. Needs root.

# What mkfs.erofs is part of.
image_packages=(erofs-utils)
# They depend on the libraries of the test programs.
library_packages=(libstdc++6 libibverbs-dev librdmacm-dev libnl-genl-3-dev libnl-route-3-dev libfmt-dev zlib1g-dev)

# Files that no guest needs, and those that may differ from their package.
image_omits='^/usr/(include|src|lib/modules|share/(doc|man|info|lintian|bug|icons|fonts|locale/[^/]+))/|^/(etc|var|boot)/'

# guest_image: prints the path of the image. Its name has a hash of the versions of all packages in it and of this file, so that
# an upgrade of one of them makes another image.
guest_image() {
	local image versions
	# shellcheck disable=SC2016 # dpkg-query expands it
	versions=$(packages_of_guests | xargs dpkg-query -W -f '${Package} ${Version}\n')
	image=$(make_cache images)/$(cat - "$repo/scripts/lib/guest-image.sh" <<<"$versions" | sha256sum | cut -c 1-16).erofs
	[[ -e $image ]] || with_cache_lock image make_image "$image" || return
	note_use "$image"
	printf '%s\n' "$image"
}

# packages_of_guests: lists the installed packages that guests use, with all that they depend on.
packages_of_guests() {
	# shellcheck disable=SC2016 # dpkg-query expands it
	dpkg-query -W -f '${db:Status-Status}\t${Package}\t${Essential}\t${Provides}\t${Pre-Depends}, ${Depends}\n' |
		awk -F '\t' -v wanted="${vm_packages[*]} ${guest_packages[*]} ${library_packages[*]}" '
			function take(name, list, count, n) {
				if (name in taken || name ~ /^qemu-system/)
					return
				taken[name]
				if (name in provider)
					take(provider[name])
				if (!(name in needs))
					return
				print name
				count = split(needs[name], list, /[ ,|]+/)
				for (n = 1; n <= count; n++)
					take(list[n])
			}
			$1 == "installed" {
				gsub(/\([^)]*\)|:[a-z0-9]+/, "")
				needs[$2] = $5
				if ($3 == "yes")
					wanted = wanted " " $2
				count = split($4, provided, /[ ,]+/)
				for (n = 1; n <= count; n++)
					if (provided[n])
						provider[provided[n]] = $2
			}
			END {
				count = split(wanted, list, " ")
				for (n = 1; n <= count; n++)
					take(list[n])
			}' | sort
}

# make_image IMAGE: the files keep their times, because Python compiles a module again whose time has changed.
make_image() {
	local image=$1 stage
	[[ ! -e $image ]] || return 0
	need_packages "${image_packages[@]}"
	find "$(dirname "$image")" -name '*.erofs' -mtime +30 -delete
	need_space "$(dirname "$image")" 2000 "the image of the guests' programs"
	stage=$(mktemp -d "$image.XXXX")
	files_of_image >"$stage/list"
	mkdir "$stage/files"
	with_progress "making the image of the guests' programs" fill_image "$stage" "$image.$$" ||
		die "the image of the guests' programs cannot be made"
	rm -rf "$stage"
	mv "$image.$$" "$image"
}

# files_of_image: lists the files, as paths from the root. Packages may name /bin/NAME what is /usr/bin/NAME.
files_of_image() {
	local link folders='' path
	for link in bin sbin lib lib64; do
		[[ ! -L /$link ]] || folders+=${folders:+|}$link
	done
	{
		tr '|' '\n' <<<"$folders"
		packages_of_guests | xargs dpkg-query -L | sed -E "s,^/($folders)/,/usr/\1/,; /^\/($folders)$/d" |
			grep -v -E "$image_omits" | sort -u | while read -r path; do
			[[ ! -L $path && ! -f $path ]] || printf '%s\n' "${path#/}"
		done
		find /usr/lib/python3* -name '*.pyc' | sed 's,^/,,'
	} | sort -u
}

fill_image() {
	tar -C / --no-recursion --xattrs --xattrs-include='*' -c -T "$1/list" |
		tar -C "$1/files" --xattrs --xattrs-include='*' -x -p &&
		mkfs.erofs -E force-inode-extended "$2" "$1/files"
}
