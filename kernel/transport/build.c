// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The files of this folder are compiled together (Kbuild), but for local.c.
 */
#include "conn.c"
#include "demux.c"
#include "exec.c"
#include "output.c"
#include "sender.c"
#include "show.c"
#include "ud.c"
