// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The kernel's headers for C++.
 *
 * Owns: nothing. The code behind these declarations is compiled as C. Include
 * this last, because the kernel's names are short.
 */
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

/* The kernel uses arithmetic on void pointers to count bytes. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpointer-arith"
extern "C" {
#include <rdma/ib_verbs.h>
#include <asm/cpufeature.h>
#include <asm/fpu/api.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "object/extents.h"
#include "object/cursor.h"
#include "base/fault.h"
#include "base/quota.h"
#include "net/crc.h"
#include "object/wqe.h"
#include "proto/packet.h"
}
#pragma GCC diagnostic pop
#undef min
#undef max
