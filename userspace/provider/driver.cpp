// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: the op table, matching, registration.
 * Does not know: the implementation of the ops.
 *
 * To add a verb, give its type in pabi.hpp and its function in context_ops. For an
 * op that is null libibverbs returns EOPNOTSUPP.
 */
#include "driver.hpp"

#include <dlfcn.h>
#include <rdma/peal-abi.h>

#include <cstdio>
#include <cstdlib>

#include "ah.hpp"
#include "context.hpp"
#include "cq.hpp"
#include "cq_ex.hpp"
#include "device.hpp"
#include "dm.hpp"
#include "entry.hpp"
#include "flow.hpp"
#include "mr.hpp"
#include "mw.hpp"
#include "pd.hpp"
#include "poll.hpp"
#include "post.hpp"
#include "qp.hpp"
#include "qp_ex.hpp"
#include "srq.hpp"
#include "xrcd.hpp"

namespace peal {

/* Control-path functions may throw, so they need entry<>. The others are noexcept. */
const verbs_context_ops context_ops = {
	.advise_mr = entry<&mr_advise>,
	.alloc_dm = entry<&dm_alloc>,
	.alloc_mw = entry<&mw_alloc>,
	.alloc_null_mr = entry<&mr_alloc_null>,
	.alloc_parent_domain = entry<&parent_domain_alloc>,
	.alloc_pd = entry<&pd_alloc>,
	.alloc_td = entry<&td_alloc>,
	.attach_mcast = entry<&mcast_attach>,
	.bind_mw = mw_bind,
	.close_xrcd = entry<&xrcd_close>,
	.create_ah = entry<&ah_create>,
	.create_cq = entry<&cq_create>,
	.create_cq_ex = entry<&cq_ex_create>,
	.create_flow = entry<&flow_create>,
	.create_qp = entry<&qp_create>,
	.create_qp_ex = entry<&qp_ex_create>,
	.create_srq = entry<&srq_create>,
	.create_srq_ex = entry<&srq_create_ex>,
	.dealloc_mw = entry<&mw_dealloc>,
	.dealloc_pd = entry<&pd_dealloc>,
	.dealloc_td = entry<&td_dealloc>,
	.dereg_mr = entry<&mr_deregister>,
	.destroy_ah = entry<&ah_destroy>,
	.destroy_cq = entry<&cq_destroy>,
	.destroy_flow = entry<&flow_destroy>,
	.destroy_qp = entry<&qp_destroy>,
	.destroy_srq = entry<&srq_destroy>,
	.detach_mcast = entry<&mcast_detach>,
	.free_context = context_free,
	.free_dm = entry<&dm_free>,
	.get_srq_num = srq_number,
	.import_dm = entry<&dm_import>,
	.import_mr = entry<&mr_import>,
	.import_pd = entry<&pd_import>,
	.modify_cq = entry<&cq_modify>,
	.modify_qp = entry<&qp_modify>,
	.modify_srq = entry<&srq_modify>,
	.open_qp = entry<&qp_open>,
	.open_xrcd = entry<&xrcd_open>,
	.poll_cq = cq_poll,
	.post_recv = post_recv,
	.post_send = post_send,
	.post_srq_recv = post_srq_recv,
	.query_device_ex = entry<&device_query>,
	.query_port = entry<&port_query>,
#if PEAL_IBV_LAYOUT >= 62
	.query_port_speed = entry<&port_query_speed>,
#endif
	.query_qp = entry<&qp_query>,
	.query_rt_values = rt_values_query,
	.query_srq = entry<&srq_query>,
	.reg_dm_mr = entry<&mr_register_dm>,
	.reg_dmabuf_mr = entry<&mr_register_dmabuf>,
	.reg_mr = entry<&mr_register>,
	.req_notify_cq = cq_req_notify,
	.rereg_mr = entry<&mr_reregister>,
	.resize_cq = entry<&cq_resize>,
	.unimport_dm = dm_unimport,
	.unimport_mr = mr_unimport,
	.unimport_pd = pd_unimport,
};

namespace {

/* libibverbs matches by driver id. The name is for kernels that do not report the id. */
const verbs_match_ent match_table[] = {
	{nullptr, {.driver_id = PEAL_DRIVER_ID}, 0, 0, PABI_MATCH_DRIVER_ID},
	{nullptr, {.modalias = "rdma_device:*Npeal*"}, 0, 0, PABI_MATCH_MODALIAS},
	{nullptr, {.modalias = nullptr}, 0, 0, PABI_MATCH_SENTINEL},
};

/* libibverbs calls these two functions. It never frees a verbs_device itself. */
verbs_device *device_alloc(verbs_sysfs_dev *) noexcept
{
	return static_cast<verbs_device *>(std::calloc(1, sizeof(verbs_device)));
}

void device_free(verbs_device *device) noexcept
{
	std::free(device);
}

const verbs_device_ops device_ops = {
	.name = "peal",
	.match_min_abi_version = PEAL_ABI_VERSION,
	.match_max_abi_version = PEAL_ABI_VERSION,
	.match_table = match_table,
	.static_providers = nullptr,
	.match_device = nullptr,
	.alloc_context = context_alloc,
	.import_context = context_import,
	.alloc_device = device_alloc,
	.uninit_device = device_free,
};

/* The check of detect-pabi.sh, made on the library that this process has loaded. */
int running_layout() noexcept
{
	constexpr struct {
		const char *symbol;
		int layout;
	} marks[] = {
		{"ibv_create_comp_cntr", 65},	    {"ibv_alloc_buf", 64},
		{"ibv_dm_export_dmabuf_fd", 62},    {"ibv_reg_mr_ex", 59},
		{"ibv_query_qp_data_in_order", 36},
	};

	for (const auto &mark : marks)
		if (dlsym(RTLD_DEFAULT, mark.symbol))
			return mark.layout;
	return 0;
}

/*
 * Some releases changed the op table without changing the number in the names that
 * the dynamic linker checks. Do not register with such a release, because the library
 * would call the wrong ops.
 */
[[gnu::constructor]] void register_driver() noexcept
{
	const int layout = running_layout();

	if (layout == PEAL_IBV_LAYOUT)
		verbs_register_driver(&device_ops);
	else
		std::fprintf(stderr,
			     "libpeal: built for libibverbs layout %d, this one has %d: "
			     "please rebuild peal\n",
			     PEAL_IBV_LAYOUT, layout);
}

} // namespace

} // namespace peal
