/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The user, as the test sets it. */
#ifndef PEAL_SHIM_LINUX_CRED_H
#define PEAL_SHIM_LINUX_CRED_H

#include <linux/user_namespace.h>

extern kuid_t shim_uid;
extern struct user_namespace *shim_user_ns;

static inline kuid_t current_uid(void)
{
	return shim_uid;
}

static inline struct user_namespace *current_user_ns(void)
{
	return shim_user_ns;
}

#endif
