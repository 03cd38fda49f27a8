// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "doctor.hpp"

#include <array>
#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "error.hpp"
#include "finding.hpp"
#include "formatted.hpp"
#include "table.hpp"

namespace peal::tool {

/* ---- what the checks share ---- */

std::uint64_t Patient::counter(const std::string &name) const
{
	for (const auto &[other, value] : counters)
		if (other == name)
			return value;
	return 0;
}

void Findings::ok(std::string check, std::string text)
{
	all.push_back({std::move(check), Verdict::OK, std::move(text), ""});
}

void Findings::add(Verdict verdict, std::string check, std::string text, std::string remedy)
{
	all.push_back({std::move(check), verdict, std::move(text), std::move(remedy)});
}

std::optional<std::string> first_line(const std::string &path)
{
	std::ifstream file(path);
	std::string line;

	return std::getline(file, line) ? std::optional(line) : std::nullopt;
}

std::optional<std::string> output_of(const std::string &command)
{
	FILE *pipe =
		popen(("PATH=$PATH:/usr/sbin:/sbin; " + command + " 2>/dev/null").c_str(), "r");
	std::array<char, 4096> buffer;
	std::string text;

	if (!pipe)
		return {};
	while (const auto bytes = std::fread(buffer.data(), 1, buffer.size(), pipe))
		text.append(buffer.data(), bytes);
	return pclose(pipe) == 0 ? std::optional(text) : std::nullopt;
}

/* ---- the examination ---- */

namespace {

const char *verdict_word(Verdict verdict)
{
	switch (verdict) {
	case Verdict::OK:
		return "ok";
	case Verdict::WARNING:
		return "warning";
	case Verdict::PROBLEM:
		return "problem";
	default:
		return "unknown";
	}
}

/* A device that goes meanwhile is left out. */
std::vector<Patient> find_patients()
{
	std::vector<Patient> patients;

	if (!Module::is_loaded())
		return patients;
	Rdma rdma;
	for (const auto &device : Module().devices()) {
		try {
			patients.push_back(
				{device, rdma.port(device.index), rdma.counters(device.index)});
		} catch (const KernelError &) {
		}
	}
	return patients;
}

void print_line(const Finding &finding, bool colours)
{
	const auto colour = finding.verdict == Verdict::OK	  ? Colour::GREEN
			    : finding.verdict == Verdict::PROBLEM ? Colour::RED
								  : Colour::YELLOW;
	const auto word = formatted("{:<8}", verdict_word(finding.verdict));

	print("{} {:<10} {}{}{}\n", coloured(word, colour, colours), finding.check, finding.text,
	      finding.remedy.empty() ? "" : "; ", finding.remedy);
}

} /* namespace */

int examine(const std::string &peer, bool json)
{
	const auto patients = find_patients();
	Findings findings;
	auto all = nlohmann::ordered_json::array();
	int status = EXIT_OK;

	check_module(findings, patients);
	check_provider(findings, patients);
	check_memlock(findings);
	check_nodes(findings, patients);
	check_links(findings, patients);
	check_gids(findings, patients);
	check_mtu(findings, patients);
	check_port(findings);
	check_firewall(findings, patients);
	check_rp_filter(findings, patients);
	check_direct(findings, patients);
	check_faults(findings, patients);
	check_losses(findings, patients);
	if (!peer.empty())
		check_peer(findings, patients, peer);
	for (const auto &finding : findings.all) {
		if (finding.verdict == Verdict::PROBLEM)
			status = EXIT_PROBLEM;
		if (!json)
			print_line(finding, wants_colours());
		all.push_back({{"check", finding.check},
			       {"verdict", verdict_word(finding.verdict)},
			       {"text", finding.text},
			       {"remedy", finding.remedy}});
	}
	if (json)
		print("{}\n", all.dump(2));
	return status;
}

} /* namespace peal::tool */
