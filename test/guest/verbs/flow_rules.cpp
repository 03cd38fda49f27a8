// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
// transport: any
/*
 * Flow rules choose the frames that a raw packet queue pair receives.
 *
 * Holds: For each field of a rule a frame that matches comes in, and a frame that differs in this
 * field alone does not. Priorities count. Equal rules of several queue pairs, rules that pass
 * frames on, default rules and sniffers get what they should, and the stack still sees the rest.
 * RoCE and rdma_rxe's port are untouched. Rules that peal does not have get EOPNOTSUPP, wrong ones
 * EINVAL.
 * Does not hold: bytes of frames (verbs/raw_packets), random rules (hostile/random_flows).
 */
#include "commands.hpp"
#include "counters.hpp"
#include "frames.hpp"

#include <functional>

using namespace peal_test;

namespace {

struct Stage {
	Device device;
	RawEnd end{device};
	Wire wire{"veth1"};
	std::uint64_t salt = 100;

	Stage() { end.post_slots(); }

	/*
	 * Sends the frame from outside. Return: whether the queue pair got it. A second frame,
	 * which a rule of its own delivers, shows that the first has come in, or will not.
	 */
	bool gets(FrameShape shape)
	{
		FrameShape last;
		ibv_flow_spec_eth spec{};
		bool got = false;

		shape.salt = ++salt;
		last.to = everyone;
		last.type = 0x88b6;
		last.salt = ++salt;
		spec.val.ether_type = htons(last.type);
		spec.mask.ether_type = 0xffff;
		const Flow flow = Rule(IBV_FLOW_ATTR_NORMAL, 0xffff)
					  .add(spec, IBV_FLOW_SPEC_ETH)
					  .create(end.qp);
		wire.send(frame_of(shape));
		wire.send(frame_of(last));
		CHECK(eventually([&] {
			bool ended = false;

			for (const Bytes &frame : end.frames()) {
				got |= frame == frame_of(shape);
				ended |= frame == frame_of(last);
			}
			return ended;
		}));
		return got;
	}
};

using Change = std::function<void(FrameShape &)>;

struct Case {
	std::string name;
	Rule rule;
	FrameShape match;
	Change differ;
};

ibv_flow_spec_eth eth(std::function<void(ibv_flow_eth_filter &, ibv_flow_eth_filter &)> set)
{
	ibv_flow_spec_eth spec{};

	set(spec.val, spec.mask);
	return spec;
}

template <class Spec, class Set>
Spec filled(Set set)
{
	Spec spec{};

	set(spec.val, spec.mask);
	return spec;
}

FrameShape ipv4(std::uint8_t protocol = 17)
{
	FrameShape shape;

	shape.type = 0x0800;
	shape.protocol = protocol;
	return shape;
}

FrameShape ipv6(std::uint8_t protocol = 17)
{
	FrameShape shape = ipv4(protocol);

	shape.type = 0x86dd;
	return shape;
}

FrameShape tagged(FrameShape shape = {})
{
	shape.vlan = 0x0123;
	return shape;
}

std::uint32_t ip_of(const char *text)
{
	std::uint32_t value;

	std::memcpy(&value, address(text).data(), 4);
	return value;
}

std::vector<Case> cases()
{
	const auto with_eth = [](auto set) { return Rule().add(eth(set), IBV_FLOW_SPEC_ETH); };
	const auto with_ip = [](auto set) {
		return Rule().add(filled<ibv_flow_spec_ipv4_ext>(set), IBV_FLOW_SPEC_IPV4_EXT);
	};
	const auto with_ip6 = [](auto set) {
		return Rule().add(filled<ibv_flow_spec_ipv6>(set), IBV_FLOW_SPEC_IPV6);
	};
	const auto with_ports = [](ibv_flow_spec_type type, auto set) {
		return Rule().add(filled<ibv_flow_spec_tcp_udp>(set), type);
	};

	return {
		{"destination MAC", Rule().to(station), {}, [](auto &f) { f.to[0] ^= 0x80; }},
		{"source MAC",
		 with_eth([](auto &v, auto &m) {
			 std::copy_n(FrameShape{}.from.data(), 6, v.src_mac);
			 std::memset(m.src_mac, 0xff, 6);
		 }),
		 {},
		 [](auto &f) { f.from[5]++; }},
		{"some bits of the MAC",
		 with_eth([](auto &v, auto &m) {
			 v.dst_mac[1] = 0x70;
			 m.dst_mac[1] = 0xf0;
			 v.dst_mac[5] = 0xff; /* without a mask, this does not count */
		 }),
		 {},
		 [](auto &f) { f.to[1] ^= 0x40; }},
		{"EtherType",
		 with_eth([](auto &v, auto &m) {
			 v.ether_type = htons(test_type);
			 m.ether_type = 0xffff;
		 }),
		 {},
		 [](auto &f) { f.type ^= 0x100; }},
		{"EtherType behind a tag", with_eth([](auto &v, auto &m) {
			 v.ether_type = htons(test_type);
			 m.ether_type = 0xffff;
		 }),
		 tagged(), [](auto &f) { f.type ^= 0x100; }},
		{"VLAN", with_eth([](auto &v, auto &m) {
			 v.vlan_tag = htons(0x123);
			 m.vlan_tag = htons(0xfff);
		 }),
		 tagged(), [](auto &f) { f.vlan++; }},
		{"VLAN, and the frame has none",
		 with_eth([](auto &, auto &m) { m.vlan_tag = htons(0x001); }),
		 [] {
			 auto f = tagged();
			 f.vlan = 0x122;
			 return f;
		 }(),
		 [](auto &f) { f.vlan = -1; }},
		{"IPv4", with_ip([](auto &, auto &) {}), ipv4(), [](auto &f) { f.type = 0x86dd; }},
		{"IPv4 source", with_ip([](auto &v, auto &m) {
			 v.src_ip = ip_of("10.9.0.1");
			 m.src_ip = ~0U;
		 }),
		 ipv4(), [](auto &f) { f.from_ip = "10.9.0.3"; }},
		{"IPv4 destination network", with_ip([](auto &v, auto &m) {
			 v.dst_ip = ip_of("10.9.0.77");
			 m.dst_ip = ip_of("255.255.255.0");
		 }),
		 ipv4(), [](auto &f) { f.to_ip = "10.9.1.2"; }},
		{"IPv4 protocol", with_ip([](auto &v, auto &m) {
			 v.proto = 17;
			 m.proto = 0xff;
		 }),
		 ipv4(), [](auto &f) { f.protocol = 6; }},
		{"IPv4 TOS", with_ip([](auto &v, auto &m) {
			 v.tos = 0x20;
			 m.tos = 0xe0;
		 }),
		 [] {
			 auto f = ipv4();
			 f.tos = 0x28;
			 return f;
		 }(),
		 [](auto &f) { f.tos = 0x40; }},
		{"IPv4 TTL", with_ip([](auto &v, auto &m) {
			 v.ttl = 64;
			 m.ttl = 0xff;
		 }),
		 ipv4(), [](auto &f) { f.ttl = 63; }},
		{"IPv4 behind a tag", with_ip([](auto &v, auto &m) {
			 v.src_ip = ip_of("10.9.0.1");
			 m.src_ip = ~0U;
		 }),
		 tagged(ipv4()), [](auto &f) { f.from_ip = "10.9.0.3"; }},
		{"IPv6 source", with_ip6([](auto &v, auto &m) {
			 std::copy_n(address("fd99::1").data(), 16, v.src_ip);
			 std::memset(m.src_ip, 0xff, 16);
		 }),
		 ipv6(), [](auto &f) { f.from_ip6 = "fd99::3"; }},
		{"IPv6 destination network", with_ip6([](auto &v, auto &m) {
			 std::copy_n(address("fd99::7").data(), 16, v.dst_ip);
			 std::memset(m.dst_ip, 0xff, 8);
		 }),
		 ipv6(), [](auto &f) { f.to_ip6 = "fd98::2"; }},
		{"IPv6 next header", with_ip6([](auto &v, auto &m) {
			 v.next_hdr = 17;
			 m.next_hdr = 0xff;
		 }),
		 ipv6(), [](auto &f) { f.protocol = 6; }},
		{"IPv6 traffic class", with_ip6([](auto &v, auto &m) {
			 v.traffic_class = 0x2c;
			 m.traffic_class = 0xfc;
		 }),
		 [] {
			 auto f = ipv6();
			 f.tos = 0x2c;
			 return f;
		 }(),
		 [](auto &f) { f.tos = 0x4c; }},
		{"IPv6 flow label", with_ip6([](auto &v, auto &m) {
			 v.flow_label = htonl(0x12345);
			 m.flow_label = htonl(0xfffff);
		 }),
		 [] {
			 auto f = ipv6();
			 f.label = 0x12345;
			 return f;
		 }(),
		 [](auto &f) { f.label = 0x12344; }},
		{"IPv6 hop limit", with_ip6([](auto &v, auto &m) {
			 v.hop_limit = 64;
			 m.hop_limit = 0xff;
		 }),
		 ipv6(), [](auto &f) { f.ttl = 1; }},
		{"UDP destination port",
		 with_ports(IBV_FLOW_SPEC_UDP,
			    [](auto &v, auto &m) {
				    v.dst_port = htons(5000);
				    m.dst_port = 0xffff;
			    }),
		 ipv4(), [](auto &f) { f.to_port = 5001; }},
		{"UDP and not TCP",
		 with_ports(IBV_FLOW_SPEC_UDP,
			    [](auto &v, auto &m) {
				    v.src_port = htons(4000);
				    m.src_port = 0xffff;
			    }),
		 ipv6(), [](auto &f) { f.protocol = 6; }},
		{"TCP source ports",
		 with_ports(IBV_FLOW_SPEC_TCP,
			    [](auto &v, auto &m) {
				    v.src_port = htons(4000);
				    m.src_port = htons(0xfff0);
			    }),
		 ipv4(6), [](auto &f) { f.from_port = 4017; }},
		{"TCP over IPv6",
		 with_ports(IBV_FLOW_SPEC_TCP,
			    [](auto &v, auto &m) {
				    v.dst_port = htons(5000);
				    m.dst_port = 0xffff;
			    }),
		 ipv6(6), [](auto &f) { f.to_port = 4999; }},
		{"no specification", Rule(), {}, {}},
	};
}

int udp_socket(std::uint16_t port)
{
	const int fd = socket(AF_INET, SOCK_DGRAM, 0);
	sockaddr_in where{};

	where.sin_family = AF_INET;
	where.sin_port = htons(port);
	must(bind(fd, reinterpret_cast<sockaddr *>(&where), sizeof(where)) ? errno : 0, "bind");
	return fd;
}

/* A datagram to this host's stack. */
FrameShape to_stack(std::uint16_t port = 5000)
{
	FrameShape shape = ipv4();

	shape.to = mac("veth0");
	shape.from = mac("veth1");
	shape.from_ip = "10.77.0.2";
	shape.to_ip = "10.77.0.1";
	shape.to_port = port;
	return shape;
}

bool stack_got(int fd, Duration limit = patience)
{
	std::array<char, 2048> bytes;

	return readable(fd, limit) && recv(fd, bytes.data(), bytes.size(), 0) == 100;
}

} // namespace

TEST_CASE("each field of a rule")
{
	Stage stage;

	for (auto &each : cases()) {
		INFO(each.name);
		const Flow flow = each.rule.create(stage.end.qp);
		FrameShape other = each.match;

		CHECK(stage.gets(each.match));
		if (!each.differ)
			continue;
		each.differ(other);
		CHECK_FALSE(stage.gets(other));
	}
	CHECK_FALSE(stage.gets({}));
}

TEST_CASE("the first rule by priority takes the frame, and equal rules share it")
{
	Device device;
	RawEnd first(device), second(device), twin(device);
	Wire wire("veth1");
	ibv_flow_spec_eth type{};

	type.val.ether_type = htons(test_type);
	type.mask.ether_type = 0xffff;
	Flow later = Rule(IBV_FLOW_ATTR_NORMAL, 7).to(station).create(second.qp);
	Flow sooner = Rule(IBV_FLOW_ATTR_NORMAL, 6).add(type, IBV_FLOW_SPEC_ETH).create(first.qp);
	Flow equal = Rule(IBV_FLOW_ATTR_NORMAL, 6).add(type, IBV_FLOW_SPEC_ETH).create(twin.qp);
	for (RawEnd *end : {&first, &second, &twin})
		end->post_receive();
	wire.send(frame_of({}));
	CHECK(first.received() == frame_of({}));
	CHECK(twin.received() == frame_of({}));
	CHECK(second.got_nothing());
	/* Without them the next one gets it. */
	sooner.reset();
	equal.reset();
	wire.send(frame_of({}));
	CHECK(second.received() == frame_of({}));
	/* A rule that passes frames on leaves it to the next. */
	Flow passing = Rule(IBV_FLOW_ATTR_NORMAL, 1, IBV_FLOW_ATTR_FLAGS_DONT_TRAP)
			       .to(station)
			       .create(first.qp);
	for (RawEnd *end : {&first, &second})
		end->post_receive();
	wire.send(frame_of({}));
	CHECK(first.received() == frame_of({}));
	CHECK(second.received() == frame_of({}));
}

TEST_CASE("a rule takes frames away from the stack, and no others")
{
	Stage stage;
	const int fd = udp_socket(5000), other = udp_socket(5001);
	ibv_flow_spec_tcp_udp udp{};

	udp.val.dst_port = htons(5000);
	udp.mask.dst_port = 0xffff;
	{
		const Flow flow = Rule().add(udp, IBV_FLOW_SPEC_UDP).create(stage.end.qp);

		CHECK(stage.gets(to_stack()));
		CHECK_FALSE(stage.gets(to_stack(5001)));
		CHECK(stack_got(other));
		CHECK_FALSE(stack_got(fd, 0s));
	}
	stage.wire.send(frame_of(to_stack()));
	CHECK(stack_got(fd));
	const Flow copies = Rule(IBV_FLOW_ATTR_NORMAL, 0, IBV_FLOW_ATTR_FLAGS_DONT_TRAP)
				    .add(udp, IBV_FLOW_SPEC_UDP)
				    .create(stage.end.qp);
	CHECK(stage.gets(to_stack()));
	CHECK(stack_got(fd));
	close(fd);
	close(other);
}

TEST_CASE("a sniffer sees both directions and takes nothing")
{
	Stage stage;
	const int fd = udp_socket(5000);
	const FrameShape in = to_stack();
	FrameShape out;
	RawEnd sender(stage.device);
	const Flow flow = Rule(IBV_FLOW_ATTR_SNIFFER).create(stage.end.qp);

	out.to = mac("veth1");
	stage.wire.send(frame_of(in));
	CHECK(stage.end.gets(frame_of(in)));
	CHECK(stack_got(fd));
	sender.send(frame_of(out));
	CHECK(stage.end.gets(frame_of(out)));
	CHECK(stage.wire.receive(out.from) == frame_of(out));

	/* Without a receive a sniffer misses a frame. */
	RawEnd deaf(stage.device);
	const Flow other = Rule(IBV_FLOW_ATTR_SNIFFER).create(deaf.qp);
	const auto missed = counter("frames_missed");

	stage.wire.send(frame_of(in));
	CHECK(eventually([&] { return counter("frames_missed") > missed; }));
	close(fd);
}

TEST_CASE("default rules get what the stack does not use")
{
	Stage stage;
	const int fd = udp_socket(5000);
	FrameShape foreign, to_group;

	foreign.to[5] = 0x77;
	to_group.to = group;
	{
		const Flow flow = Rule(IBV_FLOW_ATTR_MC_DEFAULT).create(stage.end.qp);

		CHECK(stage.gets(to_group));
		CHECK_FALSE(stage.gets(foreign));
	}
	const Flow flow = Rule(IBV_FLOW_ATTR_ALL_DEFAULT).create(stage.end.qp);
	CHECK(stage.gets(to_group));
	CHECK(stage.gets(foreign));
	CHECK_FALSE(stage.gets(to_stack()));
	CHECK(stack_got(fd));
	RawEnd other(stage.device);
	const Flow normal = Rule(IBV_FLOW_ATTR_NORMAL, 9).to(foreign.to).create(other.qp);
	CHECK_FALSE(stage.gets(foreign));
	close(fd);
}

TEST_CASE("RoCE is untouched by a rule for all frames of this station")
{
	Stage stage;
	FrameShape roce = to_stack(roce_port);
	const auto dropped = counter("drop_qpn");
	const Flow flow = Rule().to(mac("veth0")).create(stage.end.qp);

	CHECK(stage.gets(to_stack()));
	CHECK_FALSE(stage.gets(roce));
	CHECK(eventually([&] { return counter("drop_qpn") == dropped + 1; }));
}

TEST_CASE("rules that are refused")
{
	Device device;
	RawEnd end(device);
	Endpoint connected(device);
	ibv_flow_spec_eth eth_spec{};
	ibv_flow_spec_ipv4 ip_spec{};
	ibv_flow_spec_ipv6 ip6_spec{};
	ibv_flow_spec_tcp_udp port_spec{};
	ibv_flow_spec_tunnel tunnel{};

	CHECK(errno_name(Rule().to(station).error(connected.qp)) == "EINVAL");
	CHECK(errno_name(Rule(IBV_FLOW_ATTR_SNIFFER).to(station).error(end.qp)) == "EINVAL");
	CHECK(errno_name(Rule(IBV_FLOW_ATTR_ALL_DEFAULT).to(station).error(end.qp)) == "EINVAL");
	CHECK(errno_name(Rule(static_cast<ibv_flow_attr_type>(4)).error(end.qp)) == "EOPNOTSUPP");
	CHECK(errno_name(Rule(IBV_FLOW_ATTR_NORMAL, 0, IBV_FLOW_ATTR_FLAGS_EGRESS).error(end.qp)) ==
	      "EOPNOTSUPP");
	CHECK(errno_name(Rule(IBV_FLOW_ATTR_NORMAL, 0, 1 << 3).error(end.qp)) == "EINVAL");
	CHECK(errno_name(Rule().add(tunnel, IBV_FLOW_SPEC_VXLAN_TUNNEL).error(end.qp)) ==
	      "EOPNOTSUPP");
	CHECK(errno_name(Rule().add(eth_spec, static_cast<ibv_flow_spec_type>(IBV_FLOW_SPEC_INNER |
									      IBV_FLOW_SPEC_ETH))
				 .error(end.qp)) == "EOPNOTSUPP");
	CHECK(errno_name(Rule().add(ip_spec, IBV_FLOW_SPEC_IPV4)
				 .add(ip6_spec, IBV_FLOW_SPEC_IPV6)
				 .error(end.qp)) == "EINVAL");
	CHECK(errno_name(Rule().add(port_spec, IBV_FLOW_SPEC_TCP)
				 .add(port_spec, IBV_FLOW_SPEC_UDP)
				 .error(end.qp)) == "EINVAL");
	CHECK(errno_name(Rule().to(station).add(eth_spec, IBV_FLOW_SPEC_ETH).error(end.qp)) ==
	      "EINVAL");
	Rule port;
	port.to(station).attr().port = 2;
	CHECK(errno_name(port.error(end.qp)) == "EINVAL");
	Rule many;
	for (int i = 0; i < 11; i++)
		many.to(station);
	CHECK(errno_name(many.error(end.qp)) == "EINVAL");
	/* A queue pair with a rule stays. */
	const Flow flow = Rule().to(station).create(end.qp);
	CHECK(errno_name(ibv_destroy_qp(end.qp)) == "EBUSY");
}

TEST_CASE("a program cannot have any number of rules")
{
	Device device;
	RawEnd end(device);
	std::vector<Flow> flows;
	int error = 0;

	while (flows.size() < 1000 && !error) {
		ibv_flow *flow = Rule().to(station).try_create(end.qp);

		if (flow)
			flows.emplace_back(flow, "create_flow");
		else
			error = errno;
	}
	CHECK(flows.size() == 128);
	CHECK(errno_name(error) == "ENOSPC");
}

TEST_CASE("the netdev receives what the rules want, and goes away under them")
{
	const std::string show = "ip -d link show dev gone0";

	tolerate_destroy_errors();
	for (const std::string leave : {"ip link del gone0", "ip link set gone0 netns gone"}) {
		INFO(leave);
		run_command("ip netns add gone");
		run_command("ip link add gone0 address 02:00:00:00:00:01 type dummy");
		run_command("ip address add 10.99.0.1/24 dev gone0");
		run_command("ip link set gone0 up");
		run_command("rdma link add gone type peal netdev gone0");
		{
			Device device("gone");
			RawEnd end(device);
			Flow normal = Rule().to(station).create(end.qp);
			Flow group_flow = Rule().to(group).create(end.qp);
			Flow all = Rule(IBV_FLOW_ATTR_ALL_DEFAULT).create(end.qp);
			Flow groups = Rule(IBV_FLOW_ATTR_MC_DEFAULT).create(end.qp);
			Flow sniffer = Rule(IBV_FLOW_ATTR_SNIFFER).create(end.qp);

			CHECK(read_command(show).find("promiscuity 0") == std::string::npos);
			for (Flow *flow : {&normal, &group_flow, &all, &groups, &sniffer})
				flow->reset();
			CHECK(read_command(show).find("promiscuity 0") != std::string::npos);
			normal = Rule().to(station).create(end.qp);
			all = Rule(IBV_FLOW_ATTR_ALL_DEFAULT).create(end.qp);
			sniffer = Rule(IBV_FLOW_ATTR_SNIFFER).create(end.qp);
			run_command(leave);
			CHECK(Rule().to(group).error(end.qp) != 0);
		}
		if (leave.find("netns") != std::string::npos) {
			/* The stack drops the filters of addresses when the netdev comes up. */
			run_command("ip netns exec gone ip link set gone0 up");
			const auto state = read_command("ip netns exec gone " + show);
			INFO(state);
			CHECK(state.find("promiscuity 0") != std::string::npos);
		}
		run_command("ip netns del gone");
	}
}
