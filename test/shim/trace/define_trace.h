/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* There is nothing to define (see linux/tracepoint.h). */
