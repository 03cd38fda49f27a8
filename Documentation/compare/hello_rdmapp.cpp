// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The example "hello" of libpeal with rdmapp, for the page that compares them. No test compiles it,
 * because rdmapp is not a part of Debian. Start it with the device, and then with the address, too.
 * The connection comes from the files of rdmapp's own examples.
 */
#include "acceptor.h"
#include "connector.h"

#include <iostream>
#include <string>
#include <thread>

#include <rdmapp/rdmapp.h>

static rdmapp::task<void> serve(rdmapp::acceptor &acceptor)
{
	auto qp = co_await acceptor.accept();
	char mem[4096] = {};
	auto mr = std::make_shared<rdmapp::local_mr>(qp->pd_ptr()->reg_mr(mem, sizeof(mem)));
	auto mine = mr->serialize();
	co_await qp->send(mine.data(), mine.size());
	co_await qp->recv(mr);
	std::cout << mem << std::endl;
}

static rdmapp::task<void> call(rdmapp::connector &connector)
{
	auto qp = co_await connector.connect();
	char theirs[rdmapp::remote_mr::kSerializedSize], text[] = "hello";
	co_await qp->recv(theirs, sizeof(theirs));
	auto to = rdmapp::remote_mr::deserialize(theirs);
	auto mr = std::make_shared<rdmapp::local_mr>(qp->pd_ptr()->reg_mr(text, sizeof(text)));
	co_await qp->write(to, mr);
	/* There is no send with an immediate value. This writes the text a second time. */
	co_await qp->write_with_imm(to, mr, 5);
}

int main(int argc, char **argv)
{
	auto device = std::make_shared<rdmapp::device>(std::string(argv[1]), 1);
	auto pd = std::make_shared<rdmapp::pd>(device);
	auto cq = std::make_shared<rdmapp::cq>(device);
	auto poller = std::make_shared<rdmapp::cq_poller>(cq);
	auto loop = rdmapp::socket::event_loop::new_loop();
	auto looper = std::thread([loop] { loop->loop(); });
	if (argc == 2) {
		rdmapp::acceptor acceptor(loop, 7174, pd, cq);
		serve(acceptor);
	} else {
		rdmapp::connector connector(loop, argv[2], 7174, pd, cq);
		call(connector);
	}
	loop->close();
	looper.join();
}
