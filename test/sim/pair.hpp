// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A queue pair as the simulation sees it, either peal's (peal_pair.hpp) or the strict
 * peer's (strict.hpp).
 *
 * Owns: the common parts, which are number, memory and the two directions.
 */
#pragma once
#include "node.hpp"
#include "stream.hpp"
#include "target.hpp"

namespace peal::sim {

class Pair : public Actor {
protected:
	World &world_;
	bool error_ = false; /* executes and sends no requests any more */

	/* A frame to the peer. The caller fills the payload and then calls ship(). */
	FramePtr frame(const peal_packet &header, u8 **payload) const;
	void ship(FramePtr frame, Code code);
	void show(const char *verb, const peal_packet &packet) const;

public:
	Node &node;
	const u32 qpn;
	Pair *peer = nullptr;
	/*
	 * This end has kept a forged response. It then takes the READ for executed, and asks again
	 * only for the responses in front of the forged one. The two requests differ.
	 */
	bool misled = false;
	Memory memory;
	Target target;
	Stream *outgoing = nullptr; /* this side is the requester */
	Stream *incoming = nullptr; /* this side is the responder */

	Pair(Node &node, u32 qpn)
		: world_(node.world()), node(node), qpn(qpn), memory(world_.random), target(memory)
	{
		node.attach(this);
	}

	bool in_error() const { return error_; }
	/* The program posts message @index of the outgoing stream. */
	/* @more: another post follows at once. Nothing is sent before the last one. */
	virtual void post(u32 index, bool more) = 0;
	/* A frame for this queue pair arrives. More may follow before batch_ends(). */
	virtual void arrive(FramePtr frame) = 0;
	virtual void batch_ends() = 0;
	/* The transmit queue has room again. */
	virtual void room() = 0;
	/* The program, or the connection's end, puts it into error. */
	virtual void fail() = 0;
	/* Nothing is outstanding and no timer is armed. */
	virtual bool quiet() const = 0;
};

} // namespace peal::sim
