// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * An error of a queue pair, as the module keeps it, and the sentences about it.
 *
 * Owns: the words for each reason, with its numbers and what to do.
 * Does not know: where errors come from, and who prints them.
 */
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace peal::tool {

/* What the module did not tell is missing. */
struct QpError {
	using Number = std::optional<std::uint64_t>;

	std::string device;
	std::uint64_t qpn = 0;
	bool responder = false; /* it refused a message of its peer; otherwise its own failed */
	Number qp_type;		/* enum ib_qp_type */
	Number peer_qpn;
	Number uid; /* who made the queue pair */
	Number age; /* ns */
	Number count;
	Number opcode; /* enum peal_opcode */
	Number status; /* enum ib_wc_status */
	Number reason; /* enum peal_reason */
	Number key, address, length;
	Number room; /* bytes of the receive */
	Number pdn;
	Number wanted, allowed; /* IB_ACCESS_* */
	Number key_pdn, key_access, key_start, key_length;
	Number retries, rnr_retries, timeout;
	std::optional<std::string> peer_address;
};

/* What happened: one sentence, without a full stop. */
std::string what_happened(const QpError &error);
/* What to do about it, or nothing if the other end knows better. */
std::string what_to_do(const QpError &error);
/* "WRITE", "SEND" and so on, or the number. */
std::string operation_of(const QpError &error);
/* "remote access error" and so on, or the number; nothing if no requester sees a status. */
std::string status_of(const QpError &error);

} /* namespace peal::tool */
