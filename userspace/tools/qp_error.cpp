// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "qp_error.hpp"

#include <array>
#include <string_view>
#include <utility>

#include <rdma/peal-abi.h>

#include "formatted.hpp"

namespace peal::tool {

namespace {

/* Indexed by enum peal_opcode. */
constexpr std::array<std::string_view, PEAL_OP_COUNT> operations{
	"",
	"SEND",
	"SEND with immediate",
	"SEND with invalidate",
	"WRITE",
	"WRITE with immediate",
	"READ",
	"compare and swap",
	"fetch and add",
	"bind of a window",
	"invalidate",
	"fast registration",
	"ATOMIC WRITE",
	"FLUSH",
};

/* Indexed by enum ib_wc_status. */
constexpr std::array<std::string_view, 23> statuses{
	"",
	"local length error",
	"local QP operation error",
	"local EE context operation error",
	"local protection error",
	"flushed",
	"memory management operation error",
	"bad response error",
	"local access error",
	"remote invalid request error",
	"remote access error",
	"remote operation error",
	"transport retry counter exceeded",
	"RNR retry counter exceeded",
	"local RDD violation error",
	"remote invalid RD request",
	"aborted error",
	"invalid EE context number",
	"invalid EE context state",
	"fatal error",
	"response timeout error",
	"general error",
	"tag matching error",
};

/* Bits of IB_ACCESS_*. */
constexpr std::array<std::pair<unsigned, std::string_view>, 9> rights{{
	{1 << 0, "local write"},
	{1 << 1, "remote write"},
	{1 << 2, "remote read"},
	{1 << 3, "remote atomic"},
	{1 << 4, "bind of windows"},
	{1 << 5, "zero based"},
	{1 << 6, "on demand"},
	{1 << 8, "flush to memory"},
	{1 << 9, "flush to persistence"},
}};

std::string rights_of(QpError::Number flags)
{
	std::string words;

	for (const auto &[bit, word] : rights)
		if (flags.value_or(0) & bit)
			words += formatted("{}{}", words.empty() ? "" : ", ", word);
	return words.empty() ? "nothing" : words;
}

std::string_view text_of(std::uint64_t reason)
{
#define TEXT(name, number, text)                                                                   \
	case number:                                                                               \
		return text;
	switch (reason) {
		PEAL_REASONS(TEXT)
	default:
		return "";
	}
#undef TEXT
}

/* "rkey 0x1a2b03". Both kinds of keys look alike. */
std::string key_of(const QpError &error, std::string_view kind)
{
	return formatted("{} {:#x}", kind, *error.key);
}

std::string range_of(const QpError &error)
{
	return formatted("{} bytes at {:#x}", error.length.value_or(0), error.address.value_or(0));
}

/* The owner of the key, in words, has other numbers than the queue pair. */
std::string key_words(const QpError &error, std::string_view kind, std::uint64_t reason)
{
	const auto key = key_of(error, kind);

	switch (reason) {
	case PEAL_REASON_LKEY_UNKNOWN:
	case PEAL_REASON_RKEY_UNKNOWN:
	case PEAL_REASON_RECV_LKEY_UNKNOWN:
		return formatted("{} names no memory", key);
	case PEAL_REASON_LKEY_PD:
	case PEAL_REASON_RKEY_PD:
	case PEAL_REASON_RECV_LKEY_PD:
		if (!error.key_pdn || !error.pdn)
			break;
		return formatted("{} belongs to PD {}, the queue pair to PD {}", key,
				 *error.key_pdn, *error.pdn);
	case PEAL_REASON_LKEY_RANGE:
	case PEAL_REASON_RKEY_RANGE:
	case PEAL_REASON_RECV_LKEY_RANGE:
		if (!error.key_start || !error.key_length)
			break;
		return formatted("{} are not all in the memory of {}, which is {} bytes at {:#x}",
				 range_of(error), key, *error.key_length, *error.key_start);
	case PEAL_REASON_LKEY_ACCESS:
	case PEAL_REASON_RKEY_ACCESS:
	case PEAL_REASON_RECV_LKEY_ACCESS:
		if (!error.key_access)
			break;
		return formatted("{} allows {}, and the {} needs {}", key,
				 rights_of(error.key_access), operation_of(error),
				 rights_of(error.wanted));
	}
	return formatted("{} ({}, {})", text_of(reason), key, range_of(error));
}

/* Does the responder find this out? On the direct path the requester gets to know it, too. */
bool is_of_responder(std::uint64_t reason)
{
	switch (reason) {
	case PEAL_REASON_RKEY_UNKNOWN:
	case PEAL_REASON_RKEY_PD:
	case PEAL_REASON_RKEY_RANGE:
	case PEAL_REASON_RKEY_ACCESS:
	case PEAL_REASON_RKEY_QP:
	case PEAL_REASON_RKEY_PAGE:
	case PEAL_REASON_QP_ACCESS:
	case PEAL_REASON_ATOMIC_ALIGN:
	case PEAL_REASON_RECV_TOO_SHORT:
	case PEAL_REASON_RECV_WQE:
	case PEAL_REASON_RECV_LKEY_UNKNOWN:
	case PEAL_REASON_RECV_LKEY_PD:
	case PEAL_REASON_RECV_LKEY_RANGE:
	case PEAL_REASON_RECV_LKEY_ACCESS:
	case PEAL_REASON_RECV_LKEY_PAGE:
	case PEAL_REASON_RECV_RING_INDEX:
	case PEAL_REASON_SRQ_RING:
	case PEAL_REASON_INV_RKEY:
	case PEAL_REASON_BAD_REQUEST:
	case PEAL_REASON_XRC_SRQ:
		return true;
	default:
		return false;
	}
}

/* What the requester knows of a message that the peer refused. */
std::string refused_words(const QpError &error, std::string_view text)
{
	const auto range = error.key
				   ? formatted("{} with {}", range_of(error), key_of(error, "rkey"))
				   : formatted("{} bytes", error.length.value_or(0));

	return formatted("the peer refused a {} of {}: {}", operation_of(error), range, text);
}

/* "at ADDRESS", or `otherwise` if no address is known. */
std::string place_of(const QpError &error, std::string_view otherwise)
{
	return error.peer_address ? "at " + *error.peer_address : std::string(otherwise);
}

/* What a peer that did not answer was asked. `times` is an attribute of the queue pair. */
std::string silence_words(const QpError &error, std::uint64_t reason)
{
	const auto timeout = error.timeout.value_or(0);

	return formatted("{} (queue pair {} {}, retry_cnt {}, timeout {})", text_of(reason),
			 error.peer_qpn.value_or(0), place_of(error, "there"),
			 error.retries.value_or(0),
			 timeout ? formatted("{}: {:.0f} ms", timeout,
					     4.096e-3 * static_cast<double>(1ULL << timeout))
				 : "0: none");
}

} /* namespace */

std::string operation_of(const QpError &error)
{
	const auto opcode = error.opcode.value_or(0);

	return opcode < operations.size() && opcode ? std::string(operations[opcode])
						    : formatted("operation {}", opcode);
}

std::string status_of(const QpError &error)
{
	const auto status = error.status.value_or(0);

	return status < statuses.size() ? std::string(statuses[status])
					: formatted("status {}", status);
}

std::string what_happened(const QpError &error)
{
	const auto reason = error.reason.value_or(0);
	const auto text = text_of(reason);

	if (!error.responder && is_of_responder(reason))
		return refused_words(error, text);
	switch (reason) {
	case PEAL_REASON_LKEY_UNKNOWN:
	case PEAL_REASON_LKEY_PD:
	case PEAL_REASON_LKEY_RANGE:
	case PEAL_REASON_LKEY_ACCESS:
		return error.key ? key_words(error, "lkey", reason) : std::string(text);
	case PEAL_REASON_RECV_LKEY_UNKNOWN:
	case PEAL_REASON_RECV_LKEY_PD:
	case PEAL_REASON_RECV_LKEY_RANGE:
	case PEAL_REASON_RECV_LKEY_ACCESS:
		return error.key ? key_words(error, "the receive's lkey", reason)
				 : std::string(text);
	case PEAL_REASON_RKEY_UNKNOWN:
	case PEAL_REASON_RKEY_PD:
	case PEAL_REASON_RKEY_RANGE:
	case PEAL_REASON_RKEY_ACCESS:
		return error.key ? key_words(error, "rkey", reason) : std::string(text);
	case PEAL_REASON_QP_ACCESS:
		return formatted("the queue pair allows {}, and the {} needs {}",
				 rights_of(error.allowed), operation_of(error),
				 rights_of(error.wanted));
	case PEAL_REASON_RECV_TOO_SHORT:
		return formatted("the message has {} bytes, and the receive has {}",
				 error.length.value_or(0), error.room.value_or(0));
	case PEAL_REASON_RNR_EXHAUSTED:
		return formatted("queue pair {} {} had no receive posted (rnr_retry {})",
				 error.peer_qpn.value_or(0), place_of(error, "at the peer"),
				 error.rnr_retries.value_or(0));
	case PEAL_REASON_PEER_UNREACHABLE:
	case PEAL_REASON_PEER_UNKNOWN:
	case PEAL_REASON_PEER_STATE:
	case PEAL_REASON_PEER_OTHER:
	case PEAL_REASON_PEER_PSN:
	case PEAL_REASON_PEER_SILENT:
	case PEAL_REASON_NAK_SEQUENCE:
		return silence_words(error, reason);
	case PEAL_REASON_NAK_INVALID_REQUEST:
	case PEAL_REASON_NAK_ACCESS:
	case PEAL_REASON_NAK_OPERATION:
		return refused_words(error, text);
	default:
		return text.empty() ? formatted("reason {}, which this tool does not know", reason)
				    : std::string(text);
	}
}

std::string what_to_do(const QpError &error)
{
	switch (error.reason.value_or(0)) {
	case PEAL_REASON_WQE_OPCODE:
	case PEAL_REASON_WQE_FLAGS:
	case PEAL_REASON_WQE_RESERVED:
		return "post only operations that a queue pair of this type has, by libibverbs";
	case PEAL_REASON_WQE_NUM_SGE:
	case PEAL_REASON_WQE_INLINE:
		return "ask for more in the capabilities when the queue pair is created";
	case PEAL_REASON_WQE_LENGTH:
		return "split the message";
	case PEAL_REASON_WQE_ATOMIC_LENGTH:
		return "give one scatter-gather entry of 8 bytes";
	case PEAL_REASON_RING_INDEX:
	case PEAL_REASON_RECV_RING_INDEX:
	case PEAL_REASON_SRQ_RING:
		return "look for a stray write in the program, because it overwrote its ring";
	case PEAL_REASON_WQE_AH:
		return "make the address handle in the protection domain of the queue pair";
	case PEAL_REASON_LKEY_UNKNOWN:
	case PEAL_REASON_RECV_LKEY_UNKNOWN:
		return "pass the lkey of a region that is still registered on this device";
	case PEAL_REASON_LKEY_PD:
	case PEAL_REASON_RECV_LKEY_PD:
		return "register the memory in the protection domain of the queue pair";
	case PEAL_REASON_LKEY_RANGE:
	case PEAL_REASON_RECV_LKEY_RANGE:
		return "check address and length of the scatter-gather entry";
	case PEAL_REASON_LKEY_ACCESS:
	case PEAL_REASON_RECV_LKEY_ACCESS:
		return "register the memory with IBV_ACCESS_LOCAL_WRITE";
	case PEAL_REASON_RKEY_UNKNOWN:
	case PEAL_REASON_INV_RKEY:
		return "send the rkey of a region that is still registered, and not its lkey or "
		       "that of an earlier run";
	case PEAL_REASON_RKEY_PD:
		return "register the memory in the protection domain of the queue pair that the "
		       "peer is connected to";
	case PEAL_REASON_RKEY_RANGE:
		return "check the remote address, the offset and the length of the request";
	case PEAL_REASON_RKEY_ACCESS:
		return "register the memory with the right that is missing";
	case PEAL_REASON_RKEY_QP:
		return "bind the window on the queue pair that uses it";
	case PEAL_REASON_QP_ACCESS:
		return "set the right in qp_access_flags when the queue pair goes to INIT";
	case PEAL_REASON_ATOMIC_ALIGN:
		return "use an address that is a multiple of 8";
	case PEAL_REASON_RD_ATOMIC_LIMIT:
		return "set max_rd_atomic and max_dest_rd_atomic to 1 or more on both sides";
	case PEAL_REASON_RECV_TOO_SHORT:
		return "post larger receives, or send less";
	case PEAL_REASON_RECV_WQE:
		return "post receives by libibverbs";
	case PEAL_REASON_RNR_EXHAUSTED:
		return "post receives before the peer sends, or set rnr_retry to 7";
	case PEAL_REASON_PEER_UNREACHABLE:
	case PEAL_REASON_NO_ROUTE:
		return "type \"peal doctor PEER\", and choose a GID of the peer's network";
	case PEAL_REASON_PEER_UNKNOWN:
		return "exchange the queue pair numbers again, because the peer has ended or "
		       "never had this one";
	case PEAL_REASON_PEER_STATE:
		return "move the peer's queue pair to RTR before the first message";
	case PEAL_REASON_PEER_OTHER:
		return "exchange queue pair numbers and GIDs again, because the peer's queue pair "
		       "is connected to another one";
	case PEAL_REASON_PEER_PSN:
		return "set rq_psn of one side to sq_psn of the other";
	case PEAL_REASON_PEER_SILENT:
	case PEAL_REASON_NAK_SEQUENCE:
		return "see whether the peer's program runs and expects the GID of this queue "
		       "pair, and type \"peal doctor PEER\"";
	case PEAL_REASON_NAK_INVALID_REQUEST:
	case PEAL_REASON_NAK_ACCESS:
	case PEAL_REASON_NAK_OPERATION:
		return "type \"peal why\" at the peer, if it has peal";
	case PEAL_REASON_BIND_WINDOW:
	case PEAL_REASON_BIND_REGION:
	case PEAL_REASON_BIND_RANGE:
		return "bind to a region of the same protection domain that has "
		       "IBV_ACCESS_MW_BIND";
	case PEAL_REASON_BAD_REQUEST:
		return "set the same path_mtu at both ends; if they have it, capture the packets "
		       "by tcpdump, because the peer breaks the protocol";
	case PEAL_REASON_BAD_RESPONSE:
		return "capture the packets by tcpdump, because the peer breaks the protocol";
	case PEAL_REASON_UD_LENGTH:
	case PEAL_REASON_FRAME_LENGTH:
		return "send less, or raise the MTU of the netdev";
	case PEAL_REASON_CQ_OVERFLOW:
		return "create a larger completion queue, or poll more often";
	case PEAL_REASON_PATH_MTU:
	case PEAL_REASON_ROUTE_MTU:
		return "raise the MTU of the netdev, or choose a smaller path MTU";
	case PEAL_REASON_XRC_SRQ:
		return "send to a shared receive queue of the domain of the peer's queue pair";
	case PEAL_REASON_LKEY_PAGE:
	case PEAL_REASON_RKEY_PAGE:
	case PEAL_REASON_RECV_LKEY_PAGE:
		return "keep the memory mapped and writable while it is used";
	case PEAL_REASON_PAGE_LATE:
		return "see why the memory does not come, for example a slow disk";
	case PEAL_REASON_REG_KEY:
	case PEAL_REASON_REG_STATE:
	case PEAL_REASON_REG_RANGE:
	case PEAL_REASON_REG_ACCESS:
		return "report it to the author of the kernel module that registers memory";
	case PEAL_REASON_FAULT:
		return "type \"peal fault show\", which lists the faults, and \"peal fault del\" "
		       "to end them";
	default:
		return "";
	}
}

} /* namespace peal::tool */
