/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Assertions at compile time. */
#ifndef PEAL_SHIM_LINUX_BUILD_BUG_H
#define PEAL_SHIM_LINUX_BUILD_BUG_H

#define BUILD_BUG_ON(condition)	_Static_assert(!(condition), #condition)

#endif
