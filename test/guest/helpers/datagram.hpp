// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Datagrams for tests: UD endpoints, address handles, the bytes before the payload.
 *
 * Holds: a UD queue pair that is ready, with one Q_Key for all unless a test says
 * otherwise; the addresses of the device by IP version.
 * Does not hold: any check of the device. Those are in the tests.
 */
#pragma once

#include "counters.hpp"

#include <arpa/inet.h>
#include <fstream>

namespace peal_test {

constexpr std::uint32_t common_qkey = 0x11223344;
constexpr std::size_t grh_bytes = 40;

/* One of the device's RoCEv2 addresses. */
struct Address {
	std::uint8_t index = 0;
	ibv_gid gid{};
};

inline bool is_ipv4(const ibv_gid &gid)
{
	static const std::uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	return !std::memcmp(gid.raw, mapped, sizeof(mapped));
}

inline bool is_link_local(const ibv_gid &gid)
{
	return gid.raw[0] == 0xfe && gid.raw[1] == 0x80;
}

/* The device's address of that IP version that is not link-local. */
inline std::optional<Address> find_address(ibv_context *context, bool ipv4)
{
	for (std::uint32_t i = 0; i < 64; i++) {
		ibv_gid_entry entry{};
		if (ibv_query_gid_ex(context, 1, i, &entry, 0) ||
		    entry.gid_type != IBV_GID_TYPE_ROCE_V2 || is_ipv4(entry.gid) != ipv4 ||
		    is_link_local(entry.gid))
			continue;
		return Address{static_cast<std::uint8_t>(i), entry.gid};
	}
	return {};
}

inline ibv_ah_attr ah_attr(std::uint8_t sgid_index, const ibv_gid &dgid)
{
	ibv_ah_attr attr{};

	attr.is_global = 1;
	attr.grh.dgid = dgid;
	attr.grh.sgid_index = sgid_index;
	attr.grh.hop_limit = 64;
	attr.port_num = 1;
	return attr;
}

inline Ah create_ah(ibv_pd *pd, std::uint8_t sgid_index, const ibv_gid &dgid)
{
	auto attr = ah_attr(sgid_index, dgid);

	return {ibv_create_ah(pd, &attr), "create_ah"};
}

/* An address handle from the device to itself. */
inline Ah create_ah(ibv_pd *pd, const Device &device)
{
	return create_ah(pd, static_cast<std::uint8_t>(device.gid_index()), device.gid());
}

constexpr int ud_init_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;

inline void ud_to_init(ibv_qp *qp, std::uint32_t qkey = common_qkey)
{
	ibv_qp_attr attr{};

	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	attr.qkey = qkey;
	must(ibv_modify_qp(qp, &attr, ud_init_mask), "modify to INIT");
}

inline void ud_to_rts(ibv_qp *qp, std::uint32_t psn = 0x00fffff0)
{
	ibv_qp_attr attr{};

	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = psn;
	must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "modify to RTS");
}

inline void ud_ready(ibv_qp *qp, std::uint32_t qkey = common_qkey)
{
	ud_to_init(qp, qkey);
	to_state(qp, IBV_QPS_RTR);
	ud_to_rts(qp);
}

inline QpOptions ud_options(QpOptions options = {})
{
	options.type = IBV_QPT_UD;
	return options;
}

/* A UD queue pair in RTS, with an address handle to its own device and with memory. */
struct UdEnd : Endpoint {
	explicit UdEnd(Device &on, std::uint32_t qkey = common_qkey, const QpOptions &options = {})
		: Endpoint(on, ud_options(options)), memory(pd, 4 * page_bytes),
		  to_self(create_ah(pd, on))
	{
		ud_ready(qp, qkey);
	}
	Region memory;
	Ah to_self;
};

/* A send to a queue pair behind an address handle. */
struct Datagram : Send {
	Datagram(ibv_ah *ah, std::uint32_t qpn, std::vector<ibv_sge> list,
		 std::uint32_t qkey = common_qkey, ibv_wr_opcode opcode = IBV_WR_SEND)
		: Send(opcode, std::move(list))
	{
		wr.wr.ud = {ah, qpn, qkey};
	}
};

/*
 * Sends empty datagrams to `to` on the handle until they go direct. Nothing may be posted there to
 * receive them. On the wire, and with other devices, they stay packets.
 */
inline void settle(UdEnd &from, const UdEnd &to, ibv_ah *ah)
{
	if (on_wire())
		return;
	const std::string device = ibv_get_device_name(from.qp->context->device);
	const bool direct = eventually([&] {
		const auto before = counter("direct_messages", device);
		post(from.qp, Datagram(ah, to.qp->qp_num, {}));
		wait_success(from.send_cq);
		return counter("direct_messages", device) > before;
	});
	if (!direct)
		throw std::runtime_error("datagrams of one device do not go direct");
	/* Within a tick of its clock the kernel repeats the value of a counter. */
	for (const Stopwatch watch; watch.elapsed() < 20ms;)
		;
}

/* The same for each end's handle to its own device. */
inline void settle(std::initializer_list<UdEnd *> ends)
{
	for (auto *end : ends)
		settle(*end, *end, end->to_self);
}

} // namespace peal_test
