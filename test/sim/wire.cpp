// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See wire.hpp.
 */
#include "wire.hpp"

#include <cstring>

namespace peal::sim {

static void put(std::vector<u8> *to, u64 value, int bytes)
{
	while (bytes--)
		to->push_back(static_cast<u8>(value >> 8 * bytes));
}

std::vector<u8> Wire::headers() const
{
	std::vector<u8> h;
	u32 pad = -static_cast<u32>(payload.size()) & 3;

	put(&h, opcode, 1);
	put(&h, (solicited ? 0x80 : 0) | 0x40 | pad << 4, 1);
	put(&h, 0xffff, 2);
	put(&h, qpn, 4);
	put(&h, (ack_request ? 0x80000000U : 0) | psn, 4);
	if (flush())
		put(&h, selectivity << 4 | placement, 4);
	if (reth() || atomic()) {
		put(&h, addr, 8);
		put(&h, key, 4);
	}
	if (reth())
		put(&h, length, 4);
	if (atomic()) {
		put(&h, swap_add, 8);
		put(&h, compare, 8);
	}
	if (aeth())
		put(&h, static_cast<u32>(syndrome) << 24 | msn, 4);
	if (opcode == 18)
		put(&h, original, 8);
	if (has_imm()) {
		h.resize(h.size() + 4);
		std::memcpy(&h[h.size() - 4], &imm, 4);
	}
	if (has_ieth())
		put(&h, imm, 4);
	return h;
}

class Reader {
	const u8 *at_;
	size_t left_;

public:
	bool good = true;

	Reader(const u8 *bytes, size_t n) : at_(bytes), left_(n) {}
	u64 get(size_t bytes)
	{
		u64 value = 0;

		if (left_ < bytes) {
			good = false;
			return 0;
		}
		for (size_t i = 0; i < bytes; i++)
			value = value << 8 | at_[i];
		at_ += bytes;
		left_ -= bytes;
		return value;
	}
	const u8 *here() const { return at_; }
	size_t left() const { return left_; }
};

std::optional<Wire> Wire::read(const u8 *bytes, size_t n)
{
	Reader r(bytes, n);
	Wire w;

	w.opcode = static_cast<u8>(r.get(1));
	u64 flags = r.get(1);
	r.get(2);
	w.qpn = r.get(4) & 0xffffff;
	u64 last = r.get(4);

	w.solicited = flags & 0x80;
	w.ack_request = last & 0x80000000;
	w.psn = last & 0xffffff;
	if (flags & 0x0f || w.opcode == 21 || (w.opcode > 23 && !w.places()))
		return {};
	if (w.flush()) {
		u64 feth = r.get(4);

		w.placement = feth & 15;
		w.selectivity = feth >> 4 & 3;
	}
	if (w.reth() || w.atomic()) {
		w.addr = r.get(8);
		w.key = static_cast<u32>(r.get(4));
	}
	if (w.reth())
		w.length = static_cast<u32>(r.get(4));
	if (w.atomic()) {
		w.swap_add = r.get(8);
		w.compare = r.get(8);
	}
	if (w.aeth()) {
		w.syndrome = static_cast<u8>(r.get(1));
		w.msn = static_cast<u32>(r.get(3));
	}
	if (w.opcode == 18)
		w.original = r.get(8);
	if (w.has_imm()) {
		const u8 *from = r.here();

		r.get(4);
		if (r.good)
			std::memcpy(&w.imm, from, 4);
	}
	if (w.has_ieth())
		w.imm = static_cast<u32>(r.get(4));

	size_t pad = flags >> 4 & 3;

	if (!r.good || r.left() < pad + 4)
		return {};
	w.payload.assign(r.here(), r.here() + r.left() - pad - 4);
	return w;
}

} // namespace peal::sim
