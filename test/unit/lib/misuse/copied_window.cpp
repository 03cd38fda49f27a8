// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A window has one owner, whose end takes the lease back. */
/* error: deleted */
#include <peal/peal.hpp>

void use(peal::window &window)
{
#ifdef MISUSE
	auto other = window;
	(void)other;
#else
	auto other = std::move(window);
	(void)other;
#endif
}
