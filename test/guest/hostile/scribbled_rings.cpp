// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 180
/*
 * The kernel trusts nothing that a program writes into shared memory.
 *
 * Holds: Every malformed ring entry, index and request alone leads to the right reason. A program
 * scribbles over everything that it has mapped, while the data of another program on the same
 * device stays right.
 * Does not hold: packets from the wire (test/fuzz), bad keys (verbs/failed_requests).
 * PEAL_FUZZ_SECONDS, default 8, is how long the scribbling takes.
 */
#include "exchange.hpp"
#include "innocent.hpp"
#include "raw.hpp"

#include <thread>

using namespace peal_test;

namespace {

std::string peal_status(const peal_cqe &cqe)
{
	return status_name(cqe.status) + " (" + reason_name(cqe.vendor_err) + ")";
}

struct Stage {
	Device device;
	RawContext context;
};

#define STAGE_OR_SKIP(name)                                                                        \
	if (!is_peal())                                                                            \
		SKIP_CASE("the rings are those of peal");                                          \
	Stage name

RawSend request(std::uint8_t opcode, std::uint8_t flags = PEAL_WQE_SIGNALED)
{
	RawSend send;

	send.header.opcode = opcode;
	send.header.flags = flags;
	return send;
}

/* Posts one entry to a fresh queue pair. Its completion must fail with this reason. */
void check_refused(Stage &stage, const RawSend &send, peal_reason reason, const std::string &what)
{
	INFO(what);
	RawQp qp(stage.context, stage.device);
	peal_cqe cqe{};

	qp.post(send);
	REQUIRE(qp.wait(cqe));
	const auto status =
		reason == PEAL_REASON_WQE_LENGTH || reason == PEAL_REASON_WQE_ATOMIC_LENGTH
			? IBV_WC_LOC_LEN_ERR
			: IBV_WC_LOC_QP_OP_ERR;
	CHECK(peal_status(cqe) == status_name(status) + " (" + reason_name(reason) + ")");
	CHECK(cqe.wqe_index == 0);
	CHECK(cqe.qp_index == qp.index());
	CHECK(cqe.qp_num == qp.number());
	CHECK(static_cast<int>(cqe.kind) == PEAL_CQE_SEND);
	CHECK(state_name(qp.state()) == "ERR");
	CHECK_FALSE(qp.cq().poll(cqe));
}

/* After a jump of an index come errors or nothing, but never more completions than slots. */
void check_survives(RawQp &qp, std::uint32_t most)
{
	std::uint32_t count = 0;
	peal_cqe cqe{};

	while (count <= most && qp.wait(cqe, absence))
		count++;
	CHECK(count <= most);
}

void check_producer_jump(Stage &stage, std::uint32_t by)
{
	INFO("producer + " << by);
	RawQp qp(stage.context, stage.device);
	peal_cqe cqe{};

	qp.publish(qp.sq_next() + by);
	CHECK(eventually([&] { return qp.state() == IBV_QPS_ERR; }));
	if (qp.wait(cqe, absence))
		CHECK(reason_name(cqe.vendor_err) == "RING_INDEX");
	check_survives(qp, 2 * qp.response().sq_entries);
}

/* -------------------------------------------------------------- scribbler */

struct Target {
	std::uint8_t *base;
	std::size_t bytes;
};

/* Writes random words to random places, most of them near the start, where control words are. */
void scribble(const std::vector<Target> &targets, std::uint64_t salt, const std::atomic<bool> &stop)
{
	Random random(salt);

	while (!stop.load(std::memory_order_relaxed)) {
		const auto &target = targets[random.between(0, targets.size() - 1)];
		const auto limit = random.between(0, 2) ? std::min<std::size_t>(target.bytes, 2048)
							: target.bytes;
		auto *at = target.base + (random.between(0, limit - 8) & ~7ULL);
		const auto value = random.between(0, 2) ? random.word() : random.between(0, 40);
		std::atomic_ref(*reinterpret_cast<std::uint64_t *>(at)).store(value);
	}
}

/* Posts plausible requests, so that the kernel works on the memory that is scribbled over. */
void work_on(RawQp &qp, Random &random)
{
	for (int i = 0; i < 200; i++) {
		RawSend send =
			request(static_cast<std::uint8_t>(random.between(1, PEAL_OP_COUNT - 1)));
		send.header.remote_addr = qp.memory().address(random.between(0, 1000) * 8);
		send.header.rkey = qp.rkey();
		const bool atomic = send.header.opcode == PEAL_OP_CMP_SWAP ||
				    send.header.opcode == PEAL_OP_FETCH_ADD;
		const auto length = atomic ? 8 : random.between(0, 5000);
		send.sge(qp.sge(20000, static_cast<std::uint32_t>(length)), atomic ? 16 : 0);
		qp.post_recv(30000, 6000);
		qp.post(send);
		peal_cqe cqe{};
		qp.cq().poll(cqe);
	}
}

/* Scribbles over one queue pair after the other while it works. */
int scribble_for(Duration time, std::uint64_t salt)
{
	Device device;
	RawContext context;
	Random random(salt);
	const Stopwatch watch;

	while (watch.elapsed() < time) {
		RawQp qp(context, device);
		std::atomic<bool> stop = false;
		const std::vector<Target> targets{
			{qp.map().at(), qp.map().bytes()},
			{qp.cq().map().at(), qp.cq().map().bytes()},
			{context.doorbell_map().at(), sizeof(peal_doorbell)},
		};
		std::thread thread(scribble, std::cref(targets), random.word(), std::cref(stop));
		work_on(qp, random);
		stop = true;
		thread.join();
	}
	return 0;
}

std::string create_cq_with(const RawContext &context, std::span<const std::uint32_t> driver)
{
	ib_uverbs_create_cq request{};
	ib_uverbs_create_cq_resp response{};
	peal_create_cq_resp resp{};

	request.cqe = 16;
	request.comp_channel = -1;
	return errno_name(context.device().command(IB_USER_VERBS_CMD_CREATE_CQ, request, response,
						   std::as_bytes(driver), uv::out(resp)));
}

std::string map_error(int fd, std::uint64_t offset, std::size_t bytes)
{
	void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			static_cast<off_t>(offset));
	if (at == MAP_FAILED)
		return errno_name(errno);
	munmap(at, bytes);
	return "0";
}

} // namespace

TEST_CASE("well-formed entries work")
{
	STAGE_OR_SKIP(stage);
	RawQp qp(stage.context, stage.device);
	RawSend send = request(PEAL_OP_WRITE);
	send.header.remote_addr = qp.memory().address(page_bytes);
	send.header.rkey = qp.rkey();
	send.sge(qp.sge(0, 100));
	std::memset(qp.memory().data(), 0x42, 100);
	peal_cqe cqe{};

	for (unsigned i = 0; i < 5 * qp.response().sq_entries; i++) {
		qp.post(send);
		REQUIRE(qp.wait(cqe));
		REQUIRE(peal_status(cqe) == "success (NONE)");
		REQUIRE(cqe.wqe_index == i);
	}
	CHECK(all_equal(qp.memory().bytes(page_bytes, 100), 0x42));
	CHECK(all_equal(qp.memory().bytes(page_bytes + 100, 100), 0));
}

TEST_CASE("the layout of a queue pair's mapping")
{
	STAGE_OR_SKIP(stage);
	RawQp qp(stage.context, stage.device);
	const auto &resp = qp.response();

	CHECK(resp.comp_mask == 0);
	CHECK((resp.sq_entries & (resp.sq_entries - 1)) == 0);
	CHECK((resp.rq_entries & (resp.rq_entries - 1)) == 0);
	CHECK(resp.sq_stride % PEAL_WQE_UNIT == 0);
	CHECK(resp.sq_offset >= sizeof(peal_qp_ctl));
	CHECK(resp.sq_offset + resp.sq_entries * resp.sq_stride <= resp.map_bytes);
	CHECK(resp.rq_offset + resp.rq_entries * resp.rq_stride <= resp.map_bytes);
	CHECK(resp.rq_offset >= resp.sq_offset + resp.sq_entries * resp.sq_stride);
	CHECK(resp.sq_stride >= 32 + 16 * qp.max_sge());
	CHECK(resp.sq_stride >= 32 + qp.max_inline());
}

TEST_CASE("opcodes that do not exist, or that are not for programs")
{
	STAGE_OR_SKIP(stage);

	for (unsigned opcode = 0; opcode < 256; opcode++)
		if (opcode == 0 || opcode == PEAL_OP_REG_MR || opcode >= PEAL_OP_COUNT)
			check_refused(stage, request(static_cast<std::uint8_t>(opcode)),
				      PEAL_REASON_WQE_OPCODE, "opcode " + std::to_string(opcode));
	check_works(stage.device);
}

TEST_CASE("flags and reserved fields")
{
	STAGE_OR_SKIP(stage);

	for (unsigned bit = 0x10; bit <= 0x80; bit <<= 1)
		check_refused(stage, request(PEAL_OP_WRITE, static_cast<std::uint8_t>(bit)),
			      PEAL_REASON_WQE_FLAGS, "flag " + std::to_string(bit));
	auto send = request(PEAL_OP_WRITE);
	send.header.reserved0 = 1;
	check_refused(stage, send, PEAL_REASON_WQE_RESERVED, "reserved0");
	send = request(PEAL_OP_WRITE);
	send.header.reserved1 = 1U << 31;
	check_refused(stage, send, PEAL_REASON_WQE_RESERVED, "reserved1");
}

TEST_CASE("numbers of entries")
{
	STAGE_OR_SKIP(stage);
	const auto most = RawQp(stage.context, stage.device).max_sge();

	for (unsigned count : {most + 1, 33U, 64U, 128U, 255U}) {
		auto send = request(PEAL_OP_WRITE);
		send.header.num_sge = static_cast<std::uint8_t>(count);
		check_refused(stage, send, PEAL_REASON_WQE_NUM_SGE,
			      "num_sge " + std::to_string(count));
	}
}

TEST_CASE("inline data")
{
	STAGE_OR_SKIP(stage);
	const std::uint8_t flags = PEAL_WQE_SIGNALED | PEAL_WQE_INLINE;
	const auto most = RawQp(stage.context, stage.device).max_inline();

	for (std::uint32_t length : {most + 1, 513U, 4096U, 0x80000000U, 0xffffffffU}) {
		auto send = request(PEAL_OP_WRITE, flags);
		send.header.inline_len = length;
		check_refused(stage, send, PEAL_REASON_WQE_INLINE,
			      "inline_len " + std::to_string(length));
	}
	auto send = request(PEAL_OP_WRITE);
	send.header.inline_len = 8;
	check_refused(stage, send, PEAL_REASON_WQE_INLINE, "inline_len without the flag");
	for (std::uint8_t opcode : {PEAL_OP_READ, PEAL_OP_FETCH_ADD, PEAL_OP_BIND_MW})
		check_refused(stage, request(opcode, flags), PEAL_REASON_WQE_INLINE, "inline in");
	send = request(PEAL_OP_WRITE, flags);
	send.header.num_sge = 1;
	check_refused(stage, send, PEAL_REASON_WQE_NUM_SGE, "inline and an entry");
}

TEST_CASE("lengths")
{
	STAGE_OR_SKIP(stage);
	auto send = request(PEAL_OP_WRITE);
	send.sge({0, 0xffffffff, 1}).sge({0, 0xffffffff, 1});
	check_refused(stage, send, PEAL_REASON_WQE_LENGTH, "nearly 8 GiB");

	for (unsigned length : {0, 4, 7, 9, 16}) {
		send = request(PEAL_OP_FETCH_ADD);
		send.sge({0, length, 1}, 16);
		check_refused(stage, send, PEAL_REASON_WQE_ATOMIC_LENGTH, "atomic");
	}
	check_refused(stage, request(PEAL_OP_CMP_SWAP), PEAL_REASON_WQE_ATOMIC_LENGTH, "no entry");
	send = request(PEAL_OP_CMP_SWAP);
	send.sge({0, 4, 1}, 16).sge({0, 4, 1}, 16);
	check_refused(stage, send, PEAL_REASON_WQE_ATOMIC_LENGTH, "two entries");
}

TEST_CASE("malformed receives")
{
	STAGE_OR_SKIP(stage);
	const std::vector<peal_recv_wqe> bad{
		{5, {}}, {33, {}}, {0xffffffff, {}}, {1, {1, 0, 0}}, {0, {0, 0, 0x80000000}},
	};

	for (const auto &header : bad) {
		INFO("num_sge " << header.num_sge);
		RawQp qp(stage.context, stage.device);
		peal_cqe first{}, second{};
		qp.write_recv(header, {});
		qp.publish_recv();
		qp.post(request(PEAL_OP_SEND));
		REQUIRE(qp.wait(first));
		REQUIRE(qp.wait(second));
		if (first.kind == PEAL_CQE_SEND)
			std::swap(first, second);
		CHECK(reason_name(first.vendor_err) == "RECV_WQE");
		CHECK(status_name(first.status) != "success");
		CHECK(status_name(second.status) != "success");
		CHECK(state_name(qp.state()) == "ERR");
	}
}

TEST_CASE("producer indices that jump")
{
	STAGE_OR_SKIP(stage);
	const auto entries = RawQp(stage.context, stage.device).response().sq_entries;

	for (std::uint32_t by :
	     {entries + 1, 2 * entries, 1U << 30, 1U << 31, 0U - 1, 0U - entries})
		check_producer_jump(stage, by);
	check_works(stage.device);
}

TEST_CASE("producer indices of receives that jump")
{
	STAGE_OR_SKIP(stage);
	const auto entries = RawQp(stage.context, stage.device).response().rq_entries;

	for (std::uint32_t by : {entries + 1, 1U << 31, 0U - 1}) {
		INFO("producer + " << by);
		RawQp qp(stage.context, stage.device);
		qp.publish_recv(by);
		qp.post(request(PEAL_OP_SEND));
		peal_cqe cqe{};
		REQUIRE(qp.wait(cqe));
		CHECK(status_name(cqe.status) != "success");
		CHECK(reason_name(cqe.vendor_err) == "RECV_RING_INDEX");
		check_survives(qp, 2 * entries);
	}
}

TEST_CASE("kernel words that the program overwrites")
{
	STAGE_OR_SKIP(stage);
	RawQp qp(stage.context, stage.device);
	peal_cqe cqe{};

	for (std::uint32_t value : {0U, 1U, 0xffffffffU, 0x80000000U}) {
		qp.control().sq.consumer = qp.control().rq.consumer = value;
		qp.control().sq.flags = qp.control().rq.flags = value;
		qp.post_recv(0, 100);
		qp.post(request(PEAL_OP_SEND));
		REQUIRE(qp.wait(cqe));
		REQUIRE(qp.wait(cqe));
		CHECK(peal_status(cqe) == "success (NONE)");
	}
}

TEST_CASE("consumer index and arming of a completion queue")
{
	STAGE_OR_SKIP(stage);

	for (std::uint32_t value : {1U << 31, 0U - 1, 1000000U}) {
		INFO("consumer " << value);
		RawQp qp(stage.context, stage.device);
		for (unsigned i = 0; i < 10 * qp.response().sq_entries; i++) {
			qp.cq().control().consumer = value;
			qp.cq().control().arm = value * i;
			qp.cq().control().fired = value * (i + i % 2);
			qp.post(request(PEAL_OP_WRITE));
		}
		CHECK(eventually([&] {
			const auto state = qp.state();
			return state == IBV_QPS_ERR || state == IBV_QPS_RTS;
		}));
	}
	check_works(stage.device);
}

TEST_CASE("doorbell bits of queue pairs that do not exist")
{
	STAGE_OR_SKIP(stage);
	auto &doorbell = stage.context.doorbell();
	RawQp qp(stage.context, stage.device);
	peal_cqe cqe{};

	for (auto &bits : doorbell.bits)
		std::atomic_ref(bits).store(~0ULL);
	for (std::uint32_t engine : {2U, 77U, 0U, 1U}) {
		std::atomic_ref(doorbell.engine).store(engine);
		qp.post(request(PEAL_OP_WRITE));
		REQUIRE(qp.wait(cqe));
		CHECK(peal_status(cqe) == "success (NONE)");
	}
	check_works(stage.device);
}

TEST_CASE("kicks that make no sense")
{
	STAGE_OR_SKIP(stage);
	RawQp qp(stage.context, stage.device);
	RawContext other;

	for (std::uint32_t index : {qp.index() + 1000, 0xffffffffU, 0x80000000U}) {
		CHECK(errno_name(stage.context.kick(PEAL_IOC_KICK_SEND, index)) == "ENOENT");
		CHECK(errno_name(stage.context.kick(PEAL_IOC_KICK_RECV, index)) == "ENOENT");
	}
	CHECK(errno_name(other.kick(PEAL_IOC_KICK_SEND, qp.index())) == "ENOENT");
	CHECK(errno_name(stage.context.kick(_IO(PEAL_IOC_MAGIC, 99), qp.index())) == "ENOTTY");
	CHECK(errno_name(stage.context.kick(PEAL_IOC_KICK_SEND, qp.index())) == "0");
	qp.destroy();
	CHECK(errno_name(stage.context.kick(PEAL_IOC_KICK_SEND, qp.index())) == "ENOENT");
}

/* Writes a completion as if the kernel had completed a send of this queue pair. */
void forge_completion(const RawCq &cq, std::uint32_t qp_num)
{
	auto &cqe = *cq.map().at<peal_cqe>(PEAL_CQ_RING_OFFSET);

	cqe.qp_num = qp_num;
	cqe.wqe_index = 0x1000;
	cqe.kind = PEAL_CQE_SEND;
	std::atomic_ref(cqe.flags).store(PEAL_CQE_PHASE, std::memory_order_release);
}

TEST_CASE("the kernel's commands do not read a program's completion queue")
{
	STAGE_OR_SKIP(stage);
	/* The count, and one completion. */
	std::array<std::uint64_t, (sizeof(ib_uverbs_poll_cq_resp) + sizeof(ib_uverbs_wc)) / 8>
		response{};

	/* Numbers of its own queue pair, of a kernel user's (the GSI), and of none. */
	for (const bool own : {true, false})
		for (const std::uint32_t number : {1U, 0xfffffeU}) {
			RawQp qp(stage.context, stage.device);
			ib_uverbs_poll_cq poll{};

			forge_completion(qp.cq(), own ? qp.number() : number);
			poll.cq_handle = qp.cq().handle();
			poll.ne = 1;
			CHECK(errno_name(stage.context.device().command(
				      IB_USER_VERBS_CMD_POLL_CQ, poll, response)) == "EOPNOTSUPP");
			CHECK(std::count(response.begin(), response.end(), 0) ==
			      static_cast<std::ptrdiff_t>(response.size()));
		}
	check_works(stage.device);
}

TEST_CASE("a kick for receives wakes only senders to its queue")
{
	STAGE_OR_SKIP(stage);
	Endpoint asker(stage.device), answerer(stage.device);
	Region from(asker.pd, page_bytes), to(answerer.pd, page_bytes);
	Link link;

	link.rnr_retry = 3;
	link.min_rnr_timer = 0; /* 655 ms each */
	connect(asker, answerer, link);
	post(asker.qp, Send(IBV_WR_SEND, {from.sge(0, 32)}));
	RawQp stranger(stage.context, stage.device, {.peer = asker.qp->qp_num});
	for (int i = 0; i < 100; i++)
		CHECK(stage.context.kick(PEAL_IOC_KICK_RECV, stranger.index()) == 0);
	CHECK(describe(drain(asker.send_cq)) == "0 completions");
	post_recv(answerer.qp, 1, {to.sge(0, 64)});
	wait_success(asker.send_cq);
}

TEST_CASE("mappings that are not offered")
{
	STAGE_OR_SKIP(stage);
	RawQp qp(stage.context, stage.device);
	RawContext other;
	const auto fd = stage.context.fd();
	const auto offset = qp.response().map_offset;
	const auto bytes = qp.response().map_bytes;

	CHECK(map_error(fd, offset, bytes) == "0");
	CHECK(map_error(fd, offset, bytes + page_bytes) != "0");
	CHECK(map_error(fd, offset + (1ULL << 40), bytes) != "0");
	qp.destroy();
	CHECK(map_error(fd, offset, bytes) != "0");
	/* The mapped memory stays harmless memory. */
	std::memset(qp.map().at(), 0xff, qp.map().bytes());
	for (std::uint64_t page = 0; page < 64; page++)
		if (map_error(other.fd(), page * page_bytes, page_bytes) == "0")
			CHECK(page * page_bytes == other.response().doorbell_offset);
}

TEST_CASE("an XRC initiator has a receive ring that nothing reads")
{
	STAGE_OR_SKIP(stage);
	const auto &context = stage.context;
	const auto pd = context.alloc_pd();
	RawCq cq(context, 16);
	ib_uverbs_create_qp request{};
	ib_uverbs_create_qp_resp response{};
	const peal_create_qp_req driver{};
	peal_create_qp_resp shape{};

	request.pd_handle = pd;
	request.send_cq_handle = cq.handle();
	request.max_send_wr = 4;
	request.max_send_sge = 1;
	request.qp_type = IBV_QPT_XRC_SEND;
	must(context.device().command(IB_USER_VERBS_CMD_CREATE_QP, request, response,
				      uv::in(driver), uv::out(shape)),
	     "CREATE_QP");
	Map map(context.fd(), shape.map_offset, shape.map_bytes);
	map.at<peal_qp_ctl>()->rq.producer = 1;
	ib_uverbs_modify_qp modify{};
	modify.qp_handle = response.qp_handle;
	modify.attr_mask = init_mask;
	modify.qp_state = IBV_QPS_INIT;
	modify.port_num = 1;
	must(context.device().command(IB_USER_VERBS_CMD_MODIFY_QP, modify), "to INIT");
	modify.attr_mask = IBV_QP_STATE;
	modify.qp_state = IBV_QPS_ERR;
	must(context.device().command(IB_USER_VERBS_CMD_MODIFY_QP, modify), "MODIFY_QP");
	CHECK(errno_name(context.kick(PEAL_IOC_KICK_RECV, shape.qp_index)) == "0");
	CHECK(errno_name(context.kick(PEAL_IOC_KICK_SEND, shape.qp_index)) == "0");
	peal_cqe cqe{};
	CHECK_FALSE(cq.poll(cqe));
	ib_uverbs_destroy_qp destroy{};
	ib_uverbs_destroy_qp_resp destroyed{};
	destroy.qp_handle = response.qp_handle;
	must(context.device().command(IB_USER_VERBS_CMD_DESTROY_QP, destroy, destroyed),
	     "DESTROY_QP");
	context.dealloc_pd(pd);
}

TEST_CASE("requests of the future are refused, short and absent ones work")
{
	STAGE_OR_SKIP(stage);
	const auto &context = stage.context;
	const std::array<std::uint32_t, 8> zeros{}, mask{1}, reserved{0, 64}, longer{0, 0, 0, 0, 5};

	CHECK(create_cq_with(context, {}) == "0");
	CHECK(create_cq_with(context, std::span(zeros).first(1)) == "0");
	CHECK(create_cq_with(context, std::span(zeros).first(2)) == "0");
	CHECK(create_cq_with(context, zeros) == "0");
	CHECK(create_cq_with(context, std::span(mask).first(2)) == "EINVAL");
	CHECK(create_cq_with(context, std::span(reserved).first(2)) == "EINVAL");
	CHECK(create_cq_with(context, longer) == "EINVAL");
}

TEST_CASE("a process that scribbles harms only itself")
{
	STAGE_OR_SKIP(stage);
	const auto time = time_from("PEAL_FUZZ_SECONDS", 8);

	check_beside(stage.device, time, 2,
		     [=](std::uint64_t salt) { return scribble_for(time, salt); });
	check_works(stage.device);
}
