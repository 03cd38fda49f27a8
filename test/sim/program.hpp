// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The two programs at the ends of one direction: one posts messages, the other
 * receives, each when the plan says so.
 *
 * Owns: the plan: what is posted when, and which memory it uses.
 * Does not know: packets.
 */
#pragma once
#include <map>
#include <set>

#include "pair.hpp"

namespace peal::sim {

/* What the messages of a direction are like. */
struct Load {
	u32 messages = 10;
	u32 max_packets = 8;   /* of one message */
	u64 bulk_bytes = 0;    /* not 0: some are about that long */
	u64 gap = 0;	       /* between posts, at most */
	u64 receive_gap = 0;   /* between receives that are posted late, at most */
	u32 late_receives = 0; /* share of the receives, millionths */
	u8 opcode = 0;	       /* not 0: all have this one */
	bool no_receives = false;
	u32 fault = 0; /* that a message has one, millionths */
	u32 signaled = 700000, fenced = 100000, local = 50000;
	bool reads = true;		      /* READs and atomics too */
	u32 read_depth = 16, peer_depth = 16; /* max_rd_atomic, max_dest_rd_atomic */
	u64 invalidate_at = NEVER;	      /* the responder's program takes its keys away */
};

class Program : public Actor {
	enum { POST, RECEIVE, INVALIDATE };

	World &world_;
	Pair &from_, &to_;
	Stream &stream_;
	Load load_;
	std::vector<Message> plan_;
	std::vector<Receive> receives_;
	std::vector<Region *> regions_;
	std::set<u32> own_keys_;  /* each of one READ alone, until a SEND_INV takes it */
	std::map<u64, u64> sums_; /* FETCH_ADD: by address, what was there at first */
	size_t posted_ = 0, received_ = 0;
	u32 tag_;
	bool stopped_ = false;
	Range *counter_ = nullptr, *swapped_ = nullptr;
	Region *words_ = nullptr, *local_ = nullptr;

	void plan_message();
	u8 opcode();
	u64 length();
	void plan_target(Message &m, u32 rights);
	void plan_atomic(Message &m);
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
	/* It has closed its queue pairs. */
	void stop() { stopped_ = true; }
	bool all_posted() const { return stopped_ || posted_ == plan_.size(); }
	/* The words have what all executed additions make. */
	void check_words();
};

} // namespace peal::sim
