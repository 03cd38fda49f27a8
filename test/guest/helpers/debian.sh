# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs programs of Debian 13 and sid on the guest's kernel, in the Debian roots that scripts/test makes. They load the provider
# that was compiled for this machine. Needs lib.sh.

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)

debian_root() { readlink "$checkout/build/root-$1"; }

# use_debian SUITE...: makes the folders that programs need appear in the roots of trixie and sid.
use_debian() {
	local suite folder root
	for suite in "$@"; do
		root=$(debian_root "$suite") || skip "there is no root of $suite; scripts/test makes it"
		for folder in dev proc sys tmp; do
			mount --rbind "/$folder" "$root/$folder" || fail "cannot mount /$folder into the root"
		done
		mkdir -p "$root$checkout"
		mount --bind "$checkout" "$root$checkout" || fail "cannot mount the checkout into the root"
	done
}

# in_debian SUITE COMMAND...
in_debian() {
	IBV_DRIVERS=$checkout/build/user/userspace/provider/libpeal chroot "$(debian_root "$1")" "${@:2}"
}
