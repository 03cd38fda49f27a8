/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* As in the kernel, an index out of range becomes 0. */
#ifndef PEAL_SHIM_LINUX_NOSPEC_H
#define PEAL_SHIM_LINUX_NOSPEC_H

#define array_index_nospec(index, size)	((index) < (size) ? (index) : 0)

#endif
