// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "link.hpp"

#include <cerrno>

#include <nlohmann/json.hpp>

#include "error.hpp"
#include "formatted.hpp"
#include "module.hpp"
#include "rdma.hpp"
#include "table.hpp"

namespace peal::tool {

namespace {

using Json = nlohmann::ordered_json;

template <typename Value>
Json json_of(const std::optional<Value> &value)
{
	return value ? Json(*value) : Json();
}

std::string cell_of(const std::optional<std::uint32_t> &value)
{
	return value ? std::to_string(*value) : MISSING;
}

/* A word that says that the value is missing is null. */
Json json_of_word(const std::string &word)
{
	return word == MISSING ? Json() : Json(word);
}

/* Return: why the kernel did not make the device, and what to do. */
Failure not_made(const std::string &name, const std::string &netdev, const KernelError &error)
{
	switch (error.number) {
	case EPERM:
		return Failure(formatted("{} cannot be made (Operation not permitted); run the "
					 "command as root",
					 name));
	case EINVAL:
		if (!Module::is_loaded())
			return Failure("the kernel finds no module peal; type \"modprobe peal\", "
				       "which says why, or \"peal doctor\"");
		return Failure(formatted(
			"\"{}\" cannot be a device's name; choose one such as peal0", name));
	case ENODEV:
		return Failure(formatted("there is no netdev {} in this network namespace; \"ip "
					 "link\" lists them",
					 netdev));
	case EEXIST:
		return Failure(formatted("{} has an RDMA device already (File exists); \"rdma "
					 "link\" shows which",
					 netdev));
	case ENFILE:
		return Failure(
			formatted("there is an RDMA device {} already; choose another name", name));
	case EOPNOTSUPP:
		return Failure(formatted("a device on {} is not supported; name an Ethernet netdev "
					 "that is no VLAN, or lo",
					 netdev));
	default:
		return Failure(formatted("{} cannot be made on {}: {}; \"peal doctor\" looks for "
					 "the cause",
					 name, netdev, error.what()));
	}
}

} /* namespace */

void link_add(const std::string &name, const std::string &netdev,
	      const std::vector<std::string> &words)
{
	const auto options = parse_device_options(words);

	try {
		Rdma().new_link(name, netdev);
	} catch (const KernelError &error) {
		throw not_made(name, netdev, error);
	}
	if (words.empty())
		return;
	try {
		Module().set(name, options);
	} catch (const Failure &) {
		link_delete(name);
		throw;
	}
}

void link_delete(const std::string &name)
{
	const auto device = Module().device(name);

	try {
		Rdma().delete_link(device.index);
	} catch (const KernelError &error) {
		if (error.number == EPERM)
			throw Failure(formatted("{} cannot be removed (Operation not permitted); "
						"run the command as root",
						name));
		throw Failure(formatted("{} cannot be removed: {}; try again", name, error.what()));
	}
}

void link_set(const std::string &name, const std::vector<std::string> &words)
{
	const auto options = parse_device_options(words);

	if (options.faults)
		throw WrongUse(formatted("faults are chosen when a device is added; type \"peal "
					 "link del {0}\" and \"peal link add {0} netdev DEV "
					 "faults on\"",
					 name));
	Module().set(name, options);
}

void link_show(const std::string &name, bool json)
{
	Module module;
	Rdma rdma;
	Table table({"DEVICE", "NETDEV", "STATE", "DIRECT", "MAX-RD-ATOMIC", "RATE", "ECN",
		     "FAULTS", "LIMITS"});
	auto all = Json::array();

	for (const auto &device : module.devices_named(name)) {
		const auto port = rdma.port(device.index);
		const auto &options = device.options;
		const auto ecn = ecn_word(options.ecn);

		table.add({device.name, port.netdev.value_or(MISSING), port_state_word(port.state),
			   switch_word(options.direct), cell_of(options.limits[0]),
			   rate_word(options.rate), ecn, switch_word(options.faults),
			   limit_words(options)});
		all.push_back({{"device", device.name},
			       {"index", device.index},
			       {"netdev", json_of(port.netdev)},
			       {"state", json_of_word(port_state_word(port.state))},
			       {"direct", json_of_word(switch_word(options.direct))},
			       {"rate", json_of(options.rate)},
			       {"ecn", json_of_word(ecn)},
			       {"faults", json_of_word(switch_word(options.faults))}});
		for (std::size_t i = 0; i < LIMITS; i++)
			all.back()[limits()[i].name] = json_of(options.limits[i]);
		all.back()["without"] =
			options.without ? Json(without_words(*options.without)) : Json();
	}
	if (json)
		print("{}\n", all.dump(2));
	else
		print("{}", table.text(wants_colours()));
}

void host_set(const std::vector<std::string> &words)
{
	const auto options = parse_host_options(words);

	Module().set_host(options);
}

void host_show(bool json)
{
	const auto scope = scope_word(Module().host().direct);

	if (json)
		print("{}\n", Json{{"direct", json_of_word(scope)}}.dump(2));
	else
		print("direct {}\n", scope);
}

} /* namespace peal::tool */
