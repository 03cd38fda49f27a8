// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 60
// transport: any
/*
 * Multicast groups: attach, detach, and delivery to the members.
 *
 * Holds: IPv4 and IPv6 groups work on one device whose own host gets copies. The network stack
 * joins and leaves the groups. The limits of attach are true.
 * Does not hold: other hosts, mckey (tools/connect_on_one_host).
 */
#include "datagram.hpp"

#include <sstream>

using namespace peal_test;

namespace {

constexpr std::uint32_t multicast_qpn = 0xffffff;

ibv_gid group_gid(const char *text)
{
	ibv_gid gid{};

	if (inet_pton(AF_INET6, text, gid.raw) == 1)
		return gid;
	gid = {};
	gid.raw[10] = gid.raw[11] = 0xff;
	if (inet_pton(AF_INET, text, gid.raw + 12) != 1)
		throw std::runtime_error("not an address");
	return gid;
}

/* Return: whether the network stack is in the group, on any interface. */
bool stack_is_member(const ibv_gid &gid)
{
	const bool v4 = is_ipv4(gid);
	std::ifstream file(v4 ? "/proc/net/igmp" : "/proc/net/igmp6");
	std::string text((std::istreambuf_iterator<char>(file)), {});
	std::ostringstream wanted;

	wanted << std::uppercase << std::hex;
	if (v4)
		for (int i = 15; i >= 12; i--)
			wanted << (gid.raw[i] >> 4) << (gid.raw[i] & 15);
	else
		for (const auto byte : gid.raw)
			wanted << std::nouppercase << (byte >> 4) << (byte & 15);
	return text.find(wanted.str()) != std::string::npos;
}

struct Attachment {
	Attachment(ibv_qp *qp, const ibv_gid &gid) : qp(qp), gid(gid)
	{
		must(ibv_attach_mcast(qp, &gid, 0), "attach_mcast");
	}
	~Attachment()
	{
		if (ibv_detach_mcast(qp, &gid, 0))
			session().late_failures++;
	}
	Attachment(const Attachment &) = delete;
	ibv_qp *qp;
	ibv_gid gid;
};

void check_copy(const UdEnd &to, const UdEnd &from, std::size_t bytes)
{
	const auto wc = wait_completion(to.recv_cq);

	must_succeed(wc);
	CHECK(wc.byte_len == grh_bytes + bytes);
	CHECK(wc.src_qp == from.qp->qp_num);
	CHECK((wc.wc_flags & IBV_WC_GRH) != 0);
	CHECK(difference(to.memory.bytes(4096 + grh_bytes, bytes), from.memory.bytes(0, bytes))
		      .empty());
}

void run(Device &device, bool ipv4, const char *text)
{
	INFO("group " << text);
	const auto gid = group_gid(text), other = group_gid(ipv4 ? "239.8.8.8" : "ff15::8888");
	const auto address = find_address(device, ipv4);
	REQUIRE(address);
	UdEnd sender(device), b(device), c(device), outside(device);
	const auto ah = create_ah(sender.pd, address->index, gid);
	CHECK(!stack_is_member(gid));
	{
		const Attachment in_b(b.qp, gid), in_c(c.qp, gid), elsewhere(outside.qp, other);
		CHECK(stack_is_member(gid));
		fill_pattern(sender.memory.bytes(0, 500), 5);
		for (auto *end : {&b, &c, &outside})
			for (int i = 0; i < 3; i++)
				post_recv(end->qp, i, {end->memory.sge(4096, 1024)});
		for (int i = 0; i < 3; i++) {
			post(sender.qp, Datagram(ah, multicast_qpn, {sender.memory.sge(0, 500)}));
			wait_success(sender.send_cq);
			check_copy(b, sender, 500);
			check_copy(c, sender, 500);
		}
		CHECK(describe(drain(outside.recv_cq)) == "0 completions");
	}
	CHECK(!stack_is_member(gid));
	post_recv(b.qp, 9, {b.memory.sge(4096, 1024)});
	post(sender.qp, Datagram(ah, multicast_qpn, {sender.memory.sge(0, 500)}));
	wait_success(sender.send_cq);
	CHECK(!eventually([&] { return !drain(b.recv_cq).empty(); }, absence));
}

} // namespace

TEST_CASE("each attached queue pair gets a copy, IPv4")
{
	Device device;
	run(device, true, "239.1.2.3");
}

TEST_CASE("each attached queue pair gets a copy, IPv6")
{
	Device device;
	if (!find_address(device, false))
		SKIP_CASE("the device has no IPv6 address");
	run(device, false, "ff15::1234");
}

TEST_CASE("one that has no receive does not keep the others from theirs")
{
	Device device;
	const auto gid = group_gid("239.1.2.4");
	UdEnd sender(device), b(device), c(device);
	const auto ah = create_ah(sender.pd, static_cast<std::uint8_t>(device.gid_index()), gid);
	const Attachment in_b(b.qp, gid), in_c(c.qp, gid);
	const auto before = counter("drop_receive");

	post_recv(c.qp, 1, {c.memory.sge(4096, 1024)});
	post(sender.qp, Datagram(ah, multicast_qpn, {sender.memory.sge(0, 64)}));
	wait_success(sender.send_cq);
	check_copy(c, sender, 64);
	CHECK(eventually([&] { return counter("drop_receive") == before + 1; }));
	CHECK(describe(drain(b.recv_cq)) == "0 completions");
}

TEST_CASE("invalid attachments are refused")
{
	Device device;
	UdEnd a(device);
	Pair connected(device);
	const auto gid = group_gid("239.1.2.5"), unicast = group_gid("10.1.2.3");

	CHECK(errno_name(ibv_attach_mcast(connected.a.qp, &gid, 0)) == "EINVAL");
	CHECK(errno_name(ibv_attach_mcast(a.qp, &unicast, 0)) == "EINVAL");
	CHECK(ibv_detach_mcast(a.qp, &gid, 0) != 0);
	const auto limits = device.attributes();
	CHECK(limits.max_mcast_grp > 0);
	CHECK(limits.max_mcast_qp_attach > 0);
	CHECK(limits.max_ah > 0);
}

TEST_CASE("an attached queue pair is not destroyed, and goes on")
{
	Device device;
	const auto gid = group_gid("239.1.2.7");
	UdEnd sender(device), a(device);
	const auto ah = create_ah(sender.pd, static_cast<std::uint8_t>(device.gid_index()), gid);
	const Attachment attached(a.qp, gid);

	CHECK(errno_name(ibv_destroy_qp(a.qp)) == "EBUSY");
	post_recv(a.qp, 1, {a.memory.sge(4096, 1024)});
	post(sender.qp, Datagram(ah, multicast_qpn, {sender.memory.sge(0, 64)}));
	wait_success(sender.send_cq);
	check_copy(a, sender, 64);
}

TEST_CASE("the program ends with its queue pairs attached")
{
	Device device;
	const auto gid = group_gid("239.1.2.6");
	{
		Device other;
		auto *leaked = new UdEnd(other);
		must(ibv_attach_mcast(leaked->qp, &gid, 0), "attach_mcast");
		CHECK(stack_is_member(gid));
		/* A queue pair that is attached is in use. */
		CHECK(errno_name(ibv_destroy_qp(leaked->qp.get())) == "EBUSY");
		must(ibv_detach_mcast(leaked->qp, &gid, 0), "detach_mcast");
		delete leaked;
	}
	CHECK(!stack_is_member(gid));
}
