// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The commands "peal link" and "peal host": devices, and the options of devices and of the host.
 */
#pragma once

#include <string>
#include <vector>

namespace peal::tool {

/* Makes a device with options. No device is left if an option is refused. */
void link_add(const std::string &name, const std::string &netdev,
	      const std::vector<std::string> &options);
void link_delete(const std::string &name);
void link_set(const std::string &name, const std::vector<std::string> &options);
/* All devices if the name is empty. */
void link_show(const std::string &name, bool json);

void host_set(const std::vector<std::string> &options);
void host_show(bool json);

} /* namespace peal::tool */
