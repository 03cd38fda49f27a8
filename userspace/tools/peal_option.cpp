// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Reads and sets options of peal devices and of the host through the generic netlink family.
 *
 *	peal-option				print all devices, one per line
 *	peal-option DEV				print one device
 *	peal-option DEV direct 0|1		set an option of a device
 *	peal-option DEV max-rd-atomic N		set an option of a device
 *	peal-option DEV rate GBPS		set an option of a device
 *	peal-option DEV ecn off|asked|on	set an option of a device
 *	peal-option host			print the options of the host
 *	peal-option host direct none|device|netns|host
 *
 * Exit status: 0; 1 with the kernel's message on stderr; 2 for wrong arguments.
 */
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include <linux/netlink.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>
#include <sys/socket.h>

#include <rdma/peal-netlink.h>

namespace {

struct Free {
	void operator()(nl_sock *sock) const { nl_socket_free(sock); }

	void operator()(nl_msg *msg) const { nlmsg_free(msg); }
};

using Socket = std::unique_ptr<nl_sock, Free>;
using Message = std::unique_ptr<nl_msg, Free>;

void check(int ret, const char *what)
{
	if (ret < 0)
		throw std::runtime_error(std::string(what) + ": " + nl_geterror(ret));
}

/* Indexed by enum peal_nl_scope. */
constexpr std::array<const char *, PEAL_NL_SCOPE_COUNT_> scopes{"none", "device", "netns", "host"};

/* Indexed by enum peal_nl_ecn. */
constexpr std::array<const char *, PEAL_NL_ECN_COUNT_> ecns{"off", "asked", "on"};

int print(nl_msg *msg, void *)
{
	nlmsghdr *header = nlmsg_hdr(msg);

	if (genlmsg_hdr(header)->cmd == PEAL_NL_CMD_HOST_GET) {
		nlattr *attr[PEAL_NL_HOST_COUNT_] = {};

		genlmsg_parse(header, 0, attr, PEAL_NL_HOST_COUNT_ - 1, nullptr);
		const auto scope = nla_get_u32(attr[PEAL_NL_HOST_DIRECT]);
		std::printf("host: direct %s\n", scope < scopes.size() ? scopes[scope] : "unknown");
		return NL_OK;
	}
	nlattr *attr[PEAL_NL_DEV_COUNT_] = {};

	genlmsg_parse(header, 0, attr, PEAL_NL_DEV_COUNT_ - 1, nullptr);
	std::printf("%u: %s direct %u max-rd-atomic %u", nla_get_u32(attr[PEAL_NL_DEV_INDEX]),
		    nla_get_string(attr[PEAL_NL_DEV_NAME]), nla_get_u8(attr[PEAL_NL_DEV_DIRECT]),
		    nla_get_u32(attr[PEAL_NL_DEV_MAX_RD_ATOMIC]));
	/* An older kernel lacks these options. */
	if (attr[PEAL_NL_DEV_RATE])
		std::printf(" rate %u", nla_get_u32(attr[PEAL_NL_DEV_RATE]));
	if (attr[PEAL_NL_DEV_ECN]) {
		const auto ecn = nla_get_u32(attr[PEAL_NL_DEV_ECN]);
		std::printf(" ecn %s", ecn < ecns.size() ? ecns[ecn] : "unknown");
	}
	std::printf("\n");
	return NL_OK;
}

/*
 * Returns the message of the kernel for `error`. Its attributes follow `error` directly, because
 * NETLINK_CAP_ACK leaves out the copy of the request.
 */
const char *words(nlmsgerr *error)
{
	const auto *header = reinterpret_cast<nlmsghdr *>(error) - 1;
	auto *first = reinterpret_cast<nlattr *>(error + 1);
	const int bytes = static_cast<int>(header->nlmsg_len - NLMSG_LENGTH(sizeof(*error)));
	nlattr *found = bytes > 0 ? nla_find(first, bytes, NLMSGERR_ATTR_MSG) : nullptr;

	return found ? nla_get_string(found) : "the kernel gives no words";
}

int failed(sockaddr_nl *, nlmsgerr *error, void *)
{
	std::fprintf(stderr, "peal-option: %s: %s\n", std::strerror(-error->error), words(error));
	std::exit(1);
}

int usage()
{
	std::fputs("usage: peal-option [DEV [direct 0|1 | max-rd-atomic N | rate GBPS |\n"
		   "                         ecn off|asked|on]]\n"
		   "       peal-option host [direct none|device|netns|host]\n",
		   stderr);
	return 2;
}

bool put_ecn(nl_msg *msg, std::string_view value)
{
	for (uint32_t ecn = 0; ecn < ecns.size(); ecn++)
		if (value == ecns[ecn])
			return nla_put_u32(msg, PEAL_NL_DEV_ECN, ecn) == 0;
	return false;
}

bool put_option(nl_msg *msg, std::string_view name, const char *value)
{
	char *end = nullptr;
	const unsigned long number = std::strtoul(value, &end, 0);

	if (name == "ecn")
		return put_ecn(msg, value);
	if (end == value || *end || number > UINT32_MAX)
		return false;
	if (name == "direct")
		return number <= UINT8_MAX &&
		       nla_put_u8(msg, PEAL_NL_DEV_DIRECT, static_cast<uint8_t>(number)) == 0;
	if (name == "rate")
		return nla_put_u32(msg, PEAL_NL_DEV_RATE, static_cast<uint32_t>(number)) == 0;
	return name == "max-rd-atomic" &&
	       nla_put_u32(msg, PEAL_NL_DEV_MAX_RD_ATOMIC, static_cast<uint32_t>(number)) == 0;
}

bool put_scope(nl_msg *msg, std::string_view name, std::string_view value)
{
	for (uint32_t scope = 0; scope < scopes.size(); scope++)
		if (name == "direct" && value == scopes[scope])
			return nla_put_u32(msg, PEAL_NL_HOST_DIRECT, scope) == 0;
	return false;
}

int run(int argc, char **argv)
{
	const bool sets = argc == 4;
	const bool host = argc > 1 && std::string_view(argv[1]) == "host";

	if (argc > 4 || argc == 3)
		return usage();

	Socket socket(nl_socket_alloc());
	nl_sock *const sock = socket.get();
	const int on = 1;
	check(genl_connect(sock), "generic netlink");
	/* Ask for the kernel's words on errors. */
	setsockopt(nl_socket_get_fd(sock), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof(on));
	setsockopt(nl_socket_get_fd(sock), SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof(on));
	const int family = genl_ctrl_resolve(sock, PEAL_NL_FAMILY);
	check(family, "family peal (is the module loaded?)");
	nl_socket_modify_cb(sock, NL_CB_VALID, NL_CB_CUSTOM, print, nullptr);
	nl_socket_modify_err_cb(sock, NL_CB_CUSTOM, failed, nullptr);

	Message message(nlmsg_alloc());
	nl_msg *const msg = message.get();
	const int get = host ? PEAL_NL_CMD_HOST_GET : PEAL_NL_CMD_DEV_GET;
	const int set = host ? PEAL_NL_CMD_HOST_SET : PEAL_NL_CMD_DEV_SET;
	genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, family, 0,
		    argc == 1 ? NLM_F_DUMP : (sets ? NLM_F_ACK : 0), sets ? set : get,
		    PEAL_NL_VERSION);
	if (argc > 1 && !host)
		nla_put_string(msg, PEAL_NL_DEV_NAME, argv[1]);
	if (sets && !(host ? put_scope(msg, argv[2], argv[3]) : put_option(msg, argv[2], argv[3])))
		return usage();
	check(nl_send_auto(sock, msg), "request");
	check(nl_recvmsgs_default(sock), "answer");
	return 0;
}

} /* namespace */

int main(int argc, char **argv)
{
	try {
		return run(argc, argv);
	} catch (const std::exception &e) {
		std::fprintf(stderr, "peal-option: %s\n", e.what());
		return 1;
	}
}
