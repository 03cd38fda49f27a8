// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: creation and destruction of a context, and the memory of it that libibverbs allocates.
 * Does not know: the op table (driver.cpp).
 */
#include "context.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "driver.hpp"
#include "entry.hpp"
#include "pabi.hpp"

namespace peal {

namespace {

/*
 * libibverbs allocates this with calloc(). A library newer than the header that peal
 * was built with has a longer verbs_context, because verbs_context grows at its front.
 * Such a library writes into the slack. Its `sz` is at a fixed distance from the end,
 * so context_make() does not find the right value in verbs.sz and refuses.
 */
struct ContextMemory {
	verbs_context verbs;
	std::byte slack[1024];
	Context *cpp;
};

bool wants_single_thread() noexcept
{
	const char *value = std::getenv("PEAL_SINGLE_THREADED");

	return value && !std::strcmp(value, "1");
}

} // namespace

Context::Context(uverbs::Device opened, UniqueFd kick, Mapping page, std::uint32_t null_region_lkey)
	: device(opened), kick_file(std::move(kick)), doorbell_page(std::move(page)),
	  doorbell(reinterpret_cast<peal_doorbell *>(doorbell_page.data()),
		   IoctlKick(kick_file.get())),
	  null_lkey(null_region_lkey), single_threaded(wants_single_thread())
{
}

Context *Context::open(uverbs::Device device, std::uint32_t &comp_vectors,
		       std::uint64_t &core_support)
{
	const peal_alloc_ucontext_req request{};
	peal_alloc_ucontext_resp response{};

	response.kick_fd = -1;
	check(device.method(
		UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT,
		uverbs::attr_out(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS,
				 uverbs::out(comp_vectors)),
		uverbs::attr_out(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, uverbs::out(core_support)),
		uverbs::attr_in(UVERBS_ATTR_UHW_IN, uverbs::in(request)),
		uverbs::attr_out(UVERBS_ATTR_UHW_OUT, uverbs::out(response))));
	return make(device, response);
}

Context *Context::import(uverbs::Device device, std::uint32_t &comp_vectors,
			 std::uint64_t &core_support)
{
	peal_alloc_ucontext_resp response{};

	response.kick_fd = -1;
	check(device.method(
		UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT,
		uverbs::attr_out(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS,
				 uverbs::out(comp_vectors)),
		uverbs::attr_out(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, uverbs::out(core_support)),
		uverbs::attr_out(PEAL_ATTR_QUERY_CONTEXT_RESP, uverbs::out(response))));
	return make(device, response);
}

Context *Context::make(uverbs::Device device, const peal_alloc_ucontext_resp &response)
{
	UniqueFd kick(response.kick_fd);
	if (kick.get() < 0 || response.comp_mask || response.doorbell_bytes < sizeof(peal_doorbell))
		throw_errno(EPROTO);
	Mapping page(device.fd(), response.doorbell_offset, response.doorbell_bytes);
	return new Context(device, std::move(kick), std::move(page), response.null_lkey);
}

Context &Context::of(ibv_context *context) noexcept
{
	auto *verbs = verbs_get_ctx(context);

	/* verbs_context is the first member of ContextMemory. */
	return *reinterpret_cast<ContextMemory *>(verbs)->cpp;
}

namespace {

using Opener = decltype(&Context::open);

verbs_context *context_make(ibv_device *device, int cmd_fd, Opener opener)
{
	/* This call owns cmd_fd from now on, even if it fails. */
	auto *memory = static_cast<ContextMemory *>(_verbs_init_and_alloc_context(
		device, cmd_fd, sizeof(ContextMemory), nullptr, PEAL_DRIVER_ID));
	if (!memory)
		throw_errno(errno);
	Rollback release([memory] {
		verbs_uninit_context(&memory->verbs);
		std::free(memory);
	});
	if (memory->verbs.sz != sizeof(verbs_context))
		throw_errno(ENOTSUP); /* built for another libibverbs */

	std::uint32_t comp_vectors = 0;
	std::uint64_t core_support = 0;
	memory->cpp = opener(uverbs::Device(cmd_fd, PEAL_DRIVER_ID), comp_vectors, core_support);
	memory->verbs.context.num_comp_vectors = static_cast<int>(comp_vectors);
	/* Use an atomic store, because another thread may open the device at the same time. */
	std::atomic_ref(reinterpret_cast<verbs_device *>(device)->core_support)
		.store(core_support, std::memory_order_relaxed);
	verbs_set_ops(&memory->verbs, &context_ops);
	release.dismiss();
	return &memory->verbs;
}

} // namespace

verbs_context *context_alloc(ibv_device *device, int cmd_fd, void *) noexcept
{
	return Entry<&context_make>::call(device, cmd_fd, &Context::open);
}

verbs_context *context_import(ibv_device *device, int cmd_fd) noexcept
{
	return Entry<&context_make>::call(device, cmd_fd, &Context::import);
}

void context_free(ibv_context *context) noexcept
{
	auto *memory = reinterpret_cast<ContextMemory *>(verbs_get_ctx(context));

	delete memory->cpp;
	verbs_uninit_context(&memory->verbs);
	std::free(memory);
}

} // namespace peal
