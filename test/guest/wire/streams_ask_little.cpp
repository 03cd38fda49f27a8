// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// vm: icount
// timeout: 600
// transport: wire
/*
 * A stream of short messages whose program waits for few completions gets few acknowledgments. The
 * guest's clock counts instructions (scripts/vm --icount), so messages follow one another soon.
 *
 * Holds: Few of them ask for an ACK. Nothing is sent again while the stream lasts. When it pauses,
 * one packet is sent again to ask, which is counted as no loss. All bytes arrive, and a signaled
 * message is completed. Messages that begin later than 50 us after another ask as before.
 * Does not hold: what the requester decides when packets are lost (test/unit/proto, test/sim).
 */
#include "counters.hpp"
#include "verbs.hpp"

using namespace peal_test;

namespace {

constexpr std::uint32_t bytes = 64;
constexpr std::uint64_t messages = 40;

/* Two queue pairs of one device, and a WRITE from one to the other, each with another value. */
struct Stream {
	Device device;
	Pair pair{device};
	Memory memory{2 * bytes};
	Mr from{ibv_reg_mr(pair.a.pd, memory.data(), bytes, all_access), "reg_mr"};
	Mr to{ibv_reg_mr(pair.b.pd, memory.data() + bytes, bytes, all_access), "reg_mr"};
	std::uint8_t value = 0;

	void write(int flags)
	{
		std::memset(memory.data(), ++value, bytes);
		post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {{memory.address(), bytes, from->lkey}})
					.remote(memory.address(bytes), to->rkey)
					.flags(flags));
	}
	bool arrived() const
	{
		return std::all_of(memory.data() + bytes, memory.data() + 2 * bytes,
				   [this](auto byte) { return byte == value; });
	}
};

} // namespace

TEST_CASE("the messages of a stream ask for few acknowledgments, and the last one does later")
{
	const Growth again("retransmits"), asked("ack_requests"), silences("probes");

	/* The last message of some of these asks, because enough others did not. */
	for (std::uint64_t count = messages; count < messages + 8; count++) {
		Stream stream;
		const Growth sent("packets_sent");

		CAPTURE(count);
		for (std::uint64_t i = 0; i < count; i++)
			stream.write(0);
		CHECK(eventually([&] { return stream.arrived(); }));
		/* The rest are acknowledgments. */
		CHECK(sent.value() <= count + count / 2 + 2);
		stream.write(IBV_SEND_SIGNALED);
		CHECK(wait_completion(stream.pair.a.send_cq).status == IBV_WC_SUCCESS);
		CHECK(stream.arrived());
	}
	CHECK(asked.value() >= 1);
	CHECK(asked.value() <= 8);
	CHECK(again.value() == 0);
	CHECK(silences.value() == 0);
}

TEST_CASE("messages that are no stream ask for an acknowledgment each")
{
	Stream stream;
	const Growth sent("packets_sent"), asked("ack_requests");

	for (std::uint64_t i = 0; i < messages; i++) {
		stream.write(0);
		usleep(1000);
	}
	CHECK(eventually([&] { return sent.value() >= 2 * messages; }));
	CHECK(asked.value() == 0);
}
