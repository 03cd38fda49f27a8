// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The kernel's headers, as C++ sees them.
 *
 * Owns: nothing; the code behind these declarations is compiled as C. Include
 * it after everything else: the kernel's names are short.
 */
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

/* Arithmetic on void pointers is how the kernel counts bytes. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpointer-arith"
extern "C" {
#include <rdma/ib_verbs.h>
#include <asm/cpufeature.h>
#include <linux/cred.h>
#include <linux/slab.h>

#include "mem/copy.h"
#include "mem/cursor.h"
#include "mem/extents.h"
#include "base/quota.h"
#include "queue/rq.h"
#include "queue/sq.h"
#include "queue/wqe.h"
}
#pragma GCC diagnostic pop
#undef min
#undef max
