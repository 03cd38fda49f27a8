// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The example "hello" of libpeal with libibverbscpp and its librdmacmcpp, for the page that
 * compares them. No test compiles it, because libibverbscpp is not a part of Debian. Start it
 * alone, and then with the address.
 */
#include <librdmacmcpp.h>

#include <cstdio>
#include <cstring>

/* What each end tells the other: where it may write. */
struct region {
	uint64_t address;
	uint32_t key;
};

static bool wait_for(ibv::completions::CompletionQueue *queue, int count)
{
	ibv::workcompletion::WorkCompletion wc;

	while (count)
		if (queue->poll(1, &wc)) {
			if (!wc)
				return false;
			--count;
		}
	return true;
}

int main(int argc, char **argv)
{
	rdma_addrinfo hints{};
	hints.ai_flags = argc > 1 ? 0 : RAI_PASSIVE;
	hints.ai_port_space = RDMA_PS_TCP;
	auto to = rdma::addrinfo::get(argc > 1 ? argv[1] : nullptr, "7174", &hints);
	ibv::queuepair::InitAttributes attr;
	std::memset(&attr, 0, sizeof(attr));
	ibv::queuepair::Capabilities cap;
	cap.setMaxSendWr(2);
	cap.setMaxRecvWr(1);
	cap.setMaxSendSge(1);
	cap.setMaxRecvSge(1);
	attr.setCapabilities(cap);
	attr.setType(ibv::queuepair::Type::RC);
	attr.setSignalAll(true);
	auto id = rdma::createEP(to, {}, boost::make_optional(attr));
	std::unique_ptr<rdma::ID> listener;
	if (argc == 1) {
		listener = std::move(id);
		listener->listen(1);
		id = listener->getRequest();
	}
	static char mem[4096];
	auto mr = id->getPD()->registerMemoryRegion(
		mem, sizeof(mem), {ibv::AccessFlag::LOCAL_WRITE, ibv::AccessFlag::REMOTE_WRITE});
	auto *qp = id->getQP();
	ibv::workrequest::Recv receive, *bad_receive;
	/* Its fields have no values otherwise. */
	std::memset(&receive, 0, sizeof(receive));
	qp->postRecv(receive, bad_receive);
	const auto here = mr->getRemoteAddress();
	region mine{here.address, here.rkey}, theirs;
	rdma_conn_param param{};
	param.private_data = &mine;
	param.private_data_len = sizeof(mine);
	param.retry_count = param.rnr_retry_count = 7;
	if (argc == 1) {
		id->accept(&param);
		return wait_for(qp->getRecvCQ(), 1) ? (std::puts(mem), 0) : 1;
	}
	id->connect(&param);
	/* The wrapper hides the event that has the peer's region. */
	auto *raw = reinterpret_cast<rdma_cm_id *>(id.get());
	std::memcpy(&theirs, raw->event->param.conn.private_data, sizeof(theirs));
	std::strcpy(mem, "hello");
	ibv::workrequest::Simple<ibv::workrequest::Write> write;
	write.setLocalAddress(mr->getSlice(0, 5));
	write.setRemoteAddress(ibv::memoryregion::RemoteAddress{theirs.address, theirs.key});
	ibv::workrequest::SendWithImm tell;
	tell.setImmData(5);
	write.setNext(&tell);
	ibv::workrequest::SendWr *bad;
	qp->postSend(write, bad);
	return wait_for(qp->getSendCQ(), 2) ? 0 : 1;
}
