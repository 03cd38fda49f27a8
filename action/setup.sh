#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Gives a machine of a CI service an RDMA device: installs peal's packages, adds a device, and examines it. Needs root (sudo) on
# Debian 12 or later, or on Ubuntu 24.04 or later. action.yml calls it on GitHub; other services may call it by themselves.
#
#   action/setup.sh --packages FOLDER [--netdev DEV] [--name NAME] [--cache FOLDER]
#
#   --packages FOLDER  has the packages that scripts/package made
#   --netdev DEV       the netdev of the device; without it the one of the default route, or else lo
#   --name NAME        the name of the device, otherwise peal0
#   --cache FOLDER     where the modules are kept after dkms has compiled them for this kernel. If they are there, they are
#                      installed, and neither dkms nor a compiler is
#
# Prints the lines "device=NAME" and "gid-index=N" at the end, of a GID with an IPv4 address if the netdev has one. Fails with a
# sentence that says what to do, or with what "peal doctor" finds.
set -euo pipefail

packages=
netdev=
name=peal0
cache=
while (($#)); do
	case $1 in
	--packages | --netdev | --name | --cache)
		[[ ${2:-} ]] || { echo "setup.sh: $1 needs a value" >&2 && exit 2; }
		printf -v "${1#--}" '%s' "$2"
		shift 2
		;;
	*)
		sed -n '6,17s/^# \?//p' "$0" >&2
		exit 2
		;;
	esac
done

fail() {
	echo "setup.sh: $*" >&2
	exit 1
}

# step TEXT COMMAND...: the command's output is shown only if it fails.
step() {
	local text=$1 log
	shift
	log=$(mktemp)
	echo "$text"
	if ! "$@" >"$log" 2>&1; then
		cat "$log" >&2
		fail "$text: failed with the lines above"
	fi
	rm -f "$log"
}

# package NAME: prints its file.
package() {
	local files=("$packages/$1"_*.deb)
	[[ ${#files[@]} == 1 && -e ${files[0]} ]] || fail "$packages should have one package $1; scripts/package makes it"
	echo "$(cd "$packages" && pwd)/${files[0]##*/}"
}

# install_packages PACKAGE...: the lists of packages of a machine may name files that the archive does not have any more.
install_packages() {
	export DEBIAN_FRONTEND=noninteractive
	apt-get -q -y --no-install-recommends install "$@" ||
		{ apt-get -q update && apt-get -q -y --no-install-recommends install "$@"; }
}

((EUID == 0)) || fail "run it as root (sudo)"
[[ -d $packages ]] || fail "name a folder with peal's packages by --packages; scripts/package makes them in build/packages"
release=$(uname -r)
provider=$(package ibverbs-provider-peal)
tools=$(package peal-tools)
dkms=$(package peal-dkms)
version=$(dpkg-deb -f "$dkms" Version)
modules=(peal peal_kick_file)
built=${cache:+$cache/$version/$release}
target=/lib/modules/$release/updates/dkms

# Some services leave the RDMA core to a package of its own.
if ! modinfo ib_uverbs >/dev/null 2>&1; then
	step "installing the kernel's RDMA core" install_packages "linux-modules-extra-$release"
fi
step "installing the provider and the tool" install_packages "$provider" "$tools" ibverbs-utils
if [[ $built && -e $built/complete ]]; then
	mkdir -p "$target"
	cp "$built"/*.ko* "$target/"
	depmod "$release"
	echo "using the modules in $built"
else
	step "compiling the modules for $release" install_packages "$dkms" "linux-headers-$release"
	if [[ $built ]]; then
		mkdir -p "$built"
		for module in "${modules[@]}"; do
			cp "$target/$module".ko* "$built/" || fail "dkms has not made $module; see /var/lib/dkms/peal"
		done
		touch "$built/complete"
	fi
fi
modprobe -a peal ib_uverbs rdma_ucm ||
	fail "the modules do not load; with Secure Boot the machine must know the key of dkms (Documentation/administration.rst)"

[[ $netdev ]] || netdev=$(ip -o route show default | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1)
netdev=${netdev:-lo}
[[ -e /sys/class/net/$netdev ]] || fail "there is no netdev $netdev; there are: $(cd /sys/class/net && echo *)"
[[ -e /sys/class/infiniband/$name ]] || peal link add "$name" netdev "$netdev"

# port_is_active: a netdev that was just set up needs a moment.
port_is_active() { grep -q ACTIVE "/sys/class/infiniband/$name/ports/1/state"; }
for ((tries = 0; tries < 100; tries++)); do
	! port_is_active || break
	sleep 0.1
done
port_is_active || fail "the port of $name is not active; type \"ip link set $netdev up\""
peal doctor || fail "\"peal doctor\" has found the problem above"

# An IPv4 address is in a GID as ::ffff:a.b.c.d.
index=0
for file in "/sys/class/infiniband/$name/ports/1/gids/"*; do
	number=${file##*/}
	gid=$(cat "$file" 2>/dev/null) || continue
	[[ $gid != 0000:0000:0000:0000:0000:ffff:* ]] || { index=$number && break; }
done
echo "device=$name"
echo "gid-index=$index"
