// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
// transport: any
/*
 * Random rules and random frames of raw packet queue pairs.
 *
 * Holds: Whatever a program writes into requests for rules, and whatever frames come in meanwhile,
 * the kernel answers with an error or does it. A queue pair of another program goes on.
 * Does not hold: the send ring (hostile/scribbled_rings), RoCE packets (hostile/random_packets).
 */
#include "frames.hpp"
#include "raw.hpp"

#include <optional>

using namespace peal_test;

namespace {

constexpr std::uint32_t slots = 16;

struct Stage {
	Device device;
	RawContext context;
	RawQp qp{context, device, {.depth = slots, .type = IBV_QPT_RAW_PACKET}};
	Wire wire{"veth1"};

	/* The reply's handle, or nothing if the kernel refuses. */
	std::optional<std::uint32_t> create(std::span<const std::uint8_t> request)
	{
		ib_uverbs_create_flow_resp response{};
		const int error = context.device().command_bytes(
			IB_USER_VERBS_EX_CMD_CREATE_FLOW | IB_USER_VERBS_CMD_FLAG_EXTENDED,
			std::as_bytes(request), uv::out(response));

		return error ? std::nullopt : std::optional(response.flow_handle);
	}
	void destroy(std::uint32_t handle)
	{
		ib_uverbs_destroy_flow request{};

		request.flow_handle = handle;
		context.device().command(IB_USER_VERBS_EX_CMD_DESTROY_FLOW |
						 IB_USER_VERBS_CMD_FLAG_EXTENDED,
					 request);
	}
};

std::uint64_t below(Random &random, std::uint64_t limit)
{
	return random.between(0, limit - 1);
}

/* Most of the request is sensible, so that it gets deep. */
Bytes random_request(Random &random, std::uint32_t qp)
{
	constexpr std::array<std::uint32_t, 12> types{0x20, 0x22, 0x30,	 0x31,	0x34,	0x40,
						      0x41, 0x50, 0x120, 0x141, 0x1000, 0x1001};
	constexpr std::array<std::uint16_t, 9> sizes{40, 24, 32, 88, 16, 8, 0, 4, 0xffff};
	ib_uverbs_create_flow header{};
	Bytes specs;

	header.qp_handle = qp;
	auto &attr = header.flow_attr;
	attr.type = below(random, 8) ? static_cast<std::uint32_t>(below(random, 4))
				     : static_cast<std::uint32_t>(random.word());
	attr.port = below(random, 16) ? 1 : static_cast<std::uint8_t>(random.word());
	attr.flags = below(random, 4) ? 0 : static_cast<std::uint32_t>(below(random, 16));
	attr.priority = static_cast<std::uint16_t>(random.word());
	const auto count = below(random, 4);
	for (std::uint64_t i = 0; i < count; i++) {
		const std::uint32_t type = types[below(random, types.size())];
		const bool right = below(random, 4);
		const std::uint16_t size = !right	  ? sizes[below(random, sizes.size())]
					   : type == 0x20 ? 40
					   : type == 0x30 ? 32
					   : type == 0x31 ? 88
							  : 16;
		Bytes spec(std::min<std::size_t>(std::max<std::size_t>(size, 8), 200));
		for (auto &byte : spec)
			byte = below(random, 3) ? 0 : static_cast<std::uint8_t>(random.word());
		std::memcpy(&spec[0], &type, 4);
		std::memcpy(&spec[4], &size, 2);
		if (below(random, 16))
			spec[6] = spec[7] = 0;
		specs.insert(specs.end(), spec.begin(), spec.end());
	}
	attr.num_of_specs = static_cast<std::uint8_t>(below(random, 8) ? count : random.word());
	attr.size = static_cast<std::uint16_t>(below(random, 8) ? specs.size() : random.word());
	Bytes request(sizeof(header));
	std::memcpy(request.data(), &header, sizeof(header));
	request.insert(request.end(), specs.begin(), specs.end());
	return request;
}

Bytes random_frame(Random &random)
{
	FrameShape shape;
	constexpr std::array<std::uint16_t, 5> types{0x0800, 0x86dd, 0x8100, 0x0806, 0x0010};

	shape.type = types[below(random, types.size())];
	shape.protocol = below(random, 2) ? 17 : 6;
	shape.vlan = below(random, 3) ? -1 : static_cast<int>(below(random, 0x10000));
	shape.payload = below(random, 300);
	Bytes frame = frame_of(shape);
	for (auto n = below(random, 6); n; n--)
		frame[below(random, frame.size())] = static_cast<std::uint8_t>(random.word());
	frame.resize(14 + below(random, frame.size() - 13));
	return frame;
}

} // namespace

TEST_CASE("random rules while random frames come in")
{
	Stage stage;
	RawEnd innocent(stage.device);
	Random random(7);
	FrameShape shape;
	std::vector<std::uint32_t> handles;
	unsigned created = 0;

	shape.to[4] = 0x42;
	shape.type = 0x88b7;
	const Flow flow = Rule().to(shape.to).create(innocent.qp);
	for (unsigned round = 0; round < 1500; round++) {
		const auto handle = stage.create(random_request(random, stage.qp.handle()));

		if (handle) {
			handles.push_back(*handle);
			created++;
		}
		stage.qp.post_recv(below(random, 4096), 2048);
		stage.wire.send(random_frame(random));
		if (handles.size() > 20 || (!handles.empty() && !below(random, 3))) {
			const auto i = below(random, handles.size());
			stage.destroy(handles[i]);
			handles.erase(handles.begin() + static_cast<std::ptrdiff_t>(i));
		}
		stage.destroy(static_cast<std::uint32_t>(random.word()));
	}
	CHECK(created > 50);
	for (const auto handle : handles)
		stage.destroy(handle);
	innocent.post_slots();
	stage.wire.send(frame_of(shape));
	CHECK(innocent.gets(frame_of(shape)));
}

TEST_CASE("a queue pair goes while its frames are under way")
{
	Device device;
	Wire wire("veth1");

	for (unsigned round = 0; round < 30; round++) {
		auto end = std::make_unique<RawEnd>(device);
		Flow flow = Rule().to(station).create(end->qp);
		Flow sniffer = Rule(IBV_FLOW_ATTR_SNIFFER).create(end->qp);
		Flow own = Rule().to(mac("veth0")).create(end->qp);
		FrameShape shape;

		end->post_slots();
		for (unsigned i = 0; i < 10; i++) {
			wire.send(frame_of({}));
			shape.to = mac("veth0");
			post(end->qp, Send(IBV_WR_SEND, {end->memory.sge(0, 64)}));
			std::copy_n(frame_of(shape).begin(), 64, end->memory.data());
		}
		for (Flow *each : {&sniffer, &own, &flow})
			each->reset();
		end.reset();
	}
}
