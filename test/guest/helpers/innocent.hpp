// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A correct program beside hostile ones.
 *
 * Holds: messages with checked data, one after the other.
 * Does not hold: the work of the hostile programs.
 */
#pragma once

#include "program.hpp"
#include "verbs.hpp"

#include <fstream>
#include <functional>

namespace peal_test {

/* The users of the module. They are the same before and after when nothing was left behind. */
inline std::string users_of_module()
{
	std::string users;

	std::getline(std::ifstream("/sys/module/peal/refcnt"), users);
	return users;
}

class Innocent {
public:
	explicit Innocent(Device &device, const Link &link = {})
		: pair_(device, {}, link), from_(pair_.a.pd, 16 * page_bytes),
		  to_(pair_.b.pd, 16 * page_bytes)
	{
	}
	/* Sends one WRITE. It throws when the WRITE fails or its bytes are wrong. */
	void message()
	{
		const auto size = random_.between(1, 60000);

		fill_pattern(from_.bytes(0, size), messages_++);
		post(pair_.a.qp, Send(IBV_WR_RDMA_WRITE, {from_.sge(0, size)})
					 .remote(to_.address(), to_.rkey()));
		wait_success(pair_.a.send_cq);
		const auto wrong = difference(to_.bytes(0, size), from_.bytes(0, size));
		if (!wrong.empty())
			throw std::runtime_error("an innocent's data: " + wrong);
	}
	std::uint64_t messages() const { return messages_; }

private:
	Pair pair_;
	Region from_, to_;
	Random random_{77};
	std::uint64_t messages_ = 0;
};

/* Sends messages until all children have ended. `fine` must accept the status of each. */
template <class Fine>
std::uint64_t innocent_among(Device &device, std::size_t children, Duration limit, Fine fine)
{
	Innocent innocent(device);
	const auto deadline = Clock::now() + limit;

	while (children) {
		int status = 0;
		innocent.message();
		if (waitpid(-1, &status, WNOHANG) > 0) {
			children--;
			CHECK(fine(status));
		}
		REQUIRE(Clock::now() < deadline);
	}
	return innocent.messages();
}

/* Return: messages in a second beside that many processes with this body. All must end well. */
template <class Body>
double rate_beside(Device &device, std::size_t processes, Duration limit, Body body)
{
	const Stopwatch watch;

	for (std::uint64_t salt = 1; salt <= processes; salt++)
		spawn([=] { return body(salt); });
	const auto messages =
		innocent_among(device, processes, limit, [](int status) { return status == 0; });
	return static_cast<double>(messages) * 1000 / milliseconds(watch.elapsed());
}

/*
 * Two processes with that many threads each run this body for this time. An innocent program beside
 * them must reach at least half of its rate beside as many threads that only burn time. Less than a
 * minute is not enough to show that.
 */
template <class Body>
void check_beside(Device &device, Duration time, std::size_t threads, Body body)
{
	const auto burn = [=](std::uint64_t) {
		for (const Stopwatch watch; watch.elapsed() < time / 8;)
			;
		return 0;
	};
	const double fair = rate_beside(device, 2 * threads, time + 100s, burn);
	const double rate = rate_beside(device, 2, time + 100s, body);

	std::printf("an innocent: %.0f messages/s, %.0f beside burning of time\n", rate, fair);
	CHECK(rate > 0);
	if (time >= 60s)
		CHECK(rate > fair / 2);
}

} // namespace peal_test
