// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Says in words how a request ended: what happened, and what to do. peal tells the reason, which is
 * more than the status of libibverbs.
 */
#include <infiniband/verbs.h>
#include <rdma/peal-abi.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "peal/completion.hpp"

namespace peal {

namespace {

struct words {
	const char *what;
	const char *remedy;
};

words words_of(int status)
{
	switch (status) {
	case IBV_WC_LOC_LEN_ERR:
		return {"the message is longer than the receive buffer, or than the device allows",
			"raise options.receive_bytes of the receiver, or send less"};
	case IBV_WC_LOC_PROT_ERR:
		return {"the slice is not in registered memory",
			"keep its memory until the request has completed"};
	case IBV_WC_MW_BIND_ERR:
		return {"the window was not bound",
			"keep the window and its memory until the request has completed, and "
			"connect again"};
	case IBV_WC_WR_FLUSH_ERR:
		return {"the connection had ended before the request was done",
			"look for the first request that failed, and connect again"};
	case IBV_WC_REM_INV_REQ_ERR:
		return {"the peer's device calls the request invalid",
			"see whether the message fits into the peer's receive buffer"};
	case IBV_WC_REM_ACCESS_ERR:
		return {"the peer's memory does not allow the request",
			"let the peer share memory with this right, and keep it, or bind its "
			"window "
			"again"};
	case IBV_WC_REM_OP_ERR:
		return {"the peer's device failed", "see the peer's log, and connect again"};
	case IBV_WC_RETRY_EXC_ERR:
		return {"the peer does not answer",
			"see whether it still runs and whether a firewall drops UDP port 4791, and "
			"connect again"};
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return {"the peer had no receive posted",
			"let it call recv() more often or raise its options.receives"};
	case IBV_WC_LOC_ACCESS_ERR:
		return {"the local memory does not allow the request",
			"keep its memory until the request has completed"};
	case IBV_WC_FATAL_ERR:
		return {"the device failed or was removed", "open it again"};
	default:
		return {ibv_wc_status_str(static_cast<ibv_wc_status>(status)), "connect again"};
	}
}

const char *reason_of(std::uint32_t vendor_error)
{
	switch (vendor_error) {
#define PEAL_REASON_CASE(name, number, text)                                                       \
	case number:                                                                               \
		return text;
		PEAL_REASONS(PEAL_REASON_CASE)
#undef PEAL_REASON_CASE
	default:
		return nullptr;
	}
}

/* The sentences that were asked for. There are few, and none is destroyed. */
struct sentences {
	std::mutex lock;
	std::map<std::pair<int, std::uint32_t>, std::string> made;
};

const char *sentence_of(int status, std::uint32_t vendor_error)
{
	static auto *all = new sentences;
	const words say = words_of(status);
	const char *reason = vendor_error ? reason_of(vendor_error) : nullptr;
	const std::lock_guard guard(all->lock);
	std::string &text = all->made[{status, reason ? vendor_error : 0}];

	if (text.empty())
		text = std::string(say.what) + (reason ? std::string(" (") + reason + ")" : "") +
		       "; " + say.remedy;
	return text.c_str();
}

} // namespace

const char *completion::why() const noexcept
{
	if (is_sentence())
		return why_;
	if (!status_)
		return "";
	try {
		return sentence_of(status_, peal_ ? vendor_error_ : 0);
	} catch (...) {
		/* There was no memory for the sentence. */
		return words_of(status_).what;
	}
}

} // namespace peal
