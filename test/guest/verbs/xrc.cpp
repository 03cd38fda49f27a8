// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
/*
 * Extended reliable connections (XRC).
 *
 * Holds: One connection delivers to every XRC shared receive queue of its domain, each message to
 * the one that it names, into the right bytes, and completes in that queue's completion queue. Keys
 * must be of that queue's protection domain. Processes share a domain through a file, and a target
 * queue pair lives as long as a process has it open. A queue that is unknown, of another domain or
 * destroyed ends the connection with the NAK of the specification.
 * Does not hold: the ring of a shared receive queue (verbs/shared_receive_queues).
 */
#include "program.hpp"
#include "xrc.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <thread>

using namespace peal_test;
using namespace peal_test::xrc;

namespace {

struct File {
	File() : file(std::tmpfile()) {}
	~File() { std::fclose(file); }
	int fd() const { return fileno(file); }
	std::FILE *file;
};

void check_received(const Lane &lane, const Shared &shared, std::uint64_t id, std::uint32_t tag,
		    std::size_t length)
{
	const auto wc = wait_success(shared.cq).front();

	INFO(describe(wc));
	CHECK(wc.wr_id == id);
	CHECK(wc.opcode == IBV_WC_RECV);
	CHECK(wc.imm_data == tag);
	CHECK(wc.byte_len == length);
	CHECK(wc.qp_num == lane.target->qp_num);
	CHECK(wc.src_qp == lane.a.qp->qp_num);
	CHECK(difference(shared.buffer(id, length), pattern_of(length, tag)) == "");
}

} // namespace

TEST_CASE("a domain is private, or shared through a file")
{
	Device device;
	File one, two;

	CHECK(device.attributes().device_cap_flags & IBV_DEVICE_XRC);
	const Xrcd alone = open_domain(device);
	errno = 0;
	CHECK_FALSE(try_open(device, one.fd(), 0)); /* no domain yet */
	CHECK(errno_name(errno) == "EAGAIN");
	const Xrcd first = open_domain(device, one.fd());
	const Xrcd again = open_domain(device, one.fd(), 0), other = open_domain(device, two.fd());
	errno = 0;
	CHECK_FALSE(try_open(device, one.fd(), O_CREAT | O_EXCL));
	CHECK(errno_name(errno) == "EINVAL");
	errno = 0;
	CHECK_FALSE(try_open(device, 9999));
	CHECK(errno_name(errno) == "EBADF");
	CHECK(first.get() != again.get());

	Device second;
	const Xrcd there = open_domain(second, one.fd(), 0);
	const Shared shared(device, first), far(second, there);
	Lane lane(second, there);
	far.post(1);
	shared.post(2);
	lane.send(shared, 5, 100);
	check_received(lane, shared, 2, 5, 100);
	lane.send(far, 6, 200);
	check_received(lane, far, 1, 6, 200);
	wait_success(lane.a.send_cq, 2);
}

TEST_CASE("memory that comes on demand")
{
	Device device;
	ibv_device_attr_ex attr{};
	must(ibv_query_device_ex(device, nullptr, &attr), "query_device_ex");
	if (!(attr.xrc_odp_caps & IBV_ODP_SUPPORT_SRQ_RECV))
		SKIP_CASE("this kernel has no on-demand paging");
	/* Newer kernels also have bits for ATOMIC_WRITE and FLUSH. */
	CHECK(attr.xrc_odp_caps == attr.odp_caps.per_transport_caps.rc_odp_caps);
	const Xrcd xrcd = open_domain(device);
	const Shared shared(device, xrcd, nullptr, all_access | IBV_ACCESS_ON_DEMAND);
	Lane lane(device, xrcd);
	const auto drop_pages = [&] {
		must(madvise(shared.memory.data(), shared.memory.size(), MADV_DONTNEED) ? errno : 0,
		     "madvise");
	};

	for (std::uint32_t i = 0; i < 4; i++) {
		drop_pages();
		shared.post(i);
		lane.send(shared, i + 1, 5000);
		check_received(lane, shared, i, i + 1, 5000);
		wait_success(lane.a.send_cq);

		drop_pages();
		const auto to = shared.memory.bytes(4000, 5000), from = lane.from.bytes(0, 5000);
		lane.post_to(shared.number,
			     Send(IBV_WR_RDMA_WRITE, {lane.from.sge(0, 5000)})
				     .remote(shared.memory.address(4000), shared.memory.rkey()));
		wait_success(lane.a.send_cq);
		CHECK(difference(to, from) == "");

		fill_pattern(from, 99);
		lane.post_to(shared.number,
			     Send(IBV_WR_RDMA_READ, {lane.from.sge(0, 5000)})
				     .remote(shared.memory.address(4000), shared.memory.rkey()));
		wait_success(lane.a.send_cq);
		CHECK(difference(to, from) == "");

		drop_pages();
		lane.post_to(shared.number,
			     Send(IBV_WR_ATOMIC_WRITE, {lane.from.sge(0, 8)})
				     .remote(shared.memory.address(4000), shared.memory.rkey()));
		wait_success(lane.a.send_cq);
		CHECK(difference(to.first(8), from.first(8)) == "");
		CHECK(all_equal(to.subspan(8), 0));
	}
}

TEST_CASE("a domain in use is not closed, and wrong attributes are refused")
{
	Device device, other;
	Xrcd xrcd = open_domain(device);
	{
		const Shared shared(device, xrcd);
		CHECK(errno_name(ibv_close_xrcd(xrcd)) == "EBUSY");
		Pd pd(ibv_alloc_pd(device), "alloc_pd");
		Cq cq = create_cq(device, 4);
		QpOptions options;
		options.srq = shared.srq; /* only targets use it, by its number */
		auto init = init_attributes(pd, cq, cq, options);
		errno = 0;
		CHECK_FALSE(ibv_create_qp_ex(device, &init));
		CHECK(errno_name(errno) == "EINVAL");
		options = initiator();
		options.send_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
		init = init_attributes(pd, cq, cq, options);
		errno = 0;
		CHECK_FALSE(ibv_create_qp_ex(device, &init));
		CHECK(errno_name(errno) == "EOPNOTSUPP");
	}
	const Qp target = create_target(device, xrcd);
	CHECK(errno_name(ibv_close_xrcd(xrcd)) == "EBUSY");
	CHECK(errno_name(try_post_recv(target, 1, {})) != "0");
	ibv_send_wr wr{}, *bad;
	CHECK(errno_name(ibv_post_send(target, &wr, &bad)) == "EINVAL");

	ibv_qp_init_attr_ex init{};
	init.qp_type = IBV_QPT_XRC_RECV;
	errno = 0;
	CHECK_FALSE(ibv_create_qp_ex(device, &init)); /* no domain */
	CHECK(errno_name(errno) == "EINVAL");
	ibv_srq_attr basic{8, 1, 0};
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	const Srq srq(try_create_srq(pd, basic), "create_srq");
	std::uint32_t number;
	CHECK(ibv_get_srq_num(srq, &number) != 0);

	ibv_qp_open_attr open{};
	open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	open.qp_num = target->qp_num ^ 1;
	open.xrcd = xrcd;
	open.qp_type = IBV_QPT_XRC_RECV;
	errno = 0;
	CHECK_FALSE(ibv_open_qp(device, &open));
	CHECK(errno_name(errno) == "EINVAL");
}

TEST_CASE("one connection delivers to the queue that each message names")
{
	Device device;
	const Xrcd xrcd = open_domain(device);
	const Shared one(device, xrcd), two(device, xrcd);
	Lane lane(device, xrcd);

	CHECK(one.number != two.number);
	for (std::uint64_t round = 0; round < 20; round++) {
		const std::size_t length = 1 + round * 409;

		one.post(round);
		two.post(round + 100);
		lane.send(one, std::uint32_t(2 * round), length);
		lane.send(two, std::uint32_t(2 * round + 1), 8);
		check_received(lane, two, round + 100, std::uint32_t(2 * round + 1), 8);
		const auto wc = wait_success(one.cq).front();
		CHECK(wc.wr_id == round);
		CHECK(wc.byte_len == length);
		if (length > 8) { /* the second message has changed the first bytes of `from` */
			const auto all = pattern_of(length, std::uint32_t(2 * round));
			CHECK(difference(one.buffer(round, length).subspan(8),
					 std::span(all).subspan(8)) == "");
		}
		wait_success(lane.a.send_cq, 2);
	}
}

TEST_CASE("every operation works, with keys of the named queue's protection domain")
{
	Device device;
	const Xrcd xrcd = open_domain(device);
	const Shared shared(device, xrcd), other(device, xrcd);
	Lane lane(device, xrcd);
	const Region to(shared.pd, 4 * bytes), foreign(other.pd, bytes);
	const auto number = shared.number;
	const std::size_t length = 3 * bytes + 5;

	fill_pattern(lane.from.bytes(0, length), 1);
	lane.post_to(number, Send(IBV_WR_RDMA_WRITE, {lane.from.sge(0, length)})
				     .remote(to.address(), to.rkey()));
	wait_success(lane.a.send_cq);
	CHECK(difference(to.bytes(0, length), pattern_of(length, 1)) == "");
	shared.post(3);
	lane.post_to(number, Send(IBV_WR_RDMA_WRITE_WITH_IMM, {lane.from.sge(0, 100)})
				     .remote(to.address(8), to.rkey())
				     .imm(77));
	wait_success(lane.a.send_cq);
	const auto wc = wait_success(shared.cq).front();
	CHECK(wc.wr_id == 3);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(wc.imm_data == 77);
	fill_pattern(to.bytes(0, length), 2);
	lane.post_to(
		number,
		Send(IBV_WR_RDMA_READ, {lane.from.sge(0, length)}).remote(to.address(), to.rkey()));
	wait_success(lane.a.send_cq);
	CHECK(difference(lane.from.bytes(0, length), pattern_of(length, 2)) == "");
	std::uint64_t word = 40;
	std::memcpy(to.data(), &word, 8);
	lane.post_to(number, Send(IBV_WR_ATOMIC_FETCH_AND_ADD, {lane.from.sge(0, 8)})
				     .atomic(to.address(), to.rkey(), 2));
	lane.post_to(number, Send(IBV_WR_ATOMIC_CMP_AND_SWP, {lane.from.sge(8, 8)})
				     .atomic(to.address(), to.rkey(), 42, 7));
	wait_success(lane.a.send_cq, 2);
	std::memcpy(&word, to.data(), 8);
	CHECK(word == 7);
	std::memcpy(&word, lane.from.data(), 8);
	CHECK(word == 40);
	/* The key is valid, but of another queue's domain. */
	lane.post_to(number, Send(IBV_WR_RDMA_WRITE, {lane.from.sge(0, 8)})
				     .remote(foreign.address(), foreign.rkey()));
	check_status(wait_completions(lane.a.send_cq, 1).front(), IBV_WC_REM_ACCESS_ERR,
		     PEAL_REASON_RKEY_PD);
	CHECK(eventually([&] { return query_state(lane.target) == IBV_QPS_ERR; }));
	CHECK(device.count_events(IBV_EVENT_QP_LAST_WQE_REACHED, lane.target.get()) == 0);
}

TEST_CASE("a queue that the target cannot reach ends the connection")
{
	Device device;
	const Xrcd xrcd = open_domain(device), elsewhere = open_domain(device);
	const Shared shared(device, xrcd), other(device, elsewhere);
	auto gone = std::make_unique<Shared>(device, xrcd);
	const auto gone_number = gone->number;

	gone.reset();
	other.post(1);
	for (const std::uint32_t number : {other.number, gone_number, 0U, 0xffffffU}) {
		Lane lane(device, xrcd);

		INFO("number " << number);
		lane.post_to(number, Send(IBV_WR_SEND, {lane.from.sge(0, 8)}));
		check_status(wait_completions(lane.a.send_cq, 1).front(), IBV_WC_REM_INV_REQ_ERR,
			     PEAL_REASON_XRC_SRQ);
		CHECK(eventually([&] { return query_state(lane.target) == IBV_QPS_ERR; }));
		CHECK(device.wait_event(IBV_EVENT_QP_REQ_ERR, lane.target.get()));
	}
	CHECK(describe(drain(other.cq)) == "0 completions");
}

/* The fast path remembers which queue the last message has named. */
TEST_CASE("a queue that is gone gives no rights, although the last message has named it")
{
	Device device;
	const Xrcd xrcd = open_domain(device);
	auto gone = std::make_unique<Shared>(device, xrcd);
	const auto number = gone->number;
	Lane lane(device, xrcd);

	for (std::uint32_t tag = 1; tag < 4; tag++) {
		gone->post(tag);
		lane.send(*gone, tag, 64);
		check_received(lane, *gone, tag, tag, 64);
		wait_success(lane.a.send_cq);
	}
	gone.reset(); /* and its protection domain, whose place in memory the next one may have */
	const Shared next(device, xrcd);
	lane.post_to(number, Send(IBV_WR_RDMA_WRITE, {lane.from.sge(0, 8)})
				     .remote(next.memory.address(), next.memory.rkey()));
	check_status(wait_completions(lane.a.send_cq, 1).front(), IBV_WC_REM_INV_REQ_ERR,
		     PEAL_REASON_XRC_SRQ);
	CHECK(describe(drain(next.cq)) == "0 completions");
}

TEST_CASE("messages that name two queues in turn use the keys of each")
{
	Device device;
	const Xrcd xrcd = open_domain(device);
	const Shared one(device, xrcd), two(device, xrcd);
	Lane lane(device, xrcd);

	const auto write_to = [&](const Shared &named, const Shared &owner, std::uint32_t tag) {
		fill_pattern(lane.from.bytes(0, 500), tag);
		lane.post_to(named.number,
			     Send(IBV_WR_RDMA_WRITE, {lane.from.sge(0, 500)})
				     .remote(owner.memory.address(), owner.memory.rkey()));
	};
	for (std::uint32_t round = 0; round < 24; round++) {
		const Shared &to = round / 3 % 2 ? two : one;

		INFO("round " << round);
		write_to(to, to, round);
		wait_success(lane.a.send_cq);
		CHECK(difference(to.memory.bytes(0, 500), pattern_of(500, round)) == "");
		if (round % 4)
			continue;
		const Shared &receiver = round % 8 ? one : two;
		receiver.post(1);
		lane.send(receiver, round, 100);
		check_received(lane, receiver, 1, round, 100);
		wait_success(lane.a.send_cq);
	}
	write_to(two, one, 99);
	check_status(wait_completions(lane.a.send_cq, 1).front(), IBV_WC_REM_ACCESS_ERR,
		     PEAL_REASON_RKEY_PD);
	CHECK(difference(one.memory.bytes(0, 500), pattern_of(500, 99)) != "");
}

TEST_CASE("the number of a shared receive queue has 24 bits")
{
	Device device;
	const Xrcd xrcd = open_domain(device);
	const Shared shared(device, xrcd);
	Lane lane(device, xrcd);

	shared.post(1);
	lane.post_to(shared.number | 0xff000000,
		     Send(IBV_WR_SEND_WITH_IMM, {lane.from.sge(0, 8)}).imm(7));
	wait_success(lane.a.send_cq);
	CHECK(wait_success(shared.cq).front().wr_id == 1);
}

TEST_CASE("a queue may go while a sender waits for its receives")
{
	Device device;
	const Xrcd xrcd = open_domain(device);
	const Shared stays(device, xrcd);
	auto goes = std::make_unique<Shared>(device, xrcd);
	Link link;
	link.min_rnr_timer = 14; /* 1 ms */
	Lane lane(device, xrcd, link), second(device, xrcd, link);

	lane.send(*goes, 1, 8);
	second.send(stays, 2, 64);
	CHECK(describe(drain(lane.a.send_cq)) == "0 completions");
	goes.reset();
	check_status(wait_completions(lane.a.send_cq, 1).front(), IBV_WC_REM_INV_REQ_ERR,
		     PEAL_REASON_XRC_SRQ);
	stays.post(4);
	check_received(second, stays, 4, 2, 64);
	wait_success(second.a.send_cq);
}

TEST_CASE("one list of messages to many queues notifies each of them")
{
	constexpr std::uint32_t count = 20;
	Device device;
	const Xrcd xrcd = open_domain(device);
	Channel channel(ibv_create_comp_channel(device), "create_comp_channel");
	std::vector<std::unique_ptr<Shared>> all;
	std::vector<Send> list;
	Lane lane(device, xrcd);

	for (std::uint32_t i = 0; i < count; i++) {
		all.push_back(std::make_unique<Shared>(device, xrcd, channel));
		all.back()->post(1);
		all.back()->post(2);
		must(ibv_req_notify_cq(all.back()->cq, 0), "req_notify_cq");
		fill_pattern(lane.from.bytes(i * 64, 64), i);
	}
	for (std::uint32_t i = 0; i < 2 * count; i++) {
		Send send(IBV_WR_SEND_WITH_IMM, {lane.from.sge(i % count * 64, 64)});

		send.wr.qp_type.xrc.remote_srqn = all[i % count]->number;
		list.push_back(send.imm(i % count));
	}
	ibv_send_wr *bad = nullptr;
	must(post_list(lane.a.qp, list, &bad), "post_send");
	for (std::uint32_t i = 0; i < count; i++) {
		ibv_cq *cq = nullptr;
		void *context;

		REQUIRE(readable(channel->fd, patience));
		must(ibv_get_cq_event(channel, &cq, &context), "get_cq_event");
		ibv_ack_cq_events(cq, 1);
	}
	for (std::uint32_t i = 0; i < count; i++) {
		check_received(lane, *all[i], 1, i, 64);
		check_received(lane, *all[i], 2, i, 64);
	}
	wait_success(lane.a.send_cq, 2 * count);
}

TEST_CASE("queues and targets go while messages flow")
{
	Device device;
	const Xrcd xrcd = open_domain(device);
	Link link;
	link.retry_cnt = 1;

	for (std::uint32_t round = 0; round < 16; round++) {
		std::vector<std::unique_ptr<Shared>> all;
		std::vector<std::uint32_t> numbers;

		for (int i = 0; i < 3; i++) {
			all.push_back(std::make_unique<Shared>(device, xrcd));
			numbers.push_back(all.back()->number);
			for (std::uint64_t id = 0; id < 8; id++)
				all.back()->post(id);
		}
		Lane lane(device, xrcd, link);
		std::thread sender([&] {
			for (std::uint32_t i = 0; i < 30; i++) {
				Send send(IBV_WR_SEND, {lane.from.sge(0, 1 + i * 273)});

				send.wr.qp_type.xrc.remote_srqn = numbers[i % 3];
				try_post(lane.a.qp, std::move(send));
				std::this_thread::yield();
			}
		});
		if (round % 4 < 2)
			eventually([&] { return !drain(all[2]->cq).empty(); });
		all[round % 3].reset();
		if (round % 2)
			lane.target.reset();
		sender.join();
	}
	const Shared shared(device, xrcd);
	Lane lane(device, xrcd);
	shared.post(1);
	lane.send(shared, 3, 300);
	check_received(lane, shared, 1, 3, 300);
}

TEST_CASE("the limit of an XRC queue is told")
{
	Device device;
	const Xrcd xrcd = open_domain(device);
	const Shared shared(device, xrcd);
	Lane lane(device, xrcd);
	ibv_srq_attr attr{};

	for (std::uint64_t i = 0; i < 4; i++)
		shared.post(i);
	attr.srq_limit = 3;
	must(ibv_modify_srq(shared.srq, &attr, IBV_SRQ_LIMIT), "modify_srq");
	attr.max_wr = 32;
	must(ibv_modify_srq(shared.srq, &attr, IBV_SRQ_MAX_WR), "resize");
	for (std::uint32_t i = 0; i < 3; i++) {
		lane.send(shared, i, 16);
		check_received(lane, shared, i, i, 16);
		CHECK(device.count_events(IBV_EVENT_SRQ_LIMIT_REACHED, shared.srq.get()) ==
		      (i > 0));
	}
	wait_success(lane.a.send_cq, 3);
}

TEST_CASE("ibv_wr: a message names its queue")
{
	Device device;
	const Xrcd xrcd = open_domain(device);
	const Shared shared(device, xrcd);
	auto options = initiator();
	options.send_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ;
	Endpoint a(device, options);
	const Region from(a.pd, bytes);
	const Qp target = create_target(device, xrcd);
	connect_initiator(a.qp, device, target->qp_num, {});
	connect_target(target, device, a.qp->qp_num, {});
	ibv_qp_ex *qp = ibv_qp_to_qp_ex(a.qp);
	REQUIRE(qp);

	shared.post(1);
	fill_pattern(from.bytes(0, 1000), 9);
	ibv_wr_start(qp);
	qp->wr_id = 5;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_xrc_srqn(qp, shared.number);
	ibv_wr_set_sge(qp, from.lkey(), from.address(), 1000);
	must(ibv_wr_complete(qp), "wr_complete");
	CHECK(wait_success(a.send_cq).front().wr_id == 5);
	CHECK(wait_success(shared.cq).front().wr_id == 1);
	CHECK(difference(shared.buffer(1, 1000), pattern_of(1000, 9)) == "");
}

TEST_CASE("a target lives as long as a process has it open")
{
	File file;
	int up[2], down[2];
	REQUIRE(!pipe(up));
	REQUIRE(!pipe(down));
	/* Makes the target, and ends when told. */
	const pid_t child = spawn([&] {
		std::uint32_t source = 0;
		Device device;
		const Xrcd xrcd = open_domain(device, file.fd());
		const Qp target = create_target(device, xrcd);
		const std::uint32_t number = target->qp_num;

		if (write(up[1], &number, 4) != 4 || read(down[0], &source, 4) != 4)
			return 1;
		connect_target(target, device, source, {});
		if (write(up[1], &number, 4) != 4 || read(down[0], &source, 4) != 4)
			return 1;
		_exit(0); /* without destroying the target */
	});
	std::uint32_t number = 0;
	REQUIRE(read(up[0], &number, 4) == 4);
	Device device;
	const Xrcd xrcd = open_domain(device, file.fd(), 0);
	const Shared shared(device, xrcd);
	ibv_qp_open_attr open{};
	open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	open.qp_num = number;
	open.xrcd = xrcd;
	open.qp_type = IBV_QPT_XRC_RECV;
	Qp opened(ibv_open_qp(device, &open), "open_qp");
	CHECK(opened->qp_num == number);
	Endpoint a(device, initiator());
	const Region from(a.pd, bytes);
	connect_initiator(a.qp, device, number, {});
	REQUIRE(write(down[1], &a.qp->qp_num, 4) == 4);
	REQUIRE(read(up[0], &number, 4) == 4);

	const auto send = [&](std::uint32_t tag) {
		Send message(IBV_WR_SEND, {from.sge(0, 777)});

		fill_pattern(from.bytes(0, 777), tag);
		message.wr.qp_type.xrc.remote_srqn = shared.number;
		post(a.qp, std::move(message));
	};
	shared.post(1);
	send(1);
	CHECK(wait_success(shared.cq).front().qp_num == number);
	CHECK(difference(shared.buffer(1, 777), pattern_of(777, 1)) == "");
	REQUIRE(write(down[1], &number, 4) == 4);
	CHECK(end_of(child) == 0);
	shared.post(2);
	send(2);
	CHECK(wait_success(shared.cq).front().wr_id == 2);
	CHECK(difference(shared.buffer(2, 777), pattern_of(777, 2)) == "");
	wait_success(a.send_cq, 2);
	CHECK(query_state(opened) == IBV_QPS_RTS);
	/* The last handle goes, and so does the target. */
	opened.reset();
	shared.post(3);
	send(3);
	CHECK(status_name(wait_completions(a.send_cq, 1, 30s).front().status) ==
	      status_name(IBV_WC_RETRY_EXC_ERR));
	errno = 0;
	CHECK_FALSE(ibv_open_qp(device, &open));
	close(up[0]);
	close(up[1]);
	close(down[0]);
	close(down[1]);
}
