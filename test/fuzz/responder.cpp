// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Feeds any sequence of packets, verdicts and waits to the responder.
 *
 * Holds: ResponderModel accepts everything. Packets take effect in order and once, each at
 * its place in its message. Every reply was asked for. Packets that are kept come back in
 * their turn, or when they are dropped.
 */
#include <memory>

#include "responder_model.hpp"

using namespace peal::fuzz;

namespace {

constexpr std::uint32_t ENTRIES = 5;
/* The end of a run does not wait for more replies than this. */
constexpr std::uint32_t MANY_REPLIES = 4096;
/* Out-of-order packets are kept for at least this long, and for at most twice that. */
constexpr std::uint64_t KEEP = 1000000;
/* UC: a first packet that is this far behind is late. */
constexpr std::int32_t LATE = 1024;

class Run {
	Input in_;
	std::vector<peal_resource> resources_{ENTRIES};
	std::unique_ptr<peal_responder> r_ = std::make_unique<peal_responder>();
	std::unique_ptr<ResponderModel> model_;
	std::set<Kept *> kept_;
	std::uint64_t now_ = 1000000;
	bool again_ = false; /* the packet was kept */
	u8 rnr_timer_ = 0;

	std::uint32_t mtu() const { return 1U << model_->config().mtu_shift; }
	peal_responder_config choose_config(std::uint8_t transport, std::uint8_t mtu_shift)
	{
		peal_responder_config config = {};

		config.transport = transport;
		config.mtu_shift = mtu_shift;
		config.rd_atomic = static_cast<u8>(in_.below(ENTRIES + 2));
		rnr_timer_ = in_.byte() & PEAL_SYNDROME_VALUE;
		config.reorder_ns = KEEP;
		return config;
	}
	void begin()
	{
		const std::uint8_t what = in_.byte();
		const auto config = choose_config(what % 8 == 7	  ? PEAL_UC
						  : what % 8 == 6 ? PEAL_XRC
								  : PEAL_RC,
						  static_cast<std::uint8_t>(8 + (what >> 3) % 5));
		const std::uint32_t psn = in_.number(3);

		peal_responder_init(r_.get(), resources_.data(), ENTRIES);
		peal_responder_configure(r_.get(), &config);
		peal_responder_set_psn(r_.get(), psn);
		model_ = std::make_unique<ResponderModel>(config, ENTRIES, psn);
	}

	/* ---- packets ---- */

	peal_packet packet(unsigned wire, std::uint32_t bytes)
	{
		peal_packet p = {};

		p.opcode = peal_opcode_of(model_->config().transport, static_cast<u8>(wire));
		p.payload_bytes = bytes;
		p.psn = model_->expected();
		p.remote_addr = in_.below(4) * 4096;
		p.rkey = 7;
		/* Sometimes a message changes its queue on the way. */
		if (model_->config().transport == PEAL_XRC)
			p.srqn = in_.one_in(16) ? 6 : 5;
		p.ack_request = in_.one_in(4);
		p.imm = in_.byte();
		p.swap_add = p.compare = in_.byte();
		return p;
	}
	peal_packet begins_message()
	{
		static const std::uint8_t wires[] = {
			PEAL_WIRE_SEND_FIRST,	  PEAL_WIRE_SEND_ONLY,	  PEAL_WIRE_SEND_ONLY_IMM,
			PEAL_WIRE_SEND_ONLY_INV,  PEAL_WIRE_WRITE_FIRST,  PEAL_WIRE_WRITE_ONLY,
			PEAL_WIRE_WRITE_ONLY_IMM, PEAL_WIRE_READ_REQUEST, PEAL_WIRE_CMP_SWAP,
			PEAL_WIRE_FETCH_ADD,	  PEAL_WIRE_ATOMIC_WRITE, PEAL_WIRE_FLUSH,
		};
		const std::uint8_t wire = wires[in_.below(sizeof(wires))];
		peal_packet p = packet(wire, 0);
		const std::uint32_t has = peal_packet_opcode(&p)->has;

		if (has & PEAL_HAS_PAYLOAD)
			p.payload_bytes = has & PEAL_HAS_LAST ? in_.number(2) % (mtu() + 1) : mtu();
		p.length = message_size(in_, mtu());
		if (has & PEAL_HAS_WRITE)
			p.length = has & PEAL_HAS_LAST
					   ? p.payload_bytes
					   : mtu() * (1 + in_.below(6)) + 1 + in_.byte();
		if (wire == PEAL_WIRE_ATOMIC_WRITE && !in_.one_in(8))
			p.length = p.payload_bytes = 8;
		p.placement = in_.below(4);
		p.selectivity = in_.below(3);
		return p;
	}
	peal_packet continues_message()
	{
		const bool write = model_->open_write();
		const bool last = write ? model_->rest() <= mtu() : in_.one_in(4);
		const std::uint32_t bytes = !last   ? mtu()
					    : write ? static_cast<std::uint32_t>(model_->rest())
						    : 1 + in_.number(2) % mtu();

		if (write)
			return packet(last ? PEAL_WIRE_WRITE_LAST + in_.below(2)
					   : PEAL_WIRE_WRITE_MIDDLE,
				      bytes);
		return packet(last ? PEAL_WIRE_SEND_LAST + in_.below(2) : PEAL_WIRE_SEND_MIDDLE,
			      bytes);
	}
	peal_packet plausible() { return model_->open() ? continues_message() : begins_message(); }
	peal_packet anything()
	{
		const std::uint8_t opcode = in_.byte();
		peal_packet p = packet(0, 0);

		p.opcode = opcode;
		if (peal_packet_opcode(&p)->has & PEAL_HAS_PAYLOAD)
			p.payload_bytes = payload_size(in_, mtu());
		p.psn = in_.one_in(8) ? in_.number(3)
				      : peal_psn_add(p.psn, static_cast<u32>(in_.near()));
		p.length = message_size(in_, mtu());
		p.rkey = in_.one_in(4) ? in_.byte() : 7;
		return p;
	}
	/* Repeats a READ or atomic, or a part of a READ. */
	peal_packet repetition()
	{
		if (model_->data().empty())
			return anything();

		const Executed &d = model_->data()[in_.below(
			static_cast<std::uint32_t>(model_->data().size()))];
		const std::uint32_t from = in_.below(2) ? in_.byte() % d.packets : 0;
		peal_packet p =
			packet(d.operation == PEAL_OP_READ	     ? PEAL_WIRE_READ_REQUEST
			       : d.operation == PEAL_OP_CMP_SWAP     ? PEAL_WIRE_CMP_SWAP
			       : d.operation == PEAL_OP_ATOMIC_WRITE ? PEAL_WIRE_ATOMIC_WRITE
			       : d.operation == PEAL_OP_FLUSH	     ? PEAL_WIRE_FLUSH
								     : PEAL_WIRE_FETCH_ADD,
			       d.operation == PEAL_OP_ATOMIC_WRITE ? 8 : 0);

		p.psn = peal_psn_add(d.psn, from);
		p.rkey = d.rkey;
		p.remote_addr = d.address + std::uint64_t{from} * mtu();
		p.length = static_cast<u32>(d.length - std::uint64_t{from} * mtu());
		if (in_.below(2))
			p.length = message_size(in_, mtu());
		return p;
	}

	/* ---- the host ---- */

	u8 choose_verdict()
	{
		const std::uint8_t choice = in_.byte();

		if (choice < 200)
			return PEAL_SYNDROME_ACK;
		if (choice < 240 || choice % 4 == 0)
			return PEAL_SYNDROME_RNR | rnr_timer_;
		return static_cast<u8>(PEAL_SYNDROME_NAK + choice % 4);
	}
	void execute(const peal_packet &p, const peal_request &request)
	{
		const u8 verdict = choose_verdict();
		const std::uint64_t original = now_ * 3;

		model_->check_execute(p, request);
		peal_responder_done(r_.get(), verdict, original, now_);
		if (model_->reliable())
			model_->verdict(p, verdict, original, !kept_.empty());
		else if (verdict == PEAL_SYNDROME_ACK)
			model_->unreliable_done(p);
		else if (p.psn == model_->expected())
			model_->lose_message();
	}
	void check_unreliable(const peal_packet &p, const peal_request &request)
	{
		const std::int32_t distance = peal_psn_distance(model_->expected(), p.psn);

		const bool late = distance < 0 && distance >= -LATE;

		MUST(request.what == PEAL_REQUEST_EXECUTE || request.what == PEAL_REQUEST_DROPPED);
		MUST(request.duplicate == late);
		MUST(!late || request.what == PEAL_REQUEST_DROPPED);
		if (late)
			return;
		MUST((request.what == PEAL_REQUEST_EXECUTE) ==
		     (model_->may_begin(p) || (!distance && model_->valid(p))));
		if (request.what == PEAL_REQUEST_EXECUTE)
			execute(p, request);
		else if (!distance)
			model_->lose_message();
	}
	Kept *find_kept(std::uint32_t psn) const
	{
		for (Kept *kept : kept_)
			if (kept->packet.psn == psn)
				return kept;
		return nullptr;
	}
	bool keeps(std::uint32_t psn) const { return find_kept(psn); }
	/* Only a kept packet can have a copy. The host may find that a packet is no copy. */
	void check_copy(const peal_packet &p, const peal_request &request)
	{
		MUST(request.what == PEAL_REQUEST_COPY && request.drop == PEAL_DROP_sequence);
		MUST(request.kept == find_kept(p.psn));
		if (!in_.one_in(2))
			return;
		void *handle = peal_responder_conflict(r_.get(), p.psn);

		MUST(handle == request.kept);
		take_back(handle);
		MUST(!peal_reorder_has(&r_->reorder, p.psn));
		model_->threw_away(p.psn);
	}
	void check_expected(const peal_packet &p, const peal_request &request)
	{
		const bool again = again_;

		again_ = false;
		if (again && p.flow != model_->flow()) {
			MUST(request.what == PEAL_REQUEST_DROPPED &&
			     request.drop == PEAL_DROP_conflict);
			model_->threw_away(p.psn);
			return;
		}
		if (keeps(p.psn)) {
			check_copy(p, request);
			return;
		}
		model_->came_in_turn(p);
		if (model_->valid(p)) {
			MUST(request.what == PEAL_REQUEST_EXECUTE);
			execute(p, request);
		} else {
			MUST(request.what == PEAL_REQUEST_ANSWERED && request.fatal);
			model_->invalid();
		}
	}
	void check_duplicate(const peal_packet &p, const peal_request &request)
	{
		MUST(request.duplicate && !request.fatal);
		if (request.what == PEAL_REQUEST_ANSWERED) {
			model_->repeated(p);
			return;
		}
		MUST(request.what == PEAL_REQUEST_DROPPED && request.drop == PEAL_DROP_stale);
		MUST(!model_->must_repeat(p));
		MUST(peal_packet_opcode(&p)->has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC));
	}
	void check_reordered(Kept *handle, const peal_packet &p, const peal_request &request)
	{
		if (keeps(p.psn)) {
			check_copy(p, request);
			return;
		}
		if (request.what == PEAL_REQUEST_KEPT) {
			MUST(handle);
			MUST(peal_psn_ahead(model_->expected(), p.psn) < PEAL_REORDER_SLOTS);
			MUST(kept_.insert(handle).second);
			handle->since = now_;
		} else {
			MUST(request.what == PEAL_REQUEST_DROPPED &&
			     request.drop == PEAL_DROP_sequence);
		}
		model_->saw_beyond();
	}
	void check_reliable(Kept *handle, const peal_packet &p, const peal_request &request)
	{
		const std::int32_t distance = peal_psn_distance(model_->expected(), p.psn);

		if (distance < 0)
			check_duplicate(p, request);
		else if (distance > 0)
			check_reordered(handle, p, request);
		else
			check_expected(p, request);
	}
	void check(Kept *handle, const peal_packet &p, const peal_request &request)
	{
		const bool ours = peal_packet_opcode(&p)->has & PEAL_HAS_REQUEST &&
				  peal_opcode_transport(p.opcode) == model_->config().transport;

		if (request.what == PEAL_REQUEST_DROPPED)
			MUST(request.drop > PEAL_DROP_none && request.drop < PEAL_DROP_COUNT);
		if (model_->fatal())
			MUST(request.what == PEAL_REQUEST_DROPPED &&
			     request.drop == PEAL_DROP_state);
		else if (!ours)
			MUST(request.what == PEAL_REQUEST_DROPPED &&
			     request.drop == PEAL_DROP_opcode);
		else if (model_->reliable())
			check_reliable(handle, p, request);
		else
			check_unreliable(p, request);
		MUST(r_->psn == model_->expected() && r_->msn == model_->msn());
	}
	void give(std::unique_ptr<Kept> kept, bool keepable)
	{
		peal_request request;

		peal_responder_receive(r_.get(), &kept->packet, now_,
				       keepable ? kept.get() : nullptr, &request);
		check(keepable ? kept.get() : nullptr, kept->packet, request);
		if (request.what == PEAL_REQUEST_KEPT)
			(void)kept.release();
	}
	std::unique_ptr<Kept> take_back(void *handle)
	{
		auto *kept = static_cast<Kept *>(handle);

		MUST(kept_.erase(kept) == 1);
		return std::unique_ptr<Kept>(kept);
	}
	void give(peal_packet p)
	{
		if (!through_wire(p))
			return;
		p.flow = in_.one_in(8);
		give(std::make_unique<Kept>(Kept{p, 0}), !in_.one_in(8));
		while (void *handle = peal_responder_take_reordered(r_.get())) {
			auto kept = take_back(handle);

			MUST(kept->packet.psn == model_->expected());
			again_ = true;
			give(std::move(kept), true);
		}
		MUST(r_->reorder.count == kept_.size());
		MUST(!keeps(model_->expected()) || model_->fatal());
	}

	/* ---- replies and time ---- */

	void refuse_read()
	{
		peal_responder_refuse_read(r_.get());
		model_->refuse_read();
	}
	/* The packets of a run are what would leave one after the other. */
	void check_reply(const peal_reply &reply, std::uint32_t run)
	{
		peal_reply one = reply;

		MUST(reply.header.more < run);
		for (std::uint32_t i = 0; i <= reply.header.more; ++i) {
			peal_packet_of_run(&reply.header, i, &one.header);
			model_->check_reply(one);
			one.remote_addr += one.header.payload_bytes;
		}
	}
	/* Return: false when nothing more is due. */
	bool replies(std::uint32_t most, bool may_refuse)
	{
		peal_reply reply;

		while (most--) {
			const std::uint32_t run = 1 + in_.byte() % 8;

			if (!peal_responder_next(r_.get(), run, &reply)) {
				model_->check_nothing_due();
				return false;
			}
			check_reply(reply, run);
			if (reply.read && may_refuse && !reply.header.more && in_.one_in(64))
				refuse_read();
		}
		return true;
	}
	void wait()
	{
		const std::uint64_t deadline = peal_responder_deadline(r_.get());
		const std::uint8_t how = in_.byte();

		if (how < 128 && deadline != U64_MAX)
			now_ = std::max(now_, deadline);
		else
			now_ += std::uint64_t{how} * 1000;
		peal_responder_expire(r_.get(), now_);
		while (void *handle = peal_responder_take_expired(r_.get(), now_)) {
			auto *kept = static_cast<Kept *>(handle);

			MUST(now_ >= kept->since + KEEP);
			take_back(handle);
		}
		MUST(peal_responder_deadline(r_.get()) > now_);
	}
	void configure()
	{
		const auto config =
			choose_config(model_->config().transport, model_->config().mtu_shift);

		peal_responder_configure(r_.get(), &config);
		model_->configure(config);
	}
	void drop_reordered()
	{
		while (void *handle = peal_reorder_drop(&r_->reorder))
			take_back(handle);
		MUST(kept_.empty());
		again_ = false;
	}
	void reset()
	{
		const std::uint32_t psn = in_.number(3);
		const peal_responder_config config = model_->config();

		drop_reordered();
		peal_responder_reset(r_.get());
		peal_responder_set_psn(r_.get(), psn);
		model_ = std::make_unique<ResponderModel>(config, ENTRIES, psn);
	}
	/* The direct path delivered some messages. */
	void skip()
	{
		const std::uint32_t messages = in_.byte();
		const std::uint32_t psn =
			peal_psn_add(model_->expected(), messages + in_.number(2));
		const std::uint32_t msn = peal_psn_add(model_->msn(), messages);

		if (model_->fatal() || !model_->reliable())
			return;
		drop_reordered();
		peal_responder_skip(r_.get(), psn, msn);
		model_->skip(psn, msn);
	}
	void seldom()
	{
		switch (in_.below(5)) {
		case 0:
			configure();
			break;
		case 1:
			reset();
			break;
		case 2:
			skip();
			break;
		default:
			give(anything());
		}
	}
	void step()
	{
		switch (in_.below(16)) {
		case 0:
		case 1:
		case 2:
			replies(in_.below(32), true);
			break;
		case 3:
			wait();
			break;
		case 4:
		case 5:
			give(repetition());
			break;
		case 6:
			seldom();
			break;
		case 7:
		case 8: {
			peal_packet p = plausible();

			p.psn = peal_psn_add(p.psn, in_.below(6));
			give(p);
			break;
		}
		case 9:
			give(anything());
			break;
		default:
			give(plausible());
		}
	}

public:
	Run(const std::uint8_t *data, std::size_t size) : in_(data, size) { begin(); }
	void go()
	{
		std::uint64_t due = 16;

		while (!in_.empty())
			step();
		for (const Executed &d : model_->data())
			due += 2 * std::uint64_t{d.packets};
		if (due <= MANY_REPLIES)
			MUST(!replies(MANY_REPLIES, false));
		drop_reordered();
	}
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
	Run(data, size).go();
	return 0;
}
