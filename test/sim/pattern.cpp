// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See pattern.hpp. A pattern is a part of one table of noise. Its number says where the part
 * begins. The table's length is a prime, so that powers of two do not hide errors.
 */
#include "pattern.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "random.hpp"

namespace peal::sim {

constexpr u64 PERIOD = 65521;

static const u8 *noise()
{
	static const std::vector<u8> table = [] {
		std::vector<u8> bytes(2 * PERIOD);
		Random random(0x7065616c);

		for (u64 i = 0; i < PERIOD; i++)
			bytes[i] = bytes[i + PERIOD] = static_cast<u8>(random.bits());
		return bytes;
	}();
	return table.data();
}

/* Calls @piece(from, done, n) for consecutive parts of the table. */
template <typename Piece>
static bool stretches(u64 id, u64 offset, u64 bytes, Piece piece)
{
	u64 done = 0, begin = mix(id) % PERIOD;

	while (done < bytes) {
		u64 n = std::min(bytes - done, PERIOD);

		if (!piece(noise() + (begin + offset + done) % PERIOD, done, n))
			return false;
		done += n;
	}
	return true;
}

void pattern_fill(u8 *to, u64 id, u64 offset, u64 bytes)
{
	stretches(id, offset, bytes, [&](const u8 *from, u64 done, u64 n) {
		std::memcpy(to + done, from, n);
		return true;
	});
}

bool pattern_is(const u8 *at, u64 id, u64 offset, u64 bytes)
{
	return stretches(id, offset, bytes, [&](const u8 *from, u64 done, u64 n) {
		return !std::memcmp(at + done, from, n);
	});
}

} // namespace peal::sim
