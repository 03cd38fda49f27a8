// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* See library.hpp. */
#include "library.hpp"

#include <cstdio>
#include <cstring>

namespace peal {

namespace {

/* The newest comes first. A library is the first one whose public function it has. */
constexpr struct {
	const char *function;
	int op_release;
	int private_abis[2]; /* the numbers that these releases have; 0: no other */
	std::size_t context_bytes;
} RELEASES[] = {
	{"ibv_create_comp_cntr", 65, {65, 0}, 696},	   {"ibv_alloc_buf", 64, {64, 0}, 696},
	{"ibv_dm_export_dmabuf_fd", 62, {59, 0}, 680},	   {"ibv_reg_mr_ex", 59, {59, 0}, 672},
	{"ibv_query_qp_data_in_order", 36, {57, 34}, 648},
};

constexpr std::size_t QP_EX_BYTES[] = {344, 352, 360};

template <class Function>
bool find(SymbolLookup lookup, const char *name, Function *&function) noexcept
{
	function = reinterpret_cast<Function *>(lookup(name));
	return function;
}

bool find_register(SymbolLookup lookup, const int (&private_abis)[2], Library &library) noexcept
{
	char name[40];

	for (const int number : private_abis) {
		std::snprintf(name, sizeof(name), "verbs_register_driver_%d", number);
		if (number && find(lookup, name, library.register_driver))
			return true;
	}
	return false;
}

/*
 * No function came with the longer ibv_qp_ex, but ibv_qp_to_qp_ex() tells where the library reads
 * the mask.
 */
bool find_qp_mask(ibv_qp_ex *(*to_qp_ex)(ibv_qp *), Library &library) noexcept
{
	for (const std::size_t bytes : QP_EX_BYTES) {
		verbs_qp qp{};

		library.qp_ex_bytes = bytes;
		library.qp_mask(qp) = PABI_QP_EX;
		if (to_qp_ex(&qp.qp))
			return true;
	}
	return false;
}

} // namespace

std::uint32_t &Library::qp_mask(verbs_qp &qp) const noexcept
{
	return *reinterpret_cast<std::uint32_t *>(reinterpret_cast<std::byte *>(&qp) + qp_ex_bytes);
}

bool Library::has_atomic_write() const noexcept
{
	return qp_ex_bytes > offsetof(pabi_qp_ex, wr_atomic_write);
}

bool Library::has_flush() const noexcept
{
	return qp_ex_bytes > offsetof(pabi_qp_ex, wr_flush);
}

const char *find_library(SymbolLookup lookup, Library &found) noexcept
{
	ibv_qp_ex *(*to_qp_ex)(ibv_qp *);

	for (const auto &release : RELEASES) {
		if (!lookup(release.function))
			continue;
		found.op_release = release.op_release;
		found.context_bytes = release.context_bytes;
		/* The release that appended a member to ibv_port_attr added this function. */
		found.port_attr_bytes = lookup("ibv_wr_opcode_str") ? 56 : 52;
		if (!find_register(lookup, release.private_abis, found) ||
		    !find(lookup, "_verbs_init_and_alloc_context", found.init_and_alloc_context) ||
		    !find(lookup, "verbs_uninit_context", found.uninit_context) ||
		    !find(lookup, "verbs_set_ops", found.set_ops) ||
		    !find(lookup, "ibv_qp_to_qp_ex", to_qp_ex))
			return "this libibverbs is newer than release 65, or was changed; "
			       "install a newer provider of peal";
		if (!find_qp_mask(to_qp_ex, found))
			return "the queue pairs of this libibverbs have an unknown layout; "
			       "install a newer provider of peal";
		return nullptr;
	}
	return "this libibverbs is older than release 36; install a newer libibverbs";
}

OpTable op_table(const verbs_context_ops &newest, int release) noexcept
{
	OpTable all, table{};
	std::size_t count = 0;

	std::memcpy(&all, &newest, sizeof(all));
	for (std::size_t i = 0; i < pabi::OP_COUNT; ++i) {
		bool missing = false;

		for (const auto &added : pabi::added_ops)
			missing |= added.offset == i * sizeof(void *) && added.release > release;
		if (!missing)
			table.ops[count++] = all.ops[i];
	}
	return table;
}

} // namespace peal
