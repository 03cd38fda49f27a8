// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
// transport: any
/*
 * A raw packet queue pair with an indirection table spreads its frames to work queues.
 *
 * Holds: Each frame arrives with its bytes at the work queue that a Toeplitz hash of this test
 * names, for IPv4 and IPv6, UDP and TCP, fragments, and several sets of fields. A frame without a
 * field goes to the first entry. A work queue has the right states, flushes its receives, and
 * reports an error by an event. Frames that it cannot take are dropped and counted. Receives may
 * lie in memory found on demand. Objects in use stay. Objects are destroyed while frames come, and
 * the device is removed. Wrong attributes get their errno.
 * Does not hold: the published values of the hash (unit test), hostile rings
 * (hostile/scribbled_work_queues).
 */
#include "commands.hpp"
#include "counters.hpp"
#include "frames.hpp"
#include "spread.hpp"

#include <atomic>
#include <thread>

using namespace peal_test;

namespace {

FrameShape shape_of(std::uint16_t type, std::uint8_t protocol)
{
	FrameShape shape;

	shape.type = type;
	shape.protocol = protocol;
	return shape;
}

/* Bit by bit, from the definition. */
std::uint32_t toeplitz(const Bytes &input)
{
	std::uint32_t hash = 0;

	for (std::size_t i = 0; i < 8 * input.size(); i++) {
		std::uint32_t bits = 0;

		for (std::size_t j = i; j < i + 32; j++)
			bits = bits << 1 | (hash_key[j / 8] >> (7 - j % 8) & 1);
		if (input[i / 8] >> (7 - i % 8) & 1)
			hash ^= bits;
	}
	return hash;
}

std::uint32_t hash_of(const FrameShape &shape, std::uint64_t fields, bool fragment = false)
{
	const bool ipv4 = shape.type == 0x0800, ipv6 = shape.type == 0x86dd;
	const bool tcp = shape.protocol == 6, udp = shape.protocol == 17;
	Bytes input;

	const auto wants = [&](bool has, std::uint64_t field) { return has && fields & field; };
	const auto from = address(ipv6 ? shape.from_ip6 : shape.from_ip);
	const auto to = address(ipv6 ? shape.to_ip6 : shape.to_ip);

	if (wants(ipv4, IBV_RX_HASH_SRC_IPV4) || wants(ipv6, IBV_RX_HASH_SRC_IPV6))
		put(input, std::span(from).first(ipv4 ? 4 : 16));
	if (wants(ipv4, IBV_RX_HASH_DST_IPV4) || wants(ipv6, IBV_RX_HASH_DST_IPV6))
		put(input, std::span(to).first(ipv4 ? 4 : 16));
	if (fragment || !(ipv4 || ipv6))
		return toeplitz(input);
	if (wants(tcp, IBV_RX_HASH_SRC_PORT_TCP) || wants(udp, IBV_RX_HASH_SRC_PORT_UDP))
		put(input, shape.from_port, 2);
	if (wants(tcp, IBV_RX_HASH_DST_PORT_TCP) || wants(udp, IBV_RX_HASH_DST_PORT_UDP))
		put(input, shape.to_port, 2);
	return toeplitz(input);
}

struct Stage {
	Device device;
	Spread spread;
	Flow flow{Rule().to(station).create(spread.qp)};
	Wire wire{"veth1"};

	explicit Stage(std::uint64_t fields = all_fields) : spread(device, fields)
	{
		spread.ready();
	}
	/* The frame arrives, and it does so at this entry of the table. */
	void check(const Bytes &frame, std::uint32_t hash)
	{
		Spread::Queue &queue = spread.entry(hash);

		wire.send(frame);
		const auto got = spread.take();
		CHECK(got.number == queue.wq->wq_num);
		CHECK(difference(got.bytes, frame) == "");
	}
};

std::uint64_t flushed(Spread::Queue &queue, std::size_t count)
{
	std::uint64_t next = 0;

	for (const auto &wc : wait_completions(queue.cq, count)) {
		CHECK(status_name(wc.status) == status_name(IBV_WC_WR_FLUSH_ERR));
		CHECK(wc.qp_num == queue.wq->wq_num);
		next = wc.wr_id;
	}
	return next;
}

int modify(ibv_wq *wq, ibv_wq_state to)
{
	ibv_wq_attr attr{};

	attr.attr_mask = IBV_WQ_ATTR_STATE;
	attr.wq_state = to;
	return ibv_modify_wq(wq, &attr);
}

} // namespace

TEST_CASE("frames go where the hash says")
{
	const std::uint64_t sets[] = {
		all_fields, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_IPV6,
		IBV_RX_HASH_DST_IPV6 | IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_UDP,
		IBV_RX_HASH_DST_PORT_TCP};
	const std::array from{"10.9.0.1", "10.9.7.77", "192.0.2.200"};
	const std::array from6{"fd99::1", "fd99:8:7::77", "2001:db8::1:2:3"};

	for (const std::uint64_t fields : sets) {
		Stage stage(fields);

		INFO("fields " << std::hex << fields);
		for (const std::uint16_t type : {0x0800, 0x86dd, 0x88b5})
			for (const std::uint8_t protocol : {6, 17, 1})
				for (std::size_t i = 0; i < from.size(); i++) {
					FrameShape shape = shape_of(type, protocol);

					shape.from_ip = from[i];
					shape.from_ip6 = from6[i];
					shape.from_port = static_cast<std::uint16_t>(3000 + 77 * i);
					shape.to_port = static_cast<std::uint16_t>(6000 - 7 * i);
					shape.salt = i + protocol;
					stage.check(frame_of(shape), hash_of(shape, fields));
				}
	}
}

TEST_CASE("tagged frames and fragments")
{
	Stage stage;
	FrameShape tagged = shape_of(0x0800, 17), ipv4 = tagged;

	tagged.vlan = 0x123;
	stage.check(frame_of(tagged), hash_of(tagged, all_fields));
	/* The first fragment has ports, and goes where the others go. */
	for (const std::uint16_t offset : {0x2000, 0x2005, 0x0007}) {
		Bytes frame = frame_of(ipv4);

		put_at(frame, 14 + 6, offset);
		put_at(frame, 14 + 10, 0);
		put_at(frame, 14 + 10, ip_checksum(std::span(frame).subspan(14, 20)));
		stage.check(frame, hash_of(ipv4, all_fields, true));
	}
}

TEST_CASE("checksums of spread frames are told")
{
	Stage stage;
	const FrameShape shape = shape_of(0x0800, 17);
	Bytes wrong = frame_of(shape);

	stage.wire.send(wrong);
	CHECK(stage.spread.take().wc.wc_flags & IBV_WC_IP_CSUM_OK);
	wrong.back() ^= 1;
	stage.wire.send(wrong);
	CHECK_FALSE(stage.spread.take().wc.wc_flags & IBV_WC_IP_CSUM_OK);
}

TEST_CASE("a table of one entry needs no field")
{
	Device device;
	Spread spread(device, 0, 0);
	const Flow flow = Rule().to(station).create(spread.qp);
	const Wire wire{"veth1"};

	spread.ready();
	wire.send(frame_of({}));
	CHECK(difference(spread.take().bytes, frame_of({})) == "");
}

TEST_CASE("frames that no work queue takes are counted")
{
	Stage stage;
	const FrameShape shape = shape_of(0x0800, 17);
	Spread::Queue &queue = stage.spread.entry(hash_of(shape, all_fields));
	auto before = counter("drop_receive");

	/* One of Spread::depth receives is left after these. */
	for (std::size_t i = 0; i < Spread::depth; i++) {
		stage.wire.send(frame_of(shape));
		CHECK(eventually([&] { return drain(queue.cq).size() == 1; }));
	}
	stage.wire.send(frame_of(shape));
	CHECK(eventually([&] { return counter("drop_receive") == before + 1; }));

	/* A short receive waits for a frame that fits. */
	before = counter("drop_length");
	FrameShape small = shape;
	small.payload = 1;
	queue.post(3, 60);
	stage.wire.send(frame_of(shape));
	CHECK(eventually([&] { return counter("drop_length") == before + 1; }));
	stage.wire.send(frame_of(small));
	CHECK(wait_success(queue.cq).front().wr_id == 3);

	before = counter("drop_state");
	CHECK(modify(queue.wq, IBV_WQS_RESET) == 0);
	stage.wire.send(frame_of(shape));
	CHECK(eventually([&] { return counter("drop_state") == before + 1; }));
}

TEST_CASE("states of a work queue")
{
	Stage stage;
	const FrameShape shape = shape_of(0x0800, 17);
	const auto hash = hash_of(shape, all_fields);
	Spread::Queue &queue = stage.spread.entry(hash);
	ibv_wq_attr attr{};

	CHECK(errno_name(modify(queue.wq, static_cast<ibv_wq_state>(3))) == "EINVAL");
	CHECK(modify(queue.wq, IBV_WQS_RDY) == 0);
	attr = {IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE, IBV_WQS_RDY, IBV_WQS_RESET, 0, 0};
	CHECK(errno_name(ibv_modify_wq(queue.wq, &attr)) == "EINVAL");
	attr = {IBV_WQ_ATTR_FLAGS, IBV_WQS_RDY, IBV_WQS_RDY, 1, 1};
	CHECK(errno_name(ibv_modify_wq(queue.wq, &attr)) == "EOPNOTSUPP");
	attr = {0, IBV_WQS_RDY, IBV_WQS_RDY, 0, 0};
	CHECK(errno_name(ibv_modify_wq(queue.wq, &attr)) == "EINVAL");

	/* In error all receives are flushed, in order, and so is what is posted then. */
	CHECK(modify(queue.wq, IBV_WQS_ERR) == 0);
	CHECK(flushed(queue, Spread::depth) == Spread::depth - 1);
	queue.post(99);
	CHECK(flushed(queue, 1) == 99);
	CHECK(errno_name(modify(queue.wq, IBV_WQS_RDY)) == "EINVAL");
	CHECK(stage.device.count_events(queue.wq.get()) == 0);

	CHECK(modify(queue.wq, IBV_WQS_RESET) == 0);
	CHECK(errno_name(queue.try_post(1)) == "EINVAL");
	CHECK(errno_name(modify(queue.wq, IBV_WQS_ERR)) == "EINVAL");
	CHECK(modify(queue.wq, IBV_WQS_RDY) == 0);
	CHECK(drain(queue.cq).empty());
	/* A change to RESET forgets receives, and completions that were not polled. */
	queue.post(0);
	queue.post(1);
	stage.wire.send(frame_of(shape));
	CHECK(eventually([&] { return counter("frames_received") > 0; }));
	CHECK(modify(queue.wq, IBV_WQS_RESET) == 0);
	CHECK(modify(queue.wq, IBV_WQS_RDY) == 0);
	CHECK(drain(queue.cq).empty());
	queue.post(0);
	stage.check(frame_of(shape), hash);
}

TEST_CASE("a receive that cannot be used ends its work queue only")
{
	Stage stage;
	const FrameShape shape = shape_of(0x0800, 17);
	const auto hash = hash_of(shape, all_fields);
	Spread::Queue &queue = stage.spread.entry(hash);

	CHECK(modify(queue.wq, IBV_WQS_RESET) == 0);
	CHECK(modify(queue.wq, IBV_WQS_RDY) == 0);
	queue.post(5, Spread::slot_bytes, 0xdead00);
	queue.post(6);
	queue.post(7);
	stage.wire.send(frame_of(shape));
	const auto failed = wait_completion(queue.cq);
	CHECK(failed.wr_id == 5);
	CHECK(status_name(failed.status) == status_name(IBV_WC_LOC_PROT_ERR));
	CHECK(reason_name(failed.vendor_err) == "RECV_LKEY_UNKNOWN");
	CHECK(flushed(queue, 2) == 7);
	CHECK(stage.device.wait_event(IBV_EVENT_WQ_FATAL, queue.wq.get()));
	queue.post(8);
	CHECK(flushed(queue, 1) == 8);

	FrameShape other = shape;
	while (&stage.spread.entry(hash_of(other, all_fields)) == &queue)
		other.from_port++;
	stage.check(frame_of(other), hash_of(other, all_fields));
}

TEST_CASE("frames are received in memory found on demand, when its pages are there")
{
	Stage stage;
	if (!has_on_demand_paging(stage.device))
		SKIP_CASE("this kernel has no on-demand paging");
	const FrameShape shape = shape_of(0x0800, 17);
	const Bytes frame = frame_of(shape);
	Spread::Queue &queue = stage.spread.entry(hash_of(shape, all_fields));
	Memory memory(2 * page_bytes);
	Mr mr(ibv_reg_mr(stage.spread.pd, memory.data(), memory.size(),
			 all_access | IBV_ACCESS_ON_DEMAND),
	      "reg_mr");
	ibv_sge sge{memory.address(page_bytes - 10), 2048, mr->lkey};
	ibv_recv_wr wr{}, *bad = nullptr;

	wr.sg_list = &sge;
	wr.num_sge = 1;
	CHECK(modify(queue.wq, IBV_WQS_RESET) == 0);
	CHECK(modify(queue.wq, IBV_WQS_RDY) == 0);
	for (int round = 0; round < 4; round++) {
		must(madvise(memory.data(), memory.size(), MADV_DONTNEED) ? errno : 0, "madvise");
		must(ibv_post_wq_recv(queue.wq, &wr, &bad), "post_wq_recv");
		/* Frames are lost until the pages are there. The receive waits. */
		CHECK(eventually([&] {
			stage.wire.send(frame);
			usleep(2000);
			return drain(queue.cq).size() == 1;
		}));
		CHECK(difference(memory.bytes(page_bytes - 10, frame.size()), frame) == "");
	}

	munmap(memory.data() + page_bytes, page_bytes);
	must(ibv_post_wq_recv(queue.wq, &wr, &bad), "post_wq_recv");
	std::vector<ibv_wc> failed;
	CHECK(eventually([&] {
		stage.wire.send(frame);
		usleep(2000);
		failed = drain(queue.cq);
		return failed.size() == 1;
	}));
	check_status(failed.at(0), IBV_WC_LOC_PROT_ERR, PEAL_REASON_RECV_LKEY_PAGE);
	CHECK(stage.device.wait_event(IBV_EVENT_WQ_FATAL, queue.wq.get()));
}

TEST_CASE("a completion queue that overflows ends the work queue")
{
	Stage stage;
	const FrameShape shape = shape_of(0x0800, 17);
	Pd pd(ibv_alloc_pd(stage.device), "alloc_pd");
	Spread::Queue queue(stage.device, pd, 1, 64);
	ibv_wq *entry = queue.wq;
	const IndTable table(stage.device, {entry});
	auto init = spread_attributes(pd, table, all_fields);
	const Qp qp(ibv_create_qp_ex(stage.device, &init), "create_qp");
	const Flow flow = Rule(IBV_FLOW_ATTR_NORMAL, 0).to(everyone).create(qp);
	FrameShape to_all = shape;

	to_all.to = everyone;
	CHECK(modify(queue.wq, IBV_WQS_RDY) == 0);
	for (std::uint64_t i = 0; i < 64; i++)
		queue.post(i % Spread::depth);
	CHECK(eventually([&] {
		stage.wire.send(frame_of(to_all));
		return stage.device.count_events(IBV_EVENT_WQ_FATAL, queue.wq.get()) == 1;
	}));
}

TEST_CASE("objects in use stay")
{
	Stage stage;
	Spread &spread = stage.spread;

	CHECK(errno_name(ibv_destroy_qp(spread.qp)) == "EBUSY");
	CHECK(errno_name(ibv_destroy_rwq_ind_table(*spread.table)) == "EBUSY");
	CHECK(errno_name(ibv_destroy_wq(spread.queues[0].wq)) == "EBUSY");
	CHECK(errno_name(ibv_destroy_cq(spread.queues[0].cq)) == "EBUSY");
}

TEST_CASE("the queue pair neither posts nor changes its state")
{
	Stage stage;
	ibv_qp *qp = stage.spread.qp;
	ibv_qp_attr attr{};
	ibv_qp_init_attr init{};
	ibv_recv_wr recv{}, *bad_recv = nullptr;
	ibv_send_wr send{}, *bad_send = nullptr;

	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	CHECK(errno_name(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT)) == "EOPNOTSUPP");
	attr.qp_state = IBV_QPS_RESET;
	CHECK(errno_name(ibv_modify_qp(qp, &attr, IBV_QP_STATE)) == "EOPNOTSUPP");
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init) == 0);
	CHECK(attr.cap.max_recv_wr == 0);
	CHECK(attr.cap.max_send_wr == 0);
	CHECK(errno_name(ibv_post_recv(qp, &recv, &bad_recv)) == "EINVAL");
	CHECK(errno_name(ibv_post_send(qp, &send, &bad_send)) == "EINVAL");
}

TEST_CASE("everything is destroyed while frames come")
{
	Device device;
	const Wire wire{"veth1"};
	/*
	 * A rule that stays keeps the hook. Otherwise the kernel would patch code that another CPU
	 * runs all the time, and QEMU's emulation may loop for ever then.
	 */
	const RawEnd other(device);
	const Flow stays = Rule().to(everyone).create(other.qp);
	std::atomic<bool> stop = false;
	std::thread sender([&] {
		for (std::uint16_t port = 1; !stop; port++) {
			FrameShape shape = shape_of(0x0800, 17);

			shape.from_port = port;
			wire.send(frame_of(shape));
		}
	});

	for (int i = 0; i < 20; i++) {
		Spread spread(device, all_fields);
		Flow flow = Rule().to(station).create(spread.qp);

		spread.ready();
		CHECK(eventually([&] {
			return std::any_of(spread.queues.begin(), spread.queues.end(),
					   [](auto &queue) { return !drain(queue.cq).empty(); });
		}));
		if (i & 1)
			for (auto &queue : spread.queues)
				CHECK(modify(queue.wq, IBV_WQS_ERR) == 0);
	}
	stop = true;
	sender.join();
}

TEST_CASE("the device tells what it has")
{
	Device device;
	ibv_device_attr_ex attr{};

	REQUIRE(ibv_query_device_ex(device, nullptr, &attr) == 0);
	CHECK(attr.rss_caps.supported_qpts == 1 << IBV_QPT_RAW_PACKET);
	CHECK(attr.rss_caps.max_rwq_indirection_tables >= 1);
	CHECK(attr.rss_caps.max_rwq_indirection_table_size == PEAL_MAX_IND_TABLE);
	CHECK(attr.rss_caps.rx_hash_fields_mask == all_fields);
	CHECK(attr.rss_caps.rx_hash_function == IBV_RX_HASH_FUNC_TOEPLITZ);
	CHECK(attr.max_wq_type_rq >= 1);
	CHECK(attr.raw_packet_caps == IBV_RAW_PACKET_CAP_IP_CSUM);
}

TEST_CASE("work queues and tables that are refused")
{
	Device device, other;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	const Cq cq(create_cq(device, 16)), foreign(create_cq(other, 16));
	const auto error = [&](std::function<void(ibv_wq_init_attr &)> change) {
		ibv_wq_init_attr init = wq_attributes(pd, cq);

		change(init);
		ibv_wq *wq = ibv_create_wq(device, &init);
		const int result = wq ? 0 : errno;
		if (wq)
			ibv_destroy_wq(wq);
		return errno_name(result);
	};

	CHECK(error([](auto &) {}) == "0");
	CHECK(error([](auto &init) { init.max_wr = PEAL_MAX_QP_WR; }) == "0");
	CHECK(error([](auto &init) { init.max_sge = PEAL_MAX_SGE; }) == "0");
	CHECK(error([](auto &init) { init.max_wr = 0; }) == "EINVAL");
	CHECK(error([](auto &init) { init.max_wr = PEAL_MAX_QP_WR + 1; }) == "EINVAL");
	CHECK(error([](auto &init) { init.max_sge = PEAL_MAX_SGE + 1; }) == "EINVAL");
	CHECK(error([](auto &init) { init.wq_type = static_cast<ibv_wq_type>(1); }) == "EINVAL");
	CHECK(error([](auto &init) { init.comp_mask = 1 << 5; }) == "EINVAL");
	CHECK(error([](auto &init) { init.pd = nullptr; }) == "EINVAL");
	CHECK(error([&](auto &init) { init.cq = foreign; }) == "EINVAL");
	for (const std::uint32_t flag : {1U, 2U, 4U, 8U, 1U << 31})
		CHECK(error([=](auto &init) {
			      init.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
			      init.create_flags = flag;
		      }) == "EOPNOTSUPP");

	const Spread::Queue queue(device, pd, 16, 16);
	std::vector<ibv_wq *> many(1 << 10, queue.wq.get());
	ibv_rwq_ind_table_init_attr init{10, many.data(), 0};
	CHECK(ibv_create_rwq_ind_table(device, &init) == nullptr);
	CHECK(errno_name(errno) == "EINVAL");
	init = {0, many.data(), 1};
	CHECK(ibv_create_rwq_ind_table(device, &init) == nullptr);
	CHECK(errno_name(errno) == "EINVAL");
	init = {0, many.data(), 0};
	CHECK(ibv_create_rwq_ind_table(other, &init) == nullptr);
	CHECK(errno_name(errno) == "EINVAL");
	init = {9, many.data(), 0};
	ibv_rwq_ind_table *largest = ibv_create_rwq_ind_table(device, &init);
	REQUIRE(largest);
	CHECK(ibv_destroy_rwq_ind_table(largest) == 0);
}

TEST_CASE("queue pairs that are refused")
{
	Stage stage;
	Device &device = stage.device;
	const Cq cq(create_cq(device, 16));
	std::array<std::uint8_t, 255> key{};
	const auto error = [&](std::function<void(ibv_qp_init_attr_ex &)> change) {
		auto init = spread_attributes(stage.spread.pd, *stage.spread.table, all_fields);

		change(init);
		ibv_qp *qp = ibv_create_qp_ex(device, &init);
		const int result = qp ? 0 : errno;
		if (qp)
			ibv_destroy_qp(qp);
		return errno_name(result);
	};

	CHECK(error([](auto &) {}) == "0");
	CHECK(error([](auto &i) { i.rx_hash_conf.rx_hash_fields_mask = 0; }) == "EINVAL");
	for (const std::uint64_t bit : {1ULL << 8, 1ULL << 31, 1ULL << 40})
		CHECK(error([=](auto &i) { i.rx_hash_conf.rx_hash_fields_mask |= bit; }) ==
		      "EOPNOTSUPP");
	for (const std::uint8_t function : {0, 2, 3})
		CHECK(error([=](auto &i) { i.rx_hash_conf.rx_hash_function = function; }) ==
		      "EOPNOTSUPP");
	for (const std::uint8_t length : {0, 39, 41, 255})
		CHECK(error([&](auto &i) {
			      i.rx_hash_conf.rx_hash_key = key.data();
			      i.rx_hash_conf.rx_hash_key_len = length;
		      }) == "EINVAL");
	CHECK(error([](auto &i) { i.rx_hash_conf.rx_hash_key = nullptr; }) == "EINVAL");
	CHECK(error([](auto &i) { i.comp_mask &= ~IBV_QP_INIT_ATTR_RX_HASH; }) == "EINVAL");
	CHECK(error([](auto &i) { i.comp_mask &= ~IBV_QP_INIT_ATTR_IND_TABLE; }) == "EINVAL");
	CHECK(error([](auto &i) { i.rwq_ind_tbl = nullptr; }) == "EINVAL");
	CHECK(error([&](auto &i) { i.send_cq = cq; }) == "EINVAL");
	CHECK(error([&](auto &i) { i.recv_cq = cq; }) == "EINVAL");
	CHECK(error([](auto &i) { i.cap.max_send_wr = 1; }) == "EINVAL");
	CHECK(error([](auto &i) { i.cap.max_recv_wr = 1; }) == "EINVAL");
	for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UD})
		CHECK(error([=](auto &i) { i.qp_type = type; }) == "EOPNOTSUPP");
}

TEST_CASE("the device is removed while work queues are ready")
{
	tolerate_destroy_errors();
	run_command("ip link add gone1 address 02:00:00:00:00:02 type dummy");
	run_command("ip address add 10.98.0.1/24 dev gone1");
	run_command("ip link set gone1 up");
	run_command("rdma link add gone1 type peal netdev gone1");
	{
		Device device("gone1");
		Spread spread(device, all_fields);
		const Flow flow = Rule().to(station).create(spread.qp);

		spread.ready();
		run_command("rdma link del gone1");
		for (auto &queue : spread.queues)
			for (const auto &wc : wait_completions(queue.cq, Spread::depth))
				check_status(wc, IBV_WC_WR_FLUSH_ERR, PEAL_REASON_DEVICE_REMOVED);
		CHECK(errno_name(spread.queues[0].try_post(0)) == "EIO");
	}
	run_command("ip link del gone1");
}
