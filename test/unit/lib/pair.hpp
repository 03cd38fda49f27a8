// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Two connected ends in one test, over the fake. At the end of a test nothing may be left, and no
 * rule of the real libraries may have been broken.
 */
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "../catch.hpp"
#include "fake.hpp"
#include "peal/peal.hpp"

using namespace std::chrono_literals;

/* Long enough for a slow machine. No test waits for it unless it fails. */
constexpr auto patience = 60s;
/* For waits that are meant to run out. */
constexpr auto moment = 20ms;

/* The first member of a test, so that it outlives the others. */
struct Fake {
	Fake() { fake::reset(); }
	~Fake()
	{
		CHECK(fake::alive() == "");
		CHECK(fake::broken_rules() == "");
	}
};

inline bool contains(std::string_view text, std::string_view part)
{
	return text.find(part) != text.npos;
}

struct Ends {
	std::optional<peal::device> device;
	std::optional<peal::memory<char>> mine, theirs;
	std::optional<peal::connection> client, server;

	explicit Ends(const peal::options &options = {}, peal::rights given = peal::remote_write |
									      peal::remote_read |
									      peal::remote_atomic)
		: device(peal::open("fake0").value())
	{
		mine.emplace(device->alloc<char>(4096).value());
		theirs.emplace(device->alloc<char>(4096, given).value());
		connect(options);
	}

	void connect(const peal::options &options)
	{
		auto listener = device->listen(0).value();
		std::thread accepts([&] {
			auto accepted = listener.accept(theirs->share(), patience, options);

			if (accepted)
				server.emplace(std::move(accepted).value());
		});
		auto connected = device->connect(fake::here, listener.port(), mine->share(),
						 patience, options);
		accepts.join();
		REQUIRE(std::string(connected.why()) == "");
		REQUIRE(server);
		client.emplace(std::move(connected).value());
	}
};
