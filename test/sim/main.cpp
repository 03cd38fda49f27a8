// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * sim: runs simulations by their seeds.
 *
 * 	sim [--seeds N] [--seed S] [--jobs J] [--file LIST] [--all] [--verbose] [--planted]
 *
 * Runs N seeds from S on, in J processes. N is 1 by default, and S is random. Prints the first
 * seed that fails (--all: every one) with the rule that it broke. Then the exit status is 1.
 * --file runs the seeds in a file instead. --verbose prints each packet. With --planted every
 * connection has a forger.
 */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scenario.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

using namespace peal::sim;

static u64 current_seed;

/* A sanitizer ends the process. This prints the seed. */
extern "C" void say_seed()
{
	std::fprintf(stderr, "sim: it was seed %llu\n", current_seed);
}

struct Totals {
	u64 seeds, packets, events, current;
};

struct Options {
	std::vector<u64> list;
	u64 seed = 0, seeds = 1;
	unsigned jobs = 1;
	bool verbose = false, all = false;

	u64 count() const { return list.empty() ? seeds : list.size(); }
	u64 at(u64 i) const { return list.empty() ? seed + i : list[i]; }
};

static bool run_seed(u64 seed, bool verbose, Totals *totals)
{
	current_seed = totals->current = seed;
	PealPair::kept = 0;
	try {
		Scenario scenario(seed, verbose);

		scenario.run();
		totals->seeds++;
		totals->packets += scenario.packets();
		totals->events += scenario.events();
		return true;
	} catch (const Guessed &) {
		totals->seeds++;
		return true;
	} catch (const std::exception &broken) {
		std::printf("FAIL seed %llu: %s\n", seed, broken.what());
		std::fflush(stdout);
		return false;
	}
}

/* Every job-th seed. */
static bool run_share(const Options &options, unsigned job, Totals *totals, volatile bool *stop)
{
	bool well = true;

	for (u64 i = job; i < options.count() && !*stop; i += options.jobs) {
		if (run_seed(options.at(i), options.verbose, totals))
			continue;
		well = false;
		*stop = !options.all;
	}
	return well;
}

/* Uses processes for speed, and because a sanitizer's report ends one. */
static bool run_all(const Options &options, Totals *shared, volatile bool *stop)
{
	bool well = true;
	int status;

	if (options.jobs == 1)
		return run_share(options, 0, &shared[0], stop);
	std::vector<pid_t> jobs(options.jobs);

	for (unsigned job = 0; job < options.jobs; job++)
		if (!(jobs[job] = fork())) {
			bool good = run_share(options, job, &shared[job], stop);

			std::fflush(stdout);
			_exit(good ? 0 : 1);
		}
	for (unsigned job = 0; job < options.jobs; job++) {
		waitpid(jobs[job], &status, 0);
		if (WIFSIGNALED(status))
			std::printf("FAIL seed %llu: signal %d\n", shared[job].current,
				    WTERMSIG(status));
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			well = false;
			*stop = !options.all;
		}
	}
	return well;
}

static std::vector<u64> read_list(const char *path)
{
	std::ifstream file(path);
	std::vector<u64> seeds;
	std::string line;

	if (!file) {
		std::fprintf(stderr, "sim: cannot read %s\n", path);
		std::exit(2);
	}
	while (std::getline(file, line))
		if (!line.empty() && line[0] != '#')
			seeds.push_back(std::strtoull(line.c_str(), nullptr, 0));
	return seeds;
}

static Options parse(int argc, char **argv)
{
	Options options;
	bool seeded = false;

	for (int i = 1; i < argc; i++) {
		std::string name = argv[i];
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (name == "--verbose") {
			options.verbose = true;
			continue;
		}
		if (name == "--all") {
			options.all = true;
			continue;
		}
		if (name == "--planted") {
			Connection::always_planted = true;
			continue;
		}
		if (name == "--seeds")
			options.seeds = std::strtoull(value, nullptr, 0);
		else if (name == "--seed")
			options.seed = std::strtoull(value, nullptr, 0), seeded = true;
		else if (name == "--jobs")
			options.jobs = static_cast<unsigned>(std::strtoul(value, nullptr, 0));
		else if (name == "--file")
			options.list = read_list(value), seeded = true;
		else
			value = "";
		if (!*value) {
			std::fprintf(stderr, "usage: sim [--seeds N] [--seed S] [--jobs J] "
					     "[--file LIST] [--all] [--verbose] [--planted]\n");
			std::exit(2);
		}
		i++;
	}
	if (!seeded)
		options.seed = std::random_device{}();
	options.jobs = options.verbose || !options.jobs ? 1 : options.jobs;
	return options;
}

int main(int argc, char **argv)
{
	Options options = parse(argc, argv);
	size_t bytes = sizeof(Totals) * options.jobs + sizeof(bool);
	auto *shared = static_cast<Totals *>(
		mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	auto *stop = reinterpret_cast<volatile bool *>(shared + options.jobs);
	auto begin = std::chrono::steady_clock::now();
	Totals sum{};

	if (shared == MAP_FAILED)
		return 2;
#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_set_death_callback(say_seed);
#endif
	if (options.list.empty() && options.count() > 1)
		std::printf("seeds %llu to %llu\n", options.seed, options.seed + options.seeds - 1);
	std::fflush(stdout);

	bool well = run_all(options, shared, stop);
	std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;

	for (unsigned job = 0; job < options.jobs; job++) {
		sum.seeds += shared[job].seeds;
		sum.packets += shared[job].packets;
		sum.events += shared[job].events;
	}
	std::printf("%llu seeds, %llu packets in %.1f s: %.0f seeds/s\n", sum.seeds, sum.packets,
		    took.count(), static_cast<double>(sum.seeds) / took.count());
	return well ? 0 : 1;
}
