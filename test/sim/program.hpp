// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The two programs at the ends of one direction. One posts messages, and the other
 * posts receives, each at the time in the plan.
 *
 * Owns: the plan, with the times of the posts and the memory that they use.
 * Does not know: packets.
 */
#pragma once
#include <map>
#include <set>

#include "pair.hpp"

namespace peal::sim {

/* The kind of messages in a direction. */
struct Load {
	u32 messages = 10;
	u32 max_packets = 8;   /* of one message */
	u64 bulk_bytes = 0;    /* if not 0, some are about that long */
	u64 gap = 0;	       /* the longest time between posts */
	u64 receive_gap = 0;   /* the longest time between receives that are posted late */
	u32 late_receives = 0; /* share of the receives, millionths */
	u8 opcode = 0;	       /* if not 0, all have this one */
	bool no_receives = false;
	u32 fault = 0; /* chance that a message has a fault, millionths */
	u32 signaled = 700000, fenced = 100000, local = 50000;
	bool reads = true;		      /* READs and atomics, too */
	u32 read_depth = 16, peer_depth = 16; /* max_rd_atomic, max_dest_rd_atomic */
	u64 invalidate_at = NEVER;	      /* the responder's program invalidates its keys */
};

/* The receives of a shared queue, which the longest message fits into. */
constexpr u64 SHARED_BYTES = 4 * 4096 + 64;

class Program : public Actor {
	enum { POST, RECEIVE, INVALIDATE };

	World &world_;
	Pair &from_, &to_;
	Stream &stream_;
	Load load_;
	std::vector<Message> plan_;
	std::vector<Receive> receives_;
	std::vector<Region *> regions_;
	std::set<u32> own_keys_;  /* each is used by one READ, until a SEND_INV invalidates it */
	std::map<u64, u64> sums_; /* FETCH_ADD: the first value by address */
	size_t posted_ = 0, received_ = 0;
	u32 tag_;
	bool stopped_ = false;
	Range *counter_ = nullptr, *swapped_ = nullptr;
	Region *words_ = nullptr, *local_ = nullptr;

	void plan_message();
	u8 opcode();
	u64 length();
	void plan_target(Message &m, u32 rights, u64 alignment = 1);
	void plan_atomic(Message &m);
	void plan_placement(Message &m);
	void plan_invalidation(Message &m);
	bool apply(Fault fault, Message &m);
	void plan_fault(Message &m);
	void plan_receives();
	void post();
	void receive();

public:
	Program(World &world, Pair &from, Pair &to, Stream &stream, const Load &load, u32 tag);
	void begin();
	void wake(u64 what) override;
	/* The program has closed its queue pairs. */
	void stop() { stopped_ = true; }
	bool all_posted() const { return stopped_ || posted_ == plan_.size(); }
	/* Checks that the words are the sums of all executed additions. */
	void check_words();
};

} // namespace peal::sim
