// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 240
/*
 * The control path: states and attributes of queue pairs, limits, many objects, leaks,
 * the netdev below.
 *
 * Holds: The table of states allows the right steps and refuses the others. A query returns what a
 * modify has set. A queue pair can be used again after RESET, and SQD works. Unsupported features
 * and unknown driver data are refused. The limits of query_device are true. Many queue
 * pairs can exist, and their numbers cannot be guessed. Objects leave nothing behind. Port state,
 * MTU and GIDs follow the netdev. The speed of the port is the rate in sysfs.
 * Does not hold: removal of the device (lifecycle/device_removed_in_use), memory regions
 * (verbs/memory_regions).
 */
#include "commands.hpp"
#include "usage.hpp"
#include "uverbs.hpp"
#include "verbs.hpp"

#include <fstream>
#include <set>
#include <sstream>

using namespace peal_test;

namespace {

/* ------------------------------------------------------ the state table */

constexpr std::array states{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
			    IBV_QPS_RTS,   IBV_QPS_SQD,	 IBV_QPS_ERR};

bool allowed(ibv_qp_state from, ibv_qp_state to)
{
	switch (to) {
	case IBV_QPS_RESET:
		return true;
	case IBV_QPS_ERR:
		return from != IBV_QPS_RESET;
	case IBV_QPS_INIT:
		return from == IBV_QPS_RESET || from == IBV_QPS_INIT;
	case IBV_QPS_RTR:
		return from == IBV_QPS_INIT;
	case IBV_QPS_RTS:
		return from == IBV_QPS_RTR || from == IBV_QPS_RTS || from == IBV_QPS_SQD;
	case IBV_QPS_SQD:
		return from == IBV_QPS_RTS || from == IBV_QPS_SQD;
	default:
		return false;
	}
}

/* The attributes that each step of a type of queue pair requires (IBTA 11.2.5.2, core's table). */
struct Steps {
	ibv_qp_type type;
	int init, rtr, rts;
};

constexpr std::array steps{
	Steps{IBV_QPT_RC, init_mask, rtr_mask, rts_mask},
	Steps{IBV_QPT_UC, init_mask, uc_rtr_mask, IBV_QP_STATE | IBV_QP_SQ_PSN},
	Steps{IBV_QPT_UD, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
	      IBV_QP_STATE, IBV_QP_STATE | IBV_QP_SQ_PSN},
	Steps{IBV_QPT_XRC_SEND, init_mask, uc_rtr_mask, rts_mask},
	Steps{IBV_QPT_RAW_PACKET, IBV_QP_STATE | IBV_QP_PORT, IBV_QP_STATE, IBV_QP_STATE},
};

const Steps &steps_of(const Endpoint &endpoint)
{
	return *std::find_if(steps.begin(), steps.end(),
			     [&](const Steps &each) { return each.type == endpoint.qp->qp_type; });
}

/* With the attributes that this step requires. */
int try_step(Endpoint &endpoint, ibv_qp_state from, ibv_qp_state to)
{
	const Steps &its = steps_of(endpoint);
	ibv_qp_attr attr{};
	int mask = IBV_QP_STATE;

	if (to == IBV_QPS_INIT) {
		attr = init_attr();
		mask = from == IBV_QPS_RESET ? its.init : IBV_QP_STATE;
	} else if (to == IBV_QPS_RTR) {
		attr = rtr_attr(endpoint.device, endpoint.qp->qp_num, endpoint.device.gid());
		mask = its.rtr;
	} else if (to == IBV_QPS_RTS && (from == IBV_QPS_RTR || !allowed(from, to))) {
		attr = rts_attr();
		mask = its.rts;
	}
	attr.qp_state = to;
	return ibv_modify_qp(endpoint.qp, &attr, mask);
}

void bring_to(Endpoint &endpoint, ibv_qp_state state)
{
	static const std::array path{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD};
	auto from = IBV_QPS_RESET;

	if (state == IBV_QPS_RESET)
		return;
	for (auto next : path) {
		must(try_step(endpoint, from, next), "modify to " + state_name(next));
		from = next;
		if (next == state || (state == IBV_QPS_ERR && next == IBV_QPS_RTS))
			break;
	}
	if (state == IBV_QPS_ERR)
		to_state(endpoint.qp, IBV_QPS_ERR);
}

QpOptions of_type(ibv_qp_type type)
{
	QpOptions options;

	options.type = type;
	return options;
}

/* Leaves out each required attribute in turn. */
void check_required(Device &device, ibv_qp_type type, ibv_qp_state before, ibv_qp_attr attr,
		    int mask)
{
	for (int bit = 1; bit <= mask; bit <<= 1) {
		if (!(mask & bit) || bit == IBV_QP_STATE)
			continue;
		Endpoint endpoint(device, of_type(type));
		bring_to(endpoint, before);
		attr.dest_qp_num = endpoint.qp->qp_num;
		INFO("to " << state_name(attr.qp_state) << " without attribute " << bit);
		CHECK(errno_name(ibv_modify_qp(endpoint.qp, &attr, mask & ~bit)) == "EINVAL");
		CHECK(state_name(query_state(endpoint.qp)) == state_name(before));
	}
}

ibv_qp_attr query(ibv_qp *qp, ibv_qp_init_attr *init = nullptr)
{
	ibv_qp_attr attr{};
	ibv_qp_init_attr unused{};

	must(ibv_query_qp(qp, &attr, 0x1fffff, init ? init : &unused), "query_qp");
	return attr;
}

void ping(Pair &pair, std::uint64_t id)
{
	post_recv(pair.b.qp, id, {});
	post(pair.a.qp, Send(IBV_WR_SEND).id(id));
	CHECK(wait_success(pair.a.send_cq).front().wr_id == id);
	CHECK(wait_success(pair.b.recv_cq).front().wr_id == id);
}

/* ---------------------------------------------------------------- leaks */

/* Vmalloc areas that peal's module allocated. */
std::size_t vmalloc_areas()
{
	std::ifstream file("/proc/vmallocinfo");
	std::string line;
	std::size_t count = 0;

	while (std::getline(file, line))
		count += line.find("peal") != std::string::npos ||
			 line.find("vmalloc_user") != std::string::npos;
	return count;
}

void make_and_break(Device &device, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		Pair pair(device);
		Region region(pair.a.pd, 16 * page_bytes);
		ping(pair, i);
	}
}

/* --------------------------------------------------------------- netdev */

std::string read_line(const std::string &path)
{
	std::ifstream file(path);
	std::string line;

	std::getline(file, line);
	return line;
}

std::string netdev_of(const std::string &device)
{
	return read_line("/sys/class/infiniband/" + device + "/ports/1/gid_attrs/ndevs/0");
}

/* A veth pair with a device of its own. It goes with this object. */
class OwnDevice {
public:
	OwnDevice()
	{
		ok_ = !run("ip link add tctl0 type veth peer name tctl1 && ip link set tctl1 up && "
			   "ip addr add 10.78.0.1/24 dev tctl0 && ip link set tctl0 up") &&
		      !run("rdma link add " + name() + " type peal netdev tctl0");
	}
	~OwnDevice() { run("rdma link delete " + name() + "; ip link delete tctl0"); }
	OwnDevice(const OwnDevice &) = delete;
	OwnDevice &operator=(const OwnDevice &) = delete;
	static std::string name() { return "peal8"; }
	bool ok() const { return ok_; }

private:
	bool ok_;
};

bool has_gid(Device &device, std::uint8_t third, std::uint8_t last)
{
	ibv_gid_entry entries[64]{};
	const auto count = ibv_query_gid_table(device, entries, 64, 0);

	for (ssize_t i = 0; i < count; i++)
		if (entries[i].gid.raw[10] == 0xff && entries[i].gid.raw[14] == third &&
		    entries[i].gid.raw[15] == last)
			return true;
	return false;
}

} // namespace

TEST_CASE("the state table of every type of queue pair")
{
	Device device;
	const auto &type = GENERATE(from_range(steps.begin(), steps.end()));

	INFO("type " << type.type);
	for (auto from : states) {
		for (auto to : states) {
			Endpoint endpoint(device, of_type(type.type));
			bring_to(endpoint, from);
			INFO(state_name(from) << " to " << state_name(to));
			const bool may = allowed(from, to);
			CHECK(errno_name(try_step(endpoint, from, to)) == (may ? "0" : "EINVAL"));
			CHECK(state_name(query_state(endpoint.qp)) == state_name(may ? to : from));
		}
	}
}

TEST_CASE("each step requires its attributes")
{
	Device device;

	for (const auto &[type, init, rtr, rts] : steps) {
		INFO("type " << type);
		check_required(device, type, IBV_QPS_RESET, init_attr(), init);
		check_required(device, type, IBV_QPS_INIT, rtr_attr(device, 0, device.gid()), rtr);
		check_required(device, type, IBV_QPS_RTR, rts_attr(), rts);
	}
}

TEST_CASE("attributes that a step does not have are refused")
{
	Device device;

	for (const auto &[type, init, rtr, rts] : steps) {
		Endpoint endpoint(device, of_type(type));
		auto attr = init_attr();

		INFO("type " << type);
		attr.qp_state = IBV_QPS_INIT;
		CHECK(errno_name(ibv_modify_qp(endpoint.qp, &attr, init | IBV_QP_SQ_PSN)) ==
		      "EINVAL");
		bring_to(endpoint, IBV_QPS_RTS);
		attr = rts_attr();
		CHECK(errno_name(ibv_modify_qp(endpoint.qp, &attr,
					       IBV_QP_STATE | IBV_QP_PKEY_INDEX)) == "EINVAL");
		CHECK(errno_name(ibv_modify_qp(endpoint.qp, &attr, IBV_QP_STATE | IBV_QP_RQ_PSN)) ==
		      "EINVAL");
		attr.cur_qp_state = IBV_QPS_SQD;
		CHECK(errno_name(ibv_modify_qp(endpoint.qp, &attr,
					       IBV_QP_STATE | IBV_QP_CUR_STATE)) == "EINVAL");
		CHECK(state_name(query_state(endpoint.qp)) == "RTS");
	}
}

TEST_CASE("values that no queue pair can have are refused")
{
	Device device;
	Endpoint endpoint(device);
	const auto refuses = [&](ibv_qp_attr attr, int mask) {
		return errno_name(ibv_modify_qp(endpoint.qp, &attr, mask)) == "EINVAL";
	};
	auto init = init_attr();
	init.port_num = 2;
	CHECK(refuses(init, init_mask));
	init = init_attr();
	init.pkey_index = 0xffff;
	CHECK(refuses(init, init_mask));
	init = init_attr();
	init.qp_access_flags = 1U << 12;
	CHECK(refuses(init, init_mask));
	init = init_attr();
	init.qp_state = static_cast<ibv_qp_state>(7);
	CHECK(refuses(init, init_mask));
	to_init(endpoint.qp);

	const auto good = rtr_attr(device, endpoint.qp->qp_num, device.gid());
	auto bad = good;
	bad.ah_attr.grh.sgid_index = 250;
	CHECK(refuses(bad, rtr_mask));
	for (const int mtu : {0, 6, 9}) {
		bad = good;
		bad.path_mtu = static_cast<ibv_mtu>(mtu);
		CHECK(refuses(bad, rtr_mask));
	}
	bad = good;
	bad.min_rnr_timer = 32;
	CHECK(refuses(bad, rtr_mask));
	bad = good;
	bad.ah_attr.is_global = 0;
	CHECK(refuses(bad, rtr_mask));
	bad = good;
	for (const unsigned depth : {129, 255}) {
		bad.max_dest_rd_atomic = static_cast<std::uint8_t>(depth);
		CHECK(refuses(bad, rtr_mask));
	}
	CHECK(state_name(query_state(endpoint.qp)) == "INIT");

	to_rtr(endpoint.qp, device, endpoint.qp->qp_num);
	auto ready = rts_attr();
	for (const unsigned depth : {129, 255}) {
		ready.max_rd_atomic = static_cast<std::uint8_t>(depth);
		CHECK(refuses(ready, rts_mask));
	}
	ready = rts_attr();
	ready.timeout = 32;
	CHECK(refuses(ready, rts_mask));
	ready = rts_attr();
	ready.retry_cnt = 8;
	CHECK(refuses(ready, rts_mask));
	ready = rts_attr();
	ready.rnr_retry = 8;
	CHECK(refuses(ready, rts_mask));
	CHECK(state_name(query_state(endpoint.qp)) == "RTR");

	ready = rts_attr();
	/* The RDMA core allows alternate paths on InfiniBand only. */
	ready.alt_port_num = 1;
	ready.alt_ah_attr = good.ah_attr;
	CHECK(errno_name(ibv_modify_qp(endpoint.qp, &ready, rts_mask | IBV_QP_ALT_PATH)) ==
	      "EINVAL");
	ready = rts_attr();
	ready.path_mig_state = IBV_MIG_REARM;
	CHECK(errno_name(ibv_modify_qp(endpoint.qp, &ready, rts_mask | IBV_QP_PATH_MIG_STATE)) ==
	      "EOPNOTSUPP");
	to_rts(endpoint.qp);
	ready.cap.max_send_wr = 1;
	CHECK(errno_name(ibv_modify_qp(endpoint.qp, &ready, IBV_QP_CAP)) == "EOPNOTSUPP");
	CHECK(state_name(query_state(endpoint.qp)) == "RTS");
}

/* Programs take the depth that the peer advertises, and real peers advertise 128. */
TEST_CASE("queue pairs may have more READs and atomics outstanding than the device advertises")
{
	constexpr std::uint8_t depth = 128;
	constexpr std::size_t count = 2 * depth;
	Device device;
	REQUIRE(device.attributes().max_qp_rd_atom < depth);
	Link link;
	link.rd_atomic = link.dest_rd_atomic = depth;
	const Pair pair(device, {.send_wr = 2 * count, .cqe = 2 * count}, link);
	const Region from(pair.b.pd, page_bytes);
	const Region to(pair.a.pd, page_bytes);
	auto *target = reinterpret_cast<std::uint64_t *>(from.data());
	auto *result = reinterpret_cast<std::uint64_t *>(to.data());
	CHECK(query(pair.a.qp).max_rd_atomic == depth);
	CHECK(query(pair.b.qp).max_dest_rd_atomic == depth);

	target[0] = 0;
	target[1] = 0x123456789abcdef0;
	std::vector<Send> list;
	for (std::size_t i = 0; i < count; i++) {
		list.push_back(Send(IBV_WR_ATOMIC_FETCH_AND_ADD, {to.sge(8 * i, 8)})
				       .atomic(from.address(0), from.rkey(), 1));
		list.push_back(Send(IBV_WR_RDMA_READ, {to.sge(8 * (count + i % 8), 8)})
				       .remote(from.address(8), from.rkey()));
	}
	ibv_send_wr *bad = nullptr;
	must(post_list(pair.a.qp, list, &bad), "post_send");
	wait_success(pair.a.send_cq, list.size());
	for (std::size_t i = 0; i < count; i++)
		CHECK(result[i] == i);
	for (std::size_t i = 0; i < 8; i++)
		CHECK(result[count + i] == target[1]);
	CHECK(target[0] == count);
}

TEST_CASE("query tells what modify set")
{
	Device device;
	QpOptions options;
	options.inline_bytes = 40;
	Endpoint endpoint(device, options);
	Link link;
	link.timeout = 11;
	link.retry_cnt = 5;
	link.rnr_retry = 4;
	link.min_rnr_timer = 17;
	link.rd_atomic = 3;
	link.dest_rd_atomic = 6;
	link.psn = 0x123456;
	link.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	connect_to(endpoint.qp, device, endpoint.qp->qp_num, link);
	ibv_qp_init_attr init{};
	const auto attr = query(endpoint.qp, &init);

	CHECK(state_name(attr.qp_state) == "RTS");
	CHECK(attr.path_mtu == device.port().active_mtu);
	CHECK(attr.dest_qp_num == endpoint.qp->qp_num);
	CHECK(attr.rq_psn == 0x123456);
	CHECK(attr.sq_psn == 0x123456);
	CHECK(attr.timeout == 11);
	CHECK(attr.retry_cnt == 5);
	CHECK(attr.rnr_retry == 4);
	CHECK(attr.min_rnr_timer == 17);
	CHECK(attr.max_rd_atomic == 3);
	CHECK(attr.max_dest_rd_atomic == 6);
	CHECK(attr.port_num == 1);
	CHECK(attr.ah_attr.is_global == 1);
	CHECK(attr.ah_attr.grh.sgid_index == device.gid_index());
	CHECK(attr.ah_attr.grh.hop_limit == 64);
	CHECK(!std::memcmp(attr.ah_attr.grh.dgid.raw, device.gid().raw, 16));
	CHECK((attr.qp_access_flags &
	       (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) ==
	      static_cast<unsigned>(link.access));
	CHECK(init.cap.max_send_wr >= options.send_wr);
	CHECK(init.cap.max_recv_wr >= options.recv_wr);
	CHECK(init.cap.max_send_sge >= options.send_sge);
	CHECK(init.cap.max_recv_sge >= options.recv_sge);
	CHECK(init.cap.max_inline_data >= options.inline_bytes);
	CHECK(init.qp_type == IBV_QPT_RC);
	CHECK(init.send_cq == endpoint.send_cq.get());
	CHECK(init.recv_cq == endpoint.recv_cq.get());
}

/* A program may have one variable for the rights of its regions and of its queue pairs. */
TEST_CASE("flags that only a region has do not count for a queue pair")
{
	Device device;
	Endpoint endpoint(device);
	Link link;
	link.access = IBV_ACCESS_REMOTE_READ;
	connect_to(endpoint.qp, device, endpoint.qp->qp_num, link);
	ibv_qp_attr attr{};

	for (const unsigned flag :
	     {unsigned{IBV_ACCESS_RELAXED_ORDERING}, 1U << 29, unsigned{IBV_ACCESS_ZERO_BASED},
	      unsigned{IBV_ACCESS_HUGETLB}, unsigned{IBV_ACCESS_ON_DEMAND}}) {
		INFO("flag " << flag);
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | flag;
		CHECK(errno_name(ibv_modify_qp(endpoint.qp, &attr, IBV_QP_ACCESS_FLAGS)) == "0");
		CHECK(query(endpoint.qp).qp_access_flags == IBV_ACCESS_REMOTE_WRITE);
	}
}

TEST_CASE("the number of the peer has 24 bits")
{
	Device device;
	Endpoint endpoint(device);
	Link link;

	connect_to(endpoint.qp, device, endpoint.qp->qp_num | 0xff000000, link);
	CHECK(query(endpoint.qp).dest_qp_num == endpoint.qp->qp_num);
	Region memory(endpoint.pd, page_bytes);
	post(endpoint.qp,
	     Send(IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}).remote(memory.address(64), memory.rkey()));
	wait_success(endpoint.send_cq);
}

TEST_CASE("one wrong attribute keeps the others from being set")
{
	Device device;
	Endpoint endpoint(device);
	Link link;
	link.access = IBV_ACCESS_REMOTE_READ;
	link.min_rnr_timer = 17;
	connect_to(endpoint.qp, device, endpoint.qp->qp_num, link);
	ibv_qp_attr attr{};

	attr.qp_state = IBV_QPS_SQD;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	attr.min_rnr_timer = 32;
	CHECK(errno_name(ibv_modify_qp(endpoint.qp, &attr,
				       IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER)) == "EINVAL");
	attr.min_rnr_timer = 3;
	/* The step to SQD sets neither. */
	CHECK(errno_name(ibv_modify_qp(endpoint.qp, &attr,
				       IBV_QP_STATE | IBV_QP_ACCESS_FLAGS |
					       IBV_QP_MIN_RNR_TIMER)) == "EINVAL");
	const auto now = query(endpoint.qp);
	CHECK(state_name(now.qp_state) == "RTS");
	CHECK(now.qp_access_flags == IBV_ACCESS_REMOTE_READ);
	CHECK(now.min_rnr_timer == 17);
}

TEST_CASE("queues and entries of size 0 can be asked for")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq = create_cq(device, 4);
	ibv_qp_init_attr init{};

	for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
		init = {};
		init.send_cq = init.recv_cq = cq;
		init.qp_type = type;
		const Qp qp(ibv_create_qp(pd, &init), "create_qp");

		INFO("type " << type);
		CHECK(init.cap.max_recv_wr == 0);
	}
}

TEST_CASE("attributes change while the queue pair works")
{
	Device device;
	Pair pair(device);
	ibv_qp_attr attr{};

	attr.qp_state = IBV_QPS_RTS;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	attr.min_rnr_timer = 9;
	must(ibv_modify_qp(pair.b.qp, &attr,
			   IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER),
	     "modify");
	CHECK(query(pair.b.qp).min_rnr_timer == 9);
	Region from(pair.a.pd, page_bytes), to(pair.b.pd, page_bytes);
	post(pair.a.qp, Send(IBV_WR_RDMA_READ, {from.sge(0, 8)}).remote(to.address(), to.rkey()));
	wait_success(pair.a.send_cq);
	post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {from.sge(0, 8)}).remote(to.address(), to.rkey()));
	check_status(wait_completion(pair.a.send_cq), IBV_WC_REM_INV_REQ_ERR,
		     PEAL_REASON_QP_ACCESS);
}

TEST_CASE("RESET and reuse")
{
	Device device;
	Pair pair(device);

	for (int round = 0; round < 20; round++) {
		ping(pair, round);
		/* Requests that are cut off leave nothing behind. */
		post_recv(pair.b.qp, 1000, {});
		post(pair.b.qp, Send(IBV_WR_SEND).id(1001));
		if (round % 2)
			to_state(pair.b.qp, IBV_QPS_ERR);
		to_state(pair.a.qp, IBV_QPS_RESET);
		to_state(pair.b.qp, IBV_QPS_RESET);
		for (auto *cq : {pair.a.send_cq.get(), pair.a.recv_cq.get(), pair.b.send_cq.get(),
				 pair.b.recv_cq.get()})
			drain(cq);
		Link link;
		link.psn = static_cast<std::uint32_t>(round * 1000);
		connect(pair.a, pair.b, link);
	}
	ping(pair, 99);
}

TEST_CASE("SQD: what was posted is finished, what is posted waits")
{
	Device device;
	Pair pair(device);
	ibv_qp_attr attr{};

	post(pair.a.qp, Send(IBV_WR_RDMA_WRITE).id(1));
	attr.qp_state = IBV_QPS_SQD;
	attr.en_sqd_async_notify = 1;
	must(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
	     "modify to SQD");
	CHECK(device.wait_event(IBV_EVENT_SQ_DRAINED, pair.a.qp.get()));
	CHECK(wait_success(pair.a.send_cq).front().wr_id == 1);
	CHECK(query(pair.a.qp).sq_draining == 0);
	post(pair.a.qp, Send(IBV_WR_RDMA_WRITE).id(2));
	/* The other direction still works. */
	post(pair.b.qp, Send(IBV_WR_RDMA_WRITE).id(3));
	CHECK(wait_success(pair.b.send_cq).front().wr_id == 3);
	CHECK(describe(drain(pair.a.send_cq)) == "0 completions");
	to_state(pair.a.qp, IBV_QPS_RTS);
	CHECK(wait_success(pair.a.send_cq).front().wr_id == 2);
}

TEST_CASE("SQ_DRAINED is raised only for the change to SQD that asks for it")
{
	Device device;
	Pair pair(device);
	ibv_qp_attr attr{};
	const auto drained = [&] {
		return device.count_events(IBV_EVENT_SQ_DRAINED, pair.a.qp.get());
	};
	const bool by_reset = GENERATE(false, true);

	INFO("after " << (by_reset ? "a reset" : "RTS"));
	attr.qp_state = IBV_QPS_SQD;
	attr.en_sqd_async_notify = 1;
	must(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
	     "modify to SQD");
	CHECK(device.wait_event(IBV_EVENT_SQ_DRAINED, pair.a.qp.get()));
	if (by_reset) {
		to_state(pair.a.qp, IBV_QPS_RESET);
		to_state(pair.b.qp, IBV_QPS_RESET);
		connect(pair.a, pair.b);
	} else {
		to_state(pair.a.qp, IBV_QPS_RTS);
	}
	to_state(pair.a.qp, IBV_QPS_SQD);
	CHECK(eventually([&] { return query(pair.a.qp).sq_draining == 0; }));
	to_state(pair.a.qp, IBV_QPS_RTS);
	post(pair.a.qp, Send(IBV_WR_RDMA_WRITE).id(1));
	wait_success(pair.a.send_cq);
	CHECK(drained() == 1);
}

TEST_CASE("a peer that was given another GID of the device gets no message")
{
	OwnDevice own;
	if (!own.ok())
		SKIP_CASE("cannot make a second device");
	Device device(own.name());
	run("ip addr add 10.78.9.7/24 dev tctl0");
	REQUIRE(eventually([&] { return has_gid(device, 9, 7); }));
	auto other = device.gid();
	other.raw[14] = 9;
	other.raw[15] = 7;
	const auto type = GENERATE(IBV_QPT_RC, IBV_QPT_UC);
	QpOptions options;
	options.type = type;
	Endpoint a(device, options), b(device, options);
	Link link;
	link.timeout = 10; /* 4 ms */
	link.retry_cnt = 1;
	const auto rtr = type == IBV_QPT_RC ? rtr_mask : uc_rtr_mask;
	const auto rts = type == IBV_QPT_RC ? rts_mask : IBV_QP_STATE | IBV_QP_SQ_PSN;
	const auto ready = [&](Endpoint &end, std::uint32_t peer, const ibv_gid &gid) {
		auto attr = rtr_attr(device, peer, gid, link);
		to_init(end.qp, link);
		must(ibv_modify_qp(end.qp, &attr, rtr), "modify to RTR");
		attr = rts_attr(link);
		must(ibv_modify_qp(end.qp, &attr, rts), "modify to RTS");
	};

	INFO("type " << type);
	/* b's own GID is the first one, and a addresses the second. b addresses a as it is. */
	ready(a, b.qp->qp_num, other);
	ready(b, a.qp->qp_num, device.gid());
	post_recv(b.qp, 1, {});
	post(a.qp, Send(IBV_WR_SEND));
	const auto wc = wait_completions(a.send_cq, 1).front();
	CHECK(wc.status == (type == IBV_QPT_RC ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS));
	CHECK(describe(drain(b.recv_cq)) == "0 completions");
}

TEST_CASE("objects of another context are refused")
{
	Device device, other;
	/* The objects of both contexts have the same handles. */
	Pd pd(ibv_alloc_pd(device), "alloc_pd"), theirs(ibv_alloc_pd(other), "alloc_pd");
	Cq cq = create_cq(device, 16), their_cq = create_cq(other, 16);
	const auto qp_error = [&](ibv_cq *send, ibv_cq *recv) {
		auto init = init_attributes(pd, send, recv, {});
		errno = 0;
		ibv_qp *qp = ibv_create_qp_ex(device, &init);
		if (qp)
			ibv_destroy_qp(qp);
		return errno_name(qp ? 0 : errno);
	};

	CHECK(qp_error(cq, cq) == "0");
	CHECK(qp_error(their_cq, cq) == "EINVAL");
	CHECK(qp_error(cq, their_cq) == "EINVAL");
	auto init = init_attributes(theirs, cq, cq, {});
	CHECK_FALSE(ibv_create_qp_ex(device, &init));
	CHECK(errno_name(errno) == "EINVAL");

	ibv_td_init_attr td_init{};
	ibv_td *td = ibv_alloc_td(other, &td_init);
	REQUIRE(td);
	ibv_parent_domain_init_attr domain{};
	domain.pd = theirs;
	CHECK_FALSE(ibv_alloc_parent_domain(device, &domain));
	CHECK(errno_name(errno) == "EINVAL");
	domain.pd = pd;
	domain.td = td;
	CHECK_FALSE(ibv_alloc_parent_domain(device, &domain));
	CHECK(errno_name(errno) == "EINVAL");
	must(ibv_dealloc_td(td), "dealloc_td");

	domain = {};
	domain.pd = theirs;
	ibv_pd *parent = ibv_alloc_parent_domain(other, &domain);
	REQUIRE(parent);
	ibv_cq_init_attr_ex cq_init{};
	cq_init.cqe = 16;
	cq_init.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
	cq_init.parent_domain = parent;
	CHECK_FALSE(ibv_create_cq_ex(device, &cq_init));
	CHECK(errno_name(errno) == "EINVAL");
	must(ibv_dealloc_pd(parent), "dealloc_pd");

	Region region(pd, page_bytes);
	CHECK(ibv_rereg_mr(region.mr(), IBV_REREG_MR_CHANGE_PD, theirs, nullptr, 0, 0) != 0);
	CHECK(errno_name(errno) == "EINVAL");
}

TEST_CASE("unknown driver data are refused")
{
	Device device;
	Pair pair(device);
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Srq srq(create_srq(pd, 4));
	const peal::uverbs::Device raw(device.context()->cmd_fd, PEAL_DRIVER_ID);
	std::array<std::byte, 16> data{};
	ib_uverbs_modify_qp qp{};
	ib_uverbs_ex_modify_qp qp_ex{};
	ib_uverbs_modify_srq limit{};
	ib_uverbs_alloc_mw mw{};
	ib_uverbs_alloc_mw_resp mw_made{};
	const auto modify_qp = [&] {
		return raw.command(IB_USER_VERBS_CMD_MODIFY_QP, qp, peal::uverbs::None{}, data);
	};
	const auto modify_qp_ex = [&] {
		ib_uverbs_ex_modify_qp_resp response{};

		return raw.command(IB_USER_VERBS_EX_CMD_MODIFY_QP | IB_USER_VERBS_CMD_FLAG_EXTENDED,
				   qp_ex, response, data);
	};
	/* clang does not let a lambda capture structures that end with a flexible array. */
	const auto modify_srq = [&raw, &data, request = &limit] {
		return raw.command(IB_USER_VERBS_CMD_MODIFY_SRQ, *request, peal::uverbs::None{},
				   data);
	};
	const auto alloc_mw = [&raw, &data, request = &mw, response = &mw_made] {
		return raw.command(IB_USER_VERBS_CMD_ALLOC_MW, *request, *response, data);
	};
	const auto state = [&] { return query_state(pair.a.qp); };

	qp.qp_handle = pair.a.qp->handle;
	qp.attr_mask = IBV_QP_STATE;
	qp.qp_state = IBV_QPS_ERR;
	qp_ex.base = qp;
	limit.srq_handle = srq->handle;
	limit.attr_mask = IBV_SRQ_LIMIT;
	limit.srq_limit = 2;
	mw.pd_handle = pd->handle;
	mw.mw_type = IBV_MW_TYPE_1;
	/* Zeros may be room for data of a later version. */
	data.back() = std::byte{1};
	CHECK(errno_name(modify_qp()) == "EINVAL");
	CHECK(errno_name(modify_qp_ex()) == "EINVAL");
	CHECK(state() == IBV_QPS_RTS);
	CHECK(errno_name(modify_srq()) == "EINVAL");
	CHECK(errno_name(alloc_mw()) == "EINVAL");
	data.back() = {};
	CHECK(modify_qp() == 0);
	CHECK(state() == IBV_QPS_ERR);
	CHECK(modify_srq() == 0);
	CHECK(alloc_mw() == 0);
	CHECK(raw.command(IB_USER_VERBS_CMD_DEALLOC_MW, ib_uverbs_dealloc_mw{mw_made.mw_handle}) ==
	      0);
}

TEST_CASE("the device tells which events and counters it has")
{
	Device device;
	const auto flags = device.attributes().device_cap_flags;

	for (const unsigned flag : {IBV_DEVICE_PORT_ACTIVE_EVENT, IBV_DEVICE_UD_AV_PORT_ENFORCE,
				    IBV_DEVICE_BAD_PKEY_CNTR, IBV_DEVICE_BAD_QKEY_CNTR})
		CHECK((flags & flag) == flag);
	CHECK(device.port().port_cap_flags & (1 << 16)); /* IB_PORT_CM_SUP */
}

TEST_CASE("a type of queue pair that no standard defines is not supported")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq(create_cq(device, 16));

	auto init = init_attributes(pd, cq, cq, {});
	init.qp_type = IBV_QPT_DRIVER;
	auto *qp = ibv_create_qp_ex(device, &init);
	CHECK((qp ? "0" : errno_name(errno)) == "EOPNOTSUPP");
}

TEST_CASE("features that are absent are not advertised and say so")
{
	Device device;
	Pair pair(device);
	ibv_device_attr_ex attr{};
	ibv_ece ece{};
	ibv_qp_rate_limit_attr rate{};

	must(ibv_query_device_ex(device, nullptr, &attr), "query_device_ex");
	CHECK(attr.packet_pacing_caps.qp_rate_limit_max == 0);
	CHECK(attr.packet_pacing_caps.supported_qpts == 0);
	rate.rate_limit = 1000;
	CHECK(errno_name(ibv_modify_qp_rate_limit(pair.a.qp, &rate)) == "EOPNOTSUPP");

	ece.vendor_id = 0x15b3;
	ece.options = 1;
	CHECK(errno_name(ibv_set_ece(pair.a.qp, &ece)) == "EOPNOTSUPP");
	CHECK(errno_name(ibv_query_ece(pair.a.qp, &ece)) == "EOPNOTSUPP");

	/* String instructions store out of order, so only the last eight bytes are known to be
	 * last. */
	for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND})
		CHECK(ibv_query_qp_data_in_order(pair.a.qp, opcode, 0) == 0);
}

TEST_CASE("limits of queue pairs are what query_device says")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq(create_cq(device, 16));
	const auto limits = device.attributes();
	const auto make = [&](QpOptions options) {
		auto init = init_attributes(pd, cq, cq, options);
		errno = 0;
		auto *qp = ibv_create_qp_ex(device, &init);
		const auto error = qp ? "0" : errno_name(errno);
		if (qp)
			must(ibv_destroy_qp(qp), "destroy_qp");
		return error;
	};
	const auto wr = static_cast<std::uint32_t>(limits.max_qp_wr);
	const auto sge = static_cast<std::uint32_t>(limits.max_sge);

	CHECK(make({.send_wr = wr, .recv_wr = wr, .send_sge = sge, .recv_sge = sge}) == "0");
	CHECK(make({.send_wr = wr + 1}) == "EINVAL");
	CHECK(make({.recv_wr = wr + 1}) == "EINVAL");
	CHECK(make({.send_sge = sge + 1}) == "EINVAL");
	CHECK(make({.recv_sge = sge + 1}) == "EINVAL");
	CHECK(make({.inline_bytes = 1 << 20}) == "EINVAL");
	CHECK(make({.send_wr = 0xffffffff}) == "EINVAL");
	CHECK(make({.inline_bytes = PEAL_MAX_INLINE}) == "0");
}

TEST_CASE("the device says what it is")
{
	Device device;
	const auto attr = device.attributes();

	CHECK(device.context()->device->transport_type == IBV_TRANSPORT_IB);
	CHECK(device.port().link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK(attr.phys_port_cnt == 1);
	CHECK(attr.node_guid != 0);
	CHECK(attr.atomic_cap == IBV_ATOMIC_GLOB);
	CHECK(attr.max_qp_wr == PEAL_MAX_QP_WR);
	CHECK(attr.max_sge == PEAL_MAX_SGE);
	CHECK(attr.max_cqe == PEAL_MAX_CQE);
	CHECK(device.port().max_msg_sz == PEAL_MAX_MSG);
	CHECK(attr.vendor_id != 0);
	CHECK(attr.vendor_id != 0xffffff);
}

TEST_CASE("the speed of the port is the rate that sysfs shows")
{
	Device device;
	const peal::uverbs::Device raw(device.context()->cmd_fd, PEAL_DRIVER_ID);
	const std::string name = ibv_get_device_name(device.context()->device);
	const auto rate = [&] {
		std::ifstream file("/sys/class/infiniband/" + name + "/ports/1/rate");
		double gbps = 0;

		file >> gbps;
		return gbps;
	};
	std::uint64_t speed = 0;
	const auto query = [&](std::uint32_t port) {
		return raw.method(UVERBS_OBJECT_DEVICE, peal::uverbs::METHOD_QUERY_PORT_SPEED,
				  peal::uverbs::attr_value(
					  peal::uverbs::ATTR_QUERY_PORT_SPEED_PORT_NUM, port),
				  peal::uverbs::attr_out(peal::uverbs::ATTR_QUERY_PORT_SPEED_RESP,
							 peal::uverbs::out(speed)));
	};

	if (query(1) == EPROTONOSUPPORT)
		SKIP_CASE("the kernel has no such call");
	CHECK(errno_name(query(2)) == "EINVAL");
	for (const unsigned gbps : {0U, 25U, 400U, 0U}) {
		REQUIRE(run(peal_tool() + " link set " + name + " rate " + std::to_string(gbps)) ==
			0);
		must(query(1), "query_port_speed");
		CHECK(static_cast<double>(speed) == 10 * rate());
		if (gbps)
			CHECK(speed == 10 * gbps);
	}
}

TEST_CASE("a thousand queue pairs pass messages")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq(create_cq(device, 4096));
	QpOptions options;
	options.send_wr = options.recv_wr = 4;
	options.send_sge = options.recv_sge = 1;
	std::vector<Qp> qps;

	for (int i = 0; i < 1000; i++)
		qps.push_back(create_qp(pd, cq, cq, options));
	for (std::size_t i = 0; i < qps.size(); i++)
		connect_to(qps[i], device, qps[i ^ 1]->qp_num);
	for (std::uint64_t round = 0; round < 2; round++) {
		for (auto &qp : qps)
			post_recv(qp, 1, {});
		for (auto &qp : qps)
			post(qp, Send(IBV_WR_SEND).id(2));
		CHECK(wait_success(cq, 2 * qps.size(), 3 * patience).size() == 2 * qps.size());
	}
}

TEST_CASE("a queue pair's number does not tell the next one's")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq(create_cq(device, 64));
	std::vector<Qp> qps;
	std::set<std::uint32_t> numbers;
	int near = 0;

	for (int i = 0; i < 64; i++) {
		qps.push_back(create_qp(pd, cq, cq));
		const auto number = static_cast<std::int64_t>(qps.back()->qp_num);
		CHECK(number >= 0x10);
		CHECK(number <= 0x7fffff);
		if (i)
			near += std::abs(number - std::int64_t{qps[qps.size() - 2]->qp_num}) < 1000;
		numbers.insert(qps.back()->qp_num);
	}
	CHECK(numbers.size() == qps.size());
	/* Chance gives one in 4000. */
	CHECK(near < 4);
	CHECK(*numbers.rbegin() - *numbers.begin() > 0x100000);
}

TEST_CASE("several contexts of one process")
{
	Device first, second;
	Endpoint a(first), b(second);
	connect(a, b);
	Region from(a.pd, page_bytes), to(b.pd, page_bytes);

	fill_pattern(from.bytes(0, 500), 1);
	post(a.qp, Send(IBV_WR_RDMA_WRITE, {from.sge(0, 500)}).remote(to.address(), to.rkey()));
	wait_success(a.send_cq);
	CHECK(difference(to.bytes(0, 500), from.bytes(0, 500)) == "");
	std::vector<std::unique_ptr<Device>> many;
	for (int i = 0; i < 30; i++)
		many.push_back(std::make_unique<Device>());
	CHECK(many.size() == 30);
}

TEST_CASE("objects leave nothing behind")
{
	{
		Device device;
		make_and_break(device, 20); /* fills the caches */
	}
	const auto resources_before = resources();
	const auto areas_before = vmalloc_areas();
	const auto available_before = available_memory();
	{
		Device device;
		make_and_break(device, 300);
	}
	CHECK(resources() == resources_before);
	CHECK(eventually([&] { return vmalloc_areas() <= areas_before; }));
	/* One leaked queue pair in each round would add up to ten times this. */
	CHECK(eventually([&] { return available_memory() > available_before - 8192; }));
}

TEST_CASE("a process that ends leaves nothing behind")
{
	const auto before = resources();
	const int status = run("exec /proc/" + std::to_string(getpid()) +
			       "/exe 'leave everything open' "
			       ">/dev/null");

	CHECK(WEXITSTATUS(status) == 0);
	CHECK(eventually([&] { return resources() == before; }));
}

TEST_CASE("leave everything open", "[.]")
{
	Device device;
	Pair pair(device);
	Region region(pair.a.pd, page_bytes);

	for (int i = 0; i < 30; i++)
		post(pair.a.qp, Send(IBV_WR_SEND));
	_exit(0);
}

TEST_CASE("port, MTU and GIDs follow the netdev")
{
	OwnDevice own;
	if (!own.ok())
		SKIP_CASE("cannot make a second device");
	Device device(own.name());

	run("ip link set tctl0 down");
	CHECK(eventually([&] { return device.port().state == IBV_PORT_DOWN; }));
	CHECK(device.wait_event(IBV_EVENT_PORT_ERR, port_object));
	run("ip link set tctl0 up");
	CHECK(eventually([&] { return device.port().state == IBV_PORT_ACTIVE; }));
	CHECK(device.wait_event(IBV_EVENT_PORT_ACTIVE, port_object));

	/* The state of the port stays. */
	device.forget_events();
	run("ip link set tctl0 arp off; ip link set tctl0 arp on; ip link set tctl0 promisc on");
	run("ip link set tctl0 down");
	CHECK(device.wait_event(IBV_EVENT_PORT_ERR, port_object));
	CHECK(device.count_events(IBV_EVENT_PORT_ACTIVE, port_object) == 0);
	CHECK(device.count_events(IBV_EVENT_PORT_ERR, port_object) == 1);
	run("ip link set tctl0 up");
	CHECK(device.wait_event(IBV_EVENT_PORT_ACTIVE, port_object));

	run("ip link set tctl0 mtu 5000");
	CHECK(eventually([&] { return device.port().active_mtu == IBV_MTU_4096; }));
	run("ip link set tctl0 mtu 1500");
	CHECK(eventually([&] { return device.port().active_mtu == IBV_MTU_1024; }));

	run("ip addr add 10.78.9.7/24 dev tctl0");
	CHECK(eventually([&] { return has_gid(device, 9, 7); }));
	CHECK(device.wait_event(IBV_EVENT_GID_CHANGE, port_object));
	device.forget_events();
	run("ip addr del 10.78.9.7/24 dev tctl0");
	CHECK(eventually([&] { return !has_gid(device, 9, 7); }));
	CHECK(device.wait_event(IBV_EVENT_GID_CHANGE, port_object));
}

TEST_CASE("a path MTU that the link cannot carry is refused")
{
	OwnDevice own;
	if (!own.ok())
		SKIP_CASE("cannot make a second device");
	Device device(own.name());
	Endpoint endpoint(device);
	auto neighbour = device.gid();
	neighbour.raw[15] ^= 0x55;
	/* The GID of 10.78.0.1. No host has that address, and modify must resolve it. */
	REQUIRE(!run("ip neigh replace 10.78.0.84 lladdr 02:00:00:00:00:55 dev tctl0"));
	auto attr = rtr_attr(device, 77, neighbour);

	to_init(endpoint.qp);
	for (const auto mtu : {IBV_MTU_2048, IBV_MTU_4096}) {
		attr.path_mtu = mtu;
		CHECK(errno_name(ibv_modify_qp(endpoint.qp, &attr, rtr_mask)) == "EINVAL");
		CHECK(state_name(query_state(endpoint.qp)) == "INIT");
	}
	run("ip link set tctl0 mtu 2200");
	attr.path_mtu = IBV_MTU_4096;
	CHECK(errno_name(ibv_modify_qp(endpoint.qp, &attr, rtr_mask)) == "EINVAL");
	attr.path_mtu = IBV_MTU_2048;
	CHECK(errno_name(ibv_modify_qp(endpoint.qp, &attr, rtr_mask)) == "0");
	CHECK(query(endpoint.qp).path_mtu == IBV_MTU_2048);
}

TEST_CASE("query tells where the packet numbers stand")
{
	Device device;
	Pair pair(device);
	Link link;
	Region from(pair.a.pd, 64 * page_bytes), to(pair.b.pd, 64 * page_bytes);
	const std::uint32_t mtu = 128U << device.port().active_mtu;
	const auto at = [&](std::uint32_t packets) { return (link.psn + packets) & 0xffffff; };

	CHECK(query(pair.a.qp).sq_psn == at(0));
	CHECK(query(pair.b.qp).rq_psn == at(0));
	/* The messages take no packet, one packet and three packets. The PSNs wrap on the way. */
	for (const std::uint32_t bytes : {0U, mtu, 2 * mtu + 1})
		for (int i = 0; i < 5; i++) {
			post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {from.sge(0, bytes)})
						.remote(to.address(), to.rkey()));
			wait_success(pair.a.send_cq);
		}
	CHECK(query(pair.a.qp).sq_psn == at(5 + 5 + 15));
	CHECK(query(pair.b.qp).rq_psn == at(5 + 5 + 15));
	CHECK(query(pair.b.qp).sq_psn == at(0));
}

TEST_CASE("two devices have nothing to do with each other")
{
	OwnDevice own;
	if (!own.ok())
		SKIP_CASE("cannot make a second device");
	Device first, second(own.name());
	Pair on_first(first), on_second(second);

	ping(on_first, 1);
	ping(on_second, 2);
	CHECK(netdev_of(own.name()) == "tctl0");
	CHECK(std::string(ibv_get_device_name(first.context()->device)) == device_name());
	CHECK(std::string(ibv_get_device_name(second.context()->device)) == own.name());
}
