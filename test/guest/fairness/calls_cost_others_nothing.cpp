// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
// transport: direct
/*
 * The calls of one program cost other programs nothing beside the time that they take.
 *
 * Holds: Closing a context waits for no grace period, so it interrupts no other CPU. Destroying a
 * completion queue does not wait for other CPUs. A kick takes only the locks of queue pairs that
 * send to a queue pair of its caller.
 * Does not hold: how long a kick lasts (fairness/kick_is_bounded), how CPUs are shared
 * (fairness/pollers_share_cpus).
 */
#include "raw.hpp"
#include "tracing.hpp"

using namespace peal_test;

namespace {

constexpr std::uint64_t rounds = 50;

/* Return: how often this thread takes the lock of a send queue while it kicks as a receiver. */
std::uint64_t locks_taken(const RawContext &context, const RawQp &qp)
{
	const EventCount locks("lock/lock_acquire", "name == \"&sq->lock\"");

	for (std::uint64_t i = 0; i < rounds; i++)
		must(context.kick(PEAL_KICK_RECV, qp.index()), "kick");
	return locks.value();
}

} // namespace

TEST_CASE("closing a context waits for no grace period")
{
	Device device;
	const Probe expedited("synchronize_rcu_expedited"), normal("synchronize_rcu");

	if (!expedited || !normal)
		SKIP_CASE("this kernel has no kprobes");
	const EventCount interrupts(expedited.event()), waits(normal.event());
	for (std::uint64_t i = 0; i < rounds; i++)
		const RawContext context;
	CHECK(interrupts.value() == 0);
	CHECK(waits.value() == 0);
}

TEST_CASE("destroying a completion queue does not wait for other CPUs")
{
	Device device;
	const Probe destroy("peal_cq_destroy"), wait("peal_epoch_wait");

	if (!destroy || !wait)
		SKIP_CASE("this kernel has no kprobes");
	const EventCount destroyed(destroy.event()), waits(wait.event());
	for (std::uint64_t i = 0; i < rounds; i++)
		const Cq cq = create_cq(device, 16);
	CHECK(destroyed.value() == rounds);
	CHECK(waits.value() == 0);
}

TEST_CASE("a kick leaves the queue pairs of others alone")
{
	if (!has_event("lock/lock_acquire"))
		SKIP_CASE("only kernels with lockdep count locks");
	Device device;
	RawContext mine, theirs;
	RawQp victim(theirs, device);
	RawQp to_victim(mine, device, {.peer = victim.number()});
	RawQp to_itself(mine, device);

	CHECK(locks_taken(mine, to_victim) == 0);
	CHECK(locks_taken(mine, to_itself) == rounds);
}
