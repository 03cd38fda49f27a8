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
	int dummy = 0;
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
	/* Its completions still give slots of a shared receive queue back. */
	CHECK(table.find(3, 17) == &first);
	CHECK(table.find(3, 18) == &second);
	CHECK(table.find(3, 19) == nullptr);
	table.remove(3, &first);
	CHECK(table.find(3, 17) == nullptr);
	CHECK(table.find(3, 18) == &second);
}

TEST_CASE("several owners of an index that are not forgotten yet")
{
	QpTable table;
	Qp owner[4];

	for (std::uint32_t i = 0; i < 4; ++i)
		table.insert(3, 17 + i, &owner[i]);
	for (const std::uint32_t gone : {1U, 3U, 0U, 2U}) {
		for (std::uint32_t i = 0; i < 4; ++i)
			CHECK((table.find(3, 17 + i) == &owner[i]) == (owner[i].dummy == 0));
		table.remove(3, &owner[gone]);
		owner[gone].dummy = 1;
	}
	for (std::uint32_t i = 0; i < 4; ++i)
		CHECK(table.find(3, 17 + i) == nullptr);
}

namespace {

/* What the provider shares between threads, with queue pairs of one index, one after the other. */
struct OneIndex {
	static constexpr std::uint32_t index = 3;
	SharedPair shared{8};
	CqPair cq{8};
	Lock cq_lock{true};
	QpTable table;

	void poll()
	{
		std::lock_guard guard(cq_lock);

		while (const peal_cqe *cqe = cq.user.peek()) {
			if (table.find(cqe->qp_index, cqe->qp_num))
				shared.user.complete(cqe->wqe_index);
			cq.user.advance();
		}
		cq.user.publish();
	}
	/* As the provider does when the kernel has destroyed the queue pair. */
	void forget(std::uint32_t number, const Qp &qp)
	{
		std::lock_guard guard(cq_lock);

		cq.user.for_each([&](const peal_cqe &cqe) {
			if (cqe.qp_num == number)
				shared.user.complete(cqe.wqe_index);
		});
		table.remove(index, &qp);
		cq.user.drop(
			[&](const peal_cqe &cqe) { return !table.find(cqe.qp_index, cqe.qp_num); });
	}
	bool post()
	{
		if (!shared.user.claim(shared.user.head(), 0))
			return false;
		shared.user.publish(shared.user.head() + 1);
		return true;
	}
	/* The kernel completes a receive of queue pair `number`. */
	void receive(std::uint32_t number)
	{
		peal_cqe cqe{};

		cqe.qp_index = index;
		cqe.qp_num = number;
		cqe.kind = PEAL_CQE_RECV;
		cqe.wqe_index = shared.take();
		kernel_cq_push(cq.kernel.get(), &cqe);
	}
};

} // namespace

/* One thread destroys queue pairs, another makes the next ones of that index, and a third polls. */
TEST_CASE("no slot is lost when queue pairs follow each other on one index", "[threads]")
{
	constexpr std::uint32_t rounds = 20'000 / SLOWDOWN;
	OneIndex device;
	std::vector<Qp> qps(rounds + 1);
	/* Queue pairs that the kernel, and the provider, have let go. */
	std::atomic<std::uint32_t> gone = 0, forgotten = 0;
	std::atomic<bool> done = false, stuck = false;
	std::uint32_t lost_at = 0;

	std::thread poller([&] {
		while (!done)
			device.poll();
	});
	std::thread destroyer([&] {
		for (std::uint32_t i = 0; i < rounds && !stuck; ++i) {
			stuck = !eventually([&] { return gone > i || done; });
			if (gone <= i)
				break;
			device.forget(100 + i, qps[i]);
			++forgotten;
		}
	});
	device.table.insert(device.index, 100, &qps[0]);
	for (std::uint32_t i = 0; i < rounds && !lost_at && !stuck; ++i) {
		/* Every slot is free again when all older queue pairs are forgotten. */
		for (std::uint32_t n = 0; n < 8 && !lost_at; ++n)
			if (!device.post())
				lost_at = i + 1;
		for (std::uint32_t n = 0; n < 8 && !lost_at; ++n)
			device.receive(100 + i);
		gone = i + 1;
		device.table.insert(device.index, 100 + i + 1, &qps[i + 1]);
		if (!eventually([&] { return forgotten > i || stuck; }))
			stuck = true;
	}
	done = true;
	poller.join();
	destroyer.join();
	CHECK(lost_at == 0);
	CHECK_FALSE(stuck);
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
