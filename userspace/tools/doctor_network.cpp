// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The checks of devices and of the network at this host: links, addresses, MTU, port, firewall,
 * direct path, faults on demand, losses.
 */
#include "finding.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ranges>
#include <sstream>

#include <arpa/inet.h>
#include <net/if.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <rdma/peal-netlink.h>

#include "fault_rule.hpp"
#include "firewall.hpp"
#include "formatted.hpp"
#include "roce.hpp"

namespace peal::tool {

namespace {

namespace fs = std::filesystem;

std::string netdev_file(const std::string &netdev, const char *file)
{
	return formatted("/sys/class/net/{}/{}", netdev, file);
}

unsigned long number_in(const std::string &path, unsigned long otherwise)
{
	const auto line = first_line(path);

	return line ? std::strtoul(line->c_str(), nullptr, 0) : otherwise;
}

} /* namespace */

/* ---- links ---- */

void check_links(Findings &findings, const std::vector<Patient> &patients)
{
	if (patients.empty())
		return findings.add(Verdict::PROBLEM, "links", "there is no device",
				    "type \"peal link add peal0 netdev eth0\" with your netdev's "
				    "name for eth0");
	for (const auto &patient : patients) {
		const auto &name = patient.device.name;

		if (!patient.port.netdev) {
			findings.add(
				Verdict::UNKNOWN, "links",
				formatted("the netdev of {} is in another network namespace", name),
				"run the command there");
			continue;
		}
		const auto &netdev = *patient.port.netdev;
		const auto flags = number_in(netdev_file(netdev, "flags"), 0);
		if (port_state_word(patient.port.state) == "active")
			findings.ok("links", formatted("{} on {} is active", name, netdev));
		else if (!(flags & IFF_UP))
			findings.add(Verdict::PROBLEM, "links",
				     formatted("{} is down, because {} is", name, netdev),
				     formatted("type \"ip link set {} up\"", netdev));
		else
			findings.add(
				Verdict::PROBLEM, "links",
				formatted("{} is down, because {} has no carrier", name, netdev),
				formatted("plug its cable in, or set the peer of {} up", netdev));
	}
}

/* ---- GIDs ---- */

namespace {

struct Gid {
	unsigned index;
	in6_addr address;

	bool is_ipv4() const { return IN6_IS_ADDR_V4MAPPED(&address); }

	std::string text() const
	{
		char buffer[INET6_ADDRSTRLEN];

		if (is_ipv4())
			inet_ntop(AF_INET, &address.s6_addr[12], buffer, sizeof(buffer));
		else
			inet_ntop(AF_INET6, &address, buffer, sizeof(buffer));
		return buffer;
	}
};

/* Return: those that are addresses of IPv4, or of IPv6 beyond the link. */
std::vector<Gid> gids_of(const std::string &device)
{
	const auto port = formatted("/sys/class/infiniband/{}/ports/1/", device);
	std::vector<Gid> gids;

	/* A GID that is not set cannot be read. */
	for (unsigned i = 0; fs::exists(formatted("{}gids/{}", port, i)); i++) {
		Gid gid{i, {}};
		const auto text = first_line(formatted("{}gids/{}", port, i));
		const auto type = first_line(formatted("{}gid_attrs/types/{}", port, i));

		if (text && type == "RoCE v2" &&
		    inet_pton(AF_INET6, text->c_str(), &gid.address) == 1 &&
		    !IN6_IS_ADDR_LINKLOCAL(&gid.address) && !IN6_IS_ADDR_UNSPECIFIED(&gid.address))
			gids.push_back(gid);
	}
	return gids;
}

} /* namespace */

void check_gids(Findings &findings, const std::vector<Patient> &patients)
{
	for (const auto &patient : patients) {
		const auto &name = patient.device.name;
		const auto gids = gids_of(name);

		if (!gids.empty())
			findings.ok("gids",
				    formatted("{} has {} at index {}, and {} more", name,
					      gids[0].text(), gids[0].index, gids.size() - 1));
		else
			findings.add(
				Verdict::PROBLEM, "gids",
				formatted("{} has no GID of an IPv4 or global IPv6 address", name),
				formatted("type \"ip address add ADDRESS/LENGTH dev {}\"",
					  patient.port.netdev.value_or("NETDEV")));
	}
}

/* ---- MTU ---- */

namespace {

/* What a packet needs besides its payload, in IPv6 (Documentation/administration.rst). */
constexpr unsigned long HEADERS = 88;

unsigned long port_mtu(unsigned long netdev_mtu)
{
	for (unsigned long mtu : {4096, 2048, 1024, 512})
		if (netdev_mtu >= mtu + HEADERS)
			return mtu;
	return 256;
}

} /* namespace */

void check_mtu(Findings &findings, const std::vector<Patient> &patients)
{
	for (const auto &patient : patients) {
		if (!patient.port.netdev)
			continue;
		const auto &netdev = *patient.port.netdev;
		const auto mtu = number_in(netdev_file(netdev, "mtu"), 0);
		const auto text = formatted("the MTU {} of {} gives packets of {} bytes", mtu,
					    netdev, port_mtu(mtu));

		if (port_mtu(mtu) >= 1024)
			findings.ok("mtu", text);
		else
			findings.add(Verdict::WARNING, "mtu", text,
				     formatted("type \"ip link set {} mtu 1500\"", netdev));
	}
}

/* ---- the port ---- */

namespace {

/* Return: the programs that have the socket open, as far as this user may look. */
std::string owner_of(const std::string &inode)
{
	const auto wanted = formatted("socket:[{}]", inode);
	const auto options = fs::directory_options::skip_permission_denied;
	std::error_code error;

	for (const auto &process : fs::directory_iterator("/proc", options, error)) {
		if (!std::isdigit(process.path().filename().string()[0]))
			continue;
		for (const auto &file :
		     fs::directory_iterator(process.path() / "fd", options, error))
			if (fs::read_symlink(file, error) == wanted)
				return formatted(
					"{} (process {})",
					first_line(process.path() / "comm").value_or("a program"),
					process.path().filename().string());
	}
	return "a program";
}

} /* namespace */

/* rdma_rxe has a socket of the kernel there, which has no inode and disturbs nothing. */
void check_port(Findings &findings)
{
	for (const auto *table : {"/proc/net/udp", "/proc/net/udp6"}) {
		std::ifstream file(table);

		for (std::string line; std::getline(file, line);) {
			std::istringstream stream(line);
			std::string number, address, word, inode;

			stream >> number >> address;
			for (int i = 0; i < 8; i++)
				stream >> inode;
			const auto colon = address.find(':');
			if (colon == std::string::npos || inode == "0" ||
			    std::strtoul(address.c_str() + colon + 1, nullptr, 16) != ROCE_PORT)
				continue;
			return findings.add(
				Verdict::WARNING, "port",
				formatted("{} has bound UDP port {}, and gets nothing that is "
					  "for a device",
					  owner_of(inode), ROCE_PORT),
				"end the program, or let it use another port");
		}
	}
	findings.ok("port", formatted("no program has bound UDP port {}", ROCE_PORT));
}

/* ---- the firewall ---- */

namespace {

/*
 * Return: what the rules of all kinds do with the packet. `nft` has nothing if there is no such
 * program. iptables has two variants, whose rules do not show each other.
 */
Ruling judge(const std::optional<std::string> &nft, const Packet &packet)
{
	Ruling worst;

	if (nft)
		worst = judge_nft(*nft, packet);
	for (const auto *variant : {"", "-legacy"}) {
		const auto rules = output_of(
			formatted("{}{}-save", packet.ipv6 ? "ip6tables" : "iptables", variant));

		if (!rules)
			continue;
		const auto ruling = judge_iptables(*rules, packet);
		if (ruling.fate > worst.fate)
			worst = ruling;
	}
	return worst;
}

std::string remedy_for(const Ruling &ruling, const Packet &packet)
{
	if (ruling.chain.ends_with("filter INPUT") || ruling.chain.ends_with("filter OUTPUT"))
		return formatted("type \"{} -I {} -p udp --dport {} -j ACCEPT\"",
				 packet.ipv6 ? "ip6tables" : "iptables",
				 packet.outgoing ? "OUTPUT" : "INPUT", ROCE_PORT);
	return formatted("type \"nft insert rule {} udp dport {} accept\"", ruling.chain,
			 ROCE_PORT);
}

} /* namespace */

void check_firewall(Findings &findings, const std::vector<Patient> &patients)
{
	if (geteuid() != 0)
		return findings.add(Verdict::UNKNOWN, "firewall",
				    "only root can read the rules of the firewall",
				    "run the command as root");
	const auto nft = output_of("nft -j list ruleset");
	if (!nft && fs::exists("/sys/module/nf_tables") && !output_of("iptables-save"))
		return findings.add(Verdict::UNKNOWN, "firewall",
				    "the kernel may have rules, but there is no program that reads "
				    "them",
				    "type \"apt-get install nftables\"");
	bool unsure = false;
	for (const auto &patient : patients)
		for (const bool ipv6 : {false, true})
			for (const bool outgoing : {false, true}) {
				const Packet packet{ipv6, outgoing,
						    patient.port.netdev.value_or("")};
				const auto ruling = judge(nft, packet);
				const auto what =
					formatted("packets of {} {}", ipv6 ? "IPv6" : "IPv4",
						  outgoing ? "from" : "to");

				if (ruling.fate == Fate::DROPPED)
					return findings.add(Verdict::PROBLEM, "firewall",
							    formatted("the chain {} drops {} {}",
								      ruling.chain, what,
								      patient.device.name),
							    remedy_for(ruling, packet));
				if (ruling.fate == Fate::UNSURE && !unsure) {
					unsure = true;
					findings.add(
						Verdict::UNKNOWN, "firewall",
						formatted("the chain {} may drop {} {}, as rules "
							  "say that this command cannot judge",
							  ruling.chain, what, patient.device.name),
						formatted("if packets are lost, {}",
							  remedy_for(ruling, packet)));
				}
			}
	if (!unsure)
		findings.ok("firewall",
			    formatted("no rule of this host drops UDP port {}", ROCE_PORT));
}

/* ---- rp_filter ---- */

/* The kernel takes the higher of the two values. 1 is strict. */
void check_rp_filter(Findings &findings, const std::vector<Patient> &patients)
{
	const std::string folder = "/proc/sys/net/ipv4/conf/";
	const auto of_all = number_in(folder + "all/rp_filter", 0);
	bool strict = false;

	for (const auto &patient : patients) {
		if (!patient.port.netdev)
			continue;
		const auto &netdev = *patient.port.netdev;
		const auto value = std::max(of_all, number_in(folder + netdev + "/rp_filter", 0));

		if (value != 1)
			continue;
		strict = true;
		findings.add(Verdict::WARNING, "rp_filter",
			     formatted("{} drops packets of peers to which the route leaves by "
				       "another netdev",
				       netdev),
			     formatted("if a host has two netdevs in one network, type \"sysctl "
				       "-w net.ipv4.conf.{}.rp_filter=2\"",
				       of_all == 1 ? "all" : netdev));
	}
	if (!strict)
		findings.ok("rp_filter",
			    "packets may come by another netdev than answers leave by");
}

/* ---- the direct path ---- */

void check_direct(Findings &findings, const std::vector<Patient> &patients)
{
	if (patients.empty())
		return;
	const auto scope = Module().host().direct;
	if (scope == PEAL_NL_SCOPE_NONE)
		return findings.add(Verdict::WARNING, "direct",
				    "the direct path is off for this host, so that all messages "
				    "travel as packets",
				    "type \"peal host set direct netns\"");
	for (const auto &patient : patients) {
		const auto &name = patient.device.name;

		if (patient.device.options.direct == 0)
			findings.add(Verdict::WARNING, "direct",
				     formatted("the direct path of {} is off", name),
				     formatted("type \"peal link set {} direct on\"", name));
		else if (patient.counter("locality_challenges") > 0 &&
			 patient.counter("locality_late") >= patient.counter("locality_challenges"))
			findings.add(
				Verdict::WARNING, "direct",
				formatted("challenges of {} are answered too late, so that "
					  "messages stay on the wire",
					  name),
				"look for load on this host, and for delay between the netdevs");
		else
			findings.ok("direct",
				    formatted("the direct path of {} is on, for the scope {}; "
					      "{} of {} messages took it",
					      name, scope_word(scope),
					      patient.counter("direct_messages"),
					      patient.counter("messages")));
	}
}

/* ---- faults on demand ---- */

/* A device that was added without faults has none, and an older module does not know them. */
void check_faults(Findings &findings, const std::vector<Patient> &patients)
{
	const auto may_have_rules = [](const Patient &patient) {
		return patient.device.options.faults.value_or(0) != 0;
	};

	if (std::ranges::none_of(patients, may_have_rules))
		return;
	const auto all = Module().faults();
	for (const auto &patient : patients | std::views::filter(may_have_rules)) {
		const auto &name = patient.device.name;
		std::uint64_t rules = 0, hit = 0;

		for (const auto &rule : all) {
			if (rule.device != name)
				continue;
			++rules;
			hit += rule.fired.value_or(0);
		}
		if (rules)
			findings.add(Verdict::WARNING, "faults",
				     formatted("an administrator makes messages of {} fail, and "
					       "has hit {} (rules: {})",
					       name, hit, rules),
				     formatted("type \"peal fault show {0}\", and \"peal fault del "
					       "{0}\" to end it",
					       name));
		else
			findings.ok("faults", formatted("{} was added for faults on demand, and "
							"has no rule",
							name));
	}
}

/* ---- losses ---- */

namespace {

struct Symptom {
	const char *counter;
	const char *text;
	const char *remedy;
};

/* What should stay 0. */
constexpr Symptom symptoms[] = {
	{"drop_icrc", "packets arrived changed", "look for NAT or a broken netdev on the way"},
	{"packets_too_long", "packets were longer than the MTU of the netdev or the route",
	 "raise the MTU, or connect again"},
	{"cq_overflows", "completions were lost, because a completion queue was full",
	 "let the program make it larger, or poll it sooner"},
	{"packets_refused", "programs tried to send to port 4791 from an address of a device",
	 "let them use another port, or the verbs"},
	{"timeouts", "a peer did not answer in time", "run \"peal doctor PEER\" with its address"},
};

} /* namespace */

void check_losses(Findings &findings, const std::vector<Patient> &patients)
{
	for (const auto &patient : patients) {
		const auto &name = patient.device.name;
		const auto sent = patient.counter("packets_sent");
		const auto again = patient.counter("retransmits");
		const auto before = findings.all.size();

		for (const auto &symptom : symptoms)
			if (const auto value = patient.counter(symptom.counter))
				findings.add(Verdict::WARNING, "losses",
					     formatted("{}: {} ({} {})", name, symptom.text,
						       symptom.counter, value),
					     symptom.remedy);
		/* A packet in a hundred that is sent again halves the rate of a connection. */
		if (again * 100 > sent)
			findings.add(Verdict::WARNING, "losses",
				     formatted("{} sent {} of {} packets again", name, again, sent),
				     "look for a slow or full link on the way, and for ECN "
				     "(\"peal link set\")");
		if (findings.all.size() == before)
			findings.ok("losses",
				    formatted("{} sent {} of {} packets again, and received {} "
					      "with a mark of congestion",
					      name, again, sent,
					      patient.counter("np_ecn_marked_roce_packets")));
	}
}

} /* namespace peal::tool */
