// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See memory.hpp. A range is an allocation of its own with guards of random length, so
 * that neither a large region nor its growth costs anything.
 */
#include "memory.hpp"

#include "world.hpp"

namespace peal::sim {

constexpr u64 GUARD = 64;

Region *Memory::add_region(u32 rights)
{
	Region region;

	do {
		region.key = static_cast<u32>(random_->bits());
	} while (!region.key || this->region(region.key));
	/* At any address, sometimes close to the end of the address space. */
	region.base = random_->one_in(4) ? 0xfffffffff0000000 + random_->below(1 << 20)
					 : random_->bits() >> 2;
	region.end = region.base;
	region.rights = rights;
	regions_.push_back(std::move(region));
	return &regions_.back();
}

Range *Memory::grant(Region *region, u64 bytes, u64 alignment)
{
	Range range;

	range.addr = region->end + random_->below(GUARD / 2);
	range.addr += -range.addr & (alignment - 1);
	range.bytes = bytes;
	region->end = range.addr + bytes;
	region->chunks_.emplace_back(new u8[bytes + 2 * GUARD]);
	range.at = region->chunks_.back().get() + GUARD;
	pattern_fill(range.at - GUARD, CANARY, range.addr, bytes + 2 * GUARD);
	region->ranges_.push_back(range);
	return &region->ranges_.back();
}

Region *Memory::region(u32 key)
{
	for (Region &region : regions_)
		if (region.key == key)
			return &region;
	return nullptr;
}

bool Memory::allows(u32 key, u64 addr, u64 bytes, u32 right)
{
	Region *found = region(key);

	return found && found->valid && (found->rights & right) == right && addr >= found->base &&
	       addr <= found->end && bytes <= found->end - addr;
}

Range *Memory::find(Region *region, u64 addr, u64 bytes)
{
	auto &ranges = region->ranges_;
	size_t low = 0, high = ranges.size();

	/* Find the last range that begins at or before addr. */
	while (low < high) {
		size_t middle = (low + high) / 2;

		if (ranges[middle].addr <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low)
		return nullptr;
	Range &range = ranges[low - 1];
	u64 offset = addr - range.addr;

	return offset <= range.bytes && bytes <= range.bytes - offset ? &range : nullptr;
}

u8 *Memory::at(u32 key, u64 addr, u64 bytes)
{
	Region *found = region(key);
	Range *range = found ? find(found, addr, bytes) : nullptr;

	return range ? range->at + (addr - range->addr) : nullptr;
}

static void sweep_range(const Range &range, const char *whose)
{
	u64 good = range.source ? range.bytes : range.written;
	u64 dirty = std::max(good, range.dirty);

	if (!pattern_is(range.at - GUARD, CANARY, range.addr, GUARD) ||
	    !pattern_is(range.at + range.bytes, CANARY, range.addr + GUARD + range.bytes, GUARD))
		violation("%s: bytes next to a granted range were written", whose);
	if (range.words)
		return;
	if (good && !pattern_is(range.at, range.id, 0, good))
		violation("%s: %s of message %llx changed, or is not what was sent", whose,
			  range.source ? "source" : "destination", range.id);
	if (!range.source &&
	    !pattern_is(range.at + dirty, CANARY, range.addr + GUARD + dirty, range.bytes - dirty))
		violation("%s: message %llx wrote further than it came", whose, range.id);
}

void Memory::sweep(const char *whose)
{
	for (const Region &region : regions_)
		for (const Range &range : region.ranges_)
			sweep_range(range, whose);
}

} // namespace peal::sim
