// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * How often the kernel passed a place on behalf of a thread.
 *
 * Holds: events of tracefs, and functions of the kernel as kprobes.
 * Does not hold: the time of the events.
 */
#pragma once

#include "check.hpp"

#include <fcntl.h>
#include <fstream>
#include <stdexcept>
#include <sys/mount.h>
#include <unistd.h>

namespace peal_test {

inline const std::string &tracing_folder()
{
	static const std::string folder = [] {
		const std::string path = "/sys/kernel/tracing/";

		if (access((path + "trace").c_str(), F_OK))
			mount("none", path.c_str(), "tracefs", 0, nullptr);
		return path;
	}();
	return folder;
}

inline bool has_event(const std::string &event)
{
	return !access((tracing_folder() + "events/" + event + "/trigger").c_str(), W_OK);
}

/* It uses no stream, because that would seek to the end of the file, which these files refuse. */
inline bool write_tracing(const std::string &file, const std::string &line)
{
	const int fd = open((tracing_folder() + file).c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
	const bool written = fd >= 0 && write(fd, line.data(), line.size()) > 0;

	close(fd);
	return written;
}

/* A function of the kernel is an event while this object lives. */
class Probe {
public:
	explicit Probe(const std::string &function) : name_("peal_" + function)
	{
		made_ = write_tracing("kprobe_events", "p:" + name_ + " " + function);
	}
	~Probe()
	{
		if (made_)
			write_tracing("kprobe_events", "-:" + name_);
	}
	Probe(const Probe &) = delete;
	Probe &operator=(const Probe &) = delete;
	explicit operator bool() const { return made_; }
	std::string event() const { return "kprobes/" + name_; }

private:
	std::string name_;
	bool made_;
};

/* Counts an event's occurrences in one thread. */
class EventCount {
public:
	explicit EventCount(const std::string &event, const std::string &condition = "",
			    pid_t thread = gettid())
		: file_("events/" + event + "/"),
		  trigger_("hist:keys=common_pid if common_pid == " + std::to_string(thread) +
			   (condition.empty() ? "" : " && " + condition))
	{
		if (!write_tracing(file_ + "trigger", trigger_))
			throw std::runtime_error("no histogram of " + event);
	}
	~EventCount() { write_tracing(file_ + "trigger", "!" + trigger_); }
	EventCount(const EventCount &) = delete;
	EventCount &operator=(const EventCount &) = delete;

	std::uint64_t value() const
	{
		const std::string word = "hitcount:";
		std::ifstream in(tracing_folder() + file_ + "hist");
		std::uint64_t sum = 0;

		for (std::string line; std::getline(in, line);)
			if (line.starts_with('{') && line.find(word) != std::string::npos)
				sum += std::stoull(line.substr(line.find(word) + word.size()));
		return sum;
	}

private:
	std::string file_, trigger_;
};

} // namespace peal_test
