// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
// transport: any
/*
 * The kernel trusts nothing that a program writes into the ring of a work queue.
 *
 * Holds: A wrong producer index or a malformed receive ends its work queue with an event and a
 * reason, and no other. Kicks make sense or get an error. Requests for a hash with reserved bits
 * get EINVAL. A program scribbles over such rings while frames come, and another program goes on.
 * Does not hold: rings of queue pairs (hostile/scribbled_rings), right rings
 * (verbs/receive_side_scaling).
 * PEAL_FUZZ_SECONDS, default 4, is how long the scribbling takes.
 */
#include "frames.hpp"
#include "innocent.hpp"
#include "raw.hpp"
#include "spread.hpp"

#include <thread>

using namespace peal_test;

namespace {

constexpr std::uint32_t extended(std::uint32_t command)
{
	return command | IB_USER_VERBS_CMD_FLAG_EXTENDED;
}

/* A work queue with memory for its receives, made without libibverbs. */
class RawWq {
public:
	explicit RawWq(const RawContext &context, std::uint32_t depth = 16)
		: context_(context), memory_(16 * page_bytes), pd_(context.alloc_pd()),
		  cq_(context, 256)
	{
		ib_uverbs_ex_create_wq request{};
		ib_uverbs_ex_create_wq_resp response{};
		const peal_create_wq_req driver{};

		keys_ = context.register_memory(pd_, memory_);
		request.user_handle = name_;
		request.pd_handle = pd_;
		request.cq_handle = cq_.handle();
		request.max_wr = depth;
		request.max_sge = 4;
		must(context.device().command(extended(IB_USER_VERBS_EX_CMD_CREATE_WQ), request,
					      response, uv::in(driver), uv::out(resp_)),
		     "CREATE_WQ");
		handle_ = response.wq_handle;
		number_ = response.wqn;
		map_ = Map(context.fd(), resp_.map_offset, resp_.map_bytes);
		go(IBV_WQS_RDY);
	}
	~RawWq()
	{
		destroy();
		context_.deregister(keys_);
		context_.dealloc_pd(pd_);
	}
	RawWq(const RawWq &) = delete;
	RawWq &operator=(const RawWq &) = delete;

	void destroy()
	{
		ib_uverbs_ex_destroy_wq request{};
		ib_uverbs_ex_destroy_wq_resp response{};

		request.wq_handle = std::exchange(handle_, 0);
		if (request.wq_handle)
			must(context_.device().command(extended(IB_USER_VERBS_EX_CMD_DESTROY_WQ),
						       request, response),
			     "DESTROY_WQ");
	}
	void go(ibv_wq_state state) const
	{
		ib_uverbs_ex_modify_wq request{};

		request.attr_mask = IBV_WQ_ATTR_STATE;
		request.wq_handle = handle_;
		request.wq_state = state;
		must(context_.device().command(extended(IB_USER_VERBS_EX_CMD_MODIFY_WQ), request),
		     "MODIFY_WQ");
	}
	std::uint64_t name() const { return name_; }
	std::uint32_t handle() const { return handle_; }
	std::uint32_t pd() const { return pd_; }
	std::uint32_t number() const { return number_; }
	const peal_create_wq_resp &response() const { return resp_; }
	const Map &map() const { return map_; }
	const Memory &memory() const { return memory_; }
	peal_ring_ctl &control() const { return *map_.at<peal_ring_ctl>(); }
	void publish(std::uint32_t producer) const
	{
		std::atomic_ref(control().producer).store(producer, std::memory_order_seq_cst);
	}
	int kick() const { return context_.kick(PEAL_IOC_KICK_WQ, resp_.wq_index); }
	/* Posts a receive of the first page, with this header. */
	void post(const peal_recv_wqe &header = {1, {}})
	{
		const peal_sge sge{memory_.address(), page_bytes, keys_.lkey};
		auto *slot =
			map_.at(resp_.slots_offset + (next_ & (resp_.entries - 1)) * resp_.stride);

		std::memcpy(slot, &header, sizeof(header));
		std::memcpy(slot + sizeof(header), &sge, sizeof(sge));
		publish(++next_);
	}
	bool poll(peal_cqe &cqe) { return cq_.poll(cqe); }
	std::optional<peal_cqe> wait()
	{
		peal_cqe cqe{};

		return eventually([&] { return cq_.poll(cqe); }) ? std::optional(cqe)
								 : std::nullopt;
	}

private:
	static inline std::uint64_t names_ = 0x2000;

	const RawContext &context_;
	const std::uint64_t name_ = names_++;
	Memory memory_;
	std::uint32_t pd_;
	RawCq cq_;
	Keys keys_{};
	std::uint32_t handle_ = 0, number_ = 0, next_ = 0;
	peal_create_wq_resp resp_{};
	Map map_;
};

peal_create_rss_qp_req hash_request()
{
	peal_create_rss_qp_req request{};

	request.rx_hash_fields = all_fields;
	request.rx_hash_function = PEAL_RX_HASH_TOEPLITZ;
	request.rx_hash_key_len = PEAL_RX_HASH_KEY_BYTES;
	return request;
}

/* A table of one entry, and a queue pair that has a rule for the frames to this station. */
class RawSpread {
public:
	RawSpread(const RawContext &context, const RawWq &wq, const Mac &to = station)
		: context_(context)
	{
		struct {
			std::uint32_t comp_mask = 0, log_entries = 0, handle;
		} request{.handle = wq.handle()};
		ib_uverbs_ex_create_rwq_ind_table_resp response{};

		must(context.device().command(extended(IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL),
					      request, response),
		     "CREATE_RWQ_IND_TBL");
		table_ = response.ind_tbl_handle;
		pd_ = wq.pd();
		must(create(hash_request(), qp_), "CREATE_QP");
		add_rule(to);
	}
	~RawSpread()
	{
		ib_uverbs_destroy_flow flow{};
		ib_uverbs_ex_destroy_rwq_ind_table table{};

		flow.flow_handle = flow_;
		table.ind_tbl_handle = table_;
		context_.device().command(extended(IB_USER_VERBS_EX_CMD_DESTROY_FLOW), flow);
		destroy(qp_);
		context_.device().command(extended(IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL),
					  table);
	}
	RawSpread(const RawSpread &) = delete;
	RawSpread &operator=(const RawSpread &) = delete;

	int create(const peal_create_rss_qp_req &driver, std::uint32_t &handle) const
	{
		ib_uverbs_ex_create_qp request{};
		ib_uverbs_ex_create_qp_resp response{};

		request.pd_handle = pd_;
		request.qp_type = IBV_QPT_RAW_PACKET;
		request.comp_mask = IB_UVERBS_CREATE_QP_MASK_IND_TABLE;
		request.rwq_ind_tbl_handle = table_;
		const int error =
			context_.device().command(extended(IB_USER_VERBS_EX_CMD_CREATE_QP), request,
						  response, uv::in(driver));
		handle = response.base.qp_handle;
		return error;
	}
	void destroy(std::uint32_t handle) const
	{
		ib_uverbs_destroy_qp request{};
		ib_uverbs_destroy_qp_resp response{};

		request.qp_handle = handle;
		context_.device().command(IB_USER_VERBS_CMD_DESTROY_QP, request, response);
	}

private:
	void add_rule(const Mac &to)
	{
		constexpr std::size_t fixed = sizeof(ib_uverbs_create_flow);
		ib_uverbs_create_flow header{};
		ib_uverbs_flow_spec_eth eth{};
		std::array<std::byte, fixed + sizeof(eth)> request;
		ib_uverbs_create_flow_resp response{};

		header.qp_handle = qp_;
		header.flow_attr.size = sizeof(eth);
		header.flow_attr.num_of_specs = 1;
		header.flow_attr.port = 1;
		eth.type = IBV_FLOW_SPEC_ETH;
		eth.size = sizeof(eth);
		std::copy(to.begin(), to.end(), eth.val.dst_mac);
		std::memset(eth.mask.dst_mac, 0xff, 6);
		std::memcpy(request.data(), &header, fixed);
		std::memcpy(request.data() + fixed, &eth, sizeof(eth));
		must(context_.device().command_bytes(extended(IB_USER_VERBS_EX_CMD_CREATE_FLOW),
						     request, uv::out(response)),
		     "CREATE_FLOW");
		flow_ = response.flow_handle;
	}

	const RawContext &context_;
	std::uint32_t pd_ = 0, table_ = 0, qp_ = 0, flow_ = 0;
};

struct Stage {
	Device device;
	RawContext context;
	Wire wire{"veth1"};
	Bytes frame = frame_of({});

	/* As in verbs/receive_side_scaling, a rule that stays keeps the hook. */
	std::unique_ptr<RawWq> other;
	std::unique_ptr<RawSpread> stays;

	Stage()
	{
		context.open_events();
		other = std::make_unique<RawWq>(context);
		stays = std::make_unique<RawSpread>(context, *other, group);
	}
	std::size_t errors(const RawWq &wq)
	{
		return context.count_events(IBV_EVENT_WQ_FATAL, wq.name());
	}
	/* The frame arrives in a receive that is posted now. */
	void check_works(RawWq &wq)
	{
		std::memset(wq.memory().data(), 0, page_bytes);
		wq.post();
		wire.send(frame);
		const auto cqe = wq.wait();
		REQUIRE(cqe);
		CHECK(status_name(cqe->status) == "success");
		CHECK(cqe->kind == PEAL_CQE_WQ_RECV);
		CHECK(cqe->qp_index == wq.response().wq_index);
		CHECK(cqe->qp_num == wq.number());
		CHECK(difference(wq.memory().bytes(0, cqe->byte_len), frame) == "");
	}
	void check_ends(RawWq &wq, peal_reason reason)
	{
		wire.send(frame);
		const auto cqe = wq.wait();
		REQUIRE(cqe);
		CHECK(status_name(cqe->status) == status_name(IBV_WC_LOC_QP_OP_ERR));
		CHECK(reason_name(cqe->vendor_err) == reason_name(reason));
		CHECK(eventually([&] { return errors(wq) == 1; }));
	}
};

#define STAGE_OR_SKIP(name)                                                                        \
	if (!is_peal())                                                                            \
		SKIP_CASE("the rings are those of peal");                                          \
	Stage name

} // namespace

TEST_CASE("the layout of a work queue's mapping")
{
	STAGE_OR_SKIP(stage);

	for (const std::uint32_t depth : {1U, 5U, 16U, 1000U}) {
		const RawWq wq(stage.context, depth);
		const auto &resp = wq.response();

		CHECK(resp.comp_mask == 0);
		CHECK(resp.entries >= depth);
		CHECK((resp.entries & (resp.entries - 1)) == 0);
		CHECK(resp.slots_offset >= sizeof(peal_ring_ctl));
		CHECK(resp.stride % PEAL_WQE_UNIT == 0);
		CHECK(resp.stride >= 16 + 16 * 4);
		CHECK(resp.slots_offset + resp.entries * resp.stride <= resp.map_bytes);
	}
}

TEST_CASE("producer indices of work queues that jump")
{
	STAGE_OR_SKIP(stage);
	RawWq other(stage.context);
	const RawSpread other_spread(stage.context, other, everyone);

	for (const std::uint32_t by : {17U, 32U, 1U << 31, ~0U}) {
		INFO("producer " << by);
		RawWq wq(stage.context);
		const RawSpread spread(stage.context, wq);

		stage.check_works(wq);
		wq.publish(1 + by);
		stage.check_ends(wq, PEAL_REASON_RECV_RING_INDEX);
		CHECK(stage.errors(other) == 0);
	}
}

TEST_CASE("malformed receives of work queues")
{
	STAGE_OR_SKIP(stage);

	for (const peal_recv_wqe &bad :
	     {peal_recv_wqe{5, {}}, {33, {}}, {~0U, {}}, {1, {1, 0, 0}}, {0, {0, 0, 1U << 31}}}) {
		INFO("num_sge " << bad.num_sge);
		RawWq wq(stage.context);
		const RawSpread spread(stage.context, wq);

		wq.post(bad);
		wq.post();
		stage.check_ends(wq, PEAL_REASON_RECV_WQE);
		const auto cqe = wq.wait();
		REQUIRE(cqe);
		CHECK(reason_name(cqe->vendor_err) == "FLUSHED");
		CHECK(cqe->wqe_index == 1);
		CHECK(wq.control().flags == PEAL_RING_WANTS_KICK);
	}
}

TEST_CASE("kernel words of a work queue that the program overwrites, and kicks")
{
	STAGE_OR_SKIP(stage);
	auto wq = std::make_unique<RawWq>(stage.context);
	const auto index = wq->response().wq_index;
	{
		const RawSpread spread(stage.context, *wq);

		for (const std::uint32_t value : {0U, 1U, ~0U, 1U << 31}) {
			wq->control().consumer = wq->control().flags = value;
			CHECK(wq->kick() == 0);
			stage.check_works(*wq);
		}
	}
	for (const std::uint32_t wrong : {index + 1000, ~0U, 1U << 31})
		CHECK(errno_name(stage.context.kick(PEAL_IOC_KICK_WQ, wrong)) == "ENOENT");
	CHECK(errno_name(RawContext().kick(PEAL_IOC_KICK_WQ, index)) == "ENOENT");
	wq->destroy();
	CHECK(errno_name(stage.context.kick(PEAL_IOC_KICK_WQ, index)) == "ENOENT");
	std::memset(wq->map().at(), 0xff, wq->map().bytes()); /* harmless memory */
}

TEST_CASE("requests for a hash that make no sense")
{
	STAGE_OR_SKIP(stage);
	const RawWq wq(stage.context);
	const RawSpread spread(stage.context, wq);
	const auto error = [&](auto change) {
		peal_create_rss_qp_req request = hash_request();
		std::uint32_t handle = 0;

		change(request);
		const int result = spread.create(request, handle);
		if (!result)
			spread.destroy(handle);
		return errno_name(result);
	};

	CHECK(error([](auto &) {}) == "0");
	CHECK(error([](auto &r) { r.comp_mask = 1; }) == "EINVAL");
	CHECK(error([](auto &r) { r.reserved = 1; }) == "EINVAL");
	CHECK(error([](auto &r) { r.reserved1[5] = 1; }) == "EINVAL");
	CHECK(error([](auto &r) { r.rx_hash_key_len = 41; }) == "EINVAL");
	CHECK(error([](auto &r) { r.rx_hash_function = 0; }) == "EOPNOTSUPP");
	CHECK(error([](auto &r) { r.rx_hash_fields = 1ULL << 63; }) == "EOPNOTSUPP");
	CHECK(error([](auto &r) { r = {}; }) == "EOPNOTSUPP");
}

namespace {

int scribble_for(Duration time, std::uint64_t salt)
{
	Stage stage;
	Random random(salt);
	const Stopwatch watch;

	while (watch.elapsed() < time) {
		RawWq wq(stage.context);
		const RawSpread spread(stage.context, wq,
				       random.between(0, 1) ? station : everyone);
		FrameShape shape;
		peal_cqe cqe{};

		shape.to = random.between(0, 1) ? station : everyone;
		for (int i = 0; i < 200; i++) {
			const auto limit = random.between(0, 2) ? 600 : wq.map().bytes();
			auto *at = wq.map().at(random.between(0, limit - 4) & ~3ULL);
			const auto value =
				random.between(0, 2) ? random.between(0, 40) : random.word();

			std::atomic_ref(*reinterpret_cast<std::uint32_t *>(at))
				.store(static_cast<std::uint32_t>(value));
			if (!random.between(0, 3))
				wq.post();
			if (!random.between(0, 7))
				wq.kick();
			if (!random.between(0, 3))
				stage.wire.send(frame_of(shape));
			if (!random.between(0, 63)) {
				wq.go(IBV_WQS_RESET);
				wq.go(IBV_WQS_RDY);
			}
			wq.poll(cqe);
		}
	}
	return 0;
}

} // namespace

TEST_CASE("a process that scribbles over work queues harms only itself")
{
	STAGE_OR_SKIP(stage);
	const auto time = time_from("PEAL_FUZZ_SECONDS", 4);

	check_beside(stage.device, time, 2,
		     [=](std::uint64_t salt) { return scribble_for(time, salt); });
	RawWq wq(stage.context);
	const RawSpread spread(stage.context, wq);
	stage.check_works(wq);
}
