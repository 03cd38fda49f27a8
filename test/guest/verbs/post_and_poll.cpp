// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
/*
 * Posting: lists, full queues, signaling, fences, ibv_wr_*, the extended polling.
 *
 * Holds: The requests before the refused one of a list are posted. Unsignaled requests free their
 * slots. Every ibv_wr_* call does the same as ibv_post_send. Posts fail in states that do not allow
 * them. The cheap way to kick works, which the provider could do without.
 * Does not hold: the data (verbs/every_byte_arrives), errors in completions
 * (verbs/failed_requests).
 */
#include "raw.hpp"
#include "verbs.hpp"

using namespace peal_test;

namespace {

constexpr std::uint64_t all_ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

std::vector<Send> writes(std::size_t count, unsigned flags = IBV_SEND_SIGNALED)
{
	std::vector<Send> list;

	for (std::size_t i = 0; i < count; i++)
		list.push_back(Send(IBV_WR_RDMA_WRITE).id(i).flags(flags));
	return list;
}

void check_ids(const std::vector<ibv_wc> &wcs)
{
	for (std::size_t i = 0; i < wcs.size(); i++)
		CHECK(wcs[i].wr_id == i);
}

/* Requests that wait, because the peer has no receive. */
Send waiting(std::uint64_t id)
{
	return Send(IBV_WR_SEND).id(id);
}

/* A pair with memory that posts through ibv_wr_*. */
struct WrBench {
	explicit WrBench(Device &device)
		: pair(device, options()), qpx(ibv_qp_to_qp_ex(pair.a.qp)),
		  from(pair.a.pd, page_bytes), to(pair.b.pd, page_bytes)
	{
		if (!qpx)
			throw std::runtime_error("expected qp_to_qp_ex to work, got NULL");
		fill_pattern(from.bytes(0, 512), 3);
	}
	static QpOptions options()
	{
		QpOptions options;
		options.send_ops = all_ops;
		options.inline_bytes = 64;
		return options;
	}
	void start(std::uint64_t id, unsigned flags = IBV_SEND_SIGNALED)
	{
		ibv_wr_start(qpx);
		next(id, flags);
	}
	void next(std::uint64_t id, unsigned flags = IBV_SEND_SIGNALED)
	{
		qpx->wr_id = id;
		qpx->wr_flags = flags;
	}
	void sge(std::size_t offset, std::size_t length)
	{
		ibv_wr_set_sge(qpx, from.lkey(), from.address(offset),
			       static_cast<uint32_t>(length));
	}
	void complete() { must(ibv_wr_complete(qpx), "wr_complete"); }
	ibv_wc finish(ibv_wc_opcode opcode)
	{
		complete();
		const auto wc = wait_success(pair.a.send_cq).front();
		CHECK(wc.opcode == opcode);
		return wc;
	}
	void expect_at(std::size_t offset, std::size_t length)
	{
		CHECK(difference(to.bytes(offset, length), from.bytes(0, length)) == "");
	}

	Pair pair;
	ibv_qp_ex *qpx;
	Region from, to;
};

} // namespace

TEST_CASE("a kick is a call of lseek on each kernel")
{
	RawContext context;

	/* Of a queue pair that does not exist. */
	CHECK(errno_name(context.kick(PEAL_KICK_SEND, 1000)) == "ENOENT");
}

TEST_CASE("a list is posted in order")
{
	Device device;
	Pair pair(device);
	ibv_send_wr *bad = nullptr;
	auto list = writes(50);

	must(post_list(pair.a.qp, list, &bad), "post_send");
	check_ids(wait_success(pair.a.send_cq, 50));
}

TEST_CASE("a full send queue answers ENOMEM and names the first request left out")
{
	Device device;
	Pair pair(device);
	ibv_qp_attr attr{};
	ibv_qp_init_attr init{};
	must(ibv_query_qp(pair.a.qp, &attr, IBV_QP_CAP, &init), "query_qp");
	const auto room = init.cap.max_send_wr;
	std::vector<Send> list;
	for (unsigned i = 0; i < room + 10; i++)
		list.push_back(waiting(i));
	ibv_send_wr *bad = nullptr;

	CHECK(errno_name(post_list(pair.a.qp, list, &bad)) == "ENOMEM");
	REQUIRE(bad != nullptr);
	const auto left_out = bad->wr_id;
	CHECK(left_out >= room);
	CHECK(bad == &list[left_out].wr);
	for (std::uint64_t i = 0; i < left_out; i++)
		must(try_post_recv(pair.b.qp, i, {}), "post_recv");
	check_ids(wait_success(pair.a.send_cq, left_out));
	CHECK(describe(drain(pair.a.send_cq)) == "0 completions");
	post(pair.a.qp, Send(IBV_WR_RDMA_WRITE));
	wait_success(pair.a.send_cq);
}

TEST_CASE("a full receive queue answers ENOMEM and names the first request left out")
{
	Device device;
	Pair pair(device);
	std::vector<ibv_recv_wr> list(2000);
	ibv_recv_wr *bad = nullptr;
	for (std::size_t i = 0; i < list.size(); i++)
		list[i] = {i, i + 1 < list.size() ? &list[i + 1] : nullptr, nullptr, 0};

	CHECK(errno_name(ibv_post_recv(pair.b.qp, list.data(), &bad)) == "ENOMEM");
	REQUIRE(bad != nullptr);
	CHECK(bad->wr_id >= 64);
	CHECK(bad == &list[bad->wr_id]);
	for (std::uint64_t i = 0; i < bad->wr_id; i++) {
		post(pair.a.qp, Send(IBV_WR_SEND));
		wait_success(pair.a.send_cq);
		CHECK(wait_success(pair.b.recv_cq).front().wr_id == i);
	}
}

TEST_CASE("a bad request in a list stops the list there")
{
	Device device;
	Pair pair(device);
	auto list = writes(5);
	ibv_send_wr *bad = nullptr;
	list[2].wr.opcode = static_cast<ibv_wr_opcode>(200);

	const int error = post_list(pair.a.qp, list, &bad);
	CHECK(errno_name(error) == "EINVAL");
	CHECK(bad == &list[2].wr);
	check_ids(wait_success(pair.a.send_cq, 2));
	post(pair.a.qp, Send(IBV_WR_RDMA_WRITE));
	wait_success(pair.a.send_cq);
	CHECK(describe(drain(pair.a.send_cq)) == "0 completions");
}

TEST_CASE("too many entries are refused at once")
{
	Device device;
	Pair pair(device);
	ibv_qp_attr attr{};
	ibv_qp_init_attr init{};
	must(ibv_query_qp(pair.a.qp, &attr, IBV_QP_CAP, &init), "query_qp");
	Region region(pair.a.pd, page_bytes);
	Send send(IBV_WR_SEND);
	send.sges.assign(init.cap.max_send_sge + 1, region.sge(0, 1));
	const std::vector<ibv_sge> receive(init.cap.max_recv_sge + 1, region.sge(0, 1));

	CHECK(errno_name(try_post(pair.a.qp, send)) == "EINVAL");
	CHECK(errno_name(try_post_recv(pair.a.qp, 1, receive)) == "EINVAL");
}

TEST_CASE("inline data longer than the queue's limit are refused at once")
{
	Device device;
	QpOptions options;
	options.inline_bytes = 32;
	Pair pair(device, options);
	ibv_qp_attr attr{};
	ibv_qp_init_attr init{};
	must(ibv_query_qp(pair.a.qp, &attr, IBV_QP_CAP, &init), "query_qp");
	CHECK(init.cap.max_inline_data >= 32);
	Region region(pair.a.pd, page_bytes);
	Send send(IBV_WR_SEND, {region.sge(0, init.cap.max_inline_data + 1)});

	const int error = try_post(pair.a.qp, send.flags(IBV_SEND_INLINE | IBV_SEND_SIGNALED));
	CHECK((error == EINVAL || error == ENOMEM));
}

TEST_CASE("unsignaled requests give their slots back with the next signaled one")
{
	Device device;

	for (unsigned every : {1, 2, 3, 7, 16, 64}) {
		INFO("one of " << every << " is signaled");
		Pair pair(device);
		for (std::uint64_t i = 1; i <= 64 * 8; i++) {
			const bool signaled = i % every == 0;
			Send send(IBV_WR_RDMA_WRITE);
			post(pair.a.qp, send.id(i).flags(signaled ? IBV_SEND_SIGNALED : 0));
			if (signaled)
				REQUIRE(wait_success(pair.a.send_cq).front().wr_id == i);
		}
		CHECK(describe(drain(pair.a.send_cq)) == "0 completions");
	}
}

TEST_CASE("sq_sig_all signals everything")
{
	Device device;
	QpOptions options;
	options.all_signaled = true;
	Pair pair(device, options);
	ibv_send_wr *bad = nullptr;
	auto list = writes(10, 0);

	must(post_list(pair.a.qp, list, &bad), "post_send");
	check_ids(wait_success(pair.a.send_cq, 10));
}

TEST_CASE("a fence waits for earlier reads and atomics")
{
	Device device;
	Pair pair(device);
	Region from(pair.a.pd, 1 << 20), to(pair.b.pd, 1 << 20);

	for (int round = 0; round < 20; round++) {
		std::memset(to.data(), round + 1, to.size());
		post(pair.a.qp, Send(IBV_WR_RDMA_READ, {from.sge(0, from.size())})
					.remote(to.address(), to.rkey())
					.flags(0));
		/* Sends back the data that the READ has just fetched. */
		post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {from.sge(from.size() - 64, 64)})
					.remote(to.address(), to.rkey())
					.flags(IBV_SEND_SIGNALED | IBV_SEND_FENCE));
		wait_success(pair.a.send_cq);
		CHECK(all_equal(to.bytes(0, 64), static_cast<std::uint8_t>(round + 1)));
	}
}

/* A query in another thread writes an old state into ibv_qp after a modify. */
TEST_CASE("posts do not rely on libibverbs' copy of the state")
{
	Device device;
	Pair pair(device);

	pair.a.qp->state = pair.b.qp->state = IBV_QPS_RESET;
	post_recv(pair.b.qp, 1, {});
	post(pair.a.qp, Send(IBV_WR_SEND));
	wait_success(pair.a.send_cq);
	wait_success(pair.b.recv_cq);
}

TEST_CASE("posts in states without posts")
{
	Device device;
	Endpoint a(device), b(device);
	const auto send = [&] { return errno_name(try_post(a.qp, Send(IBV_WR_RDMA_WRITE))); };
	const auto recv = [&] { return errno_name(try_post_recv(a.qp, 1, {})); };

	CHECK(send() == "EINVAL");
	CHECK(recv() == "EINVAL");
	to_init(a.qp);
	CHECK(send() == "EINVAL");
	CHECK(recv() == "0");
	to_rtr(a.qp, device, b.qp->qp_num);
	CHECK(send() == "EINVAL");
	CHECK(recv() == "0");
	to_rts(a.qp);
	connect_to(b.qp, device, a.qp->qp_num);
	CHECK(send() == "0");
	wait_success(a.send_cq);
	post(b.qp, Send(IBV_WR_SEND));
	post(b.qp, Send(IBV_WR_SEND));
	wait_success(a.recv_cq, 2);
}

TEST_CASE("receives posted in INIT wait for RTR")
{
	Device device;
	Endpoint a(device), b(device);

	to_init(b.qp);
	for (std::uint64_t i = 0; i < 10; i++)
		post_recv(b.qp, i, {});
	to_rtr(b.qp, device, a.qp->qp_num);
	connect_to(a.qp, device, b.qp->qp_num);
	for (std::uint64_t i = 0; i < 10; i++)
		post(a.qp, Send(IBV_WR_SEND).id(i));
	check_ids(wait_success(a.send_cq, 10));
	check_ids(wait_success(b.recv_cq, 10));
}

TEST_CASE("ibv_wr: writes and reads")
{
	Device device;
	WrBench bench(device);
	const auto rkey = bench.to.rkey();

	bench.start(1);
	ibv_wr_rdma_write(bench.qpx, rkey, bench.to.address(100));
	bench.sge(0, 50);
	CHECK(bench.finish(IBV_WC_RDMA_WRITE).wr_id == 1);
	bench.expect_at(100, 50);

	post_recv(bench.pair.b.qp, 5, {});
	bench.start(2);
	ibv_wr_rdma_write_imm(bench.qpx, rkey, bench.to.address(200), 77);
	bench.sge(0, 20);
	bench.finish(IBV_WC_RDMA_WRITE);
	CHECK(wait_success(bench.pair.b.recv_cq).front().imm_data == 77);
	bench.expect_at(200, 20);

	fill_pattern(bench.to.bytes(300, 40), 8);
	bench.start(3);
	ibv_wr_rdma_read(bench.qpx, rkey, bench.to.address(300));
	bench.sge(1000, 40);
	CHECK(bench.finish(IBV_WC_RDMA_READ).byte_len == 40);
	CHECK(difference(bench.from.bytes(1000, 40), bench.to.bytes(300, 40)) == "");
}

TEST_CASE("ibv_wr: sends and inline data")
{
	Device device;
	WrBench bench(device);
	auto &b = bench.pair.b;
	std::vector<std::uint8_t> head(10, 1), tail(20, 2);
	ibv_data_buf list[] = {{head.data(), head.size()}, {tail.data(), tail.size()}};

	for (int i = 0; i < 4; i++)
		post_recv(b.qp, i, {bench.to.sge(100 * i, 100)});
	bench.start(1, 0);
	ibv_wr_send(bench.qpx);
	ibv_sge sges[] = {bench.from.sge(0, 7), bench.from.sge(7, 13)};
	ibv_wr_set_sge_list(bench.qpx, 2, sges);
	bench.next(2, 0);
	ibv_wr_send_imm(bench.qpx, 99);
	bench.sge(0, 30);
	bench.next(3, 0);
	ibv_wr_send(bench.qpx);
	ibv_wr_set_inline_data(bench.qpx, bench.from.data(), 40);
	bench.next(4);
	ibv_wr_send(bench.qpx);
	ibv_wr_set_inline_data_list(bench.qpx, 2, list);
	CHECK(bench.finish(IBV_WC_SEND).wr_id == 4);

	const auto wcs = wait_success(b.recv_cq, 4);
	CHECK(wcs[1].imm_data == 99);
	bench.expect_at(0, 20);
	bench.expect_at(100, 30);
	bench.expect_at(200, 40);
	CHECK(all_equal(bench.to.bytes(300, 10), 1));
	CHECK(all_equal(bench.to.bytes(310, 20), 2));
	CHECK(wcs[3].byte_len == 30);
}

TEST_CASE("ibv_wr: atomics")
{
	Device device;
	WrBench bench(device);
	auto *target = reinterpret_cast<std::uint64_t *>(bench.to.data());
	auto *result = reinterpret_cast<std::uint64_t *>(bench.from.data());

	target[0] = 10;
	bench.start(1);
	ibv_wr_atomic_fetch_add(bench.qpx, bench.to.rkey(), bench.to.address(), 5);
	bench.sge(0, 8);
	bench.finish(IBV_WC_FETCH_ADD);
	bench.start(2);
	ibv_wr_atomic_cmp_swp(bench.qpx, bench.to.rkey(), bench.to.address(), 15, 100);
	bench.sge(8, 8);
	bench.finish(IBV_WC_COMP_SWAP);
	CHECK(result[0] == 10);
	CHECK(result[1] == 15);
	CHECK(target[0] == 100);
}

TEST_CASE("ibv_wr: what is aborted was never posted")
{
	Device device;
	WrBench bench(device);

	bench.start(1);
	ibv_wr_rdma_write(bench.qpx, bench.to.rkey(), bench.to.address());
	bench.sge(0, 8);
	ibv_wr_abort(bench.qpx);
	bench.start(2);
	ibv_wr_rdma_write(bench.qpx, bench.to.rkey(), bench.to.address(100));
	bench.sge(0, 8);
	CHECK(bench.finish(IBV_WC_RDMA_WRITE).wr_id == 2);
	CHECK(all_equal(bench.to.bytes(0, 8), 0));
	CHECK(describe(drain(bench.pair.a.send_cq)) == "0 completions");
}

TEST_CASE("ibv_wr: a batch that does not fit is refused as a whole")
{
	Device device;
	WrBench bench(device);

	bench.start(0);
	for (std::uint64_t i = 0; i < 5000; i++) {
		bench.next(i);
		ibv_wr_send(bench.qpx);
		ibv_wr_set_sge_list(bench.qpx, 0, nullptr);
	}
	CHECK(errno_name(ibv_wr_complete(bench.qpx)) == "ENOMEM");
	bench.start(9);
	ibv_wr_rdma_write(bench.qpx, bench.to.rkey(), bench.to.address());
	bench.sge(0, 8);
	CHECK(bench.finish(IBV_WC_RDMA_WRITE).wr_id == 9);
}

namespace {

void check_extended_receive(ibv_cq_ex *cqx, std::uint32_t qp_num)
{
	CHECK(cqx->wr_id == 5);
	CHECK(ibv_wc_read_byte_len(cqx) == 33);
	CHECK(ibv_wc_read_imm_data(cqx) == 0x55);
	CHECK((ibv_wc_read_wc_flags(cqx) & IBV_WC_WITH_IMM) != 0);
	CHECK(ibv_wc_read_src_qp(cqx) == qp_num);
}

void check_extended_send(ibv_cq_ex *cqx)
{
	CHECK(ibv_wc_read_opcode(cqx) == IBV_WC_SEND);
	CHECK(cqx->wr_id == 6);
}

/* Reads the current completion. Return: whether it is the receive. */
bool check_extended(ibv_cq_ex *cqx, std::uint32_t qp_num)
{
	const bool received = ibv_wc_read_opcode(cqx) == IBV_WC_RECV;

	CHECK(cqx->status == IBV_WC_SUCCESS);
	CHECK(ibv_wc_read_qp_num(cqx) == qp_num);
	CHECK(ibv_wc_read_vendor_err(cqx) == 0);
	if (received)
		check_extended_receive(cqx, qp_num);
	else
		check_extended_send(cqx);
	return received;
}

} // namespace

TEST_CASE("the extended completion queue reads every field")
{
	Device device;
	auto *cqx = create_cq_ex(device);
	Cq cq(ibv_cq_ex_to_cq(cqx), "create_cq_ex");
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Qp qp(create_qp(pd, cq, cq));
	Region region(pd, page_bytes);
	connect_to(qp, device, qp->qp_num);
	ibv_poll_cq_attr poll{};

	CHECK(errno_name(ibv_start_poll(cqx, &poll)) == "ENOENT");
	post_recv(qp, 5, {region.sge(100, 100)});
	post(qp, Send(IBV_WR_SEND_WITH_IMM, {region.sge(0, 33)}).imm(0x55).id(6));
	REQUIRE(eventually([&] { return ibv_start_poll(cqx, &poll) == 0; }));
	int received = check_extended(cqx, qp->qp_num);
	REQUIRE(eventually([&] { return ibv_next_poll(cqx) == 0; }));
	received += check_extended(cqx, qp->qp_num);
	CHECK(errno_name(ibv_next_poll(cqx)) == "ENOENT");
	ibv_end_poll(cqx);
	CHECK(received == 1);
}
