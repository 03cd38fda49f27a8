// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The provider, as libibverbs sees it.
 *
 * Owns: the op table, matching, registration.
 * Does not know: what the ops do.
 */
#pragma once
#include "pabi.hpp"

namespace peal {

extern const verbs_context_ops context_ops;

} // namespace peal
