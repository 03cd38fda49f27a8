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
# The row "dmabuf" needs one of these exporters.
modprobe -qa udmabuf vgem
work=$(mktemp -d)

# Row of scripts/demo, instructions. A program that sends sleeps, and how often differs from boot to boot. So the limits of
# SENDs are the highest figures that were seen.
limits="
write_bw 64 B|1277
write_bw 4 KiB|1707
write_bw 64 KiB|10244
write_bw 1 MiB|145730
read_bw 64 B|1298
read_bw 4 KiB|1720
read_bw 64 KiB|10229
read_bw 1 MiB|145794
send_bw 64 B|8765
send_bw 4 KiB|13031
send_bw 64 KiB|29773
send_bw 1 MiB|293945
send_bw UD 64 B|12506
atomic_bw 8 B|1285
read_lat 8 B|1440
send_lat 8 B|8340
"

# Subject and row of scripts/bench, instructions.
bench_limits="
peal-containers write_bw 64 B|1433
peal-containers read_bw 64 B|1427
peal-containers atomic_bw 8 B|1433
peal-containers send_lat 8 B|9610
peal one-process 64 B write|1143
peal one-process 64 B uc|1143
peal one-process 64 B odp|1202
peal one-process 64 B dmabuf|1143
peal one-process 64 B send|1817
peal one-process 64 B srq|1928
peal one-process 64 B xrc|1974
peal one-process 64 B ud|2341
"

# check ROWS: compares each of them with the figure behind its name in the file.
check() {
	failures=0
	while IFS='|' read -r row limit; do
		[[ $row ]] || continue
		figure=$(sed -n "s/^$row  *//p" "$figures" | tail -n 1 | sed -E 's,.* ,,')
		check_figure "$row" "${figure:-0}" "$limit" || failures=$((failures + 1))
	done <<<"$1"
	((failures == 0))
}

demo_figures() {
	figures=$work/demo
	PEAL_DEMO_DEVICES=peal9 scripts/lib/demo-run --icount >"$figures" 2>&1 || fail "demo-run: $(tail -n 5 "$figures")"
	cat "$figures"
}

bench_figures() {
	figures=$work/bench
	: >"$figures"
	for subject in peal peal-containers; do
		rows=$(sed -n "s/^$subject \([^|]*\)|.*/\1/p" <<<"$bench_limits" | paste -s -d ,)
		scripts/lib/bench/bench.py run --icount --subjects "$subject" --rows "$rows" --out "$work/$subject.json" >&2 ||
			fail "the bench fails"
		/usr/bin/python3 - "$work/$subject.json" "$subject" >>"$figures" <<-'END'
			import json, sys
			for row, subjects in json.load(open(sys.argv[1]))["samples"].items():
			    print(sys.argv[2], row, round(subjects[sys.argv[2]]["instructions"][0]))
		END
	done
	cat "$figures"
}

# The guest's CPU may have had other work during one measurement. A message that is dearer is so in the second one, too.
demo_figures
check "$limits" || { demo_figures && check "$limits"; } || fail "$failures figures"
bench_figures
check "$bench_limits" || { bench_figures && check "$bench_limits"; } || fail "$failures figures"
