// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A device copies bytes, so a pointer would lead nowhere at the peer. */
/* error: trivially copyable */
#include <peal/peal.hpp>

#include <string>

void use(peal::device &device)
{
#ifdef MISUSE
	auto memory = device.alloc<std::string>(10);
	(void)memory;
#else
	auto memory = device.alloc<char>(10);
	(void)memory;
#endif
}
