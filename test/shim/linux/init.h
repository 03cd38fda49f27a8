/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* When code runs. */
#ifndef PEAL_SHIM_LINUX_INIT_H
#define PEAL_SHIM_LINUX_INIT_H

#define __init

#endif
