// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "module.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>

#include <rdma/peal-netlink.h>

#include "error.hpp"
#include "formatted.hpp"

namespace peal::tool {

namespace {

Device read_device(const Message &message)
{
	const auto attributes = message.attributes(GENL_HDRLEN);
	Device device;

	device.index = static_cast<std::uint32_t>(attributes.number(PEAL_NL_DEV_INDEX).value_or(0));
	device.name = attributes.string(PEAL_NL_DEV_NAME).value_or("");
	device.options.direct = attributes.number(PEAL_NL_DEV_DIRECT);
	device.options.rate = attributes.number(PEAL_NL_DEV_RATE);
	device.options.ecn = attributes.number(PEAL_NL_DEV_ECN);
	device.options.without = attributes.number(PEAL_NL_DEV_WITHOUT);
	device.options.faults = attributes.number(PEAL_NL_DEV_FAULTS);
	for (std::size_t i = 0; i < LIMITS; i++)
		device.options.limits[i] = attributes.number(limits()[i].attribute);
	return device;
}

/* An IPv4 address is the last four bytes of a GID that IPv6 calls mapped. */
std::optional<std::string> read_address(std::optional<std::span<const std::byte>> gid)
{
	std::array<char, INET6_ADDRSTRLEN> text{};
	in6_addr address;

	if (!gid || gid->size() != sizeof(address))
		return {};
	std::memcpy(&address, gid->data(), sizeof(address));
	if (IN6_IS_ADDR_V4MAPPED(&address))
		inet_ntop(AF_INET, &address.s6_addr[12], text.data(), text.size());
	else
		inet_ntop(AF_INET6, &address, text.data(), text.size());
	return text.data();
}

QpError read_error(const Message &message)
{
	const auto attributes = message.attributes(GENL_HDRLEN);
	const auto number = [&](int type) { return attributes.number(type); };

	return {
		.device = attributes.string(PEAL_NL_ERROR_DEV_NAME).value_or(""),
		.qpn = number(PEAL_NL_ERROR_QPN).value_or(0),
		.responder = attributes.data(PEAL_NL_ERROR_RESPONDER).has_value(),
		.qp_type = number(PEAL_NL_ERROR_QP_TYPE),
		.peer_qpn = number(PEAL_NL_ERROR_PEER_QPN),
		.uid = number(PEAL_NL_ERROR_UID),
		.age = number(PEAL_NL_ERROR_AGE),
		.count = number(PEAL_NL_ERROR_COUNT),
		.opcode = number(PEAL_NL_ERROR_OPCODE),
		.status = number(PEAL_NL_ERROR_STATUS),
		.reason = number(PEAL_NL_ERROR_REASON),
		.key = number(PEAL_NL_ERROR_KEY),
		.address = number(PEAL_NL_ERROR_ADDRESS),
		.length = number(PEAL_NL_ERROR_LENGTH),
		.room = number(PEAL_NL_ERROR_ROOM),
		.pdn = number(PEAL_NL_ERROR_PDN),
		.wanted = number(PEAL_NL_ERROR_WANTED),
		.allowed = number(PEAL_NL_ERROR_ALLOWED),
		.key_pdn = number(PEAL_NL_ERROR_KEY_PDN),
		.key_access = number(PEAL_NL_ERROR_KEY_ACCESS),
		.key_start = number(PEAL_NL_ERROR_KEY_START),
		.key_length = number(PEAL_NL_ERROR_KEY_LENGTH),
		.retries = number(PEAL_NL_ERROR_RETRIES),
		.rnr_retries = number(PEAL_NL_ERROR_RNR_RETRIES),
		.timeout = number(PEAL_NL_ERROR_TIMEOUT),
		.peer_address = read_address(attributes.data(PEAL_NL_ERROR_PEER_GID)),
	};
}

FaultRule read_fault(const Message &message)
{
	const auto attributes = message.attributes(GENL_HDRLEN);
	const auto number = [&](int type) { return attributes.number(type); };
	const auto peer = attributes.data(PEAL_NL_FAULT_PEER_GID);
	FaultRule rule{
		.device = attributes.string(PEAL_NL_FAULT_DEV_NAME).value_or(""),
		.id = number(PEAL_NL_FAULT_ID).value_or(0),
		.kind = static_cast<std::uint32_t>(number(PEAL_NL_FAULT_KIND).value_or(0)),
		.status = number(PEAL_NL_FAULT_STATUS),
		.delay = number(PEAL_NL_FAULT_DELAY),
		.qpn = number(PEAL_NL_FAULT_QPN),
		.peer = {},
		.opcodes = number(PEAL_NL_FAULT_OPCODES),
		.count = number(PEAL_NL_FAULT_COUNT),
		.every = number(PEAL_NL_FAULT_EVERY),
		.chance = number(PEAL_NL_FAULT_CHANCE),
		.seed = number(PEAL_NL_FAULT_SEED),
		.seen = number(PEAL_NL_FAULT_SEEN),
		.fired = number(PEAL_NL_FAULT_FIRED),
	};

	if (peer && peer->size() == sizeof(FaultRule::Gid))
		std::ranges::copy(*peer, rule.peer.emplace().begin());
	return rule;
}

/* An older module refuses attributes that it does not know. */
bool is_unknown_attribute(const KernelError &error)
{
	return error.number == EINVAL && error.words.starts_with("Unknown attribute");
}

/* Return: what to do about an error of a request that is about `what`. */
Failure failure(const std::string &what, const KernelError &error)
{
	if (is_unknown_attribute(error))
		return Failure(formatted("{}: the module that is loaded does not know this "
					 "option; load the one of this release",
					 what));
	switch (error.number) {
	case ENODEV:
		return Failure(formatted("there is no such peal device as {}; \"peal link show\" "
					 "lists them",
					 what));
	case EBUSY:
		return Failure(formatted("faults cannot be set on {}, because {}; end them, or "
					 "make another device",
					 what, error.what()));
	case EPERM:
		if (!error.words.empty())
			return Failure(
				formatted("the options of {} can be set {}", what, error.words));
		return Failure(formatted("the options of {} cannot be set (Operation not "
					 "permitted); run the command as root",
					 what));
	case ERANGE:
		return Failure(formatted("{}: Numerical result out of range; direct is on or "
					 "off, max-rd-atomic is 1 to 128, other limits are 1 or "
					 "more, and max-inline is 0 or more",
					 what));
	case EINVAL:
		return Failure(formatted("{}: {}; rate is auto, 10, 25, 40, 50, 100, 200 or 400",
					 what, error.what()));
	default:
		return Failure(formatted("{}: {}; \"peal doctor\" looks for the cause", what,
					 error.what()));
	}
}

} /* namespace */

Failure fault_failure(const std::string &device, std::uint32_t id, const KernelError &error)
{
	if (is_unknown_attribute(error) || error.number == ERANGE ||
	    (error.number == EOPNOTSUPP && error.words.empty()))
		return Failure("the module that is loaded does not know this fault; load the one "
			       "of this release");
	switch (error.number) {
	case EOPNOTSUPP:
		return Failure(formatted("{0} was added without faults; type \"peal link del "
					 "{0}\" and \"peal link add {0} netdev DEV faults on\"",
					 device));
	case EPERM:
		return Failure(formatted("the faults of {} cannot be set (Operation not "
					 "permitted); run the command as root",
					 device));
	case ENOENT:
		return Failure(formatted("{0} has no rule {1}; \"peal fault show {0}\" lists "
					 "them",
					 device, id));
	case ENXIO:
		return Failure(
			formatted("{}: {}; \"peal show qp\" lists them", device, error.what()));
	case EBUSY:
		return Failure(formatted("{0}: {1}, which faults spare; name the queue pair of a "
					 "program, which \"peal show qp {0}\" lists",
					 device, error.words));
	case ENOSPC:
		return Failure(formatted("{}: {}; remove some by \"peal fault del\"", device,
					 error.what()));
	default:
		return Failure(formatted("{}: {}; \"peal doctor\" looks for the cause", device,
					 error.what()));
	}
}

bool Module::is_loaded()
{
	return Socket(NETLINK_GENERIC).family(PEAL_NL_FAMILY).has_value();
}

Module::Module() : socket(NETLINK_GENERIC)
{
	const auto found = socket.family(PEAL_NL_FAMILY);

	if (!found)
		throw Failure("the module peal is not loaded; type \"modprobe peal\", and \"peal "
			      "doctor\" if that fails");
	family = *found;
}

Request Module::request(int command, int flags) const
{
	Request request(family, flags);
	const genlmsghdr header{static_cast<std::uint8_t>(command), PEAL_NL_VERSION, 0};

	request.header(header);
	return request;
}

std::vector<Device> Module::devices()
{
	auto get = request(PEAL_NL_CMD_DEV_GET, NLM_F_DUMP);
	std::vector<Device> devices;

	for (const auto &message : socket.ask(get))
		devices.push_back(read_device(message));
	return devices;
}

Device Module::device(const std::string &name)
{
	auto get = request(PEAL_NL_CMD_DEV_GET, 0);

	get.add_string(PEAL_NL_DEV_NAME, name);
	try {
		const auto messages = socket.ask(get);

		if (messages.empty())
			throw KernelError(ENODEV, "");
		return read_device(messages[0]);
	} catch (const KernelError &error) {
		/* A name that no device can have is out of range. */
		throw failure(name, error.number == ERANGE ? KernelError(ENODEV, "") : error);
	}
}

std::vector<Device> Module::devices_named(const std::string &name)
{
	return name.empty() ? devices() : std::vector{device(name)};
}

void Module::set(const std::string &name, const DeviceOptions &options)
{
	auto set = request(PEAL_NL_CMD_DEV_SET, 0);

	set.add_string(PEAL_NL_DEV_NAME, name);
	if (options.direct)
		set.add_u8(PEAL_NL_DEV_DIRECT, *options.direct);
	if (options.rate)
		set.add_u32(PEAL_NL_DEV_RATE, *options.rate);
	if (options.ecn)
		set.add_u32(PEAL_NL_DEV_ECN, *options.ecn);
	if (options.without)
		set.add_u32(PEAL_NL_DEV_WITHOUT, *options.without);
	if (options.faults)
		set.add_u8(PEAL_NL_DEV_FAULTS, *options.faults);
	for (std::size_t i = 0; i < LIMITS; i++)
		if (options.limits[i])
			set.add_u32(limits()[i].attribute, *options.limits[i]);
	try {
		socket.ask(set);
	} catch (const KernelError &error) {
		throw failure(name, error);
	}
}

std::vector<QpError> Module::errors()
{
	auto get = request(PEAL_NL_CMD_ERROR_GET, NLM_F_DUMP);
	std::vector<QpError> errors;

	try {
		for (const auto &message : socket.ask(get))
			errors.push_back(read_error(message));
	} catch (const KernelError &error) {
		if (error.number != EOPNOTSUPP)
			throw failure("errors", error);
		throw Failure("the module that is loaded keeps no errors; load a newer one");
	}
	return errors;
}

std::vector<FaultRule> Module::faults()
{
	auto get = request(PEAL_NL_CMD_FAULT_GET, NLM_F_DUMP);
	std::vector<FaultRule> rules;

	try {
		for (const auto &message : socket.ask(get))
			rules.push_back(read_fault(message));
	} catch (const KernelError &error) {
		throw fault_failure("the host", 0, error);
	}
	return rules;
}

std::uint64_t Module::add_fault(const FaultRule &rule)
{
	auto add = request(PEAL_NL_CMD_FAULT_ADD, 0);
	const auto add_u32 = [&](int attribute, const FaultRule::Number &value) {
		if (value)
			add.add_u32(attribute, static_cast<std::uint32_t>(*value));
	};

	device(rule.device); /* throws if there is none */
	add.add_string(PEAL_NL_FAULT_DEV_NAME, rule.device);
	add.add_u32(PEAL_NL_FAULT_KIND, rule.kind);
	if (rule.status)
		add.add_u8(PEAL_NL_FAULT_STATUS, static_cast<std::uint8_t>(*rule.status));
	if (rule.peer)
		add.add(PEAL_NL_FAULT_PEER_GID, rule.peer->data(), rule.peer->size());
	add_u32(PEAL_NL_FAULT_DELAY, rule.delay);
	add_u32(PEAL_NL_FAULT_QPN, rule.qpn);
	add_u32(PEAL_NL_FAULT_OPCODES, rule.opcodes);
	add_u32(PEAL_NL_FAULT_EVERY, rule.every);
	add_u32(PEAL_NL_FAULT_CHANCE, rule.chance);
	if (rule.count)
		add.add_u64(PEAL_NL_FAULT_COUNT, *rule.count);
	if (rule.seed)
		add.add_u64(PEAL_NL_FAULT_SEED, *rule.seed);
	try {
		const auto messages = socket.ask(add);

		if (messages.empty())
			return 0;
		return messages[0].attributes(GENL_HDRLEN).number(PEAL_NL_FAULT_ID).value_or(0);
	} catch (const KernelError &error) {
		throw fault_failure(rule.device, 0, error);
	}
}

void Module::delete_fault(const std::string &name, std::uint32_t id)
{
	auto del = request(PEAL_NL_CMD_FAULT_DEL, 0);

	device(name); /* throws if there is none */
	del.add_string(PEAL_NL_FAULT_DEV_NAME, name);
	if (id)
		del.add_u32(PEAL_NL_FAULT_ID, id);
	try {
		socket.ask(del);
	} catch (const KernelError &error) {
		throw fault_failure(name, id, error);
	}
}

void Module::raise_fault(const std::string &name, const FaultEvent &event)
{
	auto now = request(PEAL_NL_CMD_FAULT_NOW, 0);

	device(name); /* throws if there is none */
	now.add_string(PEAL_NL_FAULT_DEV_NAME, name);
	now.add_u32(PEAL_NL_FAULT_EVENT, event.event);
	if (event.qpn)
		now.add_u32(PEAL_NL_FAULT_QPN, static_cast<std::uint32_t>(*event.qpn));
	try {
		socket.ask(now);
	} catch (const KernelError &error) {
		throw fault_failure(name, 0, error);
	}
}

HostOptions Module::host()
{
	auto get = request(PEAL_NL_CMD_HOST_GET, 0);
	const auto messages = socket.ask(get);

	if (messages.empty())
		return {};
	return {messages[0].attributes(GENL_HDRLEN).number(PEAL_NL_HOST_DIRECT)};
}

void Module::set_host(const HostOptions &options)
{
	auto set = request(PEAL_NL_CMD_HOST_SET, 0);

	if (options.direct)
		set.add_u32(PEAL_NL_HOST_DIRECT, *options.direct);
	try {
		socket.ask(set);
	} catch (const KernelError &error) {
		throw failure("the host", error);
	}
}

} /* namespace peal::tool */
