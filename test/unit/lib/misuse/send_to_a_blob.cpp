// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A blob is not an address before the endpoint has checked it. */
/* error: no matching (member )?function */
#include <peal/peal.hpp>

using namespace std::chrono_literals;

void use(peal::endpoint &endpoint, std::span<const std::byte> blob)
{
#ifdef MISUSE
	(void)endpoint.send(blob, "text", 1s);
#else
	(void)endpoint.send(endpoint.reach(blob).value(), "text", 1s);
#endif
}
