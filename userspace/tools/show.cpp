// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "show.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <string_view>

#include <nlohmann/json.hpp>
#include <rdma/rdma_netlink.h>

#include "error.hpp"
#include "formatted.hpp"
#include "module.hpp"
#include "rdma.hpp"
#include "table.hpp"

namespace peal::tool {

namespace {

using Json = nlohmann::ordered_json;

enum class Form { NUMBER, HEX, QP_TYPE, QP_STATE, SRQ_TYPE };

struct Column {
	const char *name;
	int attribute;
	Form form = Form::NUMBER;
};

/* A kind of object. Each has a process or a kernel user as well. */
struct Kind {
	const char *name;
	int command;
	int nest;
	std::vector<Column> columns;
	/* The names of the driver's values that the table shows without --details. */
	std::vector<std::string> driver;
};

const std::vector<Kind> &kinds()
{
	static const std::vector<Kind> all{
		{"qp",
		 RDMA_NLDEV_CMD_RES_QP_GET,
		 RDMA_NLDEV_ATTR_RES_QP,
		 {{"lqpn", RDMA_NLDEV_ATTR_RES_LQPN},
		  {"type", RDMA_NLDEV_ATTR_RES_TYPE, Form::QP_TYPE},
		  {"state", RDMA_NLDEV_ATTR_RES_STATE, Form::QP_STATE},
		  {"rqpn", RDMA_NLDEV_ATTR_RES_RQPN},
		  {"sq-psn", RDMA_NLDEV_ATTR_RES_SQ_PSN},
		  {"rq-psn", RDMA_NLDEV_ATTR_RES_RQ_PSN},
		  {"pdn", RDMA_NLDEV_ATTR_RES_PDN}},
		 {"transport", "sq-posted", "rq-posted"}},
		{"cq",
		 RDMA_NLDEV_CMD_RES_CQ_GET,
		 RDMA_NLDEV_ATTR_RES_CQ,
		 {{"cqn", RDMA_NLDEV_ATTR_RES_CQN},
		  {"cqe", RDMA_NLDEV_ATTR_RES_CQE},
		  {"users", RDMA_NLDEV_ATTR_RES_USECNT},
		  {"ctxn", RDMA_NLDEV_ATTR_RES_CTXN}},
		 {"written", "overflowed"}},
		{"mr",
		 RDMA_NLDEV_CMD_RES_MR_GET,
		 RDMA_NLDEV_ATTR_RES_MR,
		 {{"mrn", RDMA_NLDEV_ATTR_RES_MRN},
		  {"rkey", RDMA_NLDEV_ATTR_RES_RKEY, Form::HEX},
		  {"lkey", RDMA_NLDEV_ATTR_RES_LKEY, Form::HEX},
		  {"iova", RDMA_NLDEV_ATTR_RES_IOVA, Form::HEX},
		  {"length", RDMA_NLDEV_ATTR_RES_MRLEN},
		  {"pdn", RDMA_NLDEV_ATTR_RES_PDN}},
		 {"access"}},
		{"srq",
		 RDMA_NLDEV_CMD_RES_SRQ_GET,
		 RDMA_NLDEV_ATTR_RES_SRQ,
		 {{"srqn", RDMA_NLDEV_ATTR_RES_SRQN},
		  {"type", RDMA_NLDEV_ATTR_RES_TYPE, Form::SRQ_TYPE},
		  {"pdn", RDMA_NLDEV_ATTR_RES_PDN},
		  {"cqn", RDMA_NLDEV_ATTR_RES_CQN}},
		 {"entries", "taken"}},
		{"ctx",
		 RDMA_NLDEV_CMD_RES_CTX_GET,
		 RDMA_NLDEV_ATTR_RES_CTX,
		 {{"ctxn", RDMA_NLDEV_ATTR_RES_CTXN}},
		 {}},
	};

	return all;
}

template <std::size_t N>
std::string word(const std::array<std::string_view, N> &words, std::uint64_t value)
{
	return value < N && !words[value].empty() ? std::string(words[value])
						  : std::to_string(value);
}

/* Indexed by enum ib_qp_type of the kernel. */
constexpr std::array<std::string_view, 11> qp_types{"SMI", "GSI", "RC",	 "UC",	    "UD",     "",
						    "",	   "",	  "RAW", "XRC_INI", "XRC_TGT"};
/* Indexed by enum ib_qp_state. */
constexpr std::array<std::string_view, 7> qp_states{"RESET", "INIT", "RTR", "RTS",
						    "SQD",   "SQE",  "ERR"};
/* Indexed by enum ib_srq_type. */
constexpr std::array<std::string_view, 3> srq_types{"BASIC", "XRC", "TM"};

Json value_of(const Column &column, const Attributes &object)
{
	const auto value = object.number(column.attribute);

	if (!value)
		return {};
	switch (column.form) {
	case Form::HEX:
		return formatted("{:#x}", *value);
	case Form::QP_TYPE:
		return word(qp_types, *value);
	case Form::QP_STATE:
		return word(qp_states, *value);
	case Form::SRQ_TYPE:
		return word(srq_types, *value);
	default:
		return *value;
	}
}

/* Return: the command of the process, or of the kernel user, in brackets. */
Json owner_of(const Attributes &object)
{
	if (const auto kernel = object.string(RDMA_NLDEV_ATTR_RES_KERN_NAME))
		return formatted("[{}]", *kernel);
	const auto pid = object.number(RDMA_NLDEV_ATTR_RES_PID);
	std::string command;
	if (pid && std::getline(std::ifstream(formatted("/proc/{}/comm", *pid)), command))
		return command;
	return {};
}

Json object_of(const Kind &kind, const std::string &device, const Attributes &attributes)
{
	Json object{{"device", device}};

	for (const auto &column : kind.columns)
		object[column.name] = value_of(column, attributes);
	if (const auto pid = attributes.number(RDMA_NLDEV_ATTR_RES_PID))
		object["pid"] = *pid;
	else
		object["pid"] = nullptr;
	object["command"] = owner_of(attributes);
	object["driver"] = driver_values(attributes);
	return object;
}

std::string cell_of(const Json &value)
{
	if (value.is_null())
		return MISSING;
	return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string title_of(std::string name)
{
	std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
	return name;
}

/* Return: the names of the driver's values that the table has. */
std::vector<std::string> driver_columns(const Kind &kind, const Json &objects, bool details)
{
	auto names = kind.driver;

	for (const auto &object : objects)
		for (const auto &[name, value] : object["driver"].items())
			if (details && std::ranges::find(names, name) == names.end())
				names.push_back(name);
	return names;
}

void print_table(const Kind &kind, const Json &objects, bool details)
{
	const auto driver = driver_columns(kind, objects, details);
	std::vector<std::string> names{"device"};

	for (const auto &column : kind.columns)
		names.push_back(column.name);
	names.insert(names.end(), {"pid", "command"});
	auto titles = names;
	titles.insert(titles.end(), driver.begin(), driver.end());
	std::ranges::transform(titles, titles.begin(), title_of);
	Table table(titles);
	for (const auto &object : objects) {
		std::vector<std::string> row;

		for (const auto &name : names)
			row.push_back(cell_of(object[name]));
		for (const auto &name : driver)
			row.push_back(cell_of(object["driver"].value(name, Json())));
		table.add(row);
	}
	print("{}", table.text(wants_colours()));
}

/* A kernel that is older than the command answers EOPNOTSUPP or EINVAL. */
std::vector<Message> ask(Rdma &rdma, const Kind &kind, const Device &device)
{
	try {
		return rdma.objects(kind.command, device.index);
	} catch (const KernelError &error) {
		if (error.number == ENODEV) /* it was removed meanwhile */
			return {};
		throw Failure(formatted("the kernel does not list the {}s of {}: {}; use a newer "
					"kernel",
					kind.name, device.name, error.what()));
	}
}

} /* namespace */

nlohmann::ordered_json driver_values(const Attributes &object)
{
	auto values = Json::object();
	std::optional<std::string> name;
	bool hex = false;

	object.nest(RDMA_NLDEV_ATTR_DRIVER).each([&](int type, std::span<const std::byte> bytes) {
		if (type == RDMA_NLDEV_ATTR_DRIVER_PRINT_TYPE) {
			hex = read_number(bytes) == RDMA_NLDEV_PRINT_TYPE_HEX;
			return;
		}
		if (!name) {
			if (type == RDMA_NLDEV_ATTR_DRIVER_STRING)
				name = read_string(bytes);
			return;
		}
		if (type == RDMA_NLDEV_ATTR_DRIVER_STRING)
			values[*name] = read_string(bytes);
		else if (const auto number = read_number(bytes))
			values[*name] = hex ? Json(formatted("{:#x}", *number)) : Json(*number);
		name.reset();
		hex = false;
	});
	return values;
}

std::vector<std::string> object_kinds()
{
	std::vector<std::string> names;

	for (const auto &kind : kinds())
		names.emplace_back(kind.name);
	return names;
}

void show_objects(const std::string &name, const std::string &device, bool details, bool json)
{
	const auto &kind = *std::ranges::find(kinds(), name, &Kind::name);
	auto objects = Json::array();
	Module module;
	Rdma rdma;

	for (const auto &owner : module.devices_named(device))
		for (const auto &message : ask(rdma, kind, owner))
			message.attributes().nest(kind.nest).each(
				[&](int, std::span<const std::byte> entry) {
					objects.push_back(
						object_of(kind, owner.name, Attributes(entry)));
				});
	if (json)
		print("{}\n", objects.dump(2));
	else
		print_table(kind, objects, details);
}

} /* namespace peal::tool */
