// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Regions of DMA buffers. The buffers are memory files (udmabuf), those of the graphics device
 * without hardware (vgem), or those of an exporter that moves them (kmod/peal_kbuffer.c).
 *
 * Holds: Every operation reads and writes a buffer, at both ends, atomics too, from any offset. A
 * region lives on when the program has closed its descriptor, and gives the buffer back. A
 * descriptor of no DMA buffer, a range outside of it, and rights that the descriptor lacks are
 * refused.
 * The exporter cannot move a buffer while a region has it, and can afterwards, also after a
 * registration that failed.
 * Does not hold: other regions (verbs/memory_regions).
 */
#include "commands.hpp"
#include "dma_buffer_file.hpp"
#include "innocent.hpp"

#include "kmod/peal_kbuffer.h"

#include <fcntl.h>
#include <sys/ioctl.h>

using namespace peal_test;

namespace {

constexpr std::size_t buffer_bytes = 16 * page_bytes;

struct File {
	explicit File(int fd) : number(fd) {}
	File(File &&other) noexcept : number(std::exchange(other.number, -1)) {}
	~File() { close(); }
	void close()
	{
		if (number >= 0)
			::close(std::exchange(number, -1));
	}
	int number;
};

/* A buffer that the program has mapped. */
struct Buffer {
	explicit Buffer(int flags = O_RDWR)
		: Buffer(File(make(flags)), flags == O_RDWR ? PROT_READ | PROT_WRITE : PROT_READ)
	{
	}
	Buffer(File of, int protection) : file(std::move(of))
	{
		address = static_cast<std::uint8_t *>(
			mmap(nullptr, buffer_bytes, protection, MAP_SHARED, file.number, 0));
		if (address == MAP_FAILED)
			throw_errno("mmap of a DMA buffer");
	}
	Buffer(const Buffer &) = delete;
	Buffer &operator=(const Buffer &) = delete;
	~Buffer() { munmap(address, buffer_bytes); }
	static int make(int flags)
	{
		int fd = flags == O_RDWR ? peal_dma_buffer::of_memory_file(buffer_bytes) : -1;

		if (fd < 0)
			fd = peal_dma_buffer::of_graphics(buffer_bytes, flags);
		if (fd < 0)
			throw_errno("make a DMA buffer");
		return fd;
	}
	std::span<std::uint8_t> bytes(std::size_t offset, std::size_t length) const
	{
		return {address + offset, length};
	}
	File file;
	std::uint8_t *address;
};

bool have_buffers()
{
	static const bool have = [] {
		/* Each kernel has one of them. */
		[[maybe_unused]] const int some = std::system("modprobe -qa udmabuf vgem");
		return access("/dev/udmabuf", R_OK) == 0 || access("/dev/dri/card0", R_OK) == 0;
	}();
	return have;
}

/* An exporter of buffers that moves them when the test wants it. */
class Exporter {
public:
	Exporter()
	{
		if (run("modprobe peal_kbuffer"))
			throw std::runtime_error("peal_kbuffer does not load");
		fd_ = open("/dev/peal_kbuffer", O_RDWR | O_CLOEXEC);
		if (fd_ < 0)
			throw_errno("open /dev/peal_kbuffer");
	}
	~Exporter()
	{
		close(fd_);
		run("rmmod peal_kbuffer");
	}
	Exporter(const Exporter &) = delete;
	Exporter &operator=(const Exporter &) = delete;

	int make(int flags) const
	{
		const int fd = ioctl(fd_, PEAL_KBUFFER_MAKE, flags);

		if (fd < 0)
			throw_errno("make a buffer that moves");
		return fd;
	}
	std::string move(int buffer) const
	{
		return ioctl(fd_, PEAL_KBUFFER_MOVE, buffer) ? errno_name(errno) : "0";
	}
	peal_kbuffer_state state(int buffer) const
	{
		peal_kbuffer_state state{};

		state.fd = buffer;
		must(ioctl(fd_, PEAL_KBUFFER_STATE, &state) ? errno : 0, "state of a buffer");
		return state;
	}
	bool is_unused(int buffer) const
	{
		const auto now = state(buffer);

		return !now.attached && !now.pinned && !now.mapped && !now.accessed;
	}

private:
	int fd_;
};

static_assert(buffer_bytes == PEAL_KBUFFER_BYTES);

Mr reg(ibv_pd *pd, const Buffer &buffer, std::uint64_t offset, std::size_t length,
       std::uint64_t iova, int access = all_access)
{
	return Mr(ibv_reg_dmabuf_mr(pd, offset, length, iova, buffer.file.number, access),
		  "reg_dmabuf_mr");
}

std::string try_register(ibv_pd *pd, int fd, std::uint64_t offset, std::size_t length,
			 std::uint64_t iova, int access = all_access)
{
	errno = 0;
	ibv_mr *mr = ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access);
	if (!mr)
		return errno_name(errno);
	must(ibv_dereg_mr(mr), "dereg_mr");
	return "0";
}

} // namespace

TEST_CASE("every operation reads and writes DMA buffers")
{
	if (!have_buffers())
		SKIP_CASE("this kernel has no source of DMA buffers");
	Device device;
	Pair pair(device);
	auto &[a, b] = pair;
	const Buffer from, to;
	constexpr std::uint64_t offset = page_bytes + 52, iova = 0x700000000034ULL;
	constexpr std::uint32_t length = 9 * page_bytes + 77;
	const Mr local = reg(a.pd, from, offset, length, iova);
	const Mr remote = reg(b.pd, to, offset, length, iova);
	std::uint64_t salt = 0;

	for (auto opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
		INFO("opcode " << opcode);
		const bool reads = opcode == IBV_WR_RDMA_READ;
		const Buffer &source = reads ? to : from, &target = reads ? from : to;
		fill_pattern(source.bytes(0, buffer_bytes), ++salt);
		std::memset(target.address, 0, buffer_bytes);
		if (opcode == IBV_WR_SEND)
			post_recv(b.qp, 1, {{iova, length, remote->lkey}});
		post(a.qp, Send(opcode, {{iova, 5000, local->lkey},
					 {iova + 5000, length - 5000, local->lkey}})
				   .remote(iova, remote->rkey));
		wait_success(a.send_cq);
		if (opcode == IBV_WR_SEND)
			wait_success(b.recv_cq);
		CHECK(difference(target.bytes(offset, length), source.bytes(offset, length)) == "");
		CHECK(all_equal(target.bytes(0, offset), 0));
		CHECK(all_equal(target.bytes(offset + length, buffer_bytes - offset - length), 0));
	}

	std::uint64_t word = 41;
	std::memcpy(to.address + offset + 4, &word, 8);
	post(a.qp, Send(IBV_WR_ATOMIC_FETCH_AND_ADD, {{iova, 8, local->lkey}})
			   .atomic(iova + 4, remote->rkey, 1));
	wait_success(a.send_cq);
	std::memcpy(&word, to.address + offset + 4, 8);
	CHECK(word == 42);
	std::memcpy(&word, from.address + offset, 8);
	CHECK(word == 41);
}

TEST_CASE("a region covers its part and no more")
{
	if (!have_buffers())
		SKIP_CASE("this kernel has no source of DMA buffers");
	Device device;
	const Buffer buffer;

	for (auto [at, length] :
	     {std::pair<std::uint64_t, std::size_t>{99, 1}, {100, 5001}, {5100, 1}, {0, 8}}) {
		INFO("from " << at << ", length " << length);
		Pair pair(device);
		Region local(pair.a.pd, 2 * page_bytes);
		const Mr mr = reg(pair.b.pd, buffer, page_bytes + 100, 5000, 100);
		post(pair.a.qp,
		     Send(IBV_WR_RDMA_WRITE, {local.sge(0, length)}).remote(at, mr->rkey));
		check_status(wait_completion(pair.a.send_cq), IBV_WC_REM_ACCESS_ERR,
			     PEAL_REASON_RKEY_RANGE);
	}
}

TEST_CASE("the region lives on without the descriptor, and gives the buffer back")
{
	if (!have_buffers())
		SKIP_CASE("this kernel has no source of DMA buffers");
	Device device;
	Pair pair(device);
	Region local(pair.a.pd, page_bytes);

	for (int round = 0; round < 300; round++) {
		Buffer buffer;
		const Mr mr = reg(pair.b.pd, buffer, 0, buffer_bytes, 0);
		const Mr second = reg(pair.b.pd, buffer, 0, buffer_bytes, 0);
		buffer.file.close();
		fill_pattern(local.bytes(0, 4000), round);
		post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {local.sge(0, 4000)})
					.remote(buffer_bytes - 4000, mr->rkey));
		wait_success(pair.a.send_cq);
		const auto written = buffer.bytes(buffer_bytes - 4000, 4000);
		if (!difference(written, local.bytes(0, 4000)).empty())
			FAIL("round " << round);
	}
	/* After its end a key names nothing. */
	Buffer buffer;
	Mr mr = reg(pair.b.pd, buffer, 0, buffer_bytes, 0);
	const auto key = mr->rkey;
	mr.reset();
	post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {local.sge(0, 8)}).remote(0, key));
	check_status(wait_completion(pair.a.send_cq), IBV_WC_REM_ACCESS_ERR,
		     PEAL_REASON_RKEY_UNKNOWN);
}

TEST_CASE("registrations that are refused")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	const File file(open("/proc/self/exe", O_RDONLY));

	CHECK(try_register(pd, -1, 0, 4096, 0) == "EBADF");
	CHECK(try_register(pd, 1000000, 0, 4096, 0) == "EBADF");
	CHECK(try_register(pd, file.number, 0, 4096, 0) == "EINVAL");
	if (!have_buffers())
		SKIP_CASE("this kernel has no source of DMA buffers");
	const Buffer buffer;
	const int fd = buffer.file.number;
	CHECK(try_register(pd, fd, 0, buffer_bytes, 0) == "0");
	CHECK(try_register(pd, fd, buffer_bytes - 1, 1, 4095) == "0");
	CHECK(try_register(pd, fd, 0, buffer_bytes + 1, 0) == "EINVAL");
	CHECK(try_register(pd, fd, buffer_bytes, 1, 0) == "EINVAL");
	CHECK(try_register(pd, fd, ~std::uint64_t{0}, 2, ~std::uint64_t{0}) == "EINVAL");
	CHECK(try_register(pd, fd, 4096, ~std::size_t{0}, 0) == "EINVAL");
	CHECK(try_register(pd, fd, 0, 0, 0) == "EINVAL");
	CHECK(try_register(pd, fd, 8, 8, 0) == "EINVAL"); /* another place in its page */
	CHECK(try_register(pd, fd, 0, 8, 0, IBV_ACCESS_REMOTE_WRITE) == "EINVAL");
	CHECK(try_register(pd, fd, 0, 8, 0, all_access | IBV_ACCESS_ON_DEMAND) != "0");

	const Mr mr = reg(pd, buffer, 0, buffer_bytes, 0);
	Memory memory(page_bytes);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory.data(),
			   memory.size(), 0) != 0);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
			   IBV_ACCESS_LOCAL_WRITE) != 0);
}

TEST_CASE("a descriptor that cannot write gives no right to write")
{
	if (!have_buffers() || access("/dev/dri/card0", R_OK))
		SKIP_CASE("this kernel has no vgem");
	Device device;
	Pair pair(device);
	const Buffer buffer(O_RDONLY);
	Region local(pair.a.pd, page_bytes);

	for (int access : {int{IBV_ACCESS_LOCAL_WRITE}, all_access})
		CHECK(try_register(pair.b.pd, buffer.file.number, 0, 4096, 0, access) == "EACCES");
	const Mr mr = reg(pair.b.pd, buffer, 0, buffer_bytes, 0, IBV_ACCESS_REMOTE_READ);
	std::memset(local.data(), 0x55, page_bytes);
	post(pair.a.qp, Send(IBV_WR_RDMA_READ, {local.sge(0, 100)}).remote(0, mr->rkey));
	wait_success(pair.a.send_cq);
	CHECK(all_equal(local.bytes(0, 100), 0));
}

TEST_CASE("the exporter does not move a buffer that is registered")
{
	const Exporter exporter;
	Device device;

	for (const int flags : {0, PEAL_KBUFFER_DYNAMIC}) {
		INFO("flags " << flags);
		Pair pair(device);
		Region local(pair.a.pd, 2 * buffer_bytes);
		const Buffer buffer(File(exporter.make(flags)), PROT_READ | PROT_WRITE);
		const int fd = buffer.file.number;

		fill_pattern(buffer.bytes(0, buffer_bytes), 1);
		fill_pattern(local.bytes(0, buffer_bytes), 2);
		fill_pattern(local.bytes(buffer_bytes, buffer_bytes), 1);
		REQUIRE(exporter.move(fd) == "0");
		Mr mr = reg(pair.b.pd, buffer, 0, buffer_bytes, 0);
		Mr second = reg(pair.b.pd, buffer, 0, buffer_bytes, 0);
		REQUIRE(exporter.move(fd) == "EBUSY");
		second.reset();
		REQUIRE(exporter.move(fd) == "EBUSY");

		CHECK(difference(buffer.bytes(0, buffer_bytes),
				 local.bytes(buffer_bytes, buffer_bytes)) == "");
		post(pair.a.qp,
		     Send(IBV_WR_RDMA_WRITE, {local.sge(0, buffer_bytes)}).remote(0, mr->rkey));
		wait_success(pair.a.send_cq);
		CHECK(difference(buffer.bytes(0, buffer_bytes), local.bytes(0, buffer_bytes)) ==
		      "");
		post(pair.a.qp, Send(IBV_WR_RDMA_READ, {local.sge(buffer_bytes, buffer_bytes)})
					.remote(0, mr->rkey));
		wait_success(pair.a.send_cq);
		CHECK(difference(local.bytes(buffer_bytes, buffer_bytes),
				 local.bytes(0, buffer_bytes)) == "");

		CHECK(exporter.move(fd) == "EBUSY");
		const auto state = exporter.state(fd);
		CHECK(state.attached == 1);
		CHECK(state.pinned == (flags ? 1 : 0));
		mr.reset();
		CHECK(exporter.is_unused(fd));
		CHECK(exporter.move(fd) == "0");
		CHECK(difference(buffer.bytes(0, buffer_bytes), local.bytes(0, buffer_bytes)) ==
		      "");
	}
}

TEST_CASE("a registration that fails leaves the buffer to its exporter")
{
	const Exporter exporter;
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");

	for (const int kind : {0, PEAL_KBUFFER_DYNAMIC}) {
		const auto check = [&](int flags, std::size_t length, const char *error) {
			INFO("flags " << (kind | flags) << ", length " << length);
			const File file(exporter.make(kind | flags));
			CHECK(try_register(pd, file.number, 0, length, 0) == error);
			CHECK(exporter.is_unused(file.number));
			CHECK(exporter.move(file.number) == "0");
		};

		check(0, buffer_bytes, "0");
		check(0, buffer_bytes + 1, "EINVAL");
		check(PEAL_KBUFFER_STUBBORN, buffer_bytes, "EBUSY");
		check(PEAL_KBUFFER_NO_VMAP, buffer_bytes, "EINVAL");
		check(PEAL_KBUFFER_IO, buffer_bytes, "EOPNOTSUPP");
		check(PEAL_KBUFFER_NO_ACCESS, buffer_bytes, "EIO");
	}
}
