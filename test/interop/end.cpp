// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "end.hpp"

#include <arpa/inet.h>

#include <iomanip>

namespace verify {

using namespace peal_test;

namespace {

constexpr std::size_t largest_region = 20 << 20;
constexpr std::size_t guard_bytes = 64;
constexpr std::uint8_t guard_byte = 0xa5;
constexpr std::uint32_t max_depth = 16;
constexpr std::size_t grh_bytes = 40;
constexpr std::uint32_t qkey = 0x11111111;
constexpr std::uint32_t fault_bytes = 64;
/* The first bytes hold headers of datagrams, the slots follow. */
constexpr std::size_t slots_begin = 4096;

constexpr int access_rights = all_access | IBV_ACCESS_MW_BIND;
/* rxe passes the kernel's bit, 4, to the program. */
constexpr unsigned invalidated = IBV_WC_WITH_INV | 4;

std::size_t region_for(std::size_t largest_message)
{
	const auto all = slots_begin + max_depth * (largest_message + 3 * guard_bytes);

	return std::min(all, largest_region);
}

std::uint64_t mix(std::uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
	return x ^ (x >> 31);
}

std::uint64_t message_key(const Batch &batch, std::uint32_t index)
{
	return mix(batch.seed ^ mix((static_cast<std::uint64_t>(batch.number) << 32) + index));
}

/* Visits the message's bytes, eight at a time. */
template <class Visit>
void each_word(std::uint64_t key, std::size_t length, Visit visit)
{
	for (std::size_t at = 0; at < length; at += 8) {
		const std::uint64_t word = mix(key + at);
		visit(at, word, std::min<std::size_t>(8, length - at));
	}
}

std::uint32_t immediate_of(const Batch &batch, std::uint32_t index)
{
	return static_cast<std::uint32_t>(message_key(batch, index) >> 17);
}

std::uint64_t first_word(const Batch &batch)
{
	return message_key(batch, 1000);
}

std::uint64_t addend(const Batch &batch)
{
	return message_key(batch, 1001) | 1;
}

std::string hex(const ibv_gid &gid)
{
	std::ostringstream text;
	for (const auto byte : gid.raw)
		text << std::hex << std::setw(2) << std::setfill('0') << int{byte};
	return text.str();
}

ibv_gid unhex(const std::string &text)
{
	ibv_gid gid{};
	for (std::size_t i = 0; i < sizeof(gid.raw); i++)
		gid.raw[i] =
			static_cast<std::uint8_t>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
	return gid;
}

} // namespace

const std::vector<Operation> &operations()
{
	static const std::vector<Operation> all{
		{"rc-send", IBV_QPT_RC, IBV_WR_SEND, Kind::send},
		{"rc-send-imm", IBV_QPT_RC, IBV_WR_SEND_WITH_IMM, Kind::send},
		{"rc-send-inv", IBV_QPT_RC, IBV_WR_SEND_WITH_INV, Kind::send},
		{"rc-write", IBV_QPT_RC, IBV_WR_RDMA_WRITE, Kind::write},
		{"rc-write-imm", IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM, Kind::write},
		{"rc-read", IBV_QPT_RC, IBV_WR_RDMA_READ, Kind::read},
		{"rc-fetch-add", IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, Kind::fetch_add},
		{"rc-compare-swap", IBV_QPT_RC, IBV_WR_ATOMIC_CMP_AND_SWP, Kind::compare_swap},
		{"rc-atomic-write", IBV_QPT_RC, IBV_WR_ATOMIC_WRITE, Kind::atomic_write},
		{"uc-send", IBV_QPT_UC, IBV_WR_SEND, Kind::send},
		{"uc-send-imm", IBV_QPT_UC, IBV_WR_SEND_WITH_IMM, Kind::send},
		{"uc-write", IBV_QPT_UC, IBV_WR_RDMA_WRITE, Kind::write},
		{"uc-write-imm", IBV_QPT_UC, IBV_WR_RDMA_WRITE_WITH_IMM, Kind::write},
		{"ud-send", IBV_QPT_UD, IBV_WR_SEND, Kind::send},
		{"ud-send-imm", IBV_QPT_UD, IBV_WR_SEND_WITH_IMM, Kind::send},
		{"nak-access", IBV_QPT_RC, IBV_WR_RDMA_WRITE, Kind::fault, IBV_WC_REM_ACCESS_ERR},
		{"nak-invalid", IBV_QPT_RC, IBV_WR_SEND, Kind::fault, IBV_WC_REM_INV_REQ_ERR},
		{"nak-operation", IBV_QPT_RC, IBV_WR_SEND, Kind::fault, IBV_WC_REM_OP_ERR},
		{"rnr", IBV_QPT_RC, IBV_WR_SEND, Kind::fault, IBV_WC_RNR_RETRY_EXC_ERR},
	};
	return all;
}

const Operation &find_operation(const std::string &name)
{
	for (const auto &operation : operations())
		if (name == operation.name)
			return operation;
	throw std::runtime_error("no operation is called " + name);
}

/* ----------------------------------------------------------- connecting */

End::End(const EndOptions &options, const Operation &operation, std::size_t largest_message)
	: options_(options), operation_(operation),
	  context_(open_device(options.device), ("open " + options.device).c_str()),
	  pd_(ibv_alloc_pd(context_), "alloc_pd"), send_cq_(create_cq(context_, 64)),
	  recv_cq_(create_cq(context_, 64)),
	  region_(pd_, region_for(largest_message), access_rights), srq_(make_srq()), qp_(make_qp())
{
	ibv_device_attr attr{};

	must(ibv_query_device(context_, &attr), "query_device");
	must(ibv_query_port(context_, 1, &port_), "query_port");
	must(ibv_query_gid(context_, 1, options.gid_index, &own_.gid), "query_gid");
	own_.qp_num = qp_->qp_num;
	own_.psn = std::random_device{}() & 0xffffff;
	own_.rkey = region_.rkey();
	own_.base = region_.address();
	own_.mtu = port_.active_mtu;
	own_.rd_atomic = static_cast<std::uint32_t>(std::min(attr.max_qp_rd_atom, 16));
}

Srq End::make_srq()
{
	if (!options_.srq)
		return {};
	return create_srq(pd_, max_depth + 4, 4);
}

Qp End::make_qp()
{
	ibv_qp_init_attr init{};

	init.send_cq = send_cq_;
	init.recv_cq = recv_cq_;
	init.srq = srq_.get();
	init.cap = {max_depth + 4, max_depth + 4, 4, 4, 0};
	init.qp_type = operation_.type;
	if (operation_.kind == Kind::atomic_write) {
		QpOptions options;

		options.send_wr = options.recv_wr = max_depth + 4;
		options.send_ops = IBV_QP_EX_WITH_ATOMIC_WRITE;
		return create_qp(pd_, send_cq_, recv_cq_, options);
	}
	return {ibv_create_qp(pd_, &init), "create_qp"};
}

std::string End::describe() const
{
	std::ostringstream text;

	text << own_.qp_num << ' ' << own_.psn << ' ' << own_.rkey << ' ' << own_.base << ' '
	     << own_.mtu << ' ' << own_.rd_atomic << ' ' << hex(own_.gid);
	return text.str();
}

void End::connect(const std::string &peer)
{
	std::istringstream text(peer);
	std::string gid;

	text >> peer_.qp_num >> peer_.psn >> peer_.rkey >> peer_.base >> peer_.mtu >>
		peer_.rd_atomic >> gid;
	if (gid.size() != 2 * sizeof(peer_.gid.raw))
		throw std::runtime_error("the peer's address is not one: " + peer);
	peer_.gid = unhex(gid);
	path_mtu_ = std::min(own_.mtu, peer_.mtu);
	if (operation_.type == IBV_QPT_UD)
		datagrams_ready();
	else
		to_ready(std::min(own_.rd_atomic, peer_.rd_atomic));
}

ibv_ah_attr End::vector() const
{
	ibv_ah_attr attr{};

	attr.is_global = 1;
	attr.grh.dgid = peer_.gid;
	attr.grh.sgid_index = static_cast<std::uint8_t>(options_.gid_index);
	attr.grh.hop_limit = 64;
	attr.port_num = 1;
	return attr;
}

void End::to_ready(std::uint32_t rd_atomic)
{
	const bool reliable = operation_.type == IBV_QPT_RC;
	ibv_qp_attr attr{};

	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	attr.qp_access_flags = static_cast<unsigned>(
		reliable ? all_access
			 : all_access & ~IBV_ACCESS_REMOTE_ATOMIC & ~IBV_ACCESS_REMOTE_READ);
	must(ibv_modify_qp(qp_, &attr, init_mask), "modify to INIT");
	attr.qp_state = IBV_QPS_RTR;
	attr.ah_attr = vector();
	attr.path_mtu = static_cast<ibv_mtu>(path_mtu_);
	attr.dest_qp_num = peer_.qp_num;
	attr.rq_psn = peer_.psn;
	attr.max_dest_rd_atomic = static_cast<std::uint8_t>(rd_atomic);
	attr.min_rnr_timer = 1;
	const int reliable_rtr = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	must(ibv_modify_qp(qp_, &attr, reliable ? rtr_mask : rtr_mask & ~reliable_rtr),
	     "modify to RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = options_.timeout;
	attr.retry_cnt = 7;
	attr.rnr_retry = operation_.expected == IBV_WC_RNR_RETRY_EXC_ERR ? 2 : 7;
	attr.sq_psn = own_.psn;
	attr.max_rd_atomic = static_cast<std::uint8_t>(rd_atomic);
	must(ibv_modify_qp(qp_, &attr, reliable ? rts_mask : IBV_QP_STATE | IBV_QP_SQ_PSN),
	     "modify to RTS");
}

void End::datagrams_ready()
{
	ibv_qp_attr attr{};
	auto path = vector();

	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	attr.qkey = qkey;
	must(ibv_modify_qp(qp_, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
	     "modify to INIT");
	attr.qp_state = IBV_QPS_RTR;
	must(ibv_modify_qp(qp_, &attr, IBV_QP_STATE), "modify to RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = own_.psn;
	must(ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "modify to RTS");
	ah_ = {ibv_create_ah(pd_, &path), "create_ah"};
}

/* --------------------------------------------------------------- memory */

std::uint32_t End::depth(std::uint32_t size) const
{
	const std::size_t each = size + 3 * guard_bytes;
	const std::size_t room = (region_.size() - slots_begin) / each;

	return static_cast<std::uint32_t>(std::clamp<std::size_t>(room, 1, max_depth));
}

/*
 * Return: where the message begins. It may begin at any byte of a cache line, but the word of an
 * atomic begins at the start.
 */
std::size_t End::slot(const Batch &batch, std::uint32_t index) const
{
	const std::size_t stride = batch.size + 3 * guard_bytes;
	const std::size_t begin = slots_begin + index * stride + guard_bytes;

	if (operation_.word())
		return begin / 64 * 64;
	return begin + message_key(batch, index) % 64;
}

End::Bytes End::bytes(const Batch &batch, std::uint32_t index) const
{
	return region_.bytes(slot(batch, index), batch.size);
}

/* Every second message has two entries. */
std::vector<ibv_sge> End::pieces(const Batch &batch, std::uint32_t index) const
{
	const auto begin = slot(batch, index);
	const std::size_t first = message_key(batch, index) / 64 % (batch.size + 1);

	if (!batch.size)
		return {};
	if (index % 2 == 0 || operation_.word() || first == 0 || first == batch.size)
		return {region_.sge(begin, batch.size)};
	return {region_.sge(begin, first), region_.sge(begin + first, batch.size - first)};
}

void End::paint(const Batch &batch)
{
	const std::size_t end = slots_begin + batch.count * (batch.size + 3 * guard_bytes);

	std::memset(region_.data(), guard_byte, std::min(end, region_.size()));
}

void End::fill(const Batch &batch)
{
	for (std::uint32_t i = 0; i < batch.count; i++) {
		auto *to = bytes(batch, i).data();
		each_word(message_key(batch, i), batch.size,
			  [&](std::size_t at, std::uint64_t word, std::size_t length) {
				  std::memcpy(to + at, &word, length);
			  });
	}
}

/* Return: empty, or a description of the first wrong byte. */
std::string End::wrong_byte(const Batch &batch) const
{
	for (std::uint32_t i = 0; i < batch.count; i++) {
		const auto *got = bytes(batch, i).data();
		std::size_t wrong = batch.size;
		each_word(message_key(batch, i), batch.size,
			  [&](std::size_t at, std::uint64_t word, std::size_t length) {
				  if (wrong == batch.size && std::memcmp(got + at, &word, length))
					  wrong = at;
			  });
		if (wrong < batch.size)
			return "message " + std::to_string(i) + " of batch " +
			       std::to_string(batch.number) + " differs at byte " +
			       std::to_string(wrong);
		if (!all_equal({got - guard_bytes, guard_bytes}, guard_byte) ||
		    !all_equal({got + batch.size, guard_bytes}, guard_byte))
			return "bytes around message " + std::to_string(i) + " were written";
	}
	return {};
}

void End::compare(const Batch &batch) const
{
	const auto wrong = wrong_byte(batch);

	if (!wrong.empty())
		throw std::runtime_error(wrong);
}

/* --------------------------------------------------------------- server */

std::string End::prepare(const Batch &batch)
{
	paint(batch);
	if (operation_.kind == Kind::read)
		fill(batch);
	if (operation_.kind == Kind::fault)
		prepare_fault(batch);
	else if (operation_.takes_receive())
		post_receives(batch);
	if (operation_.atomic()) {
		const auto word = first_word(batch);
		std::memcpy(bytes(batch, 0).data(), &word, sizeof(word));
	}
	return operation_.opcode == IBV_WR_SEND_WITH_INV ? bind_windows(batch) : std::string();
}

void End::post_receives(const Batch &batch)
{
	for (std::uint32_t i = 0; i < batch.count; i++) {
		std::vector<ibv_sge> list;
		if (operation_.kind == Kind::send)
			list = pieces(batch, i);
		if (operation_.type == IBV_QPT_UD)
			list.insert(list.begin(), region_.sge(i * 64, grh_bytes));
		post_receive(i, list);
	}
}

void End::post_receive(std::uint64_t id, std::vector<ibv_sge> list)
{
	if (options_.srq)
		post_srq_recv(srq_, id, std::move(list));
	else
		post_recv(qp_, id, std::move(list));
}

/* Binds one window for each message. The client's SEND invalidates it. */
std::string End::bind_windows(const Batch &batch)
{
	std::string keys;

	windows_.clear();
	for (std::uint32_t i = 0; i < batch.count; i++) {
		windows_.emplace_back(ibv_alloc_mw(pd_, IBV_MW_TYPE_2));
		if (!windows_.back())
			throw_errno("alloc_mw");
		Send bind(IBV_WR_BIND_MW);
		bind.wr.bind_mw.mw = windows_.back().get();
		bind.wr.bind_mw.rkey = ibv_inc_rkey(windows_.back()->rkey);
		bind.wr.bind_mw.bind_info = {region_.mr(), region_.address(), 4096,
					     IBV_ACCESS_REMOTE_WRITE};
		post(qp_, bind);
		windows_.back()->rkey = bind.wr.bind_mw.rkey;
		keys += std::to_string(bind.wr.bind_mw.rkey) + " ";
	}
	for (const auto &wc : wait(send_cq_, batch.count))
		must_succeed(wc);
	return keys;
}

void End::prepare_fault(const Batch &)
{
	if (operation_.expected == IBV_WC_REM_INV_REQ_ERR)
		post_receive(0, {region_.sge(0, fault_bytes / 2)});
	if (operation_.expected == IBV_WC_REM_OP_ERR)
		post_receive(0, {{region_.address(), fault_bytes, region_.lkey() ^ 0x5a5a00}});
}

void End::check(const Batch &batch)
{
	if (operation_.kind == Kind::fault)
		return;
	if (operation_.takes_receive())
		check_receives(batch);
	if (operation_.atomic())
		return check_word(batch);
	/* UC has no ACKs, so nothing says when the last WRITE has arrived. */
	if (operation_.type == IBV_QPT_UC)
		eventually([&] { return wrong_byte(batch).empty(); }, 5s);
	compare(batch);
}

void End::check_receives(const Batch &batch)
{
	const auto all = wait(recv_cq_, batch.count);

	for (std::uint32_t i = 0; i < batch.count; i++) {
		must_succeed(all[i]);
		check_receive(batch, i, all[i]);
	}
}

void End::check_receive(const Batch &batch, std::uint32_t index, const ibv_wc &wc) const
{
	const bool datagram = operation_.type == IBV_QPT_UD;
	const auto complain = [&](const char *what) {
		throw std::runtime_error("receive " + std::to_string(index) + ": wrong " + what);
	};

	if (wc.wr_id != index)
		complain("order");
	if (wc.byte_len != batch.size + (datagram ? grh_bytes : 0))
		complain("length");
	if (wc.opcode != (operation_.kind == Kind::send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM))
		complain("opcode");
	if (operation_.immediate() && !(wc.wc_flags & IBV_WC_WITH_IMM))
		complain("flags: no immediate data");
	if (operation_.immediate() && wc.imm_data != immediate_of(batch, index))
		complain("immediate data");
	if (operation_.opcode == IBV_WR_SEND_WITH_INV &&
	    (!(wc.wc_flags & invalidated) || wc.invalidated_rkey != windows_[index]->rkey))
		complain("invalidated key");
	if (!datagram)
		return;
	if (wc.src_qp != peer_.qp_num)
		complain("source queue pair");
	if (!(wc.wc_flags & IBV_WC_GRH))
		complain("flags: no GRH");
	check_grh(index);
}

/* A datagram over IPv4 has its header in the last 20 bytes (IBTA annex 17.4.5.2). */
void End::check_grh(std::uint32_t index) const
{
	const auto *grh = region_.data() + index * 64;
	const bool v4 = peer_.gid.raw[10] == 0xff && peer_.gid.raw[11] == 0xff &&
			peer_.gid.global.subnet_prefix == 0;
	const bool good = v4 ? !std::memcmp(grh + 32, peer_.gid.raw + 12, 4) &&
					  !std::memcmp(grh + 36, own_.gid.raw + 12, 4)
			     : !std::memcmp(grh + 8, peer_.gid.raw, 16) &&
					  !std::memcmp(grh + 24, own_.gid.raw, 16);

	if (!good)
		throw std::runtime_error("receive " + std::to_string(index) +
					 ": wrong addresses before the datagram");
}

void End::check_word(const Batch &batch) const
{
	std::uint64_t word = 0;
	const auto step = operation_.kind == Kind::fetch_add ? addend(batch) : 1;

	std::memcpy(&word, bytes(batch, 0).data(), sizeof(word));
	if (word != first_word(batch) + batch.count * step)
		throw std::runtime_error("the word is not what the atomics make of it");
}

/* --------------------------------------------------------------- client */

void End::run(const Batch &batch, const std::string &prepared)
{
	std::istringstream answers(prepared);
	const auto opcode_of = [&] {
		switch (operation_.kind) {
		case Kind::send:
			return IBV_WC_SEND;
		case Kind::read:
			return IBV_WC_RDMA_READ;
		case Kind::fetch_add:
			return IBV_WC_FETCH_ADD;
		case Kind::compare_swap:
			return IBV_WC_COMP_SWAP;
		case Kind::atomic_write:
			return IBV_WC_ATOMIC_WRITE;
		default:
			return IBV_WC_RDMA_WRITE;
		}
	};

	paint(batch);
	if (operation_.kind == Kind::send || operation_.kind == Kind::write ||
	    operation_.kind == Kind::atomic_write)
		fill(batch);
	for (std::uint32_t i = 0; i < batch.count; i++) {
		if (operation_.kind == Kind::atomic_write)
			post_atomic_write(batch, i);
		else
			post(qp_, request(batch, i, answers));
	}
	if (operation_.kind == Kind::fault)
		return expect_fault();
	const auto all = wait(send_cq_, batch.count);
	for (std::uint32_t i = 0; i < batch.count; i++) {
		must_succeed(all[i]);
		if (all[i].wr_id != i || all[i].opcode != opcode_of())
			throw std::runtime_error("completion " + std::to_string(i) +
						 " has another order or opcode");
	}
	if (operation_.kind == Kind::read)
		compare(batch);
	if (operation_.atomic())
		check_results(batch);
}

void End::post_atomic_write(const Batch &batch, std::uint32_t index)
{
	ibv_qp_ex *qp = ibv_qp_to_qp_ex(qp_);

	ibv_wr_start(qp);
	qp->wr_id = index;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_write(qp, peer_.rkey, peer_.base + slot(batch, index),
			    bytes(batch, index).data());
	must(ibv_wr_complete(qp), "wr_complete");
}

Send End::request(const Batch &batch, std::uint32_t index, std::istream &prepared)
{
	Send send(operation_.opcode, pieces(batch, index));
	const auto there = peer_.base + slot(batch, operation_.atomic() ? 0 : index);

	send.id(index);
	if (operation_.immediate())
		send.imm(immediate_of(batch, index));
	if (operation_.opcode == IBV_WR_SEND_WITH_INV)
		prepared >> send.wr.invalidate_rkey;
	if (operation_.type == IBV_QPT_UD)
		send.wr.wr.ud = {ah_, peer_.qp_num, qkey};
	else if (operation_.kind == Kind::fetch_add)
		send.atomic(there, peer_.rkey, addend(batch));
	else if (operation_.kind == Kind::compare_swap)
		send.atomic(there, peer_.rkey, first_word(batch) + index,
			    first_word(batch) + index + 1);
	else if (operation_.kind != Kind::send)
		send.remote(there, peer_.rkey);
	if (operation_.expected == IBV_WC_REM_ACCESS_ERR)
		send.remote(there, peer_.rkey ^ 0x5a5a00);
	return send;
}

void End::expect_fault()
{
	const auto wc = wait(send_cq_, 1).front();

	if (wc.status != operation_.expected)
		throw std::runtime_error("expected " + status_name(operation_.expected) + ", got " +
					 verify::describe(wc));
}

/* Each atomic returns what the one before it left. */
void End::check_results(const Batch &batch) const
{
	const auto step = operation_.kind == Kind::fetch_add ? addend(batch) : 1;

	for (std::uint32_t i = 0; i < batch.count; i++) {
		std::uint64_t word = 0;
		std::memcpy(&word, bytes(batch, i).data(), sizeof(word));
		if (word != first_word(batch) + i * step)
			throw std::runtime_error("atomic " + std::to_string(i) +
						 " returned another value");
	}
}

std::vector<ibv_wc> End::wait(ibv_cq *cq, std::size_t count) const
{
	std::vector<ibv_wc> all;

	eventually(
		[&] {
			const auto more = drain(cq, count - all.size());
			all.insert(all.end(), more.begin(), more.end());
			return all.size() == count ||
			       std::any_of(all.begin(), all.end(),
					   [](const auto &wc) { return wc.status; });
		},
		options_.limit);
	for (const auto &wc : all)
		if (wc.status != IBV_WC_SUCCESS && operation_.kind != Kind::fault)
			throw std::runtime_error(verify::describe(wc));
	if (all.size() < count)
		throw std::runtime_error(std::to_string(all.size()) + " of " +
					 std::to_string(count) + " completions in time");
	return all;
}

std::string describe(const ibv_wc &wc)
{
	return "work request " + std::to_string(wc.wr_id) + ": " + status_name(wc.status) +
	       ", vendor_err " + std::to_string(wc.vendor_err);
}

} // namespace verify
