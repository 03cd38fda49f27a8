// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The files of this folder are compiled together (Kbuild).
 */
#include "crc.c"
#include "hold.c"
#include "netns.c"
#include "path.c"
#include "rx.c"
#include "rx_packet.c"
#include "sniff.c"
#include "tx.c"
#include "tx_quota.c"
