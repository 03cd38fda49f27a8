/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* All symbols are visible to the test. */
#ifndef PEAL_SHIM_LINUX_EXPORT_H
#define PEAL_SHIM_LINUX_EXPORT_H

#define EXPORT_SYMBOL_GPL(name)	extern __typeof__(name) name

#endif
