// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Options as words: each value is read as the kernel has it, and each wrong word is refused with a
 * sentence that names the right ones.
 */
#include <string>
#include <vector>

#include <rdma/peal-netlink.h>

#include "../../../userspace/tools/error.hpp"
#include "../../../userspace/tools/options.hpp"
#include "../catch.hpp"

using namespace peal::tool;

namespace {

using Words = std::vector<std::string>;

std::string refusal(const Words &words, bool host = false)
{
	try {
		if (host)
			parse_host_options(words);
		else
			parse_device_options(words);
	} catch (const WrongUse &error) {
		return error.what();
	}
	return "";
}

} /* namespace */

TEST_CASE("each option of a device is read, and the others stay missing")
{
	const auto all = parse_device_options(
		Words{"direct", "off", "max-rd-atomic", "32", "rate", "100", "ecn", "on"});

	CHECK(all.direct == 0);
	CHECK(all.limits[0] == 32u);
	CHECK(all.rate == 100u);
	CHECK(all.ecn == PEAL_NL_ECN_ON);
	const auto one = parse_device_options(Words{"rate", "auto"});
	CHECK(one.rate == 0u);
	CHECK_FALSE(one.direct);
	CHECK_FALSE(one.ecn);
	CHECK(parse_device_options(Words{"direct", "on"}).direct == 1);
	CHECK(parse_device_options(Words{"direct", "1"}).direct == 1);
	CHECK_FALSE(one.faults);
	CHECK(parse_device_options(Words{"faults", "on"}).faults == 1);
	CHECK(parse_device_options(Words{"faults", "off"}).faults == 0);
	CHECK(parse_device_options(Words{"ecn", "off"}).ecn == PEAL_NL_ECN_OFF);
	CHECK(parse_device_options(Words{"ecn", "asked"}).ecn == PEAL_NL_ECN_ASKED);
}

TEST_CASE("numbers that only the kernel can judge are passed on")
{
	CHECK(parse_device_options(Words{"max-rd-atomic", "4294967295"}).limits[0] == 4294967295u);
	CHECK(parse_device_options(Words{"direct", "2"}).direct == 2);
	CHECK(parse_device_options(Words{"rate", "7"}).rate == 7u);
}

TEST_CASE("a wrong word is refused with the right ones")
{
	for (const auto *value : {"", "256", "-1", "yes", "0x1", "1 "})
		CHECK(refusal({"direct", value}).find("direct is on or off") == 0);
	CHECK(refusal({"faults", "maybe"}) == "faults is on or off, not \"maybe\"");
	for (const auto *value : {"", "-1", "4294967296", "16k"})
		CHECK(refusal({"max-rd-atomic", value}).find("from 1 to 128") != std::string::npos);
	CHECK(refusal({"max-qp", "few"}) == "max-qp is max or a number from 1, not \"few\"");
	for (const auto *value : {"", ",", "rc,", "rc,,uc", "RC", "none,rc", "rdma"})
		CHECK(refusal({"without", value})
			      .find("without is none or some of rc,uc,ud,xrc,raw,srq,atomic,mw,odp"
				    ", not \"") == 0);
	CHECK(refusal({"ecn", "3"}) == "ecn is off, asked or on, not \"3\"");
	CHECK(refusal({"rate", "fast"}).find("auto, 10, 25") != std::string::npos);
	CHECK(refusal({"rat", "10"}).find("direct, rate, ecn, max-rd-atomic, max-qp") !=
	      std::string::npos);
	CHECK(refusal({"rate"}) == "the option \"rate\" has no value behind it");
	CHECK(refusal({"ecn", "on", "rate"}) == "the option \"rate\" has no value behind it");
}

TEST_CASE("limits are read, and those that are below the highest are shown as they are set")
{
	const Words words{"max-qp",  "10", "max-inline", "0",
			  "max-sge", "2",  "without",	 "srq,atomic"};
	auto some = parse_device_options(words);

	for (std::size_t i = 0; i < LIMITS; i++) {
		const std::string name = limits()[i].name;
		const auto expected = name == "max-qp"	     ? std::optional(10u)
				      : name == "max-inline" ? std::optional(0u)
				      : name == "max-sge"    ? std::optional(2u)
							     : std::nullopt;

		INFO(name);
		CHECK(some.limits[i] == expected);
		CHECK(parse_device_options(Words{name, "max"}).limits[i] == limits()[i].most);
	}
	CHECK(some.without == (1u << PEAL_NL_FEATURE_SRQ | 1u << PEAL_NL_FEATURE_ATOMIC));
	CHECK(parse_device_options(Words{"without", "none"}).without == 0u);
	CHECK(limit_words(some) == "max-qp 10 max-sge 2 max-inline 0 without srq,atomic");

	/* max-rd-atomic is shown elsewhere, and what an older module lacks is not shown. */
	CHECK(limit_words({}) == "-");
	CHECK(limit_words(parse_device_options(Words{"max-rd-atomic", "1"})) == "-");
	CHECK(limit_words(parse_device_options(Words{"max-qp", "max", "without", "none"})) == "-");
	/* A newer module may know more features. */
	some = {};
	some.without = 1u << 30 | 1u << PEAL_NL_FEATURE_RC;
	CHECK(limit_words(some) == "without rc,30");
}

TEST_CASE("the host has a scope")
{
	CHECK(parse_host_options(Words{"direct", "none"}).direct == PEAL_NL_SCOPE_NONE);
	CHECK(parse_host_options(Words{"direct", "device"}).direct == PEAL_NL_SCOPE_DEVICE);
	CHECK(parse_host_options(Words{"direct", "netns"}).direct == PEAL_NL_SCOPE_NETNS);
	CHECK(parse_host_options(Words{"direct", "host"}).direct == PEAL_NL_SCOPE_HOST);
	CHECK(refusal({"direct", "all"}, true).find("none, device, netns or host") !=
	      std::string::npos);
	CHECK(refusal({"ecn", "on"}, true).find("the option direct") != std::string::npos);
}

TEST_CASE("what is shown can be set, a value of a newer module is its number, and none is a dash")
{
	CHECK(switch_word(0) == "off");
	CHECK(switch_word(1) == "on");
	CHECK(rate_word(0) == "auto");
	CHECK(rate_word(100) == "100");
	CHECK(ecn_word(PEAL_NL_ECN_ASKED) == "asked");
	CHECK(ecn_word(77) == "77");
	CHECK(scope_word(PEAL_NL_SCOPE_HOST) == "host");
	CHECK(scope_word(9) == "9");
	CHECK(switch_word({}) == "-");
	CHECK(rate_word({}) == "-");
	CHECK(ecn_word({}) == "-");
	CHECK(scope_word({}) == "-");
}
