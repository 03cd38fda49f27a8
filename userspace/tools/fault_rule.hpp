// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A rule by which messages of a device fail, and its words on the command line.
 *
 * Owns: the names of faults, statuses and operations, and which words go together.
 * Does not know: how a rule reaches the module. Values that a newer module may have are passed on,
 * because the module judges them.
 */
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace peal::tool {

/* What a rule does not say, or an older module did not tell, is missing. */
struct FaultRule {
	using Number = std::optional<std::uint64_t>;
	using Gid = std::array<std::byte, 16>;

	std::string device;
	std::uint64_t id = 0;
	std::uint32_t kind = 0; /* enum peal_nl_fault_kind */
	Number status;		/* enum ibv_wc_status */
	Number delay;		/* microseconds */
	Number qpn;
	std::optional<Gid> peer;
	Number opcodes; /* bits 1 << enum peal_opcode */
	Number count, every, chance, seed;
	Number seen, fired;
};

/* Reads "status rem-access-err qp 17 every 3" and so on. Throws WrongUse. */
FaultRule parse_fault(std::span<const std::string> words);

/* What happens at once. */
struct FaultEvent {
	std::uint32_t event = 0; /* enum peal_nl_fault_event */
	FaultRule::Number qpn;
};

/* Reads "device-fatal", "qp-fatal qp 17" and so on. Throws WrongUse. */
FaultEvent parse_fault_event(std::span<const std::string> words);

/* "status rem-access-err" and so on. What this tool does not know is shown as its number. */
std::string fault_words(const FaultRule &rule);
/* Which messages it concerns, as on the command line: "qp 17 opcode write". */
std::string fault_filter_words(const FaultRule &rule);
/* Which of these it hits: "every 3 count 2". */
std::string fault_choice_words(const FaultRule &rule);

/* The parts of these, for JSON. */
std::string fault_kind_word(const FaultRule &rule);
std::string fault_status_word(std::uint64_t status);
std::string fault_peer_word(const FaultRule::Gid &peer);
std::vector<std::string> fault_opcode_words(std::uint64_t opcodes);

} /* namespace peal::tool */
