# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs programs of Debian 13 on the guest's kernel, in the Debian root that scripts/test makes. They load the
# provider that was compiled there. Needs lib.sh.

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
built=$checkout/build/user-trixie/root
debian13=$(cat "$built" 2>/dev/null) || skip "no Debian 13 root; scripts/test kernels makes it"
[[ ! $(find "$checkout"/{userspace,include,meson.build} -newer "$built" -print -quit) ]] ||
	fail "the provider for Debian 13 is older than its sources; scripts/test kernels compiles it"

for folder in dev proc sys tmp; do
	mount --rbind "/$folder" "$debian13/$folder" || fail "cannot mount /$folder into the root"
done
mount --bind "$checkout" "$debian13$checkout" || fail "cannot mount the checkout into the root"

in_debian13() {
	IBV_DRIVERS=$checkout/build/user-trixie/userspace/provider/libpeal chroot "$debian13" "$@"
}
