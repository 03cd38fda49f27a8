// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Fast registration (REG_MR), local and remote invalidation. Two connected queue pairs, `a` sends
 * and `b` responds, and two more whose requests race with invalidations.
 *
 * Holds: Lists of pages and lists with gaps are registered and give access to exactly their bytes.
 * Each rule of REG_MR, LOCAL_INV and SEND_INV is checked, with its status and reason. Work requests
 * keep their order. After an invalidation no CPU touches the pages.
 * Does not hold: the services of the kernel that use it (test/guest/services).
 */
#include <linux/kthread.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <rdma/ib_verbs.h>
#include <rdma/peal-abi.h>

#include "ktest.h"

#define KREG_PAGES	600
#define KREG_ALL	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE)

struct kreg {
	struct ib_device *dev;
	struct ib_pd *pd, *other_pd;
	struct ib_cq *cq, *racer_cq;
	struct ib_qp *a, *b, *racer, *raced;
	struct ib_mr *mr;
	struct page *pages[KREG_PAGES];		/* not adjacent */
	struct scatterlist sg[KREG_PAGES];
	struct page *local;			/* one page for the requester */
	u64 race_address;
	u32 race_key;
	int error;
};

/* ---- work requests ---- */

static struct ib_sge kreg_local(struct kreg *t, u32 length)
{
	return (struct ib_sge){ (uintptr_t)page_address(t->local), length, t->pd->local_dma_lkey };
}

static struct ib_reg_wr kreg_reg(struct kreg *t, int access)
{
	return (struct ib_reg_wr){
		.wr = { .opcode = IB_WR_REG_MR, .wr_id = 1, .send_flags = IB_SEND_SIGNALED },
		.mr = t->mr, .key = t->mr->rkey, .access = access,
	};
}

static struct ib_send_wr kreg_inv(u32 key)
{
	return (struct ib_send_wr){
		.opcode = IB_WR_LOCAL_INV, .wr_id = 2, .send_flags = IB_SEND_SIGNALED,
		.ex.invalidate_rkey = key,
	};
}

static struct ib_rdma_wr kreg_rdma(enum ib_wr_opcode opcode, struct ib_sge *sge, u64 address,
				   u32 key)
{
	return (struct ib_rdma_wr){
		.wr = { .opcode = opcode, .wr_id = 3, .send_flags = IB_SEND_SIGNALED,
			.sg_list = sge, .num_sge = 1 },
		.remote_addr = address, .rkey = key,
	};
}

/* Return: the completion of one work request. */
static struct ib_wc kreg_do(struct kreg *t, struct ib_qp *qp, const struct ib_send_wr *wr)
{
	const struct ib_send_wr *bad;
	struct ib_wc wc = { .status = -1 };

	if (!ib_post_send(qp, wr, &bad))
		ktest_wait(t->cq, &wc);
	return wc;
}

static struct ib_wc kreg_register(struct kreg *t, struct ib_qp *qp, int access)
{
	struct ib_reg_wr reg = kreg_reg(t, access);

	return kreg_do(t, qp, &reg.wr);
}

static struct ib_wc kreg_invalidate(struct kreg *t, struct ib_qp *qp, u32 key)
{
	struct ib_send_wr inv = kreg_inv(key);

	return kreg_do(t, qp, &inv);
}

/* A WRITE to, or a READ from, the region. */
static struct ib_wc kreg_access(struct kreg *t, enum ib_wr_opcode opcode, u64 offset, u32 length)
{
	struct ib_sge sge = kreg_local(t, length);
	struct ib_rdma_wr rdma = kreg_rdma(opcode, &sge, t->mr->iova + offset, t->mr->rkey);

	return kreg_do(t, t->a, &rdma.wr);
}

static bool kreg_is(const struct ib_wc *wc, enum ib_wc_status status, u32 reason)
{
	if (wc->status == status && (wc->vendor_err == reason || !status))
		return true;
	pr_info("peal_ktest: status %d reason %u\n", wc->status, wc->vendor_err);
	return false;
}

/* After an error. What was flushed is polled and forgotten. */
static int kreg_reconnect(struct ib_cq *cq, struct ib_qp *one, struct ib_qp *two)
{
	struct ib_qp_attr reset = { .qp_state = IB_QPS_RESET };
	struct ib_wc wc;
	int ret = ib_modify_qp(one, &reset, IB_QP_STATE) ?:
		  ib_modify_qp(two, &reset, IB_QP_STATE) ?:
		  ktest_connect_to(one, two->qp_num) ?: ktest_connect_to(two, one->qp_num);

	while (ib_poll_cq(cq, 1, &wc) > 0)
		;
	return ret;
}

static int kreg_again(struct kreg *t)
{
	return kreg_reconnect(t->cq, t->a, t->b);
}

/* ---- memory ---- */

static u8 kreg_byte(u64 i)
{
	return i * 7 + (i >> 8) * 13 + 1;
}

static void kreg_fill_local(struct kreg *t)
{
	u8 *bytes = page_address(t->local);
	int i;

	for (i = 0; i < PAGE_SIZE; i++)
		bytes[i] = kreg_byte(i);
}

static void kreg_zero(struct kreg *t)
{
	int i;

	for (i = 0; i < KREG_PAGES; i++)
		memset(page_address(t->pages[i]), 0, PAGE_SIZE);
}

/* Return: how many entries were mapped. */
static int kreg_map_pages(struct kreg *t, int first, int count)
{
	int i, ret;

	sg_init_table(t->sg, count);
	for (i = 0; i < count; i++)
		sg_set_page(&t->sg[i], t->pages[first + i], PAGE_SIZE, 0);
	ret = ib_dma_map_sg(t->dev, t->sg, count, DMA_BIDIRECTIONAL);
	return ret ? ib_map_mr_sg(t->mr, t->sg, ret, NULL, PAGE_SIZE) : ret;
}

/* Pieces of odd lengths at odd places: the piece i has kreg_gap_length(i) bytes. */
static u32 kreg_gap_length(int i)
{
	return 1 + i * 97 % 3000;
}

static int kreg_map_gaps(struct kreg *t, int count)
{
	int i;

	sg_init_table(t->sg, count);
	for (i = 0; i < count; i++)
		sg_set_page(&t->sg[i], t->pages[i], kreg_gap_length(i), 3 + i % 1000);
	i = ib_dma_map_sg(t->dev, t->sg, count, DMA_BIDIRECTIONAL);
	return i ? ib_map_mr_sg(t->mr, t->sg, i, NULL, PAGE_SIZE) : i;
}

/* The address of the byte at @offset of what is mapped. */
static u8 *kreg_at(struct kreg *t, u64 offset)
{
	int i = 0;

	while (offset >= t->sg[i].length)
		offset -= t->sg[i++].length;
	return (u8 *)sg_virt(&t->sg[i]) + offset;
}

static bool kreg_differs(struct kreg *t, u64 offset, u32 length)
{
	u32 i;

	for (i = 0; i < length; i++)
		if (*kreg_at(t, offset + i) != kreg_byte(i))
			return true;
	return false;
}

static int kreg_alloc(struct kreg *t, enum ib_mr_type type, u32 pages)
{
	t->mr = ib_alloc_mr(t->pd, type, pages);
	return PTR_ERR_OR_ZERO(t->mr);
}

/* ---- the tests ---- */

/* Write and read back @length bytes at @offset. */
static void kreg_move(struct kreg *t, u64 offset, u32 length)
{
	struct ib_wc wc;

	kreg_fill_local(t);
	wc = kreg_access(t, IB_WR_RDMA_WRITE, offset, length);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
	KTEST_CHECK(t, !kreg_differs(t, offset, length));
	memset(page_address(t->local), 0, length);
	wc = kreg_access(t, IB_WR_RDMA_READ, offset, length);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
	memset(kreg_at(t, offset), 0, 1);
	KTEST_CHECK(t, *(u8 *)page_address(t->local) == kreg_byte(0));
	KTEST_CHECK(t, ((u8 *)page_address(t->local))[length - 1] == kreg_byte(length - 1));
}

static void kreg_test_pages(struct kreg *t)
{
	struct ib_device_attr *attr = &t->dev->attrs;
	struct ib_wc wc;
	int count;

	KTEST_CHECK(t, attr->device_cap_flags & IB_DEVICE_MEM_MGT_EXTENSIONS);
	KTEST_CHECK(t, attr->max_fast_reg_page_list_len >= KREG_PAGES);
	for (count = 1; count <= KREG_PAGES && !t->error; count = count * 5 + 3) {
		KTEST_CHECK(t, kreg_map_pages(t, 0, count) == count);
		KTEST_CHECK(t, t->mr->length == (u64)count * PAGE_SIZE);
		wc = kreg_register(t, t->b, KREG_ALL);
		KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0) && wc.opcode == IB_WC_REG_MR);
		kreg_move(t, 0, PAGE_SIZE);
		kreg_move(t, t->mr->length / 2 + 13, PAGE_SIZE / 2 - 13);
		kreg_move(t, t->mr->length - 100, 100);
		wc = kreg_invalidate(t, t->b, t->mr->rkey);
		KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0) && wc.opcode == IB_WC_LOCAL_INV);
	}
}

static void kreg_test_outside(struct kreg *t)
{
	struct ib_wc wc;

	KTEST_CHECK(t, kreg_map_pages(t, 0, 2) == 2);
	wc = kreg_register(t, t->b, KREG_ALL);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
	wc = kreg_access(t, IB_WR_RDMA_WRITE, 2 * PAGE_SIZE - 99, 100);
	KTEST_CHECK(t, wc.status == IB_WC_REM_ACCESS_ERR && !kreg_again(t));
	wc = kreg_access(t, IB_WR_RDMA_WRITE, -1, 1);
	KTEST_CHECK(t, wc.status == IB_WC_REM_ACCESS_ERR && !kreg_again(t));
	wc = kreg_invalidate(t, t->b, t->mr->rkey);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
}

static void kreg_test_rights(struct kreg *t)
{
	struct ib_wc wc;

	KTEST_CHECK(t, kreg_map_pages(t, 0, 1) == 1);
	wc = kreg_register(t, t->b, IB_ACCESS_REMOTE_READ);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
	wc = kreg_access(t, IB_WR_RDMA_READ, 0, 8);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
	wc = kreg_access(t, IB_WR_RDMA_WRITE, 0, 8);
	KTEST_CHECK(t, wc.status == IB_WC_REM_ACCESS_ERR && !kreg_again(t));
	wc = kreg_invalidate(t, t->b, t->mr->rkey);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
}

/* A key gives no access before the registration, after the invalidation, and when it is old. */
static void kreg_test_keys(struct kreg *t)
{
	u32 old;
	struct ib_wc wc;

	KTEST_CHECK(t, kreg_map_pages(t, 0, 1) == 1);
	wc = kreg_access(t, IB_WR_RDMA_READ, 0, 8);
	KTEST_CHECK(t, wc.status == IB_WC_REM_ACCESS_ERR && !kreg_again(t));
	wc = kreg_register(t, t->b, KREG_ALL);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
	old = t->mr->rkey;
	wc = kreg_invalidate(t, t->b, old);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
	wc = kreg_access(t, IB_WR_RDMA_READ, 0, 8);
	KTEST_CHECK(t, wc.status == IB_WC_REM_ACCESS_ERR && !kreg_again(t));

	ib_update_fast_reg_key(t->mr, ib_inc_rkey(old));
	KTEST_CHECK(t, t->mr->rkey != old && t->mr->rkey >> 8 == old >> 8);
	wc = kreg_register(t, t->b, KREG_ALL);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
	kreg_move(t, 5, 100);
	KTEST_CHECK(t, !t->error);
	wc = kreg_invalidate(t, t->b, old);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_LOC_QP_OP_ERR, PEAL_REASON_INV_RKEY) && !kreg_again(t));
	kreg_move(t, 5, 100);
	KTEST_CHECK(t, !t->error);
	wc = kreg_invalidate(t, t->b, t->mr->rkey);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
	wc = kreg_invalidate(t, t->b, t->mr->rkey);	/* may be invalid already */
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
}

static void kreg_check_refused(struct kreg *t, const struct ib_reg_wr *reg, u32 reason)
{
	struct ib_wc wc = kreg_do(t, t->b, &reg->wr);

	KTEST_CHECK(t, kreg_is(&wc, IB_WC_MW_BIND_ERR, reason));
	KTEST_CHECK(t, !kreg_again(t));
}

static void kreg_test_refused(struct kreg *t)
{
	struct ib_reg_wr reg;
	struct ib_wc wc;

	KTEST_CHECK(t, kreg_map_pages(t, 0, 2) == 2);
	reg = kreg_reg(t, KREG_ALL);
	reg.key ^= 0x100;
	kreg_check_refused(t, &reg, PEAL_REASON_REG_KEY);
	reg = kreg_reg(t, IB_ACCESS_REMOTE_WRITE);
	kreg_check_refused(t, &reg, PEAL_REASON_REG_ACCESS);
	reg = kreg_reg(t, KREG_ALL | IB_ACCESS_MW_BIND);
	kreg_check_refused(t, &reg, PEAL_REASON_REG_ACCESS);
	t->mr->length++;
	reg = kreg_reg(t, KREG_ALL);
	kreg_check_refused(t, &reg, PEAL_REASON_REG_RANGE);
	t->mr->length--;
	reg = kreg_reg(t, KREG_ALL);
	wc = kreg_do(t, t->b, &reg.wr);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
	kreg_check_refused(t, &reg, PEAL_REASON_REG_STATE);
	kreg_move(t, 5, 100);	/* what is registered stays */
	KTEST_CHECK(t, !t->error);
	wc = kreg_invalidate(t, t->b, t->mr->rkey);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
}

/* A region of another protection domain is none. */
static void kreg_test_domains(struct kreg *t)
{
	struct ib_mr *mine = t->mr;
	struct ib_reg_wr reg;
	struct ib_wc wc;

	t->mr = ib_alloc_mr(t->other_pd, IB_MR_TYPE_MEM_REG, 2);
	KTEST_CHECK(t, !IS_ERR(t->mr));
	reg = kreg_reg(t, KREG_ALL);
	kreg_check_refused(t, &reg, PEAL_REASON_REG_KEY);
	wc = kreg_invalidate(t, t->b, t->mr->rkey);
	ib_dereg_mr(t->mr);
	t->mr = mine;
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_LOC_QP_OP_ERR, PEAL_REASON_INV_RKEY));
	KTEST_CHECK(t, !kreg_again(t));
}

static struct ib_wc kreg_send_inv(struct kreg *t, u32 key, struct ib_wc *recv)
{
	struct ib_sge sge = kreg_local(t, 64);
	struct ib_recv_wr receive = { .wr_id = 9, .sg_list = &sge, .num_sge = 1 };
	struct ib_send_wr send = {
		.opcode = IB_WR_SEND_WITH_INV, .wr_id = 4, .send_flags = IB_SEND_SIGNALED,
		.ex.invalidate_rkey = key,
	};
	const struct ib_recv_wr *bad;
	struct ib_wc wc = { .status = -1 };

	recv->status = -1;
	if (ib_post_recv(t->b, &receive, &bad))
		return wc;
	wc = kreg_do(t, t->a, &send);
	ktest_wait(t->cq, recv);
	if (wc.wr_id == 9)
		swap(wc, *recv);
	return wc;
}

static void kreg_test_remote(struct kreg *t)
{
	struct ib_wc wc, recv;
	int i;

	for (i = 0; i < 3; i++) {
		KTEST_CHECK(t, kreg_map_pages(t, i, 2) == 2);
		wc = kreg_register(t, t->b, KREG_ALL);
		KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
		kreg_move(t, 5, 100);
		KTEST_CHECK(t, !t->error);
		wc = kreg_send_inv(t, t->mr->rkey, &recv);
		KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0) && !recv.status);
		KTEST_CHECK(t, recv.wc_flags & IB_WC_WITH_INVALIDATE);
		KTEST_CHECK(t, recv.ex.invalidate_rkey == t->mr->rkey);
		wc = kreg_access(t, IB_WR_RDMA_READ, 0, 8);
		KTEST_CHECK(t, wc.status == IB_WC_REM_ACCESS_ERR && !kreg_again(t));
	}
	wc = kreg_send_inv(t, t->mr->rkey ^ 0x40000, &recv);
	KTEST_CHECK(t, wc.status == IB_WC_REM_ACCESS_ERR);
	KTEST_CHECK(t, recv.status == IB_WC_LOC_ACCESS_ERR && !kreg_again(t));
}

/* The pages of the next registration are mapped while the region is registered. */
static void kreg_test_next(struct kreg *t)
{
	struct ib_send_wr inv;
	struct ib_reg_wr reg;
	const struct ib_send_wr *bad;
	struct ib_wc wc;
	u64 iova;
	int i;

	kreg_zero(t);
	KTEST_CHECK(t, kreg_map_pages(t, 0, 4) == 4);
	iova = t->mr->iova;
	wc = kreg_register(t, t->b, KREG_ALL);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
	for (i = 1; i < 20; i++) {
		KTEST_CHECK(t, kreg_map_pages(t, i, 4) == 4);
		wc = kreg_access(t, IB_WR_RDMA_WRITE, iova - t->mr->iova, 64);
		KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
		KTEST_CHECK(t, !memcmp(page_address(t->pages[i - 1]), page_address(t->local), 64));
		inv = kreg_inv(t->mr->rkey);
		ib_update_fast_reg_key(t->mr, ib_inc_rkey(t->mr->rkey));
		reg = kreg_reg(t, KREG_ALL);
		inv.next = &reg.wr;
		inv.send_flags = 0;
		KTEST_CHECK(t, !ib_post_send(t->b, &inv, &bad) && ktest_wait(t->cq, &wc));
		KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0) && wc.opcode == IB_WC_REG_MR);
		iova = t->mr->iova;
		kreg_move(t, 5, 1000);
		KTEST_CHECK(t, !t->error);
	}
	wc = kreg_invalidate(t, t->b, t->mr->rkey);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
}

/*
 * Register, send from the region, and invalidate, in one list. The message that sends from it must
 * have been sent before the invalidation.
 */
static void kreg_test_order(struct kreg *t)
{
	struct ib_sge sge;
	struct ib_reg_wr reg;
	struct ib_rdma_wr write;
	struct ib_send_wr inv;
	const struct ib_send_wr *bad;
	u8 *to = page_address(t->local);
	struct ib_wc wc;
	int i;

	for (i = 0; i < 50; i++) {
		KTEST_CHECK(t, kreg_map_pages(t, i, 1) == 1);
		memset(page_address(t->pages[i]), i + 1, PAGE_SIZE);
		memset(to, 0, PAGE_SIZE);
		ib_update_fast_reg_key(t->mr, ib_inc_rkey(t->mr->rkey));
		sge = (struct ib_sge){ t->mr->iova, PAGE_SIZE, t->mr->lkey };
		reg = kreg_reg(t, 0);
		write = kreg_rdma(IB_WR_RDMA_WRITE, &sge, (uintptr_t)to, t->pd->unsafe_global_rkey);
		inv = kreg_inv(t->mr->lkey);
		reg.wr.next = &write.wr;
		write.wr.next = &inv;
		reg.wr.send_flags = 0;
		write.wr.send_flags = 0;
		KTEST_CHECK(t, !ib_post_send(t->a, &reg.wr, &bad) && ktest_wait(t->cq, &wc));
		KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0) && wc.opcode == IB_WC_LOCAL_INV);
		KTEST_CHECK(t, !memchr_inv(to, i + 1, PAGE_SIZE));
	}
}

static void kreg_test_gaps(struct kreg *t)
{
	struct ib_wc wc;
	u64 at;
	int i;

	KTEST_CHECK(t, t->dev->attrs.kernel_cap_flags & IBK_SG_GAPS_REG);
	kreg_zero(t);
	KTEST_CHECK(t, kreg_map_gaps(t, 300) == 300);
	for (i = 0, at = 0; i < 300; i++)
		at += kreg_gap_length(i);
	KTEST_CHECK(t, t->mr->length == at);
	wc = kreg_register(t, t->b, KREG_ALL);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
	for (at = 0; at + 4000 < t->mr->length && !t->error; at += 7919)
		kreg_move(t, at, 4000);
	KTEST_CHECK(t, !t->error);
	kreg_move(t, t->mr->length - 1, 1);
	for (i = 0; i < 300; i++) {	/* the bytes around the pieces */
		u8 *page = page_address(t->pages[i]);

		KTEST_CHECK(t, !page[2 + i % 1000]);
		KTEST_CHECK(t, !page[3 + i % 1000 + kreg_gap_length(i)]);
	}
	wc = kreg_access(t, IB_WR_RDMA_WRITE, t->mr->length - 1, 2);
	KTEST_CHECK(t, wc.status == IB_WC_REM_ACCESS_ERR && !kreg_again(t));
}

static struct ib_wc kreg_add_one(struct kreg *t, u64 offset)
{
	struct ib_sge sge = kreg_local(t, 8);
	struct ib_atomic_wr add = {
		.wr = { .opcode = IB_WR_ATOMIC_FETCH_AND_ADD, .wr_id = 4,
			.send_flags = IB_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1 },
		.remote_addr = t->mr->iova + offset, .rkey = t->mr->rkey, .compare_add = 1,
	};

	return kreg_do(t, t->a, &add.wr);
}

/* An atomic on a word that lies in two pieces changes neither them nor the bytes between. */
static void kreg_test_gap_atomics(struct kreg *t)
{
	u64 *first = page_address(t->pages[0]), *second = page_address(t->pages[1]);
	struct ib_wc wc = kreg_invalidate(t, t->b, t->mr->rkey);

	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
	kreg_zero(t);
	sg_init_table(t->sg, 2);
	sg_set_page(&t->sg[0], t->pages[0], 12, 0);
	sg_set_page(&t->sg[1], t->pages[1], PAGE_SIZE, 0);
	KTEST_CHECK(t, ib_dma_map_sg(t->dev, t->sg, 2, DMA_BIDIRECTIONAL) == 2);
	KTEST_CHECK(t, ib_map_mr_sg(t->mr, t->sg, 2, NULL, PAGE_SIZE) == 2);
	wc = kreg_register(t, t->b, KREG_ALL | IB_ACCESS_REMOTE_ATOMIC);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
	wc = kreg_add_one(t, 0);
	KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
	KTEST_CHECK(t, first[0] == 1);
	wc = kreg_add_one(t, 8);
	KTEST_CHECK(t, wc.status == IB_WC_REM_INV_REQ_ERR);
	KTEST_CHECK(t, first[0] == 1 && !first[1] && !second[0]);
	KTEST_CHECK(t, !kreg_again(t));
}

/* What ib_alloc_mr() and ib_map_mr_sg() refuse. */
static void kreg_test_limits(struct kreg *t)
{
	u32 most = t->dev->attrs.max_fast_reg_page_list_len;
	struct ib_mr *mr = ib_alloc_mr(t->pd, IB_MR_TYPE_MEM_REG, most);

	KTEST_CHECK(t, !IS_ERR(mr));
	ib_dereg_mr(mr);
	KTEST_CHECK(t, PTR_ERR(ib_alloc_mr(t->pd, IB_MR_TYPE_MEM_REG, most + 1)) == -EINVAL);
	KTEST_CHECK(t, PTR_ERR(ib_alloc_mr(t->pd, IB_MR_TYPE_MEM_REG, 0)) == -EINVAL);
	KTEST_CHECK(t, PTR_ERR(ib_alloc_mr(t->pd, IB_MR_TYPE_DM, 1)) == -EOPNOTSUPP);
	mr = t->mr;
	KTEST_CHECK(t, !kreg_alloc(t, IB_MR_TYPE_MEM_REG, 3));
	if (kreg_map_pages(t, 0, 5) != 3)
		t->error = -EIO;
	ib_dereg_mr(t->mr);
	t->mr = mr;
	KTEST_CHECK(t, !t->error);
}

/* Writes to the region until that fails. */
static int kreg_race(void *context)
{
	struct kreg *t = context;
	struct ib_sge sge = kreg_local(t, PAGE_SIZE);
	struct ib_rdma_wr write = kreg_rdma(IB_WR_RDMA_WRITE, &sge, t->race_address, t->race_key);
	const struct ib_send_wr *bad;
	struct ib_wc wc = {};

	while (!wc.status && !ib_post_send(t->racer, &write.wr, &bad))
		if (!ktest_wait(t->racer_cq, &wc))
			break;
	while (!kthread_should_stop())
		schedule_timeout_uninterruptible(1);
	return 0;
}

/* Another queue pair writes to the pages. After the invalidation they must not change any more. */
static void kreg_test_race(struct kreg *t)
{
	struct task_struct *task;
	struct ib_wc wc;
	u8 *page;
	int i;

	memset(page_address(t->local), 1, PAGE_SIZE);
	for (i = 0; i < 30; i++) {
		KTEST_CHECK(t, kreg_map_pages(t, 0, 1) == 1);
		page = page_address(t->pages[0]);
		memset(page, 0, PAGE_SIZE);
		wc = kreg_register(t, t->b, KREG_ALL);
		KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
		t->race_address = t->mr->iova;
		t->race_key = t->mr->rkey;
		task = kthread_run(kreg_race, t, "peal_kreg");
		KTEST_CHECK(t, !IS_ERR(task));
		while (!READ_ONCE(page[0]))
			cond_resched();
		wc = kreg_invalidate(t, t->b, t->mr->rkey);
		memset(page, 0xee, PAGE_SIZE);
		kthread_stop(task);
		KTEST_CHECK(t, kreg_is(&wc, IB_WC_SUCCESS, 0));
		KTEST_CHECK(t, !memchr_inv(page, 0xee, PAGE_SIZE));
		KTEST_CHECK(t, !kreg_reconnect(t->racer_cq, t->racer, t->raced));
	}
}

/* ---- setting up ---- */

static struct ib_qp *kreg_make_qp(struct kreg *t, struct ib_cq *cq)
{
	struct ib_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};

	return ib_create_qp(t->pd, &attr);
}

static int kreg_make_pair(struct kreg *t, struct ib_cq *cq, struct ib_qp **one,
			  struct ib_qp **two)
{
	*one = kreg_make_qp(t, cq);
	if (IS_ERR(*one))
		return PTR_ERR(*one);
	*two = kreg_make_qp(t, cq);
	if (IS_ERR(*two))
		return PTR_ERR(*two);
	return kreg_reconnect(cq, *one, *two);
}

static int kreg_make_pages(struct kreg *t)
{
	int i;

	t->local = alloc_page(GFP_KERNEL);
	if (!t->local)
		return -ENOMEM;
	for (i = 0; i < KREG_PAGES; i++) {
		/* From the end, so that two neighbours in the list are none in memory. */
		t->pages[i * 7 % KREG_PAGES] = alloc_page(GFP_KERNEL);
		if (!t->pages[i * 7 % KREG_PAGES])
			return -ENOMEM;
	}
	return 0;
}

static int kreg_make_objects(struct kreg *t)
{
	struct ib_cq_init_attr attr = { .cqe = 64 };

	t->pd = ib_alloc_pd(t->dev, IB_PD_UNSAFE_GLOBAL_RKEY);
	if (IS_ERR(t->pd))
		return PTR_ERR(t->pd);
	t->other_pd = ib_alloc_pd(t->dev, 0);
	if (IS_ERR(t->other_pd))
		return PTR_ERR(t->other_pd);
	t->cq = ib_create_cq(t->dev, NULL, NULL, NULL, &attr);
	if (IS_ERR(t->cq))
		return PTR_ERR(t->cq);
	t->racer_cq = ib_create_cq(t->dev, NULL, NULL, NULL, &attr);
	if (IS_ERR(t->racer_cq))
		return PTR_ERR(t->racer_cq);
	return kreg_make_pair(t, t->cq, &t->a, &t->b) ?:
	       kreg_make_pair(t, t->racer_cq, &t->racer, &t->raced);
}

static void kreg_free(struct kreg *t)
{
	struct ib_qp *qps[] = { t->a, t->b, t->racer, t->raced };
	int i;

	for (i = 0; i < ARRAY_SIZE(qps); i++)
		if (!IS_ERR_OR_NULL(qps[i]))
			ib_destroy_qp(qps[i]);
	if (!IS_ERR_OR_NULL(t->cq))
		ib_destroy_cq(t->cq);
	if (!IS_ERR_OR_NULL(t->racer_cq))
		ib_destroy_cq(t->racer_cq);
	if (!IS_ERR_OR_NULL(t->pd))
		ib_dealloc_pd(t->pd);
	if (!IS_ERR_OR_NULL(t->other_pd))
		ib_dealloc_pd(t->other_pd);
	for (i = 0; i < KREG_PAGES; i++)
		if (t->pages[i])
			__free_page(t->pages[i]);
	if (t->local)
		__free_page(t->local);
	vfree(t);
}

static void kreg_run(struct kreg *t, enum ib_mr_type type, void (*const tests[])(struct kreg *),
		     int count)
{
	int i;

	if (kreg_alloc(t, type, KREG_PAGES)) {
		t->error = -EIO;
		return;
	}
	for (i = 0; i < count && !t->error; i++)
		tests[i](t);
	ib_dereg_mr(t->mr);
}

int ktest_fast_reg(struct ib_device *dev)
{
	static void (*const page_tests[])(struct kreg *) = {
		kreg_test_pages, kreg_test_outside, kreg_test_rights, kreg_test_keys,
		kreg_test_refused, kreg_test_domains, kreg_test_remote, kreg_test_next,
		kreg_test_order, kreg_test_limits, kreg_test_race,
	};
	static void (*const gap_tests[])(struct kreg *) = {
		kreg_test_gaps, kreg_test_gap_atomics,
	};
	struct kreg *t = vzalloc(sizeof(*t));
	int ret;

	if (!t)
		return -ENOMEM;
	t->dev = dev;
	ret = kreg_make_pages(t) ?: kreg_make_objects(t);
	if (!ret)
		kreg_run(t, IB_MR_TYPE_MEM_REG, page_tests, ARRAY_SIZE(page_tests));
	if (!ret && !t->error)
		kreg_run(t, IB_MR_TYPE_SG_GAPS, gap_tests, ARRAY_SIZE(gap_tests));
	ret = ret ?: t->error;
	kreg_free(t);
	return ret;
}
