// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The end of "peal ping" that answers. Each client has a thread with memory of its own, so that one
 * that stops keeps no other waiting.
 *
 * Owns: threads and memory of clients, and the verdict on what came.
 * Does not know: which bytes a round has.
 */
#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <span>
#include <thread>

#include "formatted.hpp"
#include "ping_line.hpp"
#include "ping_module.hpp"

namespace peal::tool {

namespace {

using namespace std::chrono_literals;

/* More would let anybody use up the memory that this user may register. */
constexpr unsigned MOST_CLIENTS = 16;
/* A client that is silent for longer has gone without a word. */
constexpr double SILENCE = PING_LONGEST_INTERVAL + PING_LONGEST_TIMEOUT;

/* Threads print whole lines. */
void say(const std::string &line)
{
	print("{}\n", line);
	std::fflush(stdout);
}

/* The clients that have a thread. */
class Clients {
public:
	void begin()
	{
		const std::lock_guard guard(lock);

		count++;
	}
	void end()
	{
		const std::lock_guard guard(lock);

		count--;
		changed.notify_all();
	}
	void wait_below(unsigned limit)
	{
		std::unique_lock guard(lock);

		changed.wait(guard, [&] { return count < limit; });
	}
	unsigned number()
	{
		const std::lock_guard guard(lock);

		return count;
	}

private:
	std::mutex lock;
	std::condition_variable changed;
	unsigned count = 0;
};

/* One client, and what has been done for it. */
class Session {
public:
	Session(memory<std::byte> area, connection connected)
		: area(std::move(area)), line(std::move(connected), "the client", SILENCE)
	{
	}

	/* Until it ends. */
	void serve()
	{
		const auto name = gid_text(line->peer_gid());
		std::string end;

		try {
			for (;;)
				serve_round();
		} catch (const LineFailure &failure) {
			/* Clients close when they are ready. */
			if (!failure.ended || in_round)
				end = formatted("; {}", failure.what());
		} catch (const NotPing &) {
			end = "; it is no \"peal ping\" of this version, so install one version on "
			      "both "
			      "hosts";
		} catch (const std::exception &failure) {
			end = formatted("; {}", failure.what());
		}
		say(formatted("{}: {} operations, {}{}", name, rounds,
			      wrong ? formatted("{} with wrong bytes", wrong) : "every byte right",
			      end));
	}

private:
	void serve_round()
	{
		const Note wanted = line.receive_note();
		const Round &round = wanted.round;
		const std::uint64_t longest = area.size() - 2 * GUARD;
		std::optional<message> came;

		if (wanted.kind != NoteKind::PREPARE || !round.size || round.size > longest ||
		    (is_atomic(round.operation) && round.size != ATOMIC_SIZE))
			return line.send({.kind = NoteKind::REFUSED});
		in_round = true;
		const auto used = std::span(area.data(), GUARD + round.size + GUARD);
		if (is_atomic(round.operation))
			lay_out_value(used, round, round.value_before());
		else if (round.operation == Operation::READ)
			lay_out(used, round);
		else
			lay_out_wrong(used, round);
		line.send({.kind = NoteKind::READY});
		if (takes_receive(round.operation))
			came = line.receive();
		if (line.receive_note().kind != NoteKind::CHECK)
			return line.send({.kind = NoteKind::REFUSED});
		const Note verdict = judge(round, used, came);
		in_round = false;
		rounds++;
		wrong += verdict.kind != NoteKind::RIGHT;
		line.send(verdict);
	}

	/* Return: whether every byte, the length and the immediate value are those of the round. */
	static Note judge(const Round &round, std::span<const std::byte> used,
			  const std::optional<message> &came)
	{
		const std::uint64_t length = !came			? round.size
					     : is_send(round.operation) ? came->bytes().size()
									: came->written();
		Note verdict{.kind = NoteKind::RIGHT};

		if (length != round.size) {
			verdict.kind = NoteKind::WRONG_LENGTH;
			verdict.mismatch = {.expected = round.size, .found = length};
			return verdict;
		}
		if (has_imm(round.operation) && came->imm() != round.imm()) {
			verdict.kind = NoteKind::WRONG_IMM;
			verdict.mismatch = {.expected = round.imm(),
					    .found = came->imm().value_or(0)};
			return verdict;
		}
		const auto mismatch = is_send(round.operation)
					      ? compare_message(came->bytes(), round)
				      : is_atomic(round.operation)
					      ? compare_value(used, round, round.value_after())
					      : compare(used, round);
		if (mismatch) {
			verdict.kind = NoteKind::WRONG_BYTES;
			verdict.mismatch = *mismatch;
		}
		return verdict;
	}

	memory<std::byte> area;
	Line line;
	bool in_round = false;
	std::uint64_t rounds = 0, wrong = 0;
};

} /* namespace */

void serve_pings(const PingRequest &request)
{
	auto longest = PING_LONGEST;
	auto device = open(request.device.empty() ? nullptr : request.device.c_str());
	Clients clients;

	if (request.sizes.size() > 1)
		throw WrongUse("with --listen, type one --size: that of the longest message");
	if (!request.sizes.empty())
		longest = std::max(read_size(request.sizes[0]), ATOMIC_SIZE);
	if (!device)
		throw Failure(device.why());
	auto listener = device->listen(request.port);
	if (!listener)
		throw Failure(listener.why());
	const auto given =
		remote_write | remote_read | (device->has_atomics() ? remote_atomic : rights::none);
	say(formatted("{} answers on port {}; type \"peal ping ADDRESS\" on another host, and "
		      "^C here to end",
		      device->name(), listener->port()));
	for (;;) {
		clients.wait_below(MOST_CLIENTS);
		auto area = device->alloc<std::byte>(longest + 2 * GUARD, given);
		auto connected = area ? listener->accept(area->share(), 1h, queues_for(longest))
				      : result<connection>(area.failure());

		if (connected) {
			clients.begin();
			std::thread(
				[&clients](memory<std::byte> own, connection client) {
					Session(std::move(own), std::move(client)).serve();
					clients.end();
				},
				std::move(area).value(), std::move(connected).value())
				.detach();
			continue;
		}
		if (connected.code() == ETIMEDOUT)
			continue;
		/* Perhaps the others use all memory that this user may register. */
		const bool gone = connected.code() == ENODEV || connected.code() == EIO;
		const auto others = clients.number();
		if (gone || !others) {
			clients.wait_below(1);
			throw Failure(connected.why());
		}
		say(formatted("no other client is served until one ends: {}", connected.why()));
		clients.wait_below(others);
	}
}

} /* namespace peal::tool */
