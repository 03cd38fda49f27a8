// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * failing_client ADDRESS PORT HOW: asks a program to connect, and fails on the way. It uses the
 * connection manager alone, without a queue pair, and does not know what the program is.
 *
 * HOW is "dies" (it is killed when it has the answer), "silent" (it never confirms the answer) or
 * "version" (its greeting is of a libpeal that does not exist). The last two exit with 0 when the
 * program has refused.
 */
#include <rdma/rdma_cma.h>

#include <netdb.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

/* An event of this type, or the end of the program. */
void expect(rdma_event_channel *events, rdma_cm_event_type wanted)
{
	rdma_cm_event *event;

	if (rdma_get_cm_event(events, &event)) {
		std::perror("no event");
		std::exit(1);
	}
	if (event->event != wanted) {
		std::fprintf(stderr, "expected %s, got %s, status %d\n", rdma_event_str(wanted),
			     rdma_event_str(event->event), event->status);
		std::exit(1);
	}
	rdma_ack_cm_event(event);
}

void check(bool good, const char *call)
{
	if (good)
		return;
	std::perror(call);
	std::exit(1);
}

} // namespace

int main(int argc, char **argv)
{
	constexpr int patience = 5000; /* ms */
	/* No queue pair of this host has this number, because the first two are special. */
	constexpr std::uint32_t no_queue_pair = 2;
	const std::string how = argc == 4 ? argv[3] : "";
	char greeting[32] = "peal\2";
	rdma_conn_param param{};
	addrinfo *to = nullptr;
	rdma_cm_id *id;

	if (how != "dies" && how != "silent" && how != "version") {
		std::fputs("usage: failing_client ADDRESS PORT dies|silent|version\n", stderr);
		return 1;
	}
	rdma_event_channel *events = rdma_create_event_channel();
	check(events, "rdma_create_event_channel");
	check(!getaddrinfo(argv[1], argv[2], nullptr, &to), "getaddrinfo");
	check(!rdma_create_id(events, &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
	check(!rdma_resolve_addr(id, nullptr, to->ai_addr, patience), "rdma_resolve_addr");
	expect(events, RDMA_CM_EVENT_ADDR_RESOLVED);
	check(!rdma_resolve_route(id, patience), "rdma_resolve_route");
	expect(events, RDMA_CM_EVENT_ROUTE_RESOLVED);
	param.qp_num = no_queue_pair;
	if (how == "version") {
		param.private_data = greeting;
		param.private_data_len = sizeof(greeting);
	}
	check(!rdma_connect(id, &param), "rdma_connect");
	if (how != "version")
		expect(events, RDMA_CM_EVENT_CONNECT_RESPONSE);
	if (how == "dies")
		std::raise(SIGKILL);
	expect(events, RDMA_CM_EVENT_REJECTED);
	freeaddrinfo(to);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(events);
	return 0;
}
