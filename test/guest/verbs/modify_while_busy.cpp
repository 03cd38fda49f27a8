// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 60
/*
 * Modify queue pairs while requests are in progress.
 *
 * Holds: A new path waits until the send queue is drained, and a connection stays on the direct
 * path or on the wire. Setting a state or an attribute again loses nothing, because each request
 * completes exactly once.
 * Does not hold: the table of states and values (verbs/states_and_limits), other threads that post
 * (verbs/threads_share_objects).
 */
#include "neighbour.hpp"

using namespace peal_test;

namespace {

int set_path(Endpoint &at, std::uint32_t peer, const ibv_gid &gid)
{
	auto attr = rtr_attr(at.device, peer, gid);

	attr.qp_state = IBV_QPS_SQD;
	return ibv_modify_qp(at.qp, &attr, IBV_QP_STATE | IBV_QP_AV);
}

/* Both ends, with a page each. */
struct Stage {
	explicit Stage(const Link &link = {})
		: pair(device, {}, link), from(pair.a.pd, page_bytes), to(pair.b.pd, page_bytes)
	{
	}
	int set_path(const ibv_gid &gid) { return ::set_path(pair.a, pair.b.qp->qp_num, gid); }
	void send(std::uint64_t id)
	{
		post(pair.a.qp, Send(IBV_WR_SEND, {from.sge(0, 32)}).id(id));
	}
	void receive(std::uint64_t id) { post_recv(pair.b.qp, id, {to.sge(0, 64)}); }
	void check_sent(std::uint64_t id)
	{
		CHECK(wait_success(pair.a.send_cq).front().wr_id == id);
		CHECK(wait_success(pair.b.recv_cq).front().wr_id == id);
	}

	Device device;
	Pair pair;
	Region from, to;
};

} // namespace

TEST_CASE("a path is not changed under a message that waits")
{
	Stage stage;
	const ibv_gid nobody = gid_of_nobody(stage.device);

	stage.send(1);
	to_state(stage.pair.a.qp, IBV_QPS_SQD);
	for (int i = 0; i < 20; i++) {
		CHECK(errno_name(stage.set_path(stage.device.gid())) == "EBUSY");
		const int error = stage.set_path(nobody);
		CHECK(errno_name(error) == (on_wire() ? "EBUSY" : "EOPNOTSUPP"));
	}
	stage.receive(1);
	stage.check_sent(1);
	/* The queue is drained. A connection within the device stays there. */
	CHECK(eventually([&] { return !stage.set_path(stage.device.gid()); }));
	if (!on_wire())
		CHECK(errno_name(stage.set_path(nobody)) == "EOPNOTSUPP");
	to_state(stage.pair.a.qp, IBV_QPS_RTS);
	stage.receive(2);
	stage.send(2);
	stage.check_sent(2);
}

TEST_CASE("a connection on the wire goes to where its new path leads, and comes back")
{
	if (!on_wire())
		SKIP_CASE("within the device there is one path");
	Stage stage;

	to_state(stage.pair.a.qp, IBV_QPS_SQD);
	REQUIRE(errno_name(stage.set_path(gid_of_nobody(stage.device))) == "0");
	to_state(stage.pair.a.qp, IBV_QPS_RTS);
	stage.receive(1);
	stage.send(1);
	CHECK(describe(drain(stage.pair.a.send_cq)) == "0 completions");
	to_state(stage.pair.a.qp, IBV_QPS_SQD);
	CHECK(errno_name(stage.set_path(stage.device.gid())) == "EBUSY");
	to_state(stage.pair.a.qp, IBV_QPS_ERR);
	check_status(wait_completion(stage.pair.a.send_cq), IBV_WC_WR_FLUSH_ERR,
		     PEAL_REASON_FLUSHED);
}

TEST_CASE("RTS set again while a failure waits for its turn forgets nothing")
{
	Link link;
	link.timeout = 20; /* 4 s */
	Stage stage(link);
	ibv_qp_attr attr{};
	std::vector<ibv_wc> all;

	/* The READ stays, because the peer is silent. The next request has an invalid key. */
	to_state(stage.pair.b.qp, IBV_QPS_RESET);
	post(stage.pair.a.qp, Send(IBV_WR_RDMA_READ, {stage.from.sge(0, 8)})
				      .remote(stage.to.address(), stage.to.rkey())
				      .id(1));
	post(stage.pair.a.qp,
	     Send(IBV_WR_RDMA_WRITE, {{stage.from.address(), 8, stage.from.lkey() ^ 0x5500}})
		     .remote(stage.to.address(), stage.to.rkey())
		     .id(2));
	attr.qp_state = IBV_QPS_RTS;
	attr.min_rnr_timer = 9;
	must(ibv_modify_qp(stage.pair.a.qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER),
	     "modify to RTS");
	to_state(stage.pair.a.qp, IBV_QPS_ERR);
	all = wait_completions(stage.pair.a.send_cq, 2);
	CHECK(all[0].wr_id == 1);
	CHECK(all[1].wr_id == 2);
	CHECK(describe(drain(stage.pair.a.send_cq)) == "0 completions");
}
