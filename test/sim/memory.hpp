// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The registered memory of one endpoint, and the right contents of each byte in it.
 *
 * Owns: regions with keys and rights. Each region has granted ranges, with guard
 * bytes between them. A range knows its right contents, which are the pattern of its
 * message up to where it was legitimately written, and guard bytes behind that.
 * Does not know: queue pairs, packets.
 */
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "core.hpp"
#include "pattern.hpp"
#include "random.hpp"

namespace peal::sim {

enum Right : u32 { MAY_WRITE = 1, MAY_READ = 2, MAY_ATOMIC = 4 };

/* A range that one message, or one receive, may use. */
struct Range {
	u64 addr = 0, bytes = 0;
	u64 id = CANARY;     /* pattern of the present contents */
	u64 written = 0;     /* bytes that have the pattern */
	u64 dirty = 0;	     /* behind them, bytes up to here are undefined */
	bool source = false; /* filled at the beginning and never written */
	bool words = false;  /* words of atomics, which the words' own oracle checks */
	u8 *at = nullptr;
};

class Region {
	std::vector<std::unique_ptr<u8[]>> chunks_; /* one for each range, with guards around it */
	std::deque<Range> ranges_;

	friend class Memory;

public:
	u32 key = 0;
	u64 base = 0, end = 0;
	u32 rights = 0;
	bool valid = true;
};

class Memory {
	Random *random_;
	std::deque<Region> regions_;

	Range *find(Region *region, u64 addr, u64 bytes);

public:
	explicit Memory(Random &random) : random_(&random) {}

	Region *add_region(u32 rights);
	Range *grant(Region *region, u64 bytes, u64 alignment = 1);
	Region *region(u32 key);
	/* Return: whether this is a valid key with this right that covers these bytes. */
	bool allows(u32 key, u64 addr, u64 bytes, u32 right);
	/* Return: the bytes, or nullptr when they do not lie in one range. */
	u8 *at(u32 key, u64 addr, u64 bytes);
	/* Check every byte. Throws a Violation. */
	void sweep(const char *whose);
};

} // namespace peal::sim
