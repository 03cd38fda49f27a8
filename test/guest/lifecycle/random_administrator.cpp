// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 240
// run: long
// transport: any
/*
 * A random administrator acts while programs work. Devices and netdevs come, go, and change their
 * names, addresses, MTU, link state and namespace in any order.
 *
 * Holds: Programs on another device notice nothing. Programs on this device never see a wrong byte
 * and never wait in vain. Afterwards everything is as it was before.
 * Does not hold: the errors that a program on the device itself sees
 * (lifecycle/device_removed_in_use).
 * PEAL_STORM_SECONDS is how long the administrator acts, by default 16 seconds. The case in which
 * the module goes too takes half of that.
 */
#include "commands.hpp"
#include "exchange.hpp"
#include "innocent.hpp"
#include "netlink.hpp"
#include "route.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>
#include <csignal>
#include <map>

using namespace peal_test;

namespace {

constexpr const char *storm_device = "peal9", *peer = "sto1", *vlan = "sto.5";
constexpr const char *first_address = "10.79.1.1/24";

/* ------------------------------------------------------------------------------ programs */

/* Shared by all processes after the first one has asked for it. */
struct Shared {
	std::atomic<bool> stop;
	std::atomic<std::uint64_t> messages, innocent_messages, began, broke_off;
};

Shared &shared()
{
	static auto *const place =
		static_cast<Shared *>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
					   MAP_SHARED | MAP_ANONYMOUS, -1, 0));

	if (place == MAP_FAILED)
		throw_errno("mmap");
	return *place;
}

/* Works until the device is gone or refuses. */
void toil(std::size_t size)
{
	Device device(storm_device);
	/* A program that waits for a link which is down soon makes room for the next program. */
	Pair pair(device, {}, {.timeout = 14});
	Region from(pair.a.pd, size), to(pair.b.pd, size);

	shared().began++;
	for (std::uint64_t i = 0; !shared().stop; i++) {
		if (!exchange(pair, from, to, 1 + i * 7919 % size, i))
			break;
		shared().messages++;
	}
	shared().broke_off += !shared().stop;
}

/* A program that finds no device, or whose device goes meanwhile, ends without a failure. */
int program(std::size_t size)
{
	tolerate_destroy_errors();
	try {
		toil(size);
	} catch (const std::system_error &) {
	} catch (const NotReady &) {
	}
	return 0;
}

int innocent()
{
	Device device;
	Innocent innocent(device);

	while (!shared().stop) {
		innocent.message();
		shared().innocent_messages++;
	}
	return 0;
}

/* The child inherits nothing from its parent, because an open file would keep a namespace alive. */
pid_t spawn_apart(const std::function<int()> &body)
{
	return spawn([&] {
		close_range(STDERR_FILENO + 1, ~0U, 0);
		return body();
	});
}

/* Runs programs one after the other. Each ends by itself or is killed. */
class Place {
public:
	explicit Place(std::size_t size) : size_(size) {}
	void keep_busy()
	{
		int status = 0;

		if (child_ > 0 && waitpid(child_, &status, WNOHANG) != child_)
			return;
		check(status);
		child_ = spawn_apart([this] { return program(size_); });
	}
	void kill() const { ::kill(child_, SIGKILL); }
	void end()
	{
		int status = 0;

		CHECK(eventually([&] { return waitpid(child_, &status, WNOHANG) == child_; },
				 3 * patience));
		check(status);
	}

private:
	static void check(int status)
	{
		CHECK((!status || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)));
	}

	std::size_t size_;
	pid_t child_ = -1;
};

/* ------------------------------------------------------------------------- administrator */

std::uint32_t index_of(const std::string &name)
{
	std::unique_ptr<ibv_device *, decltype(&ibv_free_device_list)> list(
		ibv_get_device_list(nullptr), ibv_free_device_list);

	for (auto **device = list.get(); device && *device; device++)
		if (name == ibv_get_device_name(*device))
			return static_cast<std::uint32_t>(ibv_get_device_index(*device));
	return 0;
}

class Administrator {
public:
	Administrator() : away_(new_namespace(home_)) { make_netdev(); }

	bool make_netdev()
	{
		netdev_ = "sto0";
		return route_.add_veth(netdev_, peer) && route_.set_up(peer, true) &&
		       route_.add_address(netdev_, first_address) && route_.set_up(netdev_, true);
	}
	bool add_link() { return !rdma_.add_link(storm_device, "peal", netdev_); }
	/*
	 * Does one random thing. Many are refused, because their object is not there now. Most
	 * actions destroy something, so every third one makes what the programs need.
	 */
	void act()
	{
		static const Action repair{"mend", &Administrator::mend};
		const auto &[name, action] =
			random_.between(0, 2) ? actions[random_.between(0, actions.size() - 1)]
					      : repair;

		tries_++;
		if ((this->*action)())
			done_[name]++;
	}
	void clear()
	{
		away_.reset();
		route_.remove(vlan);
		route_.remove(netdev_);
		route_.remove(peer);
	}
	void report() const
	{
		std::printf("%lu actions; of them did something:", tries_);
		for (const auto &[name, count] : done_)
			std::printf(" %s %lu", name.c_str(), count);
		std::printf("\n");
	}
	/* The number of actions that did something at least once. */
	std::size_t kinds() const { return done_.size(); }

private:
	struct Action {
		const char *name;
		bool (Administrator::*act)();
	};
	static const std::vector<Action> actions;

	bool add_link_again() { return !rdma_.add_link("peal10", "peal", netdev_); }
	bool delete_link()
	{
		const auto index = index_of(random_.between(0, 3) ? storm_device : "peal10");

		return index && !rdma_.delete_link(index);
	}
	bool down() { return route_.set_up(netdev_, false); }
	bool up() { return route_.set_up(netdev_, true); }
	bool change_mtu()
	{
		return route_.set_mtu(netdev_, static_cast<unsigned>(random_.between(600, 8600)));
	}
	std::string any_address()
	{
		return "10.79.1." + std::to_string(random_.between(2, 10)) + "/24";
	}
	bool add_address() { return route_.add_address(netdev_, any_address()); }
	bool remove_address() { return route_.remove_address(netdev_, any_address()); }
	bool add_address6()
	{
		return route_.add_address(
			netdev_, "fd79::" + std::to_string(random_.between(1, 99)) + "/64");
	}
	bool flip_first_address()
	{
		return route_.remove_address(netdev_, first_address) &&
		       route_.add_address(netdev_, first_address);
	}
	bool change_mac()
	{
		return route_.set_mac(netdev_,
				      "02:00:00:00:00:" + std::to_string(random_.between(10, 99)));
	}
	bool add_vlan() { return route_.add_vlan(netdev_, vlan, 5) && route_.set_up(vlan, true); }
	bool remove_vlan() { return route_.remove(vlan); }
	bool move() { return route_.move(netdev_, *away_); }
	bool move_back()
	{
		away_->enter();
		Route there;
		home_.enter();
		return there.move(netdev_, home_);
	}
	/* The netdev goes too, if it is in there. */
	bool drop_namespace()
	{
		away_.reset();
		away_ = new_namespace(home_);
		return true;
	}
	bool rename()
	{
		const std::string other = netdev_ == "sto0" ? "sto2" : "sto0";

		if (!down() || !route_.rename(netdev_, other))
			return false;
		netdev_ = other;
		return up();
	}
	bool remove_netdev() { return route_.remove(netdev_); }
	/*
	 * It does not matter where the netdev is now. A veth pair goes as a whole,
	 * even if one end is elsewhere.
	 */
	bool renew_netdev()
	{
		if (route_.find(netdev_))
			return false;
		route_.remove(peer);
		return make_netdev();
	}
	/* Makes what the programs miss. */
	bool mend()
	{
		if (!route_.find(netdev_))
			return move_back() || renew_netdev();
		return up() && add_link();
	}
	bool change_carrier()
	{
		const std::string value = random_.between(0, 1) ? "1" : "0";

		return !std::system((peal_tool() + " link set " + storm_device + " direct " +
				     value + " >/dev/null 2>&1")
					    .c_str());
	}

	Random random_{1};
	Namespace home_;
	std::unique_ptr<Namespace> away_;
	Route route_;
	RdmaNetlink rdma_;
	std::string netdev_;
	unsigned long tries_ = 0;
	std::map<std::string, unsigned long> done_;
};

const std::vector<Administrator::Action> Administrator::actions = {
	{"link add", &Administrator::add_link},
	{"second link add", &Administrator::add_link_again},
	{"link delete", &Administrator::delete_link},
	{"down", &Administrator::down},
	{"up", &Administrator::up},
	{"MTU", &Administrator::change_mtu},
	{"address", &Administrator::add_address},
	{"no address", &Administrator::remove_address},
	{"IPv6 address", &Administrator::add_address6},
	{"first address", &Administrator::flip_first_address},
	{"MAC", &Administrator::change_mac},
	{"VLAN", &Administrator::add_vlan},
	{"no VLAN", &Administrator::remove_vlan},
	{"move", &Administrator::move},
	{"move back", &Administrator::move_back},
	{"namespace", &Administrator::drop_namespace},
	{"rename", &Administrator::rename},
	{"no netdev", &Administrator::remove_netdev},
	{"netdev", &Administrator::renew_netdev},
	{"carrier", &Administrator::change_carrier},
};

/*
 * The administrator does not wait for a CPU behind the programs while this object lives. The
 * programs keep their priority.
 */
class Precedence {
public:
	Precedence() { become(SCHED_FIFO | SCHED_RESET_ON_FORK, 1); }
	~Precedence() { become(SCHED_OTHER, 0); }
	Precedence(const Precedence &) = delete;
	Precedence &operator=(const Precedence &) = delete;

private:
	static void become(int policy, int priority)
	{
		sched_param param{};

		param.sched_priority = priority;
		CHECK(sched_setscheduler(0, policy, &param) == 0);
	}
};

/* A test in which the administrator did fewer kinds of things shows too little. */
constexpr int kinds_wanted = 3;

/* Acts while a program is at work. A busy debug kernel needs more time for the same. */
template <class Act>
void blow(std::vector<Place> &places, const Administrator &administrator, Duration time, Act act)
{
	Random random(2);

	for (auto &place : places)
		place.keep_busy();
	REQUIRE(eventually([] { return shared().messages > 0; }, 3 * patience));
	const Precedence precedence;
	for (const Stopwatch watch;
	     watch.elapsed() < time ||
	     (administrator.kinds() < kinds_wanted && watch.elapsed() < 6 * time);) {
		for (auto &place : places)
			place.keep_busy();
		act();
		if (!random.between(0, 30))
			places[random.between(0, places.size() - 1)].kill();
		/* The pause lets the programs make progress. */
		readable(-1, std::chrono::milliseconds(random.between(0, 40)));
	}
}

Duration storm_time()
{
	return time_from("PEAL_STORM_SECONDS", 16);
}

/* Removes and loads the module while programs use it. Return: whether it went and came back. */
bool reload_module()
{
	if (syscall(SYS_delete_module, "peal", O_NONBLOCK))
		return false;
	REQUIRE(run("modprobe peal") == 0);
	return true;
}

/* Leaves the device to the next tests as the machine's first commands made it. */
void restore_device()
{
	RdmaNetlink rdma;

	if (!index_of(device_name()))
		must(rdma.add_link(device_name(), "peal", "veth0"), "link add");
	Device device;
	Innocent innocent(device);
	for (int i = 0; i < 100; i++)
		innocent.message();
}

void report_programs()
{
	std::printf("%lu programs began, %lu broke off, %lu messages; innocent: %lu messages\n",
		    shared().began.load(), shared().broke_off.load(), shared().messages.load(),
		    shared().innocent_messages.load());
}

/* Removes everything that the administrator made, and lets the programs end by themselves. */
void calm(Administrator &administrator, std::vector<Place> &places)
{
	shared().stop = true;
	administrator.clear();
	for (auto &place : places)
		place.end();
	administrator.report();
	CHECK(administrator.kinds() >= kinds_wanted);
}

std::string devices()
{
	return read_command("rdma link show | awk '{ print $2 }'");
}

} // namespace

TEST_CASE("a device comes, goes and changes under programs")
{
	const auto before = devices(), users = users_of_module(), objects = resources();
	Administrator administrator;
	std::vector<Place> places{Place(50), Place(300000)};
	int status = -1;

	new (&shared()) Shared{};
	REQUIRE(administrator.add_link());
	const pid_t child = spawn_apart(innocent);
	blow(places, administrator, storm_time(), [&] { administrator.act(); });
	shared().stop = true;
	REQUIRE(waitpid(child, &status, 0) == child);
	CHECK(status == 0);

	calm(administrator, places);
	report_programs();
	CHECK(eventually([&] { return devices() == before; }));
	CHECK(eventually([&] { return users_of_module() == users; }));
	CHECK(resources() == objects);
}

TEST_CASE("the module goes and comes back under programs")
{
	const auto before = devices(), users = users_of_module();
	Administrator administrator;
	std::vector<Place> places{Place(50), Place(300000)};
	Random random(3);
	int reloads = 0;

	new (&shared()) Shared{};
	REQUIRE(administrator.add_link());
	blow(places, administrator, storm_time() / 2, [&] {
		administrator.act();
		if (!random.between(0, 7))
			reloads += reload_module();
	});
	/* A short storm on a debug kernel has few actions. */
	if (!reloads)
		reloads += eventually(reload_module);
	CHECK(reloads > 0);
	calm(administrator, places);
	report_programs();
	std::printf("%d times without the module\n", reloads);
	restore_device();
	CHECK(eventually([&] { return devices() == before; }));
	CHECK(eventually([&] { return users_of_module() == users; }));
}
