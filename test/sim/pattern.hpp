// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The bytes of a message follow from its number and their place, so that a byte at a
 * wrong place, or of another message, is noticed.
 *
 * Owns: the table of noise. Does not know: messages.
 */
#pragma once
#include "core.hpp"

namespace peal::sim {

/* The number of guard bytes, which must not be written. */
constexpr u64 CANARY = ~0ULL;

/* Writes bytes @offset .. @offset + @bytes of pattern @id. */
void pattern_fill(u8 *to, u64 id, u64 offset, u64 bytes);
bool pattern_is(const u8 *at, u64 id, u64 offset, u64 bytes);

} // namespace peal::sim
