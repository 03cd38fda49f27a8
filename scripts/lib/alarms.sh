# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Finds messages that a healthy kernel never prints, in logs that other scripts pass.

kernel_alarms='BUG:|WARNING:|Oops|KASAN|UBSAN|KCSAN|lockdep is turned off|possible circular|general protection|rcu.*stall'
kernel_alarms+='|ODEBUG|INFO: trying to register|suspicious RCU|inconsistent lock|unreferenced object'
kernel_alarms+='|refcount_t|slab.*corrupt|hung task|blocked for more than|soft lockup|Call Trace|Kernel panic'
# A reference to a netdev that was never given back.
kernel_alarms+='|unregister_netdevice: waiting for'

# show_alarms LOG: prints the alarms with the lines that follow them. It fails when there are none.
show_alarms() {
	grep -q -E "$kernel_alarms" "$1" || return 1
	# sed reads to the end. With head, a signal could end grep, and "pipefail" would hide the alarm.
	grep -E -A 30 "$kernel_alarms" "$1" | sed -n 1,80p
}
