# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Decides whether a guest test may be skipped.

# skip_is_expected FILE KERNEL NAME REASON: FILE has lines "KERNEL NAME REASON", each of them a pattern of the shell.
skip_is_expected() {
	local kernel name reason
	while read -r kernel name reason; do
		# shellcheck disable=SC2053 # they are patterns
		[[ $kernel != \#* && $2 == $kernel && $3 == $name && $4 == $reason ]] && return
	done <"$1"
	return 1
}
