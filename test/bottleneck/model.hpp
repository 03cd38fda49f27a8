// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Flows that share one bottleneck: a link with a queue in front of it. Data passes the bottleneck.
 * What comes back (ACKs, CNPs, READ requests) only takes time, because its path is not full.
 *
 * Owns: the link and its queue, peal's connections with the core's two halves, a peer that goes
 * back N, and a TCP flow.
 * Does not know: payload, headers on the wire, which share a flow should have (scenes.cpp).
 */
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "sim/world.hpp"

extern "C" {
#include "proto/cnp.h"
}

namespace peal::bottleneck {

using namespace peal::sim;

/* Headers of a data packet on Ethernet, with its ICRC, in bytes. */
constexpr u32 HEADERS = 78;
constexpr u32 ETHERNET_HEADER = 14;

struct Path {
	double bits_per_s = 1e9;
	u64 round_trip = 200 * US; /* without a queue */
	u32 mtu = 1024;
	u32 link_mtu = 1500; /* the largest IP packet on the link */
	/* Each sender has a link of this many times the rate. 0: its packets take no time there. */
	u32 access = 0;
	u64 queue_packets = 100; /* that are dropped when so many wait */
	/* RED with ECN: none marked up to `mark_from` packets that wait, all from `mark_all` on. */
	u64 mark_from = 0, mark_all = 0; /* 0: no marks */
	u32 average = 1; /* RED sees an average over about so many packets; 1: what waits now */
	u32 loss = 0;	 /* of data packets, in millionths, whatever the queue */

	bool marks() const { return mark_all; }
	u64 ns(u64 bytes) const
	{
		return static_cast<u64>(static_cast<double>(bytes) * 8e9 / bits_per_s);
	}
	/* Packets that the path holds without a queue. */
	u64 packets() const { return round_trip / ns(mtu + HEADERS); }
};

class Model;

/* A sender with its receiver. */
class Flow : public Actor {
protected:
	Model &model_;

public:
	explicit Flow(Model &model);
	u32 frame;	   /* bytes of a packet on the wire */
	u64 delivered = 0; /* packets that count, each once */
	u64 access_busy = 0, last_arrival = 0;
	/* When half of what the host lets wait for its link has left; 0: there is room. */
	u64 full_until = 0;

	virtual void start() = 0;
	/* No new data from now on. */
	virtual void stop() = 0;
};

class Model {
public:
	World world;
	Path path;
	u64 arrived = 0, dropped = 0; /* data packets at the queue */
	bool down = false;	      /* the path loses everything */

	Model(u64 seed, const Path &path) : world(seed, false), path(path) {}

	/* Send a data packet. Return: when it arrives at the queue. */
	u64 send(Flow &flow);
	/*
	 * A data packet arrives at the queue. Return: when it arrives at the other end, or NEVER.
	 * @ce: set if it is marked.
	 */
	u64 queue(const Flow &flow, bool ect, bool *ce);
	/* May the flow send? If not, it is woken with @what when it may. */
	bool room(Flow &flow, u64 what);
	/* Return: when something small that is sent back now arrives, or NEVER. */
	u64 back() { return down ? NEVER : world.now() + path.round_trip / 2; }
	void run_until(u64 time);

private:
	u64 busy_ = 0;	     /* the link is busy until then */
	double average_ = 0; /* packets that wait, as RED sees them */
};

enum class Peer : u8 {
	PEAL,	 /* the core's responder */
	GO_BACK, /* keeps no out-of-order packets, as rxe and most RNICs */
};

struct Habits {
	u8 operation = PEAL_OP_WRITE;
	Peer peer = Peer::PEAL;
	bool ect = false;
	u8 timeout = 14;
	u64 forged_every = 0; /* a forged CNP each so many ns */
};

/* A connection of peal's with messages to send at any time. */
class Connection : public Flow {
	enum : u64 { TIMER_OUT, TIMER_IN, BEGIN, NOTIFIED, FORGED, ROOM, PACKETS };

	struct InFlight {
		peal_packet packet;
		bool to_responder, before_queue, ce;
	};

	Habits habits_;
	u32 message_ = 1 << 20; /* bytes */
	std::unique_ptr<peal_requester> requester_ = std::make_unique<peal_requester>();
	std::unique_ptr<peal_responder> responder_ = std::make_unique<peal_responder>();
	std::vector<peal_message> messages_;
	std::vector<peal_resource> resources_;
	std::vector<InFlight> flying_;
	std::vector<u64> free_;
	u64 armed_out_ = NEVER, armed_in_ = NEVER;
	peal_cnp cnp_{};
	bool stopped_ = false, failed_ = false;
	/* The peer that goes back N. */
	u32 expected_ = 0;
	bool nak_sent_ = false;

	bool reads() const { return habits_.operation == PEAL_OP_READ; }
	void send(const peal_packet &packet, bool to_responder, bool data);
	void request(const InFlight &p);
	void go_back(const peal_packet &packet);
	void response(const InFlight &p);
	void reply();
	void pump();
	void arm();

public:
	Connection(Model &model, const Habits &habits);
	~Connection() override;
	void start() override;
	void stop() override { stopped_ = true; }
	void wake(u64 what) override;
	/* The retries are used up. */
	bool failed() const { return failed_; }
	/* Most packets in flight. */
	u32 window() const { return requester_->window.size; }
};

/*
 * A TCP flow that grows and shrinks as CUBIC does (RFC 9438), with selective acknowledgments. Its
 * packets leave in trains, as Linux's do (tcp_tso_should_defer), and fill the link's MTU.
 */
class Tcp : public Flow {
	enum : u64 { TIMER, BEGIN, ROOM, ORDERS };

	struct Segment {
		u64 number;
		bool acked;
	};

	/* By order of transmission: front is transmission number `first_`. */
	std::deque<Segment> flight_;
	std::deque<u64> again_;
	u64 first_ = 0, highest_ = 0, next_ = 0, acked_ = 0, recover_ = 0, last_heard_ = 0;
	double size_ = 10, threshold_ = 1e18, largest_ = 0, friendly_ = 0;
	u64 cut_at_ = 0, last_sent_ = 0;
	u64 round_trip_ = 0;
	bool ect_, stopped_ = false;
	std::vector<u64> sent_at_;

	void acknowledge(u64 order, bool ce);
	u64 train() const;
	bool defers() const;
	void pump();
	void cut();
	void grow();

public:
	Tcp(Model &model, bool ect) : Flow(model), ect_(ect)
	{
		frame = model.path.link_mtu + ETHERNET_HEADER;
	}
	void start() override;
	void stop() override { stopped_ = true; }
	void wake(u64 what) override;
};

} // namespace peal::bottleneck
