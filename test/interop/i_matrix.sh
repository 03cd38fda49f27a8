#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: any
# timeout: 1500
#
# The whole matrix between peal and rdma_rxe in one machine, with a veth pair between them. WIRE_KINDS names other
# pairs. With "rxe rxe" it shows what the tests do without peal.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../guest/helpers/wire.sh"
# shellcheck source=test/interop/matrix.sh
source "$(dirname "$0")/matrix.sh"
require ib_write_bw ibv_rc_pingpong rping ucmatose ss

# shellcheck disable=SC2086 # the variable has two words
wire_up ${WIRE_KINDS:-peal rxe} "${WIRE_MTU:-1500}"
run_matrix
wire_down
