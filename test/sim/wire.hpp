// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The transport headers as the strict peer reads and writes them. They are written again
 * from IBTA 9.2 to 9.4 and A19, so that they do not repeat a mistake of the core.
 *
 * Owns: the conversion of bytes to values and back. Does not know: the core's packet.c.
 */
#pragma once
#include <optional>
#include <vector>

#include "core.hpp"

namespace peal::sim {

struct Wire {
	u8 opcode = 0;
	bool solicited = false, ack_request = false;
	u32 qpn = 0, psn = 0;
	u64 addr = 0;
	u32 key = 0, length = 0;	   /* RETH; key is also in AtomicETH */
	u8 placement = 0, selectivity = 0; /* FETH */
	u64 swap_add = 0, compare = 0;	   /* AtomicETH */
	u8 syndrome = 0;		   /* AETH */
	u32 msn = 0;
	u64 original = 0; /* AtomicAckETH */
	u32 imm = 0;	  /* ImmDt as it is on the wire; IETH in host order */
	std::vector<u8> payload;

	bool flush() const { return opcode == 28; }
	bool atomic_write() const { return opcode == 29; }
	bool places() const { return flush() || atomic_write(); }
	bool reth() const
	{
		return opcode == 6 || opcode == 10 || opcode == 11 || opcode == 12 || places();
	}
	bool atomic() const { return opcode == 19 || opcode == 20; }
	bool aeth() const { return opcode == 13 || (opcode >= 15 && opcode <= 18); }
	bool has_imm() const { return opcode == 3 || opcode == 5 || opcode == 9 || opcode == 11; }
	bool has_ieth() const { return opcode == 22 || opcode == 23; }
	bool request() const { return opcode <= 12 || opcode >= 19; }
	bool sends() const { return opcode <= 5 || has_ieth(); }
	bool writes() const { return opcode >= 6 && opcode <= 11; }
	bool first() const { return opcode == 0 || opcode == 6 || only(); }
	bool only() const
	{
		return opcode == 4 || opcode == 5 || opcode == 10 || opcode == 11 || opcode == 12 ||
		       opcode == 23 || atomic() || places();
	}
	bool last() const
	{
		return opcode == 2 || opcode == 3 || opcode == 8 || opcode == 9 || opcode == 22 ||
		       only();
	}

	/* BTH and the headers after it, without payload. */
	std::vector<u8> headers() const;
	/* Reads from the BTH to the end of the ICRC. Return: nothing when it is no packet of RC. */
	static std::optional<Wire> read(const u8 *bytes, size_t n);
};

} // namespace peal::sim
