// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The files of this folder are compiled together (Kbuild).
 */
#include "engine.c"
#include "kick.c"
#include "lifecycle.c"
#include "poller.c"
