// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 150
// run: long
// transport: wire
/*
 * A live device receives random and mutated packets of every opcode, pad and length, with PSNs near
 * the window, most with a right ICRC. Some go to queue pairs that take them for their peer's, some
 * to others. PEAL_PACKETS is their number.
 *
 * Holds: The traffic of other queue pairs stays right. It is at least half as fast as beside the
 * same number of packets for another machine. Nothing is written outside of registered memory. The
 * memory that packets occupy is given back. The runner checks that the kernel log is clean.
 */
#include "datagram.hpp"
#include "packets.hpp"
#include "usage.hpp"

#include <atomic>
#include <thread>

using namespace peal_test;

namespace {

constexpr std::size_t batch = 64;
constexpr std::size_t area_bytes = 64 * 1024;
constexpr std::uint8_t untouched = 0xa5;
constexpr std::uint8_t notification = 0x81; /* of congestion */

std::uint64_t packets_wanted()
{
	const char *text = std::getenv("PEAL_PACKETS");
	return text ? std::strtoull(text, nullptr, 0)
		    : 200000U / static_cast<unsigned>(slowness() * slowness());
}

/* ------------------------------------------------------------------ victims */

/* One registered area between two others that are not registered. */
class Area {
	Memory memory_{3 * area_bytes};
	Mr mr_;

public:
	explicit Area(ibv_pd *pd)
	{
		std::memset(memory_.data(), untouched, memory_.size());
		mr_ = Mr(ibv_reg_mr(pd, memory_.data() + area_bytes, area_bytes, all_access),
			 "reg_mr");
	}
	std::uint64_t address() const { return memory_.address(area_bytes); }
	std::uint32_t key() const { return mr_->rkey; }
	ibv_sge sge(std::uint32_t offset, std::uint32_t length) const
	{
		return {address() + offset, length, mr_->lkey};
	}
	bool outside_untouched() const
	{
		return all_equal(memory_.bytes(0, area_bytes), untouched) &&
		       all_equal(memory_.bytes(2 * area_bytes, area_bytes), untouched);
	}
};

/* A queue pair for which the test forges the packets of its peer. */
class Victim {
	Device &device_;
	ibv_qp_type type_;
	bool ipv6_;
	Area &area_;
	Random &random_;
	Cq cq_;
	Qp qp_;

	static QpOptions options(ibv_qp_type type)
	{
		QpOptions options;

		options.type = type;
		options.send_wr = options.recv_wr = 32;
		return options;
	}
	void connect()
	{
		const Link link{.timeout = 12,
				.retry_cnt = 3,
				.psn = static_cast<std::uint32_t>(random_.word() & 0xffffff)};
		ibv_qp_attr rtr =
			rtr_attr(device_, 0x77, gid_of(ipv6_ ? "fd77::2" : "10.77.0.2"), link);
		const bool rc = type_ == IBV_QPT_RC;

		if (ipv6_)
			rtr.ah_attr.grh.sgid_index = find_address(device_, false).value().index;
		to_init(qp_, link);
		must(ibv_modify_qp(
			     qp_, &rtr,
			     rc ? rtr_mask
				: rtr_mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)),
		     "modify to RTR");
		if (rc)
			to_rts(qp_, link);
		else
			ud_to_rts(qp_, link.psn);
	}
	void begin()
	{
		if (type_ == IBV_QPT_UD)
			ud_ready(qp_);
		else
			connect();
		refresh();
	}

public:
	std::uint32_t rq_psn = 0, sq_psn = 0;
	unsigned lives = 1;

	Victim(Device &device, ibv_pd *pd, Area &area, ibv_qp_type type, bool ipv6, Random &random)
		: device_(device), type_(type), ipv6_(ipv6), area_(area), random_(random),
		  cq_(create_cq(device, 256)), qp_(create_qp(pd, cq_, cq_, options(type)))
	{
		begin();
	}
	std::uint32_t number() const { return qp_->qp_num; }
	ibv_qp_type type() const { return type_; }
	bool ipv6() const { return ipv6_; }
	/* Updates its state. After its end it starts again. */
	void refresh()
	{
		ibv_qp_attr attr{};
		ibv_qp_init_attr init{};

		must(ibv_query_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN, &init),
		     "query_qp");
		drain(cq_);
		if (attr.qp_state != IBV_QPS_RTS) {
			begin_anew();
			return;
		}
		rq_psn = attr.rq_psn;
		sq_psn = attr.sq_psn;
		work();
	}
	/* The packets that were kept are given back. */
	void begin_anew()
	{
		to_state(qp_, IBV_QPS_RESET);
		drain(cq_);
		lives++;
		begin();
	}

private:
	/* Posts requests that peers can answer, and receives for messages. */
	void work()
	{
		const auto length = static_cast<std::uint32_t>(random_.between(0, 5000));

		if (random_.between(0, 3))
			try_post_recv(qp_, 1, {area_.sge(0, length)});
		if (type_ != IBV_QPT_RC || random_.between(0, 3))
			return;
		switch (random_.between(0, 3)) {
		case 0:
			try_post(qp_, Send(IBV_WR_SEND, {area_.sge(0, length)}));
			break;
		case 1:
			try_post(qp_, Send(IBV_WR_ATOMIC_FETCH_AND_ADD, {area_.sge(64, 8)})
					      .atomic(4096, 1, 1));
			break;
		default:
			try_post(qp_,
				 Send(IBV_WR_RDMA_READ, {area_.sge(100, length)}).remote(4096, 1));
		}
	}
};

/* ------------------------------------------------------------------ packets */

struct Header {
	bool deth, reth, atomic, aeth, atomic_ack, imm, ieth, payload;
};

/* By the five lower bits of the opcode (IBTA 9.2.1, table 38). */
Header header_of(std::uint8_t opcode)
{
	const unsigned low = opcode & 31;
	const bool ud = opcode >> 5 == 3;

	return {
		.deth = ud,
		.reth = low == 6 || low == 10 || low == 11 || low == 12,
		.atomic = low == 19 || low == 20,
		.aeth = low == 13 || low == 15 || low == 16 || low == 17 || low == 18,
		.atomic_ack = low == 18,
		.imm = low == 3 || low == 5 || low == 9 || low == 11,
		.ieth = low == 22 || low == 23,
		.payload = low <= 11 || (low >= 13 && low <= 16) || low >= 22,
	};
}

class Generator {
	Random &random_;
	const Area &area_;
	std::vector<std::unique_ptr<Victim>> &victims_;
	std::vector<std::uint32_t> others_; /* queue pairs that must not be touched */
	Route v4_, v6_;

	bool one_in(std::uint64_t n) { return random_.word() % n == 0; }
	std::uint32_t below(std::uint64_t n)
	{
		return static_cast<std::uint32_t>(random_.word() % n);
	}

	std::uint32_t payload_size()
	{
		static const std::uint16_t sizes[] = {0, 1, 2, 3, 4, 33, 1023, 1024, 1025};

		if (long_)
			return below(8000);
		return one_in(3) ? below(1400) : sizes[below(std::size(sizes))];
	}
	std::uint64_t remote_address()
	{
		switch (below(6)) {
		case 0:
			return random_.word();
		case 1:
			return area_.address() - below(64);
		case 2:
			return area_.address() + area_bytes - below(3000);
		default:
			return area_.address() + below(area_bytes);
		}
	}
	void put_headers(Bytes &body, const Header &has, std::uint32_t payload)
	{
		if (has.deth) {
			put(body, one_in(8) ? below(~0U) : common_qkey, 4);
			put(body, below(1 << 24), 4);
		}
		if (has.reth || has.atomic) {
			put(body,
			    has.atomic && !one_in(4) ? remote_address() & ~7ULL : remote_address(),
			    8);
			put(body, one_in(8) ? below(~0U) : area_.key(), 4);
		}
		if (has.reth)
			put(body, one_in(4) ? below(10000) : one_in(16) ? below(~0U) : payload, 4);
		if (has.atomic)
			put(body, random_.word(), 8), put(body, random_.word(), 8);
		if (has.aeth)
			put(body, (one_in(3) ? below(256) : 0x1fU) << 24 | below(1 << 16), 4);
		if (has.atomic_ack)
			put(body, random_.word(), 8);
		if (has.imm || has.ieth)
			put(body, one_in(2) ? area_.key() : below(~0U), 4);
	}
	/* Addresses one of the victims as its peer would. */
	void address_victim(Bth &bth, Route &route)
	{
		const Victim &victim = *victims_[below(victims_.size())];
		const unsigned transport = victim.type() == IBV_QPT_RC	 ? 0
					   : victim.type() == IBV_QPT_UC ? 1
									 : 3;
		const bool response = victim.type() == IBV_QPT_RC && one_in(3);

		route = victim.ipv6() ? v6_ : v4_;
		bth.qpn = victim.number();
		bth.opcode = static_cast<std::uint8_t>(transport << 5 |
						       (response ? 13 + below(6) : below(24)));
		if (transport == 3)
			bth.opcode = static_cast<std::uint8_t>(0x64 + below(2));
		if (one_in(16))
			bth.opcode = notification;
		/* The expected PSN or one near it. A response is for an outstanding request. */
		bth.psn = response ? victim.sq_psn - below(8) : victim.rq_psn + in_batch_;
		if (one_in(3))
			bth.psn += below(16) - 8;
	}
	void address_anybody(Bth &bth, Route &route)
	{
		const std::uint32_t special[] = {0, 1, 0xffffff, below(1 << 24)};

		route = one_in(4) ? v6_ : v4_;
		bth.qpn = one_in(2) ? others_[below(others_.size())] : special[below(4)];
		bth.opcode = static_cast<std::uint8_t>(below(256));
		bth.psn = below(1 << 24);
		/*
		 * The packet never comes from the peer of the queue pairs that must
		 * stay untouched, because that is this device, and the stack refuses
		 * its address from outside. It may try.
		 */
		if (one_in(4))
			route.from = route.to;
	}
	void mutate(Bytes &body)
	{
		for (unsigned n = 1 + below(3); n; n--)
			body[below(body.size())] ^= static_cast<std::uint8_t>(1 << below(8));
		if (one_in(6))
			body.resize(below(body.size() + 1));
	}
	unsigned in_batch_ = 0;
	bool long_ = false;
	std::vector<Bytes> pieces_; /* of the frame before */

public:
	Generator(Random &random, const Area &area, std::vector<std::unique_ptr<Victim>> &victims,
		  std::vector<std::uint32_t> others)
		: random_(random), area_(area), victims_(victims), others_(std::move(others))
	{
		v4_ = {.from = address("10.77.0.2"),
		       .to = address("10.77.0.1"),
		       .from_mac = mac("veth1"),
		       .to_mac = mac("veth0")};
		v6_ = {.ipv6 = true,
		       .from = address("fd77::2"),
		       .to = address("fd77::1"),
		       .from_mac = mac("veth1"),
		       .to_mac = mac("veth0")};
	}
	/* Some packets in a row may continue each other. */
	void begin_batch() { in_batch_ = 0; }
	/*
	 * Sometimes a packet is fragmented. Fragments are lost, come twice, or come in any order.
	 */
	Bytes frame()
	{
		if (pieces_.empty()) {
			Bytes whole = packet();
			if (!one_in(32) || whole[12] != 0x08)
				return whole;
			const auto id = static_cast<std::uint16_t>(below(~0U));
			pieces_ = fragments(fragmentable(std::move(whole), id), below(200), id);
			if (one_in(3))
				pieces_.push_back(pieces_[below(pieces_.size())]);
		}
		const auto at = pieces_.begin() + below(one_in(3) ? pieces_.size() : 1);
		Bytes piece = std::move(*at);
		pieces_.erase(at);
		if (one_in(16))
			pieces_.clear();
		return piece;
	}
	/* A frame that is longer than the link's MTU, and thus a train if it says so. */
	Bytes long_frame()
	{
		long_ = true;
		Bytes frame = packet();
		long_ = false;
		return frame;
	}
	FrameClaim claim_of(const Bytes &frame)
	{
		static const std::uint8_t trains[] = {0, claim_udp_train, claim_udp_train,
						      claim_udp_train, claim_tcp_train};
		const auto udp =
			static_cast<std::uint16_t>(ethernet_bytes + ip_bytes(frame[12] == 0x86));
		FrameClaim claim;

		claim.train = trains[below(std::size(trains))];
		claim.piece_bytes =
			static_cast<std::uint16_t>(one_in(4) ? below(1 << 16) : 1 + below(1400));
		claim.header_bytes = static_cast<std::uint16_t>(one_in(2) ? udp + 8U : below(200));
		if (one_in(2)) {
			claim.flags = claim_needs_sum;
			claim.sum_start = udp;
			claim.sum_offset = 6;
		}
		return claim;
	}
	Bytes packet()
	{
		Bth bth;
		Route route;
		Bytes body;

		if (one_in(5))
			address_anybody(bth, route);
		else
			address_victim(bth, route);
		in_batch_ += one_in(2);
		if (one_in(16))
			route.from[route.ipv6 ? 15 : 3] = 3;

		const Header has = header_of(bth.opcode);
		const std::uint32_t payload = bth.opcode == notification && !one_in(4) ? 16
					      : has.payload ? payload_size()
							    : 0;
		const unsigned pad = one_in(16) ? below(4) : -payload & 3;

		bth.flags = static_cast<std::uint8_t>(0x40 | pad << 4 | (one_in(4) ? 0x80 : 0));
		bth.pkey = one_in(32) ? static_cast<std::uint16_t>(below(65536)) : 0xffff;
		bth.ack = one_in(2);
		bth.put_to(body);
		put_headers(body, has, payload);
		body.resize(body.size() + payload + pad, static_cast<std::uint8_t>(bth.psn));
		if (one_in(8))
			mutate(body);
		Bytes frame = make_frame(route, body, one_in(16) ? below(~0U) : 0);
		/* Some are marked. */
		return one_in(4) ? with_tos(std::move(frame), static_cast<std::uint8_t>(below(256)))
				 : frame;
	}
};

/* ------------------------------------------------------- what is not touched */

/* Checked transfers of every kind while this object lives. */
class Transfer {
	Pair pair_;
	Region from_, to_;
	std::atomic<bool> stop_{false};
	std::uint64_t rounds_ = 0;
	std::string wrong_;
	std::thread thread_;

	void write_and_send(std::uint64_t n, std::size_t size)
	{
		auto &[a, b] = pair_;

		fill_pattern(from_.bytes(0, size), n);
		post_recv(b.qp, n, {});
		post(a.qp, Send(IBV_WR_RDMA_WRITE, {from_.sge(0, size)})
				   .remote(to_.address(), to_.rkey()));
		post(a.qp, Send(IBV_WR_SEND));
		wait_success(a.send_cq, 2, 6 * patience);
		wait_success(b.recv_cq, 1, 6 * patience);
		must_equal(to_.bytes(0, size), from_.bytes(0, size), n);
	}
	void read_and_add(std::uint64_t n, std::size_t size)
	{
		auto &[a, b] = pair_;

		fill_pattern(to_.bytes(0, size), n + 1);
		post(a.qp, Send(IBV_WR_RDMA_READ, {from_.sge(0, size)})
				   .remote(to_.address(), to_.rkey()));
		post(a.qp, Send(IBV_WR_ATOMIC_FETCH_AND_ADD, {from_.sge(size_bytes, 8)})
				   .atomic(to_.address(size_bytes), to_.rkey(), 1));
		wait_success(a.send_cq, 2, 6 * patience);
		must_equal(from_.bytes(0, size), to_.bytes(0, size), n);
		std::uint64_t count = 0;

		std::memcpy(&count, to_.data() + size_bytes, 8);
		if (count != n + 1)
			throw std::runtime_error("atomics were executed " + std::to_string(count) +
						 " times instead of " + std::to_string(n + 1));
	}
	static void must_equal(std::span<const std::uint8_t> got,
			       std::span<const std::uint8_t> expected, std::uint64_t n)
	{
		const std::string wrong = difference(got, expected);

		if (!wrong.empty())
			throw std::runtime_error("message " + std::to_string(n) + ": " + wrong);
	}
	void run()
	{
		try {
			for (; !stop_; rounds_++) {
				const std::size_t size = 1 + rounds_ * 7919 % size_bytes;

				write_and_send(rounds_, size);
				read_and_add(rounds_, size);
			}
		} catch (const std::exception &error) {
			wrong_ = error.what();
		}
	}

public:
	static constexpr std::size_t size_bytes = 20000;

	explicit Transfer(Device &device)
		: pair_(device), from_(pair_.a.pd, size_bytes + 8), to_(pair_.b.pd, size_bytes + 8)
	{
		thread_ = std::thread([this] { run(); });
	}
	~Transfer() { stop(); }
	std::vector<std::uint32_t> numbers() const
	{
		return {pair_.a.qp->qp_num, pair_.b.qp->qp_num};
	}
	void stop()
	{
		stop_ = true;
		if (thread_.joinable())
			thread_.join();
	}
	/* To be called after stop(). */
	std::uint64_t rounds() const { return rounds_; }
	const std::string &wrong() const { return wrong_; }
};

/* ------------------------------------------------------------------- memory */

struct Usage {
	long unreclaimable = meminfo("SUnreclaim");
	long available = available_memory();
	long packets = exact_slab("skbuff_head_cache");
};

/* -------------------------------------------------------------------- a run */

class Storm {
	Device device_;
	Random random_{1};
	Pd pd_{ibv_alloc_pd(device_), "alloc_pd"};
	Area area_{pd_};
	std::vector<std::unique_ptr<Victim>> victims_;
	RawSocket socket_{"veth1"};
	TrainSocket trains_{"veth1"};
	std::uint64_t train_count_ = 0;

	static Bytes addressed(Bytes frame, bool stray)
	{
		constexpr std::size_t last_of_destination = 5;

		frame.at(last_of_destination) ^= stray;
		return frame;
	}
	void add(ibv_qp_type type, bool ipv6)
	{
		victims_.push_back(
			std::make_unique<Victim>(device_, pd_, area_, type, ipv6, random_));
	}

public:
	Storm()
	{
		for (int i = 0; i < 3; i++)
			add(IBV_QPT_RC, false);
		add(IBV_QPT_RC, true);
		add(IBV_QPT_UC, false);
		add(IBV_QPT_UD, false);
	}
	/*
	 * Stray frames are for another machine. Return: rounds of traffic
	 * in a second beside the packets.
	 */
	double blow(std::uint64_t packets, bool stray = false)
	{
		const Stopwatch watch;
		Transfer transfer(device_);
		Generator generator(random_, area_, victims_, transfer.numbers());
		std::vector<Bytes> frames(batch);

		for (std::uint64_t sent = 0; sent < packets; sent += batch) {
			generator.begin_batch();
			for (auto &frame : frames)
				frame = addressed(generator.frame(), stray);
			socket_.send(frames);
			Bytes train = addressed(generator.long_frame(), stray);
			train_count_ += trains_.send(generator.claim_of(train), train);
			for (auto &victim : victims_)
				victim->refresh();
			if (sent / batch % 64 == 0)
				REQUIRE(area_.outside_untouched());
		}
		transfer.stop();
		const double seconds = milliseconds(watch.elapsed()) / 1000;
		CHECK(area_.outside_untouched());
		CHECK(transfer.wrong() == "");
		CHECK(transfer.rounds() > 0);
		CHECK(train_count_ > 0);
		std::printf("%llu packets%s; %llu checked rounds of traffic beside them\n",
			    static_cast<unsigned long long>(packets), stray ? " gone astray" : "",
			    static_cast<unsigned long long>(transfer.rounds()));
		return static_cast<double>(transfer.rounds()) / seconds;
	}
	void settle()
	{
		for (auto &victim : victims_)
			victim->begin_anew();
	}
	unsigned lives() const
	{
		unsigned sum = 0;

		for (const auto &victim : victims_)
			sum += victim->lives;
		return sum;
	}
};

/* The number of frames that veth0 has received up to now. */
std::uint64_t frames_in()
{
	std::ifstream file("/sys/class/net/veth0/statistics/rx_packets");
	std::uint64_t value = 0;

	file >> value;
	return value;
}

void print_counters()
{
	for (const char *name : {"packets_received",
				 "drops",
				 "drop_short",
				 "drop_version",
				 "drop_opcode",
				 "drop_pad",
				 "drop_icrc",
				 "drop_pkey",
				 "drop_qkey",
				 "drop_qpn",
				 "drop_state",
				 "drop_source",
				 "drop_group",
				 "drop_stale",
				 "drop_sequence",
				 "drop_order",
				 "drop_receive",
				 "drop_length",
				 "drop_rights",
				 "drop_resource",
				 "reorder_kept",
				 "duplicates",
				 "np_ecn_marked_roce_packets",
				 "np_cnp_sent",
				 "rp_cnp_handled",
				 "rp_cnp_ignored",
				 "naks_sent_sequence",
				 "naks_sent_invalid",
				 "naks_sent_access",
				 "naks_sent_operation",
				 "naks_sent_rnr",
				 "retransmits",
				 "timeouts"})
		std::printf("%s %llu\n", name, static_cast<unsigned long long>(counter(name)));
}

} // namespace

TEST_CASE("random packets disturb no other queue pair and use up no memory")
{
	const std::uint64_t packets = packets_wanted();
	/* KASAN keeps freed memory in quarantine. On that kernel kmemleak looks for leaks. */
	const bool countable = slowness() == 1;

	make_neighbours();
	Storm storm;

	storm.blow(packets / 10); /* fills all caches */
	const double fair = storm.blow(packets / 10, true);
	storm.settle();
	const Usage before;
	const std::uint64_t arrived = frames_in(), damaged = counter("drop_icrc");
	const Stopwatch watch;

	const double rate = storm.blow(packets);
	const double seconds = milliseconds(watch.elapsed()) / 1000;

	storm.settle();
	if (countable)
		eventually([&] { return exact_slab("skbuff_head_cache") < before.packets + 500; });
	const Usage after;
	std::printf("%.1f s, %.0f packets/s, queue pairs lived %u times\n", seconds,
		    static_cast<double>(packets) / seconds, storm.lives());
	std::printf("%.0f rounds/s of traffic, %.0f beside packets gone astray\n", rate, fair);
	print_counters();
	std::printf("KiB: unreclaimable %ld -> %ld, available %ld -> %ld; skbs %ld -> %ld\n",
		    before.unreclaimable, after.unreclaimable, before.available, after.available,
		    before.packets, after.packets);
	CHECK(frames_in() - arrived > packets * 9 / 10);
	CHECK(counter("drop_icrc") - damaged > packets / 100);
	/* Less than a minute is not enough to show that. */
	if (seconds >= 60)
		CHECK(rate > fair / 2);
	if (!countable)
		return;
	CHECK(after.unreclaimable - before.unreclaimable < 4096);
	CHECK(before.available - after.available < 32768);
	CHECK(after.packets - before.packets < 1000);
}
