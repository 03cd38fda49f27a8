// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Counts allocations, and lets them fail. These operators have a file of their own, so that the
 * compiler does not see through them elsewhere.
 */
#include <cstdlib>
#include <new>

#include "fake.hpp"

namespace {

thread_local bool counting;
thread_local unsigned allocations;
thread_local bool failing;

} // namespace

namespace fake {

thread_local unsigned calls;

void count_allocation()
{
	if (counting)
		++allocations;
}

CountAllocations::CountAllocations()
{
	allocations = 0;
	counting = true;
}

CountAllocations::~CountAllocations()
{
	counting = false;
}

unsigned CountAllocations::count() const
{
	return allocations;
}

FailAllocations::FailAllocations()
{
	failing = true;
}

FailAllocations::~FailAllocations()
{
	failing = false;
}

} // namespace fake

/* All of them, because the address sanitizer has its own for those that are left out. */
void *operator new(std::size_t size, const std::nothrow_t &) noexcept
{
	if (!fake::calls)
		fake::count_allocation();
	if (failing && !fake::calls)
		return nullptr;
	return std::malloc(size ? size : 1);
}

void *operator new(std::size_t size)
{
	if (void *memory = operator new(size, std::nothrow))
		return memory;
	throw std::bad_alloc();
}

void *operator new[](std::size_t size)
{
	return operator new(size);
}

void *operator new[](std::size_t size, const std::nothrow_t &how) noexcept
{
	return operator new(size, how);
}

void operator delete(void *memory) noexcept
{
	std::free(memory);
}

void operator delete(void *memory, std::size_t) noexcept
{
	std::free(memory);
}

void operator delete[](void *memory) noexcept
{
	std::free(memory);
}

void operator delete[](void *memory, std::size_t) noexcept
{
	std::free(memory);
}
