// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
/*
 * Every way in which a work request of an RC queue pair fails, seen from both sides.
 *
 * Holds: The failed completion has the right status and reason. Both states are right, and so are
 * the asynchronous events. Later requests are flushed exactly once and in order. Nothing is written
 * at the target.
 * Does not hold: RNR and silent peers (verbs/wait_for_peer), malformed ring entries
 * (hostile/scribbled_rings), memory windows (verbs/memory_windows), overflow of completion queues
 * (verbs/completion_queues).
 */
#include "verbs.hpp"

using namespace peal_test;

namespace {

constexpr std::uint8_t untouched = 0x5a;
constexpr std::size_t region_bytes = 2 * page_bytes;
constexpr std::uint32_t no_key = 0x00fedc00;

/* A connected pair with regions of every kind at both ends. */
struct Scene {
	explicit Scene(Device &on, const Link &link_a = {}, const Link &link_b = {})
		: device(on), a(on), b(on), other_a(ibv_alloc_pd(on), "alloc_pd"),
		  other_b(ibv_alloc_pd(on), "alloc_pd"), from(a.pd, region_bytes),
		  readonly_a(a.pd, region_bytes, IBV_ACCESS_REMOTE_READ),
		  foreign_a(other_a, region_bytes), to(b.pd, region_bytes),
		  local_b(b.pd, region_bytes, IBV_ACCESS_LOCAL_WRITE),
		  readonly_b(b.pd, region_bytes, IBV_ACCESS_REMOTE_READ),
		  foreign_b(other_b, region_bytes)
	{
		connect(a, b, link_a, link_b);
		for (auto *region : {&to, &local_b, &readonly_b, &foreign_b})
			std::memset(region->data(), untouched, region->size());
	}
	bool target_untouched() const
	{
		for (const auto *region : {&to, &local_b, &readonly_b, &foreign_b})
			if (!all_equal(region->bytes(0, region->size()), untouched))
				return false;
		return true;
	}

	Device &device;
	Endpoint a, b;
	Pd other_a, other_b;
	Region from, readonly_a, foreign_a;
	Region to, local_b, readonly_b, foreign_b;
};

struct Expected {
	const char *name;
	std::function<Send(Scene &)> request;
	ibv_wc_status status;
	peal_reason reason;
	ibv_qp_state peer_state;
	std::optional<ibv_event_type> peer_event = {};
	/* The status of the responder's receive, if the request consumes one. */
	std::optional<ibv_wc_status> receive_status = {};
	std::function<ibv_sge(Scene &)> receive_sge = {};
};

/* Some are signaled and some are not. A flush reports all of them. */
void post_followers(Scene &scene, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		Send send(i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, {scene.from.sge(0, 16)});
		send.remote(scene.to.address(), scene.to.rkey()).id(101 + i);
		post(scene.a.qp, send.flags(i % 3 ? 0 : IBV_SEND_SIGNALED));
	}
}

void check_flushed(ibv_cq *cq, std::uint64_t first_id, std::size_t count)
{
	const auto flushed = wait_completions(cq, count);

	for (std::size_t i = 0; i < count; i++) {
		check_status(flushed[i], IBV_WC_WR_FLUSH_ERR, PEAL_REASON_FLUSHED);
		CHECK(flushed[i].wr_id == first_id + i);
	}
	CHECK(describe(drain(cq)) == "0 completions");
}

void check_requester(Scene &scene, const Expected &expected)
{
	const auto failed = wait_completion(scene.a.send_cq);

	check_status(failed, expected.status, expected.reason);
	CHECK(failed.wr_id == 100);
	CHECK(failed.qp_num == scene.a.qp->qp_num);
	check_flushed(scene.a.send_cq, 101, 3);
	CHECK(state_name(query_state(scene.a.qp)) == "ERR");

	post_followers(scene, 2);
	check_flushed(scene.a.send_cq, 101, 2);
	post_recv(scene.a.qp, 300, {scene.from.sge(0, 16)});
	check_flushed(scene.a.recv_cq, 300, 1);
}

void check_responder(Scene &scene, const Expected &expected)
{
	auto &b = scene.b;

	CHECK(state_name(query_state(b.qp)) == state_name(expected.peer_state));
	if (expected.receive_status) {
		const auto received = wait_completion(b.recv_cq);
		check_status(received, *expected.receive_status, expected.reason);
		CHECK(received.wr_id == 200);
	}
	const unsigned consumed = expected.receive_status ? 1 : 0;
	if (expected.peer_state == IBV_QPS_ERR)
		check_flushed(b.recv_cq, 200 + consumed, 3 - consumed);
	CHECK(describe(drain(b.recv_cq)) == "0 completions");
}

void check_events(Scene &scene, const Expected &expected)
{
	auto &device = scene.device;

	if (!expected.peer_event)
		return;
	INFO("the responder's event " << event_name(*expected.peer_event));
	CHECK(device.wait_event(*expected.peer_event, scene.b.qp.get()));
	CHECK(device.count_events(*expected.peer_event, scene.b.qp.get()) == 1);
}

void run(Device &device, const Expected &expected, const Link &link_a = {}, const Link &link_b = {})
{
	INFO("case: " << expected.name);
	Scene scene(device, link_a, link_b);

	/* The first message of a queue pair takes a path of its own, with all checks. */
	post_recv(scene.b.qp, 199, {scene.to.sge(0, 64)});
	post(scene.a.qp, Send(IBV_WR_SEND, {}));
	wait_success(scene.a.send_cq);
	wait_success(scene.b.recv_cq);
	for (int i = 0; i < 3; i++) {
		const auto sge = i == 0 && expected.receive_sge ? expected.receive_sge(scene)
								: scene.to.sge(0, 64);
		post_recv(scene.b.qp, 200 + i, {sge});
	}
	post(scene.a.qp, expected.request(scene).id(100));
	post_followers(scene, 3);
	check_requester(scene, expected);
	check_responder(scene, expected);
	check_events(scene, expected);
	CHECK(scene.target_untouched());
	device.forget_events();
}

Send write_with(const ibv_sge &sge, Scene &scene)
{
	return Send(IBV_WR_RDMA_WRITE, {sge}).remote(scene.to.address(), scene.to.rkey());
}

Send read_with(const ibv_sge &sge, Scene &scene)
{
	return Send(IBV_WR_RDMA_READ, {sge}).remote(scene.to.address(), scene.to.rkey());
}

Send to_remote(ibv_wr_opcode opcode, Scene &scene, std::uint64_t address, std::uint32_t rkey,
	       std::size_t length = 64)
{
	return Send(opcode, {scene.from.sge(0, length)}).remote(address, rkey);
}

Send add_to(Scene &scene, std::uint64_t address, std::uint32_t rkey, std::size_t length = 8)
{
	return Send(IBV_WR_ATOMIC_FETCH_AND_ADD, {scene.from.sge(0, length)})
		.atomic(address, rkey, 1);
}

Send swap_at(Scene &scene, std::uint64_t address, std::uint32_t rkey)
{
	const auto old = untouched * 0x0101010101010101ULL;

	return Send(IBV_WR_ATOMIC_CMP_AND_SWP, {scene.from.sge(0, 8)})
		.atomic(address, rkey, old, 1);
}

ibv_sge shifted(const Region &region, std::int64_t by, std::uint32_t length)
{
	return {region.address() + static_cast<std::uint64_t>(by), length, region.lkey()};
}

std::vector<Expected> local_protection()
{
	const auto status = IBV_WC_LOC_PROT_ERR;
	const auto peer = IBV_QPS_RTS;

	return {
		{"lkey of nothing",
		 [](Scene &s) {
			 return write_with({s.from.address(), 64, no_key}, s);
		 },
		 status, PEAL_REASON_LKEY_UNKNOWN, peer},
		{"lkey 0",
		 [](Scene &s) {
			 return write_with({s.from.address(), 64, 0}, s);
		 },
		 status, PEAL_REASON_LKEY_UNKNOWN, peer},
		{"lkey with another key byte",
		 [](Scene &s) {
			 return write_with({s.from.address(), 64, s.from.lkey() ^ 1}, s);
		 },
		 status, PEAL_REASON_LKEY_UNKNOWN, peer},
		{"lkey of another protection domain",
		 [](Scene &s) { return write_with(s.foreign_a.sge(0, 64), s); }, status,
		 PEAL_REASON_LKEY_PD, peer},
		{"one byte behind the region",
		 [](Scene &s) { return write_with(shifted(s.from, region_bytes - 63, 64), s); },
		 status, PEAL_REASON_LKEY_RANGE, peer},
		{"one byte before the region",
		 [](Scene &s) { return write_with(shifted(s.from, -1, 64), s); }, status,
		 PEAL_REASON_LKEY_RANGE, peer},
		{"a range that wraps around the address space",
		 [](Scene &s) {
			 return write_with({~0ULL - 31, 64, s.from.lkey()}, s);
		 },
		 status, PEAL_REASON_LKEY_RANGE, peer},
		{"a second entry that is bad",
		 [](Scene &s) {
			 Send send = write_with(s.from.sge(0, 8), s);
			 send.sges.push_back({s.from.address(), 8, no_key});
			 return send;
		 },
		 status, PEAL_REASON_LKEY_UNKNOWN, peer},
		{"READ into a region without local write",
		 [](Scene &s) { return read_with(s.readonly_a.sge(0, 64), s); }, status,
		 PEAL_REASON_LKEY_ACCESS, peer},
		{"SEND from an lkey of nothing",
		 [](Scene &s) {
			 return Send(IBV_WR_SEND, {{s.from.address(), 16, no_key}});
		 },
		 status, PEAL_REASON_LKEY_UNKNOWN, peer},
	};
}

std::vector<Expected> remote_keys()
{
	const auto status = IBV_WC_REM_ACCESS_ERR;
	const auto peer = IBV_QPS_ERR;
	const auto event = IBV_EVENT_QP_ACCESS_ERR;
	const auto write = IBV_WR_RDMA_WRITE;

	return {
		{"rkey of nothing",
		 [](Scene &s) { return to_remote(write, s, s.to.address(), no_key); }, status,
		 PEAL_REASON_RKEY_UNKNOWN, peer, event},
		{"rkey with another key byte",
		 [](Scene &s) { return to_remote(write, s, s.to.address(), s.to.rkey() ^ 1); },
		 status, PEAL_REASON_RKEY_UNKNOWN, peer, event},
		{"rkey of another protection domain",
		 [](Scene &s) {
			 return to_remote(write, s, s.foreign_b.address(), s.foreign_b.rkey());
		 },
		 status, PEAL_REASON_RKEY_PD, peer, event},
		{"rkey of the requester's own region",
		 [](Scene &s) { return to_remote(write, s, s.from.address(), s.from.rkey()); },
		 status, PEAL_REASON_RKEY_PD, peer, event},
		{"one byte behind the remote region",
		 [](Scene &s) {
			 return to_remote(write, s, s.to.address(region_bytes - 63), s.to.rkey());
		 },
		 status, PEAL_REASON_RKEY_RANGE, peer, event},
		{"one byte before the remote region",
		 [](Scene &s) { return to_remote(write, s, s.to.address() - 1, s.to.rkey()); },
		 status, PEAL_REASON_RKEY_RANGE, peer, event},
		{"a remote range that wraps",
		 [](Scene &s) { return to_remote(write, s, ~0ULL - 31, s.to.rkey()); }, status,
		 PEAL_REASON_RKEY_RANGE, peer, event},
		{"READ behind the remote region",
		 [](Scene &s) {
			 return to_remote(IBV_WR_RDMA_READ, s, s.to.address(region_bytes),
					  s.to.rkey(), 1);
		 },
		 status, PEAL_REASON_RKEY_RANGE, peer, event},
		{"atomic behind the remote region",
		 [](Scene &s) { return add_to(s, s.to.address(region_bytes), s.to.rkey()); },
		 status, PEAL_REASON_RKEY_RANGE, peer, event},
	};
}

std::vector<Expected> remote_access()
{
	const auto status = IBV_WC_REM_ACCESS_ERR;
	const auto reason = PEAL_REASON_RKEY_ACCESS;
	const auto peer = IBV_QPS_ERR;
	const auto event = IBV_EVENT_QP_ACCESS_ERR;

	return {
		{"WRITE to a region that only reads",
		 [](Scene &s) {
			 return to_remote(IBV_WR_RDMA_WRITE, s, s.readonly_b.address(),
					  s.readonly_b.rkey());
		 },
		 status, reason, peer, event},
		{"READ from a local region",
		 [](Scene &s) {
			 return to_remote(IBV_WR_RDMA_READ, s, s.local_b.address(),
					  s.local_b.rkey());
		 },
		 status, reason, peer, event},
		{"atomic on a region that only reads",
		 [](Scene &s) { return add_to(s, s.readonly_b.address(), s.readonly_b.rkey()); },
		 status, reason, peer, event},
		{"swap on a local region",
		 [](Scene &s) { return swap_at(s, s.local_b.address(), s.local_b.rkey()); }, status,
		 reason, peer, event},
	};
}

std::vector<Expected> bad_receives()
{
	const auto status = IBV_WC_REM_OP_ERR;
	const auto peer = IBV_QPS_ERR;
	const auto received = IBV_WC_LOC_PROT_ERR;
	const auto send = [](Scene &s) { return Send(IBV_WR_SEND, {s.from.sge(0, 64)}); };

	return {
		{"receive with an lkey of nothing",
		 send,
		 status,
		 PEAL_REASON_RECV_LKEY_UNKNOWN,
		 peer,
		 {},
		 received,
		 [](Scene &s) {
			 return ibv_sge{s.to.address(), 64, no_key};
		 }},
		{"receive with an lkey of another protection domain",
		 send,
		 status,
		 PEAL_REASON_RECV_LKEY_PD,
		 peer,
		 {},
		 received,
		 [](Scene &s) { return s.foreign_b.sge(0, 64); }},
		{"receive behind its region",
		 send,
		 status,
		 PEAL_REASON_RECV_LKEY_RANGE,
		 peer,
		 {},
		 received,
		 [](Scene &s) { return s.to.sge(region_bytes - 63, 64); }},
		{"receive into a region without local write",
		 send,
		 status,
		 PEAL_REASON_RECV_LKEY_ACCESS,
		 peer,
		 {},
		 received,
		 [](Scene &s) { return s.readonly_b.sge(0, 64); }},
	};
}

void run_all(const std::vector<Expected> &cases)
{
	Device device;

	for (const auto &expected : cases)
		run(device, expected);
}

} // namespace

TEST_CASE("local protection errors stop the requester only")
{
	run_all(local_protection());
}

TEST_CASE("bad remote keys are remote access errors")
{
	run_all(remote_keys());
}

TEST_CASE("remote regions allow what they were registered for")
{
	run_all(remote_access());
}

TEST_CASE("receives with bad buffers")
{
	run_all(bad_receives());
}

TEST_CASE("an entry of a receive that gets no byte is not checked")
{
	Device device;
	Scene scene(device);
	const ibv_sge nothing{0, 64, 0};

	post_recv(scene.b.qp, 1, {nothing});
	post(scene.a.qp, Send(IBV_WR_SEND, {}));
	wait_success(scene.a.send_cq);
	CHECK(wait_success(scene.b.recv_cq).front().byte_len == 0);
	post_recv(scene.b.qp, 2, {scene.local_b.sge(0, 16), nothing});
	post(scene.a.qp, Send(IBV_WR_SEND, {scene.from.sge(0, 16)}));
	wait_success(scene.a.send_cq);
	CHECK(wait_success(scene.b.recv_cq).front().byte_len == 16);
	CHECK(difference(scene.local_b.bytes(0, 16), scene.from.bytes(0, 16)).empty());
	post_recv(scene.b.qp, 3, {scene.local_b.sge(0, 16), nothing});
	post(scene.a.qp, Send(IBV_WR_SEND, {scene.from.sge(0, 17)}));
	check_status(wait_completion(scene.a.send_cq), IBV_WC_REM_OP_ERR,
		     PEAL_REASON_RECV_LKEY_UNKNOWN);
	check_status(wait_completion(scene.b.recv_cq), IBV_WC_LOC_PROT_ERR,
		     PEAL_REASON_RECV_LKEY_UNKNOWN);
}

TEST_CASE("a receive buffer that is too short")
{
	Device device;
	const auto too_short = [](Scene &s) { return s.to.sge(0, 63); };
	const auto send = [](Scene &s) { return Send(IBV_WR_SEND, {s.from.sge(0, 64)}); };

	run(device, {"SEND",
		     send,
		     IBV_WC_REM_INV_REQ_ERR,
		     PEAL_REASON_RECV_TOO_SHORT,
		     IBV_QPS_ERR,
		     {},
		     IBV_WC_LOC_LEN_ERR,
		     too_short});
}

TEST_CASE("operations that the peer's queue pair does not allow")
{
	Device device;
	const auto status = IBV_WC_REM_INV_REQ_ERR;
	const auto event = IBV_EVENT_QP_REQ_ERR;
	const auto run_without = [&](int access, const char *name, auto request) {
		Link link;
		link.access = all_access & ~access;
		run(device, {name, request, status, PEAL_REASON_QP_ACCESS, IBV_QPS_ERR, event}, {},
		    link);
	};

	run_without(IBV_ACCESS_REMOTE_WRITE, "WRITE", [](Scene &s) {
		return to_remote(IBV_WR_RDMA_WRITE, s, s.to.address(), s.to.rkey());
	});
	run_without(IBV_ACCESS_REMOTE_READ, "READ", [](Scene &s) {
		return to_remote(IBV_WR_RDMA_READ, s, s.to.address(), s.to.rkey());
	});
	run_without(IBV_ACCESS_REMOTE_ATOMIC, "FETCH_ADD",
		    [](Scene &s) { return add_to(s, s.to.address(), s.to.rkey()); });
	run_without(IBV_ACCESS_REMOTE_ATOMIC, "CMP_SWAP",
		    [](Scene &s) { return swap_at(s, s.to.address(), s.to.rkey()); });
}

TEST_CASE("atomics at an address that is not a multiple of 8")
{
	Device device;

	for (unsigned offset : {1, 2, 4, 7}) {
		const auto add = [=](Scene &s) {
			return add_to(s, s.to.address(offset), s.to.rkey());
		};
		run(device, {"FETCH_ADD", add, IBV_WC_REM_INV_REQ_ERR, PEAL_REASON_ATOMIC_ALIGN,
			     IBV_QPS_ERR, IBV_EVENT_QP_REQ_ERR});
	}
}

TEST_CASE("the local buffer of an atomic has 8 bytes")
{
	Device device;

	for (std::size_t length : {4, 16}) {
		Scene scene(device);
		if (try_post(scene.a.qp,
			     add_to(scene, scene.to.address(), scene.to.rkey(), length)))
			continue; /* the provider may refuse it at once */
		check_status(wait_completion(scene.a.send_cq), IBV_WC_LOC_LEN_ERR,
			     PEAL_REASON_WQE_ATOMIC_LENGTH);
		CHECK(state_name(query_state(scene.a.qp)) == "ERR");
		CHECK(scene.target_untouched());
	}
}

TEST_CASE("READ and atomics without depth for them")
{
	Device device;
	Link none;
	none.rd_atomic = 0;
	Scene scene(device, none);

	if (try_post(scene.a.qp, read_with(scene.from.sge(0, 8), scene)))
		return;
	const auto wc = wait_completion(scene.a.send_cq);
	INFO(describe(wc));
	CHECK(wc.status != IBV_WC_SUCCESS);
	CHECK(reason_name(wc.vendor_err) == "RD_ATOMIC_LIMIT");
}

TEST_CASE("a message longer than 2 GiB")
{
	Device device;
	QpOptions options;
	options.send_sge = options.recv_sge = 32;
	Pair pair(device, options);
	Region region(pair.a.pd, (64U << 20) + 4096);
	Send send(IBV_WR_RDMA_WRITE);
	for (int i = 0; i < 32; i++)
		send.sges.push_back(region.sge(0, (64U << 20) + 1));

	if (try_post(pair.a.qp, send))
		return;
	const auto wc = wait_completion(pair.a.send_cq);
	INFO(describe(wc));
	CHECK((wc.status == IBV_WC_LOC_LEN_ERR || wc.status == IBV_WC_LOC_QP_OP_ERR));
	CHECK(reason_name(wc.vendor_err) == "WQE_LENGTH");
}

TEST_CASE("SEND with invalidate of a key that is none")
{
	Device device;
	Scene scene(device);
	Send send(IBV_WR_SEND_WITH_INV, {scene.from.sge(0, 16)});
	send.wr.invalidate_rkey = no_key;

	post_recv(scene.b.qp, 1, {scene.local_b.sge(0, 64)});
	post(scene.a.qp, send);
	const auto wc = wait_completion(scene.a.send_cq);
	check_status(wc, IBV_WC_REM_ACCESS_ERR, PEAL_REASON_INV_RKEY);
	CHECK(state_name(query_state(scene.b.qp)) == "ERR");
}

TEST_CASE("the completions before a failed one are not lost")
{
	Device device;
	Scene scene(device);

	for (unsigned i = 0; i < 5; i++)
		post(scene.a.qp,
		     to_remote(IBV_WR_RDMA_WRITE, scene, scene.to.address(), scene.to.rkey())
			     .id(i));
	post(scene.a.qp, to_remote(IBV_WR_RDMA_WRITE, scene, scene.to.address(), no_key).id(5));
	const auto wcs = wait_completions(scene.a.send_cq, 6);
	for (unsigned i = 0; i < 6; i++) {
		CHECK(wcs[i].wr_id == i);
		CHECK(status_name(wcs[i].status) ==
		      status_name(i < 5 ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR));
	}
}

TEST_CASE("modify to ERR flushes what was posted, in order")
{
	Device device;
	Scene scene(device);

	for (unsigned i = 0; i < 5; i++)
		post_recv(scene.b.qp, 200 + i, {scene.to.sge(0, 64)});
	to_state(scene.b.qp, IBV_QPS_ERR);
	check_flushed(scene.b.recv_cq, 200, 5);
	post_recv(scene.b.qp, 300, {scene.to.sge(0, 64)});
	check_flushed(scene.b.recv_cq, 300, 1);
	post(scene.b.qp, Send(IBV_WR_SEND, {scene.to.sge(0, 64)}).id(400).flags(0));
	check_flushed(scene.b.send_cq, 400, 1);
}

TEST_CASE("communication established")
{
	Device device;
	Scene scene(device);
	Endpoint early(device), late(device);

	connect_to(early.qp, device, late.qp->qp_num);
	to_init(late.qp);
	Region buffer(late.pd, page_bytes);
	post_recv(late.qp, 1, {buffer.sge(0, 64)});
	to_rtr(late.qp, device, early.qp->qp_num);
	post(early.qp, Send(IBV_WR_SEND));
	wait_success(early.send_cq);
	wait_success(late.recv_cq);
	CHECK(device.wait_event(IBV_EVENT_COMM_EST, late.qp.get()));
	CHECK(device.count_events(IBV_EVENT_COMM_EST, late.qp.get()) == 1);
	CHECK(state_name(query_state(late.qp)) == "RTR");
}
