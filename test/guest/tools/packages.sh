#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long
# transport: any
# timeout: 180
# vm: bare, cpus 1
#
# Holds: Once the packages ibverbs-provider-peal and peal-tools are installed, /etc/peal/links.conf is all that it takes to get
# devices with options, what cannot be made is said in one sentence each, and programs use the devices, also by the packaged
# libpeal. Of the tool only "peal ping" needs libpeal. A second start changes nothing. An upgrade leaves a running device alone,
# and its configuration too. A stop removes the devices and the modules. Removal leaves no file. kernel/lacks.sh says what a
# kernel lacks.
# It has a machine of its own, in which no other test has loaded the module.
# Does not hold: systemd does not run here. The test runs what the unit runs, and systemd-analyze verifies the unit. dkms does not
# compile the modules here. They are those of scripts/vm.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
checkout=$PWD
packages=$checkout/build/packages
require dpkg systemd-analyze
unit=/lib/systemd/system/peal-links.service
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

install_packages() {
	dpkg --force-confold --install "$packages"/{ibverbs-provider-peal,libpeal0,libpeal-dev,peal-tools}_*.deb >"$work/dpkg" 2>&1 ||
		fail "dpkg: $(<"$work/dpkg")"
}

# links ACTION: runs the command of the unit.
links() {
	local key command
	key=ExecStart
	[[ $1 == start ]] || key=ExecStop
	command=$(sed -n "s/^$key=//p" "$unit")
	PEAL_LINKS_PATIENCE=1 $command >"$work/output" 2>&1
}

# shown ARGUMENT...: what the installed tool shows.
shown() { command peal "$@"; }

rm -f /etc/libibverbs.d/peal.driver
mkdir "$work/drivers"
mount --bind "$work/drivers" /etc/libibverbs.d || fail "cannot replace the list of providers"
interface_up
modprobe -a ib_uverbs || fail "cannot load the RDMA core"
SECONDS=0
install_packages
echo "ok: installed in $SECONDS s"
systemd-analyze verify "$unit" >"$work/output" 2>&1 || fail "systemd-analyze: $(<"$work/output")"

links start || fail "the empty links.conf: $(<"$work/output")"
[[ ! -e /sys/module/peal ]] || fail "an empty links.conf loads the module"
cat >/etc/peal/links.conf <<'END'
# a remark
host direct host
peal7 veth0 ecn on max-rd-atomic 32   # another one
peal8 nosuch0
peal9 veth1 ecn perhaps
END
! links start || fail "expected the service to fail for two lines"
grep -q "peal8: there is no netdev nosuch0" "$work/output" || fail "no sentence about peal8: $(<"$work/output")"
grep -q "peal9: ecn is off, asked or on, not \"perhaps\"" "$work/output" || fail "no sentence about peal9: $(<"$work/output")"
[[ $(grep -c ^peal-links: "$work/output") == 2 ]] || fail "expected two sentences: $(<"$work/output")"
wait_for device_ready peal7 || fail "peal7 is not ready: $(device_state peal7)"
shown link show peal7 --json | grep -q '"ecn": "on"' || fail "ecn is not on: $(shown link show peal7)"
shown link show peal7 --json | grep -q '"max-rd-atomic": 32,' || fail "max-rd-atomic is not 32: $(shown link show peal7)"
[[ $(shown host show) == "direct host" ]] || fail "the host's option is not host: $(shown host show)"
echo "ok: peal7 has its options, and two lines say what is wrong"

printf 'peal7 veth0 ecn on\n' >/etc/peal/links.conf
index=$(<"/sys/class/infiniband/peal7/node_guid")
links start || fail "a second start: $(<"$work/output")"
gid=$(gid_index peal7)
start_server 18515 ibv_rc_pingpong -d peal7 -g "$gid" -c -n 100 >"$work/server" 2>&1 || fail "$(<"$work/server")"
ibv_rc_pingpong -d peal7 -g "$gid" -c -n 100 127.0.0.1 >"$work/client" 2>&1 || fail "$(<"$work/client")"
wait "$server" || fail "$(<"$work/server")"
echo "ok: a program moves data with the installed provider"

# The program was linked in the build folder. It loads the installed library.
hello=build/user/userspace/lib/peal-hello
[[ -x $hello ]] || fail "$hello is not built"
modprobe rdma_ucm || fail "cannot load the connection manager"
library=$(echo /usr/lib/*/libpeal.so.0)
export LD_LIBRARY_PATH=${library%/*}
ldd "$hello" | grep -q -F "$library" || fail "not the installed library: $(ldd "$hello")"
PEAL_DEVICE=peal7 timeout "$(limit 60)" "$hello" >"$work/server" 2>&1 &
server=$!
wait_for cm_listens_or_died 7174 || fail "hello does not listen: $(<"$work/server")"
PEAL_DEVICE=peal7 timeout "$(limit 30)" "$hello" 10.77.0.1 >"$work/client" 2>&1 || fail "$(<"$work/client")"
wait "$server" || fail "$(<"$work/server")"
[[ $(<"$work/server") == hello ]] || fail "the server printed: $(<"$work/server")"
unset LD_LIBRARY_PATH
echo "ok: a program uses the installed libpeal"

command peal ping --listen --device peal7 >"$work/server" 2>&1 &
server=$!
wait_for cm_listens_or_died 7175 || fail "peal ping does not listen: $(<"$work/server")"
command peal ping 10.77.0.1 --count 2 >"$work/client" 2>&1 || fail "peal ping: $(<"$work/client") $(<"$work/server")"
kill "$server"
wait "$server" 2>/dev/null
dpkg --purge libpeal-dev libpeal0 >"$work/dpkg" 2>&1 || fail "another package depends on libpeal0: $(<"$work/dpkg")"
command peal ping 10.77.0.1 >"$work/client" 2>&1 && fail "peal ping runs without libpeal"
grep -q "needs the library libpeal, and it cannot be loaded (libpeal.so.0: .*); type \"apt-get install libpeal0\"" "$work/client" ||
	fail "peal ping without libpeal: $(<"$work/client")"
shown link show peal7 | grep -q peal7 || fail "the other commands need libpeal, too"
echo "ok: peal ping with libpeal, and the other commands without it"

install_packages
[[ $(cat /sys/class/infiniband/peal7/node_guid) == "$index" ]] || fail "an upgrade replaced the device"
grep -q peal7 /etc/peal/links.conf || fail "an upgrade replaced links.conf"
links stop || fail "stop: $(<"$work/output")"
[[ ! -e /sys/class/infiniband/peal7 ]] || fail "peal7 is still there"
rmmod peal_kick_file 2>/dev/null
[[ ! -e /sys/module/peal ]] || fail "the module is still there"

dpkg --purge ibverbs-provider-peal libpeal-dev libpeal0 peal-tools >"$work/dpkg" 2>&1 || fail "dpkg: $(<"$work/dpkg")"
left=$(find /etc /lib/systemd /usr/bin /usr/libexec /usr/share /usr/include /usr/lib/*-linux-gnu /var/lib/systemd \
	-xdev -name '*peal*' 2>/dev/null)
[[ -z $left ]] || fail "removal left: $left"
echo "ok: stopped, removed"

mkdir -p "$work/kernel/include/config"
printf 'CONFIG_%s=m\n' INFINIBAND NETFILTER CRC32 CRYPTO >"$work/kernel/.config"
echo 6.5.0-test >"$work/kernel/include/config/kernel.release"
reason=$(kernel/lacks.sh "$work/kernel") && fail "a kernel without uverbs is accepted"
[[ $reason == *"6.5.0-test: it was configured without CONFIG_INFINIBAND_USER_ACCESS" ]] || fail "$reason"
echo CONFIG_INFINIBAND_USER_ACCESS=m >>"$work/kernel/.config"
kernel/lacks.sh "$work/kernel" || fail "a complete kernel is refused"
echo 5.15.0 >"$work/kernel/include/config/kernel.release"
reason=$(kernel/lacks.sh "$work/kernel") && fail "a kernel of 5.15 is accepted"
[[ $reason == *"5.15.0: it needs 6.1 or later" ]] || fail "$reason"
echo "ok: $reason"
