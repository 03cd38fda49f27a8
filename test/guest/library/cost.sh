#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# vm: icount
# timeout: 600
# transport: direct
#
# Holds: A WRITE of 64 bytes by libpeal, from the batch to the completion, costs no more instructions, those of the kernel
# included, than when the limits below were set, plus 5 %, at most 5 % more than by rings that a program writes by hand, and less
# than by libibverbs below libpeal. Rings that are written by hand work. They have no other user: libibverbs neither posts to them nor
# polls them, and they are taken once. Batches of 16 have limits of their own.
# Does not hold: the other operations.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
[[ $(uname -r) == 6.1.* && ${PEAL_SLOWNESS:-1} == 1 ]] || skip "the limits are those of the stock kernel 6.1"
library_cost=$(helper library_cost) || skip "$library_cost"
figures=$(mktemp)
modprobe -a rdma_cm rdma_ucm

# So many that work which the kernel does once, for example after a connect, does not count.
"$library_cost" 20000 >"$figures" || fail "library_cost: $(<"$figures")"
cat "$figures"
of() { sed -n "s/^$1 \([0-9]*\).*/\1/p" "$figures"; }
check_figure rings "$(of rings)" 1205 || fail "the rings"
check_figure libpeal "$(of libpeal)" 1262 || fail "libpeal"
check_figure rings-16 "$(of rings-16)" 593 || fail "batches on the rings"
check_figure libpeal-16 "$(of libpeal-16)" 608 || fail "batches of libpeal"
(($(of libpeal) * 100 <= $(of rings) * 105 && $(of libpeal-16) * 100 <= $(of rings-16) * 105)) || fail "libpeal costs more than 5 % more than rings by hand"
(($(of libpeal) + 200 < $(of libpeal-by-libibverbs) && $(of libpeal-16) + 200 < $(of libpeal-by-libibverbs-16))) || fail "libpeal does not write the rings"
