// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// carrier: wire
/*
 * Packets that come before their turn, forged: which of them a queue pair keeps, and how
 * many a device.
 *
 * Holds: what is too long is not kept; what all queue pairs keep is bounded, and who comes
 * when many keep a lot may still keep a little; what ends gives back.
 * Does not hold: what becomes of kept packets (test/sim, t_wire_loss).
 */
#include "counters.hpp"
#include "t_packet_fuzz.hpp"

using namespace peal_test;

namespace {

/* As long as it lives, the link takes packets that are longer than any path MTU. */
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

/* It waits for a packet that never comes. It asks nothing, so that no silence ends it. */
class EarlyVictim {
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
	static constexpr std::uint64_t slots = 127; /* of early packets, on the responder's side */

	explicit EarlyVictim(Device &device) : end_(device, small())
	{
		const Link link;
		auto rtr = rtr_attr(device, 0x77, gid_of("10.77.0.2"), link);

		to_init(end_.qp, link);
		must(ibv_modify_qp(end_.qp, &rtr, rtr_mask), "modify to RTR");
		psn_ = link.psn + 1;
	}
	/* Return: how many of so many packets more it keeps. */
	std::uint64_t keeps(std::uint64_t packets, std::uint32_t bytes)
	{
		const auto kept = counter("early_kept"), refused = counter("drop_sequence");
		std::vector<Bytes> frames;

		while (frames.size() < packets)
			frames.push_back(next_frame(bytes));
		wire_.send(frames);
		CHECK(eventually([&] {
			return counter("early_kept") - kept + counter("drop_sequence") - refused ==
			       packets;
		}));
		return counter("early_kept") - kept;
	}
};

} // namespace

TEST_CASE("an early packet is kept when it is no longer than the path MTU")
{
	if (!is_peal())
		SKIP_CASE("the counters are peal's");
	make_neighbours();
	Device device;
	const std::uint32_t mtu = 128U << device.port().active_mtu;
	EarlyVictim victim(device);
	/* Path MTUs do not change with the link's. */
	const LongFrames long_frames;

	for (const std::uint32_t bytes : {mtu, mtu + 4, 8000U, mtu}) {
		INFO(bytes << " bytes");
		CHECK(victim.keeps(1, bytes) == (bytes <= mtu));
	}
}

TEST_CASE("what a device keeps of early packets is bounded, and nobody has all of it")
{
	if (!is_peal())
		SKIP_CASE("the counters are peal's");
	constexpr unsigned victims = 140, many = 60;
	constexpr std::uint64_t mtu = 4096, most = 64 << 20, slots = EarlyVictim::slots;
	make_neighbours();
	const LongFrames long_frames;
	Device device;
	REQUIRE(128U << device.port().active_mtu == mtu);
	std::vector<std::unique_ptr<EarlyVictim>> hoard;
	std::uint64_t all = 0, last = 0;

	const auto grow = [&](unsigned number) {
		while (hoard.size() < number) {
			hoard.push_back(std::make_unique<EarlyVictim>(device));
			last = hoard.back()->keeps(slots, mtu);
			all += last;
		}
	};
	static_assert(victims * slots * mtu > most);
	grow(1);
	CHECK(last == slots);
	grow(many);
	const auto beside = EarlyVictim(device).keeps(slots, mtu);
	grow(victims);
	hoard.clear();
	const auto afterwards = EarlyVictim(device).keeps(slots, mtu);
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
