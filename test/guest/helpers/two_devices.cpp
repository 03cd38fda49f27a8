// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Two devices of one kernel change from the wire to the direct path and back while requests wait.
 * direct/only_while_packets_pass runs this program, after it has made peal_a, peal_b and the wire
 * between them.
 *
 * Holds: No change loses a request, and none ends a connection that packets would keep. A message
 * that waits on the direct path when the proof ends goes on as packets, and arrives once. Most
 * messages take the fast path. Nothing that it remembers of the peer outlives the peer's device. On
 * an unreliable connection no message overtakes the packets of an earlier one.
 * Does not hold: the condition for the direct path (direct/only_while_packets_pass).
 */
#include "commands.hpp"
#include "counters.hpp"
#include "stuck_file.hpp"
#include "tracing.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <optional>
#include <thread>

using namespace peal_test;

namespace {

/* A proof that packets pass is renewed after a second and is valid for three. */
constexpr Duration renewed = 1100ms, lapsed = 4s;

struct Wire {
	Device a{"peal_a"}, b{"peal_b"};
};

void set_direct(bool on)
{
	for (const char *name : {"peal_a", "peal_b"})
		REQUIRE(run(std::string("build/user/userspace/tools/peal link set ") + name +
			    " direct " + (on ? "1" : "0")) == 0);
}

void cut(bool on)
{
	for (const char *end : {"a", "b"})
		REQUIRE(run(std::string("tc -n wire_") + end + " qdisc " + (on ? "add" : "delete") +
			    " dev wire_" + end + " root netem loss 100%") == 0);
}

void delay(bool on)
{
	for (const char *end : {"a", "b"})
		REQUIRE(run(std::string("tc -n wire_") + end + " qdisc " + (on ? "add" : "delete") +
			    " dev wire_" + end + " root netem delay 20ms") == 0);
}

/* The network drops the packets that prove that two devices are in one kernel, and no others. */
class NoChallenges {
public:
	NoChallenges()
	{
		for (const std::string end : {"a", "b"})
			REQUIRE(run(nft(end, "add table inet hide; add chain inet hide in "
					     "{ type filter hook input priority 0; }; add rule "
					     "inet hide in udp dport 4791 @th,64,8 0xc0 drop")) ==
				0);
	}
	~NoChallenges()
	{
		for (const std::string end : {"a", "b"})
			run(nft(end, "delete table inet hide"));
	}

private:
	static std::string nft(const std::string &end, const std::string &rules)
	{
		return "ip netns exec wire_" + end + " nft '" + rules + "'";
	}
};

std::uint64_t messages(const std::string &transport)
{
	return counter(transport + "_messages", "peal_a");
}

/* Two ends that are connected to each other. */
struct Ends {
	explicit Ends(Wire &wire, const Link &link = {})
		: a(wire.a, options()), b(wire.b, options()), from(a.pd, bytes), to(b.pd, bytes)
	{
		fill_pattern(from.bytes(0, bytes), 1);
		ready(a, b, link);
		ready(b, a, link);
	}
	static QpOptions options()
	{
		QpOptions it;
		it.send_wr = requests;
		return it;
	}
	static void ready(Endpoint &at, Endpoint &peer, const Link &link)
	{
		auto attr = rtr_attr(at.device, peer.qp->qp_num, peer.device.gid(), link);

		to_init(at.qp, link);
		must(ibv_modify_qp(at.qp, &attr, rtr_mask), "modify to RTR");
		to_rts(at.qp, link);
	}
	/* Posts all at once. Only the last one completes. */
	void write_all()
	{
		std::vector<Send> list;
		ibv_send_wr *bad = nullptr;

		for (std::size_t i = 0; i < requests; i++)
			list.push_back(Send(IBV_WR_RDMA_WRITE, {from.sge(i * size, size)})
					       .remote(to.address(i * size), to.rkey())
					       .flags(i + 1 == requests ? IBV_SEND_SIGNALED : 0));
		must(post_list(a.qp, list, &bad), "post_send");
		wait_success(a.send_cq);
		CHECK(difference(to.bytes(0, bytes), from.bytes(0, bytes)) == "");
	}
	/* Returns when messages use the direct path. */
	void go_near()
	{
		const auto before = messages("direct");

		REQUIRE(eventually([&] {
			post(a.qp, Send(IBV_WR_RDMA_WRITE, {from.sge(0, 8)})
					   .remote(to.address(), to.rkey()));
			wait_success(a.send_cq);
			return messages("direct") > before;
		}));
	}
	/* Sends a message that waits for its receive. */
	void send_early() { post(a.qp, Send(IBV_WR_SEND, {from.sge(0, 100)})); }
	void receive_it()
	{
		post_recv(b.qp, 1, {to.sge(0, 100)});
		wait_success(a.send_cq);
		wait_success(b.recv_cq);
	}
	bool quiet(Duration time)
	{
		return !eventually([&] { return !drain(a.send_cq, 1).empty(); }, time);
	}

	static constexpr std::size_t requests = 50, size = 4096, bytes = requests * size;
	Endpoint a, b;
	Region from, to;
};

Link impatient()
{
	Link link;
	link.timeout = slowness() > 2 ? 14 : 8;
	return link;
}

} // namespace

TEST_CASE("requests that wait for the change to direct")
{
	Wire wire;
	const auto packets = messages("wire"), direct = messages("direct");

	for (int round = 0; round < 5; round++) {
		Ends ends(wire);

		/* The first challenge met a peer that was not ready. */
		std::this_thread::sleep_for(renewed);
		ends.write_all();
	}
	CHECK(messages("wire") > packets);
	CHECK(messages("direct") > direct);
}

TEST_CASE("direct is switched off under a message that waits")
{
	Wire wire;
	Ends ends(wire, impatient());

	ends.go_near();
	ends.send_early();
	set_direct(false);
	CHECK(ends.quiet(lapsed));
	const auto packets = messages("wire");
	ends.receive_it();
	ends.write_all();
	CHECK(messages("wire") > packets);
	set_direct(true);
}

TEST_CASE("a message that waits while the send queue is drained")
{
	Wire wire;
	Ends ends(wire, impatient());

	ends.go_near();
	ends.send_early();
	to_state(ends.a.qp, IBV_QPS_SQD);
	CHECK(ends.quiet(lapsed));
	ends.receive_it();
}

TEST_CASE("a wire that is mended")
{
	Wire wire;
	Link patient;
	patient.timeout = 20; /* 4.3 s, longer than a proof is valid */
	Ends ends(wire, patient);

	ends.go_near();
	ends.send_early();
	cut(true);
	CHECK(ends.quiet(lapsed));
	post_recv(ends.b.qp, 1, {ends.to.sge(0, 100)});
	cut(false);
	wait_success(ends.a.send_cq);
	wait_success(ends.b.recv_cq);
}

TEST_CASE("a message that waits for its receive when the proof ends")
{
	Wire wire;
	Ends ends(wire, impatient());

	ends.go_near();
	const auto direct = messages("direct"), packets = messages("wire");
	const auto refused = counter("naks_received_rnr", "peal_a");
	ends.send_early();
	std::optional<NoChallenges> firewall(std::in_place);
	CHECK(eventually([&] { return counter("naks_received_rnr", "peal_a") > refused; }));
	CHECK(describe(drain(ends.a.send_cq)) == "0 completions");
	ends.receive_it();
	CHECK(difference(ends.to.bytes(0, 100), ends.from.bytes(0, 100)) == "");
	/* It came once, so the next one gets the next receive. */
	post_recv(ends.b.qp, 2, {ends.to.sge(4096, 100)});
	CHECK(describe(drain(ends.b.recv_cq)) == "0 completions");
	fill_pattern(ends.from.bytes(0, 100), 7);
	ends.send_early();
	wait_success(ends.a.send_cq);
	CHECK(wait_success(ends.b.recv_cq).front().wr_id == 2);
	CHECK(difference(ends.to.bytes(4096, 100), ends.from.bytes(0, 100)) == "");
	CHECK(messages("direct") == direct);
	CHECK(messages("wire") == packets + 2);
	firewall.reset();
	ends.go_near();
}

/* The peer has taken a receive for the message, and has got a part of it. */
TEST_CASE("a message that waits for a page when the proof ends")
{
	if (run("modprobe fuse"))
		SKIP_CASE("the kernel has no FUSE");
	constexpr std::uint32_t chunk = 128 << 10, before = chunk + (36 << 10),
				length = before + page_bytes;
	Wire wire;
	StuckFile file;
	Ends ends(wire, impatient());
	auto *const page = const_cast<std::uint8_t *>(file.map());
	const Mr mr(ibv_reg_mr(ends.a.pd, page, page_bytes, IBV_ACCESS_ON_DEMAND), "reg_mr");

	ends.go_near();
	const auto direct = messages("direct"), packets = messages("wire");
	const auto probes = counter("probes", "peal_a");
	post_recv(ends.b.qp, 1, {ends.to.sge(0, length)});
	post_recv(ends.b.qp, 2, {ends.to.sge(0, length)});
	std::memset(ends.to.data(), 0, length);
	post(ends.a.qp,
	     Send(IBV_WR_SEND, {ends.from.sge(0, before),
				{reinterpret_cast<std::uintptr_t>(page), page_bytes, mr->lkey}}));
	REQUIRE(eventually([&] { return file.reads() > 0; }));
	CHECK(eventually([&] {
		return difference(ends.to.bytes(0, chunk), ends.from.bytes(0, chunk)) == "";
	}));
	const NoChallenges firewall;
	CHECK(eventually([&] { return counter("probes", "peal_a") > probes; }));
	CHECK(describe(drain(ends.a.send_cq)) == "0 completions");
	file.release();
	wait_success(ends.a.send_cq);
	const auto wc = wait_success(ends.b.recv_cq).front();
	CHECK(wc.wr_id == 1);
	CHECK(wc.byte_len == length);
	CHECK(difference(ends.to.bytes(0, before), ends.from.bytes(0, before)) == "");
	CHECK(std::ranges::count(ends.to.bytes(before, page_bytes), file.content) == page_bytes);
	CHECK(messages("direct") == direct);
	CHECK(messages("wire") == packets + 1);
	/* It came once, so the next one gets the next receive. */
	ends.send_early();
	wait_success(ends.a.send_cq);
	CHECK(wait_success(ends.b.recv_cq).front().wr_id == 2);
}

TEST_CASE("a message that waits when the wire is cut")
{
	Wire wire;
	Ends ends(wire, impatient());

	ends.go_near();
	ends.send_early();
	cut(true);
	check_status(wait_completion(ends.a.send_cq), IBV_WC_RETRY_EXC_ERR,
		     PEAL_REASON_PEER_SILENT);
	cut(false);
}

TEST_CASE("most messages between two devices take the fast path")
{
	Wire wire;
	Ends ends(wire);
	Probe probe("peal_direct_transfer");

	if (!probe)
		SKIP_CASE("this kernel has no kprobes");
	ends.go_near();
	const EventCount general(probe.event());
	const auto direct = messages("direct");
	ends.write_all();
	CHECK(messages("direct") == direct + Ends::requests);
	CHECK(general.value() <= 2);
}

/* Two ends of an unreliable connection. */
struct UcEnds {
	explicit UcEnds(Wire &wire)
		: a(wire.a, options()), b(wire.b, options()), from(a.pd, count * size),
		  to(b.pd, count * size)
	{
		connect_uc(a, b);
		connect_uc(b, a);
	}
	static QpOptions options()
	{
		QpOptions it;
		it.type = IBV_QPT_UC;
		return it;
	}
	/* Sends messages first, first + 1, ... up to last. */
	void send(std::size_t first, std::size_t last)
	{
		for (auto i = first; i <= last; i++)
			post(a.qp, Send(IBV_WR_SEND_WITH_IMM, {from.sge(i * size, size)})
					   .imm(static_cast<std::uint32_t>(i)));
	}
	void post_receives()
	{
		fill_pattern(from.bytes(0, count * size), ++salt);
		for (std::size_t i = 0; i < count; i++)
			post_recv(b.qp, i, {to.sge(i * size, size)});
	}
	/* All messages have arrived, in their order. */
	void check_all()
	{
		std::vector<std::uint32_t> order;

		REQUIRE(eventually([&] {
			for (const auto &wc : drain(b.recv_cq, count))
				order.push_back(ntohl(wc.imm_data));
			return order.size() == count;
		}));
		CHECK(std::ranges::is_sorted(order));
		CHECK(difference(to.bytes(0, count * size), from.bytes(0, count * size)) == "");
		wait_success(a.send_cq, count);
	}

	static constexpr std::size_t count = 48, size = 512;
	Endpoint a, b;
	Region from, to;
	unsigned salt = 0;
};

/*
 * The first messages leave as packets, which are under way for longer than it takes to post the
 * next ones. So some of them are under way when the peer is proven to be in this kernel.
 */
TEST_CASE("messages of an unreliable connection do not overtake packets")
{
	Wire wire;

	int changed = 0;

	delay(true);
	/* On a busy machine the answer to a challenge may be late. Then all messages are packets.
	 */
	for (int round = 0; round < 12 && changed < 3; round++) {
		UcEnds ends(wire);
		const auto packets = messages("wire"), direct = messages("direct");

		INFO("round " << round);
		ends.post_receives();
		for (std::size_t i = 0; i < UcEnds::count; i++) {
			ends.send(i, i);
			std::this_thread::sleep_for(2ms);
		}
		ends.check_all();
		changed += messages("wire") > packets && messages("direct") > direct;
	}
	CHECK(changed > 0);
	delay(false);
}

/* No answer tells that the packets have arrived, so the messages after them are packets, too. */
TEST_CASE("messages of an unreliable connection whose change is not answered")
{
	Wire wire;
	UcEnds ends(wire);

	REQUIRE(eventually([&] {
		const auto before = messages("direct");

		ends.post_receives();
		ends.send(0, UcEnds::count - 1);
		ends.check_all();
		return messages("direct") == before + UcEnds::count;
	}));
	const auto packets = messages("wire");
	const NoChallenges firewall;
	ends.post_receives();
	set_direct(false);
	ends.send(0, 7);
	set_direct(true);
	ends.send(8, UcEnds::count - 1);
	ends.check_all();
	CHECK(messages("wire") == packets + UcEnds::count);
}

/* A region of the sender's own device has a key there, but not at the peer's device. */
TEST_CASE("a key of the sender's device is refused by the peer's")
{
	Wire wire;
	Ends ends(wire);
	std::vector<Region> others;

	ends.go_near();
	/* The keys of both devices may be equal by chance. */
	while (others.empty() || others.back().rkey() == ends.to.rkey())
		others.emplace_back(ends.a.pd, Ends::size);
	fill_pattern(others.back().bytes(0, Ends::size), 9);
	ends.write_all();
	post(ends.a.qp, Send(IBV_WR_RDMA_WRITE, {ends.from.sge(0, 64)})
				.remote(others.back().address(), others.back().rkey()));
	check_status(wait_completion(ends.a.send_cq), IBV_WC_REM_ACCESS_ERR,
		     PEAL_REASON_RKEY_UNKNOWN);
}

/*
 * The new device may be at the place in memory of the old one, with as many removals, and its
 * regions and queue pairs, too.
 */
TEST_CASE("the peer's device is deleted and comes back")
{
	constexpr int rounds = 6;
	Device a("peal_a");
	Endpoint sender(a, Ends::options());
	Region from(sender.pd, Ends::bytes);

	for (int round = 0; round < rounds; round++) {
		INFO("round " << round);
		Device b("peal_b");
		Endpoint receiver(b, Ends::options());
		Region to(receiver.pd, Ends::bytes);
		const auto before = messages("direct");
		const auto write = [&] {
			post(sender.qp, Send(IBV_WR_RDMA_WRITE, {from.sge(0, Ends::size)})
						.remote(to.address(), to.rkey()));
		};

		fill_pattern(from.bytes(0, Ends::size), round);
		Ends::ready(sender, receiver, impatient());
		Ends::ready(receiver, sender, impatient());
		REQUIRE(eventually([&] {
			write();
			wait_success(sender.send_cq);
			return messages("direct") > before + 5;
		}));
		CHECK(difference(to.bytes(0, Ends::size), from.bytes(0, Ends::size)) == "");
		REQUIRE(run("ip netns exec wire_b rdma link delete peal_b") == 0);
		write();
		check_status(wait_completion(sender.send_cq), IBV_WC_RETRY_EXC_ERR,
			     PEAL_REASON_PEER_SILENT);
		to_state(sender.qp, IBV_QPS_RESET);
		REQUIRE(run("ip netns exec wire_b rdma link add peal_b type peal netdev wire_b") ==
			0);
	}
}
