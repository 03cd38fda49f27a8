// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Parts of the provider that need neither libibverbs nor a device. */
#include <sys/mman.h>

#include <thread>
#include <vector>

#include "../../userspace/provider/entry.hpp"
#include "../../userspace/provider/lock.hpp"
#include "../../userspace/provider/mapping.hpp"
#include "../../userspace/provider/qp_table.hpp"
#include "catch.hpp"
#include "shared_memory.hpp"

/* The table never looks inside. */
struct peal::Qp {
	int dummy;
};

using namespace peal;
using namespace peal::test;

TEST_CASE("a stale CQE finds neither a destroyed queue pair nor its successor")
{
	QpTable table;
	Qp first, second;

	table.insert(3, 17, &first);
	CHECK(table.find(3, 17) == &first);
	table.remove(3, &first);
	CHECK(table.find(3, 17) == nullptr);
	table.insert(3, 18, &second);
	CHECK(table.find(3, 17) == nullptr);
	CHECK(table.find(3, 18) == &second);
}

TEST_CASE("an index that is used again before its last owner is forgotten")
{
	QpTable table;
	Qp first, second;

	table.insert(3, 17, &first);
	table.insert(3, 18, &second);
	table.remove(3, &first);
	CHECK(table.find(3, 17) == nullptr);
	CHECK(table.find(3, 18) == &second);
}

TEST_CASE("a scribbled CQE finds nothing")
{
	QpTable table;

	CHECK(table.find(0, 0) == nullptr);
	CHECK(table.find(PEAL_MAX_QP, 0) == nullptr);
	CHECK(table.find(~0U, ~0U) == nullptr);
}

TEST_CASE("the queue lock excludes, unless the program is single-threaded", "[threads]")
{
	constexpr int rounds = 200'000 / SLOWDOWN;
	Lock lock(true);
	int counter = 0;
	std::vector<std::thread> threads;

	for (int i = 0; i < 3; ++i)
		threads.emplace_back([&] {
			for (int n = 0; n < rounds; ++n) {
				lock.lock();
				++counter;
				lock.unlock();
			}
		});
	for (auto &thread : threads)
		thread.join();
	CHECK(counter == 3 * rounds);

	Lock none(false);
	none.lock();
	CHECK(none.try_lock());
}

namespace {

int throws_system_error(int error)
{
	throw_errno(error);
}

int *throws_bad_alloc()
{
	throw std::bad_alloc();
}

int throws_something()
{
	throw 42;
}

} // namespace

TEST_CASE("exceptions become errno values at the edge to C")
{
	CHECK(entry<&throws_system_error>(ENOTTY) == ENOTTY);
	CHECK(entry<&throws_something>() == EIO);
	errno = 0;
	CHECK(entry<&throws_bad_alloc>() == nullptr);
	CHECK(errno == ENOMEM);
}

TEST_CASE("a mapping that fails throws the errno of mmap")
{
	CHECK_THROWS_AS(Mapping(-1, 0, 4096), std::system_error);
}

TEST_CASE("a rollback runs unless it is dismissed")
{
	int undone = 0;

	{
		Rollback undo([&] { ++undone; });
	}
	CHECK(undone == 1);
	{
		Rollback undo([&] { ++undone; });
		undo.dismiss();
	}
	CHECK(undone == 1);
}
