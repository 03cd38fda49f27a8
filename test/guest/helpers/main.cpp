// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * main() of every guest test binary.
 *
 * Holds: --seed N; exit status 0 passed, 1 failed, 77 everything skipped.
 * Does not hold: a timeout, because the runner ends a test that hangs.
 */
#define CATCH_CONFIG_RUNNER
#include "check.hpp"

#include <cstdio>
#include <cstring>
#include <vector>

namespace {

/* Takes --seed N out of the arguments. Catch2 gets the rest. */
std::vector<char *> take_seed(int argc, char **argv)
{
	std::vector<char *> rest;
	peal_test::session().seed = std::random_device{}();

	for (int i = 0; i < argc; i++) {
		if (!std::strcmp(argv[i], "--seed") && i + 1 < argc)
			peal_test::session().seed = std::strtoull(argv[++i], nullptr, 0);
		else
			rest.push_back(argv[i]);
	}
	return rest;
}

int exit_status(int failed, std::size_t cases)
{
	const auto &session = peal_test::session();

	if (failed || session.late_failures)
		return 1;
	if (cases && session.skipped >= cases) {
		std::printf("skipped: every test case\n");
		return 77;
	}
	return 0;
}

std::size_t cases_run;

#if __has_include(<catch2/catch_all.hpp>)
using ListenerBase = Catch::EventListenerBase;
#else
using ListenerBase = Catch::TestEventListenerBase;
#endif

class CountCases : public ListenerBase {
public:
	using ListenerBase::ListenerBase;
	void testCaseStarting(const Catch::TestCaseInfo &info) override
	{
		cases_run++;
		std::printf("case: %s\n", info.name.c_str());
		std::fflush(stdout);
	}
};

CATCH_REGISTER_LISTENER(CountCases)

} // namespace

int main(int argc, char **argv)
{
	auto arguments = take_seed(argc, argv);
	std::printf("seed: %llu (replay with --seed)\n",
		    static_cast<unsigned long long>(peal_test::session().seed));
	std::fflush(stdout);
	const int failed =
		Catch::Session().run(static_cast<int>(arguments.size()), arguments.data());
	return exit_status(failed, cases_run);
}
