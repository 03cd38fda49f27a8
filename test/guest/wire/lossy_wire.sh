#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 240
# run: long
# transport: any
#
# Data arrives byte-exact and in time over a wire that loses, duplicates and reorders packets, with the default timeout
# and seven retries. `scripts/test interop` covers more kinds of loss and more bytes.
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../helpers/wire.sh"
# shellcheck source=test/interop/impair.sh
source "$(dirname "$0")/../../interop/impair.sh"
require rping tc
read -r -a kinds <<<"${WIRE_KINDS:-peal peal}"

# Forty of 4 MiB's packets are lost.
mebibytes=4
! thorough || mebibytes=8
wire_up "${kinds[@]}" 1500
wire_neighbours
impair "loss 1%" loss 1%
transfer "$mebibytes" 60
ping 30 -S 65000 -C 100
impair "5% late" delay 1ms reorder 95%
transfer "$mebibytes" 60
impair "duplicate 1%" duplicate 1%
transfer "$mebibytes" 60
wire_down
judge_impairments
