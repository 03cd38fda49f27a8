// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Nobody would get what the coroutine returns. */
/* error: cannot convert|could not convert */
#include <peal/co.hpp>

peal::co::task<int> number();
peal::co::task<> other();

peal::status use(peal::co::loop &loop)
{
#ifdef MISUSE
	return loop.spawn(number());
#else
	return loop.spawn(other());
#endif
}
