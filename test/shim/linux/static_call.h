/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Calls whose target is chosen once, here through a pointer that a test may read. */
#ifndef PEAL_SHIM_LINUX_STATIC_CALL_H
#define PEAL_SHIM_LINUX_STATIC_CALL_H

#define DEFINE_STATIC_CALL(name, function)	__typeof__(&function) shim_call_##name = function
#define static_call_update(name, function)	((void)(shim_call_##name = (function)))
#define static_call(name)			shim_call_##name

#endif
