// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Eight programs work for a long time, for i_soak.sh. Four use the direct path, and four a wire.
 * Each has four connections and every opcode of RC. Programs end or are killed, and others replace
 * them.
 *
 * Holds: Every byte is right. Each work request completes once, and after an error only as flushed.
 * Connections break only where the wire does, because SOAK_WIRE's link goes down now and then. At
 * the end the kernel's memory, its pinned pages and the rate are what they were at the start.
 * Does not hold: the impairment of the wire (i_soak.sh).
 *
 * SOAK_SECONDS, default 600. SOAK_WIRE: the two devices at its ends. PEAL_DEV: the device of the
 * direct path.
 */
#include "commands.hpp"
#include "innocent.hpp"
#include "usage.hpp"

#include <sys/mman.h>

#include <atomic>
#include <set>

using namespace peal_test;

namespace {

constexpr std::size_t most_bytes = 64 << 10, cell_bytes = 8;
constexpr std::size_t lanes = 4, programs = 8;

/* ------------------------------------------------------------------------ a connection */

/* One end: its queue pair, the requests that it has posted, and whether one has failed. */
struct End {
	End(Device &device)
		: endpoint(device, options()), memory(endpoint.pd, most_bytes + cell_bytes, access)
	{
	}
	static QpOptions options()
	{
		QpOptions options;
		options.send_wr = options.recv_wr = 16;
		options.cqe = 64;
		return options;
	}
	void post(Send send)
	{
		outstanding.insert(++last);
		peal_test::post(endpoint.qp, send.id(last));
	}
	void post_recv(std::vector<ibv_sge> sges)
	{
		outstanding.insert(++last);
		peal_test::post_recv(endpoint.qp, last, std::move(sges));
	}
	/* Takes all completions. Return: whether all succeeded. */
	bool collect()
	{
		for (ibv_cq *cq : {endpoint.send_cq.get(), endpoint.recv_cq.get()})
			for (const auto &wc : drain(cq))
				judge(wc, cq == endpoint.recv_cq.get());
		return !failed[0] && !failed[1];
	}
	void judge(const ibv_wc &wc, bool receive)
	{
		if (!outstanding.erase(wc.wr_id))
			throw std::runtime_error("completed twice: " + describe(wc));
		if (failed[receive] && wc.status != IBV_WC_WR_FLUSH_ERR)
			throw std::runtime_error("behind an error: " + describe(wc));
		failed[receive] |= wc.status != IBV_WC_SUCCESS;
		immediate = wc.wc_flags & IBV_WC_WITH_IMM ? wc.imm_data : immediate;
		if (wc.status != IBV_WC_SUCCESS && wc.status != IBV_WC_WR_FLUSH_ERR)
			first_error = describe(wc);
	}

	static constexpr int access = all_access | IBV_ACCESS_MW_BIND;
	Endpoint endpoint;
	Region memory;
	std::uint64_t last = 0;
	std::set<std::uint64_t> outstanding;
	std::array<bool, 2> failed{};
	std::uint32_t immediate = 0;
	std::string first_error;
};

class Lane {
public:
	Lane(Device &from, Device &to, Random &random)
		: random_(random), a_(from), b_(to),
		  window_(ibv_alloc_mw(b_.endpoint.pd, IBV_MW_TYPE_2), "alloc_mw")
	{
		Link link;
		link.timeout = 17; /* 0.5 s, and links are down for less than seven of these */
		link.psn = static_cast<std::uint32_t>(random_.between(0, 0xffffff));
		connect_ends(a_, b_, link);
		connect_ends(b_, a_, link);
	}
	/* Starts one operation of any kind. */
	void begin()
	{
		size_ = random_.between(1, most_bytes);
		kind_ = random_.between(0, 8);
		fill_pattern(source().bytes(0, size_), ++salt_);
		/* READ moves b's bytes to a. All others move a's to b. */
		switch (kind_) {
		case 0:
			return a_.post(remote(Send(IBV_WR_RDMA_WRITE, piece())));
		case 1:
			b_.post_recv({});
			return a_.post(
				remote(Send(IBV_WR_RDMA_WRITE_WITH_IMM, piece()).imm(immediate())));
		case 2:
			receive();
			return a_.post(Send(IBV_WR_SEND, piece()));
		case 3:
			receive();
			return a_.post(Send(IBV_WR_SEND_WITH_IMM, piece()).imm(immediate()));
		case 4:
			return a_.post(remote(Send(IBV_WR_RDMA_READ, piece())));
		case 5:
			return a_.post(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 0));
		case 6:
			return a_.post(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, cell_, cell_ * 7 + 1));
		case 7:
			return bind();
		default:
			return write_and_fence();
		}
	}
	/* Return: false when the connection has broken. It throws when anything is wrong. */
	bool finish()
	{
		const auto done = [&] {
			const bool a_is_well = a_.collect(), b_is_well = b_.collect();

			return !a_is_well || !b_is_well ||
			       (a_.outstanding.empty() && b_.outstanding.empty());
		};

		if (!eventually(done, 12 * patience))
			throw std::runtime_error("a work request does not complete");
		if (failed())
			return false;
		if (kind_ == 7 && !use_window())
			return false;
		check();
		return true;
	}
	/* Both ends go to error. Each work request still comes back, flushed. */
	void give_up()
	{
		for (auto *end : {&a_, &b_})
			to_state(end->endpoint.qp, IBV_QPS_ERR);
		const auto flushed = [&] {
			a_.collect();
			b_.collect();
			return a_.outstanding.empty() && b_.outstanding.empty();
		};
		if (!eventually(flushed))
			throw std::runtime_error("a work request is not flushed");
	}
	std::string error() const
	{
		return a_.first_error.empty() ? b_.first_error : a_.first_error;
	}

private:
	static void connect_ends(End &end, End &peer, const Link &link)
	{
		auto &device = end.endpoint.device;
		auto attr = rtr_attr(device, peer.endpoint.qp->qp_num, peer.endpoint.device.gid(),
				     link);

		to_init(end.endpoint.qp, link);
		must(ibv_modify_qp(end.endpoint.qp, &attr, rtr_mask), "modify to RTR");
		to_rts(end.endpoint.qp, link);
	}
	Region &source() { return kind_ == 4 ? b_.memory : a_.memory; }
	Region &target() { return kind_ == 4 ? a_.memory : b_.memory; }
	std::uint32_t immediate() const { return static_cast<std::uint32_t>(salt_ * 0x9e3779b9); }
	bool failed() const { return a_.failed[0] || a_.failed[1] || b_.failed[0] || b_.failed[1]; }
	/* A message in at most three entries. */
	std::vector<ibv_sge> piece()
	{
		const std::size_t one = size_ / 3, two = size_ / 2;

		return {a_.memory.sge(0, one), a_.memory.sge(one, two - one),
			a_.memory.sge(two, size_ - two)};
	}
	Send remote(Send send) { return send.remote(b_.memory.address(), b_.memory.rkey()); }
	void receive() { b_.post_recv({b_.memory.sge(0, size_)}); }
	Send atomic(ibv_wr_opcode opcode, std::uint64_t first, std::uint64_t second)
	{
		return Send(opcode, {a_.memory.sge(most_bytes, cell_bytes)})
			.atomic(b_.memory.address(most_bytes), b_.memory.rkey(), first, second);
	}
	/* Two WRITEs in a row, the second behind a READ's fence. */
	void write_and_fence()
	{
		a_.post(remote(Send(IBV_WR_RDMA_WRITE, piece())));
		a_.post(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0));
		a_.post(remote(Send(IBV_WR_RDMA_WRITE, piece())
				       .flags(IBV_SEND_SIGNALED | IBV_SEND_FENCE)));
	}
	void bind()
	{
		Send send(IBV_WR_BIND_MW);

		send.wr.bind_mw = {
			window_,
			ibv_inc_rkey(window_->rkey),
			{b_.memory.mr(), b_.memory.address(), size_, IBV_ACCESS_REMOTE_WRITE}};
		b_.post(send);
	}
	/* Writes through the window, which the next message or its owner closes. */
	bool use_window()
	{
		const bool by_peer = salt_ % 2;
		Send last(by_peer ? IBV_WR_SEND_WITH_INV : IBV_WR_LOCAL_INV);

		window_->rkey = ibv_inc_rkey(window_->rkey);
		last.wr.invalidate_rkey = window_->rkey;
		a_.post(Send(IBV_WR_RDMA_WRITE, piece())
				.remote(b_.memory.address(), window_->rkey));
		if (by_peer) {
			b_.post_recv({});
			a_.post(last);
		}
		kind_ = 9;
		if (!finish() || by_peer)
			return !failed();
		b_.post(last);
		return finish();
	}
	void check()
	{
		std::uint64_t got = 0;

		std::memcpy(&got, a_.memory.data() + most_bytes, cell_bytes);
		if (kind_ == 5 || kind_ == 6) {
			if (got != cell_)
				throw std::runtime_error("an atomic found another value");
			cell_ = kind_ == 5 ? cell_ + 3 : cell_ * 7 + 1;
			return;
		}
		const auto wrong = difference(target().bytes(0, size_), source().bytes(0, size_));
		if (!wrong.empty())
			throw std::runtime_error("kind " + std::to_string(kind_) + ": " + wrong);
		if ((kind_ == 1 || kind_ == 3) && b_.immediate != immediate())
			throw std::runtime_error("wrong immediate data");
	}

	Random &random_;
	End a_, b_;
	Mw window_;
	std::uint64_t salt_ = 0, kind_ = 0, cell_ = 0;
	std::size_t size_ = 0;
};

/* ----------------------------------------------------------------------------- programs */

/* Shared by all programs: how much they have done. */
struct Tally {
	std::atomic<std::uint64_t> direct, wire, broken;
};

struct Devices {
	std::string from, to;
	bool wire;
};

/* A connection needs a route, and a wire that is down has none. */
std::unique_ptr<Lane> new_lane(const Devices &names, Device &from, Device &to, Random &random)
{
	const Stopwatch watch;

	for (;;) {
		try {
			return std::make_unique<Lane>(from, to, random);
		} catch (const std::exception &) {
			if (!names.wire || watch.elapsed() > patience)
				throw;
		}
		readable(-1, 50ms);
	}
}

/* A new connection replaces one that the wire has broken. */
int work(const Devices &names, Tally &tally, Duration time)
{
	Random random(static_cast<std::uint64_t>(getpid()));
	Device from(names.from), to(names.to);
	std::vector<std::unique_ptr<Lane>> all;
	const Stopwatch watch;

	for (std::size_t i = 0; i < lanes; i++)
		all.push_back(new_lane(names, from, to, random));
	while (watch.elapsed() < time) {
		for (auto &lane : all)
			lane->begin();
		for (auto &lane : all) {
			if (lane->finish()) {
				(names.wire ? tally.wire : tally.direct)++;
				continue;
			}
			if (!names.wire)
				throw std::runtime_error("broken: " + lane->error());
			tally.broken++;
			lane->give_up();
			lane = new_lane(names, from, to, random);
		}
	}
	return 0;
}

/* One place for a program. */
class Slot {
public:
	Slot(Devices names, Tally &tally, Random &random)
		: names_(std::move(names)), tally_(tally), random_(random)
	{
	}
	void start()
	{
		const auto time = std::chrono::seconds(random_.between(5, 40));

		killed_ = random_.between(0, 2) == 0;
		end_ = Clock::now() + time;
		const auto plan = killed_ ? 10 * time : time;
		child_ = spawn([this, plan] { return work(names_, tally_, plan); });
		started_++;
	}
	/* Return: whether the program has ended as planned. */
	bool ended(bool now)
	{
		int status = 0;

		if (killed_ && (now || Clock::now() > end_))
			kill(child_, SIGKILL);
		if (waitpid(child_, &status, now && killed_ ? 0 : WNOHANG) != child_)
			return false;
		CHECK((killed_ ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : !status));
		return true;
	}
	unsigned started() const { return started_; }

private:
	Devices names_;
	Tally &tally_;
	Random &random_;
	pid_t child_ = -1;
	Clock::time_point end_;
	bool killed_ = false;
	unsigned started_ = 0;
};

/* ------------------------------------------------------------------------------ figures */

struct Sample {
	double direct, wire; /* operations in a second */
	long slab, vmalloc;  /* KiB */
};

class Record {
public:
	explicit Record(Tally &tally) : tally_(tally) {}
	void take()
	{
		const double seconds = milliseconds(watch_.elapsed()) / 1000;
		const std::uint64_t direct = tally_.direct, wire = tally_.wire;
		const Sample sample{static_cast<double>(direct - direct_) / seconds,
				    static_cast<double>(wire - wire_) / seconds,
				    meminfo("SUnreclaim"), meminfo("VmallocUsed")};

		std::printf("%7.0f/s direct, %7.0f/s wire, %llu broken, slab %ld KiB, vmalloc %ld "
			    "KiB\n",
			    sample.direct, sample.wire,
			    static_cast<unsigned long long>(tally_.broken), sample.slab,
			    sample.vmalloc);
		std::fflush(stdout);
		all_.push_back(sample);
		direct_ = direct;
		wire_ = wire;
		watch_ = Stopwatch();
	}
	/* The median of the last third, as a part of the median of the third before. */
	template <class Member>
	double drift(Member member) const
	{
		const std::size_t third = all_.size() / 3;

		return median(all_.size() - third, all_.size(), member) /
		       median(third, 2 * third, member);
	}

private:
	template <class Member>
	double median(std::size_t from, std::size_t to, Member member) const
	{
		std::vector<double> values;

		for (std::size_t i = from; i < to; i++)
			values.push_back(static_cast<double>(all_[i].*member));
		std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
		return values.at(values.size() / 2);
	}

	Tally &tally_;
	std::vector<Sample> all_;
	std::uint64_t direct_ = 0, wire_ = 0;
	Stopwatch watch_;
};

Duration soak_time()
{
	return time_from("SOAK_SECONDS", 600);
}

Tally &shared_tally()
{
	void *at = mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);

	if (at == MAP_FAILED)
		throw_errno("mmap");
	return *new (at) Tally{};
}

std::vector<Devices> places()
{
	std::istringstream ends(std::getenv("SOAK_WIRE") ? std::getenv("SOAK_WIRE") : "");
	std::string a, b;
	std::vector<Devices> all;

	ends >> a >> b;
	REQUIRE(!b.empty());
	for (std::size_t i = 0; i < programs; i++) {
		if (i % 2)
			all.push_back({i % 4 == 1 ? a : b, i % 4 == 1 ? b : a, true});
		else
			all.push_back({device_name(), device_name(), false});
	}
	return all;
}

void run_programs(std::vector<Slot> &slots, Record &record, Duration time)
{
	const Stopwatch watch;
	auto next = Clock::now() + time / 60;

	for (auto &slot : slots)
		slot.start();
	while (watch.elapsed() < time) {
		for (auto &slot : slots)
			if (slot.ended(false))
				slot.start();
		if (Clock::now() > next) {
			record.take();
			next += time / 60;
		}
		readable(-1, 100ms);
	}
	for (auto &slot : slots)
		CHECK(eventually(
			[&] {
				readable(-1, 100ms);
				return slot.ended(true);
			},
			50s + 12 * patience));
}

} // namespace

TEST_CASE("programs come and go, and nothing else changes")
{
	Tally &tally = shared_tally();
	Random random(1);
	Record record(tally), warm_up(tally);
	std::vector<Slot> slots;

	for (const auto &place : places())
		slots.emplace_back(place, tally, random);
	const auto objects = read_command("rdma resource show");
	const auto users = users_of_module();
	const long pinned = pinned_pages();
	run_programs(slots, warm_up, soak_time() / 20);
	const long slab_before = meminfo("SUnreclaim"), vmalloc_before = meminfo("VmallocUsed");
	run_programs(slots, record, soak_time());

	unsigned started = 0;
	for (const auto &slot : slots)
		started += slot.started();
	CHECK(read_command("rdma resource show") == objects);
	CHECK(users_of_module() == users);
	CHECK(eventually([&] { return pinned_pages() == pinned; }));
	const double direct = record.drift(&Sample::direct), wire = record.drift(&Sample::wire);
	std::printf(
		"%u programs, %llu operations direct, %llu on the wire, %llu connections broken\n"
		"slab %+ld KiB, vmalloc %+ld KiB; rate of the last third to that before: %.2f "
		"direct, %.2f wire\n",
		started, static_cast<unsigned long long>(tally.direct),
		static_cast<unsigned long long>(tally.wire),
		static_cast<unsigned long long>(tally.broken), meminfo("SUnreclaim") - slab_before,
		meminfo("VmallocUsed") - vmalloc_before, direct, wire);
	CHECK(meminfo("SUnreclaim") - slab_before < 8192);
	CHECK(meminfo("VmallocUsed") - vmalloc_before < 1024);
	CHECK(direct > 0.5);
	CHECK(wire > 0.5);
}
