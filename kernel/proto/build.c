// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The files of this folder are compiled together (Kbuild).
 */
#include "packet.c"
#include "reorder.c"
#include "requester.c"
#include "responder.c"
#include "timers.c"
#include "window.c"
