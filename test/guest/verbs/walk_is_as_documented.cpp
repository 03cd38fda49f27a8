// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// transport: direct
/*
 * The walk of Documentation/data-path.rst is what the kernel does.
 *
 * Holds: A WRITE passes the functions of the modules that the page lists, in the same order and
 * depth, in the files that it names. It passes at most 5 files and is at most 5 calls deep.
 * Does not hold: other kernels than 6.1. Their compilers inline other functions.
 */
#include "tracing.hpp"
#include "verbs.hpp"

#include <sched.h>
#include <sys/utsname.h>

#include <set>
#include <sstream>

using namespace peal_test;

namespace {

struct Call {
	unsigned depth;
	std::string function;
};

/* The calls of the modules in this thread while this object lives, with those in softirqs. */
class Graph {
public:
	Graph()
	{
		must(!write_tracing("set_ftrace_filter", ":mod:peal\n"), "trace peal.ko");
		must(!write_tracing("set_ftrace_filter", ":mod:peal_kick_file\n"),
		     "trace peal_kick_file.ko");
		must(!write_tracing("set_ftrace_pid", std::to_string(gettid()) + "\n"),
		     "trace this thread");
		must(!write_tracing("current_tracer", "function_graph\n"),
		     "trace a graph of functions");
	}
	~Graph()
	{
		write_tracing("current_tracer", "nop\n");
		write_tracing("set_ftrace_pid", " \n");
	}
	Graph(const Graph &) = delete;
	Graph &operator=(const Graph &) = delete;

	/* The calls that @work makes. */
	template <class Work>
	std::vector<Call> of(Work work) const
	{
		close(open((tracing_folder() + "trace").c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
		write_tracing("tracing_on", "1\n");
		work();
		write_tracing("tracing_on", "0\n");
		return calls();
	}

private:
	/* A line is " 0)   1.5 us    |    peal_turn [peal]() {". Each level has two blanks. */
	static std::vector<Call> calls()
	{
		std::ifstream in(tracing_folder() + "trace");
		std::vector<Call> all;

		for (std::string line; std::getline(in, line);) {
			const auto bar = line.find('|');
			const auto name = bar == line.npos ? line.npos : line.find("peal_", bar);
			const auto end =
				name == line.npos ? line.npos : line.find_first_of(" (.", name);

			if (end == line.npos || line.find('}') != line.npos)
				continue;
			all.push_back({static_cast<unsigned>(name - bar - 3) / 2,
				       line.substr(name, end - name)});
		}
		return all;
	}
};

/* The page shows the functions of this kernel, if it has a tracer for them. */
bool is_documented()
{
	std::ifstream in(tracing_folder() + "available_tracers");
	const std::string all{std::istreambuf_iterator<char>(in), {}};
	utsname kernel{};

	uname(&kernel);
	return all.find("function_graph") != all.npos && slowness() == 1 &&
	       std::string_view(kernel.release).starts_with("6.1.");
}

/* The calls from the first call of @function to its end. Calls below @last are left out. */
std::vector<Call> below(const std::vector<Call> &all, const std::string &function)
{
	const auto first = std::find_if(all.begin(), all.end(), [&](const Call &call) {
		return call.function == function;
	});
	std::vector<Call> part;

	for (auto call = first; call != all.end() && (call == first || call->depth > first->depth);
	     ++call)
		part.push_back({call->depth - first->depth, call->function});
	return part;
}

/* A line of the page names a call, and the file of its function. */
struct Step {
	Call call;
	std::string file;
};

/* The page's block after ".. walk: NAME" has a function and its file on each line. */
std::vector<Step> page(const std::string &name)
{
	std::ifstream in(PEAL_SOURCE "/Documentation/data-path.rst");
	std::vector<Step> walk;
	std::string line;

	while (std::getline(in, line) && line != ".. walk: " + name)
		;
	while (std::getline(in, line) && line.find("peal_") == line.npos)
		;
	for (; line.find("peal_") != line.npos; std::getline(in, line)) {
		std::istringstream words(line);
		Step step{{static_cast<unsigned>(line.find("peal_") - 4) / 2, ""}, ""};

		words >> step.call.function >> step.file;
		walk.push_back(step);
	}
	return walk;
}

std::string describe(const std::vector<Call> &calls)
{
	std::string text;

	for (const auto &call : calls)
		text += std::string(2 * call.depth, ' ') + call.function + "\n";
	return text;
}

/* Return: whether the function is defined in the file that the page names. */
bool is_defined(const std::string &function, const std::string &file)
{
	std::ifstream in(PEAL_SOURCE "/" + file);

	for (std::string line; std::getline(in, line);)
		if (!line.empty() && line[0] != '\t' && line[0] != ' ' &&
		    line.find(function + "(") != line.npos && line.back() != ';')
			return true;
	return false;
}

void check_walk(const std::string &name, const std::vector<Call> &calls, std::size_t most_files,
		unsigned most_depth)
{
	const auto walk = page(name);
	std::vector<Call> documented;
	std::set<std::string> files;

	for (const auto &[call, file] : walk) {
		INFO(call.function << " in " << file);
		CHECK(is_defined(call.function, file));
		CHECK(call.depth < most_depth);
		documented.push_back(call);
		files.insert(file);
	}
	CHECK(!files.empty());
	CHECK(files.size() <= most_files);
	CHECK(describe(documented) == describe(calls));
}

/* Each CPU remembers look-ups of its own. */
void stay_on_this_cpu()
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(sched_getcpu(), &cpus);
	must(sched_setaffinity(0, sizeof(cpus), &cpus), "stay on this CPU");
}

/* Traces the third WRITE. The general path takes the first one, and the second does all look-ups.
 */
std::vector<Call> third(Pair &pair)
{
	const Graph graph;
	Region to(pair.b.pd, 4096), from(pair.a.pd, 4096);
	std::vector<Call> calls;

	stay_on_this_cpu();
	for (int i = 0; i < 3; i++) {
		Send send(IBV_WR_RDMA_WRITE, {from.sge(0, 64)});

		send.remote(to.address(), to.rkey());
		calls = graph.of([&] { post(pair.a.qp, send); });
		wait_success(pair.a.send_cq);
	}
	return calls;
}

} // namespace

TEST_CASE("a WRITE passes the functions that the page names")
{
	if (!is_documented())
		SKIP_CASE("the page has the functions of Linux 6.1 with function_graph");
	Device device;
	Pair pair(device);

	check_walk("write", below(third(pair), "peal_kick_file_llseek"), 5, 5);
}
