// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Runs of packets, beside the same packets one by one.
 *
 * Holds: Two requesters, or two responders, get the same events. One sends and receives runs, the
 * other single packets. They send the same packets, ask for the same, and are in the same state
 * after each event. Two differences are allowed: how far a window grows by a run, and which gap in
 * the responses the requester remembers when it has none.
 */
#include <cstring>

#include "requester.hpp"

using namespace peal::test;

namespace {

std::vector<std::uint8_t> bytes_of(const peal_packet &packet)
{
	std::vector<std::uint8_t> bytes(PEAL_HEADERS_MAX);

	bytes.resize(peal_packet_build(&packet, bytes.data()));
	return bytes;
}

/* Packet number @i of a run. */
peal_packet packet_of(const peal_packet &run, std::uint32_t i)
{
	peal_packet packet;

	peal_packet_of_run(&run, i, &packet);
	return packet;
}

constexpr std::uint32_t MOST = 12; /* packets of a run */

/* Return: how many packets follow the first of a run, of which @takes are taken. */
std::uint32_t some(Random &random, std::uint32_t takes)
{
	return static_cast<std::uint32_t>(
		std::min<std::uint64_t>(takes ? takes - 1 : 0, random.below(MOST)));
}

/* ---- responders ---- */

class Responders {
	static constexpr std::uint32_t RESOURCES = 4;

	struct One {
		peal_resource resources[RESOURCES] = {};
		peal_responder responder{};
	};
	Random &random_;
	std::unique_ptr<One> single_ = std::make_unique<One>(), runs_ = std::make_unique<One>();
	const std::uint8_t transport_;
	std::uint64_t now_ = 1 * MS;
	std::uint32_t left_ = 0; /* MIDDLE packets of the message, as the peer wants them */
	bool write_ = false, begun_ = false;

	unsigned wire(unsigned op) const { return peal_opcode_of(transport_, static_cast<u8>(op)); }
	/* What a peer would send next, or nearly so. */
	peal_packet next_packet()
	{
		peal_packet packet = {};

		packet.psn = runs_->responder.psn;
		if (random_.one_in(40))
			packet.psn = peal_psn_add(packet.psn, random_.below(6) - 3);
		packet.payload_bytes = random_.one_in(60) ? random_.below(MTU + 2) : MTU;
		packet.pad = -packet.payload_bytes & 3;
		packet.ack_request = random_.one_in(8);
		if (begun_ && left_ && !random_.one_in(50)) {
			packet.opcode = static_cast<u8>(
				wire(write_ ? PEAL_WIRE_WRITE_MIDDLE : PEAL_WIRE_SEND_MIDDLE));
		} else if (begun_ && !random_.one_in(50)) {
			packet.opcode = static_cast<u8>(
				wire(write_ ? PEAL_WIRE_WRITE_LAST : PEAL_WIRE_SEND_LAST));
		} else if (transport_ == PEAL_RC && random_.one_in(4)) {
			packet.opcode = static_cast<u8>(wire(PEAL_WIRE_READ_REQUEST));
			packet.payload_bytes = packet.pad = 0;
			packet.length = random_.below(30 * MTU);
			packet.rkey = KEY;
		} else {
			write_ = random_.one_in(2);
			left_ = random_.below(30);
			packet.opcode = static_cast<u8>(
				wire(write_ ? PEAL_WIRE_WRITE_FIRST : PEAL_WIRE_SEND_FIRST));
			packet.length = (left_ + 2) * MTU;
			if (random_.one_in(10))
				packet.length -= random_.below(packet.length);
			packet.rkey = KEY;
		}
		return packet;
	}
	void receive(One &one, const peal_packet &packet, u8 syndrome, peal_request *request)
	{
		peal_responder_receive(&one.responder, &packet, now_, nullptr, request);
		if (request->what == PEAL_REQUEST_EXECUTE)
			peal_responder_done(&one.responder, syndrome, 1, now_);
	}
	/* Let the end of the message join the run, or what looks nearly like the end. */
	void join(peal_packet &run)
	{
		peal_packet last = run;

		last.opcode++;
		last.psn = peal_psn_add(run.psn, peal_packet_count(&run));
		last.more = 0;
		last.solicited = random_.one_in(2);
		last.ack_request = random_.one_in(2);
		if (random_.one_in(4))
			last.payload_bytes = random_.below(MTU + 2);
		last.pad = -last.payload_bytes & 3;
		if (random_.one_in(50))
			last.opcode++;
		if (random_.one_in(50))
			last.srqn++;
		if (!peal_responder_takes_last(&runs_->responder, &run, &last))
			return;
		peal_packet_join(&run, &last);
		joined++;
		last.ack_request = run.ack_request;
		REQUIRE(bytes_of(packet_of(run, run.more)) == bytes_of(last));
	}
	void follow(const peal_packet &packet, const peal_request &request)
	{
		if (request.what != PEAL_REQUEST_EXECUTE)
			return;
		begun_ = runs_->responder.operation;
		if (!request.first && !request.last)
			left_ -= std::min(left_, peal_packet_count(&packet));
	}

public:
	std::size_t longest = 0; /* packets of the longest run */
	std::size_t joined = 0;	 /* runs that a LAST packet has joined */

	Responders(Random &random, std::uint8_t transport) : random_(random), transport_(transport)
	{
		const peal_responder_config config = {
			.transport = transport,
			.mtu_shift = 8,
			.rd_atomic = RESOURCES,
			.reorder_ns = KEEP,
		};

		for (One *one : {single_.get(), runs_.get()}) {
			peal_responder_init(&one->responder, one->resources, RESOURCES);
			peal_responder_configure(&one->responder, &config);
			peal_responder_set_psn(&one->responder, FIRST_PSN - 5);
		}
	}
	bool over() const { return runs_->responder.fatal; }
	void arrive()
	{
		peal_packet packet = next_packet();
		peal_request request, other;
		u8 syndrome = PEAL_SYNDROME_ACK;
		std::uint32_t takes = peal_responder_takes(&runs_->responder, &packet);

		packet.more = some(random_, std::min(takes, std::max(left_, 1U)));
		if (takes && (random_.one_in(4) || packet.more + 1 == left_))
			join(packet);
		if (!packet.more && random_.one_in(30))
			syndrome = random_.one_in(3)
					   ? 0 + PEAL_SYNDROME_NAK + PEAL_NAK_REMOTE_ACCESS
					   : PEAL_SYNDROME_RNR + 12;
		longest = std::max<std::size_t>(longest, packet.more + 1);
		receive(*runs_, packet, syndrome, &request);
		std::uint64_t offset = request.offset;
		for (std::uint32_t i = 0; i <= packet.more; ++i) {
			receive(*single_, packet_of(packet, i), syndrome, &other);
			REQUIRE(other.what == request.what);
			REQUIRE(other.drop == request.drop);
			REQUIRE(other.wqe.opcode == request.wqe.opcode);
			REQUIRE(other.last == (request.last && i == packet.more));
			REQUIRE(other.wqe.flags == (i == packet.more ? request.wqe.flags : 0));
			if (other.what == PEAL_REQUEST_EXECUTE && other.bytes) {
				REQUIRE(other.offset == offset);
				offset += other.bytes;
			}
		}
		if (request.what == PEAL_REQUEST_EXECUTE && request.bytes)
			REQUIRE(offset == request.offset + request.bytes);
		follow(packet, request);
	}
	void reply()
	{
		peal_reply reply, other;

		if (!peal_responder_next(&runs_->responder, 1 + random_.below(MOST), &reply)) {
			REQUIRE_FALSE(peal_responder_next(&single_->responder, 1, &other));
			return;
		}
		longest = std::max<std::size_t>(longest, reply.header.more + 1);
		for (std::uint32_t i = 0; i <= reply.header.more; ++i) {
			REQUIRE(peal_responder_next(&single_->responder, 1, &other));
			REQUIRE(bytes_of(other.header) == bytes_of(packet_of(reply.header, i)));
			REQUIRE(other.header.payload_bytes ==
				packet_of(reply.header, i).payload_bytes);
			REQUIRE(other.read == reply.read);
			REQUIRE(other.again == reply.again);
			if (other.read)
				REQUIRE(other.remote_addr ==
					reply.remote_addr +
						std::uint64_t{i} * reply.header.payload_bytes);
		}
		/* It is the first of a run, because a NAK for the run is about that. */
		single_->responder.reply_psn = runs_->responder.reply_psn;
	}
	void wait()
	{
		now_ += random_.below(200 * US);
		peal_responder_expire(&single_->responder, now_);
		peal_responder_expire(&runs_->responder, now_);
	}
	void compare() const
	{
		peal_responder single = single_->responder;

		single.resource = runs_->responder.resource;
		REQUIRE(std::memcmp(&single, &runs_->responder, sizeof(single)) == 0);
		for (std::uint32_t i = 0; i < RESOURCES; ++i) {
			const peal_resource &a = single_->resources[i], &b = runs_->resources[i];

			REQUIRE(a.psn == b.psn);
			REQUIRE(a.replying == b.replying);
			REQUIRE(a.from == b.from);
			REQUIRE(a.to == b.to);
			REQUIRE(a.sent == b.sent);
		}
	}
};

/* ---- requesters ---- */

class Requesters {
	static constexpr std::uint32_t SLOTS = 16;

	Random &random_;
	Requester single_, runs_;
	const std::uint8_t transport_;
	std::uint64_t &now_ = runs_.now;

	void receive(Requester &requester, const peal_packet &packet)
	{
		peal_requester_receive(requester.get(), &packet, now_, nullptr,
				       &requester.response);
		if (requester.response.what == PEAL_RESPONSE_READ ||
		    requester.response.what == PEAL_RESPONSE_ATOMIC)
			peal_requester_placed(requester.get(), &requester.response, now_);
	}
	static peal_requester_config config_of(std::uint8_t transport)
	{
		peal_requester_config config = plain_config();

		config.transport = transport;
		return config;
	}
	const peal_inflight &inflight() { return runs_.get()->inflight; }

public:
	std::size_t longest = 0;

	Requesters(Random &random, std::uint8_t transport)
		: random_(random), single_(config_of(transport), SLOTS),
		  runs_(config_of(transport), SLOTS), transport_(transport)
	{
	}
	bool over() { return peal_requester_failed(runs_.get()); }
	void post()
	{
		if (peal_requester_unsent(runs_.get()) || !peal_requester_has_room(runs_.get()))
			return;
		const unsigned operations[] = {PEAL_OP_WRITE, PEAL_OP_SEND, PEAL_OP_WRITE_IMM,
					       PEAL_OP_READ};
		peal_wqe wqe = runs_.wr(operations[random_.below(transport_ == PEAL_RC ? 4 : 3)],
					random_.below(40 * MTU));

		wqe.flags = random_.one_in(2) ? PEAL_WQE_SIGNALED : 0;
		wqe.more = random_.one_in(2);
		wqe.end = !wqe.more && random_.one_in(2);
		single_.post(wqe);
		runs_.post(wqe);
	}
	void send()
	{
		const peal_blocked why =
			peal_requester_next(runs_.get(), now_, 1 + random_.below(MOST), &runs_.out);
		const peal_outgoing &out = runs_.out;

		single_.now = now_;
		if (why) {
			REQUIRE(single_.next() == why);
			return;
		}
		longest = std::max<std::size_t>(longest, out.header.more + 1);
		for (std::uint32_t i = 0; i <= out.header.more; ++i) {
			REQUIRE(single_.next() == PEAL_BLOCKED_NONE);
			REQUIRE(single_.out.message == out.message);
			REQUIRE(single_.out.again == out.again);
			REQUIRE(single_.out.offset ==
				out.offset + std::uint64_t{i} * out.header.payload_bytes);
			REQUIRE(bytes_of(single_.out.header) == bytes_of(packet_of(out.header, i)));
		}
	}
	void arrive()
	{
		const std::uint32_t outstanding = peal_inflight_outstanding(&inflight());
		peal_packet packet = ack(0);

		if (!outstanding)
			return;
		packet.psn = peal_psn_add(inflight().una, random_.below(outstanding));
		if (random_.one_in(12))
			packet.syndrome = 0 + PEAL_SYNDROME_NAK + PEAL_NAK_SEQUENCE;
		else if (random_.one_in(40))
			packet.syndrome = PEAL_SYNDROME_RNR + 1;
		else if (random_.one_in(5))
			packet.syndrome = static_cast<u8>(PEAL_SYNDROME_ACK + random_.below(10));
		packet.msn = random_.below(8);

		const peal_message *message = peal_inflight_at(&inflight(), inflight().acking);
		if (message->wqe.opcode == PEAL_OP_READ && !random_.one_in(6)) {
			const std::uint32_t at = peal_psn_ahead(message->psn, inflight().una);

			packet = read_response(0);
			packet.psn = inflight().una;
			packet.payload_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(
				MTU, message->wqe.length - std::uint64_t{at} * MTU));
			if (random_.one_in(20))
				packet.psn = peal_psn_add(packet.psn, 1);
		}
		packet.more = some(random_, peal_requester_takes(runs_.get(), &packet));
		longest = std::max<std::size_t>(longest, packet.more + 1);
		receive(runs_, packet);
		for (std::uint32_t i = 0; i <= packet.more; ++i) {
			receive(single_, packet_of(packet, i));
			REQUIRE(single_.response.what == runs_.response.what);
			REQUIRE(single_.response.drop == runs_.response.drop);
			if (single_.response.what == PEAL_RESPONSE_READ)
				REQUIRE(single_.response.offset ==
					runs_.response.offset +
						std::uint64_t{i} * packet.payload_bytes);
		}
		if (packet.more) {
			single_.get()->window = runs_.get()->window;
			single_.get()->gap_psn = runs_.get()->gap_psn;
		}
	}
	void complete()
	{
		for (;;) {
			const peal_message *a = peal_requester_complete(single_.get());
			const peal_message *b = peal_requester_complete(runs_.get());

			REQUIRE(!a == !b);
			if (!a)
				return;
			REQUIRE(a->wqe.index == b->wqe.index);
			REQUIRE(a->status == b->status);
		}
	}
	void wait()
	{
		now_ += random_.below(20) ? random_.below(30 * US) : random_.below(100 * MS);
		peal_requester_expire(single_.get(), now_);
		peal_requester_expire(runs_.get(), now_);
	}
	void compare()
	{
		peal_requester single = *single_.get();

		single.inflight.message = runs_.get()->inflight.message;
		REQUIRE(std::memcmp(&single, runs_.get(), sizeof(single)) == 0);
	}
};

} // namespace

TEST_CASE("a responder that takes and sends runs is one that does not", "[runs]")
{
	Random random("runs of a responder");
	std::size_t longest = 0, joined = 0;

	for (int round = 0; round < 2000 / SLOWER; ++round) {
		Responders responders(random, random.one_in(4) ? PEAL_UC : PEAL_RC);

		for (int i = 0; i < 200 && !responders.over(); ++i) {
			CAPTURE(random.seed, round, i);
			switch (random.below(8)) {
			case 0:
				responders.wait();
				break;
			case 1:
			case 2:
			case 3:
				responders.reply();
				break;
			default:
				responders.arrive();
			}
			responders.compare();
		}
		longest = std::max(longest, responders.longest);
		joined += responders.joined;
	}
	CHECK(longest == MOST + 1);
	CHECK(joined > 1000);
}

TEST_CASE("a requester that sends and takes runs is one that does not", "[runs]")
{
	Random random("runs of a requester");
	std::size_t longest = 0;

	for (int round = 0; round < 2000 / SLOWER; ++round) {
		Requesters requesters(random, random.one_in(4) ? PEAL_UC : PEAL_RC);

		for (int i = 0; i < 300 && !requesters.over(); ++i) {
			CAPTURE(random.seed, round, i);
			switch (random.below(10)) {
			case 0:
			case 1:
				requesters.post();
				break;
			case 2:
				requesters.wait();
				break;
			case 3:
			case 4:
			case 5:
				requesters.arrive();
				break;
			default:
				requesters.send();
			}
			requesters.complete();
			requesters.compare();
		}
		longest = std::max(longest, requesters.longest);
	}
	CHECK(longest == MOST);
}
