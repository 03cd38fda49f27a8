/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Tracepoints do nothing. */
#ifndef PEAL_SHIM_LINUX_TRACEPOINT_H
#define PEAL_SHIM_LINUX_TRACEPOINT_H

#define TP_PROTO(...)	__VA_ARGS__
#define TRACE_EVENT(name, proto, ...) \
	static inline void trace_##name(proto) {}
#define DECLARE_EVENT_CLASS(name, ...)
#define DEFINE_EVENT(class, name, proto, args) \
	static inline void trace_##name(proto) {}
#define TRACE_DEFINE_ENUM(name)

#endif
