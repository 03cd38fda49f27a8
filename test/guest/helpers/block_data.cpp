// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * block_data: data that tell where they belong, for the shell tests of storage.
 *
 *	block_data write|check PATH MIB SALT [QUEUE] [READY]
 *
 * Writes to a block device or file, or compares what it has. Each 8 bytes depend on their position
 * and on SALT. PATH is opened with O_DIRECT, if its file system has that. QUEUE threads (1) work at
 * once, each on its part of every MiB. READY is a file that appears after the first MiB.
 * Exit status: 0 on success, 1 with a line that says what was expected and what came, 2 when the
 * system reported an error.
 */
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "position_data.hpp"

namespace {

constexpr std::size_t mebibyte = 1 << 20;

struct Job {
	bool writes;
	int fd;
	std::size_t mebibytes;
	std::uint64_t salt;
	std::size_t threads;
	std::string ready;
};

std::atomic<int> status{0};

void report(int value, const std::string &what)
{
	int expected = 0;

	if (status.compare_exchange_strong(expected, value))
		std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

/* The pieces have many sizes, so that some requests are one block and some are a megabyte. */
std::size_t piece_size(std::uint64_t position, std::size_t left)
{
	static constexpr std::size_t sizes[] = {4096, 131072, 8192, 524288, 16384, 65536};

	return std::min(left, sizes[(position / 4096) % std::size(sizes)]);
}

bool move(const Job &job, std::uint64_t *words, std::size_t bytes, std::uint64_t position)
{
	const auto at = static_cast<off_t>(position);
	ssize_t done;

	if (job.writes) {
		fill_by_position(words, bytes, position, job.salt);
		done = pwrite(job.fd, words, bytes, at);
	} else {
		std::memset(words, 0xee, bytes);
		done = pread(job.fd, words, bytes, at);
	}
	if (done != static_cast<ssize_t>(bytes)) {
		report(2, std::string(job.writes ? "pwrite" : "pread") + " at " +
				  std::to_string(position) + ": " +
				  (done < 0 ? std::strerror(errno) : "too short"));
		return false;
	}
	if (!job.writes) {
		const auto difference = compare_by_position(words, bytes, position, job.salt);

		if (!difference.empty())
			report(1, difference);
	}
	return status == 0;
}

void work(const Job &job, std::size_t thread)
{
	const std::size_t part = mebibyte / job.threads;
	void *memory = std::aligned_alloc(4096, mebibyte);
	std::unique_ptr<void, decltype(&std::free)> owner(memory, std::free);

	for (std::size_t i = 0; i < job.mebibytes; i++) {
		std::uint64_t position = i * mebibyte + thread * part;
		for (std::size_t left = part; left;) {
			const auto bytes = piece_size(position, left);
			if (!move(job, static_cast<std::uint64_t *>(memory), bytes, position))
				return;
			position += bytes;
			left -= bytes;
		}
		if (!thread && !i && !job.ready.empty())
			close(open(job.ready.c_str(), O_CREAT | O_WRONLY, 0600));
	}
}

int open_path(const char *path, bool writes)
{
	const int flags = writes ? O_RDWR | O_CREAT : O_RDONLY;
	const int fd = open(path, flags | O_DIRECT, 0600);

	return fd < 0 && errno == EINVAL ? open(path, flags, 0600) : fd;
}

} // namespace

int main(int argc, char **argv)
{
	if (argc < 5) {
		std::fprintf(stderr,
			     "usage: block_data write|check PATH MIB SALT [QUEUE] [READY]\n");
		return 2;
	}
	Job job{std::strcmp(argv[1], "write") == 0,
		-1,
		std::strtoul(argv[3], nullptr, 0),
		std::strtoul(argv[4], nullptr, 0),
		argc > 5 ? std::strtoul(argv[5], nullptr, 0) : 1,
		argc > 6 ? argv[6] : ""};
	job.fd = open_path(argv[2], job.writes);
	if (job.fd < 0) {
		std::perror(argv[2]);
		return 2;
	}
	std::vector<std::thread> threads;
	for (std::size_t i = 0; i < job.threads; i++)
		threads.emplace_back(work, std::cref(job), i);
	for (auto &thread : threads)
		thread.join();
	if (!status && job.writes && fsync(job.fd))
		report(2, std::string("fsync: ") + std::strerror(errno));
	return status;
}
