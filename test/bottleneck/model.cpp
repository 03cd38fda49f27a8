// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See model.hpp.
 */
#include "model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace peal::bottleneck {

constexpr u64 KEEP = 50 * MS; /* as in kernel/transport/output.c */
constexpr u32 ENTRIES = 16;
/* READ pieces in flight. A program gets so many unless it asks for fewer. */
constexpr u32 RD_ATOMIC = 128;
constexpr u32 TRAIN = 64;
/* Bytes that wait in the host for its link, as in kernel/net/tx_quota.c. */
constexpr u64 MAY_WAIT = 1 << 20;

Flow::Flow(Model &model) : model_(model), frame(model.path.mtu + HEADERS) {}

u64 Model::send(Flow &flow)
{
	const u64 took = path.ns(flow.frame);
	u64 at = world.now();

	arrived++;
	if (path.access) {
		flow.access_busy = std::max(flow.access_busy, at) + took / path.access;
		at = flow.access_busy;
	}
	/* So that packets of different senders do not meet in the same order each time. */
	at += world.random.below(took + 1);
	flow.last_arrival = at = std::max(at, flow.last_arrival);
	return at;
}

u64 Model::queue(const Flow &flow, bool ect, bool *ce)
{
	const u64 took = path.ns(path.mtu + HEADERS);
	const u64 waiting = busy_ > world.now() ? (busy_ - world.now()) / took : 0;

	if (down || world.random.ppm(path.loss))
		return NEVER;
	/* The queue has room for so many bytes, so a larger packet is dropped earlier. */
	if (std::max(busy_, world.now()) + path.ns(flow.frame) >
	    world.now() + (path.queue_packets + 1) * took) {
		dropped++;
		return NEVER;
	}
	/* A queue that was empty has no past. */
	average_ += (static_cast<double>(waiting) - average_) / (waiting ? path.average : 1);
	const u64 seen = static_cast<u64>(average_ + 0.5);

	*ce = ect && path.marks() && seen >= path.mark_from &&
	      path.mark_from + world.random.below(path.mark_all - path.mark_from) < seen;
	busy_ = std::max(busy_, world.now()) + path.ns(flow.frame);
	return busy_ + path.round_trip / 2;
}

bool Model::room(Flow &flow, u64 what)
{
	const u64 now = world.now(), full = path.ns(MAY_WAIT) / std::max(path.access, 1u);

	if (now < flow.full_until)
		return false;
	if (flow.access_busy <= now + full)
		return true;
	flow.full_until = flow.access_busy - full / 2;
	world.at(flow.full_until, &flow, what);
	return false;
}

void Model::run_until(u64 time)
{
	while (world.now() < time && world.step())
		;
}

/* ---- peal's connections ---- */

Connection::Connection(Model &model, const Habits &habits)
	: Flow(model), habits_(habits), messages_(ENTRIES), resources_(RD_ATOMIC)
{
	/* All of them fill the path and its queue twice. */
	const u64 full = (model.path.packets() + model.path.queue_packets) * model.path.mtu;

	message_ = std::max(message_, static_cast<u32>(2 * full / ENTRIES));
	const u8 shift = static_cast<u8>(std::countr_zero(model.path.mtu));
	const peal_requester_config out{
		.transport = PEAL_RC,
		.mtu_shift = shift,
		.retry_limit = 7,
		.rnr_limit = 7,
		.max_rd_atomic = RD_ATOMIC,
		.timeout_ns = 4096ULL << habits.timeout,
		.window = 1 << 16,
		.route_mtu = static_cast<u32>(model.path.link_mtu),
		.reorder_ns = KEEP,
	};
	const peal_responder_config in{
		.transport = PEAL_RC,
		.mtu_shift = shift,
		.rd_atomic = RD_ATOMIC,
		.reorder_ns = KEEP,
	};

	peal_requester_init(requester_.get(), messages_.data(), ENTRIES);
	peal_responder_init(responder_.get(), resources_.data(), RD_ATOMIC);
	peal_requester_configure(requester_.get(), &out);
	peal_responder_configure(responder_.get(), &in);
	expected_ = static_cast<u32>(model.world.random.below(1 << 24));
	peal_requester_set_psn(requester_.get(), expected_);
	peal_responder_set_psn(responder_.get(), expected_);
}

Connection::~Connection()
{
	while (void *kept = peal_reorder_drop(&requester_->reorder))
		delete static_cast<InFlight *>(kept);
	while (void *kept = peal_reorder_drop(&responder_->reorder))
		delete static_cast<InFlight *>(kept);
}

void Connection::start()
{
	model_.world.in(model_.world.random.below(model_.path.round_trip + 1), this, BEGIN);
}

void Connection::send(const peal_packet &packet, bool to_responder, bool data)
{
	const u64 at = data ? model_.send(*this) : model_.back();
	u64 slot;

	if (at == NEVER)
		return;
	if (free_.empty()) {
		free_.push_back(flying_.size());
		flying_.emplace_back();
	}
	slot = free_.back();
	free_.pop_back();
	flying_[slot] = {packet, to_responder, data, false};
	model_.world.at(at, this, PACKETS + slot);
}

void Connection::wake(u64 what)
{
	World &world = model_.world;
	InFlight p;
	u64 at;

	switch (what) {
	case TIMER_OUT:
		if (world.now() != armed_out_)
			return;
		armed_out_ = NEVER;
		if (world.now() >= peal_requester_deadline(requester_.get())) {
			peal_requester_expire(requester_.get(), world.now());
			while (void *kept =
				       peal_requester_take_expired(requester_.get(), world.now()))
				delete static_cast<InFlight *>(kept);
		}
		pump();
		return;
	case TIMER_IN:
		if (world.now() != armed_in_)
			return;
		armed_in_ = NEVER;
		if (world.now() >= peal_responder_deadline(responder_.get())) {
			peal_responder_expire(responder_.get(), world.now());
			while (void *kept =
				       peal_responder_take_expired(responder_.get(), world.now()))
				delete static_cast<InFlight *>(kept);
		}
		reply();
		return;
	case BEGIN:
		if (habits_.forged_every)
			world.in(habits_.forged_every, this, FORGED);
		pump();
		return;
	case ROOM:
		if (reads())
			reply();
		else
			pump();
		return;
	case FORGED:
		world.in(habits_.forged_every, this, FORGED);
		[[fallthrough]];
	case NOTIFIED:
		peal_requester_notified(requester_.get());
		return;
	}
	if (std::exchange(flying_[what - PACKETS].before_queue, false)) {
		at = model_.queue(*this, habits_.ect, &flying_[what - PACKETS].ce);
		if (at == NEVER)
			free_.push_back(what - PACKETS);
		else
			world.at(at, this, what);
		return;
	}
	p = flying_[what - PACKETS];
	free_.push_back(what - PACKETS);
	if (!p.to_responder)
		response(p);
	else if (habits_.peer == Peer::GO_BACK)
		go_back(p.packet);
	else
		request(p);
}

void Connection::arm()
{
	const u64 out = peal_requester_deadline(requester_.get());
	const u64 in = peal_responder_deadline(responder_.get());

	if (out < armed_out_)
		model_.world.at(armed_out_ = std::max(out, model_.world.now()), this, TIMER_OUT);
	if (in < armed_in_)
		model_.world.at(armed_in_ = std::max(in, model_.world.now()), this, TIMER_IN);
}

void Connection::pump()
{
	peal_wqe wqe{};
	peal_packet packet;
	peal_outgoing out{};

	wqe.opcode = habits_.operation;
	wqe.length = message_;
	wqe.flags = PEAL_WQE_SIGNALED;
	for (;;) {
		while (const peal_message *done = peal_requester_complete(requester_.get()))
			if (done->status) {
				failed_ = true;
				return;
			}
		if (!stopped_ && !peal_requester_unsent(requester_.get()) &&
		    peal_requester_has_room(requester_.get()))
			peal_requester_post(requester_.get(), &wqe);
		if (!reads() && !model_.room(*this, ROOM))
			break;
		if (peal_requester_next(requester_.get(), model_.world.now(), TRAIN, &out))
			break;
		for (u32 i = 0; i <= out.header.more; i++) {
			peal_packet_of_run(&out.header, i, &packet);
			send(packet, true, !reads());
		}
	}
	arm();
}

/* A request arrives at the core's responder. */
void Connection::request(const InFlight &arrived)
{
	World &world = model_.world;
	auto p = std::make_unique<InFlight>(arrived);
	peal_request request{};

	if (p->ce && peal_cnp_is_due(&cnp_, world.now())) {
		peal_cnp_sent(&cnp_, world.now());
		world.at(model_.back(), this, NOTIFIED);
	}
	while (p) {
		peal_responder_receive(responder_.get(), &p->packet, world.now(), p.get(),
				       &request);
		if (request.what == PEAL_REQUEST_EXECUTE) {
			delivered += !reads();
			peal_responder_done(responder_.get(), PEAL_SYNDROME_ACK, 0, world.now());
		} else if (request.what == PEAL_REQUEST_KEPT) {
			static_cast<void>(p.release());
		}
		p.reset(static_cast<InFlight *>(peal_responder_take_reordered(responder_.get())));
	}
	reply();
}

void Connection::reply()
{
	peal_packet packet;
	peal_reply reply{};

	while (model_.room(*this, ROOM) && peal_responder_next(responder_.get(), TRAIN, &reply)) {
		for (u32 i = 0; i <= reply.header.more; i++) {
			peal_packet_of_run(&reply.header, i, &packet);
			send(packet, false, reply.read);
		}
	}
	arm();
}

/* A request arrives at a peer that keeps no out-of-order packets. This peer answers no READ. */
void Connection::go_back(const peal_packet &packet)
{
	const s32 ahead = peal_psn_distance(expected_, packet.psn);
	peal_packet answer{};

	answer.opcode = PEAL_WIRE_ACK;
	answer.syndrome = PEAL_SYNDROME_ACK + PEAL_CREDITS_UNLIMITED;
	answer.header_bytes = peal_packet_opcode(&answer)->header_bytes;
	if (ahead > 0) {
		if (std::exchange(nak_sent_, true))
			return;
		answer.syndrome = 0 + PEAL_SYNDROME_NAK + PEAL_NAK_SEQUENCE;
		answer.psn = expected_;
	} else {
		if (!ahead) {
			expected_ = peal_psn_add(expected_, 1);
			nak_sent_ = false;
			delivered++;
		}
		if (!packet.ack_request)
			return;
		answer.psn = peal_psn_add(expected_, PEAL_PSN_MASK);
	}
	send(answer, false, false);
}

void Connection::response(const InFlight &arrived)
{
	World &world = model_.world;
	auto p = std::make_unique<InFlight>(arrived);
	peal_response response{};

	if (p->ce)
		peal_requester_notified(requester_.get());
	while (p) {
		peal_requester_receive(requester_.get(), &p->packet, world.now(), p.get(),
				       &response);
		if (response.what == PEAL_RESPONSE_READ) {
			delivered += response.packets;
			peal_requester_placed(requester_.get(), &response, world.now());
		} else if (response.what == PEAL_RESPONSE_KEPT) {
			static_cast<void>(p.release());
		}
		p.reset(static_cast<InFlight *>(peal_requester_take_reordered(requester_.get())));
	}
	pump();
}

/* ---- TCP ---- */

/* What CUBIC leaves of its window, and how it grows (RFC 9438, 4). */
constexpr double LEFT = 0.7, CUBE = 0.4, FRIENDLY = 3 * (1 - LEFT) / (1 + LEFT);
/* A transmission is lost if so many later ones have arrived. */
constexpr u64 OVERTAKEN = 3;
/* Most bytes of a train. */
constexpr u64 TRAIN_BYTES = 1 << 16;

void Tcp::start()
{
	model_.world.in(model_.world.random.below(model_.path.round_trip + 1), this, BEGIN);
}

void Tcp::cut()
{
	largest_ = size_;
	size_ = threshold_ = std::max(2.0, size_ * LEFT);
	friendly_ = size_;
	cut_at_ = model_.world.now();
	recover_ = first_ + flight_.size();
}

void Tcp::grow()
{
	if (size_ < threshold_) {
		size_++;
		return;
	}
	const double k = std::cbrt(largest_ * (1 - LEFT) / CUBE);
	const double t = static_cast<double>(model_.world.now() - cut_at_ + round_trip_) / 1e9;
	const double cubic = CUBE * std::pow(t - k, 3) + largest_;

	friendly_ += FRIENDLY / size_;
	size_ = std::max({size_, friendly_, std::min(cubic, size_ + (cubic - size_) / size_)});
}

/*
 * Packets that leave together: a third of the window, but at most what the flow sends in 1 ms, or
 * more where the round trip is short (tcp_tso_autosize).
 */
u64 Tcp::train() const
{
	const u64 most = TRAIN_BYTES / frame, trip = std::max<u64>(round_trip_, 1);
	const u64 ms =
		static_cast<u64>(size_ * static_cast<double>(MS) / static_cast<double>(trip));
	const u64 near = most >> std::min<u64>(model_.path.round_trip / (512 * US), 63);

	return std::max<u64>(std::min({most, ms + near, static_cast<u64>(size_) / 3}), 1);
}

/* Does the flow wait until it may send a whole train, because an ACK is due soon? */
bool Tcp::defers() const
{
	const u64 now = model_.world.now();

	return again_.empty() && flight_.size() != acked_ && now < last_sent_ + MS &&
	       sent_at_[first_] + round_trip_ <= now + std::min(round_trip_ / 2, MS) &&
	       flight_.size() - acked_ + train() > static_cast<u64>(size_);
}

void Tcp::pump()
{
	const u64 limit = static_cast<u64>(size_);

	if (defers())
		return;
	while (flight_.size() - acked_ < limit && (!again_.empty() || !stopped_) &&
	       model_.room(*this, ROOM)) {
		const u64 number = again_.empty() ? next_++ : again_.front();
		const u64 order = first_ + flight_.size();

		if (!again_.empty())
			again_.pop_front();
		flight_.push_back({number, false});
		sent_at_.resize(order + 1);
		sent_at_[order] = last_sent_ = model_.world.now();
		model_.world.at(model_.send(*this), this, ORDERS + 3 * order);
	}
}

void Tcp::acknowledge(u64 order, bool ce)
{
	World &world = model_.world;

	last_heard_ = world.now();
	round_trip_ = world.now() - sent_at_[order];
	if (order < first_ || flight_[order - first_].acked)
		return;
	flight_[order - first_].acked = true;
	acked_++;
	delivered++;
	highest_ = std::max(highest_, order);
	if (ce && order >= recover_)
		cut();
	else if (order >= recover_)
		grow();
	while (!flight_.empty() && (flight_.front().acked || first_ + OVERTAKEN <= highest_)) {
		if (flight_.front().acked) {
			acked_--;
		} else {
			if (first_ >= recover_)
				cut();
			again_.push_back(flight_.front().number);
		}
		first_++;
		flight_.pop_front();
	}
}

/* The event of transmission n is 3 n when it comes to the queue. The next two are its ACK, without
 * and with a mark. */
void Tcp::wake(u64 what)
{
	World &world = model_.world;
	const u64 patience = 2 * round_trip_ + MS;
	bool ce;
	u64 at;

	switch (what) {
	case ROOM:
		break;
	case BEGIN:
		world.in(patience, this, TIMER);
		break;
	case TIMER:
		world.in(patience, this, TIMER);
		if (world.now() - last_heard_ < patience || flight_.size() == acked_)
			break;
		cut();
		for (const Segment &segment : flight_)
			if (!segment.acked)
				again_.push_back(segment.number);
		first_ += flight_.size();
		flight_.clear();
		acked_ = 0;
		size_ = 2;
		recover_ = first_;
		last_heard_ = world.now();
		break;
	default:
		what -= ORDERS;
		if (what % 3) {
			acknowledge(what / 3, what % 3 == 2);
			break;
		}
		at = model_.queue(*this, ect_, &ce);
		if (at != NEVER)
			world.at(at + model_.path.round_trip / 2, this, ORDERS + what + 1 + ce);
		return;
	}
	pump();
}

} // namespace peal::bottleneck
