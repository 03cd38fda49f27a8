# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Decides between KVM and software emulation, and composes QEMU's command line. Starts only the probe.
# Needs common.sh. It reads the variables of scripts/vm.

# /dev/kvm may open although guests hang in it (nested virtualisation), so one boot is tried, once
# for each boot of this machine.
kvm_works() {
	local folder answer
	[[ -r /dev/kvm && -w /dev/kvm ]] || return 1
	folder=$(make_cache probe)
	answer=$folder/kvm-$(</proc/sys/kernel/random/boot_id)
	[[ -e $answer ]] || with_cache_lock probe save_probe "$answer"
	[[ $(<"$answer") == yes ]]
}

# save_probe FILE: another machine must not read the file before the answer is in it.
save_probe() {
	[[ ! -e $1 ]] || return 0
	probe_kvm >"$1.new" && mv "$1.new" "$1"
}

probe_kvm() {
	local log
	log=$(mktemp)
	say "trying KVM"
	# The subshell keeps bash from reporting a QEMU that aborts.
	(
		ulimit -c 0
		timeout --kill-after=2 15 qemu-system-x86_64 -accel kvm -cpu host -m 512M -nodefaults -display none \
			-no-reboot -serial "file:$log" -kernel "$image" -initrd "$initrd" \
			-append "console=ttyS0 earlyprintk=ttyS0 panic=-1 peal.probe" </dev/null &
		end_silent_probe "$!" "$log" || true
		wait "$!" || true
	) >/dev/null 2>&1
	if grep -q "guest-init: alive" "$log"; then echo yes; else echo no; fi
	rm -f "$log"
}

# end_silent_probe PROCESS LOG: ends a guest that hangs. Such a guest prints nothing, and a working one prints its
# first lines within a second.
end_silent_probe() {
	local end=$((SECONDS + 5))
	while kill -0 "$1"; do
		[[ ! -s $2 ]] || return 0
		if ((SECONDS >= end)); then
			kill "$1"
			return
		fi
		sleep 0.1
	done
}

choose_accelerator() {
	if [[ -n $icount ]]; then
		accel=icount
	elif [[ -z $accel ]]; then
		if kvm_works; then accel=kvm; else accel=tcg; fi
	fi
}

# Prints the name of the machine for a table of measurements.
accelerator_name() {
	local version
	version=$(qemu-system-x86_64 --version | awk 'NR == 1 { print $4 }')
	case $accel in
	kvm) echo "QEMU $version with KVM" ;;
	tcg) echo "QEMU $version, software emulation" ;;
	icount) echo "QEMU $version, software emulation that counts instructions" ;;
	esac
}

# Under emulation rep movsb runs byte by byte, so the guest must not take it for fast.
emulated_cpu=max,-erms,-fsrm

accelerator_arguments() {
	case $accel in
	kvm) echo "-accel kvm -cpu host -smp $cpus" ;;
	tcg) echo "-accel tcg,thread=multi -cpu $emulated_cpu -smp $cpus" ;;
	icount) echo "-accel tcg -cpu $emulated_cpu -icount shift=0,sleep=off -smp 1" ;;
	*) die "--accel is kvm or tcg" ;;
	esac
}

# An emulated guest reads this machine's time stamp counter. Where it is busy while the guest measures how fast that counts,
# the guest's clock runs several times too fast from then on; so it is told, as far as this machine's kernel log knows.
counter_speed() {
	dmesg 2>/dev/null | sed -n -E \
		's/.*tsc: (Detected|Refined TSC clocksource calibration:) ([0-9]+)\.([0-9]{3}) MHz.*/tsc_early_khz=\2\3/p' | tail -n 1
}

# Fixed addresses make instruction counts repeatable. Emulated programs have them, too, because QEMU translates code again
# for each address at which it runs, so also a library at a new address in each process. A kernel that counts too few timer
# interrupts while this machine is busy would panic ("IO-APIC + timer doesn't work"), so emulated kernels do not count them.
kernel_arguments() {
	local always="console=ttyS0 panic=-1 oops=panic mitigations=off idle=halt ${PEAL_VM_APPEND:-}"
	[[ $kernel != debug || -n ${PEAL_VM_LEAKS:-} ]] || always+=" kmemleak=off"
	# KCSAN looks at one of so many accesses, which is ten times its default.
	[[ $kernel != races ]] || always+=" kcsan.skip_watch=400"
	case $accel in
	kvm) echo "$always" ;;
	tcg) echo "$always tsc=reliable clocksource=tsc norandmaps no_timer_check $(counter_speed)" ;;
	icount) echo "$always tsc=reliable clocksource=tsc nokaslr norandmaps" ;;
	esac
}

# share NAME FOLDER OPTIONS: a 9p share.
share() { echo "local,path=${2//,/,,},mount_tag=$1,security_model=none,multidevs=remap$3"; }

# qemu_command FOLDER NUMBER: sets qemu, for the guest with this number.
qemu_command() {
	local folder=$1 arguments
	read -r -a arguments <<<"$(accelerator_arguments)"
	# The other machine computes its interrupt routes in ACPI code, which takes these kernels minutes.
	! is_debug_kind "$kernel" || arguments+=(-machine q35)
	qemu=(qemu-system-x86_64 "${arguments[@]}" -m "$mem" -nodefaults -no-user-config -display none -no-reboot
		-kernel "$image" -initrd "$initrd" -append "$(kernel_arguments)"
		-serial "file:$folder/dmesg.log"
		-device virtio-serial-pci
		-chardev "file,id=output,path=$folder/output" -device "virtserialport,chardev=output,name=output"
		-virtfs "$(share root / ,readonly=on)"
		-virtfs "$(share vm "$folder" "")")
	if (($2 == 1)) && [[ -n ${PEAL_VM_RESULTS:-} ]]; then
		qemu+=(-virtfs "$(share results "$(realpath "$PEAL_VM_RESULTS")" "")")
	fi
	if ((peers == 2)); then
		add_wire "$2"
	fi
}

# add_wire NUMBER: connects the guests. Frames go as datagrams between two sockets, so that either guest may start
# first. The path of a socket may have at most 107 bytes, so the sockets are in a folder of their own.
add_wire() {
	local own=$wire_folder/$1 other=$wire_folder/$((3 - $1))
	qemu+=(-netdev "dgram,id=wire,local.type=unix,local.path=$own,remote.type=unix,remote.path=$other"
		-device "virtio-net-pci,netdev=wire,mac=02:70:65:61:6c:0$1,host_mtu=9000")
}
