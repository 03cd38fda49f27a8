// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// transport: direct, thorough wire
// timeout: 240
/*
 * A program does anything that it may do with the device's files and mappings. It makes commands
 * and methods with arguments of any kind and length. It kicks, maps, unmaps, forks and passes files
 * on, and takes memory away from its registration. Two such programs run at once and are killed at
 * random moments.
 *
 * Holds: The data of an innocent program stays right, and that program continues. Afterwards the
 * module has as many users as before.
 * Does not hold: the result of one wrong call (verbs/states_and_limits, hostile/scribbled_rings),
 * contents of the rings while requests run (hostile/scribbled_rings).
 * PEAL_FUZZ_SECONDS, default 10, is how long it takes.
 */
#include "innocent.hpp"
#include "raw.hpp"

#include <rdma/rdma_user_ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

using namespace peal_test;

namespace {

Duration fuzz_time()
{
	return time_from("PEAL_FUZZ_SECONDS", 10);
}

constexpr std::size_t most_bytes = 512;

/* Calls of one program. Their results do not matter, and the program may crash. */
class Fuzzer {
public:
	explicit Fuzzer(std::uint64_t salt)
		: random_(salt), qp_(context_, device_), arena_(64 * page_bytes)
	{
		/* The number of descriptors that calls leave open is limited. */
		const rlimit files{256, 256};
		setrlimit(RLIMIT_NOFILE, &files);
	}
	void step();

private:
	/*
	 * Small numbers name objects and lengths. Some others are extreme, and the rest is random.
	 */
	std::uint64_t value();
	std::uint64_t address() { return arena_.address(random_.between(0, 62) * page_bytes); }
	std::span<std::byte> noise(std::array<std::byte, most_bytes> &bytes);
	void fill(std::span<std::byte> bytes);

	void send(std::uint16_t object, std::uint16_t method,
		  std::span<const ib_uverbs_attr> attrs);
	void command();
	void any_command(std::uint32_t number, std::span<std::byte> core,
			 std::span<std::byte> driver);
	std::uint32_t handle() { return static_cast<std::uint32_t>(random_.between(0, 24)); }
	template <class Request>
	void nearly(Request core, std::uint32_t number, std::size_t driver_bytes = 0);
	void make_nearly();
	void change_nearly();
	void method();
	void old_write();
	void kick();
	void map();
	void change_mapping();
	void memory_goes();
	void fork_and_die();
	void pass_files();
	void work();

	Random random_;
	Device device_;
	RawContext context_;
	RawQp qp_;
	Memory arena_;
	std::array<std::byte, most_bytes> core_in_{}, core_out_{}, driver_in_{}, driver_out_{};
};

std::uint64_t Fuzzer::value()
{
	static const std::array<std::uint64_t, 10> edges{
		0,	    1,		0x7fffffff, 0x80000000, 0xffffffff,
		1ULL << 32, 1ULL << 63, ~0ULL,	    4096,	4095};

	switch (random_.between(0, 7)) {
	case 0:
		return edges[random_.between(0, edges.size() - 1)];
	case 1:
		return random_.word();
	case 2:
		return address();
	default:
		return random_.between(0, 24);
	}
}

void Fuzzer::fill(std::span<std::byte> bytes)
{
	for (std::size_t i = 0; i + 4 <= bytes.size();) {
		const auto v = value();
		const auto n =
			std::min<std::size_t>(random_.between(0, 1) ? 8 : 4, bytes.size() - i);
		std::memcpy(&bytes[i], &v, n);
		i += n;
	}
}

std::span<std::byte> Fuzzer::noise(std::array<std::byte, most_bytes> &bytes)
{
	const auto all = std::span(bytes);
	const auto size =
		random_.between(0, 3) ? random_.between(0, 40) * 4 : random_.between(0, most_bytes);

	fill(all.first(size));
	return all.first(size);
}

void Fuzzer::send(std::uint16_t object, std::uint16_t method, std::span<const ib_uverbs_attr> attrs)
{
	std::vector<std::byte> message(sizeof(ib_uverbs_ioctl_hdr) + attrs.size_bytes());
	ib_uverbs_ioctl_hdr header{};

	header.length = static_cast<std::uint16_t>(message.size());
	header.object_id = object;
	header.method_id = method;
	header.num_attrs = static_cast<std::uint16_t>(attrs.size());
	header.driver_id = PEAL_DRIVER_ID;
	std::memcpy(message.data(), &header, sizeof(header));
	if (!attrs.empty())
		std::memcpy(&message[sizeof(header)], attrs.data(), attrs.size_bytes());
	ioctl(context_.fd(), RDMA_VERBS_IOCTL, message.data());
}

/* A command of the older interface, wrapped in the newer one, with lengths of its own. */
void Fuzzer::any_command(std::uint32_t number, std::span<std::byte> core,
			 std::span<std::byte> driver)
{
	std::vector<ib_uverbs_attr> attrs{
		uv::attr_value(UVERBS_ATTR_WRITE_CMD, number),
		uv::attr_in(UVERBS_ATTR_CORE_IN, core),
		uv::attr_out(UVERBS_ATTR_CORE_OUT, noise(core_out_)),
	};

	if (random_.between(0, 3)) {
		attrs.push_back(uv::attr_in(UVERBS_ATTR_UHW_IN, driver));
		attrs.push_back(uv::attr_out(UVERBS_ATTR_UHW_OUT, noise(driver_out_)));
	}
	send(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, attrs);
}

void Fuzzer::command()
{
	const auto number = static_cast<std::uint32_t>(
		random_.between(0, 50) |
		(random_.between(0, 2) ? 0 : IB_USER_VERBS_CMD_FLAG_EXTENDED));

	any_command(number, noise(core_in_), noise(driver_in_));
}

/* Sizes and most fields are right, so that the call passes the core's checks. */
template <class Request>
void Fuzzer::nearly(Request core, std::uint32_t number, std::size_t driver_bytes)
{
	const auto bytes = std::as_writable_bytes(std::span(&core, 1));
	const auto driver = std::span(driver_in_).first(driver_bytes);

	if (random_.between(0, 3))
		fill(bytes.subspan(random_.between(0, bytes.size() / 4 - 1) * 4, 4));
	std::fill(driver.begin(), driver.end(), std::byte{});
	if (random_.between(0, 3) == 0)
		fill(driver);
	std::memcpy(core_in_.data(), bytes.data(), bytes.size());
	any_command(number, std::span(core_in_).first(bytes.size()), driver);
}

void Fuzzer::make_nearly()
{
	ib_uverbs_reg_mr mr{};
	ib_uverbs_create_cq cq{};
	ib_uverbs_create_qp qp{};

	mr.start = mr.hca_va = address();
	mr.length = random_.between(1, page_bytes);
	mr.access_flags = static_cast<std::uint32_t>(random_.between(0, 31));
	cq.cqe = static_cast<std::uint32_t>(random_.between(1, 100));
	cq.comp_channel = -1;
	mr.pd_handle = qp.pd_handle = handle();
	qp.send_cq_handle = qp.recv_cq_handle = handle();
	qp.max_send_wr = qp.max_recv_wr = 8;
	qp.max_send_sge = qp.max_recv_sge = 2;
	qp.qp_type = static_cast<std::uint8_t>(random_.between(0, 10));
	switch (random_.between(0, 3)) {
	case 0:
		return nearly(ib_uverbs_alloc_pd{}, IB_USER_VERBS_CMD_ALLOC_PD);
	case 1:
		return nearly(mr, IB_USER_VERBS_CMD_REG_MR);
	case 2:
		return nearly(cq, IB_USER_VERBS_CMD_CREATE_CQ, sizeof(peal_create_cq_req));
	default:
		return nearly(qp, IB_USER_VERBS_CMD_CREATE_QP, sizeof(peal_create_qp_req));
	}
}

void Fuzzer::change_nearly()
{
	ib_uverbs_modify_qp modify{};
	ib_uverbs_resize_cq resize{};
	ib_uverbs_destroy_qp destroy_qp{};
	ib_uverbs_destroy_cq destroy_cq{};

	fill(std::as_writable_bytes(std::span(&modify, 1)));
	modify.qp_handle = destroy_qp.qp_handle = handle();
	modify.qp_state = static_cast<std::uint8_t>(random_.between(0, 7));
	resize.cq_handle = destroy_cq.cq_handle = handle();
	resize.cqe = static_cast<std::uint32_t>(random_.between(0, 300));
	switch (random_.between(0, 4)) {
	case 0:
		return nearly(modify, IB_USER_VERBS_CMD_MODIFY_QP);
	case 1:
		return nearly(resize, IB_USER_VERBS_CMD_RESIZE_CQ);
	case 2:
		return nearly(destroy_qp, IB_USER_VERBS_CMD_DESTROY_QP);
	case 3:
		return nearly(destroy_cq, IB_USER_VERBS_CMD_DESTROY_CQ);
	default:
		return nearly(ib_uverbs_dereg_mr{handle()}, IB_USER_VERBS_CMD_DEREG_MR);
	}
}

void Fuzzer::method()
{
	std::vector<ib_uverbs_attr> attrs(random_.between(0, 10));

	fill(core_in_);
	for (auto &attr : attrs) {
		attr.attr_id = static_cast<std::uint16_t>(random_.between(0, 20) |
							  (random_.between(0, 4) ? 0 : 0x1000));
		attr.len =
			static_cast<std::uint16_t>(random_.between(0, 3) ? random_.between(0, 8) * 4
									 : random_.between(0, 400));
		attr.flags = static_cast<std::uint16_t>(random_.between(0, 3) ? 1 : value());
		if (attr.len > 8 || random_.between(0, 1))
			attr.data = reinterpret_cast<std::uintptr_t>(core_in_.data());
		else
			attr.data = value();
	}
	send(static_cast<std::uint16_t>(random_.between(0, 20)),
	     static_cast<std::uint16_t>(random_.between(0, 10)), attrs);
}

void Fuzzer::old_write()
{
	ib_uverbs_cmd_hdr header{};
	auto bytes = noise(core_in_);

	header.command = static_cast<std::uint32_t>(random_.between(0, 50));
	header.in_words = static_cast<std::uint16_t>(bytes.size() / 4);
	header.out_words = static_cast<std::uint16_t>(random_.between(0, 40));
	if (bytes.size() < sizeof(header))
		return;
	std::memcpy(bytes.data(), &header, sizeof(header));
	if (::write(context_.fd(), bytes.data(), bytes.size()) < 0)
		return;
}

void Fuzzer::kick()
{
	const auto kick = random_.between(0, 7) ? random_.between(0, 2) : random_.word();
	char byte = 0;

	if (random_.between(0, 1))
		lseek(context_.kick_fd(), value(), kick);
	else
		ioctl(context_.kick_fd(), PEAL_IOC_KICK(kick), value());
	if (random_.between(0, 9) == 0 && ::read(context_.kick_fd(), &byte, 1) < 0)
		readable(context_.kick_fd(), 0s);
}

/* Maps offsets that were handed out, and others. */
void Fuzzer::map()
{
	const std::array<std::uint64_t, 4> offsets{
		context_.response().doorbell_offset, qp_.response().map_offset,
		qp_.cq().response().map_offset, value() * page_bytes};
	const auto bytes = random_.between(0, 3) ? page_bytes * random_.between(1, 8) : value();
	void *at = mmap(nullptr, bytes, static_cast<int>(random_.between(0, 7)),
			random_.between(0, 3) ? MAP_SHARED : MAP_PRIVATE,
			random_.between(0, 7) ? context_.fd() : context_.kick_fd(),
			static_cast<off_t>(offsets[random_.between(0, offsets.size() - 1)]));

	if (at != MAP_FAILED)
		munmap(at, bytes);
}

/* Changes a second mapping of the rings. */
void Fuzzer::change_mapping()
{
	const auto bytes = qp_.map().bytes();
	auto *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, context_.fd(),
			static_cast<off_t>(qp_.response().map_offset));

	if (at == MAP_FAILED)
		return;
	switch (random_.between(0, 4)) {
	case 0:
		mprotect(at, bytes, PROT_READ | PROT_EXEC);
		break;
	case 1:
		madvise(at, bytes, static_cast<int>(random_.between(0, 25)));
		break;
	case 2: {
		void *moved = mremap(at, bytes, bytes + page_bytes * random_.between(0, 4),
				     MREMAP_MAYMOVE);
		if (moved != MAP_FAILED)
			munmap(moved, bytes);
		break;
	}
	case 3:
		munmap(static_cast<std::uint8_t *>(at) + page_bytes, page_bytes);
		break;
	case 4:
		mlock(at, bytes);
		break;
	}
	munmap(at, bytes);
}

/* Unmaps registered memory and shrinks a registered file, while both are written. */
void Fuzzer::memory_goes()
{
	const std::size_t bytes = 8 * page_bytes;
	const int file = memfd_create("fuzz", 0);
	ib_uverbs_reg_mr request{};
	ib_uverbs_reg_mr_resp response{};

	if (file < 0 || ftruncate(file, static_cast<off_t>(bytes))) {
		close(file);
		return;
	}
	auto *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
			random_.between(0, 1) ? MAP_SHARED : MAP_PRIVATE, file, 0);
	request.start = request.hca_va = reinterpret_cast<std::uintptr_t>(at);
	request.length = bytes;
	request.pd_handle = qp_.pd();
	request.access_flags = all_access;
	if (!context_.device().command(IB_USER_VERBS_CMD_REG_MR, request, response)) {
		RawSend write;
		write.header.opcode = PEAL_OP_WRITE;
		write.header.remote_addr = request.start;
		write.header.rkey = response.rkey;
		write.sge(qp_.sge(0, bytes / 2));
		qp_.post(write);
		if (random_.between(0, 1))
			munmap(at, bytes);
		else if (ftruncate(file, page_bytes))
			return;
		qp_.post(write);
		ib_uverbs_dereg_mr dereg{response.mr_handle};
		if (random_.between(0, 3))
			context_.device().command(IB_USER_VERBS_CMD_DEREG_MR, dereg);
	}
	munmap(at, bytes);
	close(file);
}

/* The child has the files but not the mappings. It uses both. */
void Fuzzer::fork_and_die()
{
	const pid_t child = fork();

	if (!child) {
		kick();
		command();
		qp_.destroy();
		_exit(0);
	}
	if (child > 0)
		waitpid(child, nullptr, 0);
}

/*
 * Sends files over a socket to itself, with or without the socket's own end. They are received as
 * new files, or are left in the socket. Then, after the program has died, the next process that
 * closes a socket closes the device.
 */
void Fuzzer::pass_files()
{
	std::array<int, 2> ends{};
	std::byte byte{};
	iovec data{&byte, 1};
	alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(3 * sizeof(int))> control{};
	msghdr message{};

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends.data()))
		return;
	const std::array files{context_.fd(), context_.kick_fd(), ends[0]};
	const auto bytes = sizeof(int) * random_.between(1, files.size());
	message.msg_iov = &data;
	message.msg_iovlen = 1;
	message.msg_control = control.data();
	message.msg_controllen = CMSG_SPACE(bytes);
	auto *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(bytes);
	std::memcpy(CMSG_DATA(header), files.data(), bytes);
	if (sendmsg(ends[1], &message, MSG_DONTWAIT) == 1 && random_.between(0, 1))
		recvmsg(ends[0], &message, MSG_DONTWAIT);
	close(ends[0]);
	close(ends[1]);
}

void Fuzzer::work()
{
	RawSend send;
	peal_cqe cqe{};

	send.header.opcode = static_cast<std::uint8_t>(random_.between(1, PEAL_OP_COUNT - 1));
	send.header.flags = PEAL_WQE_SIGNALED;
	send.header.remote_addr = qp_.memory().address();
	send.header.rkey = qp_.rkey();
	send.sge(qp_.sge(20000, 3000));
	qp_.post_recv(30000, 6000);
	qp_.post(send);
	qp_.cq().poll(cqe);
}

void Fuzzer::step()
{
	switch (random_.between(0, 41)) {
	case 0:
		return fork_and_die();
	case 41:
		return pass_files();
	case 1:
		return memory_goes();
	case 2:
	case 3:
		return change_mapping();
	case 4:
	case 5:
		return map();
	case 6:
	case 7:
		return old_write();
	case 8:
	case 9:
	case 10:
		return kick();
	case 11:
		/*
		 * Closes what calls have opened, but not the console and not
		 * the files of the test itself.
		 */
		return static_cast<void>(close_range(20, ~0U, 0));
	case 12:
	case 13:
	case 14:
	case 15:
		return work();
	case 16:
	case 17:
	case 18:
	case 19:
	case 20:
	case 21:
		return method();
	case 22:
	case 23:
	case 24:
	case 25:
	case 26:
	case 27:
		return command();
	case 28:
	case 29:
	case 30:
	case 31:
	case 32:
	case 33:
		return change_nearly();
	default:
		return make_nearly();
	}
}

/* Runs program after program until the time is over. Most are killed. */
int fuzz_programs(std::uint64_t salt, Duration time)
{
	const Stopwatch watch;
	Random random(salt);

	while (watch.elapsed() < time) {
		const auto seed = random.word();
		const pid_t child = spawn([=] {
			Fuzzer fuzzer(seed);
			for (;;)
				fuzzer.step();
			return 0;
		});
		usleep(static_cast<useconds_t>(random.between(20000, 1500000)));
		kill(child, SIGKILL);
		waitpid(child, nullptr, 0);
	}
	return 0;
}

} // namespace

TEST_CASE("programs call anything in any way")
{
	const auto users = users_of_module();
	{
		Device device;

		check_beside(device, fuzz_time(), 1,
			     [](std::uint64_t salt) { return fuzz_programs(salt, fuzz_time()); });
	}
	/* Files that only a dead socket holds go when any socket is closed. */
	CHECK(eventually([&] {
		close(socket(AF_UNIX, SOCK_DGRAM, 0));
		return users_of_module() == users;
	}));
}
