/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The core's macros for methods and attributes of this driver.
 *
 * Owns: the name that the core's macros put into the names of their variables.
 * Does not know: the methods.
 */
#ifndef PEAL_METHODS_H
#define PEAL_METHODS_H

#include <rdma/uverbs_ioctl.h>

#define UVERBS_MODULE_NAME peal
#include <rdma/uverbs_named_ioctl.h>

#endif
