// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Somebody who knows the addresses and the numbers of two queue pairs, sees nothing of what
 * they send, and sends packets that seem to come from the one to the other.
 *
 * It has more luck than any forger: its packets look like those that are under way, and its
 * packet numbers lie near the right ones. What it does not guess is either the flow of the
 * real packets, or that nothing else has this number.
 *
 * Owns: when it sends what. Does not know: what becomes of it; the pairs do.
 */
#pragma once
#include "network.hpp"
#include "pair.hpp"

namespace peal::sim {

class Forger : public Actor {
	World &world_;
	Network &network_;
	Pair *pairs_[2];
	bool reliable_;
	bool knows_flow_;
	u32 blind_;		/* packets yet to come that answer to nothing that was seen */
	u64 gap_;		/* between these, at most */
	u32 share_;		/* of the real packets that one is like, millionths */
	std::vector<u32> keys_; /* that the forger happens to know */

	u32 ahead();
	void disguise(peal_packet *p);
	void plant(Pair &to, const peal_packet &like, u32 payload_bytes);

public:
	Forger(World &world, Network &network, Pair &a, Pair &b, bool reliable);
	void begin();
	void wake(u64 what) override;
	/* A real packet leaves. */
	void see(const Frame &real);
};

} // namespace peal::sim
