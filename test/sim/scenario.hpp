// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The scenario of a seed: nodes, paths, connections, loads and faults; and its run from
 * the first event to the last.
 *
 * Owns: everything that lives in one simulation.
 */
#pragma once
#include <memory>

#include "forger.hpp"
#include "peal_pair.hpp"
#include "program.hpp"
#include "strict.hpp"

namespace peal::sim {

/* The fate of a whole connection. */
enum class Fate : u8 {
	NONE,
	SILENCE,  /* one end stops receiving and sending */
	RESET,	  /* both ends are reset and connected anew, with packets in flight */
	HOLE,	  /* one request packet never arrives, however often it is sent */
	BROKEN,	  /* one end's program puts it into error */
	FORGERY,  /* one packet is changed, with a right ICRC */
	ONE_LOST, /* in a laboratory, one packet in the middle */
	ONE_LATE,
	UNREADY, /* in a laboratory, some receives are posted late */
	PLANTED, /* an attacker that does not see the packets forges some */
	NARROW,	 /* long request packets of one end do not leave, for a time or for ever */
};

/* The shared receive queues of a scenario, by node. */
using SharedQueues = std::map<u32, std::shared_ptr<ReceiveQueue>>;

/* Two queue pairs and both directions between them, with new streams after a reset. */
class Connection : public Actor {
	enum { FATE = 1, WATCH };

	World &world_;
	Network &network_;
	u32 tag_;
	Rules rules_[2]; /* [0] when pair 0 is the requester */
	Load load_[2];
	peal_responder_config in_[2];
	SharedQueues *queues_ = nullptr;
	int strict_ = -1; /* the end that is not peal's */
	u64 silent_from_ = NEVER;
	u32 hole_ = ~0U; /* a PSN of stream 0 */
	u64 fate_at_ = 0;
	bool reconnected_ = false, forged_ = false, reading_ = false;
	u32 victim_ = ~0U;
	u64 late_by_ = 0;

	void plan_rules(const Path &path, const NodeHabits &habits);
	void plan_load();
	void plan_fate(const Path &path);
	void plan_pair(int i, Node &node, bool laboratory);
	void connect(const u32 psn[2]);
	void begin();
	void watch();
	void forge(Frame &frame);
	Touch touch_victim(u32 qpn, u32 psn, u8 opcode);
	void plan_experiment(const Path &path);
	void plan_victim(const Path &path);
	void plan_unready();
	void plan_sharing(SharedQueues &queues);
	void check_experiment() const;
	void check_victim() const;
	void plan_planted();
	void plan_narrow();
	void check_planted() const;

public:
	static bool always_planted; /* every connection has this fate, and there is no laboratory */
	Fate fate = Fate::NONE;
	std::unique_ptr<Pair> pairs[2];
	std::unique_ptr<Forger> forger;
	std::vector<std::unique_ptr<Stream>> streams; /* only the last two are alive */
	std::vector<std::unique_ptr<Program>> programs;

	/* @queues: take receives from these; or null. */
	Connection(World &world, Network &network, Node &a, Node &b, const Path &path, u32 tag,
		   bool laboratory, SharedQueues *queues = nullptr);
	void wake(u64 what) override;
	/* Applies the fate to a frame of any sender. */
	Touch touch(Frame &frame);
	bool settled() const;
	void check();
	std::string describe() const;
};

class Scenario {
	World world_;
	Network network_;
	std::vector<std::unique_ptr<Node>> nodes_;
	std::vector<std::unique_ptr<Connection>> connections_;
	SharedQueues queues_;
	bool laboratory_; /* a perfect path, and one connection */
	Path path_;
	NodeHabits habits_;

	void plan_path();
	void plan_habits();
	void drain();

public:
	Scenario(u64 seed, bool verbose);
	~Scenario();
	void run();
	u64 packets() const { return network_.sent; }
	u64 events() const { return world_.done(); }
};

} // namespace peal::sim
