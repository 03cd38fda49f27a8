// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * false_ping serve DEVICE HOW, false_ping ask DEVICE ADDRESS: an end of "peal ping" that does
 * something wrong, to see whether the right end notices. It is a program of libpeal that knows the
 * notes and the bytes of a round.
 *
 * A server has one client. HOW is "read" (a byte of a READ is wrong), "value" (an atomic finds
 * another value than announced), "silent" (it never answers), "garbage" (its answers are no notes),
 * "nothing" (it shares no memory), or "ends" (it closes the connection instead of answering, and
 * serves the next client well, except that it takes no SEND).
 *
 * A client does one thing wrong in each round, and fails unless the server finds just that.
 */
#include <peal/peal.hpp>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "../../../userspace/tools/ping_protocol.hpp"

using namespace peal::tool;
using namespace std::chrono_literals;

namespace {

constexpr auto patience = 30s;
constexpr std::uint64_t longest = 65536;

[[noreturn]] void die(const std::string &why)
{
	std::fprintf(stderr, "false_ping: %s\n", why.c_str());
	std::exit(1);
}

template <class T>
T must(peal::result<T> made)
{
	if (!made)
		die(made.why());
	return std::move(made).value();
}

void post(peal::connection &line, const std::function<void(peal::batch &)> &add)
{
	auto batch = line.batch();

	add(batch);
	if (auto posted = batch.commit(); !posted)
		die(posted.why());
	if (auto done = line.wait(1, patience); !done)
		die(done.why());
}

void send(peal::connection &line, const Note &note)
{
	const auto bytes = pack(note);

	post(line, [&](peal::batch &batch) { batch.send_inline(bytes); });
}

Note receive(peal::connection &line)
{
	const auto note = unpack(must(line.recv(patience)).bytes());

	if (!note)
		die("what came is no note");
	return *note;
}

std::span<std::byte> used_of(peal::memory<std::byte> &area, const Round &round)
{
	return {area.data(), GUARD + round.size + GUARD};
}

/* ---- a server ---- */

/* Until the client goes. */
void serve(peal::connection &line, peal::memory<std::byte> &area, const std::string &how)
{
	for (;;) {
		auto came = line.recv(patience);
		const auto note = came ? unpack(came->bytes()) : std::nullopt;

		if (!note || how == "ends")
			return;
		if (how == "silent") {
			/* Until the client has lost its patience. */
			(void)line.recv(patience);
			return;
		}
		if (how == "garbage") {
			post(line, [](peal::batch &batch) { batch.send_imm(7); });
			continue;
		}
		const Round &round = note->round;
		if (note->kind == NoteKind::CHECK) {
			send(line, {.kind = NoteKind::RIGHT});
			continue;
		}
		if (is_atomic(round.operation))
			lay_out_value(used_of(area, round), round,
				      round.value_before() + (how == "value"));
		else
			lay_out(used_of(area, round), round);
		if (how == "read")
			area[GUARD + 1000] ^= std::byte{1};
		send(line, {.kind = NoteKind::READY});
	}
}

/* ---- a client ---- */

struct Fault {
	const char *name;
	Operation operation;
	std::uint64_t size;
	/* Executes the operation in a wrong way. */
	std::function<void(peal::batch &, peal::memory<std::byte> &, const peal::region &,
			   const Round &)>
		execute;
	NoteKind expected;
	std::int64_t offset;
	std::uint64_t wrong; /* 0: any number */
};

const Fault faults[] = {
	{"a byte of a WRITE", Operation::WRITE, 10000,
	 [](peal::batch &post, auto &area, auto &peer, auto &round) {
		 area[GUARD + 4999] ^= std::byte{1};
		 post.write(area.part(GUARD, round.size), peer.at(GUARD));
	 },
	 NoteKind::WRONG_BYTES, 4999, 1},
	{"a WRITE that is too long", Operation::WRITE, 100,
	 [](peal::batch &post, auto &area, auto &peer, auto &round) {
		 area[GUARD + round.size] ^= std::byte{1};
		 post.write(area.part(GUARD, round.size + 1), peer.at(GUARD));
	 },
	 NoteKind::WRONG_BYTES, 100, 1},
	{"a WRITE that begins too early", Operation::WRITE, 100,
	 [](peal::batch &post, auto &area, auto &peer, auto &round) {
		 area[GUARD - 3] ^= std::byte{1};
		 post.write(area.part(GUARD - 3, round.size + 3), peer.at(GUARD - 3));
	 },
	 NoteKind::WRONG_BYTES, -3, 1},
	{"a WRITE that never came", Operation::WRITE, 65536,
	 [](peal::batch &post, auto &area, auto &peer, auto &) {
		 post.write(area.part(0, 1), peer.at(0));
	 },
	 NoteKind::WRONG_BYTES, 0, 65536},
	{"the length of a WRITE_WITH_IMM", Operation::WRITE_WITH_IMM, 100,
	 [](peal::batch &post, auto &area, auto &peer, auto &round) {
		 post.write_imm(area.part(GUARD, round.size - 1), peer.at(GUARD), round.imm());
	 },
	 NoteKind::WRONG_LENGTH, 0, 0},
	{"a byte of a SEND", Operation::SEND, 4097,
	 [](peal::batch &post, auto &area, auto &, auto &round) {
		 area[GUARD + 4096] ^= std::byte{1};
		 post.send(area.part(GUARD, round.size));
	 },
	 NoteKind::WRONG_BYTES, 4096, 1},
	{"the length of a SEND", Operation::SEND, 64,
	 [](peal::batch &post, auto &area, auto &, auto &round) {
		 post.send(area.part(GUARD, round.size + 1));
	 },
	 NoteKind::WRONG_LENGTH, 0, 0},
	{"the immediate value of a SEND", Operation::SEND_WITH_IMM, 64,
	 [](peal::batch &post, auto &area, auto &, auto &round) {
		 post.send_imm(area.part(GUARD, round.size), round.imm() + 1);
	 },
	 NoteKind::WRONG_IMM, 0, 0},
	{"what a FETCH_ADD adds", Operation::FETCH_ADD, 8,
	 [](peal::batch &post, auto &area, auto &peer, auto &round) {
		 post.fetch_add(area.part(GUARD, 8), peer.at(GUARD), round.operand() - 1);
	 },
	 NoteKind::WRONG_BYTES, 0, 0},
	{"what a COMPARE_SWAP compares with", Operation::COMPARE_SWAP, 8,
	 [](peal::batch &post, auto &area, auto &peer, auto &round) {
		 post.compare_swap(area.part(GUARD, 8), peer.at(GUARD), round.compared() ^ 1,
				   round.operand());
	 },
	 NoteKind::WRONG_BYTES, 0, 0},
};

void ask(peal::connection &line, peal::memory<std::byte> &area)
{
	std::uint64_t seed = 1000;

	for (const auto &fault : faults) {
		const Round round{fault.operation, fault.size, seed += 2};

		send(line, {.kind = NoteKind::PREPARE, .round = round});
		if (receive(line).kind != NoteKind::READY)
			die("the server is not ready");
		lay_out(used_of(area, round), round);
		post(line,
		     [&](peal::batch &batch) { fault.execute(batch, area, line.peer(), round); });
		send(line, {.kind = NoteKind::CHECK, .round = round});
		const Note verdict = receive(line);
		/* The byte of a value that differs depends on the order of the host. */
		if (verdict.kind != fault.expected ||
		    (!is_atomic(fault.operation) && verdict.mismatch.offset != fault.offset) ||
		    (fault.wrong && verdict.mismatch.wrong != fault.wrong))
			die(std::string(fault.name) + ": the server says " +
			    std::to_string(static_cast<int>(verdict.kind)) + ", offset " +
			    std::to_string(verdict.mismatch.offset) + ", " +
			    std::to_string(verdict.mismatch.wrong) + " wrong bytes");
		std::printf("noticed: %s\n", fault.name);
	}
	send(line, {.kind = NoteKind::PREPARE, .round = {Operation::WRITE, line.peer().size(), 1}});
	if (receive(line).kind != NoteKind::REFUSED)
		die("the server takes a message that is too long");
}

} // namespace

int main(int argc, char **argv)
{
	const peal::options queues{.sends = 1, .receives = 2, .receive_bytes = longest};
	const std::string role = argc == 4 ? argv[1] : "";

	if (role != "serve" && role != "ask")
		die("type serve DEVICE HOW, or ask DEVICE ADDRESS");
	auto device = must(peal::open(argv[2]));
	auto area = must(device.alloc<std::byte>(
		longest + 2 * GUARD, peal::remote_write | peal::remote_read | peal::remote_atomic));
	if (role == "ask") {
		auto line = must(device.connect(argv[3], PING_PORT, {}, patience, queues));

		ask(line, area);
		return 0;
	}
	const std::string how = argv[3];
	std::optional listener = must(device.listen(PING_PORT));
	const auto shared = how == "nothing" ? peal::region() : area.share();
	auto line = must(listener->accept(shared, patience, queues));
	/* So that the client finds no program if it connects again. */
	if (how != "ends")
		listener.reset();
	serve(line, area, how);
	if (how == "ends") {
		line.close();
		line = must(listener->accept(shared, patience, queues));
		serve(line, area, "rightly");
	}
	return 0;
}
