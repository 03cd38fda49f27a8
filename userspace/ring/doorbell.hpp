// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The doorbell: tells the engine which queue pair has new work. Any thread may call it at any time.
 */
#pragma once
#include <rdma/peal-abi.h>

#include <cerrno>
#include <cstdint>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

#include "barrier.hpp"

namespace peal {

/* The kick of the provider, by the context's kick file. The caller keeps it open. */
class FileKick {
	int fd_;

public:
	explicit FileKick(int fd) noexcept : fd_(fd) {}

	/*
	 * Returns 0 or an errno: ENOENT (no such object), EIO (the device was removed). The index
	 * is a reference, so that the caller loads it again if the call fails, and keeps it in no
	 * register meanwhile.
	 */
	int operator()(peal_kick kick, const std::uint32_t &index) const noexcept
	{
		return ::lseek(fd_, index, kick) ? again(kick, index) : 0;
	}

private:
	/* Out of line, because it is rare. */
	[[gnu::noinline, gnu::cold]] int again(peal_kick kick, std::uint32_t index) const noexcept
	{
		/* An older kernel has only the ioctl. */
		if (errno == ESPIPE &&
		    !::ioctl(fd_, PEAL_IOC_KICK(kick), static_cast<unsigned long>(index)))
			return 0;
		return errno;
	}
};

/* Kick is a parameter so that tests can replace the kernel. The page must outlive this object. */
template <class Kick>
class BasicDoorbell {
	peal_doorbell *page_;
	Kick kick_;

public:
	BasicDoorbell(peal_doorbell *page, Kick kick) noexcept : page_(page), kick_(std::move(kick))
	{
	}

	/* What the kernel says of its poller: enum peal_engine_state. */
	std::uint32_t engine() const noexcept { return load_acquire(page_->engine); }

	/* Ask this before publishing a WQE. If it is true, the post fails with EIO. */
	bool gone() const noexcept { return engine() == PEAL_ENGINE_GONE; }

	/*
	 * Call this after publishing the producer index of queue pair `index`
	 * (index < PEAL_MAX_QP). `before` is what engine() said before that, if the caller has
	 * asked. A kick is never wrong, so only AWAKE is asked for again. Returns 0 or an errno.
	 * Removal of the device at this point is no error, because its last scan may have seen the
	 * index and flushed the WQE, and a refused work request must not complete too. If the last
	 * scan did not see the index, the kick flushes, as long as the queue pair exists.
	 */
	int ring(const std::uint32_t &index) const noexcept { return ring(index, engine()); }
	int ring(const std::uint32_t &index, std::uint32_t before) const noexcept
	{
		if (before == PEAL_ENGINE_AWAKE) {
			set_bit(index);
			if (engine() == PEAL_ENGINE_AWAKE)
				return 0;
		}
		return kick(PEAL_KICK_SEND, index);
	}

	/*
	 * Call this with KICK_RECV and the queue pair's index after a post to a receive ring with
	 * WANTS_KICK, and with KICK_SRQ and the srq_index for that of a shared receive queue.
	 * Returns 0 or an errno. Removal of the device stores GONE first, then destroys the objects
	 * (ENOENT), then revokes the file (EIO). None of this is an error of the post; see ring().
	 */
	int kick(peal_kick kick, const std::uint32_t &index) const noexcept
	{
		const int error = kick_(kick, index);

		return error == EIO || (error == ENOENT && gone()) ? 0 : error;
	}

private:
	/*
	 * On return the kernel is sure to see the new producer index. Either the bit is
	 * set, or the kernel has swapped it to zero and has not yet loaded the index. A
	 * full barrier (B) has been executed.
	 */
	void set_bit(std::uint32_t index) const noexcept
	{
		or_release(page_->bits[index / 64], __u64{1} << (index & 63));
		full_barrier_after_or(); /* B */
	}
};

using Doorbell = BasicDoorbell<FileKick>;

} // namespace peal
