// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The command "peal show": the objects of programs, as the RDMA core tracks them.
 */
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "netlink.hpp"

namespace peal::tool {

/* The kinds of objects: "qp" and so on. */
std::vector<std::string> object_kinds();

/* All devices if the name is empty. `details` adds all that the module says to the table. */
void show_objects(const std::string &kind, const std::string &device, bool details, bool json);

/*
 * What the driver says about an object. The kernel sends pairs of a name, which is a string, and a
 * value. Before a value there may be the way in which it is to be printed.
 */
nlohmann::ordered_json driver_values(const Attributes &object);

} /* namespace peal::tool */
