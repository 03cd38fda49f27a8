// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The connection between the two ends of "peal ping", with notes.
 *
 * Owns: deadlines of its steps, the answer to an interrupt, and the sentences about a connection
 * that fails.
 * Does not know: which notes follow one another.
 */
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <peal/peal.hpp>

#include "error.hpp"
#include "ping_protocol.hpp"

namespace peal::tool {

/* The connection can be used no more. */
struct LineFailure : Failure {
	LineFailure(const std::string &why, bool ended) : Failure(why), ended(ended) {}

	bool ended; /* by the peer or by an earlier failure; otherwise the peer is silent */
};

/* The other end does not speak as "peal ping" does. */
struct NotPing : Failure {
	using Failure::Failure;
};

/* The user wants an end. */
struct Interrupted {};

/* From now on a SIGINT ends the waits of all lines by Interrupted, and a second one the process. */
void watch_interrupts();
/* Throws Interrupted. */
void stop_if_interrupted();

/* The queues that both ends need. `receive_bytes` is the longest message that comes. */
options queues_for(std::uint64_t receive_bytes);

/* Return: "::ffff:10.0.0.1". */
std::string gid_text(const gid &address);

class Line {
public:
	/* `peer` is its name in sentences. */
	Line(connection connected, std::string peer, double seconds);

	void send(const Note &note);
	message receive();
	Note receive_note();
	/* Return: how long the request took until its completion, in microseconds. */
	double execute(const std::function<void(batch &)> &add);

	const connection &operator*() const { return line; }
	const connection *operator->() const { return &line; }

private:
	void complete();
	[[noreturn]] void too_late() const;

	connection line;
	std::string peer;
	std::chrono::duration<double> patience;
};

} /* namespace peal::tool */
