#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 300
# run: long
# transport: any
# vm: peers 2
#
# Services between two machines, with peal in one and rdma_rxe in the other: NVMe, NFS and SCSI (SRP) over RDMA, with the
# target once at each end, stream sockets through SMC-R, and messages and RDMA through RDS, with the server once at each end.
# Data that depend on their position are written, and the other end or the same end compares them.
# It does not cover iSCSI, nor what the services' own tests show.
set -u
# shellcheck disable=SC2154 # wire_work is wire.sh's
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
# shellcheck source=test/guest/helpers/nvme.sh
source "$(dirname "$0")/../helpers/nvme.sh"
# shellcheck source=test/guest/helpers/nfs.sh
source "$(dirname "$0")/../helpers/nfs.sh"
# shellcheck source=test/guest/helpers/srp.sh
source "$(dirname "$0")/../helpers/srp.sh"
self=$(realpath "$0")
helpers=$(dirname "$self")/../helpers
programs=$(dirname "$self")/../../../build/guest/test/guest
block_data=$programs/block_data
rds_data=$programs/rds_data
stream_data=$programs/stream_data
folder=/run/peal-services
size=16
smc_port=19500
read -r -a kinds <<<"${WIRE_KINDS:-peal rxe}"

# role NAME ARGUMENT...: what one end does. The script runs itself there.
role() {
	case $1 in
	nvme_target)
		nvme_load $size
		nvme_make_target "$2"
		;;
	nvme_host)
		nvme_load $size
		nvme_connect "$2"
		"$block_data" write "$nvme_disk" $size 1 4 || fail "writing"
		nvme_disconnect
		nvme_connect "$2"
		"$block_data" check "$nvme_disk" $size 1 2 || fail "reading"
		nvme_disconnect
		nvme_clean_up
		;;
	nvme_check) "$block_data" check /dev/ram0 $size 1 ;;
	nvme_end) nvme_clean_up ;;
	nfs_server)
		nfs_load
		mkdir -p $folder/export
		nfs_serve $folder/export $((2 * size)) "$2"
		;;
	nfs_client)
		nfs_load
		mkdir -p $folder/mnt
		nfs_mount "$2" "$3" $folder/mnt
		"$block_data" write $folder/mnt/file $size 5 4 || fail "writing"
		umount $folder/mnt || fail "cannot unmount"
		nfs_mount "$2" "$3" $folder/mnt
		"$block_data" check $folder/mnt/file $size 5 2 || fail "reading"
		umount $folder/mnt || fail "cannot unmount"
		;;
	nfs_check) "$block_data" check $folder/export/file $size 5 ;;
	nfs_end) nfs_stop $folder/export ;;
	srp_target)
		srp_load $size
		srp_make_target "$2" "$3"
		srp_identifier
		;;
	srp_host)
		srp_load $size
		srp_connect "$2" "$3" "$4"
		"$block_data" write "$srp_disk" $size 3 4 || fail "writing"
		srp_disconnect
		srp_connect "$2" "$3" "$4"
		"$block_data" check "$srp_disk" $size 3 2 || fail "reading"
		srp_disconnect
		srp_clean_up
		;;
	srp_check) "$block_data" check /dev/ram0 $size 3 ;;
	srp_end) srp_clean_up ;;
	smc_load)
		modprobe -a smc smc_diag && "$helpers/smc_netlink.py" ib PEALTEST "$2" 1 &&
			"$helpers/smc_netlink.py" eth PEALTEST "$3" && "$helpers/smc_netlink.py" ueid PEAL.TEST
		;;
	smc_end) "$helpers/smc_netlink.py" flush && rmmod smc_diag smc ;;
	rds_load) modprobe -a rds rds_rdma ;;
	rds_end) modprobe -r rds_rdma ;;
	*) fail "no role $1" ;;
	esac
}

if (($#)); then
	role "$@"
	exit
fi

# at END ROLE ARGUMENT...
at() { wire_on "$1" "$self" "${@:2}"; }

# must END ROLE ARGUMENT...
must() { at "$@" >"$wire_work/out" 2>&1 || fail "$*: $(<"$wire_work/out")"; }

nvme() {
	local target=$1 host
	host=$(other_end "$1")
	must "$target" nvme_target "${wire_v4[$target]}"
	must "$host" nvme_host "${wire_v4[$target]}"
	must "$target" nvme_check
	at "$target" nvme_end >/dev/null 2>&1
	echo "ok: NVMe, target ${wire_device[$target]}, host ${wire_device[$host]}"
}

nfs() {
	local server=$1 client
	client=$(other_end "$1")
	must "$server" nfs_server "${wire_v4[$client]}"
	must "$client" nfs_client "${wire_v4[$server]}" "${wire_v4[$client]}"
	must "$server" nfs_check
	at "$server" nfs_end
	echo "ok: NFS, server ${wire_device[$server]}, client ${wire_device[$client]}"
}

srp() {
	local target=$1 host
	host=$(other_end "$1")
	must "$target" srp_target "${wire_device[$target]}" "${wire_v4[$target]}"
	must "$host" srp_host "${wire_device[$host]}" "$(<"$wire_work/out")" "${wire_v4[$target]}"
	must "$target" srp_check
	at "$target" srp_end
	echo "ok: SRP, target ${wire_device[$target]}, host ${wire_device[$host]}"
}

# smc SERVER_END: the client fails if the connection is not SMC-R.
smc() {
	local end=$1 client
	client=$(other_end "$1")
	smc_port=$((smc_port + 1))
	wire_serve wire_listens "$end" $smc_port "$stream_data" serve smc "${wire_v4[$end]}" $smc_port \
		>"$wire_work/server" 2>&1 || fail "SMC: no server: $(<"$wire_work/server")"
	wire_on "$client" "$stream_data" talk smcr "${wire_v4[$end]}" $smc_port $size >"$wire_work/client" 2>&1 ||
		fail "SMC: $(<"$wire_work/client") $(<"$wire_work/server") $(dmesg | tail -n 5)"
	wait "$server" || fail "SMC: the server: $(<"$wire_work/server")"
	echo "ok: SMC-R, server ${wire_device[$end]}, client ${wire_device[$client]}, $(tail -n 1 "$wire_work/client")"
}

both_smc() {
	local end
	[[ $(uname -r) != 7.* ]] || { echo "not tested: SMC is not in this kernel" && return; }
	# The QP of SMC never sends a packet, also if both ends are rxe.
	[[ $(uname -r) != 6.1.* ]] || { echo "not tested: SMC-R does not work on rxe of this kernel" && return; }
	for end in a b; do
		must $end smc_load "${wire_device[$end]}" "${wire_netdev[$end]}"
	done
	smc b
	smc a
	for end in a b; do
		must $end smc_end
	done
}

rds_server_is_up() { grep -q ready "$wire_work/server" || ! kill -0 "$server"; }

# rds SERVER_END
rds() {
	local end=$1 client what
	client=$(other_end "$1")
	wire_exec="exec" wire_on "$end" "$rds_data" serve "${wire_v4[$end]}" >"$wire_work/server" 2>&1 &
	server=$!
	wait_for rds_server_is_up || fail "RDS: no server: $(<"$wire_work/server")"
	for what in messages rdma; do
		wire_on "$client" timeout "$(limit 60)" "$rds_data" talk "${wire_v4[$client]}" "${wire_v4[$end]}" $what \
			>"$wire_work/client" 2>&1 ||
			fail "RDS, $what: $(<"$wire_work/client") $(<"$wire_work/server") $(dmesg | tail -n 5)"
	done
	wire_on "$client" "$rds_data" quit "${wire_v4[$client]}" "${wire_v4[$end]}" || fail "RDS: cannot ask the server to end"
	wait_gone kill -0 "$server" || fail "RDS: the server does not end"
	wait "$server" || fail "RDS: the server: $(<"$wire_work/server")"
	echo "ok: RDS, server ${wire_device[$end]}, client ${wire_device[$client]}"
}

both_rds() {
	local end
	modinfo rds_rdma >/dev/null 2>&1 || { echo "not tested: RDS over RDMA is not in this kernel" && return; }
	for end in a b; do
		must $end rds_load
	done
	rds b
	rds a
	for end in a b; do
		# As in services/rds, RDS of Linux 7.2 cannot be unloaded.
		[[ $(uname -r) == 7.* ]] || must $end rds_end
	done
}

wire_up_two "${kinds[@]}" 1500
nvme b
nvme a
nfs b
nfs a
srp b
srp a
both_smc
both_rds
wire_down
