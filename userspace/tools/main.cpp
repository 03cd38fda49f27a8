// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * peal: makes, shows and examines RDMA devices in software.
 *
 * Owns: the tree of commands, their help, and the exit status.
 * Does not know: what a command does. Each family of commands has a file:
 *
 *	link.cpp	peal link, peal host
 *	show.cpp	peal show
 *	stat.cpp	peal stat
 *	doctor.cpp	peal doctor, whose checks are in doctor_*.cpp
 *	why.cpp		peal why, whose words are in qp_error.cpp
 *	fault.cpp	peal fault, whose words are in fault_rule.cpp
 *	dump.cpp	peal dump, whose packets are in dump_packet.cpp and dump_capture.cpp
 *	ping.cpp	peal ping, whose ends are in ping_client.cpp and ping_server.cpp
 */
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "doctor.hpp"
#include "dump.hpp"
#include "error.hpp"
#include "fault.hpp"
#include "formatted.hpp"
#include "link.hpp"
#include "ping.hpp"
#include "show.hpp"
#include "stat.hpp"
#include "why.hpp"

using namespace peal::tool;

namespace {

/* What the arguments of all commands are read into. Only one command runs. */
struct Arguments {
	std::string name;
	std::string id;
	std::vector<std::string> words;
	StatRequest stat;
	PingRequest ping;
	DumpRequest dump;
	bool json = false;
	bool details = false;
};

/* Sets the exit status. */
using Status = std::function<void(int)>;

CLI::App *add_command(CLI::App &parent, const char *name, const char *help, const char *examples)
{
	auto *command = parent.add_subcommand(name, help);

	command->footer(formatted("Examples:\n{}", examples));
	return command;
}

void add_json(CLI::App *command, Arguments &arguments)
{
	command->add_flag("--json", arguments.json, "print JSON");
}

void add_device(CLI::App *command, Arguments &arguments)
{
	command->add_option("DEVICE", arguments.name, "only this device; otherwise all");
}

/* The words behind a new device's name are "netdev DEV" and options. */
void add_link(const Arguments &arguments)
{
	const auto &words = arguments.words;

	if (words.size() < 2 || words[0] != "netdev")
		throw WrongUse(formatted("type \"peal link add {} netdev DEV\", with a netdev "
					 "that \"ip link\" lists for DEV",
					 arguments.name));
	link_add(arguments.name, words[1], {words.begin() + 2, words.end()});
}

void add_link_commands(CLI::App &app, Arguments &arguments)
{
	auto *link = add_command(app, "link", "make, remove, show and set devices",
				 "  peal link add peal0 netdev eth0\n"
				 "  peal link show");
	auto *add = add_command(*link, "add", "make a device on a netdev",
				"  peal link add peal0 netdev eth0\n"
				"  peal link add peal0 netdev eth0 ecn on rate 100\n"
				"  peal link add peal0 netdev eth0 faults on");
	auto *del = add_command(*link, "del", "remove a device, also while programs use it",
				"  peal link del peal0");
	auto *show = add_command(*link, "show", "show devices and their options",
				 "  peal link show\n"
				 "  peal link show peal0 --json");
	auto *set = add_command(*link, "set",
				"set options: direct on|off, rate auto|GBPS, ecn off|asked|on, and "
				"limits of programs: max-rd-atomic, max-qp, max-cq, max-mr, "
				"max-wr, max-cqe, max-sge, max-inline, without FEATURE,...",
				"  peal link set peal0 direct off\n"
				"  peal link set peal0 ecn on rate 100\n"
				"  peal link set peal0 max-sge 2 max-inline 32 without srq,atomic\n"
				"  peal link set peal0 max-sge max max-inline max without none");

	link->require_subcommand(1);
	add->add_option("NAME", arguments.name, "name of the new device")->required();
	add->add_option("netdev DEV [OPTION VALUE]", arguments.words,
			"its netdev, and options of \"peal link set\", or faults on")
		->required();
	add->callback([&] { add_link(arguments); });
	del->alias("delete");
	del->add_option("DEVICE", arguments.name, "the device")->required();
	del->callback([&] { link_delete(arguments.name); });
	add_device(show, arguments);
	add_json(show, arguments);
	show->callback([&] { link_show(arguments.name, arguments.json); });
	set->add_option("DEVICE", arguments.name, "the device")->required();
	set->add_option("OPTION VALUE", arguments.words, "options and their values")->required();
	set->callback([&] { link_set(arguments.name, arguments.words); });
}

void add_host_commands(CLI::App &app, Arguments &arguments)
{
	auto *host = add_command(app, "host", "show and set the options of this host",
				 "  peal host show\n"
				 "  peal host set direct host");
	auto *show = add_command(*host, "show", "show the options of this host",
				 "  peal host show --json");
	auto *set = add_command(*host, "set",
				"set between which queue pairs the direct path is allowed: direct "
				"none|device|netns|host",
				"  peal host set direct host");

	host->require_subcommand(1);
	add_json(show, arguments);
	show->callback([&] { host_show(arguments.json); });
	set->add_option("OPTION VALUE", arguments.words, "options and their values")->required();
	set->callback([&] { host_set(arguments.words); });
}

void add_show_commands(CLI::App &app, Arguments &arguments)
{
	auto *show = add_command(app, "show", "show the objects of programs",
				 "  peal show qp\n"
				 "  peal show mr peal0 --json");

	show->require_subcommand(1);
	for (const auto &kind : object_kinds()) {
		auto *command =
			add_command(*show, kind.c_str(), formatted("show {} objects", kind).c_str(),
				    formatted("  peal show {}", kind).c_str());

		add_device(command, arguments);
		add_json(command, arguments);
		command->add_flag("-d,--details", arguments.details,
				  "show all that the module says");
		command->callback([&arguments, kind] {
			show_objects(kind, arguments.name, arguments.details, arguments.json);
		});
	}
}

void add_stat_command(CLI::App &app, Arguments &arguments)
{
	auto *stat = add_command(app, "stat", "show counters, and how fast they grow",
				 "  peal stat peal0\n"
				 "  peal stat --watch 1");
	auto *watch = stat->add_option("--watch", arguments.stat.seconds,
				       "show what grows, every so many seconds")
			      ->type_name("SECONDS")
			      ->check(CLI::Range(0.01, 1e6));

	add_device(stat, arguments);
	stat->add_option("--count", arguments.stat.count, "end after so many intervals")
		->type_name("N")
		->needs(watch);
	stat->add_flag("--all", arguments.stat.all, "also counters that are 0 or do not grow");
	add_json(stat, arguments);
	stat->callback([&] {
		arguments.stat.device = arguments.name;
		arguments.stat.json = arguments.json;
		show_counters(arguments.stat);
	});
}

void add_fault_commands(CLI::App &app, Arguments &arguments)
{
	auto *fault =
		add_command(app, "fault", "make messages fail, to test programs",
			    "  peal fault add peal0 status rem-access-err opcode write count 1\n"
			    "  peal fault show\n"
			    "  peal fault del peal0");
	auto *add = add_command(
		*fault, "add",
		"add a rule to a device that was added with faults on, and print its number",
		"  peal fault add peal0 status retry-exc-err\n"
		"  peal fault add peal0 status rem-access-err qp 17 opcode write,read every 100\n"
		"  peal fault add peal0 nak rem-access-err count 1\n"
		"  peal fault add peal0 drop peer 10.0.0.2 chance 1/1000 seed 7\n"
		"  peal fault add peal0 delay 5ms every 10");
	auto *show = add_command(*fault, "show", "show the rules, and how often each was used",
				 "  peal fault show\n"
				 "  peal fault show peal0 --json");
	auto *del = add_command(*fault, "del", "remove a rule, or all of a device",
				"  peal fault del peal0 1\n"
				"  peal fault del peal0");

	auto *now = add_command(*fault, "now", "raise an event of the device or a queue pair",
				"  peal fault now peal0 device-fatal\n"
				"  peal fault now peal0 qp-fatal qp 17");

	fault->require_subcommand(1);
	now->add_option("DEVICE", arguments.name, "the device")->required();
	now->add_option("EVENT", arguments.words,
			"device-fatal, port-err, port-active, qp-fatal qp N, cq-err qp N")
		->required();
	now->callback([&] { fault_now(arguments.name, arguments.words); });
	add->add_option("DEVICE", arguments.name, "the device")->required();
	add->add_option(
		   "FAULT [OPTION VALUE]", arguments.words,
		   "status STATUS, nak STATUS, receive STATUS, rnr, drop, corrupt, mark, delay "
		   "TIME, reorder, duplicate, unsent, slow TIME or no-memory, then any of qp N, "
		   "peer ADDRESS, opcode "
		   "send,write,read,atomic,flush, count N, every N, chance 1/N, seed N")
		->required();
	add->callback([&] { fault_add(arguments.name, arguments.words); });
	add_device(show, arguments);
	add_json(show, arguments);
	show->callback([&] { fault_show(arguments.name, arguments.json); });
	del->alias("delete");
	del->add_option("DEVICE", arguments.name, "the device")->required();
	del->add_option("ID", arguments.id, "only this rule; otherwise all");
	del->callback([&] { fault_delete(arguments.name, arguments.id); });
}

void add_doctor_command(CLI::App &app, Arguments &arguments, const Status &status)
{
	auto *doctor = add_command(app, "doctor", "look for what keeps programs from using peal",
				   "  peal doctor\n"
				   "  peal doctor 10.0.0.2");

	doctor->add_option("PEER", arguments.name,
			   "address or name of a host; the way to it is examined, too");
	add_json(doctor, arguments);
	doctor->callback([&, status] { status(examine(arguments.name, arguments.json)); });
}

void add_why_command(CLI::App &app, Arguments &arguments)
{
	auto *why = add_command(app, "why", "explain the last errors of queue pairs",
				"  peal why\n"
				"  peal why peal0/17");

	why->add_option("QP", arguments.name, "number of the queue pair, or DEVICE/NUMBER");
	add_json(why, arguments);
	why->callback([&] { explain_errors(arguments.name, arguments.json); });
}

void add_dump_command(CLI::App &app, Arguments &arguments, const Status &status)
{
	auto *dump = add_command(app, "dump",
				 "show the packets of a device, and its messages inside this host "
				 "as packets",
				 "  peal dump peal0\n"
				 "  peal dump peal0 --count 100 qp 17\n"
				 "  peal dump peal0 -w peal0.pcap");
	auto &request = arguments.dump;

	dump->add_option("DEVICE", request.device, "the device")->required();
	dump->add_option("qp N", request.words,
			 "only packets of this queue pair, to it and to its peer");
	auto *file =
		dump->add_option("-w,--write", request.file,
				 "write the packets to this file instead, for tshark; \"-\" is "
				 "the standard output")
			->type_name("FILE");
	dump->add_option("-c,--count", request.count, "end after so many packets")
		->type_name("N")
		->check(CLI::Range(1, 1000000000));
	dump->add_option("--snaplen", request.snaplen, "most bytes of a packet in the file")
		->type_name("BYTES")
		->check(CLI::Range(1, 1000000))
		->needs(file);
	dump->add_flag("--json", request.json, "print JSON, one line for each packet")
		->excludes(file);
	dump->callback([&, status] { status(peal::tool::dump(request)); });
}

void add_ping_command(CLI::App &app, Arguments &arguments, const Status &status)
{
	auto *ping = add_command(
		app, "ping", "execute each operation with a peer, compare every byte, and measure",
		"  peal ping --listen\n"
		"  peal ping 10.0.0.2\n"
		"  peal ping 10.0.0.2 --operation read --size 64,1M --count 100");
	auto &request = arguments.ping;
	auto *listen = ping->add_flag("--listen", request.listen, "answer other hosts until ^C");
	/* Of a client only. */
	const auto of_client = [&](CLI::Option *option) { option->excludes(listen); };

	of_client(ping->add_option("PEER", request.peer, "address or name of a host that listens"));
	ping->add_option("--device", request.device,
			 "this device; otherwise the one that reaches the peer, or the first")
		->type_name("DEVICE");
	ping->add_option("--port", request.port, "port of the connection manager")
		->type_name("PORT")
		->check(CLI::Range(1, 65535))
		->capture_default_str();
	ping->add_option("--size", request.sizes,
			 "bytes of a message, such as 64,4K,2M; with --listen, the longest")
		->type_name("BYTES")
		->delimiter(',')
		->allow_extra_args(false);
	auto *operation =
		ping->add_option("--operation", request.operations,
				 "only these: send,send-imm,write,write-imm,read,fetch-add,"
				 "compare-swap")
			->type_name("NAME")
			->delimiter(',')
			->allow_extra_args(false);
	of_client(operation);
	of_client(ping->add_option("--count", request.count,
				   "how often each operation runs with each size")
			  ->type_name("N")
			  ->check(CLI::Range(1, 1000000))
			  ->capture_default_str());
	of_client(ping->add_option("--interval", request.interval, "wait so long between them")
			  ->type_name("SECONDS")
			  ->check(CLI::Range(0.0, PING_LONGEST_INTERVAL)));
	of_client(ping->add_option("--timeout", request.timeout, "how long a step may take")
			  ->type_name("SECONDS")
			  ->check(CLI::Range(0.1, PING_LONGEST_TIMEOUT))
			  ->capture_default_str());
	of_client(ping->add_flag("--json", request.json, "print JSON"));
	ping->callback([&, status] { status(peal::tool::ping(request)); });
}

int complain(const std::exception &error, int status)
{
	print(stderr, "peal: {}\n", error.what());
	return status;
}

/* Return: the sentence of CLI11, or a better one, and which help has more. */
std::string wrong_use(const CLI::App &app, const CLI::ParseError &error)
{
	const CLI::App *command = &app;
	std::string path = app.get_name(), sentence = error.what();

	for (auto next = app.get_subcommands(); !next.empty(); next = command->get_subcommands()) {
		command = next[0];
		path += " " + command->get_name();
	}
	const auto unknown = command->remaining();
	if (!unknown.empty() && command->get_require_subcommand_min() > 0)
		sentence = formatted("\"{}\" is no command", unknown[0]);
	else if (sentence.starts_with("A ") || sentence.starts_with("The "))
		sentence[0] = static_cast<char>(std::tolower(sentence[0]));
	return formatted("{}; \"{} --help\" shows what to type", sentence, path);
}

int run(int argc, char **argv)
{
	CLI::App app("peal makes, shows and examines RDMA devices in software.", "peal");
	Arguments arguments;
	int status = EXIT_OK;

	/* The types of arguments tell nothing, because their names do. */
	app.get_formatter()->label("TEXT", "");
	app.get_formatter()->label("REQUIRED", "");
	app.require_subcommand(1);
	app.set_version_flag("--version", "peal " PEAL_VERSION);
	app.footer(
		"\"peal COMMAND --help\" has examples. \"man peal\" has more.\n"
		"The exit status is 0, 1 if the command failed, or 2 if its arguments are wrong.");
	add_link_commands(app, arguments);
	add_host_commands(app, arguments);
	add_show_commands(app, arguments);
	add_stat_command(app, arguments);
	add_why_command(app, arguments);
	add_fault_commands(app, arguments);
	add_doctor_command(app, arguments, [&](int found) { status = found; });
	add_dump_command(app, arguments, [&](int found) { status = found; });
	add_ping_command(app, arguments, [&](int found) { status = found; });
	try {
		app.parse(argc, argv);
	} catch (const CLI::ParseError &error) {
		if (error.get_exit_code() == 0)
			return app.exit(error); /* --help or --version */
		return complain(WrongUse(wrong_use(app, error)), EXIT_WRONG_USE);
	}
	return status;
}

} /* namespace */

int main(int argc, char **argv)
{
	try {
		return run(argc, argv);
	} catch (const WrongUse &error) {
		return complain(error, EXIT_WRONG_USE);
	} catch (const std::exception &error) {
		return complain(error, EXIT_PROBLEM);
	}
}
