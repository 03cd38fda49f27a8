// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// vm: cpus 1
// run: long
// transport: wire
/*
 * Trains of forged packets make a device do a bounded amount of work before their sender continues.
 * They come from a UDP socket of this host, with segmentation.
 *
 * Holds: The packets that a device owes because of a train are sent in several parts, and so are
 * the effects of a packet for which others waited. An answer within the budget is sent at once; no
 * program receives it here. The end of a train to a large group is lost. A packet that is kept does
 * not hold the pages of the rest of its train.
 * Does not hold: the fate of each packet (wire/odd_frames_are_dropped, hostile/random_packets).
 */
#include "datagram.hpp"
#include "packets.hpp"
#include "usage.hpp"

#include <filesystem>
#include <netinet/udp.h>
#include <sched.h>

using namespace peal_test;

namespace {

constexpr const char *host = "10.77.0.1";
constexpr unsigned cars = 64; /* packets of a train; Linux before 6.9 allows no more */
constexpr std::uint64_t budget = 1 << 20, packet_price = 64;
constexpr std::uint8_t send_only = 0x04, write_only = 0x0a, read_request = 0x0c,
		       datagram_only = 0x64;

/* The thread to which the kernel hands softirqs that take too long. */
pid_t softirq_thread()
{
	for (const auto &process : std::filesystem::directory_iterator("/proc")) {
		std::string name;

		std::getline(std::ifstream(process.path() / "comm"), name);
		if (name == "ksoftirqd/0")
			return std::stoi(process.path().filename());
	}
	throw std::runtime_error("expected a thread ksoftirqd/0, found none");
}

/*
 * Work that is left to other threads does not run while this object lives, because there is one
 * CPU. Packets are processed before their sender continues. The thread of softirqs precedes the
 * sender, because the kernel may hand the packets to that thread.
 */
class Undisturbed {
	const pid_t softirqs_ = softirq_thread();

	static void become(pid_t who, int policy, int priority)
	{
		const sched_param param{priority};

		must(sched_setscheduler(who, policy, &param), "sched_setscheduler");
	}

public:
	Undisturbed()
	{
		become(softirqs_, SCHED_FIFO, 2);
		become(0, SCHED_FIFO, 1);
	}
	~Undisturbed()
	{
		become(softirqs_, SCHED_OTHER, 0);
		become(0, SCHED_OTHER, 0);
	}
	Undisturbed(const Undisturbed &) = delete;
	Undisturbed &operator=(const Undisturbed &) = delete;
};

/* A peer at the device's own address, with a queue pair that does not exist. */
class Forger {
	int fd_;
	const char *to_;
	const Route route_{.from = address(host), .to = address(to_)};

	static sockaddr_in place(const char *where, std::uint16_t port)
	{
		sockaddr_in result{};

		result.sin_family = AF_INET;
		result.sin_port = htons(port);
		inet_pton(AF_INET, where, &result.sin_addr);
		return result;
	}
	/* The bytes behind UDP. The stack writes the same headers as make_frame(). */
	Bytes datagram(const Bytes &body, std::uint16_t id) const
	{
		constexpr std::size_t at = ethernet_bytes + 4,
				      udp_end = ethernet_bytes + 20 + udp_bytes;
		Bytes frame = make_frame(route_, body, 0);

		frame[at] = static_cast<std::uint8_t>(id >> 8);
		frame[at + 1] = static_cast<std::uint8_t>(id);
		frame.resize(frame.size() - icrc_bytes);
		put(frame, __builtin_bswap32(icrc(frame, false)), icrc_bytes);
		return {frame.begin() + udp_end, frame.end()};
	}
	void send_all(const Bytes &bytes, int piece)
	{
		const sockaddr_in to = place(to_, roce_port);

		must(setsockopt(fd_, SOL_UDP, UDP_SEGMENT, &piece, sizeof(piece)), "UDP_SEGMENT");
		if (sendto(fd_, bytes.data(), bytes.size(), 0,
			   reinterpret_cast<const sockaddr *>(&to), sizeof(to)) < 0)
			throw std::runtime_error(std::string("sendto: ") + std::strerror(errno));
	}

public:
	explicit Forger(const char *to = host) : fd_(socket(AF_INET, SOCK_DGRAM, 0)), to_(to)
	{
		const sockaddr_in from = place(host, 0xc000);
		const int whole = IP_PMTUDISC_DO;

		must(setsockopt(fd_, IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof(whole)), "PMTU");
		must(bind(fd_, reinterpret_cast<const sockaddr *>(&from), sizeof(from)), "bind");
	}
	Forger(const Forger &) = delete;
	Forger &operator=(const Forger &) = delete;
	~Forger() { close(fd_); }

	void send(const Bytes &body) { send_all(datagram(body, 0), 0); }
	/* All bodies have one length. */
	void send_train(const std::vector<Bytes> &bodies)
	{
		Bytes all;

		for (std::size_t n = 0; n < bodies.size(); n++)
			put(all, datagram(bodies[n], static_cast<std::uint16_t>(n)));
		send_all(all, static_cast<int>(all.size() / bodies.size()));
	}
};

/* It answers all requests that come from the device's own address. */
struct Victim {
	Link link;
	Endpoint end;
	std::uint32_t psn = link.psn;

	Victim(Device &device, ibv_mtu mtu) : end(device, small())
	{
		auto rtr = rtr_attr(device, 0x77, gid_of(host), link);

		rtr.path_mtu = mtu;
		to_init(end.qp, link);
		must(ibv_modify_qp(end.qp, &rtr, rtr_mask), "modify to RTR");
	}
	static QpOptions small()
	{
		QpOptions options;

		options.send_wr = options.recv_wr = 1;
		options.cqe = 1;
		return options;
	}
	/* The number of packets that it has executed. */
	std::uint32_t progress() const
	{
		ibv_qp_attr attr{};
		ibv_qp_init_attr init{};

		must(ibv_query_qp(end.qp, &attr, IBV_QP_RQ_PSN, &init), "query_qp");
		return (attr.rq_psn - link.psn) & 0xffffff;
	}
	Bytes request(std::uint8_t opcode, std::uint32_t at_psn) const
	{
		Bytes body;

		Bth{.opcode = opcode, .qpn = end.qp->qp_num, .psn = at_psn}.put_to(body);
		return body;
	}
	/* A READ or WRITE of that length at the beginning of @to. */
	Bytes access(std::uint8_t opcode, std::uint32_t at_psn, const Region &to,
		     std::uint32_t bytes) const
	{
		Bytes body = request(opcode, at_psn);

		put(body, to.address(), 8);
		put(body, to.rkey(), 4);
		put(body, bytes, 4);
		body.resize(body.size() + (opcode == write_only ? bytes : 0));
		return body;
	}
};

} // namespace

TEST_CASE("replies to a train leave in parts")
{
	if (!is_peal())
		SKIP_CASE("the counters are peal's");
	constexpr std::uint64_t mtu = 256;
	Device device;
	Victim victim(device, IBV_MTU_256);
	const Region area(victim.end.pd, 32 << 20);
	Forger forger;

	/* A long READ, and then packets that repeat what is known. */
	std::vector<Bytes> train{victim.access(read_request, victim.psn, area, 32 << 20)};
	while (train.size() < cars) {
		train.push_back(victim.request(send_only, victim.psn - 100));
		train.back().resize(train.front().size());
	}
	const auto before = counter("packets_sent");
	{
		const Undisturbed undisturbed;

		forger.send_train(train);
		const auto sent = counter("packets_sent") - before;
		std::printf("%llu packets at once\n", static_cast<unsigned long long>(sent));
		CHECK(sent > budget / (mtu + packet_price) / 2);
		CHECK(sent < budget / (mtu + packet_price) * 2);
	}
	CHECK(eventually([&] { return counter("packets_sent") - before > 10 * budget / mtu; }));
}

TEST_CASE("packets that waited for a train take effect in parts")
{
	if (!is_peal())
		SKIP_CASE("the counters are peal's");
	constexpr std::uint32_t mtu = 4096, ahead = 60, few = 32;
	Device device;
	std::vector<std::unique_ptr<Victim>> victims;
	std::vector<std::unique_ptr<Region>> areas;
	std::vector<Bytes> train;
	Forger forger;

	static_assert(few * ahead * mtu > 4 * budget);
	const auto kept = counter("reorder_kept");
	while (victims.size() < few) {
		auto &victim =
			*victims.emplace_back(std::make_unique<Victim>(device, IBV_MTU_4096));
		auto &area = *areas.emplace_back(std::make_unique<Region>(victim.end.pd, mtu));

		for (std::uint32_t n = 1; n <= ahead; n++)
			forger.send(victim.access(write_only, victim.psn + n, area, mtu));
		train.push_back(victim.access(write_only, victim.psn, area, 4));
	}
	REQUIRE(eventually([&] { return counter("reorder_kept") - kept == few * ahead; }));
	const auto executed = [&] {
		std::uint64_t sum = 0;

		for (const auto &victim : victims)
			sum += victim->progress();
		return sum;
	};
	{
		const Undisturbed undisturbed;

		forger.send_train(train);
		const auto at_once = executed();
		std::printf("%llu packets at once\n", static_cast<unsigned long long>(at_once));
		CHECK(at_once > budget / mtu / 2);
		CHECK(at_once < budget / mtu * 2);
	}
	CHECK(eventually([&] { return executed() == few * (ahead + 1); }));
}

TEST_CASE("a kept packet does not hold the rest of its train")
{
	if (!is_peal())
		SKIP_CASE("the counters are peal's");
	if (slowness() > 1)
		SKIP_CASE("KASAN keeps what is freed in quarantine");
	constexpr std::uint32_t ahead = 120, few = 12, bytes = 1000;
	Device device;
	std::vector<std::unique_ptr<Victim>> victims;
	Forger forger;

	/* One out-of-order packet among some that repeat what is known. Together they fill pages.
	 */
	while (victims.size() < few)
		victims.push_back(std::make_unique<Victim>(device, IBV_MTU_1024));
	const auto kept = counter("reorder_kept");
	const auto available = meminfo("MemAvailable");
	for (const auto &victim : victims) {
		for (std::uint32_t n = 1; n <= ahead; n++) {
			std::vector<Bytes> train(32, victim->request(send_only, victim->psn - 100));

			train.front() = victim->request(send_only, victim->psn + n);
			for (auto &body : train)
				body.resize(body.size() + bytes);
			forger.send_train(train);
		}
	}
	REQUIRE(eventually([&] { return counter("reorder_kept") - kept == few * ahead; }));
	const auto held = available - meminfo("MemAvailable");
	std::printf("%ld KiB held for %u packets\n", held, few * ahead);
	CHECK(held < few * ahead * 8);
}

TEST_CASE("a train to a large group does not reach everybody")
{
	if (!is_peal())
		SKIP_CASE("the counters are peal's");
	constexpr const char *group = "239.77.0.1";
	constexpr std::uint64_t members = 60, bytes = 512;
	const auto gid = gid_of(group);
	Device device;
	std::vector<std::unique_ptr<Endpoint>> ends;
	Forger forger(group);
	Bytes body;

	/* There are no receives, so each datagram is dropped and counted for each member. */
	while (ends.size() < members) {
		ends.push_back(std::make_unique<Endpoint>(device, ud_options(Victim::small())));
		ud_ready(ends.back()->qp);
		must(ibv_attach_mcast(ends.back()->qp, &gid, 0), "attach_mcast");
	}
	Bth{.opcode = datagram_only, .qpn = 0xffffff}.put_to(body);
	put(body, common_qkey, 4);
	put(body, 0x77, 4);
	body.resize(body.size() + bytes);
	const auto reached = counter("drop_receive"), lost = counter("drop_resource");

	forger.send_train(std::vector<Bytes>(cars, body));
	CHECK(eventually([&] {
		return counter("drop_receive") - reached +
			       members * (counter("drop_resource") - lost) ==
		       members * cars;
	}));
	const auto deliveries = counter("drop_receive") - reached;
	std::printf("%llu of %llu deliveries\n", static_cast<unsigned long long>(deliveries),
		    static_cast<unsigned long long>(members * cars));
	CHECK(deliveries >= budget / 2048);
	CHECK(deliveries <= budget / 1024 + members);
	for (const auto &end : ends)
		must(ibv_detach_mcast(end->qp, &gid, 0), "detach_mcast");
}
