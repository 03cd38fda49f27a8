// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the checks of "peal doctor" find, and what they share.
 *
 * Owns: verdicts, and small readers of /sys, /proc and of commands' output.
 * Does not know: how findings are printed.
 */
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "module.hpp"
#include "rdma.hpp"

namespace peal::tool {

enum class Verdict {
	OK,
	WARNING, /* programs work, but slower or not all of them */
	PROBLEM, /* programs do not work */
	UNKNOWN, /* it cannot be told with these rights, or without a program */
};

struct Finding {
	std::string check;
	Verdict verdict;
	std::string text;   /* one sentence without its full stop */
	std::string remedy; /* what to type or to do; empty if all is well */
};

/* A device, with what RDMA netlink and its options say. */
struct Patient {
	Device device;
	Port port;
	Counters counters;

	/* Return: 0 if the module does not have it. */
	std::uint64_t counter(const std::string &name) const;
};

class Findings {
public:
	void ok(std::string check, std::string text);
	void add(Verdict verdict, std::string check, std::string text, std::string remedy);

	std::vector<Finding> all;
};

/* The checks, in the order in which they run. Each adds one finding at least. */
void check_module(Findings &findings, const std::vector<Patient> &patients);
void check_provider(Findings &findings, const std::vector<Patient> &patients);
void check_memlock(Findings &findings);
void check_nodes(Findings &findings, const std::vector<Patient> &patients);

void check_links(Findings &findings, const std::vector<Patient> &patients);
void check_gids(Findings &findings, const std::vector<Patient> &patients);
void check_mtu(Findings &findings, const std::vector<Patient> &patients);
void check_port(Findings &findings);
void check_firewall(Findings &findings, const std::vector<Patient> &patients);
void check_rp_filter(Findings &findings, const std::vector<Patient> &patients);
void check_direct(Findings &findings, const std::vector<Patient> &patients);
void check_faults(Findings &findings, const std::vector<Patient> &patients);
void check_losses(Findings &findings, const std::vector<Patient> &patients);
/* Route, neighbour and MTU of the way to the peer. */
void check_peer(Findings &findings, const std::vector<Patient> &patients, const std::string &peer);

/* Return: the first line of a file, or nothing if it cannot be read. */
std::optional<std::string> first_line(const std::string &path);
/* Return: the output of a shell command, which may be in an sbin folder, if it succeeds. */
std::optional<std::string> output_of(const std::string &command);

} /* namespace peal::tool */
