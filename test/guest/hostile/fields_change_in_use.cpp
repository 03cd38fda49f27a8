// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 240
// run: long
/*
 * Every field of the rings, the control words and the doorbell page changes between a right value
 * and an extreme one, while the kernel works on requests that use it. The rings are those of queue
 * pairs and of a shared receive queue.
 *
 * Holds: Memory that no key opens for the queue pair stays unchanged while a key, an address or a
 * length changes. No more requests complete than were posted. Another queue pair continues to work.
 * Whether the kernel reads beyond its memory shows only in its log (scripts/test debug).
 * Does not hold: the effect of one wrong value, random contents (hostile/scribbled_rings). The test
 * goes through all fields once. PEAL_FUZZ_SECONDS, default 0, is how long it continues after that.
 */
#include "innocent.hpp"
#include "raw.hpp"

#include <thread>

using namespace peal_test;

namespace {

constexpr std::uint8_t untouched = 0xa5;
constexpr std::uint32_t depth = 16;
constexpr std::uint32_t message_bytes = 3000, recv_bytes = 6000;
constexpr std::size_t recv_offset = 8 * page_bytes;

/* ------------------------------------------------------------------ what changes */

/* The memory that a field is in. */
enum class Place {
	send_slot,
	recv_slot,
	qp_control,
	cq_control,
	doorbell,
	srq_slot,
	srq_number, /* an entry of the ring of slot numbers */
	srq_control,
};

struct Field {
	const char *name;
	Place place;
	std::size_t offset, bytes;
};

#define FIELD(place, base, type, member)                                                           \
	Field                                                                                      \
	{                                                                                          \
#type "." #member, Place::place, (base) + offsetof(type, member),                  \
			sizeof(static_cast <type *>(nullptr)->member)                              \
	}

constexpr std::size_t body = sizeof(peal_send_wqe), second = body + sizeof(peal_sge);
constexpr std::size_t send_control = offsetof(peal_qp_ctl, sq),
		      recv_control = offsetof(peal_qp_ctl, rq);

constexpr std::array fields{
	FIELD(send_slot, 0, peal_send_wqe, opcode),
	FIELD(send_slot, 0, peal_send_wqe, flags),
	FIELD(send_slot, 0, peal_send_wqe, num_sge),
	FIELD(send_slot, 0, peal_send_wqe, reserved0),
	FIELD(send_slot, 0, peal_send_wqe, imm_or_rkey),
	FIELD(send_slot, 0, peal_send_wqe, remote_addr),
	FIELD(send_slot, 0, peal_send_wqe, ud.qpn),
	FIELD(send_slot, 0, peal_send_wqe, ud.qkey),
	FIELD(send_slot, 0, peal_send_wqe, rkey),
	FIELD(send_slot, 0, peal_send_wqe, inline_len),
	FIELD(send_slot, 0, peal_send_wqe, ah_index),
	FIELD(send_slot, 0, peal_send_wqe, reserved1),
	FIELD(send_slot, body, peal_sge, addr),
	FIELD(send_slot, body, peal_sge, length),
	FIELD(send_slot, body, peal_sge, lkey),
	FIELD(send_slot, second, peal_sge, addr),
	FIELD(send_slot, second, peal_sge, length),
	FIELD(send_slot, second, peal_sge, lkey),
	FIELD(send_slot, body, peal_atomic_seg, compare_add),
	FIELD(send_slot, body, peal_atomic_seg, swap),
	FIELD(send_slot, body, peal_bind_seg, addr),
	FIELD(send_slot, body, peal_bind_seg, length),
	FIELD(send_slot, body, peal_bind_seg, mr_lkey),
	FIELD(send_slot, body, peal_bind_seg, access),
	FIELD(send_slot, body, peal_bind_seg, new_rkey),
	FIELD(send_slot, body, peal_bind_seg, reserved),
	FIELD(recv_slot, 0, peal_recv_wqe, num_sge),
	FIELD(recv_slot, 0, peal_recv_wqe, reserved[0]),
	FIELD(recv_slot, 0, peal_recv_wqe, reserved[2]),
	FIELD(recv_slot, sizeof(peal_recv_wqe), peal_sge, addr),
	FIELD(recv_slot, sizeof(peal_recv_wqe), peal_sge, length),
	FIELD(recv_slot, sizeof(peal_recv_wqe), peal_sge, lkey),
	FIELD(qp_control, send_control, peal_ring_ctl, producer),
	FIELD(qp_control, send_control, peal_ring_ctl, consumer),
	FIELD(qp_control, send_control, peal_ring_ctl, flags),
	FIELD(qp_control, recv_control, peal_ring_ctl, producer),
	FIELD(qp_control, recv_control, peal_ring_ctl, consumer),
	FIELD(qp_control, recv_control, peal_ring_ctl, flags),
	FIELD(cq_control, 0, peal_cq_ctl, consumer),
	FIELD(cq_control, 0, peal_cq_ctl, arm),
	FIELD(cq_control, 0, peal_cq_ctl, fired),
	FIELD(cq_control, PEAL_CQ_RING_OFFSET, peal_cqe, qp_index),
	FIELD(cq_control, PEAL_CQ_RING_OFFSET, peal_cqe, flags),
	FIELD(doorbell, 0, peal_doorbell, engine),
	FIELD(doorbell, 0, peal_doorbell, bits[0]),
};

constexpr std::array srq_fields{
	FIELD(srq_slot, 0, peal_recv_wqe, num_sge),
	FIELD(srq_slot, 0, peal_recv_wqe, reserved[0]),
	FIELD(srq_slot, 0, peal_recv_wqe, reserved[2]),
	FIELD(srq_slot, sizeof(peal_recv_wqe), peal_sge, addr),
	FIELD(srq_slot, sizeof(peal_recv_wqe), peal_sge, length),
	FIELD(srq_slot, sizeof(peal_recv_wqe), peal_sge, lkey),
	Field{"number of a slot", Place::srq_number, 0, sizeof(std::uint32_t)},
	FIELD(srq_control, 0, peal_ring_ctl, producer),
	FIELD(srq_control, 0, peal_ring_ctl, consumer),
	FIELD(srq_control, 0, peal_ring_ctl, flags),
};

/* ---------------------------------------------------------------------- the stage */

/* Memory of the same program in another protection domain. */
class Foreign {
public:
	explicit Foreign(const RawContext &context)
		: context_(context), pd_(context.alloc_pd()),
		  keys_(context.register_memory(pd_, memory_))
	{
		std::memset(memory_.data(), untouched, memory_.size());
	}
	~Foreign()
	{
		context_.deregister(keys_);
		context_.dealloc_pd(pd_);
	}
	Foreign(const Foreign &) = delete;
	Foreign &operator=(const Foreign &) = delete;

	const Memory &memory() const { return memory_; }
	const Keys &keys() const { return keys_; }
	bool is_untouched() const { return all_equal(memory_.bytes(0, memory_.size()), untouched); }

private:
	const RawContext &context_;
	Memory memory_{4 * page_bytes};
	std::uint32_t pd_;
	Keys keys_;
};

/* Shared: its receives come from a shared receive queue. */
struct Kind {
	ibv_qp_type type;
	bool shared = false;
};

/* A queue pair with correct requests of every opcode, posted again and again. */
class Worker {
public:
	Worker(const RawContext &context, const Device &device, Kind kind)
		: context_(context), srq_(context, depth),
		  qp_(context, device,
		      {.depth = depth, .type = kind.type, .srq = kind.shared ? &srq_ : nullptr}),
		  window_(context.alloc_mw(qp_.pd())), shared_(kind.shared)
	{
		if (kind.type == IBV_QPT_UD)
			ah_ = context.create_ah(qp_.pd(), device);
	}
	~Worker()
	{
		qp_.destroy();
		if (ah_.handle)
			context_.destroy_ah(ah_);
		context_.dealloc_mw(window_);
	}
	Worker(const Worker &) = delete;
	Worker &operator=(const Worker &) = delete;

	RawQp &qp() { return qp_; }
	const RawSrq &srq() const { return srq_; }
	/* Return: whether each request completed with success, as far as the program can see. */
	bool round(Duration limit = absence)
	{
		static const std::array opcodes{
			PEAL_OP_SEND,	  PEAL_OP_SEND_IMM, PEAL_OP_WRITE,     PEAL_OP_WRITE_IMM,
			PEAL_OP_READ,	  PEAL_OP_CMP_SWAP, PEAL_OP_FETCH_ADD, PEAL_OP_BIND_MW,
			PEAL_OP_SEND_INV, PEAL_OP_BIND_MW,  PEAL_OP_LOCAL_INV, PEAL_OP_ATOMIC_WRITE,
		};
		if (ah_.handle) {
			for (std::uint32_t i = 0; i < depth / 2; i++)
				post(datagram(), true);
		} else {
			for (const auto opcode : opcodes) {
				/* SEND_INV frees the window for the second bind. */
				if (opcode == PEAL_OP_BIND_MW && !all_complete(limit))
					return false;
				post(request(opcode), takes_receive(opcode));
			}
		}
		return all_complete(limit);
	}
	std::uint64_t posted() const { return posted_; }
	/* Takes all completions. Return: how many there were up to now. */
	std::uint64_t drain()
	{
		peal_cqe cqe{};

		for (unsigned i = 0; i < 8 * depth && qp_.cq().poll(cqe); i++) {
			completed_++;
			failed_ |= cqe.status != IBV_WC_SUCCESS;
		}
		return completed_;
	}

private:
	static bool takes_receive(std::uint8_t opcode)
	{
		return opcode <= PEAL_OP_SEND_INV || opcode == PEAL_OP_WRITE_IMM;
	}
	bool all_complete(Duration limit)
	{
		return eventually([&] { return drain() == posted_ || failed_; }, limit) && !failed_;
	}
	void post(const RawSend &send, bool receive)
	{
		if (receive)
			post_receive();
		qp_.post(send);
		posted_ += receive ? 2 : 1;
	}
	/* A round has fewer receives than there are slots, so the slots can be used in turn. */
	void post_receive()
	{
		const auto entries = [](const auto &queue) {
			return std::array{queue.sge(recv_offset, recv_bytes / 2),
					  queue.sge(recv_offset + recv_bytes, recv_bytes / 2)};
		};

		if (!shared_) {
			qp_.write_recv({2, {}}, entries(qp_));
			return qp_.publish_recv();
		}
		const auto number = srq_.next() % depth;
		srq_.write(number, {2, {}}, entries(srq_));
		srq_.enqueue(number);
		srq_.publish();
	}
	RawSend plain(std::uint8_t opcode, std::uint32_t bytes) const
	{
		RawSend send;

		send.header.opcode = opcode;
		send.header.flags = PEAL_WQE_SIGNALED;
		send.sge(qp_.sge(100, bytes / 2));
		return send.sge(qp_.sge(page_bytes + 7, bytes / 2));
	}
	RawSend datagram() const
	{
		RawSend send = plain(PEAL_OP_SEND, 500);

		send.header.ah_index = ah_.index;
		send.header.ud = {qp_.number(), 0};
		return send;
	}
	RawSend request(std::uint8_t opcode)
	{
		RawSend send;

		switch (opcode) {
		case PEAL_OP_CMP_SWAP:
		case PEAL_OP_FETCH_ADD:
			send.sge(qp_.sge(64, 8), sizeof(peal_atomic_seg));
			break;
		case PEAL_OP_ATOMIC_WRITE:
			send.sge(qp_.sge(64, 8));
			break;
		case PEAL_OP_BIND_MW:
			bind(send);
			break;
		case PEAL_OP_LOCAL_INV:
			break;
		default:
			send = plain(opcode, message_bytes);
		}
		send.header.opcode = opcode;
		send.header.flags = PEAL_WQE_SIGNALED;
		if (opcode == PEAL_OP_SEND_INV || opcode == PEAL_OP_LOCAL_INV)
			send.header.imm_or_rkey = window_.rkey;
		if ((opcode >= PEAL_OP_WRITE && opcode <= PEAL_OP_FETCH_ADD) ||
		    opcode == PEAL_OP_ATOMIC_WRITE) {
			send.header.remote_addr = qp_.memory().address(4 * page_bytes);
			send.header.rkey = qp_.rkey();
		}
		return send;
	}
	void bind(RawSend &send)
	{
		send.header.rkey = window_.rkey;
		window_.rkey = ibv_inc_rkey(window_.rkey);
		const peal_bind_seg segment{.addr = qp_.memory().address(),
					    .length = page_bytes,
					    .mr_lkey = qp_.lkey(),
					    .access = IBV_ACCESS_REMOTE_WRITE,
					    .new_rkey = window_.rkey,
					    .reserved = 0};
		std::memcpy(send.body.data(), &segment, sizeof(segment));
	}

	const RawContext &context_;
	RawSrq srq_;
	RawQp qp_;
	RawContext::RawMw window_;
	bool shared_;
	RawContext::RawAh ah_{};
	std::uint64_t posted_ = 0, completed_ = 0;
	bool failed_ = false;
};

/* --------------------------------------------------------------------- the change */

std::uint64_t load(const std::uint8_t *at, std::size_t bytes)
{
	std::uint64_t value = 0;

	std::memcpy(&value, at, bytes);
	return value;
}

template <class T>
void store_as(std::uint8_t *at, std::uint64_t value)
{
	std::atomic_ref(*reinterpret_cast<T *>(at))
		.store(static_cast<T>(value), std::memory_order_relaxed);
}

/* Each field is as long as its number, and aligned. */
void store(std::uint8_t *at, std::size_t bytes, std::uint64_t value)
{
	switch (bytes) {
	case 1:
		return store_as<std::uint8_t>(at, value);
	case 2:
		return store_as<std::uint16_t>(at, value);
	case 4:
		return store_as<std::uint32_t>(at, value);
	default:
		return store_as<std::uint64_t>(at, value);
	}
}

/* The field's address in the slot that is being posted or was posted last. */
std::uint8_t *place_of(const Field &field, const RawContext &context, Worker &worker,
		       std::uint32_t back)
{
	RawQp &qp = worker.qp();
	const RawSrq &srq = worker.srq();

	switch (field.place) {
	case Place::send_slot:
		return qp.send_slot(std::atomic_ref(qp.control().sq.producer).load() - back) +
		       field.offset;
	case Place::recv_slot:
		return qp.recv_slot(std::atomic_ref(qp.control().rq.producer).load() - back) +
		       field.offset;
	case Place::qp_control:
		return qp.map().at(field.offset);
	case Place::cq_control:
		return qp.cq().map().at(field.offset);
	case Place::srq_slot:
		return srq.slot((std::atomic_ref(srq.control().producer).load() - back) % depth) +
		       field.offset;
	case Place::srq_number:
		return srq.map().at(srq.response().ring_offset +
				    ((std::atomic_ref(srq.control().producer).load() - back) &
				     (srq.response().entries - 1)) *
					    field.bytes);
	case Place::srq_control:
		return srq.map().at(field.offset);
	default:
		return context.doorbell_map().at(field.offset);
	}
}

struct Signals {
	std::atomic<bool> begun, stop;
};

/*
 * Writes the old value and this one in turn, until it is told to stop. It does this as fast as it
 * can, so that the value changes between two reads that are a few instructions apart.
 */
void flip(const Field &field, std::uint64_t value, const RawContext &context, Worker &worker,
	  std::uint32_t salt, Signals &signals)
{
	std::minstd_rand random(salt);

	signals.begun = true;
	while (!signals.stop.load(std::memory_order_relaxed)) {
		const auto number = random();
		auto *at = place_of(field, context, worker, number >> 8 & 1);
		const auto right = load(at, field.bytes);

		store(at, field.bytes, value);
		for (auto i = number >> 16 & 15; i; i--)
			std::atomic_signal_fence(std::memory_order_seq_cst);
		store(at, field.bytes, right);
	}
}

/*
 * Values to try in a field of so many bytes: extreme ones, and ones that refer to another object.
 */
std::vector<std::uint64_t> edges(const Field &field, RawQp &qp, const Foreign &foreign)
{
	const std::uint64_t most = ~0ULL >> (64 - 8 * field.bytes), high = most / 2 + 1;
	const auto &own = qp.memory(), &other = foreign.memory();
	const std::vector<std::uint64_t> all{
		0,
		1,
		2,
		PEAL_MAX_SGE,
		PEAL_MAX_SGE + 1,
		PEAL_MAX_INLINE + 1,
		PEAL_OP_LOCAL_INV,
		most,
		most - 1,
		high,
		high - 1,
		0x80000001,
		own.size() - 1,
		own.size() + 1,
		own.address() - 1,
		own.address(own.size() - 1),
		~0ULL - message_bytes + 2,
		other.address(),
		foreign.keys().lkey,
		foreign.keys().rkey,
		qp.number() ^ 1,
	};
	std::vector<std::uint64_t> some;

	for (auto value : all)
		if (value <= most && std::find(some.begin(), some.end(), value) == some.end())
			some.push_back(value);
	return some;
}

/* -------------------------------------------------------------------- field by field */

class Stage {
public:
	/* Goes through all fields once. Return: how many changes were tried. */
	unsigned pass(Kind kind)
	{
		const auto chosen = kind.shared ? std::span<const Field>(srq_fields)
						: std::span<const Field>(fields);
		unsigned tried = 0;

		for (const auto &field : chosen) {
			renew(kind);
			for (const auto value : edges(field, worker_->qp(), foreign_)) {
				attack(field, value, kind);
				tried++;
			}
		}
		return tried;
	}
	Device &device() { return device_; }
	/* The number of changes that made a request fail. */
	unsigned noticed() const { return noticed_; }

private:
	void renew(Kind kind)
	{
		worker_.reset();
		worker_ = std::make_unique<Worker>(context_, device_, kind);
	}
	void attack(const Field &field, std::uint64_t value, Kind kind)
	{
		INFO(field.name << " and " << value);
		Signals signals{};
		std::thread thread(flip, std::cref(field), value, std::cref(context_),
				   std::ref(*worker_), salt_++, std::ref(signals));
		while (!signals.begun)
			;
		bool well = true;
		for (int i = 0; i < 4 && well; i++)
			well = worker_->round();
		signals.stop = true;
		thread.join();
		CHECK(foreign_.is_untouched());
		/* A program that changes its own indices or completions cannot count them. */
		if (field.place == Place::send_slot || field.place == Place::recv_slot ||
		    field.place == Place::srq_slot)
			CHECK(worker_->drain() <= worker_->posted());
		noticed_ += !well;
		if (!well)
			renew(kind);
	}

	Device device_;
	RawContext context_;
	Foreign foreign_{context_};
	std::unique_ptr<Worker> worker_;
	std::uint32_t salt_ = static_cast<std::uint32_t>(session().seed);
	unsigned noticed_ = 0;
};

void check_kind(Kind kind)
{
	const auto time = time_from("PEAL_FUZZ_SECONDS", 0);
	const Duration most = std::chrono::seconds(30);
	const Stopwatch watch;
	Stage stage;
	Innocent innocent(stage.device());
	unsigned tried = 0;

	do {
		tried += stage.pass(kind);
		for (int i = 0; i < 20; i++)
			innocent.message();
		/* On one CPU at a time, few changes meet the moment that counts. */
	} while (watch.elapsed() < (stage.noticed() ? time : std::max(time, most)));
	std::printf("%u changes in %.1f s, %u of them noticed\n", tried,
		    milliseconds(watch.elapsed()) / 1000, stage.noticed());
	/* About half of the changes do if the machine's two CPUs really run at the same time. */
	CHECK(stage.noticed() > 0);
}

} // namespace

TEST_CASE("requests that are right work")
{
	Device device;
	RawContext context;

	for (const Kind kind :
	     {Kind{IBV_QPT_RC}, Kind{IBV_QPT_UD}, Kind{IBV_QPT_RC, true}, Kind{IBV_QPT_UD, true}}) {
		Worker worker(context, device, kind);
		for (int i = 0; i < 20; i++)
			REQUIRE(worker.round(patience));
	}
}

TEST_CASE("fields of a connected queue pair change while they are used")
{
	check_kind({IBV_QPT_RC});
}

TEST_CASE("fields of a UD queue pair change while they are used")
{
	check_kind({IBV_QPT_UD});
}

TEST_CASE("fields of a shared receive queue change while they are used")
{
	check_kind({.type = IBV_QPT_RC, .shared = true});
}
