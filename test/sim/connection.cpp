// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* See scenario.hpp: a connection, its rules, its loads, its fate. */
#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>

#include "scenario.hpp"

namespace peal::sim {

/* For a program whose strict peer has no timeout. */
constexpr u64 PATIENCE = 100 * SECOND;
/* As in kernel/transport/output.c, for the timeouts that are planned here. */
constexpr u64 KEEP = 50 * MS;

bool Connection::always_planted;

static u32 plan_psn(Random &random)
{
	switch (random.below(5)) {
	case 0:
	case 1:
		return (0x1000000 - static_cast<u32>(random.below(64))) & 0xffffff;
	case 2:
		return 0x800000 - static_cast<u32>(random.below(64));
	case 3:
		return static_cast<u32>(random.below(4));
	default:
		return static_cast<u32>(random.below(0x1000000));
	}
}

/* A timeout that no healthy round trip reaches, or sometimes any timeout. */
static u64 plan_timeout(Random &random, u64 round_trip)
{
	u64 code = random.below(12) + 1;

	while ((4096ULL << code) < 3 * round_trip)
		code++;
	return 4096ULL << code;
}

void Connection::plan_rules(const Path &path, const NodeHabits &habits)
{
	Random &random = world_.random;
	u8 transport = random.pick<u8>({PEAL_RC, PEAL_RC, PEAL_RC, PEAL_RC, PEAL_RC, PEAL_RC,
					PEAL_XRC, PEAL_XRC, PEAL_UC, PEAL_UC});
	u32 mtu = 256u << random.below(5);
	u64 trip = 2 * (path.longest() + habits.batch_delay + habits.timer_slack) +
		   8 * habits.full_for + 600 * US;

	/* The packets of other connections on the same path are queued, too. */
	trip += 2 * path.ns_per_kib * (mtu / 1024 + 1) * 512;
	trip += 1000 * habits.batch_delay / habits.batch;
	for (int i = 0; i < 2; i++) {
		Rules &r = rules_[i];

		r.transport = transport;
		r.queues = random.pick<u32>({1, 2, 3});
		r.mtu = mtu;
		r.psn = plan_psn(random);
		r.retry_limit = static_cast<u8>(random.one_in(2) ? 7 : random.below(8));
		r.rnr_limit = static_cast<u8>(random.one_in(2) ? 7 : random.below(8));
		r.rnr_timer =
			static_cast<u8>(random.one_in(8) ? random.below(20) : random.between(1, 8));
		r.timeout_ns = random.one_in(10) ? 0 : plan_timeout(random, trip);
		r.max_rd_atomic = random.pick<u32>({1, 1, 2, 4, 16, 128});
		r.window = random.pick<u32>({1, 2, 4, 16, 64, 256, 1024});
		r.duplicates = path.duplicate;
		if (!habits.full)
			r.slack = (r.retry_limit + 1ULL) * habits.timer_slack;
		r.clean = !path.loses() && path.orderly() && !habits.no_memory;
		r.harmless = r.clean;
		r.may_exceed = !r.clean && (r.retry_limit < 6 || path.loss > 50000 || path.burst ||
					    path.queue_ns);
	}
}

void Connection::plan_load()
{
	Random &random = world_.random;
	bool errors = random.one_in(6), gone = random.one_in(20);

	for (int i = 0; i < 2; i++) {
		Load &l = load_[i];
		Rules &r = rules_[i];

		/* Often one direction is idle, so that its packets carry no acknowledgements. */
		l.messages = random.one_in(4) ? 0 : static_cast<u32>(random.between(1, 40));
		l.max_packets = random.pick<u32>({1, 2, 4, 16});
		if (random.one_in(100)) {
			l.messages = std::min(l.messages, 8u);
			l.bulk_bytes = random.between(65536, 1 << 20);
		} else if (random.one_in(50)) {
			l.bulk_bytes = r.mtu * random.between(100, 200);
			l.messages = std::min(l.messages, 8u);
		}
		/* Nothing slows an unreliable sender down. */
		if (!r.reliable())
			l.bulk_bytes = std::min<u64>(l.bulk_bytes, 64ULL * r.mtu);
		l.gap = random.pick<u64>({0, 0, 10 * US, 200 * US});
		l.late_receives = random.pick<u32>({0, 0, 100000, 1000000});
		l.receive_gap = random.pick<u64>({10 * US, 300 * US, 3 * MS});
		l.no_receives = random.one_in(40);
		l.fault = errors && random.one_in(2) ? 100000 : 0;
		l.signaled = random.pick<u32>({0, 300000, 1000000});
		l.fenced = random.pick<u32>({0, 100000, 500000});
		l.local = random.one_in(5) ? 100000 : 0;
		l.reads = random.one_in(2);
		if (gone)
			l.invalidate_at = world_.now() + random.below(500 * US);
		if (errors && random.one_in(10))
			l.read_depth = 0;
		else if (errors && random.one_in(10))
			l.peer_depth = 0;
		/* Endless retries never end if no receive ever comes. */
		if (l.no_receives && r.rnr_limit == 7)
			r.rnr_limit = 3;
		if (!l.read_depth)
			r.max_rd_atomic = 0;
	}
}

void Connection::plan_fate(const Path &path)
{
	Random &random = world_.random;
	bool reliable = rules_[0].reliable();

	fate_at_ = world_.now() + random.below(20 * path.delay + 100 * US);
	if (always_planted || random.one_in(10)) {
		fate = Fate::PLANTED;
		/* The forger does not know XRC. */
		for (Rules &r : rules_)
			if (r.xrc())
				r.transport = PEAL_RC;
		plan_planted();
		return;
	}
	if (!random.one_in(6))
		return;
	fate = random.pick<Fate>({Fate::SILENCE, Fate::RESET, Fate::RESET, Fate::HOLE, Fate::BROKEN,
				  Fate::FORGERY, Fate::FORGERY, Fate::NARROW});
	/* An unreliable connection cannot see that a packet is of an earlier connection. */
	if (!reliable)
		fate = Fate::BROKEN;
	if (fate == Fate::SILENCE)
		rules_[0].may_exceed = rules_[1].may_exceed = true;
	if (fate == Fate::NARROW)
		plan_narrow();
	if (fate == Fate::HOLE) {
		hole_ = (rules_[0].psn + static_cast<u32>(random.below(20))) & 0xffffff;
		rules_[0].may_exceed = true;
	}
	/* Forged packets, and packets of an earlier connection, cost retries. */
	if (fate == Fate::FORGERY || fate == Fate::RESET)
		for (Rules &r : rules_)
			r.may_exceed |= r.retry_limit < 2;
	rules_[0].forged = rules_[1].forged = fate == Fate::FORGERY;
	rules_[0].clean &= fate == Fate::NONE;
	rules_[1].clean &= fate == Fate::NONE;
}

/* Every receive fits every message, and as many are posted as are needed. */
void Connection::plan_sharing(SharedQueues &queues)
{
	queues_ = &queues;
	for (Load &l : load_) {
		l.max_packets = std::min(l.max_packets, 4u);
		l.bulk_bytes = 0;
		l.no_receives = false;
	}
}

/* Pair @i of the two, which is peal's or the strict one. */
void Connection::plan_pair(int i, Node &node, bool laboratory)
{
	Random &random = world_.random;

	if (i == strict_) {
		StrictHabits strict;

		strict.window = random.pick<u32>({1, 4, 16, 64});
		strict.every = random.one_in(2);
		strict.credits = random.one_in(3);
		strict.newest = random.one_in(2);
		pairs[i] = std::make_unique<StrictPair>(node, 0x100 * tag_ + static_cast<u32>(i),
							strict);
		pairs[i]->target.max_dest_rd_atomic = load_[!i].peer_depth;
		return;
	}
	PealHabits habits;

	habits.keep = random.pick<u32>({0, 500000, 950000, 1000000, 1000000});
	habits.turn = random.pick<u32>({1, 4, 16, 64});
	/* Drawing it would change what the recorded seeds mean. */
	habits.run = std::array<u32, 3>{1, 3, 64}[habits.turn == 1 ? 0 : tag_ % 3];
	habits.entries = random.pick<u32>({2, 8, 32, 128});
	if (laboratory) {
		habits.keep = random.one_in(2) ? 1000000 : 0;
		habits.turn = 64;
	}
	habits.reconfigure = !laboratory && random.one_in(10) ? 50000 : 0;
	/*
	 * After the window shrinks, packets in flight may ask for no ACK. The probe
	 * that asks for one comes with the first retry. The kernel's window changes
	 * only while nothing is in flight.
	 */
	if (!rules_[i].retry_limit)
		habits.reconfigure = 0;
	in_[i] = peal_responder_config{
		.transport = rules_[!i].transport,
		.mtu_shift = static_cast<u8>(std::countr_zero(rules_[!i].mtu)),
		.rd_atomic = static_cast<u8>(
			load_[!i].peer_depth ? std::max(1u, rules_[!i].max_rd_atomic) : 0),
		.reorder_ns = KEEP,
	};
	auto pair =
		std::make_unique<PealPair>(node, 0x100 * tag_ + static_cast<u32>(i), habits, 128);

	pair->reorder_ns = KEEP;
	pair->honest = fate != Fate::FORGERY;
	pairs[i] = std::move(pair);
}

Connection::Connection(World &world, Network &network, Node &a, Node &b, const Path &path, u32 tag,
		       bool laboratory, SharedQueues *queues)
	: world_(world), network_(network), tag_(tag)
{
	Random &random = world_.random;

	plan_rules(path, a.habits);
	plan_load();
	if (laboratory)
		plan_experiment(path);
	else
		plan_fate(path);
	if (queues && rules_[0].transport == PEAL_RC)
		plan_sharing(*queues);
	if (!laboratory && !queues_ && rules_[0].transport == PEAL_RC && fate != Fate::RESET &&
	    fate != Fate::PLANTED && random.one_in(4)) {
		strict_ = static_cast<int>(random.below(2));
		rules_[strict_].strict = true;
		/* A peer that goes back N on every loss may run out of retries. */
		rules_[strict_].may_exceed |= !rules_[strict_].clean;
		/*
		 * The strict peer is not made for long messages either, because
		 * each one delays all later ones.
		 */
		for (Load &l : load_)
			l.bulk_bytes = std::min<u64>(l.bulk_bytes, 32ULL * rules_[0].mtu);
	}
	for (int i = 0; i < 2; i++)
		plan_pair(i, i ? b : a, laboratory);
	pairs[0]->peer = pairs[1].get();
	pairs[1]->peer = pairs[0].get();
	begin();
	if (fate == Fate::PLANTED) {
		forger = std::make_unique<Forger>(world_, network_, *pairs[0], *pairs[1],
						  rules_[0].reliable());
		forger->begin();
	}
	if (fate == Fate::RESET || fate == Fate::BROKEN)
		world_.at(fate_at_, this, FATE);
	if (fate == Fate::SILENCE)
		silent_from_ = fate_at_;
	world_.in(SECOND, this, WATCH);
}

/* New streams and new programs, from fresh queue pairs. */
void Connection::begin()
{
	const char *const names[2] = {"ab", "ba"};
	Stream *now[2];

	for (int i = 0; i < 2; i++) {
		std::string name = std::to_string(tag_) + names[i] + (reconnected_ ? "'" : "");

		streams.push_back(std::make_unique<Stream>(world_, name, rules_[i]));
		now[i] = streams.back().get();
		if (queues_) {
			auto &queue = (*queues_)[pairs[!i]->node.id];

			if (!queue)
				queue = std::make_shared<ReceiveQueue>();
			now[i]->shared = queue;
		}
	}
	for (int i = 0; i < 2; i++) {
		const Rules &r = rules_[i];
		peal_requester_config out{
			.transport = r.transport,
			.mtu_shift = static_cast<u8>(std::countr_zero(r.mtu)),
			.retry_limit = r.retry_limit,
			.rnr_limit = r.rnr_limit,
			.max_rd_atomic = static_cast<u8>(r.max_rd_atomic),
			.timeout_ns = r.timeout_ns,
			.window = r.window,
			.route_mtu = 1500,
			.reorder_ns = KEEP,
		};

		pairs[i]->outgoing = now[i];
		pairs[i]->incoming = now[!i];
		if (i == strict_)
			static_cast<StrictPair &>(*pairs[i]).connect(rules_[!i].psn);
		else
			static_cast<PealPair &>(*pairs[i]).connect(out, r.psn, in_[i],
								   rules_[!i].psn);
	}
	for (int i = 0; i < 2; i++) {
		u32 tag = tag_ << 8 | static_cast<u32>(reconnected_) << 4 | static_cast<u32>(i);

		programs.push_back(std::make_unique<Program>(world_, *pairs[i], *pairs[!i], *now[i],
							     load_[i], tag));
		programs.back()->begin();
	}
}

void Connection::wake(u64 what)
{
	Random &random = world_.random;

	if (what == WATCH)
		watch();
	if (what == FATE && fate == Fate::BROKEN) {
		world_.trace("%u is put into error", pairs[0]->qpn);
		pairs[0]->fail();
		return;
	}
	if (what == FATE) {
		world_.trace("connection %u is reset", tag_);
		for (auto &program : programs)
			program->stop();
		for (auto &stream : streams)
			stream->error();
		reconnected_ = true;
		/* Far from the old numbers, as if a program chose them at random. */
		for (Rules &r : rules_)
			r.psn = (r.psn + 0x200000 + static_cast<u32>(random.below(2)) * 0xa00000) &
				0xffffff;
		begin();
	}
}

bool Connection::settled() const
{
	return streams[streams.size() - 2]->settled() && streams.back()->settled();
}

/*
 * Ends a program that would wait for ever. Without a timeout, a wait for a dead end never ends. The
 * same is true for a strict peer whose whole window, sent again, fills the queue in which an answer
 * would come. The strict peer does the same each time, because it knows no other way.
 */
void Connection::watch()
{
	bool idle = true;

	for (auto &pair : pairs) {
		Stream &s = *pair->outgoing;
		bool hopeless = s.peer_dead || world_.now() >= silent_from_ || hole_ != ~0U ||
				fate == Fate::NARROW ||
				(s.rules.strict && world_.now() >= PATIENCE);

		if (!s.settled() && hopeless && !s.rules.timeout_ns)
			pair->fail();
		idle &= s.settled();
	}
	for (auto &program : programs)
		idle &= program->all_posted();
	if (!idle)
		world_.in(SECOND, this, WATCH);
}

void Connection::check()
{
	for (auto &pair : pairs)
		if (!pair->quiet())
			violation("%s: nothing happens any more, and it is not done",
				  pair->outgoing->name().c_str());
	for (auto &stream : streams)
		stream->finish();
	for (auto &program : programs)
		program->check_words();
	for (int i = 0; i < 2; i++)
		pairs[i]->memory.sweep(pairs[i]->outgoing->name().c_str());
	check_experiment();
	if (fate == Fate::PLANTED)
		check_planted();
}

std::string Connection::describe() const
{
	static const char *const fates[] = {"",		 ", SILENCE", ", RESET",    ", HOLE",
					    ", BROKEN",	 ", FORGERY", ", ONE_LOST", ", ONE_LATE",
					    ", UNREADY", ", PLANTED", ", NARROW"};
	std::string text;
	char line[256];

	for (int i = 0; i < 2; i++) {
		const Rules &r = rules_[i];

		std::snprintf(line, sizeof(line),
			      "%s[%s mtu %u psn %06x retry %u rnr %u timer %u timeout %llu us "
			      "rd %u window %u%s%s]",
			      i ? " " : "",
			      r.xrc()	     ? "XRC"
			      : r.reliable() ? "RC"
					     : "UC",
			      r.mtu, r.psn, r.retry_limit, r.rnr_limit, r.rnr_timer,
			      r.timeout_ns / US, r.max_rd_atomic, r.window, r.clean ? " clean" : "",
			      r.may_exceed ? " may exceed" : "");
		text += line;
	}
	if (strict_ >= 0)
		text += strict_ ? ", strict b" : ", strict a";
	return text + fates[static_cast<int>(fate)];
}

} // namespace peal::sim
