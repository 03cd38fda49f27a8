// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Work queues, indirection tables, and a raw packet queue pair that spreads its frames with them.
 *
 * Holds: objects that clean up after themselves, and frames with the number of the work queue that
 * received them. Does not hold: the hash, which a test computes by itself.
 */
#pragma once
#include "verbs.hpp"

#include <deque>

namespace peal_test {

/* The library's functions are static, which no type in a header should depend on. */
inline int destroy_wq(ibv_wq *wq)
{
	return ibv_destroy_wq(wq);
}

inline int destroy_table(ibv_rwq_ind_table *table)
{
	return ibv_destroy_rwq_ind_table(table);
}

using Wq = Handle<ibv_wq, destroy_wq>;

/* The key that Microsoft's specification of RSS uses. */
inline constexpr std::array<std::uint8_t, 40> hash_key{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
	0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
	0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

constexpr std::uint64_t all_fields = 0xff;

class IndTable : public Handle<ibv_rwq_ind_table, destroy_table> {
public:
	IndTable(ibv_context *context, std::vector<ibv_wq *> wqs)
		: Handle(create(context, wqs), "create_rwq_ind_table")
	{
	}

private:
	static ibv_rwq_ind_table *create(ibv_context *context, std::vector<ibv_wq *> &wqs)
	{
		const auto log = static_cast<std::uint32_t>(std::bit_width(wqs.size()) - 1);
		ibv_rwq_ind_table_init_attr init{log, wqs.data(), 0};

		return ibv_create_rwq_ind_table(context, &init);
	}
};

inline ibv_wq_init_attr wq_attributes(ibv_pd *pd, ibv_cq *cq, std::uint32_t max_wr = 16)
{
	ibv_wq_init_attr init{};

	init.wq_type = IBV_WQT_RQ;
	init.max_wr = max_wr;
	init.max_sge = 2;
	init.pd = pd;
	init.cq = cq;
	return init;
}

inline ibv_qp_init_attr_ex spread_attributes(ibv_pd *pd, ibv_rwq_ind_table *table,
					     std::uint64_t fields)
{
	ibv_qp_init_attr_ex init{};

	init.qp_type = IBV_QPT_RAW_PACKET;
	init.comp_mask =
		IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
	init.pd = pd;
	init.rwq_ind_tbl = table;
	init.rx_hash_conf.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
	init.rx_hash_conf.rx_hash_key_len = hash_key.size();
	init.rx_hash_conf.rx_hash_key = const_cast<std::uint8_t *>(hash_key.data());
	init.rx_hash_conf.rx_hash_fields_mask = fields;
	return init;
}

/* A queue pair, and a table whose entries name four work queues in turn. */
struct Spread {
	static constexpr std::size_t depth = 8, slot_bytes = 2048;

	struct Queue {
		Queue(ibv_context *context, ibv_pd *pd, int cqe, std::uint32_t max_wr)
			: memory(pd, depth * slot_bytes), cq(create_cq(context, cqe)),
			  wq(create(context, pd, cq, max_wr))
		{
		}
		int try_post(std::uint64_t id, std::size_t length = slot_bytes,
			     std::uint32_t lkey_change = 0)
		{
			ibv_sge sge = memory.sge(id % depth * slot_bytes, length);
			ibv_recv_wr wr{}, *bad = nullptr;

			sge.lkey ^= lkey_change;
			wr.wr_id = id;
			wr.sg_list = &sge;
			wr.num_sge = 1;
			return ibv_post_wq_recv(wq, &wr, &bad);
		}
		void post(std::uint64_t id, std::size_t length = slot_bytes,
			  std::uint32_t lkey_change = 0)
		{
			must(try_post(id, length, lkey_change), "post_wq_recv");
		}

		Region memory;
		Cq cq;
		Wq wq;

	private:
		static Wq create(ibv_context *context, ibv_pd *pd, ibv_cq *cq, std::uint32_t max_wr)
		{
			ibv_wq_init_attr init = wq_attributes(pd, cq, max_wr);

			return {ibv_create_wq(context, &init), "create_wq"};
		}
	};
	struct Frame {
		ibv_wc wc;
		std::uint32_t number; /* of the work queue */
		std::vector<std::uint8_t> bytes;
	};

	Spread(Device &device, std::uint64_t fields, unsigned log_entries = 3)
		: pd(ibv_alloc_pd(device), "alloc_pd")
	{
		std::vector<ibv_wq *> entries;

		for (std::size_t i = 0; i < std::min<std::size_t>(4, 1 << log_entries); i++)
			queues.emplace_back(device, pd, 64, depth);
		for (std::size_t i = 0; i < std::size_t{1} << log_entries; i++)
			entries.push_back(queues[i % queues.size()].wq);
		table = std::make_unique<IndTable>(device, entries);
		auto init = spread_attributes(pd, *table, fields);
		qp = Qp(ibv_create_qp_ex(device, &init), "create_qp");
	}
	/* All work queues are ready, with all their receives. */
	void ready()
	{
		ibv_wq_attr attr{};

		attr.attr_mask = IBV_WQ_ATTR_STATE;
		attr.wq_state = IBV_WQS_RDY;
		for (Queue &queue : queues) {
			must(ibv_modify_wq(queue.wq, &attr), "modify_wq");
			for (std::size_t i = 0; i < depth; i++)
				queue.post(i);
		}
	}
	Queue &entry(std::uint32_t hash) { return queues[hash % queues.size()]; }

	/* Waits for a frame at any work queue, and posts its receive again. */
	Frame take()
	{
		Frame frame{};
		const bool came = eventually([&] {
			return std::any_of(queues.begin(), queues.end(), [&](Queue &queue) {
				return ibv_poll_cq(queue.cq, 1, &frame.wc) == 1 &&
				       read(queue, frame);
			});
		});

		if (!came)
			throw std::runtime_error("expected a frame, got none");
		return frame;
	}

	Pd pd;
	std::deque<Queue> queues;
	std::unique_ptr<IndTable> table;
	Qp qp;

private:
	static bool read(Queue &queue, Frame &frame)
	{
		must_succeed(frame.wc);
		CHECK(frame.wc.qp_num == queue.wq->wq_num);
		CHECK(frame.wc.opcode == IBV_WC_RECV);
		frame.number = queue.wq->wq_num;
		const auto got = queue.memory.bytes(frame.wc.wr_id * slot_bytes, frame.wc.byte_len);
		frame.bytes.assign(got.begin(), got.end());
		queue.post(frame.wc.wr_id);
		return true;
	}
};

} // namespace peal_test
