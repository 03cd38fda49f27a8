// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Flow rules of raw packet queue pairs, in the kernel's encoding. The kernel knows which it
 * accepts. */
#include "ops.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "context.hpp"
#include "entry.hpp"
#include "uverbs.hpp"

namespace peal {

namespace {

/* The most specifications of the kernel's interface (IB_FLOW_SPEC_SUPPORT_LAYERS). */
constexpr std::size_t MAX_SPECS = 10;

/* A request of the older interface: the fixed part, and then the specifications. */
class FlowRequest {
	static constexpr std::size_t FIXED = sizeof(ib_uverbs_create_flow);

	std::array<std::byte, FIXED + MAX_SPECS * sizeof(ib_uverbs_flow_spec_ipv6)> message_{};
	std::size_t bytes_ = FIXED;
	std::uint8_t count_ = 0;

public:
	template <class Spec>
	void add(const Spec &spec) noexcept
	{
		std::memcpy(&message_[bytes_], &spec, sizeof(spec));
		bytes_ += sizeof(spec);
		++count_;
	}

	/* Call when all specifications are there. */
	void set_header(ib_uverbs_create_flow &header) noexcept
	{
		header.flow_attr.num_of_specs = count_;
		header.flow_attr.size = static_cast<std::uint16_t>(bytes_ - FIXED);
		std::memcpy(message_.data(), &header, FIXED);
	}

	uverbs::Bytes bytes() const noexcept { return {message_.data(), bytes_}; }
};

/*
 * Both sides lay these filters out alike, except that a filter of the kernel may be longer. Throws
 * EINVAL if the program's specification is shorter than its type.
 */
template <class Spec, class From>
void add_alike(FlowRequest &request, std::uint32_t type, const std::byte *bytes, std::size_t size)
{
	const From &from = *reinterpret_cast<const From *>(bytes);
	Spec spec{};

	if (size < sizeof(From))
		throw_errno(EINVAL);
	static_assert(sizeof(from.val) <= sizeof(spec.val));
	spec.type = type;
	spec.size = sizeof(spec);
	std::memcpy(&spec.val, &from.val, sizeof(from.val));
	std::memcpy(&spec.mask, &from.mask, sizeof(from.mask));
	/* The program's filter has padding here, which it need not set. */
	if constexpr (requires { spec.mask.reserved; })
		spec.val.reserved = spec.mask.reserved = 0;
	request.add(spec);
}

/* Throws EOPNOTSUPP for a type that peal does not have. */
void add_spec(FlowRequest &request, const std::byte *from, std::uint32_t type, std::size_t size)
{
	switch (type) {
	case IBV_FLOW_SPEC_ETH:
		return add_alike<ib_uverbs_flow_spec_eth, ibv_flow_spec_eth>(request, type, from,
									     size);
	case IBV_FLOW_SPEC_IPV4:
		return add_alike<ib_uverbs_flow_spec_ipv4, ibv_flow_spec_ipv4>(request, type, from,
									       size);
	case IBV_FLOW_SPEC_IPV4_EXT: /* the kernel's IPV4 has all fields */
		return add_alike<ib_uverbs_flow_spec_ipv4, ibv_flow_spec_ipv4_ext>(
			request, IBV_FLOW_SPEC_IPV4, from, size);
	case IBV_FLOW_SPEC_IPV6:
		return add_alike<ib_uverbs_flow_spec_ipv6, ibv_flow_spec_ipv6>(request, type, from,
									       size);
	case IBV_FLOW_SPEC_TCP:
	case IBV_FLOW_SPEC_UDP:
		return add_alike<ib_uverbs_flow_spec_tcp_udp, ibv_flow_spec_tcp_udp>(request, type,
										     from, size);
	default:
		throw_errno(EOPNOTSUPP);
	}
}

} // namespace

ibv_flow *flow_create(ibv_qp *qp, ibv_flow_attr *attr)
{
	FlowRequest request;
	ib_uverbs_create_flow header{};
	ib_uverbs_create_flow_resp response{};
	auto flow = std::make_unique<ibv_flow>();

	if (attr->comp_mask || attr->num_of_specs > MAX_SPECS)
		throw_errno(EINVAL);
	/* The specifications follow the attributes, each as long as it says. */
	const auto *from = reinterpret_cast<const std::byte *>(attr + 1);
	for (unsigned i = 0; i < attr->num_of_specs; ++i) {
		const auto *spec = reinterpret_cast<const ibv_flow_spec *>(from);

		add_spec(request, from, c_enum(spec->hdr.type), spec->hdr.size);
		from += spec->hdr.size;
	}
	header.qp_handle = qp->handle;
	header.flow_attr.type = c_enum(attr->type);
	header.flow_attr.priority = attr->priority;
	header.flow_attr.port = attr->port;
	header.flow_attr.flags = attr->flags;
	request.set_header(header);
	check(device_of(qp).command_bytes(IB_USER_VERBS_EX_CMD_CREATE_FLOW |
						  IB_USER_VERBS_CMD_FLAG_EXTENDED,
					  request.bytes(), uverbs::out(response)));
	flow->context = qp->context;
	flow->handle = response.flow_handle;
	return flow.release();
}

int flow_destroy(ibv_flow *flow)
{
	ib_uverbs_destroy_flow request{};

	request.flow_handle = flow->handle;
	return delete_if_gone(device_of(flow).command(IB_USER_VERBS_EX_CMD_DESTROY_FLOW |
							      IB_USER_VERBS_CMD_FLAG_EXTENDED,
						      request),
			      flow);
}

} // namespace peal
