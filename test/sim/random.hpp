// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Numbers that look random and follow from a seed (xoshiro256**).
 *
 * Owns: the generator's state. Does not know: the use of the numbers.
 */
#pragma once
#include "core.hpp"
#include <initializer_list>

namespace peal::sim {

/* One round of splitmix64, which spreads every bit of @x over the result. */
inline u64 mix(u64 x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

class Random {
	u64 s_[4];

	static u64 left(u64 x, int n) { return x << n | x >> (64 - n); }

public:
	explicit Random(u64 seed)
	{
		for (auto &word : s_)
			word = seed = mix(seed);
	}

	u64 bits()
	{
		u64 result = left(s_[1] * 5, 7) * 9, t = s_[1] << 17;

		s_[2] ^= s_[0];
		s_[3] ^= s_[1];
		s_[1] ^= s_[2];
		s_[0] ^= s_[3];
		s_[2] ^= t;
		s_[3] = left(s_[3], 45);
		return result;
	}

	/* One of 0 .. n - 1; n > 0. */
	u64 below(u64 n) { return bits() % n; }
	/* One of low .. high, both included. */
	u64 between(u64 low, u64 high) { return low + below(high - low + 1); }
	bool one_in(u64 n) { return below(n) == 0; }
	/* True @ppm times in a million. */
	bool ppm(u32 ppm) { return ppm && below(1000000) < ppm; }

	template <typename T>
	T pick(std::initializer_list<T> list)
	{
		return list.begin()[below(list.size())];
	}
};

} // namespace peal::sim
