// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * One end of verify: a queue pair, memory in slots, and this end's part of a batch of messages.
 *
 * Owns: the verbs objects, the place of each message, its bytes.
 * Does not know: how the ends talk, which sizes are tried.
 */
#pragma once

#include "verbs.hpp"

#include <sstream>
#include <string>
#include <vector>

namespace verify {

enum class Kind { send, write, read, fetch_add, compare_swap, atomic_write, fault };

struct Operation {
	const char *name;
	ibv_qp_type type;
	ibv_wr_opcode opcode;
	Kind kind;
	ibv_wc_status expected = IBV_WC_SUCCESS; /* the client's completion, for a faulty request */

	bool immediate() const
	{
		return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	}
	bool takes_receive() const { return kind == Kind::send || immediate(); }
	bool atomic() const { return kind == Kind::fetch_add || kind == Kind::compare_swap; }
	/* Whether each message is an aligned word. */
	bool word() const { return atomic() || kind == Kind::atomic_write; }
	/* Whether the caller may choose the size. */
	bool sized() const { return !word() && kind != Kind::fault; }
	/* Whether every device has it. rxe has ATOMIC_WRITE since Linux 6.2. */
	bool usual() const { return kind != Kind::fault && kind != Kind::atomic_write; }
	bool allows(std::uint32_t size, std::uint32_t mtu) const
	{
		return type != IBV_QPT_UD || size <= mtu;
	}
};

const std::vector<Operation> &operations();
const Operation &find_operation(const std::string &name);

struct EndOptions {
	std::string device;
	int gid_index = -1;
	std::uint8_t timeout = 14;
	peal_test::Duration limit = std::chrono::seconds(20) * peal_test::slowness();
	std::uint64_t seed = std::random_device{}();
	bool srq = false; /* receives come from a shared receive queue */
};

/* Messages of one size that are outstanding together. */
struct Batch {
	std::uint32_t number;
	std::uint32_t size;
	std::uint32_t count;
	std::uint64_t seed = 0;
};

inline std::string to_text(const Batch &batch)
{
	std::ostringstream text;
	text << batch.number << ' ' << batch.size << ' ' << batch.count << ' ' << batch.seed;
	return text.str();
}

inline Batch read_batch(std::istream &text)
{
	Batch batch{};
	text >> batch.number >> batch.size >> batch.count >> batch.seed;
	return batch;
}

std::string describe(const ibv_wc &wc);

/* What one end tells the other. */
struct Address {
	std::uint32_t qp_num = 0;
	std::uint32_t psn = 0;
	std::uint32_t rkey = 0;
	std::uint64_t base = 0;
	std::uint32_t mtu = 0; /* enum ibv_mtu */
	std::uint32_t rd_atomic = 0;
	ibv_gid gid{};
};

struct FreeWindow {
	void operator()(ibv_mw *window) const { ibv_dealloc_mw(window); }
};

class End {
public:
	End(const EndOptions &options, const Operation &operation, std::size_t largest_message);

	std::string describe() const;
	void connect(const std::string &peer);

	/* For the server. The answer is what the client's run() needs. */
	std::string prepare(const Batch &batch);
	void check(const Batch &batch);
	/* For the client. */
	void run(const Batch &batch, const std::string &prepared);

	std::uint32_t mtu() const { return 128U << path_mtu_; }
	std::uint32_t depth(std::uint32_t size) const;
	std::uint64_t seed() const { return options_.seed; }

private:
	using Bytes = std::span<std::uint8_t>;

	peal_test::Srq make_srq();
	peal_test::Qp make_qp();
	void post_receive(std::uint64_t id, std::vector<ibv_sge> list);
	ibv_ah_attr vector() const;
	void to_ready(std::uint32_t rd_atomic);
	void datagrams_ready();

	std::size_t slot(const Batch &batch, std::uint32_t index) const;
	Bytes bytes(const Batch &batch, std::uint32_t index) const;
	std::vector<ibv_sge> pieces(const Batch &batch, std::uint32_t index) const;
	void paint(const Batch &batch);
	void fill(const Batch &batch);
	void compare(const Batch &batch) const;
	std::string wrong_byte(const Batch &batch) const;

	void post_receives(const Batch &batch);
	std::string bind_windows(const Batch &batch);
	void prepare_fault(const Batch &batch);
	void post_atomic_write(const Batch &batch, std::uint32_t index);
	peal_test::Send request(const Batch &batch, std::uint32_t index, std::istream &prepared);
	void expect_fault();
	void check_results(const Batch &batch) const;
	void check_receives(const Batch &batch);
	void check_receive(const Batch &batch, std::uint32_t index, const ibv_wc &wc) const;
	void check_grh(std::uint32_t index) const;
	void check_word(const Batch &batch) const;
	std::vector<ibv_wc> wait(ibv_cq *cq, std::size_t count) const;

	const EndOptions options_;
	const Operation operation_;
	peal_test::Context context_;
	peal_test::Pd pd_;
	peal_test::Cq send_cq_;
	peal_test::Cq recv_cq_;
	peal_test::Region region_;
	peal_test::Srq srq_; /* or null */
	peal_test::Qp qp_;
	peal_test::Handle<ibv_ah, ibv_destroy_ah> ah_;
	std::vector<std::unique_ptr<ibv_mw, FreeWindow>> windows_;
	ibv_port_attr port_{};
	Address own_;
	Address peer_;
	std::uint32_t path_mtu_ = IBV_MTU_256;
};

} // namespace verify
