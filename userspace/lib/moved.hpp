// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What a program is told that uses an object that it has moved from. It does not know the objects.
 */
#pragma once

#define PEAL_MOVED(what) what " was moved from; use the object that it was moved to"

namespace peal::detail::moved {

constexpr const char *connection = PEAL_MOVED("the connection");
constexpr const char *device = PEAL_MOVED("the device");
constexpr const char *domain = PEAL_MOVED("the domain");
constexpr const char *endpoint_or_address = PEAL_MOVED("the endpoint or the address");
constexpr const char *group = PEAL_MOVED("the group");
constexpr const char *group_or_endpoint = PEAL_MOVED("the group or the endpoint");
constexpr const char *inbox_or_domain = PEAL_MOVED("the inbox or the domain");
constexpr const char *listener = PEAL_MOVED("the listener");
constexpr const char *loop = PEAL_MOVED("the event loop");
constexpr const char *offer = PEAL_MOVED("the offer");
constexpr const char *shared_receives = PEAL_MOVED("options.shared");
constexpr const char *target = PEAL_MOVED("the target");
constexpr const char *window = PEAL_MOVED("the window");

} // namespace peal::detail::moved

#undef PEAL_MOVED
