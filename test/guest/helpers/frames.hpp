// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Raw packet queue pairs, Ethernet frames and flow rules.
 *
 * Owns: frames of a known content, rules, and the way of frames through veth1, the peer of veth0.
 */
#pragma once
#include "packets.hpp"
#include "verbs.hpp"

namespace peal_test {

using Mac = std::array<std::uint8_t, 6>;

constexpr Mac station{0x02, 0x70, 0x65, 0x61, 0x6c, 0x01}; /* no netdev has this address */
constexpr Mac group{0x01, 0x00, 0x5e, 0x01, 0x02, 0x03};
constexpr Mac everyone{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
constexpr std::uint16_t test_type = 0x88b5; /* for experiments: IEEE 802 local type 1 */

using Flow = Handle<ibv_flow, ibv_destroy_flow>;

/* What a frame says. A test changes one field, and the others stay as they are. */
struct FrameShape {
	Mac to = station, from{0x02, 0, 0, 0, 0, 0x99};
	int vlan = -1;
	std::uint16_t type = test_type; /* 0x0800 and 0x86dd get IP headers, too */
	std::uint8_t protocol = 17;
	std::uint16_t from_port = 4000, to_port = 5000;
	const char *from_ip = "10.9.0.1", *to_ip = "10.9.0.2";
	const char *from_ip6 = "fd99::1", *to_ip6 = "fd99::2";
	std::uint8_t tos = 0, ttl = 64;
	std::uint32_t label = 0;
	std::size_t payload = 100;
	std::uint64_t salt = 1;
};

inline std::uint32_t sum_of(std::span<const std::uint8_t> bytes, std::uint32_t sum = 0)
{
	for (std::size_t i = 0; i < bytes.size(); i++)
		sum += i & 1 ? bytes[i] : bytes[i] << 8;
	return sum;
}

inline std::uint16_t folded(std::uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return static_cast<std::uint16_t>(~sum);
}

inline void put_at(Bytes &to, std::size_t at, std::uint16_t value)
{
	to[at] = static_cast<std::uint8_t>(value >> 8);
	to[at + 1] = static_cast<std::uint8_t>(value);
}

/* The sum of TCP or UDP over a segment that begins at `at`, whose own field counts as it is. */
inline std::uint16_t transport_sum(const Bytes &frame, std::size_t ip, std::size_t at)
{
	const bool ipv6 = frame[ip] >> 4 == 6;
	const auto addresses = std::span(frame).subspan(ip + (ipv6 ? 8 : 12), ipv6 ? 32 : 8);
	const auto segment = std::span(frame).subspan(at);
	const std::uint8_t protocol = frame[ip + (ipv6 ? 6 : 9)];

	return folded(sum_of(
		segment, sum_of(addresses, static_cast<std::uint32_t>(protocol + segment.size()))));
}

/* Where the headers of a frame begin, and where TCP or UDP have their sum. */
struct FrameOffsets {
	std::size_t ip, transport, sum;

	explicit FrameOffsets(const FrameShape &shape)
		: ip(shape.vlan < 0 ? 14 : 18), transport(ip + (shape.type == 0x0800 ? 20 : 40)),
		  sum(transport + (shape.protocol == 6 ? 16 : 6))
	{
	}
};

inline bool has_ip(const FrameShape &shape)
{
	return shape.type == 0x0800 || shape.type == 0x86dd;
}

/* A frame with right checksums, and with a payload that depends on the position. */
inline Bytes frame_of(const FrameShape &shape)
{
	const std::size_t transport = shape.protocol == 6 ? 20 : shape.protocol == 17 ? 8 : 0;
	const std::size_t inner = transport + shape.payload;
	const FrameOffsets at(shape);
	Bytes frame, payload(shape.payload);

	put(frame, shape.to);
	put(frame, shape.from);
	if (shape.vlan >= 0) {
		put(frame, 0x8100, 2);
		put(frame, static_cast<std::uint64_t>(shape.vlan), 2);
	}
	put(frame, shape.type, 2);
	if (shape.type == 0x0800) {
		put(frame, 0x4500U << 16 | shape.tos << 16 | (20 + inner), 4);
		put(frame, 0x12340000, 4);
		put(frame, shape.ttl << 24 | shape.protocol << 16, 4);
		const auto from = address(shape.from_ip), to = address(shape.to_ip);
		put(frame, std::span(from).first(4));
		put(frame, std::span(to).first(4));
		put_at(frame, at.ip + 10, ip_checksum(std::span(frame).subspan(at.ip, 20)));
	} else if (shape.type == 0x86dd) {
		put(frame, 0x60000000U | shape.tos << 20 | shape.label, 4);
		put(frame, inner << 16 | shape.protocol << 8 | shape.ttl, 4);
		put(frame, address(shape.from_ip6));
		put(frame, address(shape.to_ip6));
	}
	if (has_ip(shape) && transport) {
		put(frame, static_cast<std::uint64_t>(shape.from_port) << 16 | shape.to_port, 4);
		if (shape.protocol == 17) {
			put(frame, inner << 16, 4);
		} else {
			put(frame, 0x01020304, 4);
			put(frame, 0x05060708, 4);
			put(frame, 0x5010ffff, 4);
			put(frame, 0, 4);
		}
	}
	fill_pattern(payload, shape.salt);
	put(frame, payload);
	if (has_ip(shape) && transport)
		put_at(frame, at.sum, transport_sum(frame, at.ip, at.transport));
	return frame;
}

/* A socket on a netdev that sends frames, and receives those of this test's stations. */
class Wire {
	int fd_;

public:
	explicit Wire(const std::string &netdev)
		: fd_(socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)))
	{
		sockaddr_ll where{};
		const int on = 1;
		packet_mreq promiscuous{};

		where.sll_family = AF_PACKET;
		where.sll_protocol = htons(ETH_P_ALL);
		where.sll_ifindex = static_cast<int>(if_nametoindex(netdev.c_str()));
		promiscuous.mr_ifindex = where.sll_ifindex;
		promiscuous.mr_type = PACKET_MR_PROMISC;
		if (fd_ < 0 || bind(fd_, reinterpret_cast<sockaddr *>(&where), sizeof(where)) ||
		    setsockopt(fd_, SOL_PACKET, PACKET_AUXDATA, &on, sizeof(on)) ||
		    setsockopt(fd_, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous,
			       sizeof(promiscuous)))
			throw std::runtime_error("cannot open a raw socket on " + netdev);
	}
	Wire(const Wire &) = delete;
	Wire &operator=(const Wire &) = delete;
	~Wire() { close(fd_); }

	void send(const Bytes &frame) const
	{
		if (write(fd_, frame.data(), frame.size()) != static_cast<ssize_t>(frame.size()))
			throw std::runtime_error(std::string("write: ") + std::strerror(errno));
	}
	/* Return: the next frame that came in with this source, or an empty one after `limit`. */
	Bytes receive(const Mac &from, Duration limit = patience) const
	{
		const Stopwatch watch;

		while (watch.elapsed() < limit && readable(fd_, limit - watch.elapsed())) {
			const Bytes frame = read_one();
			if (frame.size() >= 14 && std::equal(from.begin(), from.end(), &frame[6]))
				return frame;
		}
		return {};
	}

private:
	/* The kernel takes a VLAN tag off the frame and tells it beside. */
	Bytes read_one() const
	{
		Bytes frame(70000);
		alignas(8) std::array<std::uint8_t, 256> control{};
		iovec piece{frame.data(), frame.size()};
		sockaddr_ll from{};
		msghdr message{};

		message.msg_name = &from;
		message.msg_namelen = sizeof(from);
		message.msg_iov = &piece;
		message.msg_iovlen = 1;
		message.msg_control = control.data();
		message.msg_controllen = control.size();
		const ssize_t n = recvmsg(fd_, &message, 0);
		if (n < 0 || from.sll_pkttype == PACKET_OUTGOING)
			return {};
		frame.resize(static_cast<std::size_t>(n));
		for (cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
			tpacket_auxdata data{};
			std::memcpy(&data, CMSG_DATA(c), sizeof(data));
			if (c->cmsg_type == PACKET_AUXDATA &&
			    data.tp_status & TP_STATUS_VLAN_VALID) {
				Bytes tag;
				put(tag, data.tp_vlan_tpid, 2);
				put(tag, data.tp_vlan_tci, 2);
				frame.insert(frame.begin() + 12, tag.begin(), tag.end());
			}
		}
		return frame;
	}
};

/* A rule under construction: attributes and the specifications behind them. */
class Rule {
	alignas(8) std::array<std::uint8_t, 1024> bytes_{};

public:
	explicit Rule(ibv_flow_attr_type type = IBV_FLOW_ATTR_NORMAL, std::uint16_t priority = 0,
		      std::uint32_t flags = 0)
	{
		attr().type = type;
		attr().size = sizeof(ibv_flow_attr);
		attr().priority = priority;
		attr().port = 1;
		attr().flags = flags;
	}
	ibv_flow_attr &attr() { return *reinterpret_cast<ibv_flow_attr *>(bytes_.data()); }

	template <class Spec>
	Rule &add(Spec spec, ibv_flow_spec_type type)
	{
		spec.type = type;
		spec.size = sizeof(spec);
		std::memcpy(&bytes_[attr().size], &spec, sizeof(spec));
		attr().size = static_cast<std::uint16_t>(attr().size + sizeof(spec));
		attr().num_of_specs++;
		return *this;
	}
	Rule &to(const Mac &mac)
	{
		ibv_flow_spec_eth spec{};

		std::copy(mac.begin(), mac.end(), spec.val.dst_mac);
		std::memset(spec.mask.dst_mac, 0xff, 6);
		return add(spec, IBV_FLOW_SPEC_ETH);
	}
	ibv_flow *try_create(ibv_qp *qp) { return ibv_create_flow(qp, &attr()); }
	Flow create(ibv_qp *qp) { return {try_create(qp), "create_flow"}; }
	/* Return: the errno of a creation that must fail, or 0. */
	int error(ibv_qp *qp)
	{
		ibv_flow *flow = try_create(qp);

		if (!flow)
			return errno;
		ibv_destroy_flow(flow);
		return 0;
	}
};

inline void raw_ready(ibv_qp *qp)
{
	ibv_qp_attr attr{};

	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), "modify to INIT");
	to_state(qp, IBV_QPS_RTR);
	to_state(qp, IBV_QPS_RTS);
}

inline QpOptions raw_options(QpOptions options = {})
{
	options.type = IBV_QPT_RAW_PACKET;
	return options;
}

/* A raw packet queue pair in RTS, with memory. Receives take the second half of the memory. */
struct RawEnd : Endpoint {
	explicit RawEnd(Device &on, const QpOptions &options = {})
		: Endpoint(on, raw_options(options)), memory(pd, bytes)
	{
		raw_ready(qp);
	}
	static constexpr std::size_t bytes = 128 * page_bytes, half = bytes / 2;

	void post_receive(std::size_t length = 16384, std::size_t at = half, std::uint64_t id = 7)
	{
		std::memset(memory.data() + at, 0x5a, std::min(length + page_bytes, bytes - at));
		post_recv(qp, id, {memory.sge(at, static_cast<std::uint32_t>(length))});
	}
	/* Sends the frame from memory, and waits until the netdev has it. */
	void send(const Bytes &frame, unsigned flags = IBV_SEND_SIGNALED)
	{
		std::copy(frame.begin(), frame.end(), memory.data());
		post(qp,
		     Send(IBV_WR_SEND, {memory.sge(0, static_cast<std::uint32_t>(frame.size()))})
			     .flags(flags));
		wait_success(send_cq);
	}
	/* Return: the frame that came in at `at`. */
	Bytes received(std::size_t at = half)
	{
		const auto wc = wait_completion(recv_cq);

		INFO(describe(wc));
		must_succeed(wc);
		CHECK(wc.opcode == IBV_WC_RECV);
		CHECK(wc.qp_num == qp->qp_num);
		last = wc;
		const auto bytes = memory.bytes(at, wc.byte_len);
		return {bytes.begin(), bytes.end()};
	}
	bool got_nothing() { return drain(recv_cq).empty(); }

	/* Posts receives for frames(), each with a slot of its own. */
	void post_slots()
	{
		for (std::size_t i = 0; i < slots; i++)
			post_slot(i);
	}
	/* Return: all frames that have come in. Other frames than a test's may be among them. */
	std::vector<Bytes> frames()
	{
		std::vector<Bytes> result;

		for (const auto &wc : drain(recv_cq)) {
			must_succeed(wc);
			const auto got = memory.bytes(half + wc.wr_id * slot_bytes, wc.byte_len);
			result.emplace_back(got.begin(), got.end());
			last = wc;
			post_slot(wc.wr_id);
		}
		return result;
	}
	/* Return: whether this frame comes in before the time is over. */
	bool gets(const Bytes &frame, Duration limit = patience)
	{
		return eventually(
			[&] {
				const auto all = frames();
				return std::find(all.begin(), all.end(), frame) != all.end();
			},
			limit);
	}
	static constexpr std::size_t slots = 32, slot_bytes = half / slots;

	Region memory;
	ibv_wc last{};

private:
	void post_slot(std::uint64_t slot)
	{
		post_recv(qp, slot, {memory.sge(half + slot * slot_bytes, slot_bytes)});
	}
};

} // namespace peal_test
