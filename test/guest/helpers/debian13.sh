# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs programs of Debian 13 on the guest's kernel, in the Debian root that `scripts/test kernels` makes. They load the
# provider that was compiled there. Needs lib.sh.

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
debian13=$(cat "$checkout/build/user-trixie/root" 2>/dev/null) || skip "no Debian 13 root; scripts/test kernels makes it"

for folder in dev proc sys tmp; do
	mount --rbind "/$folder" "$debian13/$folder" || fail "cannot mount /$folder into the root"
done
mount --bind "$checkout" "$debian13$checkout" || fail "cannot mount the checkout into the root"

in_debian13() {
	IBV_DRIVERS=$checkout/build/user-trixie/userspace/provider/libpeal chroot "$debian13" "$@"
}
