/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef SHIM_LINUX_BOTTOM_HALF_H
#define SHIM_LINUX_BOTTOM_HALF_H

#define local_bh_disable()	((void)0)
#define local_bh_enable()	((void)0)

#endif
