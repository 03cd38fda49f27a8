#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: any
# timeout: 1200
#
# Runs soak.cpp for ten minutes over a wire that loses 1 % and goes down now and then. SOAK_SECONDS=7200 is the long
# form, to be run by hand: SOAK_SECONDS=7200 scripts/vm --tests --timeout 8400 -- test/interop/i_soak.sh
set -u
# shellcheck source=test/guest/helpers/wire.sh
source "$(dirname "$0")/../guest/helpers/wire.sh"
require tc

# flap: takes the wire down for a third of a second, every twenty seconds.
flap() {
	while sleep 20; do
		wire_on a ip link set wire_a down
		sleep 0.3
		wire_on a ip link set wire_a up
		wire_neighbours
	done
}

wire_up peal peal 1500
wire_neighbours
wire_netem both loss 1%
flap &
flapper=$!
SOAK_WIRE="peal_a peal_b" build/guest/test/interop/soak "$@"
status=$?
kill "$flapper"
wire_down
exit "$status"
