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

#include "copy.h"
#include "cursor.h"
#include "extents.h"
#include "quota.h"
#include "rq.h"
#include "sq.h"
#include "wqe.h"
}
#pragma GCC diagnostic pop
#undef min
#undef max
