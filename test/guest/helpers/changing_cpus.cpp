// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A thread is moved to another CPU every half of a millisecond while it sends from peal_a to
 * peal_b. wire/cpus_change_no_order runs this program, after it has made the devices and the wire
 * between them.
 *
 * Holds: The packets of one connection hardly ever overtake each other, so the receiver hardly ever
 * misses one, and all bytes arrive. Does not hold: UC, whose packets wait for a while when its
 * thread changes its CPU (verbs/unreliable_connections).
 */
#include "counters.hpp"
#include "program.hpp"

#include <thread>

using namespace peal_test;

namespace {

constexpr std::size_t depth = 32, largest = 16384;
/* Where packets left from any CPU, six streams had 116 NAKs in one run and 511 in another. */
constexpr std::uint64_t most_naks = 8;

struct Stream {
	Device from{"peal_a"}, to{"peal_b"};
	Endpoint a{from}, b{to};
	Region source{a.pd, largest}, target{b.pd, largest};

	Stream()
	{
		connect(a, b);
		connect(b, a);
		fill_pattern(source.bytes(0, largest), 1);
	}
	static void connect(Endpoint &at, const Endpoint &peer)
	{
		auto attr = rtr_attr(at.device, peer.qp->qp_num, peer.device.gid());

		to_init(at.qp);
		must(ibv_modify_qp(at.qp, &attr, rtr_mask), "modify to RTR");
		to_rts(at.qp);
	}
	void run(std::size_t messages, std::size_t bytes)
	{
		const pid_t sender = gettid();
		std::size_t posted = 0;
		std::jthread mover([=](const std::stop_token &stop) {
			for (int cpu = 0; !stop.stop_requested(); cpu = !cpu) {
				pin(cpu, sender);
				std::this_thread::sleep_for(500us);
			}
		});

		for (std::size_t done = 0; done < messages;) {
			if (posted < messages && posted < done + depth) {
				post(a.qp, Send(IBV_WR_RDMA_WRITE, {source.sge(0, bytes)})
						   .remote(target.address(), target.rkey()));
				posted++;
			}
			for (const auto &wc : drain(a.send_cq)) {
				must_succeed(wc);
				done++;
			}
		}
		CHECK(difference(target.bytes(0, bytes), source.bytes(0, bytes)) == "");
	}
};

void check_order(std::size_t messages, std::size_t bytes)
{
	Stream stream;
	const auto before = counter("naks_sent_sequence", "peal_b");

	stream.run(messages, bytes);
	const auto naks = counter("naks_sent_sequence", "peal_b") - before;
	std::printf("%zu messages of %zu bytes: %llu NAKs\n", messages, bytes,
		    static_cast<unsigned long long>(naks));
	CHECK(naks <= most_naks);
}

} // namespace

TEST_CASE("messages of one packet")
{
	check_order(20000, 64);
}

TEST_CASE("messages of many packets")
{
	check_order(3000, largest);
}
