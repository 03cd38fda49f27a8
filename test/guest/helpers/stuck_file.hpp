// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A file whose pages do not come: a FUSE file system with one file, which answers no READ before it
 * is told to.
 *
 * Holds: the mount, the daemon (a process, or a thread of the caller), how many READs came.
 * Does not hold: which program maps the file.
 */
#pragma once

#include "commands.hpp"
#include "innocent.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <atomic>
#include <filesystem>
#include <thread>

namespace peal_test {

class StuckFile {
public:
	static constexpr std::size_t bytes = 64 << 20;

	/* @own: a thread of the caller serves the file, otherwise a process of its own. */
	explicit StuckFile(bool own = false)
	{
		char pattern[] = "/tmp/stuck-XXXXXX";

		run("modprobe fuse");
		counts_ =
			static_cast<Counts *>(mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE,
						   MAP_SHARED | MAP_ANONYMOUS, -1, 0));
		if (counts_ == MAP_FAILED || !mkdtemp(pattern))
			throw_errno("mmap or mkdtemp");
		folder_ = pattern;
		const int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
		const auto options = "fd=" + std::to_string(fd) +
				     ",rootmode=40000,user_id=0,group_id=0,allow_other";
		must(mount("stuck", pattern, "fuse", MS_NOSUID | MS_NODEV, options.c_str()) ? errno
											    : 0,
		     "mount");
		if (own) {
			std::thread([this, fd] { serve(fd); }).detach();
		} else {
			daemon_ = spawn([this, fd] {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				serve(fd);
				return 0;
			});
			close(fd);
		}
	}
	~StuckFile()
	{
		if (daemon_ > 0) {
			kill(daemon_, SIGKILL);
			waitpid(daemon_, nullptr, 0);
		}
		umount2(folder_.c_str(), MNT_DETACH);
		rmdir(folder_.c_str());
	}
	StuckFile(const StuckFile &) = delete;
	StuckFile &operator=(const StuckFile &) = delete;

	/* Maps the file for reading. Nothing may touch the memory, or it waits, too. */
	const std::uint8_t *map() const
	{
		const int fd = open((folder_ + "/file").c_str(), O_RDONLY | O_CLOEXEC);
		void *base = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);

		if (base == MAP_FAILED)
			throw_errno("map the stuck file");
		close(fd);
		return static_cast<std::uint8_t *>(base);
	}
	/* READs that came to the daemon. The kernel keeps some of them back. */
	unsigned reads() const { return counts_->reads; }
	/* The daemon answers READs from now on, those that wait and all later ones. */
	void release() { counts_->released = true; }
	static constexpr std::uint8_t content = 0x5a; /* each byte of the file */

private:
	struct Counts {
		std::atomic<unsigned> reads;
		std::atomic<bool> released;
	};
	struct Read {
		fuse_in_header in;
		fuse_read_in what;
	};

	static fuse_attr attributes(std::uint64_t node)
	{
		fuse_attr attr{};

		attr.ino = node;
		attr.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0444;
		attr.size = node == FUSE_ROOT_ID ? 0 : bytes;
		attr.nlink = 1;
		attr.blksize = page_bytes;
		return attr;
	}
	template <class Answer>
	static void answer(int fd, const fuse_in_header &in, const Answer &body)
	{
		answer(fd, in, 0, &body, sizeof(body));
	}
	static void answer(int fd, const fuse_in_header &in, int error, const void *body = nullptr,
			   std::size_t length = 0)
	{
		fuse_out_header out{};
		const std::array<iovec, 2> parts{
			{{&out, sizeof(out)}, {const_cast<void *>(body), length}}};

		out.len = static_cast<std::uint32_t>(sizeof(out) + length);
		out.error = error;
		out.unique = in.unique;
		if (writev(fd, parts.data(), length ? 2 : 1) < 0)
			std::perror("stuck file: answer");
	}
	void serve(int fd)
	{
		std::vector<std::uint8_t> request(256 << 10);
		std::vector<Read> waiting;
		pollfd event{fd, POLLIN, 0};

		while (poll(&event, 1, 10) >= 0) {
			Read read_request{};

			if (event.revents) {
				if (read(fd, request.data(), request.size()) <= 0)
					return;
				std::memcpy(&read_request, request.data(), sizeof(read_request));
				if (read_request.in.opcode == FUSE_READ)
					waiting.push_back(read_request);
				serve(fd, read_request.in);
			}
			for (; counts_->released && !waiting.empty(); waiting.pop_back()) {
				const std::vector<std::uint8_t> bytes(waiting.back().what.size,
								      content);

				answer(fd, waiting.back().in, 0, bytes.data(), bytes.size());
			}
		}
	}
	void serve(int fd, const fuse_in_header &in)
	{
		switch (in.opcode) {
		case FUSE_INIT: {
			fuse_init_out init{};

			init.major = FUSE_KERNEL_VERSION;
			init.minor = 31;
			init.max_readahead = 128 << 10;
			init.flags = FUSE_ASYNC_READ;
			init.max_write = page_bytes;
			return answer(fd, in, init);
		}
		case FUSE_LOOKUP: {
			fuse_entry_out entry{};

			entry.nodeid = 2;
			entry.attr_valid = entry.entry_valid = 3600;
			entry.attr = attributes(2);
			return answer(fd, in, entry);
		}
		case FUSE_GETATTR: {
			fuse_attr_out attr{};

			attr.attr_valid = 3600;
			attr.attr = attributes(in.nodeid);
			return answer(fd, in, attr);
		}
		case FUSE_OPEN: {
			fuse_open_out opened{};

			opened.fh = 1;
			return answer(fd, in, opened);
		}
		case FUSE_READ:
			counts_->reads++;
			return;
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
		case FUSE_INTERRUPT:
			return;
		case FUSE_RELEASE:
		case FUSE_FLUSH:
			return answer(fd, in, 0);
		default:
			return answer(fd, in, -ENOSYS);
		}
	}

	Counts *counts_;
	std::string folder_;
	pid_t daemon_ = 0;
};

} // namespace peal_test
