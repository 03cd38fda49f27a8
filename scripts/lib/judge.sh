# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# What the host and the guest both decide about a test: its name in a result, the alarms of a kernel log, and whether it may be
# skipped.

# Messages that a healthy kernel never prints. The last is a reference to a netdev that was never given back.
kernel_alarms='BUG:|WARNING:|Oops|KASAN|UBSAN|KCSAN|lockdep is turned off|possible circular|general protection|rcu.*stall'
kernel_alarms+='|ODEBUG|INFO: trying to register|suspicious RCU|inconsistent lock|unreferenced object'
kernel_alarms+='|refcount_t|slab.*corrupt|hung task|blocked for more than|soft lockup|Call Trace|Kernel panic'
kernel_alarms+='|unregister_netdevice: waiting for'

# show_alarms LOG: prints the alarms with the lines that follow them. It fails when there are none.
show_alarms() {
	grep -q -E "$kernel_alarms" "$1" || return 1
	# sed reads to the end. With head, a signal could end grep, and "pipefail" would hide the alarm.
	grep -E -A 30 "$kernel_alarms" "$1" | sed -n 1,80p
}

# skip_is_expected FILE KERNEL NAME REASON: FILE has lines "KERNEL NAME REASON", each of them a pattern of the shell.
skip_is_expected() {
	local kernel name reason
	while read -r kernel name reason; do
		# shellcheck disable=SC2053 # they are patterns
		[[ $kernel != \#* && $2 == $kernel && $3 == $name && $4 == $reason ]] && return
	done <"$1"
	return 1
}

# title NAME TRANSPORT KERNEL: a test is told by its name, unless it runs on the wire or on a newer kernel.
title() {
	local remarks=
	[[ $2 != wire ]] || remarks+=", wire"
	[[ $3 == 6.1 || $3 == debug || $3 == races ]] || remarks+=", $3"
	printf '%s\n' "$1${remarks:+ (${remarks#, })}"
}
