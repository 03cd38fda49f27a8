// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The verbs of device memory. See verbs.h.
 */
#include "mem/dm.h"
#include "mem/mr.h"
#include "queue/context.h"
#include "verbs/dev.h"
#include "verbs/methods.h"
#include "verbs/verbs.h"

struct ib_dm *peal_verbs_alloc_dm(struct ib_device *ib, struct ib_ucontext *uctx,
				  struct ib_dm_alloc_attr *attr, struct uverbs_attr_bundle *attrs)
{
	struct peal_account *account = peal_verbs_account(peal_dev(ib), &attrs->driver_udata);
	struct peal_dm *dm = peal_dm_create(uctx, account, attr->length, attr->alignment);

	return IS_ERR(dm) ? ERR_CAST(dm) : &dm->ib;
}

/* The core has refused while a region is registered. */
int peal_verbs_dealloc_dm(struct ib_dm *ib, struct uverbs_attr_bundle *attrs)
{
	peal_dm_destroy(peal_dm(ib));
	return 0;
}

/* The core has compared the range with the memory's length. */
struct ib_mr *peal_verbs_reg_dm_mr(struct ib_pd *pd, struct ib_dm *ib,
				   struct ib_dm_mr_attr *attr, struct uverbs_attr_bundle *attrs)
{
	struct peal_dev *dev = peal_dev(pd->device);

	return peal_mr_register_map(&dev->nic.table, peal_verbs_account(dev, &attrs->driver_udata),
				    pd, peal_dm(ib)->map, attr->offset, attr->length,
				    attr->access_flags);
}

/* A program maps its device memory, or memory that it has imported. */
static int UVERBS_HANDLER(PEAL_METHOD_QUERY_DM)(struct uverbs_attr_bundle *attrs)
{
	struct ib_dm *ib = uverbs_attr_get_obj(attrs, PEAL_ATTR_QUERY_DM_HANDLE);
	struct peal_query_dm_resp resp;

	if (IS_ERR(ib))
		return PTR_ERR(ib);
	peal_dm_describe(peal_dm(ib), &resp);
	return uverbs_copy_to_struct_or_zero(attrs, PEAL_ATTR_QUERY_DM_RESP, &resp, sizeof(resp));
}

DECLARE_UVERBS_NAMED_METHOD(PEAL_METHOD_QUERY_DM,
			    UVERBS_ATTR_IDR(PEAL_ATTR_QUERY_DM_HANDLE, UVERBS_OBJECT_DM,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(PEAL_ATTR_QUERY_DM_RESP,
						UVERBS_ATTR_STRUCT(struct peal_query_dm_resp,
								   length),
						UA_MANDATORY));

ADD_UVERBS_METHODS(peal_verbs_dm_methods, UVERBS_OBJECT_DM, &UVERBS_METHOD(PEAL_METHOD_QUERY_DM));

const struct uapi_definition peal_verbs_dm_attributes[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DM, &peal_verbs_dm_methods),
	{}
};
