// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The command "peal why": the last errors of queue pairs, in words, of both ends if both are on
 * this host.
 */
#pragma once

#include <string>

namespace peal::tool {

/* `queue_pair` is empty for all, QPN or DEVICE/QPN. */
void explain_errors(const std::string &queue_pair, bool json);

} /* namespace peal::tool */
