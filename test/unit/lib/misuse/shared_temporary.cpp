// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The memory would end before the peer reaches it. */
/* error: deleted */
#include <peal/peal.hpp>

void use(peal::device &device)
{
#ifdef MISUSE
	(void)device.alloc<char>(10, peal::remote_read).value().share();
#else
	auto memory = device.alloc<char>(10, peal::remote_read).value();
	(void)memory.share();
#endif
}
