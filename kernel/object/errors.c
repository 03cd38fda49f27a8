// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See errors.h.
 */
#include <linux/cred.h>
#include <linux/ktime.h>
#include <linux/nsproxy.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <rdma/peal-abi.h>

#include "base/compat.h"
#include "base/epoch.h"
#include "object/errors.h"
#include "object/mr.h"
#include "object/qp.h"

struct peal_errors *peal_errors_alloc(void)
{
	struct peal_errors *errors = kvzalloc(sizeof(*errors), GFP_KERNEL);

	if (errors)
		spin_lock_init(&errors->lock);
	return errors;
}

/*
 * What the key of @error names. The check has failed a moment ago, and the key may have changed or
 * gone since. A record says what is there now.
 */
static void peal_error_describe_key(struct peal_error *error, struct peal_table *table)
{
	const struct peal_key *key = peal_table_key(table, error->key);

	peal_epoch_assert_held();
	if (!key || READ_ONCE(key->value) != error->key)
		return;
	error->key_found = true;
	error->key_pdn = READ_ONCE(key->pd)->res.id;
	error->key_access = READ_ONCE(key->access);
	error->key_start = READ_ONCE(key->iova);
	error->key_length = READ_ONCE(key->length);
}

/* Name the entry of the scatter-gather list that is refused. */
static void peal_error_describe_local(struct peal_error *error, struct peal_table *table,
				      const struct ib_pd *pd, const struct peal_sge *sge,
				      u32 num_sge, enum peal_key_use use)
{
	struct peal_target target;
	u32 i;

	for (i = 0; i < num_sge; i++) {
		if (!sge[i].length)
			continue;
		if (!peal_mr_local(table, pd, &sge[i], use, &target)) {
			peal_target_end(&target);
			continue;
		}
		error->key = sge[i].lkey;
		error->has_key = true;
		error->address = sge[i].addr;
		error->length = sge[i].length;
		error->pdn = pd->res.id;
		peal_error_describe_key(error, table);
		return;
	}
}

static bool peal_error_is_local(u32 reason)
{
	return reason >= PEAL_REASON_LKEY_UNKNOWN && reason <= PEAL_REASON_LKEY_ACCESS;
}

static bool peal_error_is_receive(u32 reason)
{
	return reason >= PEAL_REASON_RECV_LKEY_UNKNOWN && reason <= PEAL_REASON_RECV_LKEY_ACCESS;
}

/*
 * Return: where a new record of @payer goes: its oldest record if it has its share, or else an
 * unused place or the oldest record. An unused record has the time 0.
 */
static u32 peal_errors_place(const struct peal_errors *errors, kuid_t payer)
{
	u32 i, own = 0, oldest = 0, oldest_own = 0;
	const struct peal_error *record;

	lockdep_assert_held(&errors->lock);
	for (i = 0; i < PEAL_ERRORS; i++) {
		record = &errors->record[i];
		if (record->at < errors->record[oldest].at)
			oldest = i;
		if (!record->serial || !uid_eq(record->payer, payer))
			continue;
		if (!own++ || record->at < errors->record[oldest_own].at)
			oldest_own = i;
	}
	return own >= PEAL_ERRORS_SHARE ? oldest_own : oldest;
}

/* A queue pair has one record for each side, which its next error replaces. */
static void peal_errors_add(struct peal_qp *qp, struct peal_error *error)
{
	struct peal_errors *errors = qp->table->errors;
	struct peal_error_places *places = &qp->errors;
	u32 place;

	error->at = ktime_get_ns();
	error->netns = places->netns;
	error->uid = places->uid;
	error->payer = peal_quota_uid(qp->account);
	error->qpn = qp->ib.qp_num;
	error->qp_type = qp->ib.qp_type;
	error->allowed = qp->attr.qp_access_flags;
	error->peer_gid = qp->attr.ah_attr.grh.dgid;
	spin_lock(&errors->lock);
	if (!places->serial)
		places->serial = ++errors->serials;
	place = places->place[error->side];
	if (errors->record[place].serial != places->serial ||
	    errors->record[place].side != error->side) {
		place = peal_errors_place(errors, error->payer);
		errors->record[place].count = 0;
		places->place[error->side] = place;
	}
	error->serial = places->serial;
	error->count = errors->record[place].count + 1;
	errors->record[place] = *error;
	spin_unlock(&errors->lock);
}

void peal_errors_add_failed(struct peal_qp *qp, const struct peal_wqe *wqe,
			    const struct peal_sge *sge, u8 status, u32 reason)
{
	const struct peal_op *op = peal_op(wqe->opcode);
	struct peal_error error = {
		.side = PEAL_ERROR_REQUESTER, .opcode = wqe->opcode, .status = status,
		.reason = reason, .peer_qpn = qp->attr.dest_qp_num,
		.retries = qp->attr.retry_cnt, .rnr_retries = qp->attr.rnr_retry,
		.timeout = qp->attr.timeout, .key = op->remote ? wqe->rkey : 0,
		.has_key = op->remote,
		.address = op->remote ? wqe->remote_addr : 0, .length = wqe->length,
		.pdn = qp->ib.pd ? qp->ib.pd->res.id : 0, .wanted = op->access,
	};

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	if (peal_error_is_local(reason)) {
		error.wanted = op->sends ? 0 : IB_ACCESS_LOCAL_WRITE;
		peal_error_describe_local(&error, qp->table, qp->ib.pd, sge, wqe->num_sge,
					  op->sends ? PEAL_GATHER : PEAL_SCATTER);
	}
	peal_errors_add(qp, &error);
}

void peal_errors_add_refused(struct peal_qp *qp, const struct peal_wqe *wqe, u32 src_qpn,
			     u8 status, u32 reason)
{
	const struct peal_op *op = peal_op(wqe->opcode);
	const struct peal_recv *recv = &qp->rq.wqe;
	struct peal_error error = {
		.side = PEAL_ERROR_RESPONDER, .opcode = wqe->opcode, .status = status,
		.reason = reason, .peer_qpn = src_qpn, .key = op->remote ? wqe->rkey : 0,
		.has_key = op->remote,
		.address = op->remote ? wqe->remote_addr : 0, .length = wqe->length,
		.room = qp->rq.holding ? recv->length : 0, .wanted = op->access,
		.pdn = qp->rkey_pd ? qp->rkey_pd->res.id : 0,
	};

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->rq.lock);
	if (peal_error_is_receive(reason)) {
		error.wanted = IB_ACCESS_LOCAL_WRITE;
		peal_error_describe_local(&error, qp->table, qp->recv_pd, recv->sge, recv->num_sge,
					  PEAL_RECEIVE);
	} else if (op->remote) {
		peal_error_describe_key(&error, qp->table);
	}
	peal_errors_add(qp, &error);
}

void peal_errors_set_owner(struct peal_qp *qp)
{
	const struct cred *cred = current_cred();

	qp->errors.netns = current->nsproxy->net_ns->net_cookie;
	if (uid_eq(cred->uid, cred->euid) && uid_eq(cred->uid, cred->suid))
		qp->errors.uid = cred->uid;
}

/*
 * User 0 of a container may be user 0 of the host, so the user alone says little. Administrators of
 * a container may have CAP_NET_ADMIN in the initial user namespace, but see no other container's.
 */
static bool peal_error_is_visible(const struct peal_error *error,
				  const struct peal_error_reader *reader)
{
	if (reader->netns != error->netns)
		return reader->admin && reader->netns == init_net.net_cookie;
	return reader->admin || uid_eq(reader->uid, error->uid);
}

bool peal_errors_get(struct peal_errors *errors, u32 n, const struct peal_error_reader *reader,
		     struct peal_error *error)
{
	spin_lock_bh(&errors->lock);
	*error = errors->record[n];
	spin_unlock_bh(&errors->lock);
	return error->serial && peal_error_is_visible(error, reader);
}
