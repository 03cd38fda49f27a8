// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A queue pair that drives the core as the kernel does. It posts when nothing is
 * unsent, sends until the core or the transmit queue blocks, places responses,
 * gives kept packets back and arms one timer.
 *
 * Owns: the core's two halves. Does not know: the rules, which the stream checks.
 */
#pragma once
#include <deque>
#include <map>
#include <vector>

#include "pair.hpp"

namespace peal::sim {

struct PealHabits {
	u32 keep = 1000000;  /* chance that an out-of-order packet may be kept, millionths */
	u32 turn = 16;	     /* packets sent at once */
	u32 run = 1;	     /* packets of a message that are built together */
	u32 entries = 128;   /* of the send queue */
	u32 reconfigure = 0; /* chance that a turn changes the window, millionths */
};

class PealPair : public Pair {
	enum { TIMER_OUT = 1, TIMER_IN, TURN, REPLY_TURN };

	peal_requester requester_{};
	peal_responder responder_{};
	std::vector<peal_message> messages_;
	std::vector<peal_resource> resources_;
	std::deque<u32> posted_; /* not passed to the core yet */
	u64 armed_out_ = NEVER, armed_in_ = NEVER;
	bool turn_due_ = false, reply_due_ = false, dead_ = false;
	u32 expected_una_ = 0;
	/*
	 * Packets that the core keeps, by PSN. A forged one is
	 * challenged when the real one has come.
	 */
	struct Kept {
		Frame *frame;
		u64 since;
		bool challenged;
	};
	std::map<u32, Kept> kept_requests_, kept_responses_;

	bool followed() const;
	void feed();
	bool turn();
	void run();
	void arm();
	void transmit_all(peal_outgoing out);
	void transmit(const peal_outgoing &out);
	void execute_local(const peal_outgoing &out);
	bool failed_by_host(const peal_outgoing &out);
	void complete();
	void flush();
	void respond(FramePtr frame);
	void place(const peal_response &response, const Frame &frame);
	void request(FramePtr frame);
	void serve(const peal_request &request, const Frame &frame);
	void reply();
	void answer(const peal_reply &reply);
	void note_aeth(const peal_packet &packet, bool dropped);
	bool may_keep();
	bool is_guessed(const Frame &frame) const;
	void keep(std::map<u32, Kept> &packets, FramePtr frame);
	FramePtr unkeep(std::map<u32, Kept> &packets, void *handle);
	bool differs(std::map<u32, Kept> &packets, void *kept, const Frame &frame) const;
	void take_effect(const Frame &frame, const char *how) const;
	void expire_kept();
	bool challenged_ = false; /* the frame that was kept until now */

public:
	PealHabits habits;
	static u64 kept;    /* frames that the core keeps */
	static u64 guessed; /* forged frames that took effect like real ones */
	u64 reorder_ns = 0;
	bool honest = true; /* no packet for this queue pair is forged or changed */

	PealPair(Node &node, u32 qpn, const PealHabits &habits, u32 resources);
	~PealPair() override;

	/* RESET, and then a new connection. */
	void connect(const peal_requester_config &out, u32 out_psn, const peal_responder_config &in,
		     u32 in_psn);
	void post(u32 index, bool more) override;
	void arrive(FramePtr frame) override;
	void batch_ends() override;
	void room() override;
	void fail() override;
	bool quiet() const override;
	void wake(u64 what) override;
};

} // namespace peal::sim
