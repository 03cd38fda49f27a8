// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "stat.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "error.hpp"
#include "formatted.hpp"
#include "module.hpp"
#include "rdma.hpp"
#include "table.hpp"

namespace peal::tool {

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

/* What one look found. */
struct Look {
	Clock::time_point time;
	std::vector<std::pair<std::string, Counters>> devices;
};

/*
 * CPU time of the device's poller, in ms. It is unknown where /proc shows no kernel threads, as in
 * containers. See proc_pid_stat(5).
 */
std::optional<std::uint64_t> engine_time(const std::string &device)
{
	constexpr std::size_t longest = 15; /* TASK_COMM_LEN without its zero */
	constexpr int before_utime = 9;	    /* fields between the parent and utime */
	constexpr int kthreadd = 2;	    /* parent of all kernel threads */
	const auto thread = "(" + (device + "-engine").substr(0, longest) + ")";
	std::error_code ignored;

	for (const auto &process : std::filesystem::directory_iterator("/proc", ignored)) {
		std::string line, field;
		std::uint64_t user = 0, system = 0;

		if (!std::getline(std::ifstream(process.path() / "stat"), line))
			continue;
		const auto name = line.find(thread);
		if (name == std::string::npos)
			continue;
		std::istringstream rest(line.substr(name + thread.size()));
		int parent = 0;
		if (!(rest >> field >> parent) || parent != kthreadd)
			continue;
		for (int i = 0; i < before_utime; i++)
			rest >> field;
		if (rest >> user >> system)
			return (user + system) * 1000 /
			       static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
	}
	return {};
}

Look look(Module &module, Rdma &rdma, const std::string &device)
{
	Look look{Clock::now(), {}};

	for (const auto &owner : module.devices_named(device)) {
		try {
			look.devices.emplace_back(owner.name, rdma.counters(owner.index));
			if (const auto time = engine_time(owner.name))
				look.devices.back().second.emplace_back("engine_ms", *time);
		} catch (const KernelError &error) {
			/* It was removed meanwhile. */
			if (error.number != ENODEV)
				throw Failure(formatted("the counters of {} cannot be read: {}; "
							"\"peal doctor\" looks for the cause",
							owner.name, error.what()));
		}
	}
	return look;
}

/* Return: the value that the counter had before, if the device was there. */
std::optional<std::uint64_t> value_before(const Look *before, const std::string &device,
					  const std::string &counter)
{
	if (!before)
		return {};
	const auto owner = std::ranges::find(before->devices, device,
					     &std::pair<std::string, Counters>::first);
	if (owner == before->devices.end())
		return {};
	const auto found = std::ranges::find(owner->second, counter,
					     &std::pair<std::string, std::uint64_t>::first);
	return found == owner->second.end() ? std::nullopt : std::optional(found->second);
}

/* Return: the growth per second. A device that was made again starts from 0. */
std::optional<double> rate(const Look *before, const Look &now, const std::string &device,
			   const std::string &counter, std::uint64_t value)
{
	const auto old = value_before(before, device, counter);

	if (!old || value < *old)
		return {};
	return static_cast<double>(value - *old) /
	       std::chrono::duration<double>(now.time - before->time).count();
}

void print_table(const Look *before, const Look &now, bool all)
{
	Table table(before ? std::vector<std::string>{"DEVICE", "COUNTER", "VALUE", "PER-SECOND"}
			   : std::vector<std::string>{"DEVICE", "COUNTER", "VALUE"});

	for (const auto &[device, counters] : now.devices)
		for (const auto &[counter, value] : counters) {
			const auto per_second = rate(before, now, device, counter, value);
			const bool shown = before ? per_second.value_or(1) > 0 : value > 0;

			if (shown || all)
				table.add(
					{device, counter, std::to_string(value),
					 per_second ? formatted("{:.1f}", *per_second) : MISSING});
		}
	print("{}", table.text(wants_colours()));
}

/* One line for each look, so that a program can read them as they come. */
void print_json(const Look *before, const Look &now)
{
	auto devices = Json::array();

	for (const auto &[device, counters] : now.devices) {
		Json entry{{"device", device}, {"counters", Json::object()}};

		if (before) {
			entry["seconds"] =
				std::chrono::duration<double>(now.time - before->time).count();
			entry["per-second"] = Json::object();
		}
		for (const auto &[counter, value] : counters) {
			const auto per_second = rate(before, now, device, counter, value);

			entry["counters"][counter] = value;
			if (before)
				entry["per-second"][counter] =
					per_second ? Json(*per_second) : Json();
		}
		devices.push_back(entry);
	}
	print("{}\n", devices.dump());
}

void print_look(const Look *before, const Look &now, const StatRequest &request)
{
	if (request.json)
		print_json(before, now);
	else
		print_table(before, now, request.all);
	std::fflush(stdout);
}

} /* namespace */

void show_counters(const StatRequest &request)
{
	Module module;
	Rdma rdma;
	auto before = look(module, rdma, request.device);

	if (!request.seconds) {
		print_look(nullptr, before, request);
		return;
	}
	for (unsigned round = 0; !request.count || round < request.count; round++) {
		std::this_thread::sleep_until(
			before.time + std::chrono::duration_cast<Clock::duration>(
					      std::chrono::duration<double>(*request.seconds)));
		auto now = look(module, rdma, request.device);

		if (round && !request.json)
			print("\n");
		print_look(&before, now, request);
		before = std::move(now);
	}
}

} /* namespace peal::tool */
