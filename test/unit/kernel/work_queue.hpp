// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The program's side of a send or receive queue, in plain memory without the provider.
 *
 * Owns: control words and slots; posting of right and wrong entries.
 * Does not know: the kernel's side.
 */
#pragma once
#include "support.hpp"
#include "kernel_parts.hpp"

namespace peal::test {

class PostedRing {
	Exactly ctl_{sizeof(peal_ring_ctl), PEAL_CACHE_LINE}, slots_;

public:
	const std::uint32_t entries, stride;

	PostedRing(std::uint32_t entries, std::uint32_t stride)
		: slots_(std::size_t{entries} * stride), entries(entries), stride(stride)
	{
	}
	peal_ring_ctl &ctl() const { return *reinterpret_cast<peal_ring_ctl *>(ctl_.data()); }
	std::uint8_t *slots() const { return slots_.data(); }
	std::uint8_t *slot(std::uint32_t index) const
	{
		return slots_.data() + std::size_t{index & (entries - 1)} * stride;
	}
	/* The slot of the next WQE, zeroed and already posted. */
	std::uint8_t *post() const
	{
		std::uint8_t *next = slot(ctl().producer);

		std::memset(next, 0, stride);
		++ctl().producer;
		return next;
	}
};

} // namespace peal::test
