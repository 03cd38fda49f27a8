// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Only memory makes slices, so that the key covers the bytes. */
/* error: private */
#include <peal/peal.hpp>

void use(std::byte *bytes, peal::memory<char> &memory)
{
#ifdef MISUSE
	peal::slice part(bytes, 8, memory.all().key(), nullptr);
	(void)part;
#else
	peal::slice part = memory.part(0, 8);
	(void)part, (void)bytes;
#endif
}
