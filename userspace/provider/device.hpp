// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The attributes of a device and its port.
 *
 * Owns: field-by-field copies from the kernel's answers to the structs of verbs.h.
 * Does not know: the limits of peal, which only the kernel knows.
 */
#pragma once
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace peal {

int device_query(ibv_context *context, const ibv_query_device_ex_input *input,
		 ibv_device_attr_ex *attr, std::size_t attr_size);
/* The clock of IBV_WC_EX_WITH_COMPLETION_TIMESTAMP. */
int rt_values_query(ibv_context *context, ibv_values_ex *values) noexcept;
int port_query(ibv_context *context, std::uint8_t port, ibv_port_attr *attr);
/* @speed: in units of 100 Mb/s. */
int port_query_speed(ibv_context *context, std::uint32_t port, std::uint64_t *speed);

} // namespace peal
