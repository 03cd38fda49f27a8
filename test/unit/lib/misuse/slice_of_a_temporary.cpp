// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The memory would end before its slice. */
/* error: deleted */
#include <peal/peal.hpp>

void use(peal::device &device)
{
#ifdef MISUSE
	(void)device.alloc<char>(10).value().all();
#else
	auto memory = device.alloc<char>(10).value();
	(void)memory.all();
#endif
}
