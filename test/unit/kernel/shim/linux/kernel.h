/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What kernel files take from linux/kernel.h: minmax, container_of, errno. */
#ifndef PEAL_KSHIM_LINUX_KERNEL_H
#define PEAL_KSHIM_LINUX_KERNEL_H

#include <linux/compiler.h>
#include <linux/errno.h>
#include <linux/minmax.h>
#include <linux/types.h>

#define container_of(pointer, type, member) \
	((type *)((char *)(pointer) - offsetof(type, member)))

#endif
