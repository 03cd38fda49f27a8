// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "ping_line.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include "formatted.hpp"

namespace peal::tool {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/* How long a wait of libpeal lasts, which no signal ends. */
constexpr auto SLICE = 100ms;

volatile std::sig_atomic_t interrupted;

} /* namespace */

void watch_interrupts()
{
	struct sigaction action {};

	action.sa_handler = [](int) { interrupted = 1; };
	action.sa_flags = static_cast<int>(SA_RESETHAND);
	sigaction(SIGINT, &action, nullptr);
}

void stop_if_interrupted()
{
	if (interrupted)
		throw Interrupted();
}

options queues_for(std::uint64_t receive_bytes)
{
	/* A message of the round and the note behind it. */
	return {.sends = 1,
		.receives = 2,
		.receive_bytes = static_cast<std::uint32_t>(
			std::max<std::uint64_t>(receive_bytes, NOTE_BYTES)),
		.inline_bytes = NOTE_BYTES};
}

std::string gid_text(const gid &address)
{
	char text[INET6_ADDRSTRLEN];

	return inet_ntop(AF_INET6, address.data(), text, sizeof(text));
}

Line::Line(connection connected, std::string peer, double seconds)
	: line(std::move(connected)), peer(std::move(peer)), patience(seconds)
{
}

void Line::send(const Note &note)
{
	const auto bytes = pack(note);

	execute([&](batch &post) { post.send_inline(bytes); });
}

message Line::receive()
{
	const auto end = Clock::now() + patience;

	for (;;) {
		auto came = line.recv(SLICE);

		if (came)
			return std::move(came).value();
		stop_if_interrupted();
		if (came.code() != ETIMEDOUT)
			throw LineFailure(came.why(), true);
		if (Clock::now() >= end)
			too_late();
	}
}

Note Line::receive_note()
{
	const auto note = unpack(receive().bytes());

	if (!note)
		throw NotPing(formatted("the program at {} does not answer as \"peal ping\" of "
					"this version does; type \"peal ping --listen\" there, "
					"with the same version",
					peer));
	return *note;
}

double Line::execute(const std::function<void(batch &)> &add)
{
	auto post = line.batch();

	add(post);
	const auto begin = Clock::now();
	if (const auto posted = post.commit(); !posted)
		throw LineFailure(posted.why(), posted.code() == ENOTCONN);
	complete();
	return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

void Line::complete()
{
	const auto end = Clock::now() + patience;

	for (;;) {
		const auto done = line.wait(1, SLICE);

		if (done)
			return;
		stop_if_interrupted();
		const completion &failed = *done.begin();
		if (failed.verbs_status() == IBV_WC_WR_FLUSH_ERR)
			/* The connection knows what ended it. */
			throw LineFailure(line.recv(0s).why(), true);
		if (failed.request() != request::none)
			throw LineFailure(failed.why(), true);
		if (Clock::now() >= end)
			too_late();
	}
}

void Line::too_late() const
{
	throw LineFailure(formatted("{} has not answered in {} s; see whether its \"peal ping\" "
				    "still runs, or wait longer with --timeout",
				    peer, patience.count()),
			  false);
}

} /* namespace peal::tool */
