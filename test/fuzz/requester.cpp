// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Feeds any messages, responses and waits to the requester.
 *
 * Holds: RequesterModel accepts everything. Packets are sent in order and inside the window.
 * Nothing is acknowledged that no response covers. Payload is placed in order and once, and
 * messages complete in order and once. The requester gives up a peer that is silent, or that always
 * refuses, in the agreed time and number of tries.
 */
#include <algorithm>
#include <memory>
#include <set>

#include "requester_model.hpp"

extern "C" {
#include "proto/timers.h"
}

using namespace peal::fuzz;

namespace {

constexpr std::uint32_t ENTRIES = 8;
/* The upper limit of events until a peer that never says anything useful is given up. */
constexpr unsigned PATIENCE = 20000;
constexpr std::uint64_t SECOND = 1000000000;
/* Out-of-order responses are kept for at least this long, and for at most twice that. */
constexpr std::uint64_t KEEP = 20000000;

class Run {
	Input in_;
	std::vector<peal_message> messages_{ENTRIES};
	std::unique_ptr<peal_requester> requester_ = std::make_unique<peal_requester>();
	std::unique_ptr<RequesterModel> model_;
	std::set<Kept *> kept_;
	std::uint64_t now_ = 1000000;
	std::uint32_t base_ = 0; /* index in flight of the model's first message */
	std::uint32_t next_index_ = 0;
	bool again_ = false;	 /* the response was kept */
	std::uint16_t flow_ = 0; /* flow of the last packet that was placed */

	std::uint32_t mtu() const { return model_->mtu(); }
	peal_requester_config choose_config()
	{
		static const std::uint32_t windows[] = {1, 4, 33, 64, 128, 1024, 0, 200};
		const std::uint8_t what = in_.byte();
		peal_requester_config config = {};

		config.transport = what % 16 == 15   ? PEAL_UC
				   : what % 16 == 14 ? PEAL_UD
				   : what % 16 == 13 ? PEAL_XRC
						     : PEAL_RC;
		config.mtu_shift = static_cast<u8>(8 + (what >> 4) % 5);
		config.retry_limit = static_cast<u8>(in_.below(8));
		config.rnr_limit = static_cast<u8>(in_.below(8));
		config.max_rd_atomic = static_cast<u8>(in_.below(6));
		config.timeout_ns = in_.one_in(4) ? 0 : 4096ULL << in_.below(22);
		config.window = windows[in_.below(8)];
		config.route_mtu = config.window * 100;
		config.reorder_ns = KEEP;
		return config;
	}
	void begin()
	{
		const peal_requester_config config = choose_config();
		const std::uint32_t psn = in_.number(3);

		peal_requester_init(requester_.get(), messages_.data(), ENTRIES);
		peal_requester_configure(requester_.get(), &config);
		peal_requester_set_psn(requester_.get(), psn);
		model_ = std::make_unique<RequesterModel>(config, psn);
	}
	void follow()
	{
		if (!model_->reliable())
			model_->forget();
		model_->follow(requester_->inflight.una);
	}
	std::size_t index_of(std::uint32_t index) const { return index - base_; }

	/* ---- the host's side ---- */

	void post()
	{
		peal_wqe m = {};

		if (peal_requester_unsent(requester_.get()) ||
		    !peal_requester_has_room(requester_.get()))
			return;
		m.opcode = static_cast<u8>(in_.below(PEAL_OP_COUNT));
		m.flags = in_.byte() & PEAL_WQE_FLAGS;
		m.index = next_index_++;
		m.imm_or_rkey = in_.byte();
		m.rkey = 7;
		m.srqn = model_->config().transport == PEAL_XRC ? in_.byte() : 0;
		m.remote_addr = 1 << 20;
		m.length = std::min<std::uint64_t>(message_size(in_, mtu()), PEAL_MAX_MSG);
		m.more = in_.one_in(2);
		m.end = in_.one_in(2);
		if (m.opcode == PEAL_OP_ATOMIC_WRITE)
			m.length = 8;
		if (m.opcode == PEAL_OP_FLUSH) {
			m.flush = {static_cast<u32>(m.length), PEAL_FLUSH_GLOBAL, PEAL_FLUSH_REGION,
				   0, 0};
			m.length = 0;
		}
		if (model_->config().transport == PEAL_UD)
			m.length = std::min<std::uint64_t>(m.length, mtu());
		peal_requester_post(requester_.get(), &m);
		model_->post(m);
		if (m.opcode == PEAL_OP_INVALID)
			fail_message(peal_requester_head(requester_.get()) - 1);
	}
	void fail_message(std::uint32_t index)
	{
		peal_requester_fail_message(requester_.get(), index, IB_WC_LOC_PROT_ERR,
					    PEAL_REASON_WQE_OPCODE);
		model_->fail_message(index_of(index));
	}
	/* Memory that some message uses goes. The requester learns this when a packet needs it. */
	void execute_or_fail(const peal_outgoing &out)
	{
		if (out.local) {
			const bool well = !in_.one_in(16);

			model_->local_done(index_of(out.message), well);
			peal_requester_local_done(requester_.get(), out.message,
						  well ? 0 : IB_WC_MW_BIND_ERR,
						  well ? 0 : PEAL_REASON_WQE_OPCODE);
		} else if (in_.one_in(128)) {
			fail_message(out.message);
		}
	}
	/* The packets of a run are what would leave one after the other. */
	void check_outgoing(const peal_outgoing &out, std::uint32_t run)
	{
		peal_outgoing one = out;

		MUST(out.header.more < run);
		for (std::uint32_t i = 0; i <= out.header.more; ++i) {
			peal_packet_of_run(&out.header, i, &one.header);
			model_->check_outgoing(one,
					       peal_requester_wqe(requester_.get(), out.message));
			one.offset += one.header.payload_bytes;
		}
	}
	peal_blocked send(unsigned most)
	{
		peal_outgoing out;
		peal_blocked why = PEAL_BLOCKED_NONE;

		while (most-- && !why) {
			const std::uint32_t run = 1 + in_.byte() % 8;

			why = peal_requester_next(requester_.get(), now_, run, &out);
			MUST(why <= PEAL_BLOCKED_FAILED);
			if (why)
				break;
			check_outgoing(out, run);
			follow();
			execute_or_fail(out);
			follow();
		}
		return why;
	}
	void complete()
	{
		follow();
		while (const peal_message *done = peal_requester_complete(requester_.get())) {
			model_->check_completion(*done);
			if (!done->status)
				continue;
			MUST(!peal_requester_complete(requester_.get()));
			flush();
		}
	}
	std::unique_ptr<Kept> take_back(void *handle)
	{
		auto *kept = static_cast<Kept *>(handle);

		MUST(kept_.erase(kept) == 1);
		return std::unique_ptr<Kept>(kept);
	}
	void drop_reordered()
	{
		while (void *handle = peal_reorder_drop(&requester_->reorder))
			take_back(handle);
		MUST(kept_.empty());
	}
	/* Goes to error, and from there through RESET to a new life. */
	void flush()
	{
		const peal_requester_config config = model_->config();
		std::uint32_t psn = in_.number(3);

		while (const peal_message *done = peal_requester_flush(requester_.get()))
			model_->check_flushed(*done);
		MUST(model_->completed() == model_->posted());
		MUST(peal_requester_idle(requester_.get()) &&
		     peal_requester_deadline(requester_.get()) == U64_MAX);
		drop_reordered();
		peal_requester_reset(requester_.get());
		peal_requester_set_psn(requester_.get(), psn);
		model_ = std::make_unique<RequesterModel>(config, psn);
		base_ = peal_requester_head(requester_.get());
		flow_ = 0;
	}

	/* ---- the peer's side ---- */

	peal_packet make_response(unsigned wire, std::uint32_t psn)
	{
		peal_packet p = {};

		p.opcode =
			peal_opcode_of(model_->config().transport == PEAL_XRC ? PEAL_XRC : PEAL_RC,
				       static_cast<u8>(wire));
		p.psn = psn & PEAL_PSN_MASK;
		p.syndrome = PEAL_SYNDROME_ACK | PEAL_CREDITS_UNLIMITED;
		return p;
	}
	/* The response of a correct peer to the packet with this PSN. */
	peal_packet right_answer(std::uint32_t psn)
	{
		const std::uint64_t at = model_->unwrap(psn);
		const Posted *m = model_->find(at);
		peal_packet p;

		if (!m || !m->wants_data())
			return make_response(PEAL_WIRE_ACK, psn);
		if (m->is_atomic()) {
			p = make_response(PEAL_WIRE_ATOMIC_ACK, psn);
			p.original = now_;
			return p;
		}
		if (m->is_placement())
			return make_response(PEAL_WIRE_READ_RESPONSE_ONLY, psn);
		p = make_response(PEAL_WIRE_READ_RESPONSE_FIRST + in_.below(4), psn);
		p.payload_bytes = static_cast<u32>(
			std::min<std::uint64_t>(mtu(), m->wr.length - (at - m->psn) * mtu()));
		return p;
	}
	peal_packet any_answer()
	{
		peal_packet p =
			make_response(0, model_->una() + static_cast<std::uint32_t>(in_.near()));

		p.opcode = in_.one_in(4)
				   ? in_.byte()
				   : static_cast<u8>(PEAL_WIRE_READ_RESPONSE_FIRST + in_.below(6));
		if (in_.one_in(8))
			p.psn = in_.number(3);
		p.syndrome = in_.byte();
		p.msn = in_.byte();
		if (peal_packet_opcode(&p)->has & PEAL_HAS_PAYLOAD)
			p.payload_bytes = payload_size(in_, mtu());
		return p;
	}
	peal_packet refusal()
	{
		static const std::uint8_t kinds[] = {
			0 + PEAL_SYNDROME_RNR,
			0 + PEAL_SYNDROME_NAK,
			0 + PEAL_SYNDROME_NAK,
			0 + PEAL_SYNDROME_ACK,
		};
		const std::uint8_t kind = kinds[in_.below(4)];
		peal_packet p = make_response(PEAL_WIRE_ACK, model_->una() + in_.below(20));

		p.syndrome = kind;
		p.syndrome |= kind == PEAL_SYNDROME_NAK ? in_.below(64) / 60 : in_.below(32);
		p.msn = in_.byte();
		return p;
	}
	void place(const peal_response &response, const peal_packet &p)
	{
		model_->name_response(index_of(response.message));
		model_->check_response(response, p);
		if (in_.one_in(128)) {
			fail_message(response.message);
			return;
		}
		model_->placed(response);
		peal_requester_placed(requester_.get(), &response, now_);
	}
	void give(std::unique_ptr<Kept> kept, bool keepable)
	{
		peal_response response;
		const bool again = again_;

		again_ = false;
		if (again && kept->packet.flow != flow_) {
			check_mistrusted(kept->packet);
			return;
		}
		model_->hears(kept->packet);
		peal_requester_receive(requester_.get(), &kept->packet, now_,
				       keepable ? kept.get() : nullptr, &response);
		switch (response.what) {
		case PEAL_RESPONSE_DROPPED:
			MUST(response.drop > PEAL_DROP_none && response.drop < PEAL_DROP_COUNT);
			break;
		case PEAL_RESPONSE_TAKEN:
			break;
		case PEAL_RESPONSE_READ:
		case PEAL_RESPONSE_ATOMIC:
			flow_ = kept->packet.flow;
			follow_response(response, kept->packet);
			break;
		case PEAL_RESPONSE_KEPT:
			MUST(keepable && kept_.insert(kept.get()).second);
			kept->since = now_;
			(void)kept.release();
			break;
		case PEAL_RESPONSE_COPY:
			check_copy(response, kept->packet);
			break;
		}
		follow();
	}
	/* A packet of another flow than the last one in its turn has no effect at all. */
	void check_mistrusted(const peal_packet &p)
	{
		peal_response response;

		peal_requester_receive(requester_.get(), &p, now_, nullptr, &response);
		MUST(response.what == PEAL_RESPONSE_DROPPED && response.drop == PEAL_DROP_conflict);
		MUST(requester_->inflight.una == p.psn);
	}
	/* Only a kept packet can have a copy. The host may find that a packet is no copy. */
	void check_copy(const peal_response &response, const peal_packet &p)
	{
		auto *kept = static_cast<Kept *>(response.kept);

		MUST(kept_.count(kept) && kept->packet.psn == p.psn);
		if (!in_.one_in(2))
			return;
		MUST(peal_requester_conflict(requester_.get(), p.psn, now_) == kept);
		take_back(kept);
		MUST(!peal_reorder_has(&requester_->reorder, p.psn));
	}
	/* Packets that were acknowledged before it are acknowledged first. */
	void follow_response(const peal_response &response, const peal_packet &p)
	{
		follow();
		place(response, p);
	}
	void give(peal_packet p)
	{
		if (!through_wire(p))
			return;
		p.flow = in_.one_in(8);
		give(std::make_unique<Kept>(Kept{p, 0}), !in_.one_in(8));
		while (void *handle = peal_requester_take_reordered(requester_.get())) {
			auto kept = take_back(handle);

			MUST(kept->packet.psn == model_->una());
			again_ = true;
			give(std::move(kept), true);
		}
		MUST(requester_->reorder.count == kept_.size());
		complete();
	}

	/* ---- time ---- */

	std::uint64_t deadline() const { return peal_requester_deadline(requester_.get()); }
	void give_up_early()
	{
		while (void *handle = peal_requester_take_expired(requester_.get(), now_)) {
			auto *kept = static_cast<Kept *>(handle);

			MUST(now_ >= kept->since + KEEP);
			take_back(handle);
		}
	}
	/* Each expiry must move the next deadline, or cause a packet to be sent. */
	void expire()
	{
		for (unsigned tries = 0; tries < 8; ++tries) {
			peal_requester_expire(requester_.get(), now_);
			give_up_early();
			complete();
			if (deadline() > now_)
				return;
			send(~0U);
		}
		MUST(!"time stands still");
	}
	void wait()
	{
		const std::uint8_t how = in_.byte();

		if (how < 160 && deadline() != U64_MAX)
			now_ = std::max(now_, deadline());
		else
			now_ += std::uint64_t{how} * how * 100;
		expire();
	}
	void configure()
	{
		peal_requester_config config = model_->config();

		config.retry_limit = static_cast<u8>(in_.below(8));
		config.rnr_limit = static_cast<u8>(in_.below(8));
		/* A new timeout is set when the queue has drained (SQD to SQD). */
		if (!model_->outstanding())
			config.timeout_ns = in_.one_in(4) ? 0 : 4096ULL << in_.below(22);
		peal_requester_configure(requester_.get(), &config);
		model_->configure(config);
	}
	void seldom()
	{
		switch (in_.below(8)) {
		case 0:
			configure();
			break;
		case 1:
			flush();
			break;
		default:
			give(any_answer());
		}
	}
	void step()
	{
		switch (in_.below(16)) {
		case 0:
		case 1:
		case 2:
			post();
			send(in_.below(40));
			break;
		case 3:
			send(in_.byte());
			break;
		case 4:
		case 5:
			wait();
			break;
		case 6:
			seldom();
			break;
		case 7:
			give(refusal());
			break;
		case 8:
		case 9:
			give(right_answer(model_->una() + in_.below(40)));
			break;
		case 10:
			give(any_answer());
			break;
		default:
			give(right_answer(model_->una()));
		}
		complete();
	}

	/* ---- the end ---- */

	bool over() const { return !model_->outstanding() || model_->failed(); }
	/* From here on the peer is silent. */
	void silence()
	{
		const peal_requester_config &config = model_->config();
		const std::uint64_t tries = config.retry_limit + 2ULL;
		/* A try lasts twice the timeout. */
		const std::uint64_t until = now_ + tries * 2 * config.timeout_ns + 2 * SECOND;
		unsigned events = 0;

		while (deadline() != U64_MAX && events++ < PATIENCE) {
			if (!config.timeout_ns && now_ > until)
				return;
			now_ = std::max(now_, deadline());
			MUST(!config.timeout_ns || now_ <= until);
			expire();
			send(~0U);
			complete();
		}
		MUST(events < PATIENCE || !config.timeout_ns);
	}
	/* From here on the peer refuses every packet with the same syndrome, a good while later. */
	void refuse(std::uint8_t syndrome)
	{
		unsigned events = 0;

		while (model_->outstanding() && events++ < PATIENCE) {
			peal_packet p = make_response(PEAL_WIRE_ACK, model_->una());

			p.syndrome = syndrome;
			now_ += 20 * SECOND / 1000;
			give(p);
			if (deadline() != U64_MAX)
				now_ = std::max(now_, deadline());
			expire();
			send(~0U);
			complete();
		}
		MUST(events < PATIENCE);
	}
	void end()
	{
		const bool forever = model_->config().rnr_limit == 7;
		const bool never = !model_->config().timeout_ns;

		/* A peer that denies an earlier answer is given up only by the timeout. */
		switch (in_.below(4)) {
		case 0:
			if (!forever && !never)
				refuse(PEAL_SYNDROME_RNR | 1);
			break;
		case 1:
			if (!never)
				refuse(0 + PEAL_SYNDROME_NAK + PEAL_NAK_SEQUENCE);
			break;
		case 2:
			silence();
			break;
		default:
			break;
		}
	}

public:
	Run(const std::uint8_t *data, std::size_t size) : in_(data, size) { begin(); }
	void go()
	{
		const std::uint8_t last = in_.byte();

		while (!in_.empty())
			step();
		in_ = Input(&last, 1);
		end();
		flush();
	}
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
	Run(data, size).go();
	return 0;
}
