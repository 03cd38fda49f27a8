/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Bits by number. */
#ifndef PEAL_SHIM_LINUX_BITS_H
#define PEAL_SHIM_LINUX_BITS_H

#define BIT(nr) (1UL << (nr))

#endif
