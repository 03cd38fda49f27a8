// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A peer may never come. */
/* error: no matching (member )?function|too few arguments */
#include <peal/peal.hpp>

using namespace std::chrono_literals;

void use(peal::offer &offer, std::span<const std::byte> blob)
{
#ifdef MISUSE
	(void)offer.connect(blob);
#else
	(void)offer.connect(blob, 1s);
#endif
}
