// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
// transport: any
/*
 * Raw packet queue pairs send and receive Ethernet frames of the netdev.
 *
 * Holds: Frames leave byte by byte as they were posted, from lists and inline, of every length that
 * the netdev takes. Frames to a rule's address come in, others do not. Frames that are too short or
 * too long fail. The queue pair has the states and the attributes of its type. Frames to this
 * station and to groups come back to the rules of the device. Without CAP_NET_RAW nothing works.
 * Does not hold: kinds of rules (verbs/flow_rules), checksums (verbs/frame_checksums).
 */
#include "counters.hpp"
#include "frames.hpp"
#include "program.hpp"

#include <linux/capability.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace peal_test;

namespace {

void check_same(const Bytes &got, const Bytes &expected)
{
	CHECK(got.size() == expected.size());
	if (got.size() == expected.size())
		CHECK(difference(got, expected).empty());
}

std::size_t netdev_mtu()
{
	std::size_t mtu = 0;

	std::ifstream("/sys/class/net/veth0/mtu") >> mtu;
	return mtu;
}

Bytes plain_frame(std::size_t length, std::uint64_t salt = 1)
{
	FrameShape shape;

	shape.payload = length - 14;
	shape.salt = salt;
	return frame_of(shape);
}

void drop_net_raw()
{
	__user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
	std::array<__user_cap_data_struct, 2> data{};

	must(syscall(SYS_capget, &header, data.data()) ? errno : 0, "capget");
	data[0].effective &= ~(1U << CAP_NET_RAW);
	must(syscall(SYS_capset, &header, data.data()) ? errno : 0, "capset");
}

int creation_error(Device &device)
{
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq = create_cq(device, 16);
	auto init = init_attributes(pd, cq, cq, raw_options());
	ibv_qp *qp = ibv_create_qp_ex(device, &init);

	if (!qp)
		return errno;
	ibv_destroy_qp(qp);
	return 0;
}

} // namespace

TEST_CASE("frames leave as they were posted")
{
	Device device;
	RawEnd end(device);
	Wire wire("veth1");
	const FrameShape shape;

	for (const std::size_t length : {14U, 15U, 60U, 63U, 64U, 777U, 1514U}) {
		INFO(length);
		const Bytes frame = plain_frame(length, length);
		end.send(frame);
		check_same(wire.receive(shape.from), frame);
	}
	const Bytes longest = plain_frame(netdev_mtu() + 14, 3);
	end.send(longest);
	check_same(wire.receive(shape.from), longest);
}

TEST_CASE("a tagged frame may be four bytes longer")
{
	Device device;
	RawEnd end(device);
	Wire wire("veth1");
	FrameShape shape;

	shape.vlan = 0x6123;
	shape.payload = netdev_mtu();
	const Bytes frame = frame_of(shape);
	end.send(frame);
	check_same(wire.receive(shape.from), frame);
}

TEST_CASE("frames are gathered from lists and from inline data")
{
	Device device;
	RawEnd end(device, {.inline_bytes = 256});
	Wire wire("veth1");
	const FrameShape shape;
	const Bytes frame = plain_frame(200, 5);

	std::copy(frame.begin(), frame.end(), end.memory.data());
	post(end.qp, Send(IBV_WR_SEND, {end.memory.sge(0, 3), end.memory.sge(3, 11),
					end.memory.sge(14, 0), end.memory.sge(14, 186)}));
	wait_success(end.send_cq);
	check_same(wire.receive(shape.from), frame);
	end.send(frame, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
	check_same(wire.receive(shape.from), frame);
}

TEST_CASE("frames that the netdev cannot take fail")
{
	Device device;
	RawEnd end(device);

	for (const std::size_t length :
	     {std::size_t{0}, std::size_t{1}, std::size_t{13}, netdev_mtu() + 15, netdev_mtu() + 19,
	      std::size_t{100000}}) {
		INFO(length);
		const Bytes frame = plain_frame(std::max<std::size_t>(length, 14));
		std::copy(frame.begin(), frame.end(), end.memory.data());
		post(end.qp,
		     Send(IBV_WR_SEND, {end.memory.sge(0, static_cast<std::uint32_t>(length))}));
		check_status(wait_completion(end.send_cq), IBV_WC_LOC_LEN_ERR,
			     PEAL_REASON_FRAME_LENGTH);
		CHECK(state_name(query_state(end.qp)) == "SQE");
		to_state(end.qp, IBV_QPS_RTS);
	}
	CHECK(try_post(end.qp, Send(IBV_WR_SEND_WITH_IMM, {end.memory.sge(0, 64)})) == EINVAL);
	CHECK(try_post(end.qp, Send(IBV_WR_RDMA_WRITE, {end.memory.sge(0, 64)})) == EINVAL);
}

TEST_CASE("frames to the address of a rule come in")
{
	Device device;
	RawEnd end(device);
	Wire wire("veth1");
	FrameShape shape;
	const Flow flow = Rule().to(station).create(end.qp);

	for (const std::size_t length : {14U, 15U, 60U, 64U, 777U, 1514U}) {
		INFO(length);
		const Bytes frame = plain_frame(length, length);
		end.post_receive();
		wire.send(frame);
		check_same(end.received(), frame);
		CHECK((end.last.wc_flags & IBV_WC_GRH) == 0);
		CHECK(end.last.wr_id == 7);
	}
	/* Another address differs in one bit. */
	shape.to[5] ^= 0x10;
	end.post_receive();
	wire.send(frame_of(shape));
	const Bytes frame = plain_frame(99, 9);
	wire.send(frame);
	check_same(end.received(), frame);
	CHECK(end.got_nothing());
}

TEST_CASE("a frame without a receive, or longer than it, is dropped and counted")
{
	Device device;
	RawEnd end(device);
	Wire wire("veth1");
	const Flow flow = Rule().to(station).create(end.qp);
	const auto without = counter("drop_receive"), longer = counter("drop_length");

	wire.send(plain_frame(100));
	CHECK(eventually([&] { return counter("drop_receive") == without + 1; }));
	end.post_receive(99);
	wire.send(plain_frame(100));
	CHECK(eventually([&] { return counter("drop_length") == longer + 1; }));
	wire.send(plain_frame(99, 4));
	check_same(end.received(), plain_frame(99, 4));
	CHECK(all_equal(end.memory.bytes(RawEnd::half + 99, 64), 0x5a));
}

TEST_CASE("keys that are wrong")
{
	Device device;
	RawEnd sender(device), receiver(device);
	Pd other(ibv_alloc_pd(device), "alloc_pd");
	Region foreign(other, page_bytes), read_only(receiver.pd, page_bytes, 0);
	Wire wire("veth1");
	const Flow flow = Rule().to(station).create(receiver.qp);

	post(sender.qp, Send(IBV_WR_SEND, {foreign.sge(0, 64)}));
	check_status(wait_completion(sender.send_cq), IBV_WC_LOC_PROT_ERR, PEAL_REASON_LKEY_PD);
	CHECK(state_name(query_state(sender.qp)) == "SQE");
	for (const Region *region : {&foreign, &read_only}) {
		post_recv(receiver.qp, 1, {region->sge(0, 4096)});
		wire.send(plain_frame(100));
		check_status(wait_completion(receiver.recv_cq), IBV_WC_LOC_PROT_ERR,
			     region == &foreign ? PEAL_REASON_RECV_LKEY_PD
						: PEAL_REASON_RECV_LKEY_ACCESS);
		CHECK(eventually([&] { return query_state(receiver.qp) == IBV_QPS_ERR; }));
		to_state(receiver.qp, IBV_QPS_RESET);
		raw_ready(receiver.qp);
	}
	/* The rule is still there. */
	receiver.post_receive();
	wire.send(plain_frame(100, 8));
	check_same(receiver.received(), plain_frame(100, 8));
}

TEST_CASE("memory that comes on demand")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	RawEnd sender(device), receiver(device);
	const Flow flow = Rule().to(station).create(receiver.qp);
	Wire wire("veth1");
	Memory from(2 * page_bytes), to(2 * page_bytes);
	Mr local(ibv_reg_mr(sender.pd, from.data(), from.size(), all_access | IBV_ACCESS_ON_DEMAND),
		 "reg_mr"),
		remote(ibv_reg_mr(receiver.pd, to.data(), to.size(),
				  all_access | IBV_ACCESS_ON_DEMAND),
		       "reg_mr");
	const auto frame = plain_frame(200, 3);
	const std::size_t at = page_bytes - 100;

	for (int round = 0; round < 3; round++) {
		must(madvise(from.data(), from.size(), MADV_DONTNEED) ? errno : 0, "madvise");
		must(madvise(to.data(), to.size(), MADV_DONTNEED) ? errno : 0, "madvise");
		std::copy(frame.begin(), frame.end(), from.data() + at);
		post(sender.qp, Send(IBV_WR_SEND, {{from.address(at), 200, local->lkey}}));
		wait_success(sender.send_cq);
		/* Frames are lost until the pages are there. The receive waits. */
		post_recv(receiver.qp, 1, {{to.address(at), 400, remote->lkey}});
		CHECK(eventually([&] {
			wire.send(frame);
			usleep(2000);
			return !drain(receiver.recv_cq).empty();
		}));
		CHECK(difference(to.bytes(at, 200), frame) == "");
	}
	munmap(from.data(), from.size());
	post(sender.qp, Send(IBV_WR_SEND, {{from.address(at), 200, local->lkey}}));
	check_status(wait_completion(sender.send_cq), IBV_WC_LOC_PROT_ERR, PEAL_REASON_LKEY_PAGE);
	munmap(to.data(), to.size());
	post_recv(receiver.qp, 1, {{to.address(at), 400, remote->lkey}});
	CHECK(eventually([&] {
		wire.send(frame);
		usleep(2000);
		const auto all = drain(receiver.recv_cq);
		return !all.empty() && all.front().status == IBV_WC_LOC_PROT_ERR &&
		       all.front().vendor_err == PEAL_REASON_RECV_LKEY_PAGE;
	}));
}

TEST_CASE("receives of a shared receive queue")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Srq srq = create_srq(pd, 16);
	Region memory(pd, 4 * page_bytes);
	Cq cq = create_cq(device, 16);
	Qp qp = create_qp(pd, cq, cq, raw_options({.srq = srq}));
	Wire wire("veth1");

	raw_ready(qp);
	const Flow flow = Rule().to(station).create(qp);
	post_srq_recv(srq, 3, {memory.sge(0, 4096)});
	wire.send(plain_frame(333, 6));
	const auto wc = wait_completion(cq);
	must_succeed(wc);
	CHECK(wc.wr_id == 3);
	CHECK(wc.byte_len == 333);
	CHECK(difference(memory.bytes(0, 333), plain_frame(333, 6)).empty());
}

TEST_CASE("a frame to this station does not leave, and one to a group also comes back")
{
	Device device;
	RawEnd sender(device), receiver(device);
	Wire wire("veth1");
	FrameShape shape;

	for (const Mac &to : {mac("veth0"), group, everyone}) {
		const bool mine = to == mac("veth0");
		const Flow flow = Rule(IBV_FLOW_ATTR_NORMAL).to(to).create(receiver.qp);

		shape.to = to;
		shape.salt++;
		receiver.post_receive();
		sender.send(frame_of(shape));
		check_same(receiver.received(), frame_of(shape));
		if (!mine)
			check_same(wire.receive(shape.from), frame_of(shape));
	}
	CHECK(wire.receive(shape.from, 100ms).empty());
}

TEST_CASE("states and attributes")
{
	Device device;
	Endpoint end(device, raw_options());
	ibv_qp_attr attr{};
	ibv_qp_init_attr init{};

	attr.port_num = 1;
	attr.qp_state = IBV_QPS_INIT;
	CHECK(errno_name(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE)) == "EINVAL");
	CHECK(errno_name(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_QKEY)) ==
	      "EINVAL");
	attr.port_num = 2;
	CHECK(errno_name(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PORT)) == "EINVAL");
	raw_ready(end.qp);
	must(ibv_query_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PORT, &init), "query_qp");
	CHECK(state_name(attr.qp_state) == "RTS");
	CHECK(attr.port_num == 1);
	CHECK(init.qp_type == IBV_QPT_RAW_PACKET);
	Region memory(end.pd, page_bytes);
	post_recv(end.qp, 1, {memory.sge(0, 64)});
	to_state(end.qp, IBV_QPS_SQD);
	post(end.qp, Send(IBV_WR_SEND, {memory.sge(0, 64)}));
	CHECK(drain(end.send_cq).empty());
	to_state(end.qp, IBV_QPS_ERR);
	CHECK(wait_completion(end.send_cq).status == IBV_WC_WR_FLUSH_ERR);
	CHECK(wait_completion(end.recv_cq).status == IBV_WC_WR_FLUSH_ERR);
	to_state(end.qp, IBV_QPS_RESET);
	raw_ready(end.qp);
}

TEST_CASE("flags that peal does not have")
{
	Device device;
	Endpoint end(device, raw_options());
	auto init = init_attributes(end.pd, end.send_cq, end.recv_cq, raw_options());

	init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	for (const unsigned flag :
	     {IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, IBV_QP_CREATE_SCATTER_FCS,
	      IBV_QP_CREATE_CVLAN_STRIPPING, IBV_QP_CREATE_PCI_WRITE_END_PADDING}) {
		init.create_flags = flag;
		CHECK(ibv_create_qp_ex(device, &init) == nullptr);
		CHECK(errno_name(errno) == "EOPNOTSUPP");
	}
	CHECK(errno_name(Rule().to(station).error(Endpoint(device, {.type = IBV_QPT_UD}).qp)) ==
	      "EOPNOTSUPP");
}

TEST_CASE("a netdev that is down takes frames and loses them")
{
	Device device;
	RawEnd end(device);
	const auto unsent = counter("packets_unsent");

	run_command("ip link set veth0 down");
	end.send(plain_frame(64));
	CHECK(counter("packets_unsent") == unsent + 1);
	run_command("ip link set veth0 up");
}

TEST_CASE("without CAP_NET_RAW")
{
	CHECK(in_child([] {
		      drop_net_raw();
		      Device device;
		      return creation_error(device);
	      }) == EPERM);
	/* A rule needs the capability, too. */
	CHECK(in_child([] {
		      Device device;
		      RawEnd end(device);
		      drop_net_raw();
		      return Rule().to(station).error(end.qp);
	      }) == EPERM);
	/* The root of a user namespace has it only there. */
	CHECK(in_child([] {
		      if (unshare(CLONE_NEWUSER))
			      return 0;
		      Device device;
		      return creation_error(device);
	      }) == EPERM);
}

TEST_CASE("the rules of a dead process are gone")
{
	Device device;
	RawEnd end(device);
	Wire wire("veth1");
	const auto received = counter("frames_received");

	CHECK(in_child([] {
		      Device other;
		      auto *dead = new RawEnd(other);
		      dead->post_receive();
		      return Rule().to(station).try_create(dead->qp) ? 0 : 1;
	      }) == 0);
	wire.send(plain_frame(80));
	/* This rule would come second. */
	const Flow flow = Rule(IBV_FLOW_ATTR_NORMAL, 5).to(station).create(end.qp);
	end.post_receive();
	CHECK(eventually([&] {
		wire.send(plain_frame(81));
		return !drain(end.recv_cq).empty();
	}));
	CHECK(counter("frames_received") == received + 1);
}
