// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A task begins only when it is awaited, so ignoring it is a mistake. */
/* error: nodiscard|ignoring return */
#include <peal/co.hpp>

peal::co::task<> other();

peal::co::task<> use()
{
#ifdef MISUSE
	other();
	co_return;
#else
	co_await other();
#endif
}
