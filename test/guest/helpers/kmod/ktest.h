/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the files of peal_ktest share.
 */
#ifndef KTEST_H
#define KTEST_H

#include <rdma/ib_verbs.h>

/* For functions that return nothing, with a @t that has a field `error`. */
#define KTEST_CHECK(t, condition)						\
	do {									\
		if (!(condition)) {						\
			pr_info("peal_ktest: line %d of %s: expected %s\n", __LINE__, \
				kbasename(__FILE__), #condition);		\
			(t)->error = -EIO;					\
			return;							\
		}								\
	} while (0)

/* Return: 1, or 0 if no completion came in time. */
int ktest_wait(struct ib_cq *cq, struct ib_wc *wc);

/* From RESET to RTS, towards a queue pair of the same device. */
int ktest_connect_to(struct ib_qp *qp, u32 peer);

/* The tests of the other files. Return: 0 if all pass. */
int ktest_fast_reg(struct ib_device *dev);
int ktest_polling(struct ib_device *dev);

#endif
