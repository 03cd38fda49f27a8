// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The parts of the private ABI of libibverbs that a provider needs: the layouts of the
 * registration structures, of the op table and of the wrapper structures. No installed
 * header has them. They describe the behaviour of the library's releases 36 to 65.
 *
 * Structures that differ between these releases are declared as the newest release has them.
 * library.hpp knows which of them the running library has. What is declared here does not
 * depend on the release of verbs.h that peal is compiled with.
 */
#pragma once
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <sys/types.h>
#include <type_traits>

extern "C" {

struct pabi_list_node {
	pabi_list_node *next, *prev;
};

enum pabi_match_kind : std::uint8_t {
	PABI_MATCH_SENTINEL = 0,
	PABI_MATCH_MODALIAS = 2, /* also matches device names */
	PABI_MATCH_DRIVER_ID = 3,
};

union pabi_match_key {
	const char *modalias;
	std::uint64_t driver_id;
};

struct verbs_match_ent {
	void *driver_data;
	pabi_match_key u;
	std::uint16_t vendor, device;
	std::uint8_t kind;
};

struct verbs_sysfs_dev; /* opaque to a provider */
struct verbs_device;

struct verbs_device_ops {
	const char *name;
	std::uint32_t match_min_abi_version, match_max_abi_version;
	const verbs_match_ent *match_table;
	const verbs_device_ops **static_providers;
	bool (*match_device)(verbs_sysfs_dev *);
	verbs_context *(*alloc_context)(ibv_device *, int cmd_fd, void *private_data);
	verbs_context *(*import_context)(ibv_device *, int cmd_fd);
	verbs_device *(*alloc_device)(verbs_sysfs_dev *);
	void (*uninit_device)(verbs_device *);
};

struct verbs_device {
	ibv_device device;
	const verbs_device_ops *ops;
	int refcount; /* atomic; used by the library only */
	pabi_list_node entry;
	verbs_sysfs_dev *sysfs;
	std::uint64_t core_support;
};

/* Bits of verbs_qp.comp_mask. */
enum pabi_qp_mask : std::uint32_t {
	PABI_QP_EX = 1 << 1, /* qp_ex is valid: ibv_qp_to_qp_ex() may return it */
};

/*
 * ibv_qp_ex ended after 344 bytes up to release 43, and after 352 in release 44. Behind it the
 * library has its comp_mask, so the place of that differs, too (Library::qp_mask).
 */
struct pabi_qp_ex {
	std::byte first[344]; /* an ibv_qp_ex of release 36 */
	void (*wr_atomic_write)(ibv_qp_ex *, std::uint32_t rkey, std::uint64_t addr,
				const void *value);
	void (*wr_flush)(ibv_qp_ex *, std::uint32_t rkey, std::uint64_t addr, std::size_t length,
			 std::uint8_t type, std::uint8_t level);
};

struct verbs_qp {
	union {
		ibv_qp qp;
		ibv_qp_ex qp_ex;
		pabi_qp_ex newest;
	};
	std::uint32_t comp_mask; /* of the newest release; see Library::qp_mask */
	void *xrcd;
};

/* Up to release 48, ibv_port_attr ended before this member. */
struct pabi_port_attr {
	std::byte first[52];
	std::uint32_t active_speed_ex;
};

struct verbs_cq {
	union {
		ibv_cq cq;
		ibv_cq_ex cq_ex;
	};
};

/* Values of verbs_mr.mr_type. The library undoes the fork protection of plain ones only. */
enum pabi_mr_type {
	PABI_MR_PLAIN = 0,
	PABI_MR_NULL = 1, /* the kernel has no object for it */
	PABI_MR_IMPORTED = 2,
	PABI_MR_NO_ADDRESS = 3, /* none of the program's memory, as of a DMA buffer */
};

struct verbs_mr {
	ibv_mr mr;
	int mr_type; /* enum pabi_mr_type */
	int access;
};

} /* extern "C" */

/* A slot of the op table. It has the layout of a function pointer, and is null unless set. */
template <class Signature>
struct pabi_op {
	Signature *fn = nullptr;
	constexpr pabi_op() = default;
	constexpr pabi_op(Signature *f) : fn(f) {}
};
using pabi_unused_op = pabi_op<void()>;

extern "C" {

/* clang-format off */
/*
 * The order is alphabetical, as in the library, so an added op shifts all ops after it.
 * added_ops has those that releases after 36 have added.
 */
struct verbs_context_ops {
	pabi_op<int(ibv_pd *, ibv_advise_mr_advice, std::uint32_t flags, ibv_sge *, std::uint32_t num_sge)>
		advise_mr{};
	pabi_unused_op alloc_buf{};
	pabi_op<ibv_dm *(ibv_context *, ibv_alloc_dm_attr *)> alloc_dm{};
	pabi_unused_op alloc_dmah{};
	pabi_op<ibv_mw *(ibv_pd *, ibv_mw_type)> alloc_mw{};
	pabi_op<ibv_mr *(ibv_pd *)> alloc_null_mr{};
	pabi_op<ibv_pd *(ibv_context *, ibv_parent_domain_init_attr *)> alloc_parent_domain{};
	pabi_op<ibv_pd *(ibv_context *)> alloc_pd{};
	pabi_op<ibv_td *(ibv_context *, ibv_td_init_attr *)> alloc_td{};
	pabi_unused_op async_event{}, attach_counters_point_flow{};
	pabi_op<int(ibv_qp *, const ibv_gid *, std::uint16_t lid)> attach_mcast{};
	pabi_op<int(ibv_qp *, ibv_mw *, ibv_mw_bind *)> bind_mw{};
	pabi_op<int(ibv_xrcd *)> close_xrcd{};
	pabi_unused_op cq_event{};
	pabi_op<ibv_ah *(ibv_pd *, ibv_ah_attr *)> create_ah{};
	pabi_unused_op create_comp_cntr{};
	pabi_unused_op create_counters{};
	pabi_op<ibv_cq *(ibv_context *, int cqe, ibv_comp_channel *, int comp_vector)> create_cq{};
	pabi_op<ibv_cq_ex *(ibv_context *, ibv_cq_init_attr_ex *)> create_cq_ex{};
	pabi_op<ibv_flow *(ibv_qp *, ibv_flow_attr *)> create_flow{};
	pabi_unused_op create_flow_action_esp{};
	pabi_op<ibv_qp *(ibv_pd *, ibv_qp_init_attr *)> create_qp{};
	pabi_op<ibv_qp *(ibv_context *, ibv_qp_init_attr_ex *)> create_qp_ex{};
	pabi_unused_op create_rwq_ind_table{};
	pabi_op<ibv_srq *(ibv_pd *, ibv_srq_init_attr *)> create_srq{};
	pabi_op<ibv_srq *(ibv_context *, ibv_srq_init_attr_ex *)> create_srq_ex{};
	pabi_unused_op create_wq{};
	pabi_unused_op dealloc_dmah{};
	pabi_op<int(ibv_mw *)> dealloc_mw{};
	pabi_op<int(ibv_pd *)> dealloc_pd{};
	pabi_op<int(ibv_td *)> dealloc_td{};
	pabi_op<int(verbs_mr *)> dereg_mr{};
	pabi_op<int(ibv_ah *)> destroy_ah{};
	pabi_unused_op destroy_comp_cntr{};
	pabi_unused_op destroy_counters{};
	pabi_op<int(ibv_cq *)> destroy_cq{};
	pabi_op<int(ibv_flow *)> destroy_flow{};
	pabi_unused_op destroy_flow_action{};
	pabi_op<int(ibv_qp *)> destroy_qp{};
	pabi_unused_op destroy_rwq_ind_table{};
	pabi_op<int(ibv_srq *)> destroy_srq{};
	pabi_unused_op destroy_wq{};
	pabi_op<int(ibv_qp *, const ibv_gid *, std::uint16_t lid)> detach_mcast{};
	pabi_unused_op dm_export_dmabuf_fd{};
	pabi_unused_op free_buf{};
	pabi_op<void(ibv_context *)> free_context{};
	pabi_op<int(ibv_dm *)> free_dm{};
	pabi_op<int(ibv_srq *, std::uint32_t *)> get_srq_num{};
	pabi_op<ibv_dm *(ibv_context *, std::uint32_t handle)> import_dm{};
	pabi_op<ibv_mr *(ibv_pd *, std::uint32_t handle)> import_mr{};
	pabi_op<ibv_pd *(ibv_context *, std::uint32_t handle)> import_pd{};
	pabi_unused_op inc_comp_cntr{}, inc_err_comp_cntr{};
	pabi_op<int(ibv_cq *, ibv_modify_cq_attr *)> modify_cq{};
	pabi_unused_op modify_flow_action_esp{};
	pabi_op<int(ibv_qp *, ibv_qp_attr *, int mask)> modify_qp{};
	pabi_unused_op modify_qp_rate_limit{};
	pabi_op<int(ibv_srq *, ibv_srq_attr *, int mask)> modify_srq{};
	pabi_unused_op modify_wq{};
	pabi_op<ibv_qp *(ibv_context *, ibv_qp_open_attr *)> open_qp{};
	pabi_op<ibv_xrcd *(ibv_context *, ibv_xrcd_init_attr *)> open_xrcd{};
	pabi_op<int(ibv_cq *, int n, ibv_wc *)> poll_cq{};
	pabi_op<int(ibv_qp *, ibv_recv_wr *, ibv_recv_wr **bad)> post_recv{};
	pabi_op<int(ibv_qp *, ibv_send_wr *, ibv_send_wr **bad)> post_send{};
	pabi_unused_op post_srq_ops{};
	pabi_op<int(ibv_srq *, ibv_recv_wr *, ibv_recv_wr **bad)> post_srq_recv{};
	pabi_unused_op qp_attach_comp_cntr{}, query_comp_cntr_caps{};
	pabi_op<int(ibv_context *, const ibv_query_device_ex_input *, ibv_device_attr_ex *,
		    std::size_t)> query_device_ex{};
	pabi_unused_op query_ece{};
	pabi_op<int(ibv_context *, std::uint8_t, ibv_port_attr *)> query_port{};
	pabi_op<int(ibv_context *, std::uint32_t port, std::uint64_t *speed)> query_port_speed{};
	pabi_op<int(ibv_qp *, ibv_qp_attr *, int mask, ibv_qp_init_attr *)> query_qp{};
	pabi_unused_op query_qp_data_in_order{};
	pabi_op<int(ibv_context *, ibv_values_ex *)> query_rt_values{};
	pabi_op<int(ibv_srq *, ibv_srq_attr *)> query_srq{};
	pabi_unused_op read_comp_cntr{};
	pabi_unused_op read_counters{};
	pabi_unused_op read_err_comp_cntr{};
	pabi_op<ibv_mr *(ibv_pd *, ibv_dm *, std::uint64_t offset, std::size_t, unsigned access)> reg_dm_mr{};
	pabi_op<ibv_mr *(ibv_pd *, std::uint64_t offset, std::size_t, std::uint64_t iova, int fd,
			 int access)> reg_dmabuf_mr{};
	pabi_op<ibv_mr *(ibv_pd *, void *addr, std::size_t, std::uint64_t iova, int access)> reg_mr{};
	pabi_unused_op reg_mr_ex{};
	pabi_op<int(ibv_cq *, int solicited_only)> req_notify_cq{};
	pabi_op<int(verbs_mr *, int flags, ibv_pd *, void *addr, std::size_t, int access)> rereg_mr{};
	pabi_op<int(ibv_cq *, int cqe)> resize_cq{};
	pabi_unused_op set_comp_cntr{};
	pabi_unused_op set_ece{};
	pabi_unused_op set_err_comp_cntr{};
	pabi_op<void(ibv_dm *)> unimport_dm{};
	pabi_op<void(ibv_mr *)> unimport_mr{};
	pabi_op<void(ibv_pd *)> unimport_pd{};
};
/* clang-format on */

} /* extern "C" */

namespace peal::pabi {

/* The newest release that is known, and the size of its op table. */
constexpr int NEWEST = 65;
constexpr std::size_t OP_COUNT = 93;

struct AddedOp {
	std::size_t offset;
	int release; /* the first that has it */
};

constexpr AddedOp added_ops[] = {
	{offsetof(verbs_context_ops, alloc_buf), 64},
	{offsetof(verbs_context_ops, alloc_dmah), 59},
	{offsetof(verbs_context_ops, create_comp_cntr), 65},
	{offsetof(verbs_context_ops, dealloc_dmah), 59},
	{offsetof(verbs_context_ops, destroy_comp_cntr), 65},
	{offsetof(verbs_context_ops, dm_export_dmabuf_fd), 62},
	{offsetof(verbs_context_ops, free_buf), 64},
	{offsetof(verbs_context_ops, inc_comp_cntr), 65},
	{offsetof(verbs_context_ops, inc_err_comp_cntr), 65},
	{offsetof(verbs_context_ops, qp_attach_comp_cntr), 65},
	{offsetof(verbs_context_ops, query_comp_cntr_caps), 65},
	{offsetof(verbs_context_ops, query_port_speed), 62},
	{offsetof(verbs_context_ops, read_comp_cntr), 65},
	{offsetof(verbs_context_ops, read_err_comp_cntr), 65},
	{offsetof(verbs_context_ops, reg_mr_ex), 59},
	{offsetof(verbs_context_ops, set_comp_cntr), 65},
	{offsetof(verbs_context_ops, set_err_comp_cntr), 65},
};

static_assert(sizeof(pabi_unused_op) == sizeof(void (*)()));
static_assert(std::is_standard_layout_v<verbs_context_ops>);
static_assert(sizeof(verbs_context_ops) == OP_COUNT * sizeof(void *));
static_assert(sizeof(verbs_device_ops) == 72 && sizeof(verbs_match_ent) == 24);
static_assert(offsetof(verbs_device, core_support) == 704 && sizeof(verbs_device) == 712);
static_assert(offsetof(ibv_qp_ex, wr_atomic_write) == offsetof(pabi_qp_ex, wr_atomic_write));
static_assert(offsetof(verbs_qp, comp_mask) == sizeof(pabi_qp_ex) && sizeof(pabi_qp_ex) == 360);
static_assert(offsetof(ibv_qp_ex, qp_base) == 0);
static_assert(offsetof(ibv_port_attr, port_cap_flags2) + 4 ==
	      offsetof(pabi_port_attr, active_speed_ex));
static_assert(sizeof(verbs_mr) == 56);

} // namespace peal::pabi
