// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A local key is not a remote one. */
/* error: cannot (convert|initialize) */
#include <peal/peal.hpp>

void use(peal::memory<char> &memory)
{
#ifdef MISUSE
	peal::rkey key = memory.all().key();
	(void)key;
#else
	peal::rkey key = memory.share().key();
	(void)key;
#endif
}
