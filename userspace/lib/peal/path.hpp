// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The part of a connection that each request and each wait touches. It is in a header so that the
 * compiler puts it into the program. On a device of peal the program writes the rings itself. It
 * calls the library only in rare cases. On other devices every call goes to the library.
 *
 * The layout is part of the library's ABI. Programs have no other use for this file.
 */
#pragma once
#include <endian.h>

#include <cstddef>
#include <cstdint>
#include <memory>
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

/* What a request is to do. Its data are those of a slice, or bytes that are copied, or none. */
struct operation {
	std::uint8_t opcode = PEAL_OP_INVALID; /* enum peal_opcode, also on other devices */
	rights needed = rights::none;
	std::uint32_t imm = 0; /* or the key that is invalidated */
	const slice *local = nullptr;
	const remote *part = nullptr; /* null if the peer's receive says where to */
	std::span<const std::byte> bytes{};
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
	RingShape shape{};
	std::uint32_t qp_index = 0;

	std::byte *at(std::uint32_t index) const noexcept
	{
		return shape.slots + std::size_t{index & (shape.entries - 1)} * shape.stride;
	}

	/* Writes a WQE. The connection posts no more than the queue holds. */
	[[gnu::always_inline]] void put(std::uint32_t index, const operation &of) noexcept
	{
		SendSlot slot(at(index),
			      {.opcode = of.opcode,
			       .flags = PEAL_WQE_SIGNALED,
			       .num_sge = 0,
			       .reserved0 = 0,
			       .imm_or_rkey = of.has_key() ? of.imm : htobe32(of.imm),
			       .remote_addr =
				       of.part ? static_cast<std::uint64_t>(of.part->address()) : 0,
			       .rkey = of.part ? static_cast<std::uint32_t>(of.part->key()) : 0,
			       .inline_len = 0,
			       .ah_index = 0,
			       .reserved1 = 0});

		if (of.is_atomic())
			slot.segment(peal_atomic_seg{of.compare_add, of.swap});
		if (of.local && of.local->size()) {
			slot.add_sge(reinterpret_cast<std::uintptr_t>(of.local->data()),
				     static_cast<std::uint32_t>(of.local->size()),
				     static_cast<std::uint32_t>(of.local->key()));
		} else if (!of.bytes.empty()) {
			slot.add_inline(of.bytes.data(),
					static_cast<std::uint32_t>(of.bytes.size()));
			slot.mark_inline();
		}
	}

	/* Lets the device take every WQE before `index`. Returns 0 or an errno. */
	int post(std::uint32_t index) noexcept
	{
		store_release(shape.ctl->producer, index); /* A */
		return doorbell.ring(qp_index);
	}
};

/* Programs are compiled with this layout, so a change of it needs a new soname of the library. */
struct PEAL_API path {
	const options limits;

	/*
	 * Whether requests and waits go the short way: by the rings of peal, in no event loop, and
	 * nothing has failed, neither the connection nor a request of the batch.
	 */
	bool is_short = false;
	bool batch_open = false;
	/* The batch has so many requests. The next request that is posted is next_request. */
	std::uint32_t batch_size = 0;
	std::uint64_t next_request = 1;

	/* Requests whose completion the program has not got. In a loop, those that have none. */
	std::uint32_t outstanding = 0;
	/* sent[0, handed) are the program's until its next wait, [handed, stored) are to come. */
	std::uint32_t handed = 0;
	std::uint32_t stored = 0;
	std::unique_ptr<completion[]> sent;

	std::uint64_t longest = 0; /* bytes in one message */
	std::uint32_t peer_receive_bytes = UINT32_MAX;
	send_ring ring;

	explicit path(const options &limits) noexcept : limits(limits) {}
	path(const path &) = delete;

	[[gnu::always_inline]] request add(const operation &of) noexcept
	{
		if (!is_short || !fits(of)) [[unlikely]] {
			/* A copy, so that `of` itself needs no place in memory. */
			const operation copy = of;

			return add_slowly(copy);
		}
		ring.put(index_of(next_request) + batch_size, of);
		return request(next_request + batch_size++);
	}

	[[gnu::always_inline]] status commit() noexcept
	{
		if (!is_short || !batch_size || ring.doorbell.gone()) [[unlikely]]
			return commit_slowly();
		const std::uint32_t size = std::exchange(batch_size, 0);

		next_request += size;
		outstanding += size;
		/* If the doorbell fails, they are the device's nevertheless. */
		if (const int failed = ring.post(index_of(next_request))) [[unlikely]]
			return not_rung(failed, size);
		return {};
	}

	[[gnu::always_inline]] void close_batch() noexcept
	{
		if (is_short && !batch_size) [[likely]]
			batch_open = false;
		else
			close_batch_slowly();
	}

	/*
	 * Whether the completions of so many requests are there, and good, so that give() can
	 * return them. It leaves others in the queue, so that none has to be moved later.
	 */
	[[gnu::always_inline]] bool collect(std::size_t number) noexcept
	{
		if (!is_short || handed != stored || number > outstanding) [[unlikely]]
			return false;
		const std::uint64_t first = next_request - outstanding;
		completion *const to = sent.get();
		std::uint32_t got = 0;

		for (; got < number; ++got) {
			const peal_cqe *cqe = ring.completions.peek();

			if (!cqe || cqe->status || cqe->wqe_index != index_of(first + got))
				break;
			to[got].request_ = request(first + got);
			to[got].status_ = 0;
			to[got].vendor_error_ = 0;
			ring.completions.advance();
		}
		ring.completions.publish();
		handed = 0;
		stored = got;
		return got == number;
	}
	[[gnu::always_inline]] completions give(std::size_t number) noexcept
	{
		handed = static_cast<std::uint32_t>(number);
		outstanding -= handed;
		return completions({sent.get(), number});
	}

	/* The request whose completion comes next. */
	std::uint64_t oldest() const noexcept
	{
		return next_request - outstanding + (stored - handed);
	}
	/* The free-running index of a request's WQE. */
	static std::uint32_t index_of(std::uint64_t name) noexcept
	{
		return static_cast<std::uint32_t>(name - 1);
	}

	/* Whether a request can be right and has room. Otherwise refuse() says why not. */
	[[gnu::always_inline]] bool fits(const operation &of) const noexcept
	{
		const std::size_t size = of.size();

		if ((of.local && !*of.local) || size > longest ||
		    outstanding + batch_size >= limits.sends ||
		    of.bytes.size() > limits.inline_bytes)
			return false;
		if (!of.part)
			return size <= peer_receive_bytes;
		return *of.part && includes(of.part->rights(), of.needed) &&
		       size <= of.part->size() && of.is_aligned() &&
		       (!of.is_atomic() || size == sizeof(std::uint64_t));
	}

	/* ---- in the library (connection.cpp) ---- */
	request add_slowly(const operation &) noexcept;
	status commit_slowly() noexcept;
	void close_batch_slowly() noexcept;
	status not_rung(int failed, std::uint32_t posted) noexcept;

protected:
	~path() = default;
};

} // namespace peal::detail
