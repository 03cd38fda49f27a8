/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* See linux/tracepoint.h: there is nothing to define. */
