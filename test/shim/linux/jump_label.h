/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Static keys, which are ordinary counters here. */
#ifndef PEAL_SHIM_LINUX_JUMP_LABEL_H
#define PEAL_SHIM_LINUX_JUMP_LABEL_H

struct static_key_false {
	int enabled;
};

#define DECLARE_STATIC_KEY_FALSE(name)	extern struct static_key_false name
#define DEFINE_STATIC_KEY_FALSE(name)	struct static_key_false name
#define static_branch_unlikely(key)	__builtin_expect((key)->enabled > 0, 0)
#define static_branch_inc(key)		((void)(key)->enabled++)
#define static_branch_dec(key)		((void)(key)->enabled--)

#endif
