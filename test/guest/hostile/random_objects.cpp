// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 240
// run: long
/*
 * Several threads and processes make and destroy objects of every kind in any order, legal or not,
 * while they are used.
 *
 * Holds: An object that is in use cannot be destroyed. In the right order everything can be
 * destroyed. Each work request completes at most once. After an error of its queue pair it
 * completes only as flushed. Where completion queues have room, each signaled request completes
 * exactly once, unless its queue pair was reset or destroyed. The data of innocent programs stays
 * right all the time. Nothing is left over. All of this is true even when allocations fail.
 * Does not hold: the error of a wrong call (verbs/states_and_limits, verbs/failed_requests),
 * removal of the device (lifecycle/device_removed_in_use).
 * PEAL_STORM_SECONDS, default 8, is how long it takes.
 */
#include "crew.hpp"
#include "faults.hpp"
#include "innocent.hpp"
#include "neighbour.hpp"

#include <algorithm>
#include <atomic>
#include <map>

using namespace peal_test;

namespace {

constexpr std::size_t arena_bytes = 64 * page_bytes;
constexpr std::uint32_t queue_depth = 32;
constexpr std::size_t max_birds = 4;
constexpr std::uint8_t groups = 4;

Duration storm_time()
{
	return time_from("PEAL_STORM_SECONDS", 8);
}

/* wr_id holds the queue pair, which of its queues it is, and a number that grows. */
constexpr std::uint64_t receive_bit = 1U << 31;

/* The outcomes that the work requests of a queue pair may have. */
class Ledger {
public:
	explicit Ledger(bool ordered) : ordered_(ordered) {}
	void posted(std::uint64_t id, bool signaled) { open_[id] = {signaled, false}; }
	/*
	 * Each completes once. After an error no request succeeds on a
	 * queue that executes in order.
	 */
	void completed(const ibv_wc &wc)
	{
		const auto request = open_.find(wc.wr_id);

		if (request == open_.end())
			throw std::runtime_error("completed twice, or never posted: " +
						 describe(wc));
		if (!request->second.before_reset)
			judge(wc);
		open_.erase(request);
	}
	/* Forgets the earlier requests, because they may never complete. */
	void was_reset()
	{
		failed_ = {};
		for (auto &[id, request] : open_)
			request.before_reset = true;
	}
	/* The requests that must still complete. */
	auto owed() const
	{
		return std::count_if(open_.begin(), open_.end(), [](const auto &entry) {
			return entry.second.signaled && !entry.second.before_reset;
		});
	}

private:
	struct Request {
		bool signaled, before_reset;
	};

	void judge(const ibv_wc &wc)
	{
		auto &failed = failed_[wc.wr_id & receive_bit ? 1 : 0];

		if (ordered_ && failed && wc.status == IBV_WC_SUCCESS)
			throw std::runtime_error("completed well behind an error: " + describe(wc));
		failed |= wc.status != IBV_WC_SUCCESS;
	}

	bool ordered_;
	std::map<std::uint64_t, Request> open_{}; /* by wr_id */
	std::array<bool, 2> failed_{};		  /* sends, receives */
};

/* A queue pair. */
struct Bird {
	ibv_qp *qp;
	ibv_qp_type type;
	bool all_signaled;
	Ledger ledger{type == IBV_QPT_RC};
};

/* Whether completion queues may overrun. If they may, a completion may be missing. */
enum class Room { scarce, ample };

/*
 * The objects of one thread. Each kind has a few places. A random action makes, uses, changes or
 * destroys the object in a random place. Calls that must not succeed may fail.
 */
class Storm {
public:
	explicit Storm(std::uint64_t salt, Room room = Room::scarce)
		: random_(salt), room_(room), memory_(arena_bytes)
	{
	}
	Storm(const Storm &) = delete;
	Storm &operator=(const Storm &) = delete;

	void blow(Duration time)
	{
		const Stopwatch watch;

		while (watch.elapsed() < time) {
			act();
			actions_++;
		}
	}
	std::uint64_t actions() const { return actions_; }
	std::uint64_t hatched() const { return hatched_; }

	/*
	 * One allocation of each action fails, if the action makes that many. Most make a few, and
	 * a large queue makes some for each of its pages. Return: how many allocations failed.
	 */
	std::uint64_t blow_short_of_memory(const Faults &faults, Duration time)
	{
		const Stopwatch watch;
		std::uint64_t failed = 0;

		for (; watch.elapsed() < time; actions_++) {
			faults.start(Which::one,
				     random_.between(1, 1ULL << random_.between(2, 10)));
			try {
				act();
			} catch (...) {
				faults.stop();
				throw;
			}
			failed += static_cast<std::uint64_t>(faults.stop());
		}
		return failed;
	}

	/*
	 * With ample room, every request that must complete does. Return:
	 * how many have completed in all.
	 */
	std::uint64_t settle()
	{
		for (auto &[number, bird] : birds_)
			if (!fail_and_drain(bird) && bird.ledger.owed())
				throw std::runtime_error("a queue pair in use refuses to fail");
		return completions_;
	}
	/* Destroys everything in the right order. No call may fail now. */
	void clear()
	{
		for (auto &[number, bird] : birds_) {
			for (std::uint8_t i = 0; i < groups; i++)
				leave_group(bird.qp, i);
			must_go(bird.qp, ibv_destroy_qp, "destroy_qp");
		}
		birds_.clear();
		for (auto &ah : ahs_)
			must_go(ah, ibv_destroy_ah, "destroy_ah");
		for (auto &mw : mws_)
			must_go(mw, ibv_dealloc_mw, "dealloc_mw");
		for (auto &mr : mrs_)
			must_go(mr, ibv_dereg_mr, "dereg_mr");
		for (auto &cq : cqs_)
			must_go(cq, ibv_destroy_cq, "destroy_cq");
		for (auto &pd : pds_)
			must_go(pd, ibv_dealloc_pd, "dealloc_pd");
	}

private:
	static ibv_gid group(std::uint8_t number)
	{
		return {.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 224, 0, 1, number}};
	}
	/* A queue pair in a group cannot be destroyed. */
	static void leave_group(ibv_qp *qp, std::uint8_t number)
	{
		const auto gid = group(number);

		ibv_detach_mcast(qp, &gid, 0);
	}
	template <class T>
	static void must_go(T *&object, int (*destroy)(T *), const char *what)
	{
		if (object)
			must(destroy(object), what);
		object = nullptr;
	}

	std::size_t place(std::size_t places) { return random_.between(0, places - 1); }
	template <class T, std::size_t n>
	T *any(const std::array<T *, n> &from)
	{
		return from[place(n)];
	}
	Bird *any_bird()
	{
		if (birds_.empty())
			return nullptr;
		return &std::next(birds_.begin(), static_cast<long>(place(birds_.size())))->second;
	}

	void act();
	void make_or_drop_pd();
	void make_or_drop_mr();
	void make_or_drop_mw();
	void make_or_drop_cq();
	void make_or_drop_ah();
	void make_or_drop_qp();
	void resize_cq();
	void connect();
	void modify_anyhow();
	void modify_at_work();
	void post_something();
	void post_receive();
	void join_group();
	void query();
	void poll(ibv_cq *cq);
	void judge(const ibv_wc &wc);
	int cq_entries(std::uint64_t few);
	bool fail_and_drain(Bird &bird);
	void perhaps_drain(Bird &bird);
	std::uint64_t next_id(const Bird &bird, std::uint64_t bits = 0)
	{
		return static_cast<std::uint64_t>(bird.qp->qp_num) << 32 | bits | next_id_++;
	}
	ibv_send_wr plan(Bird &bird, ibv_sge *sge);

	Random random_;
	Room room_;
	Device device_;
	Memory memory_;
	std::array<ibv_pd *, 3> pds_{};
	std::array<ibv_mr *, 8> mrs_{};
	std::array<ibv_mw *, 4> mws_{};
	std::array<ibv_cq *, 4> cqs_{};
	std::array<ibv_ah *, 3> ahs_{};
	std::map<std::uint32_t, Bird> birds_; /* by number */
	std::uint64_t actions_ = 0;
	std::uint64_t hatched_ = 0; /* number of queue pairs that were made */
	std::uint64_t next_id_ = 0;
	std::uint64_t completions_ = 0;
};

void Storm::act()
{
	switch (random_.between(0, 31)) {
	case 0:
		return make_or_drop_pd();
	case 1:
	case 2:
		return make_or_drop_mr();
	case 3:
		return make_or_drop_mw();
	case 4:
		return make_or_drop_cq();
	case 5:
		return make_or_drop_ah();
	case 6:
	case 7:
		return make_or_drop_qp();
	case 8:
		return resize_cq();
	case 9:
	case 10:
		return connect();
	case 11:
		return modify_anyhow();
	case 12:
		return modify_at_work();
	case 13:
		return join_group();
	case 14:
		return query();
	case 15:
	case 16:
	case 17:
		return post_receive();
	case 18:
	case 19:
	case 20:
	case 21:
		return poll(any(cqs_));
	default:
		return post_something();
	}
}

/* A protection domain with objects must stay. The kernel refuses, or the domain was empty. */
void Storm::make_or_drop_pd()
{
	auto &pd = pds_[place(pds_.size())];

	if (!pd)
		pd = ibv_alloc_pd(device_);
	else if (!ibv_dealloc_pd(pd))
		pd = nullptr;
}

void Storm::make_or_drop_mr()
{
	auto &mr = mrs_[place(mrs_.size())];
	auto *pd = any(pds_);
	const auto from = place(arena_bytes), bytes = place(arena_bytes - from) + 1;
	const auto access = static_cast<int>(random_.between(0, 31));

	if (mr && random_.between(0, 3) == 0 && pd) {
		const int flags = static_cast<int>(random_.between(1, 7));
		ibv_rereg_mr(mr, flags, pd, memory_.data() + from, bytes, access);
	} else if (mr) {
		if (!ibv_dereg_mr(mr))
			mr = nullptr;
	} else if (pd) {
		mr = ibv_reg_mr(pd, memory_.data() + from, bytes, access);
	}
}

void Storm::make_or_drop_mw()
{
	auto &mw = mws_[place(mws_.size())];
	auto *pd = any(pds_);

	if (!mw && pd)
		mw = ibv_alloc_mw(pd, random_.between(0, 1) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	else if (mw && !ibv_dealloc_mw(mw))
		mw = nullptr;
}

/*
 * An ample queue holds many times the requests that can be posted at once,
 * because it is rarely polled.
 */
int Storm::cq_entries(std::uint64_t few)
{
	constexpr std::uint64_t ample = std::uint64_t{32} * max_birds * queue_depth;

	return static_cast<int>(random_.between(1, few) + (room_ == Room::ample ? ample : 0));
}

void Storm::make_or_drop_cq()
{
	auto &cq = cqs_[place(cqs_.size())];

	if (!cq)
		cq = ibv_create_cq(device_, cq_entries(200), nullptr, nullptr, 0);
	else if (!ibv_destroy_cq(cq))
		cq = nullptr;
}

void Storm::make_or_drop_ah()
{
	auto &ah = ahs_[place(ahs_.size())];
	auto *pd = any(pds_);

	if (!ah && pd) {
		auto attr = rtr_attr(device_, 0, device_.gid()).ah_attr;
		ah = ibv_create_ah(pd, &attr);
	} else if (ah && !ibv_destroy_ah(ah)) {
		ah = nullptr;
	}
}

void Storm::make_or_drop_qp()
{
	static const std::array types{IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	auto *bird = any_bird();
	auto *pd = any(pds_);
	auto *send_cq = any(cqs_), *recv_cq = any(cqs_);

	if (bird && birds_.size() >= max_birds) {
		const auto number = bird->qp->qp_num;
		perhaps_drain(*bird);
		if (!ibv_destroy_qp(bird->qp))
			birds_.erase(number);
	} else if (pd && send_cq && recv_cq) {
		QpOptions options;
		options.send_wr = options.recv_wr = queue_depth;
		options.type = types[place(types.size())];
		options.all_signaled = random_.between(0, 1);
		auto init = init_attributes(pd, send_cq, recv_cq, options);
		if (auto *qp = ibv_create_qp_ex(device_, &init)) {
			birds_.emplace(qp->qp_num, Bird{qp, options.type, options.all_signaled});
			hatched_++;
		}
	}
}

void Storm::resize_cq()
{
	if (auto *cq = any(cqs_))
		ibv_resize_cq(cq, cq_entries(300));
}

/* Connects to itself or to another queue pair, of this storm or the last one. */
void Storm::connect()
{
	auto *bird = any_bird(), *peer = any_bird();

	if (!bird)
		return;
	perhaps_drain(*bird);
	Link link;
	link.timeout = static_cast<std::uint8_t>(random_.between(1, 10));
	link.retry_cnt = static_cast<std::uint8_t>(random_.between(0, 3));
	link.rnr_retry = static_cast<std::uint8_t>(random_.between(0, 3));
	link.psn = static_cast<std::uint32_t>(random_.between(0, 0xffffff));
	ibv_qp_attr attr{};
	attr.qp_state = IBV_QPS_RESET;
	if (ibv_modify_qp(bird->qp, &attr, IBV_QP_STATE))
		return;
	bird->ledger.was_reset();
	attr = init_attr(link);
	attr.qkey = 0x1234;
	const bool ud = bird->type == IBV_QPT_UD;
	ibv_modify_qp(bird->qp, &attr,
		      ud ? IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
			 : init_mask);
	attr = rtr_attr(device_, peer->qp->qp_num, device_.gid(), link);
	attr.path_mtu = IBV_MTU_256;
	int mask = rtr_mask;
	if (bird->type == IBV_QPT_UC)
		mask &= ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	ibv_modify_qp(bird->qp, &attr, ud ? static_cast<int>(IBV_QP_STATE) : mask);
	attr = rts_attr(link);
	ibv_modify_qp(bird->qp, &attr,
		      bird->type == IBV_QPT_RC ? rts_mask : IBV_QP_STATE | IBV_QP_SQ_PSN);
}

/* Modifies with any bits of the mask and any values. */
void Storm::modify_anyhow()
{
	auto *bird = any_bird();

	if (!bird)
		return;
	auto attr = rtr_attr(device_, static_cast<std::uint32_t>(random_.between(0, 0xffffff)),
			     device_.gid());
	attr.qp_state = static_cast<ibv_qp_state>(random_.between(0, 7));
	attr.cur_qp_state = static_cast<ibv_qp_state>(random_.between(0, 7));
	attr.path_mtu = static_cast<ibv_mtu>(random_.between(0, 7));
	attr.port_num = static_cast<std::uint8_t>(random_.between(0, 2));
	attr.max_rd_atomic = static_cast<std::uint8_t>(random_.between(0, 255));
	attr.max_dest_rd_atomic = static_cast<std::uint8_t>(random_.between(0, 255));
	attr.timeout = static_cast<std::uint8_t>(random_.between(0, 8));
	attr.qp_access_flags = static_cast<unsigned>(random_.between(0, 31));
	int mask = static_cast<int>(random_.between(0, 0x1ffffff));
	/* Mostly a few bits, so that some calls are right. */
	if (random_.between(0, 3))
		mask &= static_cast<int>(random_.between(0, 0x1ffffff) &
					 random_.between(0, 0x1ffffff));
	if (!ibv_modify_qp(bird->qp, &attr, mask) && mask & IBV_QP_STATE &&
	    attr.qp_state == IBV_QPS_RESET)
		bird->ledger.was_reset();
}

/*
 * Changes what may be changed of a queue pair in RTS or SQD at any time: its path, to a peer that
 * exists or not, and all timeouts.
 */
void Storm::modify_at_work()
{
	static const std::array masks{
		0,
		0,
		static_cast<int>(IBV_QP_MIN_RNR_TIMER),
		static_cast<int>(IBV_QP_AV),
		static_cast<int>(IBV_QP_TIMEOUT),
		IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
		IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC,
	};
	auto *bird = any_bird();

	if (!bird)
		return;
	const bool near = random_.between(0, 1);
	auto attr = rtr_attr(device_, 0, near ? device_.gid() : nobody(device_));
	attr.qp_state = random_.between(0, 1) ? IBV_QPS_SQD : IBV_QPS_RTS;
	attr.timeout = static_cast<std::uint8_t>(random_.between(0, 8));
	attr.retry_cnt = attr.rnr_retry = static_cast<std::uint8_t>(random_.between(0, 7));
	attr.max_rd_atomic = static_cast<std::uint8_t>(random_.between(0, 128));
	attr.min_rnr_timer = static_cast<std::uint8_t>(random_.between(0, 31));
	ibv_modify_qp(bird->qp, &attr, IBV_QP_STATE | masks[place(masks.size())]);
}

void Storm::join_group()
{
	auto *bird = any_bird();
	const auto number = static_cast<std::uint8_t>(place(groups));
	const auto gid = group(number);

	if (!bird)
		return;
	if (random_.between(0, 1))
		ibv_attach_mcast(bird->qp, &gid, 0);
	else
		leave_group(bird->qp, number);
}

void Storm::query()
{
	auto *bird = any_bird();
	ibv_qp_attr attr{};
	ibv_qp_init_attr init{};

	if (bird)
		ibv_query_qp(bird->qp, &attr, static_cast<int>(random_.between(0, 0x1ffffff)),
			     &init);
	if (auto *cq = any(cqs_))
		ibv_req_notify_cq(cq, static_cast<int>(random_.between(0, 1)));
}

ibv_send_wr Storm::plan(Bird &bird, ibv_sge *sge)
{
	static const std::array opcodes{
		IBV_WR_RDMA_WRITE,	     IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
		IBV_WR_SEND_WITH_IMM,	     IBV_WR_RDMA_READ,		 IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV,		 IBV_WR_SEND_WITH_INV,
	};
	auto *local = any(mrs_), *remote = any(mrs_);
	ibv_send_wr wr{};

	wr.wr_id = next_id(bird);
	wr.opcode = opcodes[place(opcodes.size())];
	wr.send_flags = static_cast<unsigned>(random_.between(0, 7));
	if (local) {
		*sge = {reinterpret_cast<std::uintptr_t>(local->addr),
			static_cast<std::uint32_t>(place(local->length + 100)), local->lkey};
		wr.sg_list = sge;
		wr.num_sge = 1;
	}
	const auto key = remote ? remote->rkey : static_cast<std::uint32_t>(random_.word());
	const auto address = remote ? reinterpret_cast<std::uintptr_t>(remote->addr) : 0;
	if (bird.type == IBV_QPT_UD) {
		wr.opcode = IBV_WR_SEND;
		wr.wr.ud.ah = any(ahs_);
		wr.wr.ud.remote_qpn = bird.qp->qp_num;
		wr.wr.ud.remote_qkey = 0x1234;
	} else if (wr.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP &&
		   wr.opcode <= IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic = {address & ~7ULL, 1, 2, key};
	} else if (wr.opcode == IBV_WR_LOCAL_INV || wr.opcode == IBV_WR_SEND_WITH_INV) {
		wr.invalidate_rkey = key;
	} else {
		wr.wr.rdma = {address, key};
	}
	return wr;
}

void Storm::post_something()
{
	auto *bird = any_bird();
	ibv_sge sge{};
	ibv_send_wr *bad = nullptr;

	if (!bird)
		return;
	auto *mw = any(mws_);
	auto *mr = any(mrs_);
	if (mw && mr && random_.between(0, 7) == 0) {
		ibv_mw_bind bind{};
		bind.wr_id = next_id(*bird);
		bind.bind_info = {mr, reinterpret_cast<std::uintptr_t>(mr->addr), mr->length,
				  static_cast<unsigned>(random_.between(0, 31))};
		if (!ibv_bind_mw(bird->qp, mw, &bind))
			bird->ledger.posted(bind.wr_id, bird->all_signaled);
		return;
	}
	auto wr = plan(*bird, &sge);
	if (bird->type == IBV_QPT_UD && !wr.wr.ud.ah)
		return;
	if (!ibv_post_send(bird->qp, &wr, &bad))
		bird->ledger.posted(wr.wr_id,
				    bird->all_signaled || wr.send_flags & IBV_SEND_SIGNALED);
}

void Storm::post_receive()
{
	auto *bird = any_bird();
	auto *mr = any(mrs_);
	ibv_recv_wr wr{}, *bad = nullptr;

	if (!bird || !mr)
		return;
	ibv_sge sge{reinterpret_cast<std::uintptr_t>(mr->addr),
		    static_cast<std::uint32_t>(mr->length), mr->lkey};
	wr.wr_id = next_id(*bird, receive_bit);
	wr.sg_list = &sge;
	wr.num_sge = static_cast<int>(random_.between(0, 1));
	if (!ibv_post_recv(bird->qp, &wr, &bad))
		bird->ledger.posted(wr.wr_id, true);
}

/* Completions of queue pairs that are destroyed are not checked. */
void Storm::judge(const ibv_wc &wc)
{
	const auto found = birds_.find(wc.qp_num);

	if (found == birds_.end() || wc.wr_id >> 32 != wc.qp_num)
		return;
	found->second.ledger.completed(wc);
	completions_++;
}

void Storm::poll(ibv_cq *cq)
{
	std::array<ibv_wc, 16> wc{};

	if (!cq)
		return;
	const int count = ibv_poll_cq(cq, static_cast<int>(wc.size()), wc.data());
	for (int i = 0; i < count; i++)
		judge(wc[static_cast<std::size_t>(i)]);
}

/* Return: false when the queue pair may not fail, as after a reset. */
bool Storm::fail_and_drain(Bird &bird)
{
	ibv_qp_attr attr{};

	attr.qp_state = IBV_QPS_ERR;
	if (ibv_modify_qp(bird.qp, &attr, IBV_QP_STATE))
		return false;
	const bool drained = eventually([&] {
		for (auto *cq : cqs_)
			poll(cq);
		return !bird.ledger.owed();
	});
	if (!drained)
		throw std::runtime_error(std::to_string(bird.ledger.owed()) +
					 " requests have never completed");
	return true;
}

/* Called before an action that ends all expectations. */
void Storm::perhaps_drain(Bird &bird)
{
	if (room_ == Room::ample && random_.between(0, 1))
		fail_and_drain(bird);
}

void messages_meanwhile(Innocent &innocent)
{
	for (const Stopwatch watch; watch.elapsed() < storm_time();)
		innocent.message();
}

} // namespace

TEST_CASE("objects come and go in any order")
{
	const auto users = users_of_module();
	std::atomic<std::uint64_t> actions = 0, completions = 0;
	{
		Device device;
		gid_of_nobody(device);
		Innocent innocent(device);
		Crew crew;

		for (std::uint64_t salt = 1; salt <= 3; salt++)
			crew.start([&actions, &completions, salt] {
				Storm storm(salt, salt == 1 ? Room::scarce : Room::ample);
				storm.blow(storm_time());
				if (salt != 1)
					completions += storm.settle();
				storm.clear();
				actions += storm.actions();
			});
		crew.start([&] { messages_meanwhile(innocent); });
		crew.finish();
		std::printf("%llu actions, %llu completions, %llu messages of innocents\n",
			    static_cast<unsigned long long>(actions),
			    static_cast<unsigned long long>(completions),
			    static_cast<unsigned long long>(innocent.messages()));
		CHECK(completions > 0);
		CHECK(innocent.messages() > 0);
	}
	CHECK(eventually([&] { return users_of_module() == users; }));
}

TEST_CASE("a storm while memory is short")
{
	const auto users = users_of_module();
	{
		Device device;
		gid_of_nobody(device);
		const Faults faults;
		Innocent innocent(device);
		Storm storm(7, Room::ample);
		std::uint64_t failed = 0;
		Crew crew;

		crew.start([&] { failed = storm.blow_short_of_memory(faults, storm_time()); });
		crew.start([&] { messages_meanwhile(innocent); });
		crew.finish();
		const auto completions = storm.settle();
		storm.clear();
		std::printf("%llu actions, %llu failed allocations, %llu queue pairs, "
			    "%llu completions\n",
			    static_cast<unsigned long long>(storm.actions()),
			    static_cast<unsigned long long>(failed),
			    static_cast<unsigned long long>(storm.hatched()),
			    static_cast<unsigned long long>(completions));
		CHECK(failed > 0);
		CHECK(storm.hatched() > 0);
	}
	CHECK(eventually([&] { return users_of_module() == users; }));
}

TEST_CASE("programs die in a storm")
{
	const auto users = users_of_module();
	const Stopwatch watch;
	int died = 0;
	{
		Random random(99);
		Device device;
		gid_of_nobody(device);
		Innocent innocent(device);

		for (; watch.elapsed() < storm_time(); died++) {
			const auto salt = random.word();
			const pid_t child = spawn([=] {
				Storm(salt).blow(100s);
				return 1;
			});
			const auto until =
				Clock::now() + std::chrono::milliseconds(random.between(50, 600));
			while (Clock::now() < until)
				innocent.message();
			kill(child, SIGKILL);
			waitpid(child, nullptr, 0);
		}
	}
	std::printf("%d programs died\n", died);
	CHECK(died > 0);
	CHECK(eventually([&] { return users_of_module() == users; }));
}
