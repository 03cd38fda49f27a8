/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Where variables are placed. */
#ifndef PEAL_SHIM_LINUX_CACHE_H
#define PEAL_SHIM_LINUX_CACHE_H

#define __ro_after_init

#endif
