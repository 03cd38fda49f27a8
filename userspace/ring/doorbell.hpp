// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The doorbell: tells the engine which queue pair has new work.
 *
 * Owns: the order of stores and loads on struct peal_doorbell, and the kick.
 * Does not know: rings, queue pairs, locks. Any thread may ring at any time.
 */
#pragma once
#include <rdma/peal-abi.h>

#include <cerrno>
#include <cstdint>
#include <sys/ioctl.h>
#include <utility>

#include "barrier.hpp"

namespace peal {

/* The real kick: an ioctl on the context's kick file, which the caller keeps open. */
class IoctlKick {
	int fd_;

public:
	explicit IoctlKick(int fd) noexcept : fd_(fd) {}

	/* Returns 0 or an errno: ENOENT no such queue pair, EIO the device is gone. */
	int operator()(unsigned long command, std::uint32_t qp_index) const noexcept
	{
		int rc;

		do
			rc = ::ioctl(fd_, command, static_cast<unsigned long>(qp_index));
		while (rc && errno == EINTR);
		return rc ? errno : 0;
	}
};

/* Kick is a parameter so that tests can be the kernel. The page outlives this. */
template <class Kick>
class BasicDoorbell {
	peal_doorbell *page_;
	Kick kick_;

public:
	BasicDoorbell(peal_doorbell *page, Kick kick) noexcept : page_(page), kick_(std::move(kick))
	{
	}

	/* Ask before anything is published: then the answer is EIO. */
	bool gone() const noexcept { return engine() == PEAL_ENGINE_GONE; }

	/*
	 * Call after the producer index of queue pair `index` was published
	 * (index < PEAL_MAX_QP). Returns 0 or an errno. A device that goes now is no
	 * error: its last look may have seen the index, and flushed; a work request
	 * that was refused must not complete as well. If it had not, the kick flushes,
	 * as long as there is a queue pair.
	 */
	int ring(std::uint32_t index) const noexcept
	{
		if (engine() == PEAL_ENGINE_AWAKE) {
			set_bits(index);
			if (engine() == PEAL_ENGINE_AWAKE)
				return 0;
		}
		return kick(PEAL_IOC_KICK_SEND, index);
	}

	/* After a post to a receive ring that WANTS_KICK. Returns as ring(). */
	int kick_recv(std::uint32_t index) const noexcept
	{
		return kick(PEAL_IOC_KICK_RECV, index);
	}

private:
	/* A removal says GONE first, then destroys queue pairs (ENOENT), then shuts the file (EIO).
	 */
	int kick(unsigned long command, std::uint32_t index) const noexcept
	{
		const int error = kick_(command, index);

		return error == EIO || (error == ENOENT && gone()) ? 0 : error;
	}

	std::uint32_t engine() const noexcept { return load_acquire(page_->engine); }

	/*
	 * On return the kernel is going to see our producer index: both bits are
	 * set, or a swap of the kernel's that cleared them is still to be
	 * followed by its load of the index. A full barrier (B) has passed.
	 *
	 * A bit that is set already need not be set again, which matters when a
	 * busy engine lags behind: one barrier replaces two locked operations on
	 * lines that the engine writes. That is safe only in this order:
	 *  - producer store, full barrier, then the word's bit is read. If it is
	 *    still set then, the swap that clears it comes later, and the kernel
	 *    reads the producer index after that swap;
	 *  - the summary's bit is read after the word's bit was seen or set.
	 *    Set: a summary swap comes later and leads the kernel to the word.
	 *    Clear: another thread has set the word and not yet the summary, or
	 *    the kernel is between its two swaps; setting it ourselves is right
	 *    in both cases. (The other order could trust a summary bit that was
	 *    already spent.)
	 * The first, unordered look only guesses which way is cheaper.
	 */
	void set_bits(std::uint32_t index) const noexcept
	{
		const std::uint32_t word_index = index / 64;
		__u64 &word = page_->word[word_index].bits;
		__u64 &summary = page_->summary[word_index / 64];
		const __u64 bit = 1ULL << (index & 63);
		const __u64 word_bit = 1ULL << (word_index & 63);

		bool is_set = load_relaxed(word) & bit;
		if (is_set) {
			full_barrier(); /* B, when nothing needs to be set */
			is_set = load_acquire(word) & bit;
		}
		if (!is_set) {
			or_release(word, bit);
			full_barrier_after_or(); /* B, when the summary is set */
		}
		if (!(load_acquire(summary) & word_bit)) {
			or_release(summary, word_bit);
			full_barrier_after_or(); /* B */
		}
	}
};

using Doorbell = BasicDoorbell<IoctlKick>;

} // namespace peal
