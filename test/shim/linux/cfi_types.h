/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Functions in assembly that are called through a pointer are as others here. */
#include <linux/linkage.h>
