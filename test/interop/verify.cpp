// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * verify: moves random data between two RDMA devices with every operation and compares each
 * byte, and the bytes around it, at both ends.
 *
 * 	verify -d DEVICE -g GID_INDEX [-p PORT] [OPTIONS]	the server of one client
 * 	verify -d DEVICE -g GID_INDEX [-p PORT] [OPTIONS] HOST	the client
 *
 * 	--ops NAME,...	 of those that --list prints; default: all that should succeed on every
 * device
 * 	--sizes BYTES,... default 0,1,3,33,mtu-1,mtu,mtu+1,65536; mtu is the path's
 * 	--count N	 messages of each size, default 16
 * 	--timeout N	 of the queue pair, default 14 (67 ms), at both ends
 * 	--limit S	 seconds that a batch may take, default 20 (PEAL_SLOWNESS times as many)
 * 	--seed N	 of the data
 * 	--srq		 take receives from a shared receive queue, at both ends
 *
 * Prints a line for each operation and size, "ok OPERATION SIZE" or "FAILED OPERATION SIZE:
 * why". Exit status: 0 everything arrived, 1 something did not, 2 a wrong call or no peer.
 *
 * It does not depend on the kind of device. Each end may be of any kind.
 */
#include "control.hpp"
#include "end.hpp"

#include <cstdio>
#include <cstdlib>
#include <getopt.h>
#include <sstream>

using namespace verify;

namespace {

struct Options {
	EndOptions end;
	std::string port = "18515";
	std::string host;
	std::vector<std::string> ops;
	std::vector<std::string> sizes{"0", "1", "3", "33", "mtu-1", "mtu", "mtu+1", "65536"};
	std::uint32_t count = 16;
};

std::vector<std::string> split(const std::string &text)
{
	std::vector<std::string> parts;
	std::istringstream stream(text);

	for (std::string part; std::getline(stream, part, ',');)
		parts.push_back(part);
	return parts;
}

void print_operations()
{
	for (const auto &operation : operations())
		std::printf("%s\n", operation.name);
}

[[noreturn]] void usage()
{
	std::fprintf(stderr, "usage: verify -d DEVICE -g GID_INDEX [-p PORT] [--ops NAME,...] "
			     "[--sizes BYTES,...] [--count N] [--timeout N] [--limit S] "
			     "[--seed N] [--srq] [HOST]\n");
	std::exit(2);
}

const option known[] = {
	{"ops", required_argument, nullptr, 'o'},
	{"sizes", required_argument, nullptr, 's'},
	{"count", required_argument, nullptr, 'c'},
	{"timeout", required_argument, nullptr, 't'},
	{"limit", required_argument, nullptr, 'l'},
	{"seed", required_argument, nullptr, 'r'},
	{"list", no_argument, nullptr, 'L'},
	{"srq", no_argument, nullptr, 'S'},
	{},
};

void take_option(Options &options, int name)
{
	const auto number = [] { return std::strtoul(optarg, nullptr, 0); };

	switch (name) {
	case 'd':
		options.end.device = optarg;
		break;
	case 'g':
		options.end.gid_index = static_cast<int>(number());
		break;
	case 'p':
		options.port = optarg;
		break;
	case 'o':
		options.ops = split(optarg);
		break;
	case 's':
		options.sizes = split(optarg);
		break;
	case 'c':
		options.count = static_cast<std::uint32_t>(number());
		break;
	case 't':
		options.end.timeout = static_cast<std::uint8_t>(number());
		break;
	case 'l':
		options.end.limit = std::chrono::seconds(number());
		break;
	case 'r':
		options.end.seed = number();
		break;
	case 'S':
		options.end.srq = true;
		break;
	case 'L':
		print_operations();
		std::exit(0);
	default:
		usage();
	}
}

Options parse(int argc, char **argv)
{
	Options options;

	for (int c; (c = getopt_long(argc, argv, "d:g:p:", known, nullptr)) != -1;)
		take_option(options, c);
	if (optind < argc)
		options.host = argv[optind];
	if (options.ops.empty())
		for (const auto &operation : operations())
			if (operation.usual())
				options.ops.push_back(operation.name);
	return options;
}

std::uint32_t size_in_bytes(const std::string &name, std::uint32_t mtu)
{
	if (!name.starts_with("mtu"))
		return static_cast<std::uint32_t>(std::strtoul(name.c_str(), nullptr, 0));
	return mtu + static_cast<std::uint32_t>(std::atoi(name.c_str() + 3));
}

/* Answers each request of the client with "ok" or with the error. */
void serve(const Options &options)
{
	auto control = Control::listen(options.port);
	std::unique_ptr<End> end;

	for (std::string line; control.receive(line) && line != "bye";) {
		std::istringstream words(line);
		std::string verb;
		words >> verb;
		try {
			if (verb == "open") {
				std::string operation;
				std::size_t largest = 0;
				words >> operation >> largest;
				end.reset();
				end = std::make_unique<End>(options.end, find_operation(operation),
							    largest);
				control.send("ok " + end->describe());
				control.receive(line);
				end->connect(line);
				control.send("ok");
			} else if (verb == "prepare") {
				control.send("ok " + end->prepare(read_batch(words)));
			} else if (verb == "check") {
				end->check(read_batch(words));
				control.send("ok");
			} else {
				control.send("unknown request");
			}
		} catch (const std::exception &error) {
			control.send(std::string("the server says: ") + error.what());
		}
	}
}

class Client {
public:
	explicit Client(const Options &options)
		: options_(options), control_(Control::connect(options.host, options.port))
	{
	}
	/* Return: whether every size arrived. */
	bool run(const Operation &operation)
	{
		bool good = true;

		if (!operation.sized())
			good = run_size(operation, operation.word() ? "8" : "64");
		else
			for (const auto &name : options_.sizes)
				good &= run_size(operation, name);
		end_.reset();
		return good;
	}
	void leave() { control_.send("bye"); }

private:
	void request(const std::string &line, std::string *details = nullptr)
	{
		std::string answer;

		control_.send(line);
		if (!control_.receive(answer))
			throw Lost("the server is gone");
		if (!answer.starts_with("ok"))
			throw std::runtime_error(answer);
		if (details)
			*details = answer.size() > 3 ? answer.substr(3) : "";
	}
	void open(const Operation &operation)
	{
		std::string server;
		std::size_t largest = 64;

		for (const auto &name : options_.sizes)
			largest = std::max<std::size_t>(largest, size_in_bytes(name, 4096));
		end_.reset();
		request(std::string("open ") + operation.name + " " + std::to_string(largest),
			&server);
		end_ = std::make_unique<End>(options_.end, operation, largest);
		request(end_->describe());
		end_->connect(server);
	}
	bool run_size(const Operation &operation, const std::string &name)
	{
		std::string shown = name;
		try {
			if (!end_)
				open(operation);
			const auto size = size_in_bytes(name, end_->mtu());
			shown = std::to_string(size);
			if (!operation.allows(size, end_->mtu()))
				return true;
			run_batches(size, operation.kind == Kind::fault ? 1 : options_.count);
			std::printf("ok %s %s\n", operation.name, shown.c_str());
		} catch (const Lost &) {
			throw;
		} catch (const std::exception &error) {
			std::printf("FAILED %s %s: %s\n", operation.name, shown.c_str(),
				    error.what());
			end_.reset();
			std::fflush(stdout);
			return false;
		}
		std::fflush(stdout);
		return true;
	}
	void run_batches(std::uint32_t size, std::uint32_t count)
	{
		const auto depth = end_->depth(size);

		for (std::uint32_t done = 0; done < count;) {
			const Batch batch{++number_, size, std::min(depth, count - done),
					  options_.end.seed};
			std::string prepared;
			request("prepare " + to_text(batch), &prepared);
			end_->run(batch, prepared);
			request("check " + to_text(batch));
			done += batch.count;
		}
	}

	const Options &options_;
	Control control_;
	std::unique_ptr<End> end_;
	std::uint32_t number_ = 0;
};

int ask(const Options &options)
{
	Client client(options);
	bool good = true;

	for (const auto &name : options.ops)
		good &= client.run(find_operation(name));
	client.leave();
	return good ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
	try {
		const auto options = parse(argc, argv);
		if (options.end.device.empty() || options.end.gid_index < 0)
			usage();
		if (!options.host.empty())
			return ask(options);
		serve(options);
	} catch (const std::exception &error) {
		std::fprintf(stderr, "verify: %s\n", error.what());
		return 2;
	}
	return 0;
}
