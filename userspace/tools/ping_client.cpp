// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The end of "peal ping" that asks.
 *
 * Owns: the order of rounds, what happens after a failure, and the exit status.
 * Does not know: which bytes a round has, and how rows look.
 */
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <thread>

#include <nlohmann/json.hpp>

#include "formatted.hpp"
#include "module.hpp"
#include "ping_line.hpp"
#include "ping_module.hpp"
#include "ping_report.hpp"
#include "rdma.hpp"
#include "show.hpp"
#include "table.hpp"

namespace peal::tool {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

/* One byte, a part of a packet, packets, and trains of packets. */
constexpr std::uint64_t DEFAULT_SIZES[] = {1, 64, 4096, 65536, PING_LONGEST};

/* Return: "direct" or "wire", if the device is peal and the kernel tells. */
std::optional<std::string> path_of(const std::string &device, std::uint32_t qpn)
{
	std::optional<std::string> path;

	if (!Module::is_loaded())
		return {};
	try {
		Rdma().queue_pair(Module().device(device).index, qpn, [&](const Attributes &qp) {
			const auto values = driver_values(qp);
			if (const auto found = values.find("transport"); found != values.end())
				path = *found == "direct" ? "direct" : "wire";
		});
	} catch (const std::exception &) {
		/* It is a device of another kind, or it has gone. */
	}
	return path;
}

class Client {
public:
	explicit Client(const PingRequest &request)
		: request(request), operations(read_operations(request.operations)),
		  colours(wants_colours()), seed(std::random_device()())
	{
		for (const auto &size : request.sizes)
			sizes.push_back(read_size(size));
	}

	/* Return: the exit status. */
	int run()
	{
		connect();
		choose_sizes();
		watch_interrupts();
		if (!request.json)
			print("{}", titles_line(colours));
		std::fflush(stdout);
		try {
			for (const auto operation : operations)
				try_operation(operation);
		} catch (const Interrupted &) {
		} catch (const NotPing &) {
			/* Its row has the sentence. */
		} catch (const Failure &failure) {
			/* What was measured is printed nevertheless. */
			end = failure.what();
		}
		if (line)
			path.path = path_of(path.device, (*line)->qp_number());
		if (request.json)
			print("{}\n", ping_json(path, rows));
		else
			print("\n{}", path_line(path, rows));
		std::fflush(stdout);
		for (const auto &row : rows)
			if (!row.why.empty())
				print(stderr, "peal: {}\n", row.why);
		if (!end.empty())
			print(stderr, "peal: {}\n", end);
		return is_right(rows) && end.empty() ? EXIT_OK : EXIT_PROBLEM;
	}

private:
	/* Throws Failure. */
	void connect()
	{
		const char *host = request.peer.c_str();
		const Seconds patience(request.timeout);

		line.reset();
		if (!dev) {
			auto opened = request.device.empty() ? open_for(host, patience)
							     : open(request.device.c_str());
			if (!opened)
				throw Failure(opened.why());
			dev = std::move(opened).value();
		}
		auto connected =
			dev->connect(host, request.port, {}, patience, queues_for(NOTE_BYTES));
		if (connected.code() == ECONNREFUSED)
			throw Failure(formatted("no program at {} accepts on port {}; type "
						"\"peal ping --listen\" there",
						host, request.port));
		if (connected.code() == ECONNRESET)
			throw Failure(
				formatted("{}; if that host has several devices, type "
					  "\"peal ping --listen --device DEVICE\" there, with "
					  "the one that has this address",
					  connected.why()));
		if (!connected)
			throw Failure(connected.why());
		if (connected->peer().size() < 2 * GUARD + ATOMIC_SIZE)
			throw Failure(formatted("the program at {} on port {} is not \"peal "
						"ping\"; type \"peal ping --listen\" there, or "
						"another --port on both hosts",
						host, request.port));
		line.emplace(std::move(connected).value(), request.peer, request.timeout);
		path = {request.peer,
			request.port,
			dev->name(),
			gid_text((*line)->local_gid()),
			gid_text((*line)->peer_gid()),
			(*line)->mtu(),
			{}};
	}

	/* Makes the memory for the longest message, too. Throws Failure. */
	void choose_sizes()
	{
		const auto longest = (*line)->peer().size() - 2 * GUARD;

		if (sizes.empty())
			for (const auto size : DEFAULT_SIZES)
				if (size <= longest)
					sizes.push_back(size);
		const auto needed = std::ranges::max(sizes);
		if (needed > longest)
			throw Failure(formatted("{} takes messages of at most {} bytes; type "
						"\"peal ping --listen --size {}\" there",
						request.peer, longest, needed));
		auto made = dev->alloc<std::byte>(std::max(needed, ATOMIC_SIZE) + 2 * GUARD);
		if (!made)
			throw Failure(made.why());
		area = std::move(made).value();
	}

	/* Every size, until one fails. Throws Failure, after the rows were printed. */
	void try_operation(Operation operation)
	{
		const auto wanted =
			is_atomic(operation) ? std::vector<std::uint64_t>{ATOMIC_SIZE} : sizes;

		/* A failure ends a connection, but this operation may work. */
		if (!rows.empty() && rows.back().verdict == RowVerdict::FAILED)
			connect();
		for (const auto size : wanted) {
			Row &row = rows.emplace_back(Row{.operation = operation, .size = size});

			try {
				try_size(row);
			} catch (const Interrupted &) {
				if (row.microseconds.empty())
					rows.pop_back();
				else
					print_row(row);
				throw;
			} catch (const NotPing &failure) {
				row.verdict = RowVerdict::FAILED;
				row.why = failure.what();
				print_row(row);
				throw;
			}
			print_row(row);
			if (row.verdict == RowVerdict::FAILED)
				return;
		}
	}

	void try_size(Row &row)
	{
		if (is_atomic(row.operation) &&
		    (!dev->has_atomics() || !includes((*line)->peer().rights(), remote_atomic))) {
			row.verdict = RowVerdict::SKIPPED;
			row.why = formatted("{} was not tried, because the device of {} has no "
					    "atomics; use other operations with it",
					    name_of(row.operation),
					    dev->has_atomics() ? request.peer : "this host");
			return;
		}
		for (unsigned i = 0; i < request.count && row.verdict == RowVerdict::OK; i++) {
			pause();
			try {
				try_round(row, {row.operation, row.size, seed++});
			} catch (const LineFailure &failure) {
				row.verdict = RowVerdict::FAILED;
				row.why = formatted("{} of {} bytes: {}{}", name_of(row.operation),
						    row.size, failure.what(), hint_for(row));
			}
		}
	}

	/* Return: what to look at, too. The row is the last one. */
	std::string hint_for(const Row &row) const
	{
		const auto passed = [&](const Row &other) {
			return other.operation == row.operation && other.size < row.size &&
			       other.verdict == RowVerdict::OK;
		};

		if (std::ranges::none_of(rows, passed))
			return "";
		return formatted("; shorter messages have passed, so see whether the packets fit "
				 "the route (\"peal doctor {}\")",
				 request.peer);
	}

	/* Throws LineFailure. */
	void try_round(Row &row, const Round &round)
	{
		const auto used = std::span(area->data(), GUARD + round.size + GUARD);
		const slice local = area->part(GUARD, round.size);
		const remote there = (*line)->peer().at(GUARD, round.size);

		ask({.kind = NoteKind::PREPARE, .round = round}, NoteKind::READY);
		if (is_atomic(round.operation))
			lay_out_value(used, round, ~round.value_before());
		else if (round.operation == Operation::READ)
			lay_out_wrong(used, round);
		else
			lay_out(used, round);
		row.microseconds.push_back(line->execute([&](batch &post) {
			switch (round.operation) {
			case Operation::SEND:
				post.send(local);
				break;
			case Operation::SEND_WITH_IMM:
				post.send_imm(local, round.imm());
				break;
			case Operation::WRITE:
				post.write(local, there);
				break;
			case Operation::WRITE_WITH_IMM:
				post.write_imm(local, there, round.imm());
				break;
			case Operation::READ:
				post.read(local, there);
				break;
			case Operation::FETCH_ADD:
				post.fetch_add(local, there, round.operand());
				break;
			case Operation::COMPARE_SWAP:
				post.compare_swap(local, there, round.compared(), round.operand());
				break;
			}
		}));
		const Note verdict =
			ask({.kind = NoteKind::CHECK, .round = round}, NoteKind::RIGHT);
		if (verdict.kind != NoteKind::RIGHT)
			return blame(row, wrong_sentence(round, verdict, true));
		const auto mismatch = is_atomic(round.operation)
					      ? compare_value(used, round, round.value_before())
				      : round.operation == Operation::READ ? compare(used, round)
									   : std::nullopt;
		if (mismatch)
			blame(row,
			      wrong_sentence(round,
					     {.kind = NoteKind::WRONG_BYTES, .mismatch = *mismatch},
					     false));
	}

	static void blame(Row &row, const std::string &why)
	{
		row.verdict = RowVerdict::WRONG;
		row.why = why;
	}

	/* Return: `wanted`, or what is wrong. */
	Note ask(const Note &question, NoteKind wanted)
	{
		line->send(question);
		const Note answer = line->receive_note();
		const bool may_be_wrong = wanted == NoteKind::RIGHT;

		if (answer.kind != wanted && !(may_be_wrong && answer.kind > NoteKind::RIGHT))
			throw NotPing(formatted("the program at {} refuses a round of \"peal "
						"ping\"; install one version of peal on both "
						"hosts",
						request.peer));
		return answer;
	}

	void print_row(const Row &row) const
	{
		if (request.json)
			return;
		print("{}", row_line(row, colours));
		std::fflush(stdout);
	}

	/* Waits for the interval, and ends early if the user wants an end. */
	void pause() const
	{
		const auto until = Clock::now() + Seconds(request.interval);

		stop_if_interrupted();
		while (Clock::now() < until) {
			std::this_thread::sleep_for(std::min<Seconds>(until - Clock::now(), 100ms));
			stop_if_interrupted();
		}
	}

	const PingRequest &request;
	const std::vector<Operation> operations;
	std::vector<std::uint64_t> sizes;
	const bool colours;
	std::uint64_t seed;
	std::optional<peal::device> dev;
	std::optional<memory<std::byte>> area;
	std::optional<Line> line;
	PingPath path;
	std::vector<Row> rows;
	std::string end; /* why the rest was not tried */
};

} /* namespace */

} /* namespace peal::tool */

int peal_tool_ping(const peal::tool::PingRequest &request)
{
	if (request.listen)
		peal::tool::serve_pings(request);
	return peal::tool::Client(request).run();
}
