// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * READs and atomics: responses, their repetition from saved resources, and requesters
 * that ask for more than was negotiated.
 */
#include "responder.hpp"

using namespace peal::test;

namespace {

constexpr std::uint64_t ADDRESS = 0x10000;

struct Place {
	bool first, last;
};

/*
 * Checks the responses from packet @from on, of a READ of @length bytes
 * at ADDRESS whose PSN is @psn.
 */
void check_responses(const std::vector<peal_reply> &replies, std::uint32_t psn, std::uint32_t from,
		     std::uint64_t end)
{
	for (std::size_t i = 0; i < replies.size(); ++i) {
		const peal_reply &reply = replies[i];
		const std::uint64_t offset = (from + i) * MTU;
		const std::uint64_t bytes = std::min<std::uint64_t>(end - offset, MTU);

		INFO("response " << i << " of " << replies.size());
		CHECK(reply.read);
		CHECK(reply.header.opcode ==
		      peal_opcode_read_response(PEAL_RC, i == 0, i + 1 == replies.size()));
		CHECK(reply.header.psn == peal_psn_add(psn, from + i));
		CHECK(unsigned(reply.header.syndrome) == PLAIN_ACK);
		CHECK(reply.header.payload_bytes == bytes);
		CHECK((reply.header.pad + bytes) % 4 == 0);
		CHECK(reply.remote_addr == ADDRESS + offset);
		CHECK(reply.rkey == 7);
	}
}

void check_atomic(const peal_reply &reply, std::uint32_t psn, std::uint64_t original)
{
	CHECK(reply.header.opcode == peal_opcode_of(PEAL_RC, PEAL_WIRE_ATOMIC_ACK));
	CHECK(reply.header.psn == psn);
	CHECK(reply.header.original == original);
	CHECK_FALSE(reply.read);
}

} // namespace

TEST_CASE("a READ is answered packet by packet", "[responder]")
{
	struct Row {
		std::uint32_t length, packets;
	};

	for (const Row &row : {Row{0, 1}, Row{1, 1}, Row{MTU - 1, 1}, Row{MTU, 1}, Row{MTU + 1, 2},
			       Row{2 * MTU, 2}, Row{5 * MTU + 5, 6}}) {
		Responder r(0xfffffd);

		INFO("length " << row.length);

		const peal_request request = r.run(read_request(0xfffffd, ADDRESS, row.length));

		CHECK(request.operation == PEAL_OP_READ);
		CHECK(request.length == row.length);
		CHECK(request.remote_addr == ADDRESS);
		CHECK(request.rkey == 7);
		CHECK(r->psn == peal_psn_add(0xfffffd, row.packets));
		CHECK(r->msn == 1);

		const std::vector<peal_reply> replies = r.replies();

		REQUIRE(replies.size() == row.packets);
		check_responses(replies, 0xfffffd, 0, row.length);
		CHECK_FALSE(replies.front().again);
		CHECK(replies.front().header.msn == 1);
	}
}

TEST_CASE("a READ may have 2 GiB and not more", "[responder]")
{
	Responder r(1);

	r.run(read_request(1, ADDRESS, PEAL_MAX_MSG));
	CHECK(r->psn == 0x800001);

	Responder strict(1);

	check_refused(strict.give(read_request(1, ADDRESS, PEAL_MAX_MSG + 1)));
	check_answer(strict.reply(), INVALID_NAK, 1);
}

TEST_CASE("no acknowledgement overtakes the responses of a READ", "[responder]")
{
	Responder r(0);
	peal_reply reply;

	r.run(rc(PEAL_WIRE_SEND_ONLY, 0).asks_ack());
	r.run(read_request(1, ADDRESS, 3 * MTU));
	REQUIRE(r.next(reply));
	CHECK(reply.header.psn == 1);
	r.run(rc(PEAL_WIRE_SEND_ONLY, 4).asks_ack());

	SECTION("an acknowledgement")
	{
		const std::vector<peal_reply> rest = r.replies();

		REQUIRE(rest.size() == 3);
		CHECK(rest[0].header.psn == 2);
		CHECK(rest[1].header.psn == 3);
		check_answer(rest[2], PLAIN_ACK, 4);
	}
	SECTION("a negative one")
	{
		r.give(rc(PEAL_WIRE_SEND_ONLY, 6));

		const std::vector<peal_reply> rest = r.replies();

		REQUIRE(rest.size() == 3);
		check_answer(rest[2], SEQUENCE_NAK, 5);
	}
}

TEST_CASE("responses acknowledge what came before", "[responder]")
{
	Responder r(0);

	r.run(rc(PEAL_WIRE_SEND_ONLY, 0).asks_ack());
	r.run(read_request(1, ADDRESS, 2 * MTU));
	CHECK(r.replies().size() == 2);
}

TEST_CASE("an acknowledgement never stands for a READ or atomic", "[responder]")
{
	Responder r(0xffffff);

	r.run(rc(PEAL_WIRE_SEND_ONLY, 0xffffff));
	r.run(read_request(0, ADDRESS, 3 * MTU));
	r.run(atomic_request(3, 0x40));
	CHECK(r.replies().size() == 4);

	/* These were lost. A repeated SEND shows that, but not that a READ was answered. */
	r.give(rc(PEAL_WIRE_SEND_ONLY, 0xffffff));
	check_answer(r.reply(), PLAIN_ACK, 0xffffff);

	r.run(rc(PEAL_WIRE_SEND_ONLY, 4).asks_ack());
	check_answer(r.reply(), PLAIN_ACK, 4);
}

TEST_CASE("replies come in the order of the requests", "[responder]")
{
	Responder r(0xfffffe, 3);

	r.run(read_request(0xfffffe, ADDRESS, 3 * MTU));
	r.run(atomic_request(1, 0x40), PEAL_VERDICT_DONE, 77);
	r.run(read_request(2, ADDRESS, 1));

	const std::vector<peal_reply> replies = r.replies();

	REQUIRE(replies.size() == 5);
	for (std::uint32_t i = 0; i < 5; ++i)
		CHECK(replies[i].header.psn == peal_psn_add(0xfffffe, i));
	check_atomic(replies[3], 1, 77);
	CHECK(replies[0].header.msn == 1);
	CHECK(replies[3].header.msn == 2);
	CHECK(replies[4].header.msn == 3);
}

TEST_CASE("a READ that comes again is answered again, whole or from any packet on", "[responder]")
{
	Responder r(10);

	r.run(read_request(10, ADDRESS, 4 * MTU + 9));
	r.run(rc(PEAL_WIRE_SEND_ONLY, 15));
	REQUIRE(r.replies().size() == 5);

	struct Row {
		std::uint32_t from, length, packets;
	};

	for (const Row &row : {Row{0, 4 * MTU + 9, 5}, Row{2, 2 * MTU + 9, 3}, Row{4, 9, 1},
			       Row{1, MTU, 1}, Row{1, MTU + 1, 2}, Row{0, 3, 1}}) {
		INFO("from packet " << row.from << ", " << row.length << " bytes");

		const peal_request request =
			r.give(read_request(10 + row.from, ADDRESS + row.from * MTU, row.length));

		CHECK(request.what == PEAL_REQUEST_ANSWERED);
		CHECK(request.duplicate);

		const std::vector<peal_reply> replies = r.replies();

		REQUIRE(replies.size() == row.packets);
		check_responses(replies, 10, row.from, row.from * MTU + row.length);
		CHECK(replies.front().again);
	}
	CHECK(r->psn == 16);
	CHECK(r->msn == 2);
}

TEST_CASE("a repetition that does not match is dropped", "[responder]")
{
	Responder r(10);

	r.run(read_request(10, ADDRESS, 4 * MTU));
	r.run(atomic_request(14, 0x40), PEAL_VERDICT_DONE, 1);
	r.run(rc(PEAL_WIRE_SEND_ONLY, 15));
	REQUIRE(r.replies().size() == 5);

	const Request strangers[] = {
		read_request(10, ADDRESS + 1, MTU),
		read_request(11, ADDRESS, MTU),
		read_request(11, ADDRESS + MTU, 3 * MTU + 1),
		read_request(10, ADDRESS, 4 * MTU + 1),
		read_request(10, ADDRESS, 0xffffffff),
		read_request(10, ADDRESS, 0),
		read_request(10, ADDRESS, MTU, 8),
		read_request(14, 0x40, 8),
		read_request(15, ADDRESS + 5 * MTU, MTU),
		read_request(9, ADDRESS - MTU, MTU),
		atomic_request(14, 0x48),
		atomic_request(13, 0x40),
		rc(PEAL_WIRE_CMP_SWAP, 14).at(0x40, 0),
		rc(PEAL_WIRE_FETCH_ADD, 14).at(0x40, 0, 8),
		atomic_request(10, ADDRESS),
	};

	for (const Request &stranger : strangers) {
		const peal_request request = r.give(stranger);

		INFO("psn " << stranger.psn << " address " << stranger.remote_addr);
		check_dropped(request, PEAL_DROP_stale);
		CHECK(request.duplicate);
		CHECK(r.replies().empty());
	}
}

TEST_CASE("a READ that comes again while it is answered starts over", "[responder]")
{
	Responder r(0);
	peal_reply reply;

	r.run(read_request(0, ADDRESS, 6 * MTU));
	for (int i = 0; i < 4; ++i)
		REQUIRE(r.next(reply));
	r.give(read_request(2, ADDRESS + 2 * MTU, 4 * MTU));

	const std::vector<peal_reply> replies = r.replies();

	REQUIRE(replies.size() == 4);
	check_responses(replies, 0, 2, 6 * MTU);
	CHECK(replies[1].again);
	CHECK_FALSE(replies[2].again);
	CHECK(r->saved == 1);
}

TEST_CASE("responses that were not sent yet are not overtaken by their repetition", "[responder]")
{
	for (std::uint32_t again : {1, 2, 3}) {
		Responder r(10);
		peal_reply reply;

		CAPTURE(again);
		r.run(read_request(10, ADDRESS, 4 * MTU));
		REQUIRE(peal_responder_next(r.get(), &reply));
		r.give(read_request(10 + again, ADDRESS + again * MTU, MTU));
		const auto rest = r.replies();
		REQUIRE(rest.size() == 3);
		for (std::uint32_t i = 0; i < 3; i++)
			CHECK(rest[i].header.psn == 11 + i);
	}
}

TEST_CASE("a repetition is not replaced by one of what lies behind it", "[responder]")
{
	Responder r(0);

	r.run(read_request(0, ADDRESS, 6 * MTU));
	REQUIRE(r.replies().size() == 6);
	for (int round = 0; round < 2; ++round) {
		r.give(read_request(1, ADDRESS + 1 * MTU, MTU));
		r.give(read_request(3, ADDRESS + 3 * MTU, 3 * MTU));
		check_responses(r.replies(), 0, 1, 2 * MTU);
	}
	r.give(read_request(3, ADDRESS + 3 * MTU, 3 * MTU));
	r.give(read_request(2, ADDRESS + 2 * MTU, MTU));
	check_responses(r.replies(), 0, 2, 3 * MTU);
}

TEST_CASE("an atomic is executed once, whatever comes again", "[responder]")
{
	Responder r(0);

	r.run(atomic_request(0, 0x40), PEAL_VERDICT_DONE, 1234);
	check_atomic(r.reply(), 0, 1234);
	for (int i = 0; i < 3; ++i) {
		CHECK(r.give(atomic_request(0, 0x40)).what == PEAL_REQUEST_ANSWERED);

		const peal_reply again = r.reply();

		check_atomic(again, 0, 1234);
		CHECK(again.again);
	}
	CHECK(r->psn == 1);
	CHECK(r->msn == 1);
}

TEST_CASE("as many READs as negotiated, exactly", "[responder]")
{
	for (unsigned depth : {0u, 1u, 3u, 16u}) {
		Responder r(0, depth);

		INFO("depth " << depth);
		for (unsigned i = 0; i < depth; ++i)
			r.run(i % 2 ? atomic_request(i, 8) : read_request(i, ADDRESS, 1));
		check_refused(r.give(read_request(depth, ADDRESS, 1)));

		const std::vector<peal_reply> replies = r.replies();

		REQUIRE(replies.size() == depth + 1);
		check_answer(replies.back(), INVALID_NAK, depth);
	}
}

TEST_CASE("an answered READ makes room for the next", "[responder]")
{
	Responder r(0, 3);

	for (std::uint32_t psn = 0; psn < 100; ++psn) {
		r.run(read_request(psn, ADDRESS, 1));
		REQUIRE(r.reply().header.psn == psn);
		/* The newest three are known. The one before them is not. */
		for (std::uint32_t age = 0; age < 3 && age <= psn; ++age) {
			REQUIRE(r.give(read_request(psn - age, ADDRESS, 1)).what ==
				PEAL_REQUEST_ANSWERED);
			REQUIRE(r.reply().header.psn == psn - age);
		}
		if (psn >= 3)
			REQUIRE(r.give(read_request(psn - 3, ADDRESS, 1)).what ==
				PEAL_REQUEST_DROPPED);
	}
}

TEST_CASE("a new request cuts a replay short, not a first answer", "[responder]")
{
	Responder r(0, 1);
	peal_reply reply;

	r.run(read_request(0, ADDRESS, 3 * MTU));

	SECTION("all were sent, some are being repeated")
	{
		REQUIRE(r.replies().size() == 3);
		r.give(read_request(0, ADDRESS, 3 * MTU));
		REQUIRE(r.next(reply));
		r.run(read_request(3, ADDRESS, 1));
		CHECK(r.reply().header.psn == 3);
	}
	SECTION("some were never sent")
	{
		REQUIRE(r.next(reply));
		r.give(read_request(0, ADDRESS, MTU));
		REQUIRE(r.next(reply));
		check_refused(r.give(read_request(3, ADDRESS, 1)));
	}
}

TEST_CASE("a key that is gone turns the response into a refusal", "[responder]")
{
	Responder r(0);
	peal_reply reply;

	r.run(read_request(0, ADDRESS, 3 * MTU));
	r.run(read_request(3, ADDRESS, MTU));
	r.run(rc(PEAL_WIRE_SEND_ONLY, 4).asks_ack());
	REQUIRE(r.next(reply));
	REQUIRE(r.next(reply));
	REQUIRE(reply.header.psn == 1);
	peal_responder_refuse_read(r.get());
	check_answer(r.reply(), ACCESS_NAK, 1);
	check_dropped(r.give(rc(PEAL_WIRE_SEND_ONLY, 5)), PEAL_DROP_state);
	check_dropped(r.give(read_request(0, ADDRESS, 3 * MTU)), PEAL_DROP_state);
	CHECK(r.replies().empty());
}

TEST_CASE("a key that is gone during a replay does not end the connection", "[responder]")
{
	const std::uint32_t left = GENERATE(2, 3); /* answers that were sent before */
	Responder r(0);
	peal_reply reply;

	r.run(read_request(0, ADDRESS, 3 * MTU));
	for (std::uint32_t i = 0; i < left; ++i)
		REQUIRE(r.next(reply));
	r.give(read_request(0, ADDRESS, 2 * MTU));
	r.run(rc(PEAL_WIRE_SEND_ONLY, 3).asks_ack());
	REQUIRE(r.next(reply));
	REQUIRE(reply.again);
	peal_responder_refuse_again(r.get(), &reply);
	check_answer(reply, ACCESS_NAK, 0);
	CHECK_FALSE(reply.read);
	CHECK_FALSE(r->fatal);
	if (left == 2) { /* the first answer to this one, or its refusal, is still to come */
		REQUIRE(r.next(reply));
		CHECK(reply.header.psn == 2);
		CHECK(reply.read);
		CHECK_FALSE(reply.again);
	}
	check_answer(r.reply(), PLAIN_ACK, 3);
	r.run(rc(PEAL_WIRE_SEND_ONLY, 4).asks_ack());
	check_answer(r.reply(), PLAIN_ACK, 4);
}

TEST_CASE("a smaller depth forgets the oldest", "[responder]")
{
	Responder r(0, 4);
	peal_responder_config config = r->config;

	for (std::uint32_t psn = 0; psn < 4; ++psn)
		r.run(read_request(psn, ADDRESS, 1));
	config.rd_atomic = 2;
	peal_responder_configure(r.get(), &config);
	CHECK(r.replies().size() == 2);
	config.rd_atomic = 200;
	peal_responder_configure(r.get(), &config);
	CHECK(r->config.rd_atomic == 4);
}

TEST_CASE("an ACK names the newest request also one circle of PSNs after a READ", "[responder]")
{
	constexpr std::uint32_t FIRST = 1000;
	Responder r(FIRST);
	peal_reply reply;

	r.run(read_request(FIRST, ADDRESS, MTU));
	REQUIRE(r.replies().size() == 1);
	for (std::uint32_t n = 1; n <= PEAL_PSN_MASK; ++n) {
		peal_packet packet = rc(PEAL_WIRE_SEND_ONLY, FIRST + n);
		peal_request request;

		/* There are no checks here, because the loop runs 16 million times. */
		peal_responder_receive(r.get(), &packet, r.now, nullptr, &request);
		peal_responder_done(r.get(), PEAL_VERDICT_DONE, 0, r.now);
		while (r.next(reply))
			;
	}
	r.run(rc(PEAL_WIRE_SEND_ONLY, FIRST).asks_ack());
	check_answer(r.reply(), PLAIN_ACK, FIRST);
	/* The READs behind it still do not count. */
	r.run(read_request(FIRST + 1, ADDRESS, MTU));
	r.run(read_request(FIRST + 2, ADDRESS, MTU));
	REQUIRE(r.replies().size() == 2);
	r.give(rc(PEAL_WIRE_SEND_ONLY, FIRST).asks_ack());
	check_answer(r.reply(), PLAIN_ACK, FIRST);
}

namespace {

Request atomic_write(std::uint32_t psn, std::uint32_t bytes = 8, std::uint32_t length = 8)
{
	return rc(PEAL_WIRE_ATOMIC_WRITE, psn, bytes).at(ADDRESS, length);
}

Request flush_request(std::uint32_t psn, std::uint32_t length)
{
	Request packet = rc(PEAL_WIRE_FLUSH, psn).at(ADDRESS, length);

	packet.placement = PEAL_FLUSH_GLOBAL;
	packet.selectivity = PEAL_FLUSH_REGION;
	return packet;
}

/* It is answered as a READ of no bytes. */
void check_placed(const peal_reply &reply, std::uint32_t psn, bool again)
{
	CHECK(reply.header.opcode == peal_opcode_of(PEAL_RC, PEAL_WIRE_READ_RESPONSE_ONLY));
	CHECK(reply.header.psn == psn);
	CHECK(unsigned(reply.header.syndrome) == PLAIN_ACK);
	CHECK(reply.header.payload_bytes == 0);
	CHECK_FALSE(reply.read);
	CHECK(reply.again == again);
}

} // namespace

TEST_CASE("ATOMIC_WRITE and FLUSH are executed once and answered as often as asked", "[responder]")
{
	Responder r(0);
	peal_request request = r.run(atomic_write(0));

	CHECK(request.operation == PEAL_OP_ATOMIC_WRITE);
	CHECK(request.bytes == 8);
	CHECK((request.first && request.last));
	CHECK(request.remote_addr == ADDRESS);
	CHECK(request.rkey == 7);
	check_placed(r.reply(), 0, false);
	request = r.run(flush_request(1, PEAL_MAX_MSG));
	CHECK(request.operation == PEAL_OP_FLUSH);
	CHECK(request.bytes == 0);
	CHECK(request.flush.length == PEAL_MAX_MSG);
	CHECK(request.flush.placement == PEAL_FLUSH_GLOBAL);
	CHECK(request.flush.selectivity == PEAL_FLUSH_REGION);
	check_placed(r.reply(), 1, false);
	CHECK(r->msn == 2);
	CHECK(r->psn == 2);
	for (const Request &packet : {atomic_write(0), flush_request(1, PEAL_MAX_MSG)}) {
		request = r.give(packet);
		CHECK(request.what == PEAL_REQUEST_ANSWERED);
		CHECK(request.duplicate);
		check_placed(r.reply(), packet.psn, true);
	}
	/* Another operation, key or address has no saved answer. */
	check_dropped(r.give(flush_request(0, 8)), PEAL_DROP_stale);
	check_dropped(r.give(atomic_write(1)), PEAL_DROP_stale);
	check_dropped(r.give(atomic_write(0).at(ADDRESS, 8, 9)), PEAL_DROP_stale);
	check_dropped(r.give(atomic_write(0).at(ADDRESS + 8, 8)), PEAL_DROP_stale);
}

TEST_CASE("an ATOMIC_WRITE has 8 bytes, and a FLUSH names at most 2 GiB", "[responder]")
{
	for (std::uint32_t bytes : {0U, 4U, 7U, 9U, 16U, MTU}) {
		Responder payload(0), length(0);

		CAPTURE(bytes);
		check_refused(payload.give(atomic_write(0, bytes, bytes)));
		check_refused(length.give(atomic_write(0, 8, bytes)));
	}
	Responder r(0);
	check_refused(r.give(flush_request(0, PEAL_MAX_MSG + 1)));
}

TEST_CASE("ATOMIC_WRITE and FLUSH take responder resources", "[responder]")
{
	Responder r(0, 2);

	r.run(atomic_write(0));
	r.run(flush_request(1, 0));
	check_refused(r.give(atomic_write(2)));
}
