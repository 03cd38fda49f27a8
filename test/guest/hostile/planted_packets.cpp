// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// transport: wire
/*
 * Forged packets arrive before their turn. A queue pair keeps only some of them, and a device keeps
 * a bounded number.
 *
 * Holds: A packet that is too long is not kept. The sum over all queue pairs is bounded, and a
 * newcomer may still keep a little when many others keep a lot. A queue pair that ends gives its
 * packets back. A packet that is planted ahead of its turn does not take the place of the real one,
 * and is not kept for ever. On UC it delays nothing.
 * Does not hold: the later fate of kept packets (test/sim, wire/lossy_wire).
 */
#include "commands.hpp"
#include "counters.hpp"
#include "packets.hpp"

using namespace peal_test;

namespace {

/* The link takes packets that are longer than any path MTU while this object lives. */
class LongFrames {
	static void set_mtu(const char *first, const char *second, int bytes)
	{
		for (const char *netdev : {first, second})
			run_command(std::string("ip link set ") + netdev + " mtu " +
				    std::to_string(bytes));
	}

public:
	LongFrames() { set_mtu("veth1", "veth0", 9000); }
	~LongFrames() { set_mtu("veth0", "veth1", 1500); }
	LongFrames(const LongFrames &) = delete;
	LongFrames &operator=(const LongFrames &) = delete;
};

/* It waits for a packet that never comes. It sends no request, so that no silence ends it. */
class ReorderVictim {
	Endpoint end_;
	RawSocket wire_{"veth1"};
	const Route route_{.from = address("10.77.0.2"),
			   .to = address("10.77.0.1"),
			   .from_mac = mac("veth1"),
			   .to_mac = mac("veth0")};
	std::uint32_t psn_;

	static QpOptions small()
	{
		QpOptions options;

		options.send_wr = options.recv_wr = 1;
		options.cqe = 1;
		return options;
	}
	Bytes next_frame(std::uint32_t bytes)
	{
		Bytes body;

		Bth{.opcode = 0x07, .qpn = end_.qp->qp_num, .psn = psn_++}.put_to(body);
		body.resize(body.size() + bytes);
		return make_frame(route_, body, 0);
	}

public:
	static constexpr std::uint64_t slots =
		127; /* of out-of-order packets, on the responder's side */

	explicit ReorderVictim(Device &device) : end_(device, small())
	{
		Link link;
		/* 17 s, so that packets are kept for as long as the test lasts. */
		link.timeout = 22;
		auto rtr = rtr_attr(device, 0x77, gid_of("10.77.0.2"), link);
		auto rts = rts_attr(link);

		to_init(end_.qp, link);
		must(ibv_modify_qp(end_.qp, &rtr, rtr_mask), "modify to RTR");
		must(ibv_modify_qp(end_.qp, &rts, rts_mask), "modify to RTS");
		psn_ = link.psn + 1;
	}
	/* Return: how many of that many further packets it keeps. */
	std::uint64_t keeps(std::uint64_t packets, std::uint32_t bytes)
	{
		const auto kept = counter("reorder_kept"), refused = counter("drop_sequence");
		std::vector<Bytes> frames;

		while (frames.size() < packets)
			frames.push_back(next_frame(bytes));
		wire_.send(frames);
		CHECK(eventually([&] {
			return counter("reorder_kept") - kept + counter("drop_sequence") -
				       refused ==
			       packets;
		}));
		return counter("reorder_kept") - kept;
	}
};

/*
 * It takes messages into receives. The test plays its peer, and a stranger that claims to be
 * the peer but has another port.
 */
class Target {
	static constexpr std::uint32_t bytes = 64;
	static constexpr int uc_mask =
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	Endpoint end_;
	Region memory_{end_.pd, page_bytes};
	RawSocket wire_{"veth1"};
	std::uint8_t transport_;
	unsigned posted_ = 0, taken_ = 0;

	static QpOptions options(ibv_qp_type type)
	{
		QpOptions options;

		options.type = type;
		return options;
	}

public:
	static constexpr std::uint16_t peer = 0xc123, stranger = 0xd456;
	static constexpr std::uint8_t only = 4, middle = 1;
	const std::uint32_t psn = 0xfffffe;

	explicit Target(Device &device, ibv_qp_type type = IBV_QPT_RC)
		: end_(device, options(type)), transport_(type == IBV_QPT_UC ? 0x20 : 0)
	{
		Link link;

		link.psn = psn;
		auto rtr = rtr_attr(device, 0x77, gid_of("10.77.0.2"), link);
		to_init(end_.qp, link);
		must(ibv_modify_qp(end_.qp, &rtr, type == IBV_QPT_UC ? uc_mask : rtr_mask),
		     "modify to RTR");
		for (; posted_ < 4; posted_++)
			post_recv(end_.qp, posted_, {memory_.sge(posted_ * bytes, bytes)});
	}
	void send(std::uint16_t port, std::uint32_t ahead, std::uint8_t says,
		  std::uint8_t opcode = only, std::size_t length = bytes)
	{
		std::vector<Bytes> frames{make(port, ahead, says, opcode, length)};

		wire_.send(frames);
	}
	/* Inside IPsec with the null cipher (RFC 2410). */
	void send_in_esp(std::uint16_t port, std::uint32_t ahead, std::uint8_t says,
			 std::uint32_t spi)
	{
		std::vector<Bytes> frames{in_esp(make(port, ahead, says, only, bytes), spi)};

		wire_.send(frames);
	}
	Bytes make(std::uint16_t port, std::uint32_t ahead, std::uint8_t says, std::uint8_t opcode,
		   std::size_t length)
	{
		const Route route{.from_port = port,
				  .from = address("10.77.0.2"),
				  .to = address("10.77.0.1"),
				  .from_mac = mac("veth1"),
				  .to_mac = mac("veth0")};
		Bytes body;

		Bth{.opcode = static_cast<std::uint8_t>(transport_ | opcode),
		    .qpn = end_.qp->qp_num,
		    .psn = psn + ahead}
			.put_to(body);
		body.resize(body.size() + length, says);
		return make_frame(route, body, 0);
	}
	/* The next receive has completed and holds this byte. */
	void check_got(std::uint8_t says)
	{
		CHECK(wait_success(end_.recv_cq).front().byte_len == bytes);
		CHECK(all_equal(memory_.bytes(taken_++ * bytes, bytes), says));
	}
	void check_got_nothing() { CHECK(drain(end_.recv_cq, 1).empty()); }
};

/* The number of users of a kernel module. */
int module_users(const std::string &name)
{
	std::ifstream file("/sys/module/" + name + "/refcnt");
	int users = -1;

	file >> users;
	return users;
}

constexpr std::uint8_t real = 0x11, forged = 0xee;

} // namespace

TEST_CASE("a packet that is planted ahead does not take the place of the real one")
{
	make_neighbours();
	Device device;
	Target target(device);
	const Growth kept("reorder_kept"), conflicts("drop_conflict");

	target.send(Target::stranger, 1, forged);
	target.send(Target::stranger, 2, forged);
	REQUIRE(kept.is(2));
	for (std::uint32_t ahead = 0; ahead < 3; ahead++) {
		target.send(Target::peer, ahead, real);
		target.check_got(real);
	}
	target.check_got_nothing();
	CHECK(conflicts.is(2));
}

TEST_CASE("of two packets with one number that differ neither is taken")
{
	make_neighbours();
	Device device;
	Target target(device);
	const Growth kept("reorder_kept"), conflicts("drop_conflict"), lost("reorder_lost"),
		copies("drop_sequence");

	/* The stranger has guessed the port, too. */
	target.send(Target::peer, 1, forged);
	REQUIRE(kept.is(1));
	target.send(Target::peer, 1, real);
	CHECK(conflicts.is(1));
	CHECK(lost.is(1));
	/* The same contents make the packet a mere copy. */
	target.send(Target::peer, 2, real);
	REQUIRE(kept.is(2));
	target.send(Target::peer, 2, real);
	CHECK(copies.is(1));
	target.send(Target::peer, 0, real);
	target.check_got(real);
	target.check_got_nothing();
	target.send(Target::peer, 1, real);
	target.check_got(real);
	target.check_got(real);
	CHECK(conflicts.is(1));
}

TEST_CASE("a packet that is planted on an idle connection is given up")
{
	make_neighbours();
	Device device;
	Target target(device);
	const Growth kept("reorder_kept"), lost("reorder_lost");

	for (std::uint32_t ahead = 1; ahead < 128; ahead++)
		target.send(Target::peer, ahead, forged);
	REQUIRE(kept.is(127));
	CHECK(lost.is(127));
	target.send(Target::peer, 0, real);
	target.check_got(real);
	target.send(Target::peer, 1, real);
	target.check_got(real);
}

TEST_CASE("kept packets hold no IPsec state")
{
	make_neighbours();
	if (run("modprobe esp4 && ip xfrm state add src 10.77.0.2 dst 10.77.0.1 proto esp spi "
		"0x777 "
		"mode transport enc 'ecb(cipher_null)' ''"))
		SKIP_CASE("no IPsec here");
	REQUIRE(module_users("esp4") == 1);
	Device device;
	Target target(device);
	const Growth kept("reorder_kept"), lost("reorder_lost");

	target.send_in_esp(Target::peer, 1, real, 0x777);
	CHECK(kept.is(1));
	CHECK(run("ip xfrm state flush") == 0);
	CHECK(eventually([] { return module_users("esp4") == 0; }));
	/* The packet is still kept. */
	CHECK(lost.is(0));
	target.send(Target::peer, 0, real);
	target.check_got(real);
	target.check_got(real);
}

TEST_CASE("one packet far ahead does not silence an unreliable connection")
{
	make_neighbours();
	Device device;
	Target target(device, IBV_QPT_UC);
	const Growth refused("drop_order");

	target.send(Target::peer, 0, real);
	target.check_got(real);
	target.send(Target::stranger, 30000, forged, Target::middle,
		    128U << device.port().active_mtu);
	REQUIRE(refused.is(1));
	target.send(Target::peer, 1, real);
	target.check_got(real);
}

TEST_CASE("an out-of-order packet is kept when it is no longer than the path MTU")
{
	make_neighbours();
	Device device;
	const std::uint32_t mtu = 128U << device.port().active_mtu;
	ReorderVictim victim(device);
	/* The path MTU does not change with the link's MTU. */
	const LongFrames long_frames;

	for (const std::uint32_t bytes : {mtu, mtu + 4, 8000U, mtu}) {
		INFO(bytes << " bytes");
		CHECK(victim.keeps(1, bytes) == (bytes <= mtu));
	}
}

TEST_CASE("a device keeps a bounded amount of out-of-order packets, shared by all its queue pairs")
{
	constexpr unsigned victims = 140, many = 60;
	constexpr std::uint64_t mtu = 4096, most = 64 << 20, slots = ReorderVictim::slots;
	make_neighbours();
	const LongFrames long_frames;
	Device device;
	REQUIRE(128U << device.port().active_mtu == mtu);
	std::vector<std::unique_ptr<ReorderVictim>> hoard;
	std::uint64_t all = 0, last = 0;

	const auto grow = [&](unsigned number) {
		while (hoard.size() < number) {
			hoard.push_back(std::make_unique<ReorderVictim>(device));
			last = hoard.back()->keeps(slots, mtu);
			all += last;
		}
	};
	static_assert(victims * slots * mtu > most);
	grow(1);
	CHECK(last == slots);
	grow(many);
	const auto beside = ReorderVictim(device).keeps(slots, mtu);
	grow(victims);
	hoard.clear();
	const auto afterwards = ReorderVictim(device).keeps(slots, mtu);
	std::printf("kept: %llu by %u, the last %llu; beside %u %llu, afterwards %llu\n",
		    static_cast<unsigned long long>(all), victims,
		    static_cast<unsigned long long>(last), many,
		    static_cast<unsigned long long>(beside),
		    static_cast<unsigned long long>(afterwards));
	CHECK(all * mtu < most);
	CHECK(last < slots / 4);
	CHECK(beside > 0);
	CHECK(beside < slots);
	CHECK(afterwards == slots);
}
