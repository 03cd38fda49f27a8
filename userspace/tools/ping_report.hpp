// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What "peal ping" prints: a row for each operation and size, sentences about wrong bytes, and
 * JSON.
 *
 * Owns: the columns, the words of verdicts, and the statistics of a row.
 * Does not know: how rounds are run.
 */
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ping_protocol.hpp"

namespace peal::tool {

enum class RowVerdict {
	OK,
	WRONG,	 /* bytes or values are wrong */
	FAILED,	 /* the operation failed, or there was no answer */
	SKIPPED, /* it was not tried; `why` says why */
};

struct Row {
	Operation operation = Operation::SEND;
	std::uint64_t size = 0; /* bytes */
	std::vector<double> microseconds{};
	RowVerdict verdict = RowVerdict::OK;
	std::string why{}; /* what went wrong and what to do, unless all is well */
};

struct Statistics {
	double min = 0, median = 0, max = 0;
};

/* Return: nothing without values. */
std::optional<Statistics> statistics_of(std::vector<double> values);

/* How the two ends reach each other. */
struct PingPath {
	std::string peer; /* as it was typed */
	std::uint16_t port = 0;
	std::string device;
	std::string gid, peer_gid;
	unsigned mtu = 0;		 /* bytes */
	std::optional<std::string> path; /* "direct" or "wire", if the device tells */
};

/* Return: lines that end in a newline. */
std::string titles_line(bool colours);
std::string row_line(const Row &row, bool colours);
std::string path_line(const PingPath &path, const std::vector<Row> &rows);
/* Return: true unless an operation failed or moved wrong bytes. */
bool is_right(const std::vector<Row> &rows);
/* Return: JSON of all. */
std::string ping_json(const PingPath &path, const std::vector<Row> &rows);

/* Return: what is wrong, and what to do. `note` is what the end found that looked at the bytes. */
std::string wrong_sentence(const Round &round, const Note &note, bool at_peer);

} /* namespace peal::tool */
