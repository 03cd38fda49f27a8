#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# lacks.sh FOLDER: FOLDER is the build folder of a kernel, for example /lib/modules/$(uname -r)/build. If peal cannot be built
# for this kernel, prints why in one sentence, and fails.
set -u
folder=$1
config=$folder/.config
[ -e "$config" ] || config=$folder/include/config/auto.conf
[ -e "$config" ] || {
	echo "peal cannot be built: $folder has no configuration of a kernel; install its headers (linux-headers)"
	exit 1
}
release=$(cat "$folder/include/config/kernel.release" 2>/dev/null)
missing=
for option in INFINIBAND INFINIBAND_USER_ACCESS NETFILTER CRC32 CRYPTO; do
	grep -q "^CONFIG_$option=[ym]" "$config" || missing="$missing CONFIG_$option"
done
major=${release%%.*}
minor=${release#*.}
minor=${minor%%[!0-9]*}
if [ "${major:-0}" -lt 6 ] || { [ "$major" -eq 6 ] && [ "${minor:-0}" -lt 1 ]; }; then
	echo "peal cannot be built for the kernel ${release:-in $folder}: it needs 6.1 or later"
elif [ "$missing" ]; then
	echo "peal cannot be built for the kernel $release: it was configured without${missing}"
elif grep -q "^CONFIG_PREEMPT_RT=y" "$config"; then
	echo "peal cannot be built for the kernel $release: it was configured with CONFIG_PREEMPT_RT"
else
	exit 0
fi
exit 1
