/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The allocator is in linux/slab.h. */
#ifndef PEAL_SHIM_LINUX_MM_H
#define PEAL_SHIM_LINUX_MM_H

#include <linux/slab.h>

#endif
