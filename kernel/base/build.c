// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The files of this folder are compiled together (Kbuild), but for trace.c and those of
 * peal_kick_file.ko.
 */
#include "epoch.c"
#include "fault.c"
#include "quota.c"
#include "table.c"
