// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The libibverbs that this process has loaded: which of its releases 36 to 65 it is, what differs
 * between them, and its private functions.
 *
 * A provider that is linked with the private functions loads with one number of the private ABI
 * only, because their symbol version has it (IBVERBS_PRIVATE_34). This one looks them up, so one
 * file serves all releases. libibverbs looks for a file name that has the number, so the file has
 * a name for each (meson.build).
 *
 * The number is not enough, because releases have changed the op table and public structures
 * without changing it. A public function that came with the change tells them apart.
 *
 * Does not know the device, and no verb.
 */
#pragma once
#include <cstddef>

#include "pabi.hpp"

namespace peal {

struct Library {
	int op_release;		     /* the release that last changed the op table */
	std::size_t context_bytes;   /* sizeof(verbs_context) */
	std::size_t qp_ex_bytes;     /* sizeof(ibv_qp_ex) */
	std::size_t port_attr_bytes; /* sizeof(ibv_port_attr) */

	void (*register_driver)(const verbs_device_ops *);
	void *(*init_and_alloc_context)(ibv_device *, int cmd_fd, std::size_t alloc_size,
					verbs_context *context_offset, std::uint32_t driver_id);
	void (*uninit_context)(verbs_context *);
	/* It reads the table of its own release from the address. */
	void (*set_ops)(verbs_context *, const void *ops);

	/* Where it has verbs_qp.comp_mask. */
	std::uint32_t &qp_mask(verbs_qp &qp) const noexcept;
	bool has_atomic_write() const noexcept;
	bool has_flush() const noexcept;
};

/* Returns the address of a function of libibverbs, or null. */
using SymbolLookup = void *(*)(const char *name);

/* Fills `found`, and returns null. Otherwise returns a sentence that says why peal cannot work. */
const char *find_library(SymbolLookup lookup, Library &found) noexcept;

/*
 * The table of the ops as a library of `release` reads it: without the ops that later releases have
 * added.
 */
struct OpTable {
	void (*ops[pabi::OP_COUNT])();
};
OpTable op_table(const verbs_context_ops &newest, int release) noexcept;

/* The library that the provider has registered with (driver.cpp). */
const Library &library() noexcept;

} // namespace peal
