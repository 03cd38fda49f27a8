// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See program.hpp.
 */
#include "program.hpp"

#include <algorithm>
#include <cstring>

namespace peal::sim {

Program::Program(World &world, Pair &from, Pair &to, Stream &stream, const Load &load, u32 tag)
	: world_(world), from_(from), to_(to), stream_(stream), load_(load), tag_(tag)
{
	u64 initial[2] = {world.random.bits(), world.random.below(4)};

	for (int i = 0; i < 2; i++)
		regions_.push_back(to.memory.add_region(MAY_READ | MAY_WRITE));
	local_ = from.memory.add_region(0);
	words_ = to.memory.add_region(MAY_READ | MAY_ATOMIC);
	counter_ = to.memory.grant(words_, 8, 8);
	swapped_ = to.memory.grant(words_, 8, 8);
	counter_->words = swapped_->words = true;
	std::memcpy(counter_->at, &initial[0], 8);
	std::memcpy(swapped_->at, &initial[1], 8);
	sums_[counter_->addr] = initial[0];
	for (u32 i = 0; i < load_.messages; i++)
		plan_message();
	plan_receives();
}

/* Lengths at which the behaviour changes, and some between. */
u64 Program::length()
{
	Random &random = world_.random;
	u64 mtu = stream_.rules.mtu;

	if (load_.bulk_bytes && (load_.opcode || random.one_in(4)))
		return load_.bulk_bytes - random.below(mtu);
	if (stream_.rules.transport == PEAL_UD)
		return random.below(mtu + 1);
	switch (random.below(8)) {
	case 0:
		return 0;
	case 1:
		return random.pick<u64>({1, 2, 3, 4, 7, 33});
	case 2:
		return mtu + random.pick<u64>({0, 1, 3}) - random.below(2);
	case 3:
		return mtu * random.between(1, load_.max_packets);
	case 4:
		return mtu * random.between(1, load_.max_packets) + random.between(1, 4);
	case 5:
		return random.below(mtu + 1);
	default:
		return random.below(mtu * load_.max_packets);
	}
}

u8 Program::opcode()
{
	Random &random = world_.random;

	if (load_.opcode)
		return load_.opcode;
	if (stream_.rules.transport == PEAL_UD)
		return random.pick<u8>({PEAL_OP_SEND, PEAL_OP_SEND_IMM});
	if (random.ppm(load_.local))
		return random.pick<u8>({PEAL_OP_BIND_MW, PEAL_OP_LOCAL_INV});
	if (stream_.rules.transport == PEAL_UC)
		return random.pick<u8>(
			{PEAL_OP_SEND, PEAL_OP_SEND_IMM, PEAL_OP_WRITE, PEAL_OP_WRITE_IMM});
	if (load_.reads && random.one_in(2))
		return random.pick<u8>({PEAL_OP_READ, PEAL_OP_READ, PEAL_OP_READ, PEAL_OP_READ,
					PEAL_OP_CMP_SWAP, PEAL_OP_FETCH_ADD, PEAL_OP_ATOMIC_WRITE,
					PEAL_OP_FLUSH});
	return random.pick<u8>({PEAL_OP_SEND, PEAL_OP_SEND, PEAL_OP_SEND_IMM, PEAL_OP_SEND_INV,
				PEAL_OP_WRITE, PEAL_OP_WRITE, PEAL_OP_WRITE_IMM});
}

void Program::plan_target(Message &m, u32 rights, u64 alignment)
{
	Random &random = world_.random;
	Region *region = rights == (MAY_READ | MAY_WRITE) ? regions_[random.below(regions_.size())]
							  : to_.memory.add_region(rights);

	m.remote = to_.memory.grant(region, m.wire.length, alignment);
	m.wire.rkey = region->key;
	m.wire.remote_addr = m.remote->addr;
	m.remote->id = m.id;
	m.remote->source = m.reads();
	if (m.reads())
		pattern_fill(m.remote->at, m.id, 0, m.wire.length);
}

void Program::plan_atomic(Message &m)
{
	Random &random = world_.random;
	bool add = m.wire.opcode == PEAL_OP_FETCH_ADD;

	m.wire.length = 8;
	m.wire.rkey = words_->key;
	m.wire.remote_addr = add ? counter_->addr : swapped_->addr;
	m.wire.atomic.compare_add = add ? random.bits() : random.below(4);
	m.wire.atomic.swap = add ? 0 : random.below(4);
}

void Program::plan_placement(Message &m)
{
	Random &random = world_.random;
	u32 bytes = static_cast<u32>(random.below(stream_.rules.mtu * load_.max_packets + 1));

	m.wire.length = 8;
	plan_target(m, MAY_READ | MAY_WRITE, 8);
	if (m.is_atomic_write())
		return;
	/* What it flushes stays as it is. */
	m.wire.length = 0;
	m.wire.flush = {bytes, PEAL_FLUSH_GLOBAL, PEAL_FLUSH_RANGE, 0, 0};
	m.remote = to_.memory.grant(to_.memory.region(m.wire.rkey), bytes);
	m.wire.remote_addr = m.remote->addr;
}

/*
 * Each SEND_INV has a key of its own to invalidate. It is the key of an earlier READ, for which
 * the SEND_INV waits, or a key that is not used.
 */
void Program::plan_invalidation(Message &m)
{
	const auto read = std::find_if(plan_.rbegin(), plan_.rend(), [](const Message &before) {
		return before.reads() && before.fault == Fault::NONE && before.wire.length;
	});

	m.wire.imm_or_rkey = to_.memory.add_region(MAY_READ)->key;
	if (read == plan_.rend() || own_keys_.count(read->wire.rkey) || m.id & 1)
		return;
	plan_target(*read, MAY_READ);
	own_keys_.insert(read->wire.rkey);
	m.wire.imm_or_rkey = read->wire.rkey;
	m.wire.flags |= PEAL_WQE_FENCE;
}

/* Return: false when the fault does not suit the message. */
bool Program::apply(Fault fault, Message &m)
{
	bool keyed = (m.writes() || m.reads()) && m.wire.length;

	switch (fault) {
	case Fault::KEY:
		if (!keyed && !m.is_atomic() && !m.is_atomic_write())
			return false;
		do {
			m.wire.rkey = static_cast<u32>(world_.random.bits());
		} while (to_.memory.region(m.wire.rkey));
		m.remote = nullptr;
		return true;
	case Fault::RANGE:
		if (!keyed)
			return false;
		m.wire.rkey = to_.memory.add_region(MAY_READ | MAY_WRITE)->key;
		m.remote = to_.memory.grant(to_.memory.region(m.wire.rkey), m.wire.length - 1);
		m.wire.remote_addr = m.remote->addr;
		m.remote->id = m.id;
		/* The first segments of a long READ are answered. */
		m.remote->source = m.reads();
		if (m.reads())
			pattern_fill(m.remote->at, m.id, 0, m.wire.length - 1);
		return true;
	case Fault::RIGHTS:
		if (!keyed)
			return false;
		plan_target(m, m.reads() ? MAY_WRITE | MAY_ATOMIC : MAY_READ | MAY_ATOMIC);
		return true;
	case Fault::TOO_LONG:
		return m.sends() && m.wire.length && stream_.rules.reliable() && !stream_.shared;
	case Fault::RECV_KEY:
		return m.sends() && stream_.rules.reliable() && !stream_.shared;
	case Fault::MISALIGNED:
		m.wire.remote_addr += 4;
		return m.is_atomic() || m.is_atomic_write();
	case Fault::INV_KEY:
		if (m.wire.opcode != PEAL_OP_SEND_INV)
			return false;
		do {
			m.wire.imm_or_rkey = static_cast<u32>(world_.random.bits());
		} while (to_.memory.region(m.wire.imm_or_rkey));
		return true;
	case Fault::LOCAL:
		m.fault_offset = m.wire.length ? world_.random.below(m.wire.length) : 0;
		return m.on_wire() && m.wire.length;
	case Fault::BIND:
		m.wire.opcode = PEAL_OP_BIND_MW;
		m.wire.length = 0;
		return true;
	case Fault::OPCODE:
		return m.on_wire();
	default:
		return false;
	}
}

void Program::plan_fault(Message &m)
{
	Random &random = world_.random;

	if (m.responds() && !load_.read_depth) {
		m.fault = Fault::READ_DEPTH;
		return;
	}
	if (m.responds() && !load_.peer_depth) {
		m.fault = Fault::NO_READS;
		return;
	}
	while (random.ppm(load_.fault)) {
		Message changed = m;

		changed.fault =
			static_cast<Fault>(random.between(1, static_cast<u64>(Fault::BIND)));
		if (!apply(changed.fault, changed))
			continue;
		m = changed;
		return;
	}
}

void Program::plan_message()
{
	Random &random = world_.random;
	Message m;

	m.id = static_cast<u64>(tag_) << 32 | plan_.size();
	m.wire.opcode = opcode();
	m.wire.flags = static_cast<u8>((random.ppm(load_.signaled) ? PEAL_WQE_SIGNALED : 0) |
				       (random.one_in(4) ? PEAL_WQE_SOLICITED : 0) |
				       (random.ppm(load_.fenced) ? PEAL_WQE_FENCE : 0));
	m.wire.imm_or_rkey = static_cast<u32>(random.bits());
	if (stream_.rules.xrc())
		m.wire.srqn = static_cast<u32>(random.between(1, stream_.rules.queues));
	if (m.is_atomic())
		plan_atomic(m);
	else if (m.places())
		plan_placement(m);
	else if (m.on_wire())
		m.wire.length = length();
	if (m.writes() || m.reads())
		plan_target(m, MAY_READ | MAY_WRITE);
	if (m.reads() || m.is_atomic()) {
		m.local = from_.memory.grant(local_, m.wire.length);
		m.local->id = m.id;
		m.local->words = m.is_atomic();
	}
	if (m.wire.opcode == PEAL_OP_SEND_INV)
		plan_invalidation(m);
	plan_fault(m);
	m.post_at = random.below(load_.gap + 1);
	plan_.push_back(m);
}

void Program::plan_receives()
{
	Random &random = world_.random;
	Region *buffers = to_.memory.add_region(0);
	std::map<u32, u64> next;
	u64 most = 0;
	u32 spare = static_cast<u32>(random.below(4));

	for (const Message &m : plan_)
		most = std::max(most, m.wire.length);
	for (const Message &m : plan_) {
		u64 room = m.wire.length;
		Receive receive;

		if (!m.receives() && (stream_.rules.reliable() || !spare--))
			continue;
		if (m.fault == Fault::TOO_LONG)
			room -= random.between(1, std::min<u64>(room, 3));
		else
			room += random.one_in(2) ? random.below(64) : 0;
		/* An unreliable message may get another one's receive. */
		if (!stream_.rules.reliable())
			room = most;
		/* A shared one may be that of any message. */
		if (stream_.shared)
			room = SHARED_BYTES;
		receive.queue = m.wire.srqn;
		receive.number = next[m.wire.srqn]++;
		receive.bad = m.fault == Fault::RECV_KEY;
		receive.range = to_.memory.grant(buffers, m.writes() && !stream_.shared ? 0 : room);
		receives_.push_back(receive);
	}
	if (load_.no_receives)
		receives_.clear();
}

void Program::begin()
{
	world_.in(world_.random.below(load_.gap + 1), this, POST);
	world_.in(0, this, RECEIVE);
	if (load_.invalidate_at != NEVER)
		world_.at(load_.invalidate_at, this, INVALIDATE);
}

void Program::post()
{
	while (posted_ < plan_.size()) {
		const Message &m = plan_[posted_];
		u64 wait = m.post_at;

		posted_++;
		from_.post(stream_.post(m).wire.index, !wait && posted_ < plan_.size());
		if (wait) {
			world_.in(wait, this, POST);
			return;
		}
	}
}

void Program::receive()
{
	while (received_ < receives_.size()) {
		const Receive &receive = receives_[received_++];

		stream_.receives(receive.queue).push_back(receive);
		if (world_.random.ppm(load_.late_receives)) {
			world_.in(world_.random.below(load_.receive_gap + 1), this, RECEIVE);
			return;
		}
	}
}

void Program::wake(u64 what)
{
	/* What others take from a shared queue is posted in any case. */
	if (what == RECEIVE && stream_.shared)
		return receive();
	if (stopped_)
		return;
	switch (what) {
	case POST:
		post();
		break;
	case RECEIVE:
		if (!to_.in_error())
			receive();
		break;
	case INVALIDATE:
		stream_.invalidated_at = world_.now();
		world_.trace("%s: keys are taken away", stream_.name().c_str());
		regions_[world_.random.below(regions_.size())]->valid = false;
		break;
	}
}

void Program::check_words()
{
	u64 sum = sums_[counter_->addr], is;

	for (size_t i = 0; i < stream_.count(); i++) {
		const Message &m = stream_.message(i);

		if (m.wire.opcode == PEAL_OP_FETCH_ADD && m.finished)
			sum += m.wire.atomic.compare_add;
	}
	std::memcpy(&is, counter_->at, 8);
	if (is != sum)
		violation("%s: the counter is %llx, additions make %llx", stream_.name().c_str(),
			  is, sum);
}

} // namespace peal::sim
