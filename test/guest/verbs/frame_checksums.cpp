// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
// transport: any
/*
 * Checksums of IPv4, TCP and UDP in the frames of raw packet queue pairs.
 *
 * Holds: The device fills the sums in when a send asks for it, with ibv_post_send and with
 * ibv_wr_*, over what the IP header says and not over padding. A fragment gets none. A completion
 * says that the sums are right only when they are. A frame whose sum the stack has left to
 * hardware, and a train of segments, come in as they would be on a wire. Does not hold: other bytes
 * of frames (verbs/raw_packets).
 */
#include "frames.hpp"

using namespace peal_test;

namespace {

FrameShape shape_of(std::uint16_t type, std::uint8_t protocol, int vlan)
{
	FrameShape shape;

	shape.type = type;
	shape.protocol = protocol;
	shape.vlan = vlan;
	shape.payload = 333; /* odd, so that the last byte counts alone */
	return shape;
}

/* Each kind of frame that has sums. */
template <class Action>
void for_each_shape(Action action)
{
	for (const std::uint16_t type : {0x0800, 0x86dd})
		for (const std::uint8_t protocol : {6, 17})
			for (const int vlan : {-1, 5}) {
				INFO(type << " " << static_cast<int>(protocol) << " " << vlan);
				action(shape_of(type, protocol, vlan));
			}
}

Bytes without_sums(const FrameShape &shape)
{
	const FrameOffsets at(shape);
	Bytes frame = frame_of(shape);

	put_at(frame, at.sum, 0xdead);
	if (shape.type == 0x0800)
		put_at(frame, at.ip + 10, 0xbeef);
	return frame;
}

struct Stage {
	Device device;
	RawEnd end{device, {.inline_bytes = 512, .send_ops = IBV_QP_EX_WITH_SEND}};
	Flow flow = Rule().to(station).create(end.qp);
	Wire wire{"veth1"};

	/* Return: whether the completion says that the sums are right. */
	bool says_right(const Bytes &frame)
	{
		end.post_receive();
		wire.send(frame);
		CHECK(end.received() == frame);
		return end.last.wc_flags & IBV_WC_IP_CSUM_OK;
	}
};

/* The first of two fragments of the IPv6 datagram. */
Bytes as_fragment6(const Bytes &frame)
{
	constexpr std::size_t ip = 14, behind = ip + 40;
	Bytes fragment(frame.begin(), frame.begin() + behind);

	put(fragment, std::uint64_t{17} << 24 | 1, 4); /* UDP follows, and more fragments */
	put(fragment, 0x12345678, 4);
	put(fragment, std::span(frame).subspan(behind));
	fragment.resize(fragment.size() - (fragment.size() - behind) % 8);
	fragment[ip + 6] = 44;
	put_at(fragment, ip + 4, static_cast<std::uint16_t>(fragment.size() - behind));
	return fragment;
}

/* The sum over the pseudo header, which the stack leaves in the frame for the hardware. */
Bytes with_partial_sum(const FrameShape &shape)
{
	const FrameOffsets at(shape);
	Bytes frame = frame_of(shape);
	const auto addresses = std::span(frame).subspan(at.ip + 12, 8);

	put_at(frame, at.sum,
	       static_cast<std::uint16_t>(~folded(sum_of(
		       addresses,
		       static_cast<std::uint32_t>(shape.protocol + frame.size() - at.transport)))));
	return frame;
}

FrameClaim claim_of(const FrameShape &shape)
{
	const FrameOffsets at(shape);
	FrameClaim claim;

	claim.flags = claim_needs_sum;
	claim.sum_start = static_cast<std::uint16_t>(at.transport);
	claim.sum_offset = static_cast<std::uint16_t>(at.sum - at.transport);
	return claim;
}

} // namespace

TEST_CASE("the device says that it can")
{
	Device device;
	ibv_device_attr_ex attr{};

	must(ibv_query_device_ex(device, nullptr, &attr), "query_device_ex");
	CHECK((attr.raw_packet_caps & IBV_RAW_PACKET_CAP_IP_CSUM) != 0);
	CHECK((attr.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM) != 0);
	CHECK((attr.orig_attr.device_cap_flags & IBV_DEVICE_UD_IP_CSUM) == 0);
}

TEST_CASE("the device fills in the sums of a send that asks for it")
{
	Stage stage;

	for_each_shape([&](const FrameShape &shape) {
		stage.end.send(without_sums(shape));
		CHECK(stage.wire.receive(shape.from) == without_sums(shape));
		stage.end.send(without_sums(shape), IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM);
		Bytes got = stage.wire.receive(shape.from);
		const FrameOffsets at(shape);
		REQUIRE(got.size() == frame_of(shape).size());
		/*
		 * A virtual link may leave the sum to a device that does not exist. Then it is the
		 * pseudo header's.
		 */
		if (transport_sum(got, at.ip, at.transport)) {
			put_at(got, at.sum, 0);
			put_at(got, at.sum, transport_sum(got, at.ip, at.transport));
		}
		CHECK(got == frame_of(shape));
	});
}

TEST_CASE("ibv_wr_* asks for sums, too")
{
	Stage stage;
	const FrameShape shape = shape_of(0x0800, 17, -1);
	const Bytes frame = without_sums(shape);
	ibv_qp_ex *qp = ibv_qp_to_qp_ex(stage.end.qp);

	std::copy(frame.begin(), frame.end(), stage.end.memory.data());
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM;
	ibv_wr_send(qp);
	const auto sge = stage.end.memory.sge(0, static_cast<std::uint32_t>(frame.size()));
	ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
	must(ibv_wr_complete(qp), "wr_complete");
	wait_success(stage.end.send_cq);
	const Bytes got = stage.wire.receive(shape.from);
	REQUIRE(got.size() == frame.size());
	CHECK(ip_checksum(std::span(got).subspan(14, 20)) == 0);
}

TEST_CASE("other queue pairs refuse to be asked")
{
	Device device;
	Pair pair(device);
	Region memory(pair.a.pd, page_bytes);

	CHECK(errno_name(try_post(pair.a.qp, Send(IBV_WR_SEND, {memory.sge(0, 64)})
						     .flags(IBV_SEND_SIGNALED |
							    IBV_SEND_IP_CSUM))) == "EINVAL");
}

TEST_CASE("the sum of a padded frame does not cover the padding")
{
	Stage stage;

	for_each_shape([&](FrameShape shape) {
		shape.payload = 4;
		Bytes frame = without_sums(shape), expected = frame_of(shape);

		/* Padding counts neither as bytes nor in the length, whatever it is. */
		for (const std::uint8_t byte : {0, 0x37}) {
			const std::size_t length = frame_of(shape).size() + 18;
			frame.resize(length, byte);
			expected.resize(length, byte);
			stage.end.send(frame, IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM);
			CHECK(stage.wire.receive(shape.from) == expected);
			frame.resize(frame_of(shape).size());
			expected.resize(frame.size());
		}
	});
}

TEST_CASE("the frame's own length counts if its header claims more")
{
	Stage stage;
	const FrameShape shape = shape_of(0x0800, 17, -1);
	const FrameOffsets at(shape);
	Bytes frame = without_sums(shape);

	put_at(frame, at.ip + 2, 2000);
	stage.end.send(frame, IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM);
	const Bytes got = stage.wire.receive(shape.from);
	REQUIRE(got.size() == frame.size());
	CHECK(got[at.sum] * 256 + got[at.sum + 1] != 0xdead);
}

TEST_CASE("a fragment gets no sum, because it does not have all bytes")
{
	Stage stage;

	/* The first one has the header of UDP. */
	for (const std::uint16_t type : {0x0800, 0x86dd}) {
		INFO(type);
		const FrameShape shape = shape_of(type, 17, -1);
		const FrameOffsets at(shape);
		Bytes frame = without_sums(shape), expected;

		if (type == 0x0800) {
			put_at(frame, at.ip + 6, 0x2000);
			expected = frame;
			put_at(expected, at.ip + 10, 0);
			put_at(expected, at.ip + 10,
			       ip_checksum(std::span(expected).subspan(at.ip, 20)));
		} else {
			frame = as_fragment6(frame);
			expected = frame;
		}
		stage.end.send(frame, IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM);
		CHECK(stage.wire.receive(shape.from) == expected);
	}
}

TEST_CASE("sums cannot be filled in where there are none")
{
	Stage stage;
	FrameShape shape;

	for (const std::size_t length : {14U, 15U, 33U, 34U, 35U, 41U, 42U}) {
		INFO(length);
		Bytes frame = without_sums(shape_of(0x0800, 17, -1));
		frame.resize(length);
		stage.end.send(frame, IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM);
		CHECK(stage.wire.receive(shape.from).size() == length);
	}
	/* A header that says that it is longer than the frame. */
	Bytes frame = without_sums(shape_of(0x0800, 17, -1));
	frame[14] = 0x4f;
	frame.resize(40);
	stage.end.send(frame, IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM);
	CHECK(stage.wire.receive(shape.from) == frame);
}

TEST_CASE("a completion says that the sums are right only when they are")
{
	Stage stage;

	for_each_shape([&](const FrameShape &shape) {
		const FrameOffsets at(shape);
		Bytes frame = frame_of(shape);
		const bool ipv4 = shape.type == 0x0800;

		CHECK(stage.says_right(frame) == ipv4);
		frame.back() ^= 1;
		CHECK_FALSE(stage.says_right(frame));
		frame.back() ^= 1;
		frame[at.ip + 8] ^= 1; /* the TTL, or a byte of the source */
		CHECK_FALSE(stage.says_right(frame));
	});
	CHECK_FALSE(stage.says_right(frame_of({})));
	/* A datagram without a sum is right. */
	const FrameShape shape = shape_of(0x0800, 17, -1);
	Bytes frame = frame_of(shape);
	put_at(frame, FrameOffsets(shape).sum, 0);
	CHECK(stage.says_right(frame));
	/* A fragment's sum is not in it. */
	frame = frame_of(shape);
	frame[14 + 6] = 0x20;
	put_at(frame, 24, 0);
	put_at(frame, 24, ip_checksum(std::span(frame).subspan(14, 20)));
	CHECK_FALSE(stage.says_right(frame));
}

TEST_CASE("a sum that was left to hardware is in the frame that comes in")
{
	Stage stage;
	TrainSocket socket("veth1");

	for (const std::uint8_t protocol : {6, 17}) {
		const FrameShape shape = shape_of(0x0800, protocol, -1);
		Bytes partial = with_partial_sum(shape);

		REQUIRE(partial != frame_of(shape));
		stage.end.post_receive();
		REQUIRE(socket.send(claim_of(shape), partial));
		CHECK(stage.end.received() == frame_of(shape));
		CHECK((stage.end.last.wc_flags & IBV_WC_IP_CSUM_OK) != 0);
	}
}

TEST_CASE("a train of segments comes in as frames")
{
	Stage stage;
	TrainSocket socket("veth1");
	FrameShape shape = shape_of(0x0800, 6, -1);
	const FrameOffsets at(shape);
	Bytes payload, expected;

	shape.payload = 3500;
	Bytes train = with_partial_sum(shape);
	FrameClaim claim = claim_of(shape);
	claim.train = claim_tcp_train;
	claim.header_bytes = static_cast<std::uint16_t>(at.transport + 20);
	claim.piece_bytes = 1000;
	expected.assign(train.begin() + claim.header_bytes, train.end());
	for (int i = 0; i < 4; i++)
		stage.end.post_receive(4096, RawEnd::half + i * 4096UL);
	REQUIRE(socket.send(claim, train));
	for (unsigned i = 0; i < 4; i++) {
		INFO(i);
		const Bytes got = stage.end.received(RawEnd::half + i * 4096UL);
		REQUIRE(got.size() == claim.header_bytes + (i < 3 ? 1000U : 500U));
		CHECK(ip_checksum(std::span(got).subspan(at.ip, 20)) == 0);
		CHECK(transport_sum(got, at.ip, at.transport) == 0);
		CHECK(got[at.ip + 2] * 256U + got[at.ip + 3] == got.size() - at.ip);
		CHECK((stage.end.last.wc_flags & IBV_WC_IP_CSUM_OK) != 0);
		payload.insert(payload.end(), got.begin() + claim.header_bytes, got.end());
	}
	CHECK(difference(payload, expected).empty());
}
