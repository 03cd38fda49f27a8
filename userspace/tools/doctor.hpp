// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The command "peal doctor": looks for what keeps programs from using peal.
 */
#pragma once

#include <string>

namespace peal::tool {

/*
 * `peer` is an address or a name, or empty. Return: the exit status, which is EXIT_PROBLEM if a
 * problem was found.
 */
int examine(const std::string &peer, bool json);

} /* namespace peal::tool */
