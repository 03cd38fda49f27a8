#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: any
# run: long
# timeout: 150
# vm: bare, mem 2G
#
# "peal doctor" finds nothing on a machine that works. For each thing that can be broken here it then finds that thing and
# nothing else: it says "problem" and fails, or "warning" and succeeds, with the remedy, and once the remedy is applied the
# finding goes. Headers that are missing and another kernel's module are tested with /lib/modules replaced.
# It has a machine of its own, on which nobody has loaded the module. Without libibverbs, "peal dump" names the package, too.
# Does not hold: a NIC that changes packets.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
require_tool
require nft iptables ip python3 setpriv ibv_rc_pingpong
tool=$PWD/build/user/userspace/tools/peal
modules=/lib/modules/$(uname -r)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One Python reads all findings, because it takes 0.8 s to start under emulation. It is asked with the verdicts of a line, and
# answers with an empty line.
mkfifo "$work/ask" "$work/answer"
python3 -c 'import json, sys
for verdicts in sys.stdin:
    with open(sys.argv[1] + "/json") as printed, open(sys.argv[1] + "/findings", "w") as found:
        for f in json.load(printed):
            if f["verdict"] in verdicts.split():
                print(f["check"] + ": " + f["text"] + "; " + f["remedy"], file=found)
    print(flush=True)' "$work" <"$work/ask" >"$work/answer" &
exec {ask}>"$work/ask" {answer}<"$work/answer"

# findings VERDICTS ARGUMENT...: leaves the findings with one of these verdicts, as "check: text; remedy".
findings() {
	"${as[@]}" "$tool" doctor "${@:2}" --json >"$work/json"
	status=$?
	echo "$1" >&"$ask"
	read -r -u "$answer" || fail "peal doctor prints no JSON: $(<"$work/json")"
}

# finds VERDICT CHECK WORDS [PEER]: the doctor has this finding, and no other problem or warning.
finds() {
	local other
	findings "$1" ${4:+"$4"}
	grep -q "^$2: .*$3" "$work/findings" || fail "expected $1 $2 \"$3\": $("${as[@]}" "$tool" doctor ${4:+"$4"})"
	other=$(grep -v "^$2: " "$work/findings")
	[[ -z $other ]] || fail "the doctor also finds: $other"
	[[ $1 == problem ]] && ((status != 1)) && fail "the doctor finds a problem and exits with $status"
	[[ $1 == problem ]] || ((status == 0)) || fail "the doctor finds no problem and exits with $status"
	echo "ok: $1 $(grep "^$2: .*$3" "$work/findings")"
}

as=(env)
# well [PEER]: the doctor finds nothing.
well() {
	findings "problem warning unknown" "$@"
	[[ ! -s $work/findings && $status == 0 ]] || fail "the doctor finds ($status): $(<"$work/findings")"
}
nobody=(setpriv --reuid 65534 --clear-groups --bounding-set=-all --inh-caps=-all)

# ---- the module ----
modprobe -a ib_uverbs rdma_ucm || fail "cannot load the RDMA core"
interface_up
findings problem
grep -q "^module: peal is installed for $(uname -r), but not loaded; type \"modprobe peal\"" "$work/findings" &&
	grep -q "^links: there is no device; type \"peal link add" "$work/findings" && ((status == 1)) ||
	fail "without the module: $(<"$work/findings")"
mount -t tmpfs none "$modules"
findings problem
grep -q "^module: peal is not installed for .* headers are missing; type \"apt-get install peal-dkms linux-headers-$(uname -r)\"" \
	"$work/findings" || fail "without headers: $(<"$work/findings")"
mkdir -p "$modules/build" && touch "$modules/build/Makefile"
findings problem
grep -q "^module: peal is not installed for .*; type \"apt-get install peal-dkms\"" "$work/findings" ||
	fail "with headers: $(<"$work/findings")"
# A module of another kernel: only its name and the kernel that it is for matter here.
printf 'vermagic=5.15.0-other SMP \0name=peal\0' >"$work/modinfo"
printf '' >"$work/empty.c"
gcc -c -o "$modules/peal.ko" "$work/empty.c" && objcopy --add-section .modinfo="$work/modinfo" "$modules/peal.ko" &&
	depmod 2>/dev/null || fail "cannot make a module of another kernel"
findings problem
grep -q "^module: the installed module is for 5.15.0-other, and $(uname -r) runs" "$work/findings" ||
	fail "another kernel's module: $(<"$work/findings")"
umount "$modules"
echo "ok: the module is missing in four ways"
"$tool" link show 2>&1 | grep -q 'the module peal is not loaded; type "modprobe peal"' || fail "link show without the module"

peal link add peal0 netdev veth0 || fail "cannot make peal0"
wait_for device_ready peal0 || fail "$(device_state peal0)"
well
mount -t tmpfs none "$modules"
finds warning module "loaded, but not installed"
umount "$modules"
well
cp "$(modinfo -n peal)" "$work/peal.ko"
printf 'srcversion=0123456789ABCDEF01234567\0vermagic=%s SMP \0' "$(uname -r)" >"$work/modinfo"
mount -t tmpfs none "$modules"
gcc -c -o "$modules/peal.ko" "$work/empty.c" && objcopy --add-section .modinfo="$work/modinfo" "$modules/peal.ko" && depmod 2>/dev/null
finds warning module "not the one that is installed"
umount "$modules"

# A module of another version of the interface.
echo 99 >"$work/version"
version=/sys/class/infiniband_verbs/$(basename "$(verbs_node peal0)")/abi_version
mount --bind "$work/version" "$version" || fail "cannot replace $version"
findings problem
umount "$version"
grep -q "^module: the loaded module has version 99 of the interface, and the installed programs have [0-9]*; \
install all packages of one release" "$work/findings" && ((status == 1)) || fail "another version: $(<"$work/findings")"
well

# ---- the provider and this user's rights ----
mkdir "$work/drivers"
mount --bind "$work/drivers" /etc/libibverbs.d
finds problem provider "do not see peal0 with libibverbs of rdma-core [0-9]*"
# A provider that was built for another private ABI has another name than libibverbs looks for.
cp build/user/userspace/provider/libpeal.so "$work/libpeal-rdmav59.so"
echo "driver $work/libpeal" >"$work/drivers/peal.driver"
finds problem provider "do not see peal0 .*, which says: .*couldn't load driver '$work/libpeal-rdmav34.so'.*; \
type \"apt-get install --reinstall ibverbs-provider-peal\""
umount /etc/libibverbs.d
well
mkdir "$work/verbs"
folder=$(dirname "$(ldconfig -p | sed -n 's/.*libibverbs\.so\.1 .* => //p' | head -n 1)")
mv "$folder"/libibverbs.so.1* "$work/verbs" || fail "cannot hide libibverbs"
finds problem provider 'there is no libibverbs.so.1; type "apt-get install ibverbs-provider-peal"'
complains 1 'needs the library libibverbs, and it cannot be loaded' "$tool" dump peal0
mv "$work/verbs"/* "$folder"
well
as=(prlimit --memlock=0 "${nobody[@]}")
findings problem
grep -q "^memlock: .* 0 KiB.*limits.conf" "$work/findings" || fail "memlock 0: $(<"$work/findings")"
as=(prlimit --memlock=8388608 "${nobody[@]}")
finds warning memlock "8192 KiB"
as=(prlimit --memlock=1073741824 "${nobody[@]}")
finds unknown firewall "only root"
node=$(verbs_node peal0)
chmod 600 "$node"
finds problem nodes "may not open $node; as root type \"chmod 666 $node\""
as=(env)
well
mv "$node" "$work/node"
finds problem nodes "$node of peal0 is missing; .*--device $node"
mv "$work/node" "$node"
mv /dev/infiniband/rdma_cm "$work/node"
finds warning nodes "rdma_cm cannot be opened"
mv "$work/node" /dev/infiniband/rdma_cm
well

# ---- link, addresses, MTU ----
ip link set veth1 down
finds problem links "veth0 has no carrier"
ip link set veth1 up
wait_for port_active peal0
ip link set veth0 down
findings problem
grep -q '^links: peal0 is down, because veth0 is; type "ip link set veth0 up"' "$work/findings" || fail "down: $(<"$work/findings")"
interface_up
wait_for device_ready peal0
ip address flush dev veth0
no_gid() { ! gid_index peal0; }
wait_for no_gid || fail "the GID is still there"
finds problem gids "peal0 has no GID.*ip address add ADDRESS/LENGTH dev veth0"
interface_up
wait_for device_ready peal0
ip link set veth0 mtu 1000
finds warning mtu "MTU 1000 of veth0 gives packets of 512 bytes; type \"ip link set veth0 mtu 1500\""
ip link set veth0 mtu 1500
well

# ---- port and firewall ----
coproc python3 -c 'import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 4791))
print("bound", flush=True)
sys.stdin.read()'
taker=$COPROC_PID
read -r _ <&"${COPROC[0]}"
finds warning port "python3 (process $taker) has bound UDP port 4791"
kill "$taker"
wait "$taker" 2>/dev/null
well
nft add table inet t
nft add chain inet t in '{ type filter hook input priority 0; policy drop; }'
nft add rule inet t in ct state established,related accept
finds problem firewall 'chain inet t in drops packets of IPv4 to peal0; type "nft insert rule inet t in udp dport 4791 accept"'
nft insert rule inet t in udp dport 4791 accept
well
nft flush chain inet t in
nft add chain inet t in '{ policy accept; }'
nft add rule inet t in ip saddr 10.0.0.9 drop
finds unknown firewall "chain inet t in may drop packets of IPv4 to peal0"
nft add chain inet t out '{ type filter hook output priority 0; policy accept; }'
nft add rule inet t out udp dport 4791 drop
finds problem firewall "chain inet t out drops packets of IPv4 from peal0"
nft delete table inet t
well
for kind in iptables iptables-legacy; do
	command -v "$kind" >/dev/null || continue
	"$kind" -A INPUT -p udp --dport 4791 -j DROP || continue
	finds problem firewall "INPUT drops packets of IPv4 to peal0; type \"iptables -I INPUT -p udp --dport 4791 -j ACCEPT\""
	"$kind" -F INPUT
done
well

# ---- rp_filter, direct path ----
sysctl -q -w net.ipv4.conf.veth0.rp_filter=1
finds warning rp_filter 'sysctl -w net.ipv4.conf.veth0.rp_filter=2'
sysctl -q -w net.ipv4.conf.veth0.rp_filter=2
well
peal link set peal0 direct off
finds warning direct 'the direct path of peal0 is off; type "peal link set peal0 direct on"'
peal link set peal0 direct on
peal host set direct none
finds warning direct 'type "peal host set direct netns"'
peal host set direct netns
well

# ---- the way to a peer ----
ip netns add peer
ip link set veth1 netns peer
ip -n peer address add 10.77.0.2/24 dev veth1
ip -n peer link set veth1 up
wait_for port_active peal0
well 10.77.0.2
finds problem neighbour "nobody answers for 10.77.0.77 on veth0" 10.77.0.77
finds problem route "no route to 192.0.2.1.*ip route add" 192.0.2.1
finds problem route '"not a host" is no address' "not a host"
ip link add dummy.d type dummy
ip address add 192.0.2.2/24 dev dummy.d
ip link set dummy.d up
finds problem route "leaves by dummy.d, on which there is no device; type \"peal link add peal1 netdev dummy.d\"" 192.0.2.1
ip link delete dummy.d
ip route add 10.77.0.2/32 dev veth0 mtu 1000
finds problem path "the port's MTU is 1024, and its packets do not fit the MTU 1000" 10.77.0.2
ip route delete 10.77.0.2/32
well 10.77.0.2
well 10.77.0.1

# ---- losses ----
peal link set peal0 direct off
nft add table inet t
nft add chain inet t in '{ type filter hook input priority 0; }'
nft add rule inet t in udp dport 4791 drop
index=$(gid_index peal0)
start_server 18515 ibv_rc_pingpong -d peal0 -g "$index" -n 10 >/dev/null 2>&1
ibv_rc_pingpong -d peal0 -g "$index" -n 10 localhost >/dev/null 2>&1 &
client=$!
loses() { (($(counter peal0 timeouts) > 0)); }
wait_for loses || fail "nothing is lost"
kill "$client" "$server"
wait "$client" "$server" 2>/dev/null
nft delete table inet t
peal link set peal0 direct on
findings warning
grep -q "^losses: peal0: a peer did not answer in time (timeouts [0-9]*)" "$work/findings" &&
	grep -q "^losses: peal0 sent [0-9]* of [0-9]* packets again" "$work/findings" || fail "losses: $(<"$work/findings")"
((status == 0)) || fail "losses are a warning"
"$tool" doctor | grep -q "^warning  *losses" || fail "the table: $("$tool" doctor)"
peal link del peal0
peal link add peal0 netdev veth0 faults on
wait_for port_active peal0
well
echo "ok: route, neighbour, MTU and losses"

# ---- faults on demand ----
peal fault add peal0 status general-err >/dev/null || fail "cannot add a fault"
finds warning faults "an administrator makes messages of peal0 fail, and has hit 0 (rules: 1); type \"peal fault show peal0\""
peal fault del peal0
well
