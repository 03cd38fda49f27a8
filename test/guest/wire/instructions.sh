#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# vm: icount
# run: long
# timeout: 3000
# transport: any
#
# Messages between two network namespaces cost no more instructions than they did when the limits below were set, plus 5 %.
# They are those of both ends and the kernel between them, on one CPU without VPCLMULQDQ. The limits are the figures of
# `scripts/lib/wire-figures --icount`; lower them when a message becomes cheaper. The guest's clock runs ahead while the
# guest waits for files of a busy host, so the time limit is long.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
require ib_write_bw ss
[[ $(uname -r) == 6.1.* && ${PEAL_SLOWNESS:-1} == 1 ]] || skip "the limits are those of the stock kernel 6.1"
figures=$(mktemp)

# Row of wire-figures, instructions at MTU 1500 and 4500.
limits="
write_bw 64 KiB|168976|120106
read_bw 64 KiB|158403|128025
write_bw 64 B|18236|18237
64 B, lists 16|5301|5301
64 B, 0.2 ms RTT|8064|8063
send_lat 8 B|25820|25810
"

WIRE_SUBJECTS=peal scripts/lib/wire-figures --icount >"$figures" 2>&1 || fail "wire-figures: $(tail -n 5 "$figures")"
cat "$figures"
failures=0
while IFS='|' read -r row small large; do
	[[ $row ]] || continue
	read -r -a found < <(grep "^$row " "$figures" | sed 's/.* instr//')
	check_figure "$row, MTU 1500" "${found[0]:-0}" "$small" || failures=$((failures + 1))
	check_figure "$row, MTU 4500" "${found[1]:-0}" "$large" || failures=$((failures + 1))
done <<<"$limits"
((failures == 0)) || fail "$failures figures"
