// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The part of a connection that each request and each wait touches. It is in a header so that the
 * compiler puts it into the program. On a device of peal the program writes the rings itself. It
 * calls the library only in rare cases. On other devices every call goes to the library.
 *
 * The layout is part of the library's ABI. Programs have no other use for this file. Fields that
 * change together are not neighbours, because the compiler would join their stores by more
 * instructions than it saves.
 */
#pragma once
#include <endian.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "completion.hpp"
#include "kept.hpp"
#include "memory.hpp"
#include "options.hpp"
#include "result.hpp"
#include "ring/completion_ring.hpp"
#include "ring/doorbell.hpp"
#include "ring/work_ring.hpp"

namespace peal::detail {

struct path;
PEAL_API void keep(path *) noexcept;
PEAL_API void release(path *) noexcept;

/* The address of an object. The compiler knows that it is not null, also after inlining. */
template <class T>
[[gnu::always_inline]] inline const T *address_of(const T &object) noexcept
{
	const T *const address = std::addressof(object);

	if (!address)
		__builtin_unreachable();
	return address;
}

/* What a request is to do. Its data are those of a slice, or bytes that are copied, or none. */
struct operation {
	std::uint8_t opcode = PEAL_OP_INVALID; /* enum peal_opcode, also on other devices */
	rights needed = rights::none;
	std::uint32_t imm = 0; /* or the key that is invalidated */
	const slice *local = nullptr;
	std::span<const std::byte> bytes{};
	const remote *part = nullptr; /* null if the peer's receive says where to */
	std::uint64_t compare_add = 0;
	std::uint64_t swap = 0;

	bool is_atomic() const noexcept
	{
		return opcode == PEAL_OP_CMP_SWAP || opcode == PEAL_OP_FETCH_ADD;
	}
	bool has_key() const noexcept
	{
		return opcode == PEAL_OP_SEND_INV || opcode == PEAL_OP_LOCAL_INV;
	}
	/* Only an atomic must be. */
	bool is_aligned() const noexcept
	{
		return !is_atomic() ||
		       !(static_cast<std::uint64_t>(part->address()) % sizeof(std::uint64_t));
	}
	std::size_t size() const noexcept { return local ? local->size() : bytes.size(); }
};

/*
 * A send queue of peal and its completion queue. Only one connection uses them, by one thread at a
 * time, so they need no lock. Each request asks for a completion, and they complete in their
 * order, so the index of a WQE tells which request it is.
 */
struct send_ring {
	CompletionRing completions;
	Doorbell doorbell{nullptr, FileKick(-1)};
	peal_ring_ctl *ctl = nullptr;
	std::byte *slots = nullptr;
	std::size_t stride = 0;
	std::uint32_t mask = 0; /* entries - 1 */
	std::uint32_t qp_index = 0;

	std::byte *at(std::uint32_t index) const noexcept
	{
		return slots + std::size_t{index & mask} * stride;
	}

	/*
	 * Writes a WQE. The connection posts no more than the queue holds. A slice without bytes
	 * is an SGE of length 0, which has none.
	 */
	[[gnu::always_inline]] void put(std::uint32_t index, const operation &of) noexcept
	{
		std::byte *const slot = at(index);
		auto *const wqe = new (slot) peal_send_wqe;
		std::byte *data = slot + sizeof(peal_send_wqe);
		const auto inline_size = static_cast<std::uint32_t>(of.bytes.size());

		wqe->opcode = of.opcode;
		wqe->flags = PEAL_WQE_SIGNALED | (inline_size ? PEAL_WQE_INLINE : 0);
		wqe->num_sge = of.local != nullptr;
		wqe->reserved0 = 0;
		wqe->imm_or_rkey = of.has_key() ? of.imm : htobe32(of.imm);
		const remote_words to = of.part ? of.part->words_ : remote_words{};
		std::memcpy(slot + offsetof(peal_send_wqe, remote_addr), &to, sizeof(to));
		wqe->ah_index = 0;
		wqe->reserved1 = 0;
		if (of.is_atomic()) {
			new (data) peal_atomic_seg{of.compare_add, of.swap};
			data += sizeof(peal_atomic_seg);
		}
		if (of.local) {
			std::memcpy(data, &of.local->words_, sizeof(local_words));
		} else if (inline_size) {
			wqe->inline_len = inline_size;
			std::memcpy(data, of.bytes.data(), inline_size);
		}
	}

	/*
	 * Lets the device take every WQE before `index`. `engine` is what the doorbell said before.
	 * Returns 0 or an errno.
	 */
	[[gnu::always_inline]] int post(std::uint32_t index, std::uint32_t engine) noexcept
	{
		store_release(ctl->producer, index); /* A */
		return doorbell.ring(qp_index, engine);
	}
};
/* What put() copies. */
static_assert(sizeof(local_words) == sizeof(peal_sge) &&
	      offsetof(local_words, size) == offsetof(peal_sge, length) &&
	      offsetof(local_words, key) == offsetof(peal_sge, lkey));
static_assert(sizeof(remote_words) ==
		      offsetof(peal_send_wqe, ah_index) - offsetof(peal_send_wqe, remote_addr) &&
	      offsetof(remote_words, key) ==
		      offsetof(peal_send_wqe, rkey) - offsetof(peal_send_wqe, remote_addr) &&
	      offsetof(remote_words, zero) ==
		      offsetof(peal_send_wqe, inline_len) - offsetof(peal_send_wqe, remote_addr));

/* Programs are compiled with this layout, so a change of it needs a new soname of the library. */
struct PEAL_API path {
	const options limits;

	/*
	 * Counts of requests since the connection was made: those that were added to a batch,
	 * those whose completions the program has got (in a loop, those that have completed), and
	 * those that were posted. The low half of the first, before a request is added, is the
	 * free-running index of its WQE.
	 */
	std::uint64_t added = 0;
	std::uint64_t taken = 0;
	std::uint64_t posted = 0;
	/*
	 * Requests and waits go the short way by the rings of peal, in no event loop, as long as
	 * nothing has failed, neither the connection nor a request of the batch. Then short_begin
	 * is `posted`, and at short_end the queue is full. Otherwise these are the largest number
	 * and 0, so that one comparison with `added` tells that the short way is closed, too.
	 */
	std::uint64_t short_end = 0;
	bool batch_open = false;
	std::uint64_t short_begin = UINT64_MAX;

	/* sent[0, handed) are the program's until its next wait, [handed, stored) are to come. */
	std::uint32_t handed = 0;
	std::uint32_t stored = 0;
	std::unique_ptr<completion[]> sent;
	/* Successes that were taken the short way. Only their names change. */
	std::unique_ptr<completion[]> good;

	std::uint64_t longest = 0; /* bytes in one message */
	std::uint32_t peer_receive_bytes = UINT32_MAX;
	send_ring ring;

	explicit path(const options &limits) noexcept : limits(limits) {}
	path(const path &) = delete;

	[[gnu::always_inline]] request add(const operation &of) noexcept
	{
		const std::uint64_t before = added;

		if (before >= short_end || !fits(of)) [[unlikely]] {
			/* A copy, so that `of` itself needs no place in memory. */
			const operation copy = of;

			return add_slowly(copy);
		}
		ring.put(static_cast<std::uint32_t>(before), of);
		added = before + 1;
		return request(before + 1);
	}

	[[gnu::always_inline]] status commit() noexcept
	{
		if (added <= short_begin) [[unlikely]]
			return commit_slowly();
		const std::uint32_t engine = ring.doorbell.engine();
		if (engine == PEAL_ENGINE_GONE) [[unlikely]]
			return commit_slowly();
		if (const int failed = ring.post(static_cast<std::uint32_t>(added), engine))
			[[unlikely]]
			return not_rung(failed);
		posted = added;
		short_begin = added;
		return {};
	}

	[[gnu::always_inline]] void close_batch() noexcept
	{
		if (added == short_begin) [[likely]]
			batch_open = false;
		else
			close_batch_slowly();
	}

	/*
	 * Whether the completions of so many requests are there, and good. Then give() returns
	 * them. Otherwise they stay in the queue, as those of later requests do. If older ones are
	 * stored, the next CQE is not that of the first request.
	 */
	[[gnu::always_inline]] bool collect(std::size_t number) noexcept
	{
		const std::uint64_t first = taken;
		completion *const to = good.get();

		if (!is_short() || number > posted - first) [[unlikely]]
			return false;
		return ring.completions.take(number, [&](const peal_cqe &cqe, std::size_t i) {
			if (cqe.status || cqe.wqe_index != static_cast<std::uint32_t>(first + i))
				[[unlikely]]
				return false;
			to[i].request_ = request(first + i + 1);
			return true;
		});
	}
	[[gnu::always_inline]] completions give(std::size_t number) noexcept
	{
		taken += number;
		short_end += number;
		return completions({good.get(), number}, true);
	}

	bool is_short() const noexcept { return short_end; }
	/* Call it whenever `posted` or `taken` have changed, too. */
	void set_short(bool may) noexcept
	{
		short_begin = may ? posted : UINT64_MAX;
		short_end = may ? taken + limits.sends : 0;
	}
	std::uint32_t batch_size() const noexcept
	{
		return static_cast<std::uint32_t>(added - posted);
	}
	std::uint32_t outstanding() const noexcept
	{
		return static_cast<std::uint32_t>(posted - taken);
	}
	bool has_place() const noexcept { return added - taken < limits.sends; }
	/* Of the oldest requests, because the program got their completions. */
	void take_off(std::uint64_t number) noexcept
	{
		taken += number;
		set_short(is_short());
	}
	/* The request whose completion comes next. */
	std::uint64_t oldest() const noexcept { return taken + (stored - handed) + 1; }
	/* The free-running index of a request's WQE. */
	static std::uint32_t index_of(std::uint64_t name) noexcept
	{
		return static_cast<std::uint32_t>(name - 1);
	}

	/*
	 * Whether a request can be right, if there is room for it. Otherwise refuse() says why not.
	 * A slice that does not fit is longer than each message, and a part that does not fit has
	 * no right.
	 */
	[[gnu::always_inline]] bool fits(const operation &of) const noexcept
	{
		const std::size_t size = of.local ? of.local->size_ : of.bytes.size();

		if (size > longest || of.bytes.size() > limits.inline_bytes)
			return false;
		if (!of.part)
			return size <= peer_receive_bytes;
		return includes(of.part->rights(), of.needed) && size <= of.part->size() &&
		       of.is_aligned() && (!of.is_atomic() || size == sizeof(std::uint64_t));
	}

	/* ---- in the library (connection.cpp) ---- */
	request add_slowly(const operation &) noexcept;
	status commit_slowly() noexcept;
	void close_batch_slowly() noexcept;
	/* The requests are the device's nevertheless. */
	status not_rung(int failed) noexcept;

protected:
	~path() = default;
};

} // namespace peal::detail
