// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The files of this folder are compiled together (Kbuild).
 */
#include "context.c"
#include "cq.c"
#include "cursor.c"
#include "dm.c"
#include "errors.c"
#include "extents.c"
#include "mr.c"
#include "odp.c"
#include "qp.c"
#include "srq.c"
#include "wqe.c"
