# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# What a healthy kernel never prints, and how to look for it. It reads logs that others hand in.

kernel_alarms='BUG:|WARNING:|Oops|KASAN|UBSAN|KCSAN|lockdep is turned off|possible circular|general protection|rcu.*stall'
kernel_alarms+='|ODEBUG|INFO: trying to register|suspicious RCU|inconsistent lock|unreferenced object'
kernel_alarms+='|refcount_t|slab.*corrupt|hung task|blocked for more than|soft lockup|Call Trace'

# show_alarms LOG: prints the alarms with what follows them; fails when there are none.
show_alarms() {
	grep -q -E "$kernel_alarms" "$1" || return 1
	# sed reads to the end. After head grep could end by a signal, and "pipefail" would hide the alarm.
	grep -E -A 30 "$kernel_alarms" "$1" | sed -n 1,80p
}
