// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * peal fault: errors on demand.
 *
 * Owns: what the commands print.
 * Does not know: the words of a rule (fault_rule.hpp).
 */
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace peal::tool {

/* Prints the number of the new rule. */
void fault_add(const std::string &device, const std::vector<std::string> &words);
/* If `device` is empty, shows the rules of all devices. */
void fault_show(const std::string &device, bool json);
/* Makes it happen at once. */
void fault_now(const std::string &device, const std::vector<std::string> &words);
/* If `id` is empty, removes all rules of the device. */
void fault_delete(const std::string &device, const std::string &id);

} /* namespace peal::tool */
