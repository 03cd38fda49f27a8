// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * traffic: a program at work, for the shell tests.
 *
 * 	traffic [--messages N] [--size BYTES] [--shared] [--until-removed] [--idle] [--stubborn]
 * 		[--ready FILE]
 *
 * Sends checked messages between two queue pairs of the device $PEAL_DEV, N of them or
 * until it is killed. With --shared they are received through a shared receive queue. With
 * --until-removed it ends well only when the device is removed under it. Then posts fail or
 * completions are flushed, and DEVICE_FATAL arrives. With --idle it holds everything open and
 * sends nothing. With --stubborn it posts receives until it is killed, even after the device
 * is gone. FILE appears when the program is at work.
 * Exit status: 0 on success, otherwise 1 with a line that says what was expected and what came.
 */
#include "exchange.hpp"
#include "raw.hpp"

#include <cstdio>
#include <fstream>
#include <getopt.h>

using namespace peal_test;

namespace {

struct Options {
	std::uint64_t messages = ~0ULL;
	std::size_t size = 60000;
	bool shared = false;
	bool until_removed = false;
	bool idle = false;
	bool stubborn = false;
	std::string ready;
};

Options parse(int argc, char **argv)
{
	static const option known[] = {
		{"messages", required_argument, nullptr, 'm'},
		{"size", required_argument, nullptr, 's'},
		{"shared", no_argument, nullptr, 'q'},
		{"until-removed", no_argument, nullptr, 'r'},
		{"idle", no_argument, nullptr, 'i'},
		{"stubborn", no_argument, nullptr, 'b'},
		{"ready", required_argument, nullptr, 'f'},
		{},
	};
	Options options;

	for (int c; (c = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
		switch (c) {
		case 'm':
			options.messages = std::strtoull(optarg, nullptr, 0);
			break;
		case 's':
			options.size = std::strtoull(optarg, nullptr, 0);
			break;
		case 'q':
			options.shared = true;
			break;
		case 'r':
			options.until_removed = true;
			break;
		case 'i':
			options.idle = true;
			break;
		case 'b':
			options.stubborn = true;
			break;
		case 'f':
			options.ready = optarg;
			break;
		default:
			std::exit(1);
		}
	}
	return options;
}

void say_ready(const Options &options)
{
	if (!options.ready.empty())
		std::ofstream(options.ready) << "ready\n";
}

std::uint64_t run(const Options &options, Device &device, const QpOptions &queues)
{
	Pair pair(device, queues);
	Region from(pair.a.pd, options.size), to(pair.b.pd, options.size);
	std::uint64_t count = 0;

	say_ready(options);
	while (count < options.messages &&
	       exchange(pair, from, to, 1 + count * 7919 % options.size, count))
		count++;
	if (!options.until_removed)
		return count;
	if (!device.wait_event(IBV_EVENT_DEVICE_FATAL, port_object))
		throw std::runtime_error("expected the event DEVICE_FATAL, got none");
	if (try_post_empty_recv(pair.b.qp, 0) != EIO ||
	    try_post(pair.a.qp, Send(IBV_WR_SEND)) != EIO)
		throw std::runtime_error("expected a removed device to refuse posts with EIO");
	return count;
}

/* Opens, arms and connects everything, and then waits. */
void idle(const Options &options, Device &device, const QpOptions &queues)
{
	Pair pair(device, queues);
	Region from(pair.a.pd, options.size), to(pair.b.pd, options.size);

	if (!exchange(pair, from, to, options.size, 1))
		throw std::runtime_error("expected a message to arrive, it failed");
	must(ibv_req_notify_cq(pair.b.recv_cq, 0), "req_notify_cq");
	say_ready(options);
	if (!options.until_removed)
		pause();
	if (!device.wait_event(IBV_EVENT_DEVICE_FATAL, port_object, 6 * patience))
		throw std::runtime_error("expected the event DEVICE_FATAL, got none");
}

/* Posts again what was flushed, so that there is always something to flush. */
[[noreturn]] void post_for_ever(const Options &options, Device &device)
{
	RawContext context;
	RawQp qp(context, device, {.depth = 4096});
	auto &ring = qp.control().rq;

	say_ready(options);
	for (;;)
		std::atomic_ref(ring.producer)
			.store(std::atomic_ref(ring.consumer).load() + qp.response().rq_entries);
}

void work(const Options &options)
{
	Device device;
	if (options.stubborn)
		post_for_ever(options, device);
	if (options.until_removed)
		tolerate_destroy_errors();
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	const Srq srq = options.shared ? create_srq(pd, 16) : Srq();
	QpOptions queues;
	queues.srq = srq;
	if (options.idle)
		return idle(options, device, queues);
	const auto count = run(options, device, queues);
	std::printf("traffic: %llu messages\n", static_cast<unsigned long long>(count));
	if (!options.until_removed && count < options.messages)
		throw std::runtime_error("expected every message to succeed, one failed");
}

} // namespace

int main(int argc, char **argv)
{
	try {
		work(parse(argc, argv));
	} catch (const std::exception &error) {
		std::fprintf(stderr, "traffic: %s\n", error.what());
		return 1;
	}
	return session().late_failures ? 1 : 0;
}
