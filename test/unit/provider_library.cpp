// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Which libibverbs the provider takes a set of symbols for, and the op table that it makes for it.
 * The sizes and numbers are those of rdma-core's sources. guest/tools/releases_of_libibverbs runs
 * three real libraries.
 */
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "../../userspace/provider/library.hpp"
#include "catch.hpp"

using namespace peal;

namespace {

/* The library that look_up() pretends to be. */
std::vector<std::string> symbols;
std::size_t mask_at;

ibv_qp_ex *qp_to_qp_ex(ibv_qp *qp)
{
	std::uint32_t mask;

	std::memcpy(&mask, reinterpret_cast<std::byte *>(qp) + mask_at, sizeof(mask));
	return mask & PABI_QP_EX ? reinterpret_cast<ibv_qp_ex *>(qp) : nullptr;
}

void some_function() {}

void *look_up(const char *name)
{
	if (std::ranges::find(symbols, name) == symbols.end())
		return nullptr;
	if (!std::strcmp(name, "ibv_qp_to_qp_ex"))
		return reinterpret_cast<void *>(qp_to_qp_ex);
	return reinterpret_cast<void *>(some_function);
}

struct Release {
	int number;
	int private_abi;
	std::size_t qp_ex_bytes;
	std::vector<std::string> functions;
};

void pretend(const Release &release)
{
	symbols = release.functions;
	symbols.push_back("verbs_register_driver_" + std::to_string(release.private_abi));
	for (const char *name : {"_verbs_init_and_alloc_context", "verbs_uninit_context",
				 "verbs_set_ops", "ibv_qp_to_qp_ex"})
		symbols.push_back(name);
	mask_at = release.qp_ex_bytes;
}

const std::vector<std::string> in_36 = {"ibv_query_qp_data_in_order"};
const std::vector<std::string> in_49 = {"ibv_query_qp_data_in_order", "ibv_wr_opcode_str"};
const std::vector<std::string> in_59 = {"ibv_query_qp_data_in_order", "ibv_wr_opcode_str",
					"ibv_reg_mr_ex"};
const std::vector<std::string> in_62 = {"ibv_query_qp_data_in_order", "ibv_wr_opcode_str",
					"ibv_reg_mr_ex", "ibv_dm_export_dmabuf_fd"};
const std::vector<std::string> in_64 = {"ibv_query_qp_data_in_order", "ibv_wr_opcode_str",
					"ibv_reg_mr_ex", "ibv_dm_export_dmabuf_fd",
					"ibv_alloc_buf"};
const std::vector<std::string> in_65 = {
	"ibv_query_qp_data_in_order", "ibv_wr_opcode_str", "ibv_reg_mr_ex",
	"ibv_dm_export_dmabuf_fd",    "ibv_alloc_buf",	   "ibv_create_comp_cntr"};

} // namespace

TEST_CASE("each release of libibverbs is recognised")
{
	struct Row {
		Release release;
		int op_release;
		std::size_t context_bytes, port_attr_bytes;
	};
	const Row rows[] = {
		{{36, 34, 344, in_36}, 36, 648, 52}, {{43, 34, 344, in_36}, 36, 648, 52},
		{{44, 34, 352, in_36}, 36, 648, 52}, {{48, 34, 360, in_36}, 36, 648, 52},
		{{56, 34, 360, in_49}, 36, 648, 56}, {{58, 57, 360, in_49}, 36, 648, 56},
		{{61, 59, 360, in_59}, 59, 672, 56}, {{63, 59, 360, in_62}, 62, 680, 56},
		{{64, 64, 360, in_64}, 64, 696, 56}, {{65, 65, 360, in_65}, 65, 696, 56},
	};

	for (const Row &row : rows) {
		Library found{};

		INFO("release " << row.release.number);
		pretend(row.release);
		REQUIRE(find_library(look_up, found) == nullptr);
		CHECK(found.op_release == row.op_release);
		CHECK(found.context_bytes == row.context_bytes);
		CHECK(found.port_attr_bytes == row.port_attr_bytes);
		CHECK(found.qp_ex_bytes == row.release.qp_ex_bytes);
		CHECK(found.has_atomic_write() == (row.release.number >= 44));
		CHECK(found.has_flush() == (row.release.number >= 45));
	}
}

TEST_CASE("a library that may have another layout is refused with a reason")
{
	struct Row {
		Release release;
		const char *reason;
	};
	const Row rows[] = {
		{{35, 34, 344, {}}, "older than release 36"},
		{{66, 66, 360, in_65}, "newer than release 65"},
		{{65, 64, 360, in_65}, "newer than release 65"},
		{{65, 65, 368, in_65}, "unknown layout"},
	};

	for (const Row &row : rows) {
		Library found{};

		INFO("release " << row.release.number);
		pretend(row.release);
		const char *why = find_library(look_up, found);
		REQUIRE(why);
		CHECK(std::string(why).find(row.reason) != std::string::npos);
	}
}

TEST_CASE("an op table leaves out what later releases have added, and keeps the order")
{
	struct Row {
		int release;
		std::size_t ops;
		std::size_t post_send; /* its place */
	};
	/* Counted in struct verbs_context_ops of the releases. */
	const Row rows[] = {{36, 76, 55}, {59, 79, 57}, {62, 81, 58}, {64, 83, 60}, {65, 93, 64}};
	verbs_context_ops newest{};
	OpTable all;

	for (std::size_t i = 0; i < pabi::OP_COUNT; ++i)
		all.ops[i] = reinterpret_cast<void (*)()>(i + 1);
	std::memcpy(static_cast<void *>(&newest), &all, sizeof(all));
	for (const Row &row : rows) {
		const OpTable table = op_table(newest, row.release);
		const auto end = table.ops + row.ops;
		const auto post_send = offsetof(verbs_context_ops, post_send) / sizeof(void *);

		INFO("release " << row.release);
		CHECK(std::is_sorted(table.ops, end));
		CHECK(table.ops[row.ops - 1] != nullptr);
		CHECK(std::all_of(end, std::end(table.ops), [](auto op) { return !op; }));
		CHECK(table.ops[row.post_send] == all.ops[post_send]);
	}
}
