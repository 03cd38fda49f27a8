// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The doorbell tells the kernel about all work, and no work is ever left undone. */
#include <atomic>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "fake_engine.hpp"

using namespace peal;
using namespace peal::test;

namespace {

/* Remembers its calls, and answers as it was told. */
struct RecordingKick {
	struct Log {
		int calls = 0;
		peal_kick kick = PEAL_KICK_SRQ;
		std::uint32_t index = 0;
		int answer = 0;
		peal_doorbell *removed = nullptr; /* its device goes before the answer */
	} * log;

	int operator()(peal_kick kick, std::uint32_t index) const
	{
		++log->calls;
		log->kick = kick;
		log->index = index;
		if (log->removed)
			log->removed->engine = PEAL_ENGINE_GONE;
		return log->answer;
	}
};

struct Fixture {
	Page page{sizeof(peal_doorbell)};
	peal_doorbell *db = reinterpret_cast<peal_doorbell *>(page.data());
	RecordingKick::Log log;
	BasicDoorbell<RecordingKick> doorbell{db, RecordingKick{&log}};

	Fixture() { db->engine = PEAL_ENGINE_ASLEEP; }
};

} // namespace

TEST_CASE("a sleeping engine is kicked and no bit is touched")
{
	Fixture f;

	REQUIRE(f.doorbell.ring(130) == 0);
	CHECK(f.log.calls == 1);
	CHECK(f.log.kick == PEAL_KICK_SEND);
	CHECK(f.log.index == 130);
	CHECK(f.db->bits[2] == 0);
}

TEST_CASE("an awake engine gets a bit and no kick")
{
	Fixture f;
	const std::uint32_t index = GENERATE(0U, 63U, 64U, 4095U, 4096U, PEAL_MAX_QP - 1U);

	f.db->engine = PEAL_ENGINE_AWAKE;
	for (int twice = 0; twice < 2; ++twice) {
		REQUIRE(f.doorbell.ring(index) == 0);
		CHECK(f.log.calls == 0);
		CHECK(f.db->bits[index / 64] == 1ULL << (index % 64));
	}
}

TEST_CASE("a removed device is gone, and so is a page that the kernel has not written yet")
{
	Fixture f;

	CHECK(!f.doorbell.gone());
	f.db->engine = PEAL_ENGINE_GONE;
	CHECK(f.doorbell.gone());
	*f.db = {};
	CHECK(f.doorbell.gone());
}

TEST_CASE("a WQE published when the device goes is accepted and may be flushed")
{
	Fixture f;

	f.log.answer = EIO;
	CHECK(f.doorbell.ring(5) == 0);
	CHECK(f.doorbell.kick(PEAL_KICK_RECV, 5) == 0);
	CHECK(f.log.calls == 2);
}

TEST_CASE("a kick flushes a WQE published before the program saw GONE")
{
	Fixture f;

	f.db->engine = PEAL_ENGINE_GONE;
	CHECK(f.doorbell.ring(5) == 0);
	CHECK(f.log.calls == 1);
	CHECK(f.log.kick == PEAL_KICK_SEND);
	CHECK(f.db->bits[0] == 0);
}

TEST_CASE("a queue pair that the removal has destroyed is no reason to refuse what was published")
{
	Fixture f;

	f.log.answer = ENOENT;
	f.log.removed = f.db;
	CHECK(f.doorbell.ring(5) == 0);
	f.db->engine = PEAL_ENGINE_ASLEEP;
	CHECK(f.doorbell.kick(PEAL_KICK_RECV, 5) == 0);
	CHECK(f.log.calls == 2);
}

TEST_CASE("an error of the kick is passed on")
{
	Fixture f;

	f.log.answer = ENOENT;
	CHECK(f.doorbell.ring(5) == ENOENT);
	CHECK(f.doorbell.kick(PEAL_KICK_RECV, 6) == ENOENT);
	CHECK(f.log.kick == PEAL_KICK_RECV);
	CHECK(f.log.index == 6);
}

TEST_CASE("a file that has no position is kicked by ioctl")
{
	int ends[2];

	REQUIRE(pipe(ends) == 0);
	/* The ioctl of a pipe. */
	CHECK(FileKick(ends[0])(PEAL_KICK_SEND, 3) == ENOTTY);
	close(ends[0]);
	close(ends[1]);
	CHECK(FileKick(-1)(PEAL_KICK_SEND, 3) == EBADF);
}

TEST_CASE("no work is left lying when the engine keeps falling asleep", "[threads]")
{
	constexpr std::uint32_t rounds = 100'000 / SLOWDOWN;
	const std::uint32_t users = GENERATE(1U, 2U, 3U);
	FakeEngine engine;
	std::atomic<bool> lost = false;
	std::vector<std::thread> threads;

	engine.start();
	for (std::uint32_t user = 0; user < users; ++user)
		/* Neighbours in a word, so that they set and clear each other's bits. */
		threads.emplace_back([&, index = 64 + user] {
			FakeEngine::Work &work = engine.work[index];

			for (std::uint32_t n = 1; n <= rounds && !lost; ++n) {
				if (n % 4)
					engine.await_awake();
				work.posted.store(n, std::memory_order_release);
				if (engine.doorbell.ring(index))
					lost = true;
				/* With two posts in a row, the second finds its own bit set. */
				if (n % 2 == 0 && !eventually([&] { return work.served == n; }))
					lost = true;
			}
		});
	for (auto &thread : threads)
		thread.join();
	engine.finish();
	INFO(engine.kicks << " kicks, " << engine.doorbells << " doorbells");
	CHECK_FALSE(lost);
	CHECK(engine.doorbells > 0);
	CHECK(engine.kicks > 0);
}

TEST_CASE("threads that share a queue pair leave no work lying", "[threads]")
{
	constexpr std::uint32_t rounds = 50'000 / SLOWDOWN;
	FakeEngine engine;
	FakeEngine::Work &work = engine.work[7];
	std::atomic<bool> lost = false;
	std::vector<std::thread> threads;

	engine.start();
	for (int user = 0; user < 3; ++user)
		threads.emplace_back([&] {
			for (std::uint32_t n = 0; n < rounds && !lost; ++n) {
				engine.await_awake();
				const std::uint32_t mine = ++work.posted;

				if (engine.doorbell.ring(7) ||
				    !eventually([&] { return work.served - mine < 0x80000000U; }))
					lost = true;
			}
		});
	for (auto &thread : threads)
		thread.join();
	engine.finish();
	CHECK_FALSE(lost);
	CHECK(work.served == 3 * rounds);
}
