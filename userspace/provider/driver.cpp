// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The interface to libibverbs: the op table, registration, and contexts.
 *
 * To add a verb, give its type in pabi.hpp, its prototype in ops.hpp and its function in
 * context_ops. For an op that is null libibverbs returns EOPNOTSUPP.
 */
#include "ops.hpp"

#include <dlfcn.h>
#include <rdma/peal-abi.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "context.hpp"
#include "entry.hpp"
#include "library.hpp"

namespace peal {

namespace {

Library found_library;

/*
 * libibverbs allocates its verbs_context with calloc(). The public ibv_context is at the end of it,
 * so what libibverbs adds in front does not move this pointer, which comes behind.
 */
Context *&context_of(ibv_context *context) noexcept
{
	return *reinterpret_cast<Context **>(context + 1);
}

verbs_context *memory_of(ibv_context *context) noexcept
{
	return reinterpret_cast<verbs_context *>(reinterpret_cast<std::byte *>(context + 1) -
						 library().context_bytes);
}

/* The library has its size of a verbs_context in front of the ibv_context. */
bool size_is_right(const ibv_context *context) noexcept
{
	static_assert(offsetof(verbs_context, context) - offsetof(verbs_context, sz) ==
		      sizeof(std::size_t));
	return reinterpret_cast<const std::size_t *>(context)[-1] == library().context_bytes;
}

void memory_free(ibv_context *context) noexcept
{
	verbs_context *const memory = memory_of(context);

	library().uninit_context(memory);
	std::free(memory);
}

void context_free(ibv_context *context) noexcept
{
	delete context_of(context);
	memory_free(context);
}

/* Control-path functions may throw, so they need entry<>. The others are noexcept. */
constexpr verbs_context_ops context_ops = {
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
	.create_cq_ex = entry<&cq_create_ex>,
	.create_flow = entry<&flow_create>,
	.create_qp = entry<&qp_create>,
	.create_qp_ex = entry<&qp_create_ex>,
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
	.query_port_speed = entry<&port_query_speed>,
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

/* Opens the device, or imports a context that the kernel has already, perhaps another process's. */
verbs_context *context_make(ibv_device *ibdevice, int cmd_fd, bool import)
{
	const std::size_t context_bytes = library().context_bytes;
	/* This call owns cmd_fd from now on, even if it fails. */
	auto *memory = static_cast<std::byte *>(library().init_and_alloc_context(
		ibdevice, cmd_fd, context_bytes + sizeof(Context *), nullptr, PEAL_DRIVER_ID));
	if (!memory)
		throw_errno(errno);
	auto *context = reinterpret_cast<ibv_context *>(memory + context_bytes) - 1;
	Rollback release([context] { memory_free(context); });
	if (!size_is_right(context))
		throw_errno(ENOTSUP); /* the library differs from its release */

	const uverbs::Device device(cmd_fd, PEAL_DRIVER_ID);
	const peal_alloc_ucontext_req request{};
	peal_alloc_ucontext_resp response{};
	std::uint32_t comp_vectors = 0;
	std::uint64_t core_support = 0;

	response.kick_fd = -1;
	if (import)
		check(device.method(
			UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT,
			uverbs::attr_out(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, comp_vectors),
			uverbs::attr_out(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, core_support),
			uverbs::attr_out(PEAL_ATTR_QUERY_CONTEXT_RESP, response)));
	else
		check(device.method(
			UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT,
			uverbs::attr_out(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, comp_vectors),
			uverbs::attr_out(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, core_support),
			uverbs::attr_in(UVERBS_ATTR_UHW_IN, request),
			uverbs::attr_out(UVERBS_ATTR_UHW_OUT, response)));
	UniqueFd kick(response.kick_fd);
	if (kick.get() < 0 || response.comp_mask || response.doorbell_bytes < sizeof(peal_doorbell))
		throw_errno(EPROTO);
	Mapping page(cmd_fd, response.doorbell_offset, response.doorbell_bytes);
	context_of(context) =
		new Context(device, std::move(kick), std::move(page), response.null_lkey);
	context->num_comp_vectors = static_cast<int>(comp_vectors);
	/* Use an atomic store, because another thread may open the device at the same time. */
	std::atomic_ref(reinterpret_cast<verbs_device *>(ibdevice)->core_support)
		.store(core_support, std::memory_order_relaxed);
	const OpTable ops = op_table(context_ops, library().op_release);
	library().set_ops(memory_of(context), &ops);
	release.dismiss();
	return memory_of(context);
}

verbs_context *context_alloc(ibv_device *device, int cmd_fd, void *) noexcept
{
	return entry<&context_make>(device, cmd_fd, false);
}

verbs_context *context_import(ibv_device *device, int cmd_fd) noexcept
{
	return entry<&context_make>(device, cmd_fd, true);
}

bool wants_single_thread() noexcept
{
	const char *value = std::getenv("PEAL_SINGLE_THREADED");

	return value && !std::strcmp(value, "1");
}

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

/*
 * RTLD_DEFAULT finds libibverbs also if a program has loaded it with RTLD_LOCAL, because the
 * provider is linked with it.
 */
void *look_up(const char *name) noexcept
{
	return dlsym(RTLD_DEFAULT, name);
}

/*
 * libibverbs says nothing if a library that it has loaded does not register, and the program then
 * sees no device.
 */
[[gnu::constructor]] void register_driver() noexcept
{
	if (const char *why = find_library(look_up, found_library))
		std::fprintf(stderr, "libpeal: programs see no device of peal: %s\n", why);
	else
		found_library.register_driver(&device_ops);
}

} // namespace

const Library &library() noexcept
{
	return found_library;
}

Context::Context(uverbs::Device opened, UniqueFd kick, Mapping page, std::uint32_t null_region_lkey)
	: device(opened), kick_file(std::move(kick)), doorbell_page(std::move(page)),
	  doorbell(reinterpret_cast<peal_doorbell *>(doorbell_page.data()),
		   FileKick(kick_file.get())),
	  null_lkey(null_region_lkey), single_threaded(wants_single_thread())
{
}

Context &Context::of(ibv_context *context) noexcept
{
	return *context_of(context);
}

} // namespace peal
