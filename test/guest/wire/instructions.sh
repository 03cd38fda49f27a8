#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# vm: icount
# run: long
# timeout: 3000
# transport: any
#
# Messages between two network namespaces cost no more instructions than they did when the limits below were set, plus 5 %.
# They are those of both ends and the kernel between them, on one CPU without VPCLMULQDQ. The limits are the figures of
# `scripts/bench --icount`; lower them when a message becomes cheaper. The guest's clock runs ahead while the
# guest waits for files of a busy host, so the time limit is long.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
require ib_write_bw ss
[[ $(uname -r) == 6.1.* && ${PEAL_SLOWNESS:-1} == 1 ]] || skip "the limits are those of the stock kernel 6.1"
figures=$(mktemp -d)

# Row of scripts/bench, instructions at MTU 1500 and 4500.
limits="
write_bw 64 KiB|91659|81300
read_bw 64 KiB|99930|87573
write_bw 64 B|11811|11815
write_bw 64 B lists 16|3855|3855
write_bw 64 B 0.2 ms RTT|6387|6392
send_lat 8 B|24460|24470
"

# figures_at MTU: prints the rows and figures at that MTU, with a bar between them.
figures_at() {
	scripts/lib/bench/bench.py run --icount --mtu "$1" --subjects peal-wire --rows "$rows" --out "$figures/$1.json" >&2 || return
	/usr/bin/python3 - "$figures/$1.json" <<-'END'
		import json, sys
		for row, subjects in json.load(open(sys.argv[1]))["samples"].items():
		    print(row, round(subjects["peal-wire"]["instructions"][0]), sep="|")
	END
}

rows=$(cut -d '|' -f 1 <<<"$limits" | paste -s -d ,)
measure() {
	for mtu in 1500 4500; do
		figures_at "$mtu" >"$figures/$mtu" || fail "the bench fails at MTU $mtu"
		cat "$figures/$mtu"
	done
	failures=0
	while IFS='|' read -r row small large; do
		[[ $row ]] || continue
		for limit in "1500 $small" "4500 $large"; do
			figure=$(grep -F "$row|" "$figures/${limit% *}" | cut -d '|' -f 2)
			check_figure "$row, MTU ${limit% *}" "${figure:-0}" "${limit#* }" || failures=$((failures + 1))
		done
	done <<<"$limits"
	((failures == 0))
}

# The guest's CPU may have had other work during one measurement. A message that is dearer is so in the second one, too.
measure || measure || fail "$failures figures"
