#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# vm: icount
# run: long
# timeout: 3000
# transport: any
#
# Messages of one host cost no more instructions than they did when the limits below were set, plus 5 %. They are those of both
# ends and the kernel on one CPU. The limits are the figures of `scripts/demo --icount`, and for two devices those of
# `scripts/bench --icount`. Lower them when a message becomes cheaper. wire/instructions is the same for packets.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
require ib_write_bw ss
[[ $(uname -r) == 6.1.* && ${PEAL_SLOWNESS:-1} == 1 ]] || skip "the limits are those of the stock kernel 6.1"
figures=$(mktemp)
work=$(mktemp -d)

# Row of scripts/demo, instructions. A program that sends sleeps, and how often differs from boot to boot. So the limits of
# SENDs are the highest figures that were seen.
limits="
write_bw 64 B|1369
write_bw 4 KiB|1793
write_bw 64 KiB|10570
write_bw 1 MiB|150015
read_bw 64 B|1362
read_bw 4 KiB|1792
read_bw 64 KiB|10552
read_bw 1 MiB|156421
send_bw 64 B|8765
send_bw 4 KiB|13031
send_bw 64 KiB|28065
send_bw 1 MiB|273523
send_bw UD 64 B|12506
atomic_bw 8 B|1361
read_lat 8 B|1510
send_lat 8 B|8430
"

# Subject and row of scripts/bench, instructions.
bench_limits="
peal-containers write_bw 64 B|1532
peal-containers read_bw 64 B|1525
peal-containers atomic_bw 8 B|1525
peal-containers send_lat 8 B|8580
peal one-process 64 B write|1250
peal one-process 64 B uc|1250
peal one-process 64 B odp|1314
peal one-process 64 B send|1908
peal one-process 64 B srq|2016
peal one-process 64 B xrc|2066
peal one-process 64 B ud|2420
"

PEAL_DEMO_DEVICES=peal9 scripts/lib/demo-run --icount >"$figures" 2>&1 || fail "demo-run: $(tail -n 5 "$figures")"
cat "$figures"
failures=0
# check ROWS: compares each of them with the figure behind its name in the file.
check() {
	while IFS='|' read -r row limit; do
		[[ $row ]] || continue
		figure=$(sed -n "s/^$row  *//p" "$figures" | tail -n 1 | sed -E 's,.* ,,')
		check_figure "$row" "${figure:-0}" "$limit" || failures=$((failures + 1))
	done <<<"$1"
}
check "$limits"

for subject in peal peal-containers; do
	rows=$(sed -n "s/^$subject \([^|]*\)|.*/\1/p" <<<"$bench_limits" | paste -s -d ,)
	scripts/lib/bench/bench.py run --icount --subjects "$subject" --rows "$rows" --out "$work/$subject.json" >&2 ||
		fail "the bench fails"
	/usr/bin/python3 - "$work/$subject.json" "$subject" >>"$work/figures" <<-'END'
		import json, sys
		for row, subjects in json.load(open(sys.argv[1]))["samples"].items():
		    print(sys.argv[2], row, round(subjects[sys.argv[2]]["instructions"][0]))
	END
done
figures=$work/figures
cat "$figures"
check "$bench_limits"
((failures == 0)) || fail "$failures figures"
