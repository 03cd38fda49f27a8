// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * When a call gives up. Every call of libpeal that can wait takes one, and any duration of
 * std::chrono converts to it. A bare number does not, because it has no unit.
 */
#pragma once
#include <chrono>

namespace peal {

class deadline {
public:
	using clock = std::chrono::steady_clock;

	deadline(clock::time_point at) noexcept : at_(at) {}

	/* The end of time if it lies outside of what the clock can count. */
	template <class Rep, class Period>
	deadline(std::chrono::duration<Rep, Period> from_now) noexcept
	{
		const std::chrono::duration<double> seconds = from_now;

		/* Neither comparison is true for what is no number. */
		if (seconds.count() <= 0)
			at_ = clock::time_point::min();
		else if (seconds.count() < most_seconds)
			at_ = clock::now() + std::chrono::duration_cast<clock::duration>(seconds);
	}

	/* For what ends in another way. */
	static deadline never() noexcept { return clock::time_point::max(); }

	clock::time_point at() const noexcept { return at_; }
	/* It was made of a duration of 0 or less. Nothing waits, and no clock is read. */
	bool is_immediate() const noexcept { return at_ == clock::time_point::min(); }
	bool passed() const noexcept { return is_immediate() || clock::now() >= at_; }

	/* For poll(2): rounded up, so that a poll does not end before the deadline. */
	int milliseconds_left() const noexcept
	{
		if (at_ == clock::time_point::max())
			return most_milliseconds;
		const clock::time_point now = clock::now();
		/* Before the subtraction, which may not be possible. */
		if (now >= at_)
			return 0;
		const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - now);

		return left.count() < most_milliseconds ? static_cast<int>(left.count())
							: most_milliseconds;
	}

private:
	static constexpr double most_seconds = 1e9;
	static constexpr int most_milliseconds = 1 << 30;

	clock::time_point at_ = clock::time_point::max();
};

} // namespace peal
