// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See wire.h. Nothing is carried yet.
 */
#include "wire.h"

int peal_wire_attach(struct peal_dev *dev, struct peal_qp *qp, const struct ib_qp_attr *attr,
		     int mask)
{
	return -ENETUNREACH;
}
