/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Unlike the kernel's, these take mixed types. The kernel build refuses mixed types. */
#ifndef PEAL_SHIM_LINUX_MINMAX_H
#define PEAL_SHIM_LINUX_MINMAX_H

#define min(a, b) ({ __typeof__(a) a_ = (a); __typeof__(b) b_ = (b); a_ < b_ ? a_ : b_; })
#define max(a, b) ({ __typeof__(a) a_ = (a); __typeof__(b) b_ = (b); a_ > b_ ? a_ : b_; })
#define min_t(type, a, b) min((type)(a), (type)(b))
#define clamp_t(type, value, low, high) min_t(type, max_t(type, value, low), high)
#define max_t(type, a, b) max((type)(a), (type)(b))

#endif
