// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 300
/*
 * Every byte arrives where it belongs, and no byte is written elsewhere.
 *
 * Holds: SEND, WRITE and READ work with sizes around every power of two, all alignments,
 * scatter-gather splits with empty entries, page boundaries, inline data, messages of
 * zero bytes, messages above 1 GiB and immediate data.
 * Does not hold: what happens on errors (verbs/failed_requests), throughput (scripts/demo).
 */
#include "verbs.hpp"

using namespace peal_test;

namespace {

constexpr std::uint8_t guard_byte = 0xa5;
constexpr std::size_t guard_bytes = 64;
constexpr int max_sge = 32;

enum class Kind { send, write, read };
constexpr std::array kinds{Kind::send, Kind::write, Kind::read};

const char *kind_name(Kind kind)
{
	static const char *const names[] = {"SEND", "WRITE", "READ"};
	return names[static_cast<int>(kind)];
}

using Pieces = std::vector<std::pair<std::size_t, std::size_t>>; /* offset, length */

/* Two endpoints and the memory that their messages go between. */
struct Bench {
	explicit Bench(Device &device, std::size_t size, const QpOptions &options = {})
		: pair(device, options), from(pair.a.pd, size), to(pair.b.pd, size)
	{
	}
	/* READ moves data from b, so the regions change roles. */
	Region &source(Kind kind) { return kind == Kind::read ? to : from; }
	Region &target(Kind kind) { return kind == Kind::read ? from : to; }

	Pair pair;
	Region from;
	Region to;
};

std::vector<ibv_sge> sge_list(const Region &region, const Pieces &pieces)
{
	std::vector<ibv_sge> list;

	for (auto [offset, length] : pieces)
		list.push_back(region.sge(offset, length));
	return list;
}

std::size_t total(const Pieces &pieces)
{
	std::size_t sum = 0;

	for (auto [offset, length] : pieces)
		sum += length;
	return sum;
}

void transfer_send(Bench &bench, const Pieces &from, const Pieces &to)
{
	auto &[a, b] = bench.pair;

	post_recv(b.qp, 7, sge_list(bench.to, to));
	post(a.qp, Send(IBV_WR_SEND, sge_list(bench.from, from)));
	wait_success(a.send_cq);
	const auto wc = wait_success(b.recv_cq).front();
	if (wc.byte_len != total(from) || wc.wr_id != 7 || wc.opcode != IBV_WC_RECV)
		FAIL("expected a receive of " << total(from) << " bytes with wr_id 7, got "
					      << wc.byte_len << " bytes, " << describe(wc));
}

/* Transfers one message. One side of a WRITE or READ is contiguous. */
void transfer(Bench &bench, Kind kind, const Pieces &from, const Pieces &to)
{
	auto &a = bench.pair.a;

	if (kind == Kind::send)
		return transfer_send(bench, from, to);
	const bool writing = kind == Kind::write;
	const auto &remote = writing ? to : from;
	Send send(writing ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
		  sge_list(bench.from, writing ? from : to));
	send.remote(bench.to.address(remote.front().first), bench.to.rkey());
	post(a.qp, std::move(send));
	wait_success(a.send_cq);
}

/* Puts guards around a part that the message will write. */
void prepare(Region &target, std::size_t offset, std::size_t length)
{
	const auto bytes = target.bytes(offset - guard_bytes, length + 2 * guard_bytes);

	std::memset(bytes.data(), guard_byte, bytes.size());
}

/* Return: empty if the part holds the pattern between intact guards. */
std::string inspect(const Region &target, std::size_t offset,
		    std::span<const std::uint8_t> expected)
{
	const auto size = expected.size();

	if (!all_equal(target.bytes(offset - guard_bytes, guard_bytes), guard_byte))
		return "bytes before the destination were written";
	if (!all_equal(target.bytes(offset + size, guard_bytes), guard_byte))
		return "bytes after the destination were written";
	return difference(target.bytes(offset, size), expected);
}

void check_contiguous(Bench &bench, Kind kind, std::size_t size, std::size_t from, std::size_t to)
{
	const auto source = bench.source(kind).bytes(from, size);

	fill_pattern(source, size * 131 + from);
	prepare(bench.target(kind), to, size);
	transfer(bench, kind, {{from, size}}, {{to, size}});
	const auto wrong = inspect(bench.target(kind), to, source);
	if (!wrong.empty())
		FAIL(kind_name(kind) << " of " << size << " bytes from offset " << from << " to "
				     << to << ": " << wrong);
}

/* Sizes around each power of two, where copies change their method. */
std::vector<std::size_t> small_sizes()
{
	std::vector<std::size_t> sizes{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

	for (std::size_t power = 16; power <= 1024; power *= 2)
		for (auto size : {power - 1, power, power + 1})
			sizes.push_back(size);
	return sizes;
}

std::vector<std::size_t> medium_sizes()
{
	return {1500,  4095,  4096,  4097,   8191,   8192,  8193,
		65535, 65536, 65537, 131071, 131072, 131073};
}

/* Cuts a part into `count` parts, some of them empty. */
std::vector<std::size_t> cut(Random &random, std::size_t size, std::size_t count)
{
	std::vector<std::size_t> edges{0, size};

	while (edges.size() < count + 1)
		edges.push_back(random.between(0, 3) ? random.between(0, size) : edges.back());
	std::sort(edges.begin(), edges.end());
	std::vector<std::size_t> lengths;
	for (std::size_t i = 0; i < count; i++)
		lengths.push_back(edges[i + 1] - edges[i]);
	return lengths;
}

/* Lays out the parts with gaps that are at least as long as the guards. */
Pieces scatter(Random &random, std::size_t size, std::size_t count)
{
	Pieces pieces;
	std::size_t at = guard_bytes;

	for (auto length : cut(random, size, count)) {
		at += random.between(0, 70);
		pieces.emplace_back(at, length);
		at += length + 2 * guard_bytes;
	}
	return pieces;
}

std::vector<std::uint8_t> gather(const Region &region, const Pieces &pieces)
{
	std::vector<std::uint8_t> bytes;

	for (auto [offset, length] : pieces) {
		const auto part = region.bytes(offset, length);
		bytes.insert(bytes.end(), part.begin(), part.end());
	}
	return bytes;
}

void check_scattered(Bench &bench, Kind kind, const Pieces &from, const Pieces &to)
{
	for (auto [offset, length] : from)
		fill_pattern(bench.source(kind).bytes(offset, length), offset);
	for (auto [offset, length] : to)
		prepare(bench.target(kind), offset, length);
	transfer(bench, kind, from, to);

	const auto sent = gather(bench.source(kind), from);
	std::size_t done = 0;
	for (auto [offset, length] : to) {
		const auto part = std::span(sent).subspan(done, length);
		const auto wrong = inspect(bench.target(kind), offset, part);
		if (!wrong.empty())
			FAIL(kind_name(kind) << " of " << sent.size() << " bytes in " << from.size()
					     << " pieces to " << to.size() << ": " << wrong);
		done += length;
	}
}

void check_splits(Bench &bench, Kind kind, std::size_t size, std::size_t count, std::uint64_t salt)
{
	Random random(salt);
	const auto pieces = scatter(random, size, count);
	const auto whole = Pieces{{guard_bytes + salt % 64, size}};

	switch (kind) {
	case Kind::send:
		return check_scattered(bench, kind, pieces,
				       scatter(random, size, max_sge + 1 - count));
	case Kind::write:
		return check_scattered(bench, kind, pieces, whole);
	case Kind::read:
		return check_scattered(bench, kind, whole, pieces);
	}
}

Send inline_send(Bench &bench, ibv_wr_opcode opcode, std::uint8_t *data, std::size_t size)
{
	/* The device ignores the lkey of inline data. */
	Send send(opcode,
		  {{reinterpret_cast<std::uintptr_t>(data), static_cast<uint32_t>(size), 0}});

	send.flags(IBV_SEND_SIGNALED | IBV_SEND_INLINE);
	return send.remote(bench.to.address(page_bytes), bench.to.rkey());
}

/* The buffer may be used again as soon as the post returns. */
void check_inline(Bench &bench, ibv_wr_opcode opcode, std::size_t size)
{
	std::vector<std::uint8_t> data(size + 1), expected(size);
	auto &[a, b] = bench.pair;

	fill_pattern(expected, size);
	std::copy(expected.begin(), expected.end(), data.begin());
	prepare(bench.to, page_bytes, size);
	if (opcode == IBV_WR_SEND)
		post_recv(b.qp, 1, {bench.to.sge(page_bytes, size)});
	post(a.qp, inline_send(bench, opcode, data.data(), size));
	std::memset(data.data(), 0, data.size());
	wait_success(a.send_cq);
	if (opcode == IBV_WR_SEND)
		wait_success(b.recv_cq);
	const auto wrong = inspect(bench.to, page_bytes, expected);
	if (!wrong.empty())
		FAIL("inline of " << size << " bytes: " << wrong);
}

/* Each page gets different contents that are cheap to write, even under emulation. */
void stamp_pages(std::span<std::uint8_t> bytes, std::uint64_t salt)
{
	for (std::size_t at = 0; at + 8 <= bytes.size(); at += page_bytes - 24) {
		const std::uint64_t value = (at + salt) * 0x9e3779b97f4a7c15U;
		std::memcpy(&bytes[at], &value, sizeof(value));
	}
}

void huge_message(Device &device, std::size_t bytes)
{
	Endpoint a(device), b(device);
	connect(a, b);
	/*
	 * Page tables may be large. One region serves both, so that the
	 * registration is above 1 GiB too.
	 */
	Memory memory(2 * bytes);
	Mr mr_a(ibv_reg_mr(a.pd, memory.data(), memory.size(), all_access), "reg_mr");
	Mr mr_b(ibv_reg_mr(b.pd, memory.data(), memory.size(), all_access), "reg_mr");
	const auto source = memory.bytes(0, bytes), target = memory.bytes(bytes, bytes);

	stamp_pages(source, 1);
	Send write(IBV_WR_RDMA_WRITE,
		   {{memory.address(), static_cast<uint32_t>(bytes), mr_a->lkey}});
	post(a.qp, write.remote(memory.address(bytes), mr_b->rkey));
	wait_success(a.send_cq, 1, 120s * slowness());
	CHECK(difference(target, source) == "");

	stamp_pages(source, 2);
	Send read(IBV_WR_RDMA_READ,
		  {{memory.address(bytes), static_cast<uint32_t>(bytes), mr_a->lkey}});
	post(a.qp, read.remote(memory.address(), mr_b->rkey));
	wait_success(a.send_cq, 1, 120s * slowness());
	CHECK(difference(target, source) == "");
}

} // namespace

TEST_CASE("small messages at every alignment")
{
	Device device;
	Bench bench(device, 4 * page_bytes);

	for (auto kind : kinds)
		for (auto size : small_sizes())
			for (std::size_t offset = 0; offset <= 64; offset += size > 65 ? 5 : 1)
				check_contiguous(bench, kind, size, guard_bytes + offset,
						 guard_bytes + (offset * 7 + 3) % 65);
	SUCCEED();
}

TEST_CASE("messages across page boundaries")
{
	Device device;
	Bench bench(device, 8 * page_bytes);

	for (auto kind : kinds)
		for (std::size_t size : {1, 2, 8, 9, 63, 4096, 4097, 8192})
			for (std::size_t back : {0, 1, 3, 4, 7, 8, 9, 63})
				check_contiguous(bench, kind, size, page_bytes - back,
						 2 * page_bytes - (back * 5) % 64);
	SUCCEED();
}

TEST_CASE("medium messages at some alignments")
{
	Device device;
	Bench bench(device, 36 * page_bytes);

	for (auto kind : kinds)
		for (auto size : medium_sizes())
			for (std::size_t offset : {0, 1, 4, 8, 31, 63, 64})
				check_contiguous(bench, kind, size, guard_bytes + offset,
						 guard_bytes + (offset * 13 + 1) % 65);
	SUCCEED();
}

TEST_CASE("large messages")
{
	Device device;
	constexpr std::size_t mib = 1 << 20;
	Bench bench(device, 9 * mib);

	for (auto kind : kinds) {
		check_contiguous(bench, kind, mib + 1, 4096, 4096 + 33);
		check_contiguous(bench, kind, mib + 1, 4097, 4096);
		check_contiguous(bench, kind, 8 * mib, 4096, 4096);
		check_contiguous(bench, kind, 8 * mib, 4099, 4160);
	}
	SUCCEED();
}

TEST_CASE("scatter-gather lists")
{
	Device device;
	QpOptions options;
	options.send_sge = options.recv_sge = max_sge;
	Bench bench(device, 64 * page_bytes, options);
	std::uint64_t salt = 0;

	for (auto kind : kinds)
		for (std::size_t size : {0, 1, 7, 64, 333, 4096, 4097, 65537, 131073})
			for (std::size_t count : {1, 2, 3, 7, 32})
				for (int round = 0; round < 3; round++)
					check_splits(bench, kind, size, count, ++salt);
	SUCCEED();
}

TEST_CASE("inline data of every length")
{
	Device device;
	QpOptions options;
	options.inline_bytes = PEAL_MAX_INLINE;
	Bench bench(device, 4 * page_bytes, options);

	for (std::size_t size = 0; size <= options.inline_bytes; size++) {
		check_inline(bench, IBV_WR_SEND, size);
		check_inline(bench, IBV_WR_RDMA_WRITE, size);
	}
	SUCCEED();
}

TEST_CASE("a receive larger than the message stays untouched behind it")
{
	Device device;
	Bench bench(device, 4 * page_bytes);

	std::memset(bench.to.data(), guard_byte, bench.to.size());
	transfer_send(bench, {{0, 1000}}, {{100, 8000}});
	CHECK(all_equal(bench.to.bytes(0, 100), guard_byte));
	CHECK(all_equal(bench.to.bytes(1100, 8000), guard_byte));
}

TEST_CASE("messages without bytes look at no key")
{
	Device device;
	Pair pair(device);

	post(pair.a.qp, Send(IBV_WR_RDMA_WRITE).remote(0xdead, 0xbeef));
	post(pair.a.qp, Send(IBV_WR_RDMA_READ).remote(0xdead, 0xbeef));
	post_recv(pair.b.qp, 3, {});
	post(pair.a.qp, Send(IBV_WR_SEND));
	wait_success(pair.a.send_cq, 3);
	CHECK(wait_success(pair.b.recv_cq).front().byte_len == 0);
}

TEST_CASE("immediate data")
{
	Device device;
	Bench bench(device, page_bytes);
	auto &[a, b] = bench.pair;

	fill_pattern(bench.from.bytes(0, 100), 5);
	post_recv(b.qp, 1, {bench.to.sge(0, 200)});
	post_recv(b.qp, 2, {});
	post(a.qp, Send(IBV_WR_SEND_WITH_IMM, {bench.from.sge(0, 100)}).imm(0x01020304));
	post(a.qp, Send(IBV_WR_RDMA_WRITE_WITH_IMM, {bench.from.sge(0, 50)})
			   .imm(0xfffefdfc)
			   .remote(bench.to.address(1000), bench.to.rkey()));
	wait_success(a.send_cq, 2);
	const auto wcs = wait_success(b.recv_cq, 2);

	CHECK(wcs[0].opcode == IBV_WC_RECV);
	CHECK((wcs[0].wc_flags & IBV_WC_WITH_IMM) != 0);
	CHECK(wcs[0].imm_data == 0x01020304);
	CHECK(wcs[0].byte_len == 100);
	CHECK(wcs[0].qp_num == b.qp->qp_num);
	CHECK(wcs[1].opcode == IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK((wcs[1].wc_flags & IBV_WC_WITH_IMM) != 0);
	CHECK(wcs[1].imm_data == 0xfffefdfc);
	CHECK(wcs[1].byte_len == 50);
	CHECK(difference(bench.to.bytes(0, 100), bench.from.bytes(0, 100)) == "");
	CHECK(difference(bench.to.bytes(1000, 50), bench.from.bytes(0, 50)) == "");
}

TEST_CASE("atomics return the old value and change the target once")
{
	Device device;
	Bench bench(device, page_bytes);
	auto &a = bench.pair.a;
	auto *target = reinterpret_cast<std::uint64_t *>(bench.to.data());
	auto *result = reinterpret_cast<std::uint64_t *>(bench.from.data());
	const auto key = bench.to.rkey();

	target[1] = 41;
	post(a.qp, Send(IBV_WR_ATOMIC_FETCH_AND_ADD, {bench.from.sge(0, 8)})
			   .atomic(bench.to.address(8), key, ~0ULL));
	post(a.qp, Send(IBV_WR_ATOMIC_CMP_AND_SWP, {bench.from.sge(8, 8)})
			   .atomic(bench.to.address(8), key, 40, 1ULL << 63));
	post(a.qp, Send(IBV_WR_ATOMIC_CMP_AND_SWP, {bench.from.sge(16, 8)})
			   .atomic(bench.to.address(8), key, 40, 5));
	const auto wcs = wait_success(a.send_cq, 3);

	CHECK(wcs[0].opcode == IBV_WC_FETCH_ADD);
	CHECK(wcs[1].opcode == IBV_WC_COMP_SWAP);
	CHECK(result[0] == 41);
	CHECK(result[1] == 40);
	CHECK(result[2] == 1ULL << 63);
	CHECK(target[0] == 0);
	CHECK(target[1] == 1ULL << 63);
	CHECK(target[2] == 0);
}

TEST_CASE("a queue pair connected to itself")
{
	Device device;
	Endpoint self(device);
	connect_to(self.qp, device, self.qp->qp_num);
	Region from(self.pd, page_bytes), to(self.pd, page_bytes);

	fill_pattern(from.bytes(0, 1000), 9);
	post_recv(self.qp, 1, {to.sge(0, 1000)});
	post(self.qp, Send(IBV_WR_SEND, {from.sge(0, 1000)}));
	post(self.qp,
	     Send(IBV_WR_RDMA_WRITE, {from.sge(0, 1000)}).remote(to.address(2000), to.rkey()));
	wait_success(self.send_cq, 2);
	wait_success(self.recv_cq);
	CHECK(difference(to.bytes(0, 1000), from.bytes(0, 1000)) == "");
	CHECK(difference(to.bytes(2000, 1000), from.bytes(0, 1000)) == "");
}

TEST_CASE("one message above 512 MiB")
{
	Device device;
	constexpr std::size_t bytes = (640U << 20) + 5;

	if (available_bytes() < 2 * bytes + (256U << 20))
		SKIP_CASE("not enough memory");
	/* A million packets would take a millisecond each on a debug kernel. */
	if (on_wire() && (slowness() > 2 || !thorough()))
		SKIP_CASE("so many packets take too long");
	huge_message(device, bytes);
}
