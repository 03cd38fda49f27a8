// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Functions of "ip" on netdevs without another process. On a debug kernel an exec takes a second,
 * and a search for the module of a missing netdev takes seven.
 *
 * Holds: netdevs, their addresses and namespaces, over rtnetlink (libnl).
 * Does not hold: which calls make sense. A call that the kernel refuses returns false.
 */
#pragma once

#include "verbs.hpp"

#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <netlink/netlink.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/link/veth.h>
#include <netlink/route/link/vlan.h>
#include <sched.h>

namespace peal_test {

struct FreeRoute {
	void operator()(nl_sock *sock) const { nl_socket_free(sock); }
	void operator()(rtnl_link *link) const { rtnl_link_put(link); }
	void operator()(rtnl_addr *address) const { rtnl_addr_put(address); }
	void operator()(nl_addr *address) const { nl_addr_put(address); }
};

/* A network namespace. It lives while an object holds it. */
class Namespace {
public:
	/* The namespace of the caller. */
	Namespace() : fd_(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {}
	~Namespace() { close(fd_); }
	Namespace(const Namespace &) = delete;
	Namespace &operator=(const Namespace &) = delete;

	int fd() const { return fd_; }
	/* Moves the calling thread into it. */
	void enter() const
	{
		if (setns(fd_, CLONE_NEWNET))
			throw_errno("setns");
	}

private:
	int fd_;
};

/* Makes a namespace. The caller stays in its own. */
inline std::unique_ptr<Namespace> new_namespace(const Namespace &home)
{
	if (unshare(CLONE_NEWNET))
		throw_errno("unshare");
	auto made = std::make_unique<Namespace>();
	home.enter();
	return made;
}

/* Acts in the namespace where it was made, and holds that namespace. */
class Route {
public:
	using Link = std::unique_ptr<rtnl_link, FreeRoute>;

	Route() : sock_(nl_socket_alloc())
	{
		if (nl_connect(sock_.get(), NETLINK_ROUTE))
			throw std::runtime_error("no rtnetlink");
	}

	Link find(const std::string &name)
	{
		rtnl_link *link = nullptr;

		rtnl_link_get_kernel(sock_.get(), 0, name.c_str(), &link);
		return Link(link);
	}
	bool add_veth(const std::string &name, const std::string &peer)
	{
		return !rtnl_link_veth_add(sock_.get(), name.c_str(), peer.c_str(), getpid());
	}
	bool add_vlan(const std::string &below, const std::string &name, std::uint16_t id)
	{
		const Link parent = find(below);
		const Link vlan(rtnl_link_vlan_alloc());

		if (!parent)
			return false;
		rtnl_link_set_link(vlan.get(), rtnl_link_get_ifindex(parent.get()));
		rtnl_link_set_name(vlan.get(), name.c_str());
		rtnl_link_vlan_set_id(vlan.get(), id);
		return !rtnl_link_add(sock_.get(), vlan.get(), NLM_F_CREATE | NLM_F_EXCL);
	}
	bool remove(const std::string &name)
	{
		const Link link = find(name);

		return link && !rtnl_link_delete(sock_.get(), link.get());
	}
	bool set_up(const std::string &name, bool up)
	{
		return change(name, [&](rtnl_link *link) {
			if (up)
				rtnl_link_set_flags(link, IFF_UP);
			else
				rtnl_link_unset_flags(link, IFF_UP);
		});
	}
	bool set_mtu(const std::string &name, unsigned mtu)
	{
		return change(name, [&](rtnl_link *link) { rtnl_link_set_mtu(link, mtu); });
	}
	/* Fails for a netdev that is up. */
	bool rename(const std::string &name, const std::string &to)
	{
		return change(name, [&](rtnl_link *link) { rtnl_link_set_name(link, to.c_str()); });
	}
	bool move(const std::string &name, const Namespace &to)
	{
		return change(name, [&](rtnl_link *link) { rtnl_link_set_ns_fd(link, to.fd()); });
	}
	bool set_mac(const std::string &name, const std::string &mac)
	{
		const auto address = parse(mac, AF_LLC);

		return change(name,
			      [&](rtnl_link *link) { rtnl_link_set_addr(link, address.get()); });
	}
	/* "10.0.0.1/24", "fd00::1/64" */
	bool add_address(const std::string &name, const std::string &text)
	{
		const auto address = address_of(name, text);

		return address && !rtnl_addr_add(sock_.get(), address.get(), 0);
	}
	bool remove_address(const std::string &name, const std::string &text)
	{
		const auto address = address_of(name, text);

		return address && !rtnl_addr_delete(sock_.get(), address.get(), 0);
	}

private:
	static std::unique_ptr<nl_addr, FreeRoute> parse(const std::string &text, int family)
	{
		nl_addr *address = nullptr;

		if (nl_addr_parse(text.c_str(), family, &address))
			throw std::invalid_argument(text);
		return std::unique_ptr<nl_addr, FreeRoute>(address);
	}
	std::unique_ptr<rtnl_addr, FreeRoute> address_of(const std::string &name,
							 const std::string &text)
	{
		const Link link = find(name);

		if (!link)
			return nullptr;
		std::unique_ptr<rtnl_addr, FreeRoute> address(rtnl_addr_alloc());
		rtnl_addr_set_ifindex(address.get(), rtnl_link_get_ifindex(link.get()));
		rtnl_addr_set_local(address.get(), parse(text, AF_UNSPEC).get());
		if (rtnl_addr_get_family(address.get()) == AF_INET6)
			rtnl_addr_set_flags(address.get(), IFA_F_NODAD);
		return address;
	}
	template <class Set>
	bool change(const std::string &name, Set set)
	{
		const Link now = find(name);
		const Link wanted(rtnl_link_alloc());

		if (!now)
			return false;
		set(wanted.get());
		return !rtnl_link_change(sock_.get(), now.get(), wanted.get(), 0);
	}

	std::unique_ptr<nl_sock, FreeRoute> sock_;
};

} // namespace peal_test
