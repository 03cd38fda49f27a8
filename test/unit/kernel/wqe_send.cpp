// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kernel/object/wqe.c: send WQEs, field by field.
 *
 * Holds: The invalid values of each field are refused, each with its own reason. The values of an
 * accepted WQE are those of the slot.
 */
#include <array>
#include <map>
#include <set>

#include "../catch.hpp"
#include "wqe.hpp"

using namespace peal::test;

namespace {

/* One slot, its queue's limits, and the last result. */
struct Sender {
	SendCaps caps;
	peal_wqe_limits limits = caps.limits();
	Exactly memory{caps.stride()};
	SendView view{memory.data()};
	Parsed send{};

	explicit Sender(unsigned opcode = PEAL_OP_SEND, SendCaps wanted = {}) : caps(wanted)
	{
		view.header().opcode = static_cast<__u8>(opcode);
		if (is_atomic(opcode)) {
			view.header().num_sge = 1;
			view.atomic_sge().length = 8;
		}
		if (opcode == PEAL_OP_ATOMIC_WRITE)
			use_sges(1, 8);
		if (opcode == PEAL_OP_FLUSH)
			view.flush().placement = PEAL_FLUSH_GLOBAL;
	}
	peal_reason parse() { return parse_send(memory.data(), &limits, &send); }
	void use_inline(std::uint32_t bytes)
	{
		view.header().flags |= PEAL_WQE_INLINE;
		view.header().inline_len = bytes;
	}
	void use_sges(unsigned count, std::uint32_t bytes)
	{
		view.header().num_sge = static_cast<__u8>(count);
		for (unsigned i = 0; i < std::min(count, caps.max_sge); ++i)
			view.sge(i) = {i * 0x1000ULL, bytes, i};
	}
};

const std::vector<unsigned> known = {
	PEAL_OP_SEND,	   PEAL_OP_SEND_IMM,  PEAL_OP_SEND_INV,	    PEAL_OP_WRITE,
	PEAL_OP_WRITE_IMM, PEAL_OP_READ,      PEAL_OP_CMP_SWAP,	    PEAL_OP_FETCH_ADD,
	PEAL_OP_BIND_MW,   PEAL_OP_LOCAL_INV, PEAL_OP_ATOMIC_WRITE, PEAL_OP_FLUSH,
	PEAL_OP_REG_MR,
};

const std::vector<unsigned> with_list = {
	PEAL_OP_SEND,  PEAL_OP_SEND_IMM,  PEAL_OP_SEND_INV,
	PEAL_OP_WRITE, PEAL_OP_WRITE_IMM, PEAL_OP_READ,
};

} // namespace

TEST_CASE("an opcode is accepted exactly if it is known", "[wqe]")
{
	const std::set<unsigned> accepted(known.begin(), known.end());

	for (unsigned opcode = 0; opcode < 256; ++opcode) {
		Sender sender(opcode);

		CAPTURE(opcode);
		if (accepted.count(opcode)) {
			CHECK(sender.parse() == PEAL_REASON_NONE);
			CHECK(sender.send.opcode == opcode);
		} else {
			CHECK(sender.parse() == PEAL_REASON_WQE_OPCODE);
			CHECK(sender.send.opcode == 0);
		}
	}
}

TEST_CASE("the table of opcodes says what each may do", "[wqe]")
{
	std::map<unsigned, int> access = {
		{PEAL_OP_WRITE, IB_ACCESS_REMOTE_WRITE},
		{PEAL_OP_WRITE_IMM, IB_ACCESS_REMOTE_WRITE},
		{PEAL_OP_READ, IB_ACCESS_REMOTE_READ},
		{PEAL_OP_CMP_SWAP, IB_ACCESS_REMOTE_ATOMIC},
		{PEAL_OP_FETCH_ADD, IB_ACCESS_REMOTE_ATOMIC},
		{PEAL_OP_ATOMIC_WRITE, IB_ACCESS_REMOTE_WRITE},
		{PEAL_OP_FLUSH, 0}, /* it depends on the WQE */
	};

	for (unsigned opcode : known) {
		const struct peal_op &op = peal_ops[opcode];

		CAPTURE(opcode);
		CHECK(op.transports);
		CHECK(op.sends == may_inline(opcode));
		CHECK(op.atomic == (is_atomic(opcode) || is_placement(opcode)));
		CHECK(op.placement == is_placement(opcode));
		CHECK(op.resource == (op.atomic || opcode == PEAL_OP_READ));
		CHECK(op.local == is_local(opcode));
		CHECK(op.remote == (access.count(opcode) == 1));
		CHECK(op.access == access[opcode]);
		CHECK(op.receives == ((opcode >= PEAL_OP_SEND && opcode <= PEAL_OP_SEND_INV) ||
				      opcode == PEAL_OP_WRITE_IMM));
		CHECK(op.immediate == (opcode == PEAL_OP_SEND_IMM || opcode == PEAL_OP_WRITE_IMM));
		CHECK(op.invalidates ==
		      (opcode == PEAL_OP_SEND_INV || opcode == PEAL_OP_LOCAL_INV));
	}
}

TEST_CASE("flags are accepted exactly if they are known and fit the opcode", "[wqe]")
{
	for (unsigned opcode : known) {
		for (unsigned flags = 0; flags < 256; ++flags) {
			Sender sender(opcode);
			peal_reason expected = PEAL_REASON_NONE;

			sender.view.header().flags = static_cast<__u8>(flags);
			if (flags > 0x0f)
				expected = PEAL_REASON_WQE_FLAGS;
			else if (flags & PEAL_WQE_INLINE && !may_inline(opcode))
				expected = PEAL_REASON_WQE_INLINE;
			else if (flags & PEAL_WQE_INLINE && opcode == PEAL_OP_ATOMIC_WRITE)
				expected = PEAL_REASON_WQE_NUM_SGE;
			CAPTURE(opcode, flags);
			CHECK(sender.parse() == expected);
			CHECK(sender.send.flags == flags);
			CHECK(sender.send.opcode == opcode);
		}
	}
}

TEST_CASE("every bit of a send WQE's reserved fields is refused", "[wqe]")
{
	for (unsigned opcode : known) {
		for (unsigned bit = 0; bit < 8 + 64; ++bit) {
			Sender sender(opcode);

			if (bit < 8)
				sender.view.header().reserved0 = static_cast<__u8>(1 << bit);
			else if (bit < 8 + 32)
				sender.view.header().ah_index = 1U << (bit - 8);
			else
				sender.view.header().reserved1 = 1U << (bit - 8 - 32);
			CAPTURE(opcode, bit);
			CHECK(sender.parse() == PEAL_REASON_WQE_RESERVED);
		}
	}
}

TEST_CASE("num_sge is refused exactly if it exceeds the queue's", "[wqe]")
{
	for (std::uint32_t max_sge : {0U, 1U, 2U, 3U, 16U, 31U, 32U}) {
		for (unsigned num_sge = 0; num_sge < 256; ++num_sge) {
			Sender sender(PEAL_OP_SEND, {max_sge, 0});
			const bool fits = num_sge <= std::max(max_sge, 1U);

			sender.view.header().num_sge = static_cast<__u8>(num_sge);
			CAPTURE(max_sge, num_sge);
			CHECK(sender.parse() ==
			      (fits ? PEAL_REASON_NONE : PEAL_REASON_WQE_NUM_SGE));
		}
	}
}

TEST_CASE("an opcode without data refuses scatter-gather entries", "[wqe]")
{
	for (unsigned opcode :
	     {PEAL_OP_BIND_MW, PEAL_OP_LOCAL_INV, PEAL_OP_REG_MR, PEAL_OP_FLUSH}) {
		for (unsigned num_sge = 1; num_sge < 256; ++num_sge) {
			Sender sender(opcode);

			sender.view.header().num_sge = static_cast<__u8>(num_sge);
			CAPTURE(opcode, num_sge);
			CHECK(sender.parse() == PEAL_REASON_WQE_NUM_SGE);
		}
	}
}

TEST_CASE("inline data are refused exactly if longer than the queue's", "[wqe]")
{
	for (std::uint32_t max_inline : {0U, 1U, 31U, 32U, 33U, 64U, 220U, 511U, 512U}) {
		Sender sender(PEAL_OP_WRITE, {1, max_inline});
		const std::uint32_t limit = sender.limits.max_inline;

		CHECK(limit >= max_inline);
		CHECK(limit + 32 <= sender.caps.stride());
		for (std::uint32_t bytes :
		     {0U, 1U, limit - 1, limit, limit + 1, 513U, 0xffffffffU}) {
			sender.use_inline(bytes);
			CAPTURE(max_inline, limit, bytes);
			CHECK(sender.parse() ==
			      (bytes <= limit ? PEAL_REASON_NONE : PEAL_REASON_WQE_INLINE));
			if (bytes <= limit)
				CHECK(sender.send.length == bytes);
		}
	}
}

TEST_CASE("inline data stay in the slot, behind the header", "[wqe]")
{
	for (unsigned opcode = PEAL_OP_SEND; opcode <= PEAL_OP_WRITE_IMM; ++opcode) {
		Sender sender(opcode);

		sender.use_inline(100);
		CAPTURE(opcode);
		REQUIRE(sender.parse() == PEAL_REASON_NONE);
		CHECK(sender.send.inline_data == sender.memory.data() + 32);
		CHECK(sender.send.length == 100);
	}
}

TEST_CASE("inline data and scatter-gather entries exclude each other", "[wqe]")
{
	Sender sender;

	sender.use_inline(8);
	sender.view.header().num_sge = 1;
	CHECK(sender.parse() == PEAL_REASON_WQE_NUM_SGE);
	CHECK(sender.send.inline_data == nullptr);
}

TEST_CASE("a length without the inline flag is refused", "[wqe]")
{
	for (unsigned opcode : known) {
		for (std::uint32_t bytes : {1U, 32U, 0x80000000U, 0xffffffffU}) {
			Sender sender(opcode);

			sender.view.header().inline_len = bytes;
			CAPTURE(opcode, bytes);
			CHECK(sender.parse() == PEAL_REASON_WQE_INLINE);
		}
	}
}

TEST_CASE("an opcode that sends no data refuses inline ones", "[wqe]")
{
	for (unsigned opcode : known) {
		if (may_inline(opcode))
			continue;
		for (std::uint32_t bytes : {0U, 8U}) {
			Sender sender(opcode);

			sender.use_inline(bytes);
			CAPTURE(opcode, bytes);
			CHECK(sender.parse() == PEAL_REASON_WQE_INLINE);
		}
	}
}

TEST_CASE("a message of 2 GiB is accepted, one byte more is not", "[wqe]")
{
	for (unsigned opcode : with_list) {
		Sender sender(opcode);

		CAPTURE(opcode);
		sender.use_sges(1, 0x80000000);
		CHECK(sender.parse() == PEAL_REASON_NONE);
		CHECK(sender.send.length == PEAL_MAX_MSG);
		sender.use_sges(1, 0x80000001);
		CHECK(sender.parse() == PEAL_REASON_WQE_LENGTH);
		sender.use_sges(32, 0x04000000);
		CHECK(sender.parse() == PEAL_REASON_NONE);
		CHECK(sender.send.length == PEAL_MAX_MSG);
		sender.view.sge(31).length++;
		CHECK(sender.parse() == PEAL_REASON_WQE_LENGTH);
	}
}

TEST_CASE("lengths do not wrap when they are added", "[wqe]")
{
	for (unsigned opcode : with_list) {
		Sender sender(opcode);

		CAPTURE(opcode);
		sender.use_sges(32, 0xffffffff);
		CHECK(sender.parse() == PEAL_REASON_WQE_LENGTH);
		/* 2 * 2^31 = 2^32: zero in 32 bits. */
		sender.use_sges(2, 0x80000000);
		CHECK(sender.parse() == PEAL_REASON_WQE_LENGTH);
		sender.use_sges(2, 0);
		sender.view.sge(0).length = 0xffffffff;
		sender.view.sge(1).length = 1;
		CHECK(sender.parse() == PEAL_REASON_WQE_LENGTH);
	}
}

TEST_CASE("the values of a WQE arrive", "[wqe]")
{
	Sender sender(PEAL_OP_WRITE_IMM);
	peal_send_wqe &header = sender.view.header();

	header.flags = PEAL_WQE_SIGNALED | PEAL_WQE_FENCE;
	header.num_sge = 2;
	header.imm_or_rkey = 0x11223344;
	header.remote_addr = 0xfedcba9876543210;
	header.rkey = 0x55667788;
	sender.view.sge(0) = {0x1234567890abcdef, 100, 0x99};
	sender.view.sge(1) = {0x0fedcba098765432, 50, 0xaa};
	REQUIRE(sender.parse() == PEAL_REASON_NONE);
	CHECK(sender.send.opcode == PEAL_OP_WRITE_IMM);
	CHECK(sender.send.flags == (PEAL_WQE_SIGNALED | PEAL_WQE_FENCE));
	CHECK(sender.send.num_sge == 2);
	CHECK(sender.send.imm_or_rkey == 0x11223344);
	CHECK(sender.send.remote_addr == 0xfedcba9876543210);
	CHECK(sender.send.rkey == 0x55667788);
	CHECK(sender.send.length == 150);
	CHECK(sender.send.inline_data == nullptr);
	CHECK(std::memcmp(sender.send.sge, &sender.view.sge(0), 32) == 0);
}

TEST_CASE("an atomic wants exactly one entry of 8 bytes", "[wqe]")
{
	for (unsigned opcode : {PEAL_OP_CMP_SWAP, PEAL_OP_FETCH_ADD}) {
		Sender sender(opcode);

		CAPTURE(opcode);
		for (unsigned num_sge = 0; num_sge <= 32; ++num_sge) {
			sender.view.header().num_sge = static_cast<__u8>(num_sge);
			CHECK(sender.parse() ==
			      (num_sge == 1 ? PEAL_REASON_NONE : PEAL_REASON_WQE_ATOMIC_LENGTH));
		}
		sender.view.header().num_sge = 1;
		for (std::uint32_t length : {0U, 1U, 7U, 9U, 16U, 0x80000008U, 0xffffffffU}) {
			sender.view.atomic_sge().length = length;
			CHECK(sender.parse() == PEAL_REASON_WQE_ATOMIC_LENGTH);
		}
	}
}

TEST_CASE("an ATOMIC_WRITE wants 8 bytes, in one entry or inline", "[wqe]")
{
	for (std::uint32_t bytes : {0U, 1U, 4U, 7U, 8U, 9U, 16U, 32U, 0xffffffffU}) {
		Sender sender(PEAL_OP_ATOMIC_WRITE, {1, 0});

		CAPTURE(bytes);
		sender.view.sge(0).length = bytes;
		CHECK(sender.parse() ==
		      (bytes == 8 ? PEAL_REASON_NONE : PEAL_REASON_WQE_ATOMIC_LENGTH));
		sender.view.header().num_sge = 0;
		sender.use_inline(bytes);
		sender.limits.max_inline = 0; /* 8 bytes fit every slot */
		CHECK((sender.parse() == PEAL_REASON_NONE) == (bytes == 8));
	}
	Sender sender(PEAL_OP_ATOMIC_WRITE);
	sender.use_sges(2, 4);
	CHECK(sender.parse() == PEAL_REASON_WQE_ATOMIC_LENGTH);
	sender.use_sges(0, 0);
	CHECK(sender.parse() == PEAL_REASON_WQE_ATOMIC_LENGTH);
}

TEST_CASE("a FLUSH has a known placement and selectivity", "[wqe]")
{
	for (unsigned value = 0; value < 256; ++value) {
		Sender sender(PEAL_OP_FLUSH);

		CAPTURE(value);
		sender.view.flush().placement = static_cast<__u8>(value);
		CHECK(sender.parse() ==
		      (value >= 1 && value <= 3 ? PEAL_REASON_NONE : PEAL_REASON_WQE_FLAGS));
		sender.view.flush().placement = PEAL_FLUSH_GLOBAL;
		sender.view.flush().selectivity = static_cast<__u8>(value);
		CHECK(sender.parse() == (value <= 1 ? PEAL_REASON_NONE : PEAL_REASON_WQE_FLAGS));
	}
	for (unsigned bit = 0; bit < 16 + 64; ++bit) {
		Sender sender(PEAL_OP_FLUSH);

		CAPTURE(bit);
		if (bit < 16)
			sender.view.flush().reserved0 = static_cast<__u16>(1 << bit);
		else
			sender.view.flush().reserved1 = 1ULL << (bit - 16);
		CHECK(sender.parse() == PEAL_REASON_WQE_RESERVED);
	}
	Sender sender(PEAL_OP_FLUSH);
	sender.view.flush().length = PEAL_MAX_MSG;
	REQUIRE(sender.parse() == PEAL_REASON_NONE);
	CHECK(sender.send.length == 0);
	CHECK(sender.send.flush.length == PEAL_MAX_MSG);
	sender.view.flush().length = PEAL_MAX_MSG + 1;
	CHECK(sender.parse() == PEAL_REASON_WQE_LENGTH);
}

TEST_CASE("an atomic's operands precede its entry", "[wqe]")
{
	Sender sender(PEAL_OP_CMP_SWAP);
	const peal_atomic_seg operands = {0x1111111111111111, 0x2222222222222222};

	std::memcpy(sender.memory.data() + 32, &operands, sizeof(operands));
	sender.view.atomic_sge() = {0x3000, 8, 7};
	REQUIRE(sender.parse() == PEAL_REASON_NONE);
	CHECK(sender.send.atomic.compare_add == operands.compare_add);
	CHECK(sender.send.atomic.swap == operands.swap);
	CHECK(sender.send.sge[0].addr == 0x3000);
	CHECK(sender.send.sge[0].lkey == 7);
	CHECK(sender.send.length == 8);
}

TEST_CASE("a bind refuses every bit of its reserved field", "[wqe]")
{
	for (unsigned bit = 0; bit < 32; ++bit) {
		Sender sender(bit % 2 ? PEAL_OP_REG_MR : PEAL_OP_BIND_MW);

		sender.view.bind().reserved = 1U << bit;
		CAPTURE(bit);
		CHECK(sender.parse() == PEAL_REASON_WQE_RESERVED);
	}
}

TEST_CASE("the values of a bind arrive", "[wqe]")
{
	Sender sender(PEAL_OP_BIND_MW);
	const peal_bind_seg bind = {~0ULL, 0x123456789a, 1, 2, 3, 0};

	sender.view.bind() = bind;
	REQUIRE(sender.parse() == PEAL_REASON_NONE);
	CHECK(std::memcmp(&sender.send.bind, &bind, sizeof(bind)) == 0);
	CHECK(sender.send.length == 0);
}

TEST_CASE("bytes behind the header of a local invalidation are ignored", "[wqe]")
{
	Sender sender(PEAL_OP_LOCAL_INV);

	std::memset(sender.memory.data() + 32, 0xff, sender.caps.stride() - 32);
	sender.view.header().imm_or_rkey = 0x42;
	REQUIRE(sender.parse() == PEAL_REASON_NONE);
	CHECK(sender.send.imm_or_rkey == 0x42);
	CHECK(sender.send.length == 0);
}

TEST_CASE("parsing a send WQE leaves its index to the caller", "[wqe]")
{
	Sender sender;

	sender.send.index = 0xdeadbeef;
	CHECK(sender.parse() == PEAL_REASON_NONE);
	CHECK(sender.send.index == 0xdeadbeef);
}

TEST_CASE("an opcode that the transport does not carry is refused", "[wqe]")
{
	const struct {
		std::uint32_t refused;
		std::set<unsigned> allowed;
	} transports[] = {
		{peal_ops_refused(PEAL_RC, true), {known.begin(), known.end()}},
		{peal_ops_refused(PEAL_XRC, true), {known.begin(), known.end()}},
		{peal_ops_refused(PEAL_NO_TRANSPORT, false), {PEAL_OP_SEND}},
		{peal_ops_refused(PEAL_UC, true),
		 {PEAL_OP_SEND, PEAL_OP_SEND_IMM, PEAL_OP_WRITE, PEAL_OP_WRITE_IMM, PEAL_OP_BIND_MW,
		  PEAL_OP_LOCAL_INV, PEAL_OP_REG_MR}},
		{peal_ops_refused(PEAL_RC, false), {known.begin(), known.end() - 1}},
		{peal_ops_refused(PEAL_UD, false), {PEAL_OP_SEND, PEAL_OP_SEND_IMM}},
	};

	for (const auto &transport : transports) {
		for (unsigned opcode : known) {
			Sender sender(opcode);

			CAPTURE(transport.refused, opcode);
			sender.limits.refused = transport.refused;
			CHECK(sender.parse() == (transport.allowed.count(opcode)
							 ? PEAL_REASON_NONE
							 : PEAL_REASON_WQE_OPCODE));
		}
	}
}

TEST_CASE("a message of XRC names a shared receive queue", "[wqe]")
{
	Sender sender(PEAL_OP_SEND_IMM);
	auto &wqe = sender.view.header();

	sender.limits.max_target = PEAL_NUMBER_MAX;
	for (const u32 srqn : {0U, 1U, 0xffffffU}) {
		wqe.srqn = srqn;
		CHECK(sender.parse() == PEAL_REASON_NONE);
		CHECK(sender.send.srqn == srqn);
	}
	wqe.srqn = 0x1000000;
	CHECK(sender.parse() == PEAL_REASON_WQE_RESERVED);
}

TEST_CASE("a datagram names its destination, other messages name none", "[wqe]")
{
	Sender sender(PEAL_OP_SEND_IMM);
	auto &wqe = sender.view.header();

	wqe.ah_index = 7;
	CHECK(sender.parse() == PEAL_REASON_WQE_RESERVED);
	sender.limits.datagram = true;
	sender.limits.max_target = 0xffffffff;
	wqe.ud = {0x00ffffff, 0x80000001};
	CHECK(sender.parse() == PEAL_REASON_NONE);
	CHECK(sender.send.ah_index == 7);
	CHECK(sender.send.ud.qpn == 0x00ffffff);
	CHECK(sender.send.ud.qkey == 0x80000001);
	wqe.ah_index = 0;
	CHECK(sender.parse() == PEAL_REASON_WQE_AH);
	wqe.ah_index = 1;
	wqe.ud.qpn = 0xff123456;
	CHECK(sender.parse() == PEAL_REASON_NONE);
	CHECK(sender.send.ud.qpn == 0x123456);
	wqe.rkey = 1;
	CHECK(sender.parse() == PEAL_REASON_WQE_RESERVED);
}
