// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// vm: mem 4G
// timeout: 300
// run: long
// transport: any
/*
 * The longest message has 2 GiB. One byte more is refused.
 *
 * Holds: WRITE, READ and SEND of exactly 2^31 bytes arrive. The test looks at each byte, and no
 * byte after the last one is touched. A longer message is refused, and then no byte moves.
 * Does not hold: smaller sizes (verbs/every_byte_arrives).
 */
#include "verbs.hpp"

#include <fcntl.h>

using namespace peal_test;

namespace {

constexpr std::size_t longest = std::size_t{1} << 31;
constexpr std::size_t region = longest + page_bytes;
constexpr Duration long_patience = 120s;
constexpr std::uint8_t untouched = 0xee;

/*
 * Maps the same few pages many times, so that source and target fit into memory. Their number is
 * a prime, so that a chunk at a wrong place shows.
 */
class Wallpaper {
public:
	static constexpr std::size_t period = 8191 * page_bytes;

	Wallpaper() : fd_(memfd_create("longest_message", MFD_CLOEXEC)), place_(region)
	{
		if (fd_ < 0 || ftruncate(fd_, period))
			throw_errno("memfd");
		for (std::size_t at = 0; at < region; at += period)
			paste(at, std::min(period, region - at));
		fill_pattern(place_.bytes(0, period), 1);
	}
	~Wallpaper() { close(fd_); }
	Wallpaper(const Wallpaper &) = delete;
	Wallpaper &operator=(const Wallpaper &) = delete;
	const Memory &memory() const { return place_; }

private:
	void paste(std::size_t at, std::size_t bytes)
	{
		if (mmap(place_.data() + at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			 fd_, 0) == MAP_FAILED)
			throw_errno("mmap of the memfd");
	}
	int fd_;
	Memory place_;
};

/* A connected pair. a has the source, and b has the target in memory of its own. */
struct Stage {
	Device device;
	Pair pair{device};
	Wallpaper wallpaper;
	Memory target{region};
	Mr from{ibv_reg_mr(pair.a.pd, wallpaper.memory().data(), region, all_access), "reg_mr"};
	Mr to{ibv_reg_mr(pair.b.pd, target.data(), region, all_access), "reg_mr"};

	Stage() { clear(); }
	void clear() { std::memset(target.data(), untouched, region); }

	/* The whole source in entries of 1 GiB, because the length of an entry has 32 bits. */
	std::vector<ibv_sge> source(std::size_t length) const
	{
		return pieces(wallpaper.memory().address(), from->lkey, length);
	}
	std::vector<ibv_sge> sink(std::size_t length) const
	{
		return pieces(target.address(), to->lkey, length);
	}
	void check_copied() const
	{
		CHECK(difference(target.bytes(0, longest), wallpaper.memory().bytes(0, longest)) ==
		      "");
		CHECK(all_equal(target.bytes(longest, region - longest), untouched));
	}
	void check_untouched() const
	{
		CHECK(all_equal(target.bytes(0, page_bytes), untouched));
		CHECK(all_equal(target.bytes(longest, region - longest), untouched));
	}

private:
	static std::vector<ibv_sge> pieces(std::uint64_t address, std::uint32_t lkey,
					   std::size_t length)
	{
		constexpr std::size_t piece = 1 << 30;
		std::vector<ibv_sge> list;

		for (std::size_t at = 0; at < length; at += piece)
			list.push_back({address + at,
					static_cast<std::uint32_t>(std::min(piece, length - at)),
					lkey});
		return list;
	}
};

Send write(const Stage &stage, std::vector<ibv_sge> list)
{
	return Send(IBV_WR_RDMA_WRITE, std::move(list))
		.remote(stage.target.address(), stage.to->rkey);
}

Send read(const Stage &stage, std::vector<ibv_sge> list)
{
	return Send(IBV_WR_RDMA_READ, std::move(list))
		.remote(stage.wallpaper.memory().address(), stage.from->rkey);
}

void connect_again(Pair &pair)
{
	to_state(pair.a.qp, IBV_QPS_RESET);
	to_state(pair.b.qp, IBV_QPS_RESET);
	connect(pair.a, pair.b);
}

void report(const char *what, const Stopwatch &watch)
{
	std::printf("%s: %.0f ms\n", what, milliseconds(watch.elapsed()));
	std::fflush(stdout);
}

} // namespace

TEST_CASE("messages of 2 GiB")
{
	Stage stage;
	auto &[a, b] = stage.pair;
	const ibv_sge whole{stage.wallpaper.memory().address(), static_cast<std::uint32_t>(longest),
			    stage.from->lkey};
	const Stopwatch watch;

	post(a.qp, write(stage, {whole}));
	wait_success(a.send_cq, 1, long_patience);
	stage.check_copied();
	report("write", watch);

	stage.clear();
	post(b.qp, read(stage, stage.sink(longest)));
	CHECK(wait_success(b.send_cq, 1, long_patience).front().byte_len == longest);
	stage.check_copied();
	report("read", watch);

	stage.clear();
	post_recv(b.qp, 1, stage.sink(longest));
	post(a.qp, Send(IBV_WR_SEND, stage.source(longest)));
	wait_success(a.send_cq, 1, long_patience);
	CHECK(wait_success(b.recv_cq, 1, long_patience).front().byte_len == longest);
	stage.check_copied();
	report("send", watch);
}

TEST_CASE("a byte more than 2 GiB")
{
	Stage stage;
	const auto refused = [&](ibv_qp *qp, ibv_cq *cq, const Send &send) {
		const int error = try_post(qp, send);
		if (!error)
			check_status(wait_completion(cq), IBV_WC_LOC_LEN_ERR,
				     PEAL_REASON_WQE_LENGTH);
		else
			CHECK(errno_name(error) == "EINVAL");
		stage.check_untouched();
		connect_again(stage.pair);
	};
	auto &[a, b] = stage.pair;

	refused(a.qp, a.send_cq, write(stage, stage.source(longest + 1)));
	refused(a.qp, a.send_cq, Send(IBV_WR_SEND, stage.source(longest + 1)));
	refused(b.qp, b.send_cq, read(stage, stage.sink(longest + 1)));
}
