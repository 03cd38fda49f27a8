// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Several threads of one test.
 *
 * Holds: their exceptions, until all threads have ended. Does not hold: their work.
 */
#pragma once

#include "check.hpp"

#include <mutex>
#include <thread>
#include <vector>

namespace peal_test {

/* Threads whose exceptions become failures of the test. */
class Crew {
public:
	template <class Work>
	void start(Work work)
	{
		threads_.emplace_back([this, work] {
			try {
				work();
			} catch (const std::exception &error) {
				const std::lock_guard guard(mutex_);
				failures_.push_back(error.what());
			}
		});
	}
	void finish()
	{
		for (auto &thread : threads_)
			thread.join();
		for (const auto &failure : failures_)
			FAIL_CHECK(failure);
	}

private:
	std::vector<std::thread> threads_;
	std::mutex mutex_;
	std::vector<std::string> failures_;
};

} // namespace peal_test
