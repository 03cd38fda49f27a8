// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Results, deadlines, and memory with its slices and regions.
 */
#include <cerrno>
#include <limits>
#include <string>
#include <utility>

#include "pair.hpp"

using peal::deadline;
using peal::error;
using peal::result;

TEST_CASE("a result has a value or a sentence", "[values]")
{
	result<std::string> good(std::string(100, 'x'));
	result<std::string> bad(error::make(ENOENT, "there is no %s; make one", "file"));

	REQUIRE(good);
	CHECK(good->size() == 100);
	CHECK(std::string(good.why()) == "");
	CHECK(good.code() == 0);
	REQUIRE(!bad);
	CHECK(std::string(bad.why()) == "there is no file; make one");
	CHECK(bad.code() == ENOENT);

	result<std::string> moved(std::move(good));
	CHECK(moved->size() == 100);
	moved = std::move(bad);
	CHECK(!moved);
	moved = result<std::string>(std::string("again"));
	CHECK(moved.value() == "again");
}

TEST_CASE("a sentence that is too long is cut off", "[values]")
{
	const std::string text(1000, 'a');
	const error long_one = error::make(0, "%s", text.c_str());

	CHECK(std::string(long_one.why()).size() == 251);
}

TEST_CASE("a deadline has no overflow", "[values]")
{
	CHECK(!deadline(std::chrono::hours::max()).passed());
	CHECK(deadline(std::chrono::hours::max()).milliseconds_left() > 1'000'000);
	CHECK(!deadline(std::chrono::duration<double>(std::numeric_limits<double>::infinity()))
		       .passed());
	CHECK(deadline(0s).passed());
	CHECK(deadline(std::chrono::hours::min()).passed());
	CHECK(deadline(-1s).milliseconds_left() == 0);
	CHECK(deadline(deadline::clock::time_point::min()).milliseconds_left() == 0);
	CHECK(deadline(deadline::clock::time_point::max()).milliseconds_left() > 1'000'000);
	/* Rounded up, so that poll() does not return before it. */
	const int left = deadline(1500us).milliseconds_left();
	CHECK((left == 1 || left == 2));
}

TEST_CASE("a slice is inside of its memory", "[values]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto memory = device.alloc<std::uint32_t>(100).value();

	CHECK(memory.size() == 100);
	CHECK(memory[99] == 0);
	const peal::slice all = memory.all();
	REQUIRE(all);
	CHECK(all.size() == 400);
	CHECK(all.data() == reinterpret_cast<std::byte *>(memory.data()));
	const peal::slice part = memory.part(98, 2);
	REQUIRE(part);
	CHECK(part.data() == all.data() + 98 * 4);
	CHECK(part.size() == 8);
	CHECK(part.key() == all.key());
	CHECK(memory.part(100, 0));

	struct Row {
		std::size_t first, count;
	};
	constexpr auto most = std::numeric_limits<std::size_t>::max();
	for (const Row row : {Row{101, 0}, Row{100, 1}, Row{0, 101}, Row{1, most}, Row{most, 2}}) {
		const peal::slice outside = memory.part(row.first, row.count);

		INFO(row.first << " " << row.count);
		CHECK(!outside);
		CHECK(contains(outside.why(), "not inside its memory"));
	}
	const peal::slice bytes = memory.bytes(5, 395);
	REQUIRE(bytes);
	CHECK(bytes.data() == all.data() + 5);
	CHECK(bytes.size() == 395);
	CHECK(bytes.key() == all.key());
	CHECK(memory.bytes(400, 0));
	for (const Row row : {Row{401, 0}, Row{400, 1}, Row{0, 401}, Row{1, most}, Row{most, 2}})
		CHECK(!memory.bytes(row.first, row.count));
	const std::uint32_t numbers[] = {7, 8, 9};
	REQUIRE(memory.put(97, numbers));
	CHECK(memory[99] == 9);
	CHECK(!memory.put(98, numbers));
	CHECK(memory[98] == 8);
}

TEST_CASE("a remote part is inside of the region", "[values]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto memory = device.alloc<char>(100, peal::remote_read).value();
	const peal::region region = memory.share();
	constexpr auto most = std::numeric_limits<std::uint64_t>::max();

	CHECK(region.size() == 100);
	CHECK(region.rights() == peal::remote_read);
	CHECK(region.at(40).size() == 60);
	CHECK(region.at(100));
	CHECK(region.at(100).size() == 0);
	CHECK(!region.at(101));
	CHECK(!region.at(99, 2));
	CHECK(!region.at(1, most));
	CHECK(!region.at(most, 1));
	CHECK(contains(region.at(101).why(), "not inside the peer's region"));
	CHECK(!peal::region().at(0, 1));
}

TEST_CASE("a memory works after its device has gone, and is empty after a move", "[values]")
{
	const Fake fake;
	std::optional<peal::memory<char>> kept;

	{
		auto device = peal::open("fake0").value();

		kept.emplace(device.alloc<char>(10).value());
		auto other = std::move(device);
		CHECK(!device.alloc<char>(10));
		CHECK(contains(device.alloc<char>(10).why(), "moved"));
		CHECK(contains(device.connect(fake::here, 1, {}, 1s).why(), "moved"));
		CHECK(contains(device.listen(0).why(), "moved"));
		CHECK(std::string(device.name()) == "");
	}
	(*kept)[9] = 'x';
	auto moved = std::move(*kept);
	CHECK(moved[9] == 'x');
	CHECK(kept->size() == 0);
	CHECK(kept->data() == nullptr);
	CHECK(!kept->part(0, 0));
	CHECK(!kept->bytes(0, 0));
	CHECK(kept->share().size() == 0);
}

TEST_CASE("memory that cannot be had is a sentence", "[values]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();

	CHECK(contains(device.alloc<char>(0).why(), "at least one"));
	CHECK(contains(
		device.alloc<std::uint64_t>(std::numeric_limits<std::size_t>::max() / 4).why(),
		"ask for fewer"));
	fake::fail_next("ibv_reg_mr", ENOMEM);
	auto none = device.alloc<char>(5);
	REQUIRE(!none);
	CHECK(none.code() == ENOMEM);
	CHECK(contains(none.why(), "ulimit -l"));
}

TEST_CASE("a device is opened by name, or because its port is up", "[values]")
{
	const Fake fake;

	CHECK(std::string(peal::open().value().name()) == "fake0");
	CHECK(std::string(peal::open("fake1").value().name()) == "fake1");
	CHECK(contains(peal::open("mlx5_0").why(), "ibv_devices"));
	fake::fail_next("ibv_open_device", EACCES);
	CHECK(contains(peal::open("fake0").why(), "/dev/infiniband"));
	fake::fail_next("ibv_query_device", EIO);
	CHECK(contains(peal::open("fake0").why(), "limits"));
	fake::fail_next("ibv_alloc_pd", ENOMEM);
	CHECK(contains(peal::open("fake0").why(), "protection domain"));
	fake::set_ports_up(false);
	CHECK(contains(peal::open().why(), "no port of fake1 is up"));
	CHECK(peal::open("fake0"));
	fake::remove_list();
	CHECK(contains(peal::open().why(), "rdma link add"));
	fake::fail_next("ibv_get_device_list", ENOSYS);
	CHECK(contains(peal::open().why(), "rdma link add"));
}
