#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long
# transport: any
# timeout: 300
# vm: bare, cpus 1
#
# Holds: Once the packages ibverbs-provider-peal and peal-tools are installed, /etc/peal/links.conf is all that it takes to get
# devices with options, what cannot be made is said in one sentence each, and programs use the devices, also by the packaged
# libpeal. Of the tool only "peal ping" needs libpeal. A second start changes nothing. An upgrade leaves the running module and
# its devices alone, and their configuration too. It says how to replace the module, and "peal doctor" says it, too. The command
# replaces the module, and the devices are back. Removal unloads the modules and leaves no file. kernel/lacks.sh says what a kernel
# lacks.
# systemd makes the devices at a boot, and "systemctl restart" makes them anew.
# It has a machine of its own, in which no other test has loaded the module.
# Does not hold: for the rest of the test systemd does not run, and the test runs what the unit runs. dkms does not compile the
# modules here. They are those of scripts/vm, with the version of the package.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
checkout=$PWD
packages=$checkout/build/packages
require dpkg systemd-analyze rdma objcopy ib_write_bw
unit=/lib/systemd/system/peal-links.service
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# install_packages FOLDER: peal-dkms depends on dkms, which is not here.
install_packages() {
	dpkg --force-confold --install "$1"/{ibverbs-provider-peal,libpeal0,libpeal-dev,peal-tools}_*.deb >"$work/dpkg" 2>&1 &&
		dpkg --force-depends --install "$1"/peal-dkms_*.deb >>"$work/dpkg" 2>&1 || fail "dpkg: $(<"$work/dpkg")"
}

# stand_in_for_dkms: the script of dkms that packages of modules call to compile them gives the module of scripts/vm the version
# that the source has.
stand_in_for_dkms() {
	mkdir -p /usr/lib/dkms
	cat >/usr/lib/dkms/common.postinst <<-'END'
		#!/bin/bash
		set -e
		work=$(mktemp -d)
		module=$(modinfo -n peal)
		version=$(sed -n 's/^MODULE_VERSION("\(.*\)");/\1/p' "/usr/src/$1-$2/kernel/device/main.c")
		srcversion=$(md5sum <<<"$version" | cut -c 1-23)
		objcopy --dump-section .modinfo="$work/modinfo" "$module" "$work/unused"
		sed -z -i "s/^version=.*/version=$version/; s/^srcversion=.*/srcversion=${srcversion^^}/" "$work/modinfo"
		objcopy --update-section .modinfo="$work/modinfo" "$module" "$work/peal.ko"
		mv "$work/peal.ko" "$module"
		rm -r "$work"
	END
	chmod +x /usr/lib/dkms/common.postinst
	ln -s /bin/true /usr/local/sbin/dkms
}

# moves_data: a program moves data by peal7 with the installed provider.
moves_data() {
	local gid
	gid=$(gid_index peal7)
	start_server 18515 ibv_rc_pingpong -d peal7 -g "$gid" -c -n 100 >"$work/server" 2>&1 || fail "$(<"$work/server")"
	ibv_rc_pingpong -d peal7 -g "$gid" -c -n 100 127.0.0.1 >"$work/client" 2>&1 || fail "$(<"$work/client")"
	wait "$server" || fail "$(<"$work/server")"
	echo "ok: a program moves data with the installed provider"
}

# boot COMMAND: systemd starts the services of a boot, as process 1 of a PID namespace, and the command runs when peal-links has
# started. systemd empties /run and /tmp, so they are its own. udev does not run, because it would load drivers of other devices.
boot() {
	# shellcheck disable=SC2016 # the new shell expands it
	timeout "$(limit 120)" unshare --pid --fork --kill-child --mount --mount-proc --cgroup bash -c '
		mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /tmp && mkdir -p /run/systemd/system || exit 1
		for unit in systemd-udevd.service systemd-udev-trigger.service; do
			ln -s /dev/null "/run/systemd/system/$unit"
		done
		{
			until systemctl --quiet is-active peal-links; do
				sleep 0.2
			done
			eval "$1"
			echo "the command ended with $?"
			systemctl poweroff --force --force
		} &
		exec env container=other /lib/systemd/systemd --system --unit=multi-user.target' - "$1" >"$work/boot" 2>&1
	grep -q "^the command ended with 0$" "$work/boot"
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

# The index of all manual pages takes longer than the rest of an installation.
rm -f /var/lib/man-db/auto-update
rm -f /etc/libibverbs.d/peal.driver
mkdir "$work/drivers"
mount --bind "$work/drivers" /etc/libibverbs.d || fail "cannot replace the list of providers"
interface_up
modprobe -a ib_uverbs || fail "cannot load the RDMA core"
stand_in_for_dkms
SECONDS=0
install_packages "$packages"
echo "ok: installed in $SECONDS s"
command peal link add peal7 netdev veth0 || fail "peal link add does not load the module"
wait_for device_ready peal7 || fail "peal7 is not ready: $(device_state peal7)"
gid=$(gid_index peal7)
start_server 18515 ib_write_bw -d peal7 -x "$gid" -n 1000 >"$work/server" 2>&1 || fail "$(<"$work/server")"
ib_write_bw -d peal7 -x "$gid" -n 1000 127.0.0.1 >"$work/client" 2>&1 || fail "$(<"$work/client") $(<"$work/server")"
wait "$server" || fail "$(<"$work/server")"
echo "ok: the result of ib_write_bw after $SECONDS s, without compiling: $(grep -E '^ *65536 ' "$work/client")"
links stop || fail "stop: $(<"$work/output")"
[[ ! -e /sys/class/infiniband/peal7 && ! -e /sys/module/peal ]] || fail "a device that links.conf does not name keeps the module"
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
# A device that is made anew gets another index.
device_index() { rdma dev show peal7 | cut -d : -f 1; }
index=$(device_index)
links start || fail "a second start: $(<"$work/output")"
[[ $index && $(device_index) == "$index" ]] || fail "a second start replaced the device"
moves_data

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

version=$(</sys/module/peal/version)
running=$(</sys/module/peal/srcversion)
scripts/lib/later-packages "$packages" "$work/later" || fail "cannot make later packages"
install_packages "$work/later"
[[ $(modinfo -F version peal) == "$version+later" ]] || fail "the installed module is $(modinfo -F version peal)"
[[ $(</sys/module/peal/srcversion) == "$running" ]] || fail "an upgrade replaced the running module"
[[ $(device_index) == "$index" ]] || fail "an upgrade replaced the device"
grep -q peal7 /etc/peal/links.conf || fail "an upgrade replaced links.conf"
grep -q "^The running module of peal stays in use. systemctl restart peal-links replaces it.$" "$work/dpkg" ||
	fail "the upgrade does not say how to replace the module: $(<"$work/dpkg")"
shown doctor >"$work/output"
tr -s ' \n' ' ' <"$work/output" | grep -q 'not the one that is installed; type "systemctl restart peal-links" to replace it' ||
	fail "peal doctor: $(<"$work/output")"
moves_data
echo "ok: an upgrade leaves the running module alone, and says so"

# This is what systemctl restart does.
links stop || fail "stop: $(<"$work/output")"
[[ ! -e /sys/class/infiniband/peal7 ]] || fail "peal7 is still there"
[[ ! -e /sys/module/peal ]] || fail "the module is still there"
links start || fail "start: $(<"$work/output")"
[[ $(</sys/module/peal/version) == "$version+later" ]] || fail "the module is still $(</sys/module/peal/version)"
wait_for device_ready peal7 || fail "peal7 is not back: $(device_state peal7)"
shown link show peal7 --json | grep -q '"ecn": "on"' || fail "ecn is not on: $(shown link show peal7)"
! shown doctor | grep -q "not the one that is installed" || fail "peal doctor: $(shown doctor)"
moves_data
echo "ok: the new module runs when told"

links stop || fail "stop: $(<"$work/output")"
boot '[[ -e /sys/class/infiniband/peal7 ]]' || fail "a boot: $(<"$work/boot")"
index=$(device_index)
boot 'systemctl restart peal-links && [[ -e /sys/class/infiniband/peal7 ]]' || fail "systemctl restart: $(<"$work/boot")"
[[ $(device_index) != "$index" ]] || fail "systemctl restart did not make the device anew"
moves_data
echo "ok: systemd makes the device at a boot, and systemctl restart makes it anew"

dpkg --purge peal-dkms ibverbs-provider-peal libpeal-dev libpeal0 peal-tools >"$work/dpkg" 2>&1 || fail "dpkg: $(<"$work/dpkg")"
[[ ! -e /sys/module/peal && ! -e /sys/module/peal_kick_file ]] || fail "a module is still there"
# The headers of kernels and the documents of others have very many files.
left=$(find /usr/src -maxdepth 1 -name '*peal*'
	find /usr/share -maxdepth 3 -name '*peal*'
	find /etc /lib/systemd /usr/bin /usr/libexec /usr/include /usr/lib/*-linux-gnu /var/lib/systemd \
		-xdev -name '*peal*' 2>/dev/null)
[[ -z $left ]] || fail "removal left: $left"
echo "ok: removed"

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
