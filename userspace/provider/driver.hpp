// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The interface of the provider to libibverbs.
 *
 * Owns: the op table, matching, registration.
 * Does not know: the implementation of the ops.
 */
#pragma once
#include "pabi.hpp"

namespace peal {

extern const verbs_context_ops context_ops;

} // namespace peal
