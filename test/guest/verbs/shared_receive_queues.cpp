// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 180
/*
 * Shared receive queues.
 *
 * Holds: Queue pairs of every type take their receives from one queue, in order, each once, into
 * the right bytes. A post wakes the senders that wait, each of them. The limit and the last receive
 * of a queue pair are told once. Receives whose completions are lost with a queue pair can be
 * posted again. Values out of range, queues in use and objects of another context are refused.
 * Does not hold: rings with nonsense (hostile/scribbled_rings), kernel users (verbs/kernel_user).
 */
#include "datagram.hpp"

#include <set>
#include <thread>

using namespace peal_test;

namespace {

constexpr std::size_t bytes = 512; /* of each receive buffer */
constexpr std::uint8_t rnr_655ms = 0;

/* A shared receive queue in a domain of its own, with one buffer for each receive. */
struct Shared {
	explicit Shared(Device &device, std::uint32_t depth = 64)
		: depth(depth), pd(ibv_alloc_pd(device), "alloc_pd"),
		  memory(pd, depth * bytes + page_bytes), srq(create_srq(pd, depth))
	{
	}
	/* Posts buffer `i`, in two parts. */
	int try_post(std::uint64_t i) const
	{
		const auto at = i % depth * bytes;

		return try_post_srq_recv(srq, i,
					 {memory.sge(at, 100), memory.sge(at + 100, bytes - 100)});
	}
	void post(std::uint64_t i) const { must(try_post(i), "post_srq_recv"); }
	void post(std::uint64_t first, std::uint64_t count) const
	{
		for (std::uint64_t i = 0; i < count; i++)
			post(first + i);
	}
	std::span<std::uint8_t> buffer(std::uint64_t i) const
	{
		return memory.bytes(i % depth * bytes, bytes);
	}
	ibv_srq_attr query() const
	{
		ibv_srq_attr attr{};

		must(ibv_query_srq(srq, &attr), "query_srq");
		return attr;
	}
	int resize(std::uint32_t max_wr) const
	{
		ibv_srq_attr attr{};

		attr.max_wr = max_wr;
		return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
	}
	int arm(std::uint32_t limit) const
	{
		ibv_srq_attr attr{};

		attr.srq_limit = limit;
		return ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT);
	}

	std::uint32_t depth;
	Pd pd;
	Region memory;
	Srq srq;
};

QpOptions sharing(ibv_srq *srq, ibv_qp_type type = IBV_QPT_RC)
{
	QpOptions options;

	options.srq = srq;
	options.type = type;
	return options;
}

/* The receive must hold what its tag says. */
void check_received(const Shared &shared, const ibv_wc &wc, std::size_t length = bytes)
{
	INFO(describe(wc));
	CHECK(wc.byte_len == length);
	CHECK(difference(shared.buffer(wc.wr_id).first(length), pattern_of(length, wc.imm_data)) ==
	      "");
}

/* A sender and a receiver that shares. */
struct Lane {
	Lane(Device &device, const Shared &shared, const Link &link = {})
		: shared(shared), a(device), b(device, sharing(shared.srq)),
		  from(a.pd, 16 * page_bytes)
	{
		connect(a, b, link);
	}
	/* Sends `length` bytes of a pattern that `tag` decides. The tag arrives as immediate data.
	 */
	void send(std::uint32_t tag, std::size_t length = bytes)
	{
		fill_pattern(from.bytes(0, length), tag);
		post(a.qp, Send(IBV_WR_SEND_WITH_IMM, {from.sge(0, length)}).imm(tag).id(tag));
	}
	/* What was sent arrives. Return: the completion of its receive. */
	ibv_wc arrived(std::size_t length = bytes) const
	{
		const auto wc = wait_success(b.recv_cq).front();

		check_received(shared, wc, length);
		wait_success(a.send_cq);
		return wc;
	}
	ibv_wc deliver(std::uint32_t tag, std::size_t length = bytes)
	{
		send(tag, length);
		return arrived(length);
	}
	const Shared &shared;
	Endpoint a, b;
	Region from;
};

std::vector<std::unique_ptr<Lane>> lanes(Device &device, const Shared &shared, unsigned count,
					 const Link &link = {})
{
	std::vector<std::unique_ptr<Lane>> all;

	for (unsigned i = 0; i < count; i++)
		all.push_back(std::make_unique<Lane>(device, shared, link));
	return all;
}

/* What a queue pair holds and what waits is drained by the events that must not come. */
std::size_t last_events(Device &device, const Endpoint &end)
{
	return device.count_events(IBV_EVENT_QP_LAST_WQE_REACHED, end.qp.get());
}

} // namespace

TEST_CASE("a shared receive queue says what it grants")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	const auto limits = device.attributes();

	CHECK(limits.max_srq > 0);
	CHECK(limits.max_srq_wr > 0);
	CHECK(limits.max_srq_sge > 0);
	for (const std::uint32_t wr : {1U, 100U, std::uint32_t(limits.max_srq_wr)})
		for (const std::uint32_t sge : {1U, std::uint32_t(limits.max_srq_sge)}) {
			INFO(wr << " receives of " << sge << " entries");
			ibv_srq_attr granted{wr, sge, 7}, queried{};
			const Srq srq(try_create_srq(pd, granted), "create_srq");

			CHECK(granted.max_wr >= wr);
			CHECK(granted.max_sge >= sge);
			must(ibv_query_srq(srq, &queried), "query_srq");
			CHECK(queried.max_wr == granted.max_wr);
			CHECK(queried.max_sge == granted.max_sge);
			CHECK(queried.srq_limit == 0); /* creation ignores it */
		}
}

TEST_CASE("attributes out of range are refused")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	const auto limits = device.attributes();
	const auto error = [&](std::uint32_t wr, std::uint32_t sge) {
		ibv_srq_attr attr{wr, sge, 0};

		errno = 0;
		if (ibv_srq *srq = try_create_srq(pd, attr)) {
			ibv_destroy_srq(srq);
			return std::string("accepted");
		}
		return errno_name(errno);
	};

	CHECK(error(0, 1) == "EINVAL");
	CHECK(error(std::uint32_t(limits.max_srq_wr) + 1, 1) == "EINVAL");
	CHECK(error(1, std::uint32_t(limits.max_srq_sge) + 1) == "EINVAL");
	CHECK(error(0xffffffff, 0xffffffff) == "EINVAL");

	const Shared shared(device, 16);
	CHECK(errno_name(shared.arm(17)) == "EINVAL");
	CHECK(errno_name(shared.arm(16)) == "0");
	ibv_srq_attr attr{};
	CHECK(errno_name(ibv_modify_srq(shared.srq, &attr, 1 << 2)) == "EINVAL");
	CHECK(shared.query().max_wr == 16);
}

TEST_CASE("a shared receive queue is resized, and refuses sizes that do not fit")
{
	Device device;
	const auto limits = device.attributes();
	const Shared shared(device, 16);

	CHECK(limits.device_cap_flags & IBV_DEVICE_SRQ_RESIZE);
	CHECK(errno_name(shared.resize(0)) == "EINVAL");
	CHECK(errno_name(shared.resize(std::uint32_t(limits.max_srq_wr) + 1)) == "EINVAL");
	shared.post(0, 16);
	CHECK(errno_name(shared.resize(8)) == "EINVAL");
	CHECK(shared.query().max_wr == 16);
	CHECK(errno_name(shared.resize(64)) == "0");
	CHECK(shared.query().max_wr == 64);
	shared.post(16, 48);
	CHECK(errno_name(shared.try_post(64)) == "ENOMEM");
	CHECK(errno_name(shared.arm(60)) == "0");
	CHECK(errno_name(shared.resize(std::uint32_t(limits.max_srq_wr))) == "0");
	CHECK(errno_name(shared.resize(64)) == "0");
	CHECK(errno_name(shared.resize(32)) == "EINVAL");
	CHECK(device.count_events(IBV_EVENT_SRQ_LIMIT_REACHED, shared.srq.get()) == 0);

	ibv_srq_attr both{};
	both.max_wr = 128;
	both.srq_limit = 100;
	CHECK(errno_name(ibv_modify_srq(shared.srq, &both, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) == "0");
	CHECK(device.count_events(IBV_EVENT_SRQ_LIMIT_REACHED, shared.srq.get()) == 1);
}

TEST_CASE("receives keep their order and buffers through every resize")
{
	constexpr std::uint32_t depth = 64;
	Device device;
	const Shared shared(device, depth);
	Lane lane(device, shared);
	std::uint64_t posted = 0, taken = 0;

	/* The number of receives that are posted, and the next size. */
	for (const auto &[fill, size] : {std::pair(5U, 8U),
					 {8U, 32U},
					 {30U, 64U},
					 {3U, 4U},
					 {4U, 16U},
					 {16U, 16U},
					 {1U, 1U},
					 {1U, 64U},
					 {60U, 64U}}) {
		INFO(fill << " receives, then " << size << " entries");
		while (posted - taken > fill || posted - taken == depth) {
			lane.deliver(std::uint32_t(taken));
			taken++;
		}
		while (posted - taken < fill)
			shared.post(posted++);
		REQUIRE(errno_name(shared.resize(size)) == "0");
		for (unsigned i = 0; i < 2 && taken < posted; i++, taken++)
			CHECK(lane.deliver(std::uint32_t(taken)).wr_id == taken);
		/* As many fit as the new size says. */
		while (posted - taken < size)
			shared.post(posted++);
		CHECK(errno_name(shared.try_post(posted)) == "ENOMEM");
		for (; taken < posted; taken++)
			CHECK(lane.deliver(std::uint32_t(taken)).wr_id == taken);
	}
}

TEST_CASE("completions that were not read when the queue shrank give their receives back")
{
	Device device;
	const Shared shared(device, 16);
	Lane lane(device, shared);

	shared.post(0, 16);
	for (std::uint32_t i = 0; i < 14; i++)
		lane.send(i, 8);
	wait_success(lane.a.send_cq, 14);
	CHECK(errno_name(shared.resize(8)) == "EINVAL"); /* 16 are in use */
	std::set<std::uint64_t> ids;
	for (const auto &wc : wait_success(lane.b.recv_cq, 10))
		ids.insert(wc.wr_id);
	REQUIRE(errno_name(shared.resize(8)) == "0"); /* two posted, four to read */
	for (const auto &wc : wait_success(lane.b.recv_cq, 4))
		ids.insert(wc.wr_id);
	CHECK(ids.size() == 14);
	shared.post(16, 6);
	CHECK(errno_name(shared.try_post(22)) == "ENOMEM");
	for (std::uint32_t i = 14; i < 22; i++) {
		CHECK(lane.deliver(i).wr_id == i);
	}
}

TEST_CASE("a resize while messages arrive loses no receive")
{
	constexpr std::uint32_t depth = 256, count = 4000;
	Device device;
	const Shared shared(device, depth);
	const auto all = lanes(device, shared, 2);
	std::atomic<bool> done = false;
	std::thread resizer([&] {
		constexpr std::array<std::uint32_t, 6> sizes = {128, 256, 32, 64, 1024, 16};

		/* A smaller size may not fit. */
		for (std::size_t i = 0; !done; i++) {
			const int error = shared.resize(sizes[i % sizes.size()]);

			if (error && error != EINVAL)
				must(error, "resize");
			std::this_thread::yield();
		}
	});
	std::vector<unsigned> seen(depth);
	std::uint32_t sent = 0, received = 0, posted = 0;

	while (received < count) {
		/* At most as many as the smallest size has, and each buffer once at a time. */
		while (posted < count && posted - received < 12 && !shared.try_post(posted % depth))
			posted++;
		for (; sent < posted && sent - received < 12; sent++)
			all[sent % 2]->send(sent, 32 + sent % 100);
		for (auto &lane : all) {
			for (const auto &wc : drain(lane->b.recv_cq)) {
				REQUIRE(describe(wc).find("success") != std::string::npos);
				seen[wc.wr_id]++;
				CHECK(wc.byte_len == 32 + wc.imm_data % 100);
				received++;
			}
			drain(lane->a.send_cq);
		}
	}
	done = true;
	resizer.join();
	for (std::uint32_t i = 0; i < depth; i++)
		CHECK(seen[i] == count / depth + (i < count % depth));
}

TEST_CASE("receives beyond the granted number or entries are refused")
{
	Device device;
	const Shared shared(device, 8);
	const auto sge = shared.memory.sge(0, 8);

	CHECK(errno_name(try_post_srq_recv(shared.srq, 0, {sge, sge, sge})) == "EINVAL");
	shared.post(0, 8);
	CHECK(errno_name(shared.try_post(8)) == "ENOMEM");
}

TEST_CASE("a queue pair that shares has no receive queue of its own")
{
	Device device;
	const Shared shared(device);
	Lane lane(device, shared);
	ibv_qp_attr attr{};
	ibv_qp_init_attr init{};

	must(ibv_query_qp(lane.b.qp, &attr, IBV_QP_CAP, &init), "query_qp");
	CHECK(init.srq == shared.srq.get());
	CHECK(attr.cap.max_recv_wr == 0);
	CHECK(errno_name(try_post_recv(lane.b.qp, 1, {shared.memory.sge(0, 8)})) == "EINVAL");
	CHECK(errno_name(try_post_recv(lane.b.qp, 1, {})) == "EINVAL");
	must(ibv_query_qp(lane.a.qp, &attr, IBV_QP_CAP, &init), "query_qp");
	CHECK(init.srq == nullptr);

	/* What it asks for its own is ignored. */
	init = {};
	init.send_cq = lane.b.send_cq;
	init.recv_cq = lane.b.recv_cq;
	init.srq = shared.srq;
	init.qp_type = IBV_QPT_RC;
	init.cap.max_recv_wr = ~0U;
	init.cap.max_recv_sge = ~0U;
	const Qp greedy(ibv_create_qp(lane.b.pd, &init), "create_qp");
}

TEST_CASE("several queue pairs take each receive once, into the right bytes")
{
	Device device;
	const Shared shared(device, 32);
	const auto all = lanes(device, shared, 4);
	std::set<std::uint64_t> outstanding;

	shared.post(0, 32);
	for (std::uint64_t i = 0; i < 32; i++)
		outstanding.insert(i);
	for (std::uint32_t round = 0; round < 40; round++) {
		for (std::uint32_t i = 0; i < all.size(); i++)
			all[i]->send(round * 100 + i, 1 + (round * 37 + i * 111) % bytes);
		for (std::uint32_t i = 0; i < all.size(); i++) {
			const auto wc = all[i]->arrived(1 + (round * 37 + i * 111) % bytes);

			CHECK(outstanding.erase(wc.wr_id) == 1);
			CHECK(wc.imm_data == round * 100 + i);
			CHECK(wc.qp_num == all[i]->b.qp->qp_num);
			shared.post(wc.wr_id + 32); /* into the same buffer */
			outstanding.insert(wc.wr_id + 32);
		}
	}
}

TEST_CASE("receives are taken in the order in which they were posted")
{
	Device device;
	const Shared shared(device, 16);
	const auto all = lanes(device, shared, 3);

	for (std::uint64_t i = 0; i < 200; i++) {
		shared.post(3 * i);
		shared.post(3 * i + 1);
		shared.post(3 * i + 2);
		for (std::uint32_t k = 0; k < 3; k++) {
			auto &lane = *all[(i + k) % 3];

			lane.send(k, 8);
			wait_success(lane.a.send_cq);
			CHECK(wait_success(lane.b.recv_cq).front().wr_id == 3 * i + k);
		}
	}
}

TEST_CASE("a WRITE with immediate data takes a shared receive")
{
	Device device;
	const Shared shared(device);
	Lane lane(device, shared);
	const Region to(lane.b.pd, page_bytes);

	shared.post(5);
	fill_pattern(lane.from.bytes(0, 1000), 1);
	post(lane.a.qp, Send(IBV_WR_RDMA_WRITE_WITH_IMM, {lane.from.sge(0, 1000)})
				.remote(to.address(), to.rkey())
				.imm(77));
	wait_success(lane.a.send_cq);
	const auto wc = wait_success(lane.b.recv_cq).front();
	CHECK(wc.wr_id == 5);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(wc.imm_data == 77);
	CHECK(difference(to.bytes(0, 1000), pattern_of(1000, 1)) == "");
}

TEST_CASE("an extended completion queue returns shared receives")
{
	Device device;
	const Shared shared(device);
	Endpoint a(device);
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	ibv_cq_ex *extended = create_cq_ex(device);
	Cq cq(ibv_cq_ex_to_cq(extended), "create_cq_ex");
	Region from(a.pd, page_bytes);

	{
		Qp qp = create_qp(pd, cq, cq, sharing(shared.srq));
		connect(device, a.qp, qp);
		shared.post(3);
		shared.post(4);
		for (std::uint64_t i = 3; i < 5; i++) {
			ibv_poll_cq_attr attr{};

			fill_pattern(from.bytes(0, 64), i);
			post(a.qp, Send(IBV_WR_SEND, {from.sge(0, 64)}));
			REQUIRE(eventually([&] { return !ibv_start_poll(extended, &attr); }));
			CHECK(extended->wr_id == i);
			CHECK(extended->status == IBV_WC_SUCCESS);
			CHECK(ibv_wc_read_byte_len(extended) == 64);
			ibv_end_poll(extended);
			CHECK(difference(shared.buffer(i).first(64),
					 pattern_of(64, std::uint32_t(i))) == "");
		}
	}
}

TEST_CASE("one post wakes the sender that waits")
{
	Device device;
	const Shared shared(device);
	Link link;
	link.rnr_retry = 1;
	link.min_rnr_timer = rnr_655ms;
	Lane lane(device, shared, link);
	std::vector<double> times;

	for (std::uint32_t round = 0; round < 5; round++) {
		lane.send(round);
		CHECK(describe(drain(lane.a.send_cq)) == "0 completions");
		const Stopwatch watch;
		shared.post(round);
		lane.arrived();
		times.push_back(milliseconds(watch.elapsed()));
	}
	if (!on_wire()) /* on the wire the timer that the NAK named runs out */
		CHECK(*std::min_element(times.begin(), times.end()) < 100);
}

TEST_CASE("posts wake every sender that waits, the longest wait first")
{
	if (on_wire())
		SKIP_CASE("the senders' RNR timers run out in any order");
	constexpr unsigned count = 12;
	Device device;
	const Shared shared(device);
	Link link;
	link.min_rnr_timer = rnr_655ms;
	const auto all = lanes(device, shared, count, link);
	std::vector<double> times;

	for (std::uint32_t round = 0; round < 3; round++) {
		for (std::uint32_t i = 0; i < count; i++)
			all[i]->send(round * count + i);
		const Stopwatch watch;
		if (round == 1)
			shared.post(round * count, count);
		for (std::uint32_t i = 0; i < count; i++) {
			if (round != 1)
				shared.post(round * count + i);
			const auto wc = all[i]->arrived();

			CHECK(wc.wr_id == round * count + i);
			CHECK(wc.imm_data == round * count + i);
		}
		times.push_back(milliseconds(watch.elapsed()));
	}
	CHECK(*std::min_element(times.begin(), times.end()) < 500);
}

TEST_CASE("one list of receives wakes every sender that waits")
{
	constexpr unsigned count = 8;
	Device device;
	const Shared shared(device, count);
	Link link;
	link.min_rnr_timer = rnr_655ms;
	const auto all = lanes(device, shared, count, link);
	std::array<ibv_recv_wr, count> list{};
	std::array<ibv_sge, count> sges{};
	std::vector<double> times;

	for (std::uint32_t round = 0; round < 3; round++) {
		for (std::uint32_t i = 0; i < count; i++) {
			all[i]->send(i);
			sges[i] = shared.memory.sge(i * bytes, bytes);
			list[i] = {i, i + 1 < count ? &list[i + 1] : nullptr, &sges[i], 1};
		}
		ibv_recv_wr *bad = nullptr;
		const Stopwatch watch;
		must(ibv_post_srq_recv(shared.srq, list.data(), &bad), "post_srq_recv");
		for (auto &lane : all) {
			lane->arrived();
		}
		times.push_back(milliseconds(watch.elapsed()));
	}
	if (!on_wire())
		CHECK(*std::min_element(times.begin(), times.end()) < 500);
}

TEST_CASE("a sender that waits goes on although other waiters are gone")
{
	Device device;
	const Shared shared(device);
	Link link;
	link.min_rnr_timer = rnr_655ms;
	auto all = lanes(device, shared, 4, link);
	std::vector<double> times;

	for (std::uint32_t i = 0; i < 4; i++)
		all[i]->send(i);
	to_state(all[0]->b.qp, IBV_QPS_ERR); /* this receiver fails, */
	to_state(all[1]->a.qp, IBV_QPS_ERR); /* this sender fails, */
	all[2].reset();			     /* and these are destroyed */
	const Stopwatch watch;
	shared.post(0);
	all[3]->arrived();
	if (!on_wire())
		CHECK(milliseconds(watch.elapsed()) < 600);
}

TEST_CASE("RNR retries of a shared receive queue run out")
{
	Device device;
	const Shared shared(device);
	Link link;
	link.rnr_retry = 2;
	Lane lane(device, shared, link);

	lane.send(1);
	check_status(wait_completion(lane.a.send_cq), IBV_WC_RNR_RETRY_EXC_ERR,
		     PEAL_REASON_RNR_EXHAUSTED);
	CHECK(state_name(query_state(lane.b.qp)) == "RTS");
}

TEST_CASE("the limit is told once, and again when it is armed again")
{
	Device device;
	const Shared shared(device);
	Lane lane(device, shared);
	const auto take = [&](unsigned count) {
		for (unsigned i = 0; i < count; i++) {
			lane.send(i, 8);
			wait_success(lane.a.send_cq);
			wait_success(lane.b.recv_cq);
		}
	};
	const auto reached = [&] {
		return device.count_events(IBV_EVENT_SRQ_LIMIT_REACHED, shared.srq.get());
	};

	shared.post(0, 8);
	must(shared.arm(4), "modify_srq");
	CHECK(shared.query().srq_limit == 4);
	take(4);
	CHECK(reached() == 0); /* four are left */
	take(1);
	CHECK(device.wait_event(IBV_EVENT_SRQ_LIMIT_REACHED, shared.srq.get()));
	CHECK(shared.query().srq_limit == 0);
	take(2);
	CHECK(reached() == 1);
	shared.post(8, 4);
	must(shared.arm(3), "modify_srq");
	take(3);
	CHECK(device.wait_event(IBV_EVENT_SRQ_LIMIT_REACHED, shared.srq.get()));
	CHECK(reached() == 2);
	/* Two are left, so this limit is reached already. Being disarmed, the other is not. */
	must(shared.arm(2), "modify_srq");
	must(shared.arm(0), "modify_srq");
	take(1);
	CHECK(reached() == 2);
	must(shared.arm(2), "modify_srq");
	CHECK(reached() == 3);
	CHECK(shared.query().srq_limit == 0);
}

TEST_CASE("a queue pair in error tells once that it holds no receive")
{
	Device device;
	const Shared shared(device);
	const auto all = lanes(device, shared, 2);

	shared.post(0, 4);
	to_state(all[0]->b.qp, IBV_QPS_ERR);
	CHECK(device.wait_event(IBV_EVENT_QP_LAST_WQE_REACHED, all[0]->b.qp.get()));
	to_state(all[0]->b.qp, IBV_QPS_ERR);
	to_state(all[0]->a.qp, IBV_QPS_ERR); /* it does not share */
	/* The receives are the other queue pair's. */
	CHECK(describe(drain(all[0]->b.recv_cq)) == "0 completions");
	all[1]->deliver(9);
	CHECK(last_events(device, all[0]->b) == 1);
	CHECK(last_events(device, all[0]->a) == 0);
	CHECK(last_events(device, all[1]->b) == 0);
	/* After a RESET it can be told again. */
	to_state(all[0]->a.qp, IBV_QPS_RESET);
	to_state(all[0]->b.qp, IBV_QPS_RESET);
	connect(all[0]->a, all[0]->b);
	all[0]->deliver(3);
	to_state(all[0]->b.qp, IBV_QPS_ERR);
	CHECK(eventually([&] { return last_events(device, all[0]->b) == 2; }));
}

TEST_CASE("a failed receive ends its queue pair, and the others go on")
{
	Device device;
	const Shared shared(device);
	const auto all = lanes(device, shared, 3);

	/* A key of the queue pair's domain is not one of the shared receive queue's. */
	const Region other(all[1]->b.pd, page_bytes);
	post_srq_recv(shared.srq, 0, {shared.memory.sge(0, 8)});
	post_srq_recv(shared.srq, 1, {other.sge(0, bytes)});
	shared.post(2);
	all[0]->send(0);
	check_status(wait_completion(all[0]->b.recv_cq), IBV_WC_LOC_LEN_ERR,
		     PEAL_REASON_RECV_TOO_SHORT);
	check_status(wait_completion(all[0]->a.send_cq), IBV_WC_REM_INV_REQ_ERR,
		     PEAL_REASON_RECV_TOO_SHORT);
	CHECK(device.wait_event(IBV_EVENT_QP_LAST_WQE_REACHED, all[0]->b.qp.get()));
	all[1]->send(1);
	const auto wc = wait_completion(all[1]->b.recv_cq);
	CHECK(wc.wr_id == 1);
	check_status(wc, IBV_WC_LOC_PROT_ERR, PEAL_REASON_RECV_LKEY_PD);
	wait_completion(all[1]->a.send_cq);
	CHECK(device.wait_event(IBV_EVENT_QP_LAST_WQE_REACHED, all[1]->b.qp.get()));
	all[2]->deliver(2);
}

TEST_CASE("a shared receive queue in use is not destroyed")
{
	Device device;
	Shared shared(device);
	auto lane = std::make_unique<Lane>(device, shared);

	shared.post(0);
	CHECK(errno_name(ibv_destroy_srq(shared.srq)) == "EBUSY");
	CHECK(errno_name(ibv_dealloc_pd(shared.pd)) == "EBUSY");
	lane->deliver(1);
	lane.reset();
	CHECK(errno_name(ibv_destroy_srq(shared.srq.release())) == "0");
}

TEST_CASE("a shared receive queue of another context is refused")
{
	Device device, other;
	const Shared theirs(other);
	Endpoint end(device);
	auto init = init_attributes(end.pd, end.send_cq, end.recv_cq, sharing(theirs.srq));

	errno = 0;
	CHECK(ibv_create_qp_ex(device, &init) == nullptr);
	CHECK(errno_name(errno) == "EINVAL");
}

TEST_CASE("senders that wait get receives in the order in which they came, and lose no retry")
{
	if (on_wire())
		SKIP_CASE("on the wire only the timer ends the wait");
	Device device;
	const Shared shared(device);
	Link patient, hasty;
	patient.min_rnr_timer = hasty.min_rnr_timer = 31; /* 491 ms */
	hasty.rnr_retry = 2;
	const auto before_it = lanes(device, shared, 4, patient);
	Lane last(device, shared, hasty);
	std::uint32_t tag = 0;

	/* They wait in this order. */
	for (const auto &lane : before_it)
		lane->send(++tag);
	last.send(++tag);
	for (std::uint64_t i = 0; i < before_it.size(); i++) {
		shared.post(i);
		wait_success(before_it[i]->a.send_cq);
		CHECK(describe(drain(last.a.send_cq)) == "0 completions");
	}
	shared.post(before_it.size());
	wait_success(last.a.send_cq);
}

TEST_CASE("receives of a destroyed queue pair can be posted again")
{
	constexpr std::uint32_t depth = 4;
	Device device;
	const Shared shared(device, depth);
	Endpoint sender(device);
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq = create_cq(device, 64);
	Region from(sender.pd, page_bytes);
	Lane other(device, shared);
	const bool by_reset = GENERATE(false, true);

	INFO("by " << (by_reset ? "a reset" : "destruction"));
	for (std::uint64_t round = 0; round < 20; round++) {
		Qp qp = create_qp(pd, cq, cq, sharing(shared.srq));

		connect(device, sender.qp, qp);
		shared.post(depth * round, depth);
		for (std::uint32_t i = 0; i < depth; i++)
			post(sender.qp, Send(IBV_WR_SEND, {from.sge(0, 8)}));
		wait_success(sender.send_cq, depth);
		REQUIRE(shared.try_post(99) == ENOMEM);
		if (by_reset)
			to_state(qp, IBV_QPS_RESET);
		else
			qp.reset();
		CHECK(describe(drain(cq)) == "0 completions");
		to_state(sender.qp, IBV_QPS_RESET);
	}
	shared.post(0, depth);
	REQUIRE(shared.try_post(99) == ENOMEM);
	for (std::uint32_t i = 0; i < depth; i++) {
		other.deliver(i);
	}
}

namespace {

/*
 * Queue pairs whose receives complete in one queue with room for four, which each of them may
 * overflow. The queue pair whose completion is lost ends.
 */
struct Overflow {
	Overflow(Device &device, const Shared &shared)
		: device(device), shared(shared), pd(ibv_alloc_pd(device), "alloc_pd"),
		  send_cq(create_cq(device, 64)), cq(create_cq(device, 4))
	{
	}
	std::uint32_t room() const { return static_cast<std::uint32_t>(cq->cqe); }
	/* Sends one message to each of `count` new queue pairs. */
	void send(std::uint32_t count)
	{
		for (std::uint32_t i = 0; i < count; i++) {
			Endpoint &sender =
				*senders.emplace_back(std::make_unique<Endpoint>(device));
			Qp &receiver = receivers.emplace_back(
				create_qp(pd, send_cq, cq, sharing(shared.srq)));

			connect(device, sender.qp, receiver);
			post(sender.qp, Send(IBV_WR_SEND));
			wait_completion(sender.send_cq);
			if (++sent > room())
				CHECK(eventually(
					[&] { return query_state(receiver) == IBV_QPS_ERR; }));
		}
	}
	/* Posts again what completed, when the completions that were lost were the only others. */
	void post_completed()
	{
		CHECK(shared.try_post(99) == ENOMEM);
		for (const auto &wc : wait_success(cq, room()))
			shared.post(wc.wr_id);
		CHECK(shared.try_post(99) == ENOMEM);
	}
	Device &device;
	const Shared &shared;
	Pd pd;
	Cq send_cq, cq;
	std::vector<std::unique_ptr<Endpoint>> senders;
	std::vector<Qp> receivers;
	std::uint32_t sent = 0;
};

/* Every receive of a full queue completes once. The wr_ids are those from 0 on. */
void check_all_come(Lane &lane, const Shared &shared, std::uint32_t depth)
{
	std::set<std::uint64_t> seen;

	for (std::uint32_t i = 0; i < depth; i++) {
		seen.insert(lane.deliver(i).wr_id);
	}
	CHECK(seen.size() == depth);
	CHECK(*seen.rbegin() == depth - 1);
	shared.post(0, depth);
	CHECK(shared.try_post(99) == ENOMEM);
}

} // namespace

TEST_CASE("receives whose completions an overflow lost stay posted")
{
	constexpr std::uint32_t depth = 16;
	Device device;
	const Shared shared(device, depth);
	Overflow overflow(device, shared);
	Lane other(device, shared);

	REQUIRE(overflow.room() < depth);
	shared.post(0, depth);
	overflow.send(depth);
	overflow.post_completed();
	overflow.receivers.clear();
	check_all_come(other, shared, depth);
}

TEST_CASE("a receive that a queue pair keeps stays posted if its completion finds no room")
{
	constexpr std::uint32_t depth = 8;
	Device device;

	for (const std::string way : {"error", "reset", "destruction"}) {
		INFO(way);
		const Shared shared(device, depth);
		Overflow overflow(device, shared);
		UdEnd a(device);
		Qp kept = create_qp(overflow.pd, overflow.send_cq, overflow.cq,
				    sharing(shared.srq, IBV_QPT_UD));
		UdEnd after(device, common_qkey, sharing(shared.srq));
		Lane other(device, shared);

		ud_ready(kept, common_qkey);
		shared.post(0, depth);
		post(a.qp, Datagram(a.to_self, kept->qp_num, {a.memory.sge(0, 1000)}));
		post(a.qp, Datagram(a.to_self, after.qp->qp_num, {a.memory.sge(0, 100)}));
		wait_success(a.send_cq, 2);
		CHECK(wait_success(after.recv_cq).front().wr_id == 1);
		shared.post(1);
		overflow.send(overflow.room() + 1);
		if (way == "error") {
			to_state(kept, IBV_QPS_ERR);
			CHECK(device.wait_event(IBV_EVENT_QP_LAST_WQE_REACHED, kept.get()));
		} else if (way == "reset") {
			to_state(kept, IBV_QPS_RESET);
		} else {
			kept.reset();
		}
		overflow.post_completed();
		check_all_come(other, shared, depth);
	}
}

TEST_CASE("a resize while completions are lost loses no receive")
{
	constexpr std::uint32_t depth = 16;
	Device device;
	const Shared shared(device, depth);
	Lane other(device, shared);
	std::jthread resizer([&](const std::stop_token &stop) {
		/* The smaller size may not fit. */
		for (unsigned i = 0; !stop.stop_requested(); i++) {
			const int error = shared.resize(i % 2 ? depth : 2 * depth);

			if (error && error != EINVAL)
				must(error, "resize");
			std::this_thread::yield();
		}
	});

	shared.post(0, depth);
	for (int round = 0; round < 8; round++) {
		Overflow overflow(device, shared);

		overflow.send(8);
		for (const auto &wc : wait_success(overflow.cq, overflow.room()))
			shared.post(wc.wr_id);
	}
	resizer.request_stop();
	resizer.join();
	must(shared.resize(depth), "resize");
	CHECK(shared.try_post(99) == ENOMEM);
	check_all_come(other, shared, depth);
}

/* The poller holds the lock of the queue when the queue pair goes and another gets its index. */
TEST_CASE("a receive comes back although another queue pair has taken the place of its own")
{
	constexpr std::uint32_t depth = 2;
	Device device;
	const Shared shared(device, depth);
	Endpoint sender(device), other_sender(device);
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	ibv_cq_ex *extended = create_cq_ex(device);
	Cq cq(ibv_cq_ex_to_cq(extended), "create_cq_ex"), other_cq = create_cq(device, 64);
	Region from(sender.pd, page_bytes), other_from(other_sender.pd, page_bytes);
	Qp stays = create_qp(pd, cq, cq, sharing(shared.srq));
	Qp gone = create_qp(pd, cq, cq, sharing(shared.srq));
	ibv_poll_cq_attr poll{};

	connect(device, other_sender.qp, stays);
	connect(device, sender.qp, gone);
	shared.post(0, depth);
	post(other_sender.qp, Send(IBV_WR_SEND, {other_from.sge(0, 8)}));
	wait_success(other_sender.send_cq);
	post(sender.qp, Send(IBV_WR_SEND, {from.sge(0, 8)}));
	wait_success(sender.send_cq);
	REQUIRE(eventually([&] { return !ibv_start_poll(extended, &poll); }));
	CHECK(extended->wr_id == 0);
	/* The call is refused while the other thread's query is in the kernel. */
	ibv_qp *const going = gone.release();
	bool destroyed = false;
	std::thread destroyer(
		[&] { destroyed = eventually([&] { return ibv_destroy_qp(going) != EBUSY; }); });
	ibv_qp_attr attr{};
	ibv_qp_init_attr init{};
	CHECK(eventually([&] { return ibv_query_qp(going, &attr, IBV_QP_STATE, &init) != 0; }));
	Qp successor = create_qp(pd, other_cq, other_cq);
	if (!ibv_next_poll(extended))
		CHECK(extended->wr_id == 1);
	ibv_end_poll(extended);
	destroyer.join();
	CHECK(destroyed);
	CHECK(shared.try_post(0) == 0);
	CHECK(shared.try_post(1) == 0);
	CHECK(shared.try_post(99) == ENOMEM);
}

TEST_CASE("a queue pair that goes leaves the completions of others alone")
{
	constexpr std::uint32_t depth = 8;
	Device device;
	const Shared shared(device, depth);
	Endpoint sender(device), other_sender(device);
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq = create_cq(device, 64);
	Region from(sender.pd, page_bytes), other_from(other_sender.pd, page_bytes);
	Qp gone = create_qp(pd, cq, cq, sharing(shared.srq));
	Qp stays = create_qp(pd, cq, cq, sharing(shared.srq));

	connect(device, sender.qp, gone);
	connect(device, other_sender.qp, stays);
	shared.post(0, depth);
	for (std::uint32_t i = 0; i < depth; i += 2) {
		post(sender.qp, Send(IBV_WR_SEND, {from.sge(0, 8)}));
		wait_success(sender.send_cq);
		fill_pattern(other_from.bytes(0, 64), i + 1);
		post(other_sender.qp,
		     Send(IBV_WR_SEND_WITH_IMM, {other_from.sge(0, 64)}).imm(i + 1));
		wait_success(other_sender.send_cq);
	}
	gone.reset();
	const auto left = wait_success(cq, depth / 2);
	for (std::uint32_t i = 0; i < depth / 2; i++) {
		CHECK(left[i].wr_id == 2 * i + 1);
		CHECK(left[i].qp_num == stays->qp_num);
		check_received(shared, left[i], 64);
	}
	shared.post(0, depth);
	CHECK(shared.try_post(99) == ENOMEM);
}

TEST_CASE("a single-threaded queue pair may go between start_poll and end_poll")
{
	constexpr std::uint32_t depth = 4;
	Device device;
	ibv_td_init_attr td_attr{};
	ibv_td *td = ibv_alloc_td(device, &td_attr);
	REQUIRE(td);
	Pd base(ibv_alloc_pd(device), "alloc_pd");
	ibv_parent_domain_init_attr parent_attr{};
	parent_attr.pd = base;
	parent_attr.td = td;
	{
		Pd pd(ibv_alloc_parent_domain(device, &parent_attr), "alloc_parent_domain");
		const Shared shared(device, depth);
		Endpoint sender(device);
		Region from(sender.pd, page_bytes);
		ibv_cq_init_attr_ex attr{};
		attr.cqe = 64;
		attr.wc_flags = IBV_WC_STANDARD_FLAGS;
		attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
		attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
		ibv_cq_ex *extended = ibv_create_cq_ex(device, &attr);
		REQUIRE(extended);
		Cq cq(ibv_cq_ex_to_cq(extended), "create_cq_ex");
		Qp qp = create_qp(pd, cq, cq, sharing(shared.srq));
		ibv_poll_cq_attr poll{};

		connect(device, sender.qp, qp);
		shared.post(0, depth);
		for (std::uint32_t i = 0; i < depth; i++)
			post(sender.qp, Send(IBV_WR_SEND, {from.sge(0, 8)}));
		wait_success(sender.send_cq, depth);
		REQUIRE(eventually([&] { return !ibv_start_poll(extended, &poll); }));
		CHECK(extended->wr_id == 0);
		qp.reset();
		shared.post(0, depth);
		CHECK(shared.try_post(99) == ENOMEM);
		CHECK(ibv_next_poll(extended) == ENOENT);
		ibv_end_poll(extended);
		CHECK(shared.try_post(99) == ENOMEM);
	}
	CHECK(ibv_dealloc_td(td) == 0);
}

TEST_CASE("threads post and poll one shared receive queue")
{
	constexpr unsigned threads = 3;
	constexpr std::uint32_t messages = 300;
	Device device;
	const Shared shared(device, 8);
	Link link;
	const auto all = lanes(device, shared, threads, link);
	std::array<std::string, threads> wrong;
	std::vector<std::jthread> crew;

	for (unsigned t = 0; t < threads; t++)
		crew.emplace_back([&, t] {
			auto &lane = *all[t];
			std::uint32_t received = 0, sent = 0;
			bool sending = false;
			const auto deadline = Clock::now() + 3 * patience;

			while (received < messages && wrong[t].empty()) {
				ibv_wc wc{};

				if (Clock::now() > deadline)
					wrong[t] = "late";
				/* A full queue is no error, because the others fill it, too. */
				const int error = shared.try_post(t);
				if (error && error != ENOMEM)
					wrong[t] = errno_name(error);
				if (!sending && sent < messages) {
					lane.send(sent++, 16);
					sending = true;
				}
				if (ibv_poll_cq(lane.a.send_cq, 1, &wc) == 1) {
					sending = false;
					if (wc.status)
						wrong[t] = describe(wc);
				}
				if (ibv_poll_cq(lane.b.recv_cq, 1, &wc) == 1) {
					if (wc.status || wc.imm_data != received)
						wrong[t] = describe(wc);
					received++;
				}
			}
		});
	crew.clear();
	for (const auto &what : wrong)
		CHECK(what == "");
}

TEST_CASE("datagrams take shared receives")
{
	Device device;
	const Shared shared(device);
	UdEnd a(device), b(device, common_qkey, sharing(shared.srq)),
		c(device, common_qkey, sharing(shared.srq));

	for (std::uint32_t i = 0; i < 20; i++) {
		auto &to = i & 1 ? c : b;

		shared.post(i);
		fill_pattern(a.memory.bytes(0, 200), i);
		post(a.qp, Datagram(a.to_self, to.qp->qp_num, {a.memory.sge(0, 200)}));
		wait_success(a.send_cq);
		const auto wc = wait_success(to.recv_cq).front();
		CHECK(wc.wr_id == i);
		CHECK(wc.byte_len == grh_bytes + 200);
		CHECK(wc.src_qp == a.qp->qp_num);
		CHECK(difference(shared.buffer(i).subspan(grh_bytes, 200), pattern_of(200, i)) ==
		      "");
	}
	/* Without a receive a datagram is lost, and nobody waits. */
	post(a.qp, Datagram(a.to_self, b.qp->qp_num, {a.memory.sge(0, 200)}));
	wait_success(a.send_cq);
	shared.post(50);
	post(a.qp, Datagram(a.to_self, c.qp->qp_num, {a.memory.sge(0, 100)}));
	CHECK(wait_success(c.recv_cq).front().byte_len == grh_bytes + 100);
	CHECK(describe(drain(b.recv_cq)) == "0 completions");
	to_state(b.qp, IBV_QPS_ERR);
	CHECK(device.wait_event(IBV_EVENT_QP_LAST_WQE_REACHED, b.qp.get()));
}

/*
 * A datagram that is too long for its receive is dropped, and the queue pair keeps the receive for
 * the next one.
 */
TEST_CASE("a receive that a queue pair keeps comes back when the queue pair goes")
{
	Device device;

	for (const std::string way : {"error", "reset", "destruction"}) {
		INFO(way);
		const Shared shared(device, 2);
		UdEnd a(device), b(device, common_qkey, sharing(shared.srq)),
			c(device, common_qkey, sharing(shared.srq));

		shared.post(0, 2);
		post(a.qp, Datagram(a.to_self, b.qp->qp_num, {a.memory.sge(0, 1000)}));
		post(a.qp, Datagram(a.to_self, c.qp->qp_num, {a.memory.sge(0, 100)}));
		wait_success(a.send_cq, 2);
		CHECK(wait_success(c.recv_cq).front().wr_id == 1);
		shared.post(3);
		REQUIRE(shared.try_post(99) == ENOMEM);
		if (way == "error") {
			to_state(b.qp, IBV_QPS_ERR);
			const auto wc = wait_completion(b.recv_cq);
			CHECK(wc.wr_id == 0);
			check_status(wc, IBV_WC_WR_FLUSH_ERR, PEAL_REASON_FLUSHED);
			CHECK(device.wait_event(IBV_EVENT_QP_LAST_WQE_REACHED, b.qp.get()));
		} else if (way == "reset") {
			to_state(b.qp, IBV_QPS_RESET);
			CHECK(describe(drain(b.recv_cq)) == "0 completions");
		} else {
			b.qp.reset();
		}
		CHECK(shared.try_post(2) == 0);
		CHECK(shared.try_post(99) == ENOMEM);
	}
}

TEST_CASE("unreliable connections take shared receives")
{
	Device device;
	const Shared shared(device);
	QpOptions plain;
	plain.type = IBV_QPT_UC;
	Endpoint a(device, plain), b(device, sharing(shared.srq, IBV_QPT_UC)), c(device, plain),
		d(device, sharing(shared.srq, IBV_QPT_UC));
	Region from(a.pd, page_bytes), from_c(c.pd, page_bytes);

	connect_uc(a, b);
	connect_uc(b, a);
	connect_uc(c, d);
	connect_uc(d, c);
	for (std::uint32_t i = 0; i < 20; i++) {
		shared.post(i);
		auto &source = i & 1 ? c : a;
		auto &memory = i & 1 ? from_c : from;
		fill_pattern(memory.bytes(0, bytes), i);
		post(source.qp, Send(IBV_WR_SEND_WITH_IMM, {memory.sge(0, bytes)}).imm(i));
		wait_success(source.send_cq);
		const auto wc = wait_success(i & 1 ? d.recv_cq : b.recv_cq).front();
		CHECK(wc.wr_id == i);
		check_received(shared, wc);
	}
}
