// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * bottleneck: how peal's connections share a bottleneck, and what they get of it.
 *
 * 	bottleneck [--seed S] [--only TEXT] [--jobs J] [--long]
 * 	bottleneck --picture
 *
 * Runs each scene (--only: those whose name has TEXT) and prints what it measured, with the limits.
 * The exit status is 1 if a value is outside its limits. --long also runs scenes that take long,
 * some of which are outside (Documentation/protocol.rst, "The window").
 * --picture draws two windows over time instead.
 *
 * Owns: the scenes and their limits. Does not know: how a window is computed.
 */
#include "model.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

using namespace peal::bottleneck;

namespace {

constexpr double NO_LIMIT = 1e18;

struct Value {
	const char *name;
	double value, least, most;
};
using Values = std::vector<Value>;

struct Scene {
	std::string name;
	std::function<Values(u64 seed)> run;
	bool slow = false;
};

/* One row of networks. */
struct Net {
	const char *name;
	double bits_per_s;
	u64 round_trip;
	bool slow = false;
};

constexpr Net NETS[] = {
	{"30M 2ms", 30e6, 2 * MS},	     {"100M 10ms", 100e6, 10 * MS},
	{"1G 200us", 1e9, 200 * US},	     {"1G 2ms", 1e9, 2 * MS},
	{"1G 10ms", 1e9, 10 * MS},	     {"25G 20us", 25e9, 20 * US},
	{"25G 100us", 25e9, 100 * US},	     {"25G 1ms", 25e9, 1 * MS},
	{"100G 20us", 100e9, 20 * US},	     {"100G 100us", 100e9, 100 * US},
	{"100G 10ms", 100e9, 10 * MS, true},
};

/*
 * A queue that holds what the path holds, as routers have it, and at least 100 packets. From 1 Gb/s
 * on the senders' own links are as fast as the bottleneck.
 */
Path path_of(const Net &net, bool red)
{
	Path path;

	path.bits_per_s = net.bits_per_s;
	path.round_trip = net.round_trip;
	path.mtu = net.bits_per_s > 2e9 ? 4096 : 1024;
	/* The usual Ethernet that has room for such packets. TCP fills it. */
	path.link_mtu = net.bits_per_s > 2e9 ? 9000 : 1500;
	path.access = net.bits_per_s < 1e9 ? 0 : 1;
	path.queue_packets = std::max<u64>(path.packets(), 100);
	if (red) {
		path.mark_from = std::max<u64>(path.packets() / 4, 20);
		path.mark_all = 3 * path.mark_from;
		path.queue_packets = std::max<u64>(2 * path.packets(), 400);
	}
	return path;
}

/* The longest round trip that a full queue makes. */
u64 trip_of(const Path &path)
{
	const u64 most = path.marks() ? path.mark_all : path.queue_packets;

	return path.round_trip + most * path.ns(path.mtu + HEADERS);
}

class Run {
	Model model_;
	std::vector<u64> before_;
	u64 from_ = 0, arrived_ = 0, dropped_ = 0;

public:
	std::vector<std::unique_ptr<Flow>> flows;

	Run(u64 seed, const Path &path) : model_(seed, path) {}
	Model &model() { return model_; }
	Connection &add(const Habits &habits)
	{
		auto flow = std::make_unique<Connection>(model_, habits);
		Connection &added = *flow;

		flows.push_back(std::move(flow));
		return added;
	}
	void add_tcp(bool ect) { flows.push_back(std::make_unique<Tcp>(model_, ect)); }
	void start()
	{
		for (auto &flow : flows)
			flow->start();
	}
	/* Let @ns pass. What is measured begins after that. */
	void pass(u64 ns)
	{
		model_.run_until(model_.world.now() + ns);
		before_.clear();
		for (auto &flow : flows)
			before_.push_back(flow->delivered);
		from_ = model_.world.now();
		arrived_ = model_.arrived;
		dropped_ = model_.dropped;
	}
	void measure(u64 ns) { model_.run_until(from_ + ns); }
	/* In packets of peal's. */
	double got(size_t i) const
	{
		return static_cast<double>(flows[i]->delivered - before_[i]) * flows[i]->frame /
		       (model_.path.mtu + HEADERS);
	}
	double total() const
	{
		double sum = 0;

		for (size_t i = 0; i < flows.size(); i++)
			sum += got(i);
		return sum;
	}
	/* In per cent of the link. */
	double link() const
	{
		const u64 ns = model_.world.now() - from_;

		return 100 * total() /
		       (static_cast<double>(ns) /
			static_cast<double>(model_.path.ns(model_.path.mtu + HEADERS)));
	}
	double drops() const
	{
		return 100 * static_cast<double>(model_.dropped - dropped_) /
		       static_cast<double>(model_.arrived - arrived_);
	}
	double jain() const
	{
		double squares = 0;

		for (size_t i = 0; i < flows.size(); i++)
			squares += got(i) * got(i);
		return total() * total() / (static_cast<double>(flows.size()) * squares);
	}
	double worst_to_best() const
	{
		double worst = NO_LIMIT, best = 0;

		for (size_t i = 0; i < flows.size(); i++) {
			worst = std::min(worst, got(i));
			best = std::max(best, got(i));
		}
		return worst / best;
	}
};

/* Equal shares. Long windows are halved rarely, so they need more round trips to become equal. */
Values share(u64 seed, const Path &path, u32 flows, u8 operation)
{
	Run run(seed, path);
	const u64 trip = trip_of(path);

	for (u32 i = 0; i < flows; i++)
		run.add({.operation = operation, .ect = path.marks()});
	run.start();
	run.pass(500 * trip);
	run.measure((!path.marks() && path.packets() > 200 ? 8000 : 4000) * trip);
	return {{"link", run.link(), path.marks() ? 95.0 : 92.0, 101},
		{"Jain", run.jain(), 0.97, 1.01},
		{"worst/best", run.worst_to_best(), 0.7, 1.01},
		{"drops", run.drops(), 0, path.marks() ? 0.1 : NO_LIMIT}};
}

/*
 * Half of the path would be right. Up to 1 Gb/s RED marks by an average, as Linux's does, because a
 * train of TCP is longer than the queue at which marks begin.
 */
Values beside_tcp(u64 seed, Path path, u8 operation)
{
	if (path.bits_per_s < 2e9)
		path.average = static_cast<u32>(path.mark_from);
	Run run(seed, path);
	const u64 trip = trip_of(path);

	run.add({.operation = operation, .ect = path.marks()});
	run.add_tcp(path.marks());
	run.start();
	run.pass(1500 * trip);
	run.measure(3000 * trip);
	return {{"link", run.link(), 0, 101}, {"share", 100 * run.got(0) / run.total(), 35.0, 65}};
}

/* K senders, each with a link of its own, into one port with a short queue. */
Values incast(u64 seed, u32 senders, Peer peer, double least)
{
	Path path = path_of({"", 25e9, 20 * US}, false);

	path.queue_packets = 100;
	Run run(seed, path);

	for (u32 i = 0; i < senders; i++)
		run.add({.peer = peer});
	run.start();
	run.pass(20 * MS);
	run.measure(50 * MS);
	return {{"link", run.link(), least, 101},
		{"Jain", run.jain(), 0, NO_LIMIT},
		{"drops", run.drops(), 0, NO_LIMIT}};
}

Values random_loss(u64 seed, u64 round_trip, u32 ppm, Peer peer, double least)
{
	Path path = path_of({"", 25e9, round_trip}, false);

	path.loss = ppm;
	Run run(seed, path);

	run.add({.peer = peer});
	run.start();
	run.pass(20 * MS);
	run.measure(200 * MS);
	return {{"link", run.link(), least, 101}};
}

/*
 * A flow begins beside another one. Half of its share is 25 %, which all get with most seeds. The
 * other one keeps a share, too.
 */
Values newcomer(u64 seed, const Path &path, u8 operation)
{
	Run run(seed, path);
	const u64 trip = trip_of(path);

	run.add({.operation = operation, .ect = path.marks()});
	run.start();
	run.pass(1000 * trip);
	run.add({.operation = operation, .ect = path.marks()}).start();
	run.pass(100 * trip);
	run.measure(200 * trip);
	return {{"share", 100 * run.got(1) / run.total(), path.marks() ? 25.0 : 20.0, 70}};
}

/* The first round trips of a flow alone, with the losses that end its doubling. */
Values beginner(u64 seed, const Path &path, u8 operation)
{
	Run run(seed, path);

	run.add({.operation = operation, .ect = path.marks()});
	run.start();
	run.pass(0);
	run.measure(100 * trip_of(path));
	return {{"link", run.link(), 45, 101}};
}

/* Of four flows three stop. The other one uses most of the rest after 100 round trips. */
Values leavers(u64 seed, const Path &path, u8 operation)
{
	Run run(seed, path);
	const u64 trip = trip_of(path);

	for (u32 i = 0; i < 4; i++)
		run.add({.operation = operation, .ect = path.marks()});
	run.start();
	run.pass(1000 * trip);
	for (size_t i = 1; i < 4; i++)
		run.flows[i]->stop();
	run.pass(100 * trip);
	run.measure(200 * trip);
	return {{"link", run.link(), 83, 101}};
}

/* A connection gets a forged CNP each microsecond. */
Values forged(u64 seed, const Path &path)
{
	Run run(seed, path);

	run.add({.ect = path.marks(), .forged_every = US});
	run.start();
	run.pass(100 * trip_of(path));
	run.measure(1000 * trip_of(path));
	return {{"packets", run.total(), 1000, NO_LIMIT}};
}

/* The path is down for 0.3 s, five times. */
Values outages(u64 seed, const Path &path, u8 operation)
{
	Run run(seed, path);
	u64 worst = 0;

	Connection &first = run.add({.operation = operation, .ect = path.marks()});
	Connection &second = run.add({.operation = operation, .ect = path.marks()});
	run.start();
	for (int i = 0; i < 5; i++) {
		run.pass(300 * MS);
		run.model().down = true;
		run.pass(300 * MS);
		run.model().down = false;
		run.pass(0);
		while ((!run.got(0) || !run.got(1)) && worst < 5 * SECOND) {
			run.measure(worst);
			worst += MS;
		}
	}
	return {{"back after ms", static_cast<double>(worst) / MS, 0, 100},
		{"failed", static_cast<double>(first.failed() + second.failed()), 0, 0}};
}

std::vector<Scene> scenes()
{
	struct Operation {
		const char *name;
		u8 operation;
	} operations[] = {{"write", PEAL_OP_WRITE}, {"send", PEAL_OP_SEND}, {"read", PEAL_OP_READ}};
	std::vector<Scene> all;

	for (const Net &net : NETS)
		for (const bool red : {false, true})
			for (const auto &[op, operation] : operations) {
				const Path path = path_of(net, red);
				const std::string where =
					std::string(net.name) + (red ? " red " : " fifo ") + op;
				const u8 o = operation;

				for (const u32 flows : {2, 8, 16})
					all.push_back(
						{where + " " + std::to_string(flows),
						 [=](u64 s) { return share(s, path, flows, o); },
						 net.slow});
				if (operation == PEAL_OP_SEND)
					continue;
				all.push_back({where + " beside tcp",
					       [=](u64 s) { return beside_tcp(s, path, o); },
					       net.slow});
				all.push_back({where + " newcomer",
					       [=](u64 s) { return newcomer(s, path, o); },
					       net.slow});
				all.push_back({where + " beginner",
					       [=](u64 s) { return beginner(s, path, o); },
					       net.slow});
				all.push_back({where + " leavers",
					       [=](u64 s) { return leavers(s, path, o); },
					       net.slow});
				all.push_back({where + " outages",
					       [=](u64 s) { return outages(s, path, o); },
					       net.bits_per_s > 2e9});
				if (operation == PEAL_OP_WRITE)
					all.push_back({where + " forged",
						       [=](u64 s) { return forged(s, path); },
						       net.slow});
			}
	const struct {
		u32 senders;
		double go_back, peal;
	} incasts[] = {{8, 88, 99}, {16, 82, 98}, {32, 73, 93}};

	for (const auto &[k, go_back, peal] : incasts) {
		const u32 senders = k;
		const double least[2] = {go_back, peal};

		all.push_back({"incast go-back " + std::to_string(k),
			       [=](u64 s) { return incast(s, senders, Peer::GO_BACK, least[0]); }});
		all.push_back({"incast peal " + std::to_string(k),
			       [=](u64 s) { return incast(s, senders, Peer::PEAL, least[1]); }});
	}
	const struct {
		u64 round_trip;
		u32 ppm;
		double go_back, peal;
	} losses[] = {/* 95 % of what the windows of 64 packets before got from a peer of peal's. */
		      {20 * US, 1000, 88, 93.5},   {20 * US, 10000, 61, 83.6},
		      {20 * US, 50000, 23, 47.5},  {100 * US, 1000, 73, 75},
		      {100 * US, 10000, 22, 46.2}, {100 * US, 50000, 5.5, 13.5}};

	for (const auto &loss : losses)
		for (const bool peal : {false, true})
			all.push_back({"loss " + std::to_string(loss.ppm) + " ppm " +
					       std::to_string(loss.round_trip / US) + "us " +
					       (peal ? "peal" : "go-back"),
				       [=](u64 s) {
					       return random_loss(s, loss.round_trip, loss.ppm,
								  peal ? Peer::PEAL : Peer::GO_BACK,
								  peal ? loss.peal : loss.go_back);
				       }});
	return all;
}

bool run_scene(const Scene &scene, u64 seed)
{
	std::string line = scene.name + ":";
	bool well = true;
	char text[100];

	for (const Value &v : scene.run(seed)) {
		const bool good = v.value >= v.least && v.value <= v.most;

		std::snprintf(text, sizeof(text), " %s %.*f%s", v.name, v.value < 2 ? 3 : 1,
			      v.value, good ? "" : " (FAIL)");
		line += text;
		well &= good;
	}
	std::printf("%s\n", line.c_str());
	std::fflush(stdout);
	return well;
}

/* The windows of two flows over time. The second begins later and ends earlier. */
void picture()
{
	constexpr u64 step = 250 * MS, begins = 3 * SECOND, ends = 5 * SECOND, end = 8 * SECOND;
	constexpr u32 scale = 8;
	Run run(1, path_of({"", 100e6, 10 * MS}, false));
	const Connection &first = run.add({});
	const Connection *second = nullptr;

	run.start();
	std::printf("   s  first (%u packets a #)           second\n", scale);
	for (u64 time = 0; time <= end; time += step) {
		run.pass(time ? step : 0);
		if (time == begins) {
			Connection &added = run.add({});

			added.start();
			second = &added;
		}
		if (time == ends)
			run.flows[1]->stop();
		const bool shown = second && time < ends;

		std::printf("%4.2f  %-33s%s\n", static_cast<double>(time) / SECOND,
			    std::string(first.window() / scale, '#').c_str(),
			    std::string(shown ? second->window() / scale : 0, '#').c_str());
	}
}

} // namespace

int main(int argc, char **argv)
{
	const char *only = "";
	u64 seed = 1;
	u32 jobs = 1;
	bool slow = false, well = true;
	const std::vector<Scene> all = scenes();

	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (!std::strcmp(argv[i], "--picture"))
			return picture(), 0;
		if (!std::strcmp(argv[i], "--long"))
			slow = true;
		else if (!std::strcmp(argv[i], "--seed") && i++)
			seed = std::strtoull(value, nullptr, 0);
		else if (!std::strcmp(argv[i], "--only") && i++)
			only = value;
		else if (!std::strcmp(argv[i], "--jobs") && i++)
			jobs = std::max(1, std::atoi(value));
		else
			return std::fprintf(stderr, "usage: bottleneck [--seed S] [--only TEXT] "
						    "[--jobs J] [--long] | --picture\n"),
			       2;
	}
	for (u32 job = 0; job < jobs; job++) {
		if (fork())
			continue;
		u32 number = 0;

		for (const Scene &scene : all)
			if (scene.name.find(only) != std::string::npos && (slow || !scene.slow) &&
			    number++ % jobs == job)
				well &= run_scene(scene, seed);
		_exit(well ? 0 : 1);
	}
	for (u32 job = 0; job < jobs; job++) {
		int status;

		wait(&status);
		well &= WIFEXITED(status) && !WEXITSTATUS(status);
	}
	return well ? 0 : 1;
}
