// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A task returns its value once, so the object is given away. */
/* error: discards qualifiers */
#include <peal/co.hpp>

peal::co::task<> use(peal::co::task<int> number)
{
#ifdef MISUSE
	(void)co_await number;
#else
	(void)co_await std::move(number);
#endif
}
