#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Holds: Unreliable connections of libpeal write and tell the peer, with the connection manager and by blobs. Datagrams go to a
# peer whose blob is known, tell its address, and wake it from a sleep on a descriptor. Coroutines await them, and those of a group.
# Connections of several threads share four receives, also after ten connections have ended, of which each left messages in them.
# Does not hold: a wire that loses messages. test/unit/lib has the library's own cases.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
library_kinds=$(helper library_kinds) || skip "$library_kinds"
export PEAL_DEVICE=${PEAL_DEV:-peal0}
modprobe -a rdma_cm rdma_ucm

note_messages "$PEAL_DEVICE"
timeout "$(limit 50)" "$library_kinds" 10.77.0.1 || fail "library_kinds"
expect_path 600
