#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# timeout: 420
# transport: wire
#
# hostile/random_packets with a million packets.
set -u
program=$(dirname "$0")/../../build/guest/test/guest/random_packets
PEAL_PACKETS=1000000 exec "$program"
