#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# vm: bare
# timeout: 300
# run: long
# transport: any
#
# The measurements of scripts/bench work. The test takes the smallest number of measurements for every subject, and each that
# this kernel has must have figures in the result file, the table, the CSV and the plots. Afterwards all devices and netdevs
# are gone. Without rdma_rxe, without veth and without root the bench says what it leaves out, and measures the rest.
# The test does not judge the figures. test/bench/test_results.py tests what is made of them.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
require ib_write_bw ib_read_lat
require_tool
work=$(mktemp -d)
chmod 755 "$work"
[[ -x build/user/test/bench/machine-limits ]] || skip "the programs of test/bench are not built"

# bench NAME ARGUMENT...: measures once, as briefly as possible. It sets output, status and result.
bench() {
	result=$work/$1.json
	status=0
	output=$(scripts/lib/bench/bench.py run --rounds 1 --seconds 0 --out "$result" "${@:2}" 2>&1) || status=$?
	echo "$output"
}

# has_figures SUBJECT ROW METRIC: succeeds if the file has one positive figure.
has_figures() {
	/usr/bin/python3 - "$result" "$@" <<-'END'
		import json, sys
		path, subject, row, metric = sys.argv[1:]
		found = json.load(open(path))["samples"][row][subject][metric]
		sys.exit(not (len(found) == 1 and found[0] > 0))
	END
}

says() { grep -qF "left out: $1" <<<"$output" || fail "the bench does not say that it leaves out: $1"; }

subjects=(peal rxe shm peal-containers peal-wire rxe-wire)
! command -v iperf3 >/dev/null || subjects+=(tcp-wire)
bench all --quick --rows "write_bw 64 KiB,read_lat,events,memory,share"
((status == 0)) || fail "bench: $status"
for subject in "${subjects[@]}"; do
	has_figures "$subject" "write_bw 64 KiB" rate || fail "$subject has no rate"
	[[ $subject == shm || $subject == tcp-wire ]] || has_figures "$subject" "read_lat 8 B" p99.9 || fail "$subject has no latency"
done
for subject in peal rxe; do
	has_figures "$subject" "memory of a queue pair" memory || fail "$subject has no memory of a queue pair"
done
for subject in peal-wire tcp-wire; do
	[[ " ${subjects[*]} " != *" $subject "* ]] || has_figures "$subject" "share 8 flows FIFO" jain ||
		fail "$subject does not share a bottleneck"
done
has_figures peal-wire "share with TCP RED" part || fail "peal shares no bottleneck with TCP"
says "CPU time"
[[ $(modinfo siw 2>/dev/null) ]] || says "siw: this kernel has no siw"
table=$(scripts/lib/bench/bench.py show "$result") || fail "show: $table"
echo "$table"
grep -qE '^write_bw 64 KiB +k msg/s( +[0-9.]+){5}' <<<"$table" || fail "the table has no rate"
grep -q '^distorted: ' <<<"$table" || fail "the table does not name a distortion"
[[ -s $work/all.csv && -s $work/all-latency.svg ]] || fail "there is no CSV or no plot"
for netdev in bench0 wire_a; do
	! ip link show "$netdev" 2>/dev/null || fail "$netdev is still there"
done
[[ -z $(ip netns list) ]] || fail "a network namespace is still there: $(ip netns list)"
[[ -z $(ls /sys/class/infiniband) ]] || fail "a device is still there: $(ls /sys/class/infiniband)"
build/user/userspace/tools/peal host show --json | grep -q '"direct": "netns"' || fail "the bench leaves the host's direct changed"

# This guest forgets these files when it ends.
modprobe -r rdma_rxe
echo "install rdma_rxe /bin/false" >/etc/modprobe.d/bench.conf
bench no-rxe --quick --subjects peal,rxe,rxe-wire --rows "4 QPs,idle"
((status == 0)) || fail "bench without rdma_rxe: $status"
says "rxe: this kernel has no rdma_rxe"
says "rxe-wire: this kernel has no rdma_rxe"
has_figures peal "write_bw 64 B 4 QPs" rate || fail "peal is not measured without rdma_rxe"
has_figures peal "write_bw 64 B 1000 idle" rate || fail "peal is not measured beside idle queue pairs"

modprobe -r veth
echo "install veth /bin/false" >>/etc/modprobe.d/bench.conf
bench no-veth --quick --subjects peal,shm --rows "write_bw 64 KiB"
((status == 0)) || fail "bench without veth: $status"
says "peal: this kernel has no veth or no RDMA core"
has_figures shm "write_bw 64 KiB" rate || fail "shared memory is not measured without veth"

rm -f "$work/no-root.json" && chmod 777 "$work"
output=$(setpriv --reuid 65534 --clear-groups scripts/lib/bench/bench.py run --rounds 1 --seconds 0 --quick \
	--rows "write_lat" --subjects peal,shm --out "$work/no-root.json" 2>&1) || fail "bench without root: $output"
result=$work/no-root.json
says "peal: only root can make devices"
has_figures shm "write_lat 8 B" median || fail "shared memory is not measured without root"
rm -rf "$work" /etc/modprobe.d/bench.conf
