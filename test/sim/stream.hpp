// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The oracle of one direction of a connection. It records what was posted at one end, what
 * was executed at the other, and what completed. It checks each step against
 * the specification's promises. A broken promise throws a Violation.
 *
 * Owns: the messages and receives of the direction, and what is known of each.
 * Does not know: the core, the network. It numbers packets itself.
 */
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "core.hpp"
#include "memory.hpp"
#include "world.hpp"

namespace peal::sim {

/* An intended fault of a message. */
enum class Fault : u8 {
	NONE,
	KEY,	    /* rkey names nothing */
	RANGE,	    /* a byte outside the region */
	RIGHTS,	    /* region does not allow it */
	TOO_LONG,   /* longer than the receive */
	RECV_KEY,   /* receive's local key is bad */
	MISALIGNED, /* atomic */
	NO_READS,   /* the peer has no resources for READs */
	READ_DEPTH, /* this side may have no READ outstanding */
	INV_KEY,    /* SEND_INV of an invalid key */
	LOCAL,	    /* own buffer is gone at fault_offset */
	OPCODE,	    /* malformed WQE */
	BIND,	    /* BIND_MW fails */
};

struct Message {
	u64 id = 0;
	peal_wqe wire{};
	Range *remote = nullptr, *local = nullptr;
	Fault fault = Fault::NONE;
	u64 fault_offset = 0;
	u64 post_at = 0;
	/* the requester's side */
	u64 sent_at = 0;
	u32 first = 0, packets = 0; /* PSNs, counted from the stream's first */
	bool begun = false, sent = false;
	u32 sent_packets = 0;
	u32 landed_packets = 0;
	u32 completions = 0;
	u8 status = 0;
	u32 reason = 0;
	/* the responder's side */
	u32 executed_packets = 0;
	u32 replied_packets = 0;
	bool finished = false;
	u8 refused = 0;	   /* the status that its NAK means */
	u32 not_ready = 0; /* how often it met no receive */
	u64 before = 0;	   /* atomic: what it found */

	bool reads() const { return wire.opcode == PEAL_OP_READ; }
	bool is_atomic() const
	{
		return wire.opcode == PEAL_OP_CMP_SWAP || wire.opcode == PEAL_OP_FETCH_ADD;
	}
	bool is_atomic_write() const { return wire.opcode == PEAL_OP_ATOMIC_WRITE; }
	bool flushes() const { return wire.opcode == PEAL_OP_FLUSH; }
	/* It has an answer without data (annex A19). */
	bool places() const { return is_atomic_write() || flushes(); }
	bool responds() const { return reads() || is_atomic() || places(); }
	/* Its bytes go to the memory that it names. */
	bool stores() const { return writes() || is_atomic_write(); }
	bool sends() const
	{
		return wire.opcode >= PEAL_OP_SEND && wire.opcode <= PEAL_OP_SEND_INV;
	}
	bool writes() const
	{
		return wire.opcode == PEAL_OP_WRITE || wire.opcode == PEAL_OP_WRITE_IMM;
	}
	bool receives() const { return sends() || wire.opcode == PEAL_OP_WRITE_IMM; }
	bool on_wire() const { return sends() || writes() || responds(); }
	bool answered() const { return landed_packets == packets; }
	u8 expected() const; /* the status that its fault means */
};

/*
 * What the responder's transport asks its host to do, peal's (peal_request) or the strict peer's.
 */
struct Request {
	u32 psn;
	u8 operation;
	bool first, last, solicited;
	u64 offset;
	u32 bytes;
	u64 length;
	u32 rkey;
	u64 remote_addr;
	u64 compare_add, swap;
	u32 imm_or_rkey;
	u32 srqn;
	peal_flush_seg flush{};
};

struct Receive {
	u64 number = 0; /* in its queue */
	u32 queue = 0;
	Range *range = nullptr;
	bool bad = false; /* its local key is not valid */
	bool taken = false, completed = false;
	u8 status = 0;
};

/* The promises to both ends. */
struct Rules {
	u8 transport = PEAL_RC;
	u32 queues = 1; /* XRC: shared receive queues at the responder, numbered from 1 */
	u32 mtu = 1024;
	u32 psn = 0;
	u8 retry_limit = 7, rnr_limit = 7, rnr_timer = 0;
	u64 timeout_ns = 0;
	u32 max_rd_atomic = 1;
	u32 window = 1;
	bool may_exceed = false; /* the network may be too bad for the retries */
	bool duplicates = false; /* it sends packets twice, also NAKs */
	bool forged = false;	 /* a packet is changed on the way, with a right ICRC */
	u64 slack = NEVER;	 /* the sum of all delays of timeouts, at most */
	bool harmless = false;	 /* UC: the network loses nothing and keeps the order */
	bool clean = false;	 /* the network neither loses nor reorders nor duplicates */
	bool strict = false;	 /* its requester believes every NAK, even an old one */
	/* Requests with more payload than narrow_bytes do not leave in this time. */
	u64 narrow_from = NEVER, narrow_until = NEVER;
	u32 narrow_bytes = 0;

	bool reliable() const { return peal_transport_is_reliable(transport); }
	bool xrc() const { return transport == PEAL_XRC; }
};

/*
 * A receive queue. A stream of XRC has several, and each message names one. A shared receive queue
 * is that of several streams, whose messages complete its receives in any order.
 */
struct ReceiveQueue {
	std::deque<Receive> receives;
	size_t taken = 0, done = 0;
};

class Stream {
	World &world_;
	std::string name_;
	std::deque<Message> messages_;
	std::map<u32, ReceiveQueue> queues_; /* by number; without XRC only number 0 */
	u32 next_first_ = 0;		     /* PSN of the next message to be posted */
	/* requester */
	u32 new_packet_ = 0;	    /* PSN of the next packet that was never sent */
	size_t begun_ = 0;	    /* messages that have begun to be sent */
	size_t completed_ = 0;	    /* messages */
	std::deque<u32> reads_out_; /* READs and atomics outstanding, with the PSN after each */
	u64 progress_at_ = 0;	    /* time of the last news from the peer */
	u32 asked_ = 0;		    /* requests that were sent, the SSN */
	bool credited_ = false;	    /* the peer counts its receives */
	u32 credit_ = 0;	    /* request number up to which there is credit */
	bool heard_ = false;	    /* a response came since the last progress */
	u32 una_ = 0;		    /* PSN of the oldest packet without an answer */
	u32 una_sent_ = 0;	    /* how often it was sent since it is the oldest */
	u64 restart_at_ = 0;	    /* the latest time at which the timeout began anew */
	std::set<u32> too_long_;    /* PSNs of packets whose last copy did not leave */
	u32 not_ready_psn_ = 0;	    /* RNR: from this packet on nothing is sent ... */
	u64 not_before_ = 0;	    /* ... before this */
	bool failed_ = false;	    /* a completion with an error was seen */
	bool error_ = false;	    /* the queue pair is in error or was reset */
	/* responder */
	size_t current_ = 0; /* message of the next request */
	u32 executed_ = 0;   /* its PSN */
	u32 requests_ = 0;   /* requests executed completely, the MSN */
	size_t reading_ = 0; /* first message whose replies are not all sent */
	Message *refused_ = nullptr;
	u32 refused_psn_ = ~0U;
	u32 refused_again_ = ~0U;		/* PSN of a repetition */
	std::deque<std::pair<u32, u32>> again_; /* PSNs that were requested again */

	Message *at_psn(u32 rel);
	void check_header(const Message &m, const peal_packet &packet, u64 offset) const;
	void check_begin(Message &m);
	void check_read(const Message &m, u32 psn, u64 addr, u64 length) const;
	u32 psns(const Message &m, u64 length) const;
	void check_request(const Message &m, const Request &r) const;
	void count_sent(u32 psn);
	void check_success(const Message &m);
	void replied_in_order(Message &reader, u32 psn, bool answer, bool again);
	void judge(const Message &m, u8 status, u32 reason);
	bool fails_after(const Message &m) const;
	void judge_exceeded(const Message &m, u32 reason);
	void judge_length(const Message &m, u32 reason) const;
	[[noreturn, gnu::format(printf, 3, 4)]] void broken(const Message &m, const char *format,
							    ...) const;

	ReceiveQueue &queue(u32 number) { return shared ? *shared : queues_[number]; }

public:
	Rules rules;
	bool peer_dead = false; /* the other end does not answer any more */
	u64 invalidated_at = NEVER;
	u64 retransmitted = 0, stalls = 0; /* packets; timeouts that sent packets */

	Stream(World &world, std::string name, const Rules &rules)
		: world_(world), name_(std::move(name)), rules(rules)
	{
	}
	/* The receives of all streams to this node that share, or null. */
	std::shared_ptr<ReceiveQueue> shared;

	const std::string &name() const { return name_; }
	size_t count() const { return messages_.size(); }
	size_t completed_count() const { return completed_; }
	Message &message(size_t index) { return messages_.at(index); }
	std::deque<Receive> &receives(u32 number) { return queue(number).receives; }
	/*
	 * PSNs, counted from the first: the next to be executed; the
	 * first and the last outstanding.
	 */
	u32 executed() const { return executed_; }
	u32 una() const { return una_; }
	u32 sent_up_to() const { return new_packet_; }
	/* Whether @p may answer its PSN, and everything from una on is answered by data. */
	bool awaits_data(const peal_packet &p);
	u32 rel(u32 psn) const { return (psn - rules.psn) & 0xffffff; }
	bool in_error() const { return error_; }
	bool failed() const { return failed_; }
	bool settled() const { return completed_ == messages_.size(); }

	/* The program posts. */
	Message &post(const Message &message);
	/* The queue pair went into error or to RESET, so posted messages may be flushed. */
	void error() { error_ = true; }

	/* The requester sends a packet of message @index, from @offset of its payload. */
	void sent(u32 index, const peal_packet &packet, u64 offset, bool again);
	/* Return: whether a packet that was sent is too long to leave now. The sender is told so.
	 */
	bool stops(const peal_packet &packet);
	void executed_locally(u32 index);
	/* A response was taken without progress. It may have ended the peer's silence. */
	void heard() { heard_ = true; }
	/* Everything before @psn is answered. */
	void progressed(u32 psn);
	/* An acknowledgement with credits was taken. */
	void told_credits(u32 psn, u8 code, u32 msn);
	u64 not_before() const { return not_before_; }
	/* Without XRC, which the strict peer does not have. */
	size_t receives_left() { return queues_[0].receives.size() - queues_[0].taken; }
	/* An RNR NAK for @psn was taken. */
	void told_not_ready(u32 psn, u8 timer);
	/* The data of a READ's or atomic's answer was placed. */
	void placed(u32 index, u64 offset, u32 bytes, u64 original);
	void completed(u32 index, u8 opcode, u8 flags, u8 status, u32 reason, u64 length);

	/* The responder is asked to execute, and then says with what verdict. */
	Message &executing(const Request &request);
	void settle(Message &m, const Request &request, Verdict verdict, u64 original);
	/* The transport itself refuses a request, or the key of the current READ is gone. */
	void refuse(u32 psn, u8 status);
	/* The key of a READ is gone, and one of its responses was sent before. */
	void refuse_again(u32 psn);
	/* A READ or atomic that was executed is requested again. */
	void asked_again(u32 psn, u64 length);
	/* The responder sends a reply. */
	void replied(const peal_packet &packet, bool again);
	/* Receives are taken and completed in order. */
	/* The next receive of queue @number. In error: of any that has one. */
	Receive *take(u32 number);
	Receive *take_any();
	void received(Receive *receive, const Message *m, u8 status, u64 length);

	/* Called at the end. Throws unless everything posted has completed once. */
	void finish();
};

} // namespace peal::sim
