/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Pointers that are error numbers. */
#ifndef PEAL_SHIM_LINUX_ERR_H
#define PEAL_SHIM_LINUX_ERR_H

#include <linux/errno.h>
#include <linux/types.h>

static inline void *ERR_PTR(long error)
{
	return (void *)error;
}

static inline bool IS_ERR(const void *pointer)
{
	return (unsigned long)pointer >= (unsigned long)-4095;
}

#endif
