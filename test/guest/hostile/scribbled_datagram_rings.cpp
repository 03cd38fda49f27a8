// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
// transport: any
/*
 * Send rings of UD queue pairs with entries that no libibverbs would write.
 *
 * Holds: The test writes address handles that are unknown, destroyed or another domain's, opcodes
 * and fields that datagrams do not have, and random slots. Each time the send queue works again
 * afterwards, receives continue, and no other queue pair notices.
 * Does not hold: rings of connected queue pairs (hostile/scribbled_rings), packets
 * (wire/odd_frames_are_dropped).
 */
#include "raw.hpp"

using namespace peal_test;

namespace {

constexpr std::uint32_t slots = 16;

struct Stage {
	Device device;
	RawContext context;
	RawQp qp{context, device, {.depth = slots, .type = IBV_QPT_UD}};
	RawContext::RawAh ah = context.create_ah(qp.pd(), device);

	/* A datagram from the queue pair to itself. */
	RawSend datagram() const
	{
		RawSend send;

		send.header.opcode = PEAL_OP_SEND;
		send.header.flags = PEAL_WQE_SIGNALED;
		send.header.ah_index = ah.index;
		send.header.ud = {qp.number(), 0};
		return send.sge(qp.sge(0, 64));
	}
};

#define STAGE_OR_SKIP(name)                                                                        \
	if (!is_peal())                                                                            \
		SKIP_CASE("the rings are those of peal");                                          \
	Stage name

/* A datagram is sent and arrives. */
void check_works(Stage &stage)
{
	peal_cqe cqe{};
	unsigned sent = 0, received = 0;

	fill_pattern(stage.qp.memory().bytes(0, 64), 3);
	stage.qp.post_recv(4096, 512);
	stage.qp.post(stage.datagram());
	for (int i = 0; i < 2; i++) {
		REQUIRE(stage.qp.wait(cqe));
		CHECK(status_name(cqe.status) == status_name(IBV_WC_SUCCESS));
		(cqe.kind == PEAL_CQE_SEND ? sent : received)++;
	}
	CHECK(sent == 1);
	CHECK(received == 1);
	CHECK(difference(stage.qp.memory().bytes(4096 + 40, 64), stage.qp.memory().bytes(0, 64))
		      .empty());
}

void check_refused(Stage &stage, const RawSend &send, peal_reason reason, const std::string &what)
{
	INFO(what);
	peal_cqe cqe{};

	stage.qp.post(send);
	REQUIRE(stage.qp.wait(cqe));
	CHECK(static_cast<int>(cqe.kind) == PEAL_CQE_SEND);
	CHECK(status_name(cqe.status) == status_name(IBV_WC_LOC_QP_OP_ERR));
	CHECK(reason_name(cqe.vendor_err) == reason_name(reason));
	CHECK(state_name(stage.qp.state()) == "SQE");
	stage.qp.recover();
	check_works(stage);
}

} // namespace

TEST_CASE("an address handle that does not exist, or not for this queue pair")
{
	STAGE_OR_SKIP(stage);
	auto send = stage.datagram();
	const auto other = stage.context.create_ah(stage.context.alloc_pd(), stage.device);
	const auto gone = stage.context.create_ah(stage.qp.pd(), stage.device);
	stage.context.destroy_ah(gone);

	check_works(stage);
	for (const std::uint32_t index : {0U, other.index, gone.index, 0x00ffffffU, 0xffffffffU}) {
		send.header.ah_index = index;
		check_refused(stage, send, PEAL_REASON_WQE_AH, std::to_string(index));
	}
}

TEST_CASE("opcodes and fields that datagrams lack are refused")
{
	STAGE_OR_SKIP(stage);

	for (unsigned opcode = 0; opcode < 256; opcode++) {
		if (opcode == PEAL_OP_SEND || opcode == PEAL_OP_SEND_IMM)
			continue;
		auto send = stage.datagram();
		send.header.opcode = static_cast<std::uint8_t>(opcode);
		check_refused(stage, send, PEAL_REASON_WQE_OPCODE,
			      "opcode " + std::to_string(opcode));
	}
	auto send = stage.datagram();
	send.header.rkey = 1;
	check_refused(stage, send, PEAL_REASON_WQE_RESERVED, "rkey");
	send = stage.datagram();
	send.header.reserved1 = 1;
	check_refused(stage, send, PEAL_REASON_WQE_RESERVED, "reserved1");
}

TEST_CASE("nonsense in the slots")
{
	STAGE_OR_SKIP(stage);
	Random random(1);
	peal_cqe cqe{};
	unsigned completed = 0, failed = 0;

	for (int round = 0; round < 1500; round++) {
		auto send = stage.datagram();
		auto *bytes = reinterpret_cast<std::uint8_t *>(&send);
		/* Most fields are right, so that the entry passes the first check. */
		for (std::uint64_t i = random.between(0, 3); i; i--)
			bytes[random.between(0, 79)] = static_cast<std::uint8_t>(random.word());
		send.header.flags |= PEAL_WQE_SIGNALED;
		stage.qp.post(send);
		while (stage.qp.cq().poll(cqe))
			(cqe.status ? failed : completed)++;
		if (stage.qp.state() == IBV_QPS_SQE)
			stage.qp.recover();
		REQUIRE(state_name(stage.qp.state()) == "RTS");
	}
	std::printf("%u datagrams, %u failures\n", completed, failed);
	CHECK(completed > 0);
	CHECK(failed > 0);
	check_works(stage);
}

TEST_CASE("a producer index that makes no sense")
{
	STAGE_OR_SKIP(stage);
	peal_cqe cqe{};

	stage.qp.publish(stage.qp.sq_next() + slots + 1);
	REQUIRE(stage.qp.wait(cqe));
	CHECK(reason_name(cqe.vendor_err) == reason_name(PEAL_REASON_RING_INDEX));
	CHECK(state_name(stage.qp.state()) == "SQE");
}
