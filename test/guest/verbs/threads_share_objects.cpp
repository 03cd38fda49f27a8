// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 180
// run: long
/*
 * Several threads and processes use the same objects at the same time.
 *
 * Holds: Posts and polls from several threads arrive exactly once. Nothing breaks when queue pairs
 * are destroyed, reset or modified while their peers use them, when windows and regions come and go
 * while they are used, when an administrator lists queue pairs that are being destroyed, and when
 * programs are killed at work.
 * Does not hold: removal of the device (lifecycle/device_removed_in_use), hostile programs
 * (hostile/scribbled_rings).
 */
#include "crew.hpp"
#include "netlink.hpp"
#include "program.hpp"
#include "verbs.hpp"

#include <sys/wait.h>

#include <atomic>

using namespace peal_test;

namespace {

constexpr std::uint64_t per_thread = 3000;

/* Posts until the post is accepted, because the queue may be full. */
void post_patiently(ibv_qp *qp, const Send &send)
{
	const bool accepted = eventually([&] {
		const int error = try_post(qp, send);
		if (error && error != ENOMEM)
			throw_errno("post_send", error);
		return !error;
	});
	if (!accepted)
		throw std::runtime_error("expected room in the send queue, it stays full");
}

/* Counts each wr_id. Several threads may poll. */
void poll_counting(ibv_cq *cq, std::vector<std::atomic<int>> &seen,
		   std::atomic<std::uint64_t> &total)
{
	const auto deadline = Clock::now() + 6 * patience;

	while (total < seen.size()) {
		for (const auto &wc : drain(cq, 16)) {
			must_succeed(wc);
			seen.at(wc.wr_id)++;
			total++;
		}
		if (Clock::now() > deadline)
			throw std::runtime_error("expected " + std::to_string(seen.size()) +
						 " completions, got " + std::to_string(total));
	}
}

/* Posts to a peer that comes and goes, and reconnects after a failure. */
void pester(Device &device, Endpoint &mine, std::uint32_t peer, const std::atomic<bool> &stop)
{
	Link link;
	link.timeout = 8; /* 1 ms */
	link.retry_cnt = 1;
	link.rnr_retry = 1;

	while (!stop) {
		connect_to(mine.qp, device, peer, link);
		for (int i = 0; i < 20; i++)
			post(mine.qp, Send(i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND));
		wait_completions(mine.send_cq, 20);
		to_state(mine.qp, IBV_QPS_RESET);
	}
}

[[noreturn]] int send_for_ever()
{
	Device device;
	Pair pair(device);
	Region from(pair.a.pd, 1 << 20), to(pair.b.pd, 1 << 20);

	for (;;) {
		Send write(IBV_WR_RDMA_WRITE, {from.sge(0, from.size())});
		post(pair.a.qp, write.remote(to.address(), to.rkey()));
		wait_success(pair.a.send_cq);
	}
}

} // namespace

TEST_CASE("several threads post to one queue pair and poll one queue")
{
	Device device;
	constexpr unsigned posters = 4;
	Pair pair(device);
	std::vector<std::atomic<int>> seen(posters * per_thread);
	std::atomic<std::uint64_t> total = 0;
	Crew crew;

	for (unsigned t = 0; t < posters; t++)
		crew.start([&, t] {
			for (std::uint64_t i = 0; i < per_thread; i++)
				post_patiently(pair.a.qp,
					       Send(IBV_WR_RDMA_WRITE).id(t * per_thread + i));
		});
	for (int t = 0; t < 2; t++)
		crew.start([&] { poll_counting(pair.a.send_cq, seen, total); });
	crew.finish();
	CHECK(std::all_of(seen.begin(), seen.end(), [](const auto &count) { return count == 1; }));
	CHECK(describe(drain(pair.a.send_cq)) == "0 completions");
}

TEST_CASE("both directions of many queue pairs at once")
{
	Device device;
	Crew crew;

	for (unsigned t = 0; t < 4; t++)
		crew.start([&] {
			Device own;
			Pair pair(own);
			for (std::uint64_t i = 0; i < 1000; i++) {
				post_recv(pair.a.qp, i, {});
				post_recv(pair.b.qp, i, {});
				post(pair.a.qp, Send(IBV_WR_SEND).id(i));
				post(pair.b.qp, Send(IBV_WR_SEND).id(i));
				for (auto *cq : {pair.a.send_cq.get(), pair.b.send_cq.get(),
						 pair.a.recv_cq.get(), pair.b.recv_cq.get()})
					if (wait_success(cq).front().wr_id != i)
						throw std::runtime_error("wr_id out of order");
			}
		});
	crew.finish();
}

TEST_CASE("fetch-and-add from several queue pairs loses nothing")
{
	Device device;
	Endpoint home(device);
	Region counter(home.pd, page_bytes);
	std::vector<Qp> ends;
	std::vector<std::unique_ptr<Endpoint>> askers;
	Crew crew;

	for (int t = 0; t < 4; t++) {
		ends.push_back(create_qp(home.pd, home.send_cq, home.recv_cq));
		askers.push_back(std::make_unique<Endpoint>(device));
		connect(device, ends[t], askers[t]->qp);
	}
	for (auto &asker : askers)
		crew.start([&counter, &asker = *asker] {
			Region result(asker.pd, page_bytes);
			for (std::uint64_t i = 0; i < 1000; i++) {
				Send add(IBV_WR_ATOMIC_FETCH_AND_ADD, {result.sge(0, 8)});
				post(asker.qp, add.atomic(counter.address(), counter.rkey(), 1));
				wait_success(asker.send_cq);
			}
		});
	crew.finish();
	CHECK(*reinterpret_cast<std::uint64_t *>(counter.data()) == 4000);
}

TEST_CASE("a peer that is reset and connected again and again")
{
	Device device;
	Endpoint asker(device), victim(device);
	std::atomic<bool> stop = false;
	Crew crew;

	crew.start([&] { pester(device, asker, victim.qp->qp_num, stop); });
	for (int round = 0; round < 500; round++) {
		connect_to(victim.qp, device, asker.qp->qp_num);
		post_recv(victim.qp, 1, {});
		if (round % 3)
			to_state(victim.qp, IBV_QPS_ERR);
		to_state(victim.qp, IBV_QPS_RESET);
		drain(victim.recv_cq);
	}
	stop = true;
	crew.finish();
}

TEST_CASE("a peer that is destroyed while messages arrive")
{
	Device device;

	for (int round = 0; round < 200; round++) {
		Endpoint asker(device);
		auto victim = std::make_unique<Endpoint>(device);
		Link link;
		link.timeout = 8;
		link.retry_cnt = 1;
		connect(asker, *victim, link);
		for (int i = 0; i < 60; i++)
			post(asker.qp, Send(IBV_WR_RDMA_WRITE).id(i));
		Crew crew;
		crew.start([&] { wait_completions(asker.send_cq, 60); });
		victim.reset();
		crew.finish();
	}
	SUCCEED();
}

TEST_CASE("both ends are destroyed at the same time")
{
	Device device;

	for (int round = 0; round < 200; round++) {
		auto a = std::make_unique<Endpoint>(device), b = std::make_unique<Endpoint>(device);
		connect(*a, *b);
		for (int i = 0; i < 60; i++) {
			post(a->qp, Send(IBV_WR_RDMA_WRITE));
			post(b->qp, Send(IBV_WR_SEND));
		}
		Crew crew;
		crew.start([&] { a.reset(); });
		crew.start([&] { b.reset(); });
		crew.finish();
	}
	SUCCEED();
}

/*
 * Some cores forget a queue pair only after its device has destroyed it. Only a debug kernel shows
 * that freed memory is not read.
 */
TEST_CASE("queue pairs are listed while they are destroyed")
{
	Device device;
	const auto index =
		static_cast<std::uint32_t>(ibv_get_device_index(device.context()->device));
	std::atomic<bool> stop = false;
	std::atomic<unsigned> listed = 0;
	Crew crew;

	crew.start([&] {
		RdmaNetlink netlink;
		while (!stop)
			listed += netlink.dump_qps(index);
	});
	for (int round = 0; round < 1500; round++) {
		Endpoint asker(device), victim(device);
		connect(asker, victim);
		post(asker.qp, Send(IBV_WR_RDMA_WRITE));
		wait_success(asker.send_cq);
	}
	stop = true;
	crew.finish();
	CHECK(listed > 0);
}

TEST_CASE("attributes are modified while messages pass")
{
	Device device;
	Pair pair(device);
	std::atomic<bool> stop = false;
	std::uint64_t rounds = 0;
	Crew crew;

	crew.start([&] {
		for (std::uint64_t i = 0; i < 3000; i++) {
			post(pair.a.qp, Send(IBV_WR_RDMA_WRITE).id(i));
			if (wait_success(pair.a.send_cq).front().wr_id != i)
				throw std::runtime_error("wr_id out of order");
		}
		stop = true;
	});
	for (; !stop; rounds++) {
		ibv_qp_attr attr{};
		attr.qp_state = IBV_QPS_RTS;
		attr.qp_access_flags = all_access;
		attr.min_rnr_timer = static_cast<std::uint8_t>(rounds % 31);
		must(ibv_modify_qp(rounds % 2 ? pair.a.qp : pair.b.qp, &attr,
				   IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER),
		     "modify");
		query_state(pair.b.qp);
	}
	crew.finish();
	CHECK(rounds > 0);
}

TEST_CASE("SQD and back while another thread posts")
{
	Device device;
	Pair pair(device);
	std::atomic<bool> stop = false;
	Crew crew;

	crew.start([&] {
		for (std::uint64_t i = 0; i < 2000; i++) {
			post(pair.a.qp, Send(IBV_WR_RDMA_WRITE).id(i));
			if (wait_success(pair.a.send_cq).front().wr_id != i)
				throw std::runtime_error("wr_id out of order");
		}
		stop = true;
	});
	while (!stop) {
		to_state(pair.a.qp, IBV_QPS_SQD);
		to_state(pair.a.qp, IBV_QPS_RTS);
	}
	crew.finish();
}

TEST_CASE("events while queues come and go")
{
	Device device;
	Crew crew;

	for (int t = 0; t < 3; t++)
		crew.start([&device] {
			for (int round = 0; round < 100; round++) {
				Channel channel(ibv_create_comp_channel(device), "channel");
				Pd pd(ibv_alloc_pd(device), "alloc_pd");
				Cq cq(create_cq(device, 16, channel));
				Qp qp(create_qp(pd, cq, cq));
				connect_to(qp, device, qp->qp_num);
				must(ibv_req_notify_cq(cq, 0), "req_notify_cq");
				post(qp, Send(IBV_WR_RDMA_WRITE));
				if (!readable(channel->fd, patience))
					throw std::runtime_error("expected an event, got none");
				/* The completion is neither taken nor polled. */
			}
		});
	crew.finish();
}

TEST_CASE("a RESET that waits for a poller undoes nothing that comes after it")
{
	Device device;
	auto *cqx = create_cq_ex(device);
	Cq cq(ibv_cq_ex_to_cq(cqx), "create_cq_ex");
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Qp busy(create_qp(pd, cq, cq)), qp(create_qp(pd, cq, cq));
	ibv_poll_cq_attr poll{};
	Crew crew;

	connect_to(busy, device, busy->qp_num);
	connect_to(qp, device, qp->qp_num);
	post(busy, Send(IBV_WR_RDMA_WRITE));
	REQUIRE(eventually([&] { return !ibv_start_poll(cqx, &poll); }));
	crew.start([&] { to_state(qp, IBV_QPS_RESET); });
	/*
	 * The event may come now or after the poll, because the poller itself may change the state.
	 */
	const bool came = eventually([&] { return query_state(qp) == IBV_QPS_RESET; }, absence);
	if (came)
		connect_to(qp, device, qp->qp_num);
	else
		to_state(qp, IBV_QPS_ERR);
	ibv_end_poll(cqx);
	crew.finish();
	if (!came)
		connect_to(qp, device, qp->qp_num);
	post(qp, Send(IBV_WR_RDMA_WRITE).id(5));
	CHECK(wait_success(cq).front().wr_id == 5);
}

TEST_CASE("a receiver that sleeps loses no event")
{
	Device device;
	Channel channel(ibv_create_comp_channel(device), "channel");
	Endpoint sender(device);
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq(create_cq(device, 256, channel));
	Qp qp(create_qp(pd, cq, cq));
	constexpr std::uint64_t total = 5000;
	std::uint64_t received = 0;
	Crew crew;

	connect(device, sender.qp, qp);
	for (int i = 0; i < 60; i++)
		post_recv(qp, 1, {});
	must(ibv_req_notify_cq(cq, 0), "req_notify_cq");
	crew.start([&] {
		for (std::uint64_t i = 0; i < total; i++) {
			post(sender.qp, Send(IBV_WR_SEND));
			wait_success(sender.send_cq);
		}
	});
	while (received < total) {
		ibv_cq *which = nullptr;
		void *context = nullptr;
		REQUIRE(readable(channel->fd, patience));
		must(ibv_get_cq_event(channel, &which, &context), "get_cq_event");
		ibv_ack_cq_events(which, 1);
		must(ibv_req_notify_cq(cq, 0), "req_notify_cq");
		const auto count = drain(cq).size();
		received += count;
		for (std::size_t i = 0; i < count; i++)
			post_recv(qp, 1, {});
	}
	crew.finish();
	CHECK(received == total);
}

TEST_CASE("programs that die in the middle")
{
	Device device;
	Pair pair(device);

	for (int round = 0; round < 15; round++) {
		std::vector<pid_t> children{spawn(send_for_ever), spawn(send_for_ever)};
		for (std::uint64_t i = 0; i < 20; i++) {
			post(pair.a.qp, Send(IBV_WR_RDMA_WRITE).id(i));
			CHECK(wait_success(pair.a.send_cq).front().wr_id == i);
		}
		for (auto child : children)
			kill(child, SIGKILL);
		for (auto child : children)
			CHECK(end_of(child) == 256 + SIGKILL);
	}
	SUCCEED();
}
