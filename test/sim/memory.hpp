// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The registered memory of one endpoint, and what has to be in each byte of it.
 *
 * Owns: regions with keys and rights; in each region granted ranges, with guard
 * bytes between them. A range knows its right contents: the pattern of its
 * message up to where it was legitimately written, guard bytes behind.
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
	u64 id = CANARY;     /* pattern of what is there now, */
	u64 written = 0;     /* this far; */
	u64 dirty = 0;	     /* behind it nobody knows up to here, then guard bytes */
	bool source = false; /* filled at the beginning, never written */
	bool words = false;  /* atomics: the oracle of the words knows */
	u8 *at = nullptr;
};

class Region {
	std::vector<std::unique_ptr<u8[]>> chunks_; /* one per range, guards around it */
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
	/* A valid key with this right that covers these bytes? */
	bool allows(u32 key, u64 addr, u64 bytes, u32 right);
	/* @addr .. @addr + @bytes lie in one range; nullptr when they do not. */
	u8 *at(u32 key, u64 addr, u64 bytes);
	/* Every byte is as it has to be; throws a Violation. */
	void sweep(const char *whose);
};

} // namespace peal::sim
