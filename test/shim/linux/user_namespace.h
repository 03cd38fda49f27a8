/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* User namespaces and their owners. */
#ifndef PEAL_SHIM_LINUX_USER_NAMESPACE_H
#define PEAL_SHIM_LINUX_USER_NAMESPACE_H

#include <linux/types.h>

typedef struct {
	u32 val;
} kuid_t;

#define GLOBAL_ROOT_UID	((kuid_t){ 0 })

struct user_namespace {
	struct user_namespace *parent;	/* NULL for the initial one */
	kuid_t owner;
};

static inline bool uid_eq(kuid_t a, kuid_t b)
{
	return a.val == b.val;
}

#endif
