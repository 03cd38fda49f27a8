// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Memory windows.
 *
 * Owns: creation and destruction of a window, and the key of a type 1 window.
 * Does not know: how a bind is posted (post).
 */
#pragma once
#include <infiniband/verbs.h>

namespace peal {

ibv_mw *mw_alloc(ibv_pd *pd, ibv_mw_type type);
int mw_dealloc(ibv_mw *mw);
int mw_bind(ibv_qp *qp, ibv_mw *mw, ibv_mw_bind *bind) noexcept;

} // namespace peal
