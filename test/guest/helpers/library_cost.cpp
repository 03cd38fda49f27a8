// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * library_cost: what one WRITE of 64 bytes costs, from the request to its completion, by
 * libibverbs, by libpeal and by rings that this program writes by hand (infiniband/pealdv.h).
 *
 * 	library_cost COUNT [WAY]
 *
 * Prints "WAY NANOSECONDS" for each way, or for one, the mean of COUNT writes. The nanoseconds are
 * instructions where the clock counts those. In a way whose name ends with -16, so many writes are
 * posted with one doorbell, and the program then waits for all of them. It also checks that a ring
 * that was taken has one owner. Exit status: 0, or 1 with a line that says what failed.
 */
#include "verbs.hpp"

#include <infiniband/pealdv.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "peal/peal.hpp"

using namespace peal_test;

namespace {

constexpr std::uint32_t bytes = 64;
constexpr int parts = 5;

void expect(bool good, const char *what)
{
	if (!good)
		throw std::runtime_error(what);
}

/*
 * The mean of `count` writes, `batch` of them in a call, behind some calls that warm up. It is the
 * least mean of five parts, because other work of the machine only adds to it.
 */
template <class Round>
void measure(const char *way, unsigned count, unsigned batch, Round round)
{
	for (unsigned i = 0; i < 100; ++i)
		round();
	auto least = std::chrono::steady_clock::duration::max();
	for (int part = 0; part < parts; ++part) {
		const auto begin = std::chrono::steady_clock::now();
		for (unsigned i = 0; i < count / parts; i += batch)
			round();
		least = std::min(least, std::chrono::steady_clock::now() - begin);
	}
	std::printf("%s %.1f\n", way, static_cast<double>(least.count()) / (count / parts));
}

/* A thread that was joined may still have the table of descriptors, which makes a kick dearer. */
void wait_for_one_thread()
{
	namespace fs = std::filesystem;

	while (std::distance(fs::directory_iterator("/proc/self/task"), {}) > 1)
		std::this_thread::yield();
}

/* Two queue pairs, each of which is the peer of the other. The first has completion queues of its
 * own. */
struct Two {
	Device device;
	Pd pd{ibv_alloc_pd(device), "alloc_pd"};
	Region region{pd, 4096};
	Cq send_cq = create_cq(device, 128), recv_cq = create_cq(device, 128),
	   other_cq = create_cq(device, 128);
	Qp qp, other;

	void connect()
	{
		qp = create_qp(pd, send_cq, recv_cq);
		other = create_qp(pd, other_cq, other_cq);
		connect_to(qp, device, other->qp_num);
		connect_to(other, device, qp->qp_num);
	}
};

void by_libibverbs(unsigned count)
{
	Two two;
	two.connect();

	measure("libibverbs", count, 1, [&] {
		ibv_sge sge{two.region.address(), bytes, two.region.lkey()};
		ibv_send_wr wr{}, *bad;
		ibv_wc wc;
		int got;

		wr.sg_list = &sge;
		wr.num_sge = 1;
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.send_flags = IBV_SEND_SIGNALED;
		wr.wr.rdma.remote_addr = two.region.address(1024);
		wr.wr.rdma.rkey = two.region.rkey();
		expect(!ibv_post_send(two.qp, &wr, &bad), "ibv_post_send fails");
		while (!(got = ibv_poll_cq(two.send_cq, 1, &wc)))
			;
		expect(got == 1 && !wc.status, "a write by libibverbs fails");
	});
}

/*
 * The rings as <rdma/peal-abi.h> describes them, with nothing that this one loop does not need. It
 * asks whether the device has gone, rings the doorbell and gives the completions back as every
 * program must. It waits for all requests before it posts the next ones, so that neither ring
 * overflows, and needs no names, because they complete in their order. It always polls, so that its
 * completion queue needs no channel.
 */
void by_rings(unsigned count)
{
	Two two;
	pealdv calls{};
	pealdv_device device{};
	pealdv_cq cq{}, unused{};
	pealdv_queue queue{}, receives{};
	std::uint32_t producer = 0, consumer = 0;
	ibv_wc wc;
	ibv_send_wr wr{}, *bad;

	expect(!pealdv_open(two.device.context(), &calls), "the provider has no pealdv");
	expect(!calls.query_device(two.device.context(), &device), "pealdv_query_device fails");
	expect(!calls.take_cq(two.send_cq, &cq), "pealdv_take_cq fails");
	expect(calls.take_cq(two.send_cq, &unused) == EBUSY, "a completion queue is taken twice");
	two.connect();
	expect(calls.take_cq(two.recv_cq, &unused) == EBUSY, "a used completion queue is taken");
	expect(calls.take_receive_queue(two.qp, &receives) == EINVAL,
	       "a queue is taken before its completion queue");
	wr.opcode = IBV_WR_RDMA_WRITE;
	expect(ibv_post_send(two.qp, &wr, &bad) == ENOMEM,
	       "libibverbs posts to a queue that completes in a taken completion queue");
	expect(!calls.take_send_queue(two.qp, &queue), "pealdv_take_send_queue fails");
	expect(calls.take_send_queue(two.qp, &queue) == EBUSY, "a send queue is taken twice");
	expect(ibv_post_send(two.qp, &wr, &bad) == ENOMEM, "libibverbs posts to a taken queue");
	ibv_srq_init_attr shared{};
	shared.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
	ibv_srq *srq = ibv_create_srq(two.pd, &shared);
	ibv_qp_init_attr with_srq{};
	with_srq.qp_type = IBV_QPT_RC;
	with_srq.send_cq = two.other_cq;
	with_srq.recv_cq = two.send_cq;
	with_srq.srq = srq;
	with_srq.cap = {.max_send_wr = 1,
			.max_recv_wr = 0,
			.max_send_sge = 1,
			.max_recv_sge = 0,
			.max_inline_data = 0};
	expect(srq && !ibv_create_qp(two.pd, &with_srq) && errno == EOPNOTSUPP,
	       "a shared receive queue completes in a taken completion queue");
	expect(!ibv_destroy_srq(srq), "ibv_destroy_srq fails");
	expect(ibv_resize_cq(two.send_cq, 1000) == EBUSY, "a taken completion queue is resized");

	const auto round = [&]<unsigned batch>(std::integral_constant<unsigned, batch>) {
		for (unsigned i = 0; i < batch; ++i) {
			auto *slot =
				static_cast<std::byte *>(queue.slots) +
				std::size_t{(producer + i) & (queue.entries - 1)} * queue.stride;
			auto *wqe = reinterpret_cast<peal_send_wqe *>(slot);

			*wqe = {};
			wqe->opcode = PEAL_OP_WRITE;
			wqe->flags = PEAL_WQE_SIGNALED;
			wqe->num_sge = 1;
			wqe->remote_addr = two.region.address(1024);
			wqe->rkey = two.region.rkey();
			*reinterpret_cast<peal_sge *>(wqe + 1) = {two.region.address(), bytes,
								  two.region.lkey()};
		}
		producer += batch;
		std::atomic_ref<__u32> engine(device.doorbell->engine);
		expect(engine.load(std::memory_order_acquire) != PEAL_ENGINE_GONE, "it is gone");
		std::atomic_ref(queue.ctl->producer).store(producer, std::memory_order_release);
		bool is_rung = false;
		if (engine.load(std::memory_order_acquire) == PEAL_ENGINE_AWAKE) {
			std::atomic_ref(device.doorbell->bits[queue.qp_index / 64])
				.fetch_or(__u64{1} << (queue.qp_index & 63));
			is_rung = engine.load() == PEAL_ENGINE_AWAKE;
		}
		expect(is_rung || !lseek(device.kick_fd, queue.qp_index, PEAL_KICK_SEND),
		       "the kick fails");
		for (unsigned i = 0; i < batch; ++i, ++consumer) {
			const peal_cqe &cqe = cq.cqes[consumer & (cq.entries - 1)];
			const bool lap = consumer & cq.entries;
			std::atomic_ref flags(const_cast<__u8 &>(cqe.flags));

			while (bool(flags.load(std::memory_order_acquire) & PEAL_CQE_PHASE) == lap)
				;
			expect(!cqe.status, "a write by the rings fails");
		}
		std::atomic_ref(cq.ctl->consumer).store(consumer, std::memory_order_release);
	};
	measure("rings", count, 1, [&] { round(std::integral_constant<unsigned, 1>()); });
	measure("rings-16", count, 16, [&] { round(std::integral_constant<unsigned, 16>()); });
	expect(!ibv_poll_cq(two.send_cq, 1, &wc), "libibverbs polls a taken completion queue");
	ibv_qp_attr reset{};
	reset.qp_state = IBV_QPS_RESET;
	expect(ibv_modify_qp(two.qp, &reset, IBV_QP_STATE) == EBUSY, "a taken queue pair is reset");
	reset.qp_state = IBV_QPS_ERR;
	expect(!ibv_modify_qp(two.qp, &reset, IBV_QP_STATE), "a taken queue pair cannot go to ERR");
}

void by_libpeal(const char *way, unsigned count)
{
	auto device = peal::open(device_name().c_str()).value();
	auto mine = device.alloc<char>(4096).value();
	auto theirs = device.alloc<char>(4096, peal::remote_write).value();
	auto listener = device.listen(0).value();
	std::optional<peal::connection> server;
	std::thread accepts([&] { server.emplace(listener.accept(theirs.share(), 60s).value()); });
	auto client = device.connect("10.77.0.1", listener.port(), {}, 60s).value();
	accepts.join();
	wait_for_one_thread();
	const peal::slice from = mine.part(0, bytes);
	const peal::remote to = client.peer().at(0);
	const peal::deadline until = 1h;

	measure(way, count, 1, [&] {
		auto post = client.batch();

		post.write(from, to);
		expect(bool(post.commit()), "a commit fails");
		expect(bool(client.wait(1, until)), "a write by libpeal fails");
	});
	measure((std::string(way) + "-16").c_str(), count, 16, [&] {
		auto post = client.batch();

		for (unsigned i = 0; i < 16; ++i)
			post.write(from, to);
		expect(bool(post.commit()), "a commit fails");
		expect(bool(client.wait(16, until)), "a write by libpeal fails");
	});
}

} // namespace

int main(int argc, char **argv)
{
	const unsigned count = argc > 1 ? std::stoul(argv[1]) : 1000;
	const auto wants = [&](std::string_view way) { return argc < 3 || way == argv[2]; };

	try {
		if (wants("rings"))
			by_rings(count);
		if (wants("libpeal"))
			by_libpeal("libpeal", count);
		if (wants("libibverbs"))
			by_libibverbs(count);
		setenv("PEAL_LIBIBVERBS", "1", 1);
		if (wants("libpeal-by-libibverbs"))
			by_libpeal("libpeal-by-libibverbs", count);
	} catch (const std::exception &failed) {
		std::printf("%s\n", failed.what());
		return 1;
	}
}
