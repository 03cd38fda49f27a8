// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See peal_pair.hpp: requests that arrive, and the replies.
 */
#include <cstring>
#include <utility>

#include "peal_pair.hpp"

namespace peal::sim {

/* A request arrives. Executes it, and then requests that waited for it. */
void PealPair::request(FramePtr frame)
{
	peal_request request{};

	while (frame) {
		bool may = may_keep();

		peal_responder_receive(&responder_, &frame->packet, world_.now(),
				       may ? frame.get() : nullptr, &request);
		if (request.what == PEAL_REQUEST_ANSWERED && request.duplicate)
			incoming->asked_again(frame->packet.psn,
					      (frame->packet.opcode & 31) == PEAL_WIRE_READ_REQUEST
						      ? frame->packet.length
						      : 0);
		if (request.what == PEAL_REQUEST_KEPT) {
			if (!may)
				violation("kept a request that was not to be kept");
			keep(kept_requests_, std::move(frame));
		} else if (request.what == PEAL_REQUEST_COPY) {
			if (differs(kept_requests_, request.kept, *frame))
				unkeep(kept_requests_,
				       peal_responder_conflict(&responder_, frame->packet.psn));
		} else if (request.what == PEAL_REQUEST_EXECUTE) {
			serve(request, *frame);
		} else if (request.what == PEAL_REQUEST_ANSWERED && request.fatal) {
			take_effect(*frame, "refused");
			incoming->refuse(frame->packet.psn, REM_INV_REQ_ERR);
		} else if (request.what == PEAL_REQUEST_DROPPED) {
			world_.trace("  dropped: %d%s", request.drop,
				     request.duplicate ? ", duplicate" : "");
		}
		frame = unkeep(kept_requests_, peal_responder_take_reordered(&responder_));
	}
}

void PealPair::serve(const peal_request &request, const Frame &frame)
{
	Request r{
		.psn = frame.packet.psn,
		.operation = request.wqe.opcode,
		.first = request.first,
		.last = request.last,
		.solicited = !!(request.wqe.flags & PEAL_WQE_SOLICITED),
		.offset = request.offset,
		.bytes = request.bytes,
		.length = request.wqe.opcode == PEAL_OP_FLUSH ? request.wqe.flush.length
							      : request.wqe.length,
		.rkey = request.wqe.rkey,
		.remote_addr = request.wqe.remote_addr,
		.compare_add = request.wqe.atomic.compare_add,
		.swap = request.wqe.atomic.swap,
		.imm_or_rkey = request.wqe.imm_or_rkey,
		.srqn = request.wqe.srqn,
		.flush = request.wqe.flush,
	};
	u64 original;

	if (frame.forged && !incoming->rules.reliable() && request.wqe.rkey == 0 &&
	    request.wqe.opcode == PEAL_OP_WRITE) {
		peal_responder_done(&responder_, REFUSED_ACCESS, 0, world_.now());
		return;
	}
	take_effect(frame, "executed");
	Verdict verdict = target.execute(*incoming, r, frame.payload, &original);

	const u8 timer = verdict == NOT_READY ? incoming->rules.rnr_timer : 0;

	peal_responder_done(&responder_, verdict | timer, original, world_.now());
}

void PealPair::answer(const peal_reply &reply)
{
	const u8 *bytes = nullptr;
	u8 *payload;
	FramePtr made;

	if (reply.header.payload_bytes)
		bytes = target.bytes(reply.rkey, reply.remote_addr, reply.header.payload_bytes);
	if (reply.header.payload_bytes && !bytes)
		violation("a READ answers with bytes that nobody granted");
	show(reply.again ? "answers again" : "answers", reply.header);
	incoming->replied(reply.header, reply.again);
	made = frame(reply.header, &payload);
	if (bytes)
		std::memcpy(payload, bytes, reply.header.payload_bytes);
	ship(std::move(made), Code::CORE);
}

/* Sends replies. After a fatal one the queue pair is in error. */
void PealPair::reply()
{
	u32 packets = 0;
	peal_reply reply{};

	while (!dead_ && node.room() && packets < habits.turn &&
	       peal_responder_next(&responder_, habits.run, &reply)) {
		packets++;
		if (reply.read && !target.readable(reply.rkey, reply.remote_addr,
						   peal_packet_bytes(&reply.header))) {
			if (!reply.again) {
				incoming->refuse(reply.header.psn, REM_ACCESS_ERR);
				peal_responder_refuse_read(&responder_);
				continue;
			}
			incoming->refuse_again(reply.header.psn);
			peal_responder_refuse_again(&responder_, &reply);
		}
		/* The packets of a run leave one after the other. */
		const peal_packet run = reply.header;

		for (u32 i = 0; i <= run.more; ++i) {
			peal_packet_of_run(&run, i, &reply.header);
			answer(reply);
			reply.remote_addr += reply.header.payload_bytes;
		}
	}
	if (packets == habits.turn && !reply_due_) {
		reply_due_ = true;
		world_.in(world_.random.below(2000), this, REPLY_TURN);
	} else if (responder_.fatal && packets < habits.turn && node.room() && !dead_) {
		flush();
	}
	arm();
}

} // namespace peal::sim
