# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Decides between KVM and software emulation, and composes QEMU's command line. Starts only the probe.
# Needs common.sh. It reads the variables of scripts/vm.

# /dev/kvm may open although guests hang in it (nested virtualisation), so one boot is tried, once
# for each boot of this machine.
kvm_works() {
	local answer
	[[ -r /dev/kvm && -w /dev/kvm ]] || return 1
	answer=$(make_cache probe)/kvm-$(</proc/sys/kernel/random/boot_id)
	[[ -e $answer ]] || with_cache_lock probe probe_kvm "$answer"
	[[ $(<"$answer") == yes ]]
}

# probe_kvm FILE: another machine must not read the file before the answer is in it.
probe_kvm() {
	local log tries answer=no
	[[ ! -e $1 ]] || return 0
	log=$(mktemp)
	say "trying KVM"
	# The subshell keeps bash from reporting a QEMU that aborts.
	(
		ulimit -c 0
		timeout --kill-after=2 15 qemu-system-x86_64 -accel kvm -cpu host -m 512M -nodefaults -display none \
			-no-reboot -serial "file:$log" -kernel "$image" -initrd "$initrd" \
			-append "console=ttyS0 earlyprintk=ttyS0 panic=-1 peal.probe" </dev/null &
		# A guest that hangs prints nothing, and a working one prints its first lines within a second.
		for tries in {1..50}; do
			kill -0 "$!" && [[ ! -s $log ]] || break
			sleep 0.1
		done
		[[ -s $log ]] || kill "$!"
		wait "$!"
	) >/dev/null 2>&1 || true
	! grep -q "guest-init: alive" "$log" || answer=yes
	rm -f "$log"
	echo "$answer" >"$1.new" && mv "$1.new" "$1"
}

# Sets accelerator, QEMU's arguments for it, machine, which a table of measurements names, and append, the kernel's command
# line. Fixed addresses make instruction counts repeatable. Emulated programs have them, too, because QEMU translates code
# again for each address at which it runs, so also a library at a new address in each process. Under emulation rep movsb runs
# byte by byte, so the guest must not take it for fast.
choose_accelerator() {
	local emulated_cpu=max,-erms,-fsrm
	machine="QEMU $(qemu-system-x86_64 --version | awk 'NR == 1 { print $4 }')"
	# Whoever sends an NMI wants to know where a guest hangs. 0x40: a panic prints the backtraces of all processors.
	append="console=ttyS0 panic=-1 oops=panic unknown_nmi_panic panic_print=0x40 mitigations=off idle=halt ${PEAL_VM_APPEND:-}"
	[[ $kernel != debug || -n ${PEAL_VM_LEAKS:-} ]] || append+=" kmemleak=off"
	# KCSAN looks at one of so many accesses, which is ten times its default.
	[[ $kernel != races ]] || append+=" kcsan.skip_watch=400"
	if [[ -n $icount ]]; then
		machine+=", software emulation that counts instructions"
		cpus=1
		accelerator=(-accel tcg -cpu "$emulated_cpu" -icount "shift=0,sleep=off" -smp "$cpus")
		append+=" tsc=reliable clocksource=tsc nokaslr norandmaps"
	elif kvm_works; then
		machine+=" with KVM"
		accelerator=(-accel kvm -cpu host -smp "$cpus")
	else
		machine+=", software emulation"
		accelerator=(-accel "tcg,thread=multi" -cpu "$emulated_cpu" -smp "$cpus")
		# A kernel that counts too few timer interrupts while this machine is busy would panic ("IO-APIC + timer doesn't
		# work"), so emulated kernels do not count them.
		append+=" tsc=reliable clocksource=tsc norandmaps no_timer_check $(counter_speed)"
	fi
	# These kernels have no ACPI. They find the processors in the MP table, which lists one of each socket.
	! is_debug_kind "$kernel" || accelerator+=(-machine q35 -smp "sockets=$cpus")
}

# An emulated guest reads this machine's time stamp counter. Where it is busy while the guest measures how fast that counts,
# the guest's clock runs several times too fast from then on; so it is told, as far as this machine's kernel log knows.
counter_speed() {
	dmesg 2>/dev/null | sed -n -E \
		's/.*tsc: (Detected|Refined TSC clocksource calibration:) ([0-9]+)\.([0-9]{3}) MHz.*/tsc_early_khz=\2\3/p' | tail -n 1
}

# share NAME FOLDER OPTIONS: a 9p share.
share() { echo "local,path=${2//,/,,},mount_tag=$1,security_model=none,multidevs=remap$3"; }

# qemu_command FOLDER NUMBER: sets qemu, for the guest with this number. Frames between two guests go as datagrams between two
# sockets, so that either guest may start first. The path of a socket may have at most 107 bytes, so the sockets are in a folder
# of their own.
qemu_command() {
	local folder=$1 own=${wire_folder:-}/$2 other=${wire_folder:-}/$((3 - $2))
	qemu=(qemu-system-x86_64 "${accelerator[@]}" -m "$mem" -nodefaults -no-user-config -display none -no-reboot
		-kernel "$image" -initrd "$initrd" -append "$append"
		-serial "file:$folder/dmesg.log"
		-chardev "pipe,id=monitor,path=$folder/monitor" -mon chardev=monitor
		-device virtio-serial-pci
		-chardev "file,id=output,path=$folder/output" -device "virtserialport,chardev=output,name=output"
		-virtfs "$(share root / ,readonly=on)"
		-virtfs "$(share vm "$folder" "")")
	# The image of guest-image.sh. The guest finds it as /dev/vda.
	[[ -z $files ]] || qemu+=(-drive "file=${files//,/,,},if=virtio,format=raw,readonly=on")
	if (($2 == 1)) && [[ -n ${PEAL_VM_RESULTS:-} ]]; then
		qemu+=(-virtfs "$(share results "$(realpath "$PEAL_VM_RESULTS")" "")")
	fi
	[[ -z ${PEAL_VM_PLUGIN:-} ]] || qemu+=(-plugin "$PEAL_VM_PLUGIN")
	if ((peers == 2)); then
		qemu+=(-netdev "dgram,id=wire,local.type=unix,local.path=$own,remote.type=unix,remote.path=$other"
			-device "virtio-net-pci,netdev=wire,mac=02:70:65:61:6c:0$2,host_mtu=9000")
	fi
}
