/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* How functions in assembly begin and end. */
#ifndef PEAL_SHIM_LINUX_LINKAGE_H
#define PEAL_SHIM_LINUX_LINKAGE_H

#define SYM_TYPED_FUNC_START(name)	.globl name; .type name, @function; .balign 16; name:
#define SYM_FUNC_END(name)	.size name, . - name
#define RET			ret

.section .note.GNU-stack, "", @progbits
.text

#endif
