// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * An attacker that knows the addresses and the numbers of two queue pairs, but sees none of their
 * packets. It sends packets that seem to come from one of them to the other.
 *
 * It has more luck than any real forger, because its packets look like those in flight and its
 * packet numbers lie near the right ones. It fails to guess one thing, which is either the flow
 * of the real packets or a packet number that no real packet has.
 *
 * Owns: the times of the packets. Does not know: their effect, which the pairs check.
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
	u32 blind_;		/* packets still to send that resemble none that was seen */
	u64 gap_;		/* the longest time between these */
	u32 share_;		/* millionths of the real packets that are imitated */
	std::vector<u32> keys_; /* keys that the forger happens to know */

	u32 ahead();
	void disguise(peal_packet *p);
	void race(Pair &to, peal_packet seen);
	void plant(Pair &to, const peal_packet &like, u32 payload_bytes);

public:
	Forger(World &world, Network &network, Pair &a, Pair &b, bool reliable);
	void begin();
	void wake(u64 what) override;
	/* Called for each real packet that is sent. */
	void see(const Frame &real);
};

} // namespace peal::sim
