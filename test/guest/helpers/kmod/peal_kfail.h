/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Allocations of the calling thread fail between start and stop. Programs use the
 * commands of /dev/peal_kfail, and modules use two functions.
 *
 * Does not know: which allocations those are (peal_kfail.c).
 */
#ifndef PEAL_KFAIL_H
#define PEAL_KFAIL_H

#include <linux/ioctl.h>

#define PEAL_KFAIL_ONE	_IO('F', 1)	/* the one in the argument, counted from 1 */
#define PEAL_KFAIL_FROM	_IO('F', 2)	/* that one and all later ones */
#define PEAL_KFAIL_STOP	_IO('F', 3)	/* returns how many have failed */

#ifdef __KERNEL__
void peal_kfail_start(unsigned long number, bool more);
unsigned long peal_kfail_stop(void);
#endif

#endif
