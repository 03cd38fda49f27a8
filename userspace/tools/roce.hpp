// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Numbers of RoCEv2 that several commands need. It does not know packets.
 */
#pragma once
#include <cstdint>

namespace peal::tool {

/* The UDP port of RoCEv2 packets. IANA and nft call it "roce". */
constexpr std::uint16_t ROCE_PORT = 4791;

} // namespace peal::tool
