// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// transport: wire
/*
 * The MTU of the way to the peer becomes too small for the packets of a connection.
 *
 * Holds: A request that is too long for the netdev, or for its route alone, ends with a reason that
 * names the MTU, over IPv4 and IPv6, also if a later packet of the message still arrives. Short
 * requests still pass. If the MTU is raised before the retries are used up, the request completes.
 * If the peer is silent after that, the reason is silence. Responses and datagrams that are too
 * long are counted.
 * Does not hold: that the requester of a READ learns why its responses do not come, because only
 * the peer knows it.
 */
#include "commands.hpp"
#include "counters.hpp"
#include "datagram.hpp"
#include "packets.hpp"

using namespace peal_test;

namespace {

constexpr const char *host = "10.77.0.1", *host6 = "fd77::1";
constexpr unsigned small_mtu = 2000;

/*
 * Packets to this host's own addresses leave by the loopback interface. veth0 gives connections a
 * path MTU of 4096 while this object lives. Its end puts all MTUs back.
 */
class Mtus {
	static void set(const std::string &netdev, const std::string &mtu)
	{
		REQUIRE(run("ip link set " + netdev + " mtu " + mtu) == 0);
	}
	const std::string veth = number("veth0"), lo = number("lo");

	static std::string number(const std::string &netdev)
	{
		std::string mtu;

		std::ifstream("/sys/class/net/" + netdev + "/mtu") >> mtu;
		return mtu;
	}

public:
	Mtus() { set("veth0", "5000"); }
	Mtus(const Mtus &) = delete;
	Mtus &operator=(const Mtus &) = delete;
	~Mtus()
	{
		run("ip link set veth0 mtu " + veth);
		run("ip link set lo mtu " + lo);
		run("ip route replace local 10.77.0.1 dev veth0 table local proto kernel scope "
		    "host src 10.77.0.1");
	}
	void of_netdev(bool small) const { set("lo", small ? std::to_string(small_mtu) : lo); }
	void of_route(bool small) const
	{
		REQUIRE(run("ip route replace local 10.77.0.1 dev veth0 table local proto kernel "
			    "scope host src 10.77.0.1" +
			    (small ? " mtu " + std::to_string(small_mtu) : "")) == 0);
	}
};

std::uint8_t gid_index(const Device &device, const ibv_gid &gid)
{
	for (std::uint8_t i = 0; i < 64; i++) {
		ibv_gid_entry entry{};

		if (!ibv_query_gid_ex(device, 1, i, &entry, 0) &&
		    entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    !std::memcmp(&entry.gid, &gid, sizeof(gid)))
			return i;
	}
	throw std::runtime_error("the device lacks a GID");
}

Link link_of(std::uint8_t timeout, std::uint8_t retries)
{
	Link link;

	link.timeout = std::max(link.timeout, timeout);
	link.retry_cnt = retries;
	return link;
}

/* Two queue pairs that are connected from an address of this host to the same address. */
struct Connection {
	Device device;
	Endpoint a, b;
	Region from, to;

	Connection(const Link &link, const char *address = host)
		: a(device), b(device), from(a.pd, 1 << 16), to(b.pd, 1 << 16)
	{
		join(a, b, link, gid_of(address));
		join(b, a, link, gid_of(address));
	}
	static void join(Endpoint &end, const Endpoint &peer, const Link &link, const ibv_gid &gid)
	{
		auto rtr = rtr_attr(end.device, peer.qp->qp_num, gid, link);

		rtr.ah_attr.grh.sgid_index = gid_index(end.device, gid);
		to_init(end.qp, link);
		must(ibv_modify_qp(end.qp, &rtr, rtr_mask), "modify to RTR");
		to_rts(end.qp, link);
	}
	void request(ibv_wr_opcode opcode, std::size_t bytes)
	{
		post(a.qp, Send(opcode, {from.sge(0, bytes)}).remote(to.address(), to.rkey()));
	}
	void write(std::size_t bytes) { request(IBV_WR_RDMA_WRITE, bytes); }
	void check_failed(peal_reason reason)
	{
		const auto wc = wait_completion(a.send_cq);

		CHECK(status_name(wc.status) == status_name(IBV_WC_RETRY_EXC_ERR));
		CHECK(reason_name(wc.vendor_err) == reason_name(reason));
	}
};

constexpr std::uint8_t few = 2;

/* Two packets of 4096 bytes; one, and a second one that is short. */
constexpr std::size_t long_bytes = 8192, mixed_bytes = 4100, short_bytes = 1000;

} // namespace

TEST_CASE("a request that became too long names the MTU")
{
	struct Way {
		const char *name, *address;
		void (Mtus::*change)(bool small) const;
	};
	const Mtus mtus;

	for (const auto &way :
	     {Way{"netdev", host, &Mtus::of_netdev}, Way{"route", host, &Mtus::of_route},
	      Way{"netdev, IPv6", host6, &Mtus::of_netdev}})
		for (const auto bytes : {long_bytes, mixed_bytes}) {
			Connection c(link_of(14, few), way.address);

			INFO(way.name << ", " << bytes << " bytes");
			c.write(bytes);
			wait_success(c.a.send_cq);
			(mtus.*way.change)(true);
			c.write(short_bytes);
			wait_success(c.a.send_cq);
			c.write(bytes);
			c.check_failed(PEAL_REASON_ROUTE_MTU);
			(mtus.*way.change)(false);
		}
}

TEST_CASE("a request goes on when the MTU is raised again")
{
	const Mtus mtus;
	Connection c(link_of(17, 7));
	const auto refused = counter("packets_too_long");

	fill_pattern(c.from.bytes(0, long_bytes), 1);
	mtus.of_netdev(true);
	c.write(long_bytes);
	REQUIRE(eventually([&] { return counter("packets_too_long") - refused > 2; }));
	mtus.of_netdev(false);
	wait_success(c.a.send_cq);
	CHECK(difference(c.to.bytes(0, long_bytes), c.from.bytes(0, long_bytes)) == "");
}

TEST_CASE("a silent peer is silent, whatever the MTU was before")
{
	const Mtus mtus;
	Connection c(link_of(17, few));
	const auto refused = counter("packets_too_long");

	mtus.of_netdev(true);
	c.write(long_bytes);
	REQUIRE(eventually([&] { return counter("packets_too_long") > refused; }));
	to_state(c.b.qp, IBV_QPS_RESET);
	mtus.of_netdev(false);
	c.check_failed(PEAL_REASON_PEER_SILENT);
}

TEST_CASE("responses and datagrams that became too long are counted")
{
	const Mtus mtus;
	Connection c(link_of(14, few));
	UdEnd end(c.device);

	mtus.of_netdev(true);
	auto refused = counter("packets_too_long"), unsent = counter("packets_unsent");
	post(end.qp, Datagram(end.to_self, end.qp->qp_num, {end.memory.sge(0, 4096)}));
	wait_success(end.send_cq);
	CHECK(counter("packets_too_long") == refused + 1);
	CHECK(counter("packets_unsent") == unsent + 1);

	c.request(IBV_WR_RDMA_READ, long_bytes);
	c.check_failed(PEAL_REASON_PEER_SILENT);
	CHECK(counter("packets_too_long") > refused + few);
}
