// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A queue pair as other vendors build them. It keeps no out-of-order packets, goes
 * back N, has one timer and acknowledges every request. Reliable connections only.
 * It shows that the core works with peers that are not its own.
 *
 * Owns: its two halves, written directly from IBTA 9.7.
 * Does not know: the core.
 */
#pragma once
#include <deque>
#include <map>

#include "pair.hpp"
#include "wire.hpp"

namespace peal::sim {

struct StrictHabits {
	u32 window = 16;
	bool every = true;    /* acknowledges each request, even if it is not asked to */
	bool credits = false; /* reports how many receives it has */
	bool newest = false;  /* answers a duplicate with the newest PSN, even if a READ has it */
};

class StrictPair : public Pair {
	enum { TIMEOUT = 1, RNR_OVER };

	/* A request packet that was sent. A READ's stands for all its responses. */
	struct Sent {
		u32 message;
		u32 packet; /* of the message */
		u32 span;   /* PSNs */
	};
	struct Atomic {
		u32 psn;
		u64 original;
	};

	StrictHabits habits_;
	/* the requester; PSNs are counted from the stream's first */
	std::deque<u32> posted_;
	u32 sending_packet_ = 0;
	std::map<u32, Sent> out_; /* by PSN */
	u32 next_ = 0, top_ = 0, una_ = 0;
	u32 reads_ = 0;
	u32 completed_ = 0, left_ = 0; /* messages */
	u8 retries_ = 0, rnr_retries_ = 0;
	bool nak_seen_ = false; /* a sequence NAK came since the last progress */
	u64 timer_ = NEVER, rnr_until_ = 0;
	/* the responder; PSNs as they are */
	u32 expected_ = 0, msn_ = 0;
	bool nak_sent_ = false, over_ = false, ack_due_ = false;
	u32 credit_msn_ = 0;
	u8 operation_ = 0;
	Wire begun_; /* the first packet of the current message */
	u64 offset_ = 0;
	std::deque<Atomic> atomics_;
	std::deque<Wire> replies_;

	void send(Wire *wire, bool again);
	Wire build(const Sent &sent, u32 skip);
	bool send_new();
	bool send_again();
	void run();
	void restart();
	void go_back(u32 psn);
	bool retry(bool rnr, bool nak);
	void progress();
	void finish(u32 message, u8 status, u32 reason);
	void complete();
	void flush();
	void acknowledged(u32 psn);
	void answered(const Wire &wire);
	void data(const Wire &wire, u32 psn);
	void request(const Wire &wire);
	void duplicate(const Wire &wire);
	bool in_order(const Wire &wire) const;
	void execute(const Wire &wire);
	void read(const Wire &wire);
	void acknowledge(u32 psn, u8 syndrome);
	u8 credit_code();
	void reply();

public:
	StrictPair(Node &node, u32 qpn, const StrictHabits &habits)
		: Pair(node, qpn), habits_(habits)
	{
	}
	void connect(u32 in_psn);
	void post(u32 index, bool more) override;
	void arrive(FramePtr frame) override;
	void batch_ends() override
	{
		reply();
		run();
	}
	void room() override
	{
		reply();
		run();
	}
	void fail() override;
	bool quiet() const override { return over_ || (posted_.empty() && out_.empty()); }
	void wake(u64 what) override;
};

} // namespace peal::sim
