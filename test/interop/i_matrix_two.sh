#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: any
# timeout: 4800
# vm: peers 2, cpus 1
#
# The whole matrix between two machines, with peal in one and rdma_rxe in the other.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../guest/helpers/wire.sh"
# shellcheck source=test/interop/matrix.sh
source "$(dirname "$0")/matrix.sh"
require ib_write_bw ibv_rc_pingpong rping ucmatose ss

# shellcheck disable=SC2086 # the variable has two words
wire_up_two ${WIRE_KINDS:-peal rxe} "${WIRE_MTU:-1500}"
run_matrix
wire_down
