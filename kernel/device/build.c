// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The files of this folder are compiled together (Kbuild).
 */
#include "main.c"
#include "link.c"
#include "netlink.c"
#include "parent.c"
#include "verbs.c"
#include "query.c"
#include "post.c"
#include "statistics.c"
