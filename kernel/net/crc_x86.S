/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * CRC-32 by carry-less multiplication, alone and while copying. See crc.c, which chooses.
 *
 * Owns: one algorithm in three widths of registers, 16, 32 and 64 bytes. For 16 bytes there are two
 * encodings, SSE and AVX. AVX has a third operand, so it needs no instruction to copy a register,
 * and it copies by registers of 32 bytes. And a copy without a CRC, for what was checked before.
 * Does not know: which of them this CPU has, and whether its vector registers may be used now.
 *
 * A register holds bytes of the message, the first in the lowest byte. The bits of the message are
 * the coefficients of a polynomial over GF(2), the highest power first, as CRC-32 defines. "Fold
 * by D" replaces 16 bytes by 16 bytes that are congruent to them D bytes later, modulo the
 * polynomial of the CRC. They are added (exclusive or) to the bytes that are there.
 *
 * The copy reads each byte of the source once, because a program may change it meanwhile. The CRC
 * is then that of the bytes at the destination.
 */
#include <linux/cfi_types.h>
#include <linux/linkage.h>

#define FROM	%rdx
#define N	%rcx
#define TO	%rsi

/*
 * To fold by D bytes: x^(8D + 63), for the first 8 bytes, and x^(8D - 1), for the others, modulo
 * the polynomial. As a factor these 32 bits belong into the upper half of 8 bytes. The powers are
 * one less than 8D + 64 and 8D, because the product of two reflected numbers of 64 bits is
 * reflected in 127 bits, so that it counts as x times the product in 128.
 */
.section .rodata
.balign 16
.Lby_16:
	.quad	0x65673b4600000000, 0x9ba54c6f00000000
.Lby_32:
	.quad	0x9570d49500000000, 0x01b5fd1d00000000
.Lby_64:
	.quad	0x653d982200000000, 0xcad38e8f00000000
.Lby_128:
	.quad	0x7d657a1000000000, 0x7406fa9500000000
.Lby_256:
	.quad	0x7cc8e1e700000000, 0x03f9f86300000000
/*
 * x^96 modulo the polynomial, times x^31. It reduces 16 bytes and the four zeros that follow a
 * message to 12 bytes. Then Barrett's reduction of these to 4: x^96 divided by the polynomial,
 * divided by x, and the polynomial times x^31. A product counts as x times the product, as above.
 */
.Lreduce:
	.quad	0x00000000ccaa009e, 0xb4e5b025f7011641
.Lpolynomial:
	.quad	0x00000001db710641, 0
/*
 * For pshufb with n of 1 to 15: 16 bytes from n here move the first n bytes of a register to its
 * end. 16 bytes from n + 16 move the others to its begin. The rest becomes 0.
 */
.Lshift:
	.quad	0x8080808080808080, 0x8080808080808080
	.quad	0x0706050403020100, 0x0f0e0d0c0b0a0908
	.quad	0x8080808080808080, 0x8080808080808080
.text

/* Set \vec\()\i to one of the constants above, in each 16 bytes of it. */
.macro constant vec, i, what
	.ifc \vec, zmm
	vbroadcasti32x4	\what(%rip), %zmm\i
	.else
	.ifc \vec, ymm
	vbroadcasti128	\what(%rip), %ymm\i
	.else
	.if AVX
	vmovdqa	\what(%rip), %xmm\i
	.else
	movdqa	\what(%rip), %xmm\i
	.endif
	.endif
	.endif
.endm

/*
 * Where the bytes are that are \ahead registers ahead. FROM and TO are the ends of the two areas. N
 * is negative, so that one addition moves both and sets the flags. BIAS bytes of it are in the
 * address, so that N is at most 0 while as many bytes are left.
 */
#define AT(base, ahead)	ahead * WIDTH - BIAS(base, N)

/* Load what is \ahead registers ahead, and copy it. */
.macro next vec, i, ahead
	.ifc \vec, zmm
	vmovdqu64 AT(FROM, \ahead), %zmm\i
	.if COPY
	vmovdqu64 %zmm\i, AT(TO, \ahead)
	.endif
	.else
	.if AVX
	vmovdqu	AT(FROM, \ahead), %\vec\i
	.if COPY
	vmovdqu	%\vec\i, AT(TO, \ahead)
	.endif
	.else
	movdqu	AT(FROM, \ahead), %xmm\i
	.if COPY
	movdqu	%xmm\i, AT(TO, \ahead)
	.endif
	.endif
	.endif
.endm

/* \i ^= \with */
.macro plus vec, i, with
	.if AVX
	.ifc \vec, zmm
	vpxorq	\with, %zmm\i, %zmm\i
	.else
	vpxor	\with, %\vec\i, %\vec\i
	.endif
	.else
	pxor	\with, %xmm\i
	.endif
.endm

/* Fold \i by the constant in \by onto \onto. The result is in \i, \spare is overwritten. */
.macro fold vec, i, by, onto, spare
	.if AVX
	vpclmulqdq $0x00, %\vec\by, %\vec\i, %\vec\spare
	vpclmulqdq $0x11, %\vec\by, %\vec\i, %\vec\i
	.else
	movdqa	%xmm\i, %xmm\spare
	pclmulqdq $0x00, %xmm\by, %xmm\spare
	pclmulqdq $0x11, %xmm\by, %xmm\i
	.endif
	.if WIDTH == 64
	vpternlogq $0x96, \onto, %\vec\spare, %\vec\i
	.else
	plus	\vec, \i, "\onto"
	plus	\vec, \i, %\vec\spare
	.endif
.endm

/* The same onto what is \ahead registers ahead, which is copied. \load is overwritten. */
.macro fold_next vec, i, by, load, spare, ahead
	.if AVX && !COPY
	fold	\vec, \i, \by, "\ahead * WIDTH - BIAS(%rdx, %rcx)", \spare
	.else
	next	\vec, \load, \ahead
	fold	\vec, \i, \by, %\vec\load, \spare
	.endif
.endm

/* Are registers of 32 bytes used to copy, and those of 16 for all else? */
#define WIDE_COPY	(AVX && COPY && WIDTH == 16)

/*
 * Copy what eight registers hold. The CRC then loads the bytes from where they are now, so that
 * each byte of the source is read once.
 */
.macro copy_eight
	.if WIDE_COPY
	vmovdqu	AT(FROM, 0), %ymm4
	vmovdqu	AT(FROM, 2), %ymm5
	vmovdqu	AT(FROM, 4), %ymm6
	vmovdqu	AT(FROM, 6), %ymm7
	vmovdqu	%ymm4, AT(TO, 0)
	vmovdqu	%ymm5, AT(TO, 2)
	vmovdqu	%ymm6, AT(TO, 4)
	vmovdqu	%ymm7, AT(TO, 6)
	.endif
.endm

/* As fold_next, if copy_eight was called before. */
.macro fold_copied vec, i, by, load, spare, ahead
	.if WIDE_COPY
	fold	\vec, \i, \by, "\ahead * WIDTH - BIAS(%rsi, %rcx)", \spare
	.else
	fold_next \vec, \i, \by, \load, \spare, \ahead
	.endif
.endm

/* Copy \bytes bytes if this bit of the rest is set. */
.macro copy_if bytes, register
	test	$\bytes, %r8d
	jz	.Lnot_\bytes\@
	mov	(FROM, N), \register
	mov	\register, (TO, N)
	add	$\bytes, N
.Lnot_\bytes\@:
.endm

/*
 * Of the registers 0 to 3 are sums, 4 to 7 what was loaded, 8 to 11 spare, and 12 to 15 constants.
 * The message has N bytes, at least 16. %edi is the CRC so far.
 */
.macro crc width, avx, vec, by_four, by_two, by_one, copy
	.set	WIDTH, \width
	.set	AVX, \avx
	.set	COPY, \copy
	.if COPY
	add	N, TO
	.else
	mov	%rdx, N
	mov	%rsi, FROM
	.endif
	add	N, FROM
	neg	N
	.if AVX
	vmovd	%edi, %xmm15
	.else
	movd	%edi, %xmm15
	.endif
	.if WIDTH > 16
	cmp	$-WIDTH, N
	jg	.Lshort\@
	.endif
	constant \vec, 14, \by_one
	.set	BIAS, 0
	cmp	$-4 * WIDTH, N
	jle	.Lfour\@
	next	\vec, 0, 0
	plus	\vec, 0, %\vec\()15
	add	$2 * WIDTH, N
	jmp	.Lone\@

	/* Four registers side by side, because a multiplication takes several cycles. Twice a round. */
.Lfour\@:
	constant \vec, 12, \by_four
	constant \vec, 13, \by_two
	next	\vec, 0, 0
	next	\vec, 1, 1
	next	\vec, 2, 2
	next	\vec, 3, 3
	plus	\vec, 0, %\vec\()15
	.set	BIAS, 8 * WIDTH
	add	$12 * WIDTH, N
	jg	.Lfour_last\@
.Lfour_next\@:
	copy_eight
	fold_copied \vec, 0, 12, 4, 8, 0
	fold_copied \vec, 1, 12, 5, 9, 1
	fold_copied \vec, 2, 12, 6, 10, 2
	fold_copied \vec, 3, 12, 7, 11, 3
	fold_copied \vec, 0, 12, 4, 8, 4
	fold_copied \vec, 1, 12, 5, 9, 5
	fold_copied \vec, 2, 12, 6, 10, 6
	fold_copied \vec, 3, 12, 7, 11, 7
	add	$8 * WIDTH, N
	jle	.Lfour_next\@
	.if WIDE_COPY
	vzeroupper
	.endif
.Lfour_last\@:
	.set	BIAS, 4 * WIDTH
	sub	$4 * WIDTH, N
	jg	.Lfour_end\@
	fold_next \vec, 0, 12, 4, 8, 0
	fold_next \vec, 1, 12, 5, 9, 1
	fold_next \vec, 2, 12, 6, 10, 2
	fold_next \vec, 3, 12, 7, 11, 3
	add	$4 * WIDTH, N
.Lfour_end\@:
	fold	\vec, 0, 14, %\vec\()1, 8
	fold	\vec, 2, 14, %\vec\()3, 10
	fold	\vec, 0, 13, %\vec\()2, 9
	sub	$3 * WIDTH, N

	.set	BIAS, WIDTH
.Lone\@:
	jg	.Lone_end\@
.Lone_next\@:
	fold_next \vec, 0, 14, 4, 8, 0
	add	$WIDTH, N
	jle	.Lone_next\@
.Lone_end\@:

	/* From a wide register to its last 16 bytes. */
	.if WIDTH == 64
	vextracti64x4 $1, %zmm0, %ymm4
	constant ymm, 13, .Lby_32
	fold	ymm, 0, 13, %ymm4, 8
	.endif
	.if WIDTH > 16
	vextracti128 $1, %ymm0, %xmm4
	constant xmm, 14, .Lby_16
	fold	xmm, 0, 14, %xmm4, 8
	sub	$WIDTH - 16, N
	jmp	.Lsixteen\@
.Lshort\@:
	constant xmm, 14, .Lby_16
	.set	BIAS, 0
	next	xmm, 0, 0
	plus	xmm, 0, %xmm15
	add	$32, N
	.set	BIAS, 16
.Lsixteen\@:
	jg	.Lsixteen_end\@
.Lsixteen_next\@:
	fold_next xmm, 0, 14, 4, 8, 0
	add	$16, N
	jle	.Lsixteen_next\@
.Lsixteen_end\@:
	.endif

	/*
	 * Up to 15 bytes are left. Together with the bytes before them they are the last 16 of the
	 * message. Fold the first bytes of the sum onto them, which are those before these 16.
	 * Bytes that were copied are loaded from the destination, because the source may have
	 * changed.
	 */
	sub	$16, N
	jz	.Lreduce\@
	lea	.Lshift(%rip), %rax
	mov	N, %r8
	neg	%r8
	.if AVX
	vmovdqu	(%rax, %r8), %xmm5
	vmovdqu	16(%rax, %r8), %xmm6
	.else
	movdqu	(%rax, %r8), %xmm5
	movdqu	16(%rax, %r8), %xmm6
	.endif
	.if COPY
	copy_if	8, %rax
	copy_if	4, %eax
	copy_if	2, %ax
	copy_if	1, %al
	.endif
	.if AVX
	.if COPY
	vmovdqu	-16(TO), %xmm4
	.else
	vmovdqu	-16(FROM), %xmm4
	.endif
	vpshufb	%xmm6, %xmm0, %xmm1
	vpshufb	%xmm5, %xmm0, %xmm0
	vpxor	%xmm7, %xmm7, %xmm7
	vpcmpgtb %xmm6, %xmm7, %xmm7
	vpand	%xmm7, %xmm4, %xmm4
	.else
	.if COPY
	movdqu	-16(TO), %xmm4
	.else
	movdqu	-16(FROM), %xmm4
	.endif
	movdqa	%xmm0, %xmm1
	pshufb	%xmm5, %xmm0
	pshufb	%xmm6, %xmm1
	pxor	%xmm7, %xmm7
	pcmpgtb	%xmm6, %xmm7
	pand	%xmm7, %xmm4
	.endif
	plus	xmm, 1, %xmm4
	fold	xmm, 0, 14, %xmm1, 8

.Lreduce\@:
	.if AVX
	vpclmulqdq $0x00, .Lreduce(%rip), %xmm0, %xmm1
	vpsrldq	$8, %xmm0, %xmm0
	vpxor	%xmm1, %xmm0, %xmm0
	vpclmulqdq $0x10, .Lreduce(%rip), %xmm0, %xmm1
	vpclmulqdq $0x00, .Lpolynomial(%rip), %xmm1, %xmm1
	vpxor	%xmm1, %xmm0, %xmm0
	vpextrd	$2, %xmm0, %eax
	.if WIDTH > 16
	vzeroupper
	.endif
	.else
	movdqa	.Lreduce(%rip), %xmm12
	movdqa	%xmm0, %xmm1
	pclmulqdq $0x00, %xmm12, %xmm1
	psrldq	$8, %xmm0
	pxor	%xmm1, %xmm0
	movdqa	%xmm0, %xmm1
	pclmulqdq $0x10, %xmm12, %xmm1
	pclmulqdq $0x00, .Lpolynomial(%rip), %xmm1
	pxor	%xmm1, %xmm0
	pextrd	$2, %xmm0, %eax
	.endif
	RET
.endm

SYM_TYPED_FUNC_START(peal_crc_add_pclmul)
	crc	16, 0, xmm, .Lby_64, .Lby_32, .Lby_16, 0
SYM_FUNC_END(peal_crc_add_pclmul)

SYM_TYPED_FUNC_START(peal_crc_copy_pclmul)
	crc	16, 0, xmm, .Lby_64, .Lby_32, .Lby_16, 1
SYM_FUNC_END(peal_crc_copy_pclmul)

SYM_TYPED_FUNC_START(peal_crc_add_avx)
	crc	16, 1, xmm, .Lby_64, .Lby_32, .Lby_16, 0
SYM_FUNC_END(peal_crc_add_avx)

SYM_TYPED_FUNC_START(peal_crc_copy_avx)
	crc	16, 1, xmm, .Lby_64, .Lby_32, .Lby_16, 1
SYM_FUNC_END(peal_crc_copy_avx)

SYM_TYPED_FUNC_START(peal_crc_add_avx2)
	crc	32, 1, ymm, .Lby_128, .Lby_64, .Lby_32, 0
SYM_FUNC_END(peal_crc_add_avx2)

SYM_TYPED_FUNC_START(peal_crc_copy_avx2)
	crc	32, 1, ymm, .Lby_128, .Lby_64, .Lby_32, 1
SYM_FUNC_END(peal_crc_copy_avx2)

SYM_TYPED_FUNC_START(peal_crc_add_avx512)
	crc	64, 1, zmm, .Lby_256, .Lby_128, .Lby_64, 0
SYM_FUNC_END(peal_crc_add_avx512)

SYM_TYPED_FUNC_START(peal_crc_copy_avx512)
	crc	64, 1, zmm, .Lby_256, .Lby_128, .Lby_64, 1
SYM_FUNC_END(peal_crc_copy_avx512)

/*
 * Copy %rdx bytes, at least 40, from %rsi to %rdi. The last eight are stored last, because a
 * program may poll for them. The CPU keeps the order of these stores, unlike those of a string
 * instruction.
 */
SYM_TYPED_FUNC_START(peal_copy_avx)
	lea	-8(%rsi, %rdx), %rsi
	lea	-8(%rdi, %rdx), %rdi
	mov	$8 + 128, %ecx
	sub	%rdx, %rcx
	jg	.Lcopy_last
.Lcopy_next:
	vmovdqu	-128(%rsi, %rcx), %ymm0
	vmovdqu	-96(%rsi, %rcx), %ymm1
	vmovdqu	-64(%rsi, %rcx), %ymm2
	vmovdqu	-32(%rsi, %rcx), %ymm3
	vmovdqu	%ymm0, -128(%rdi, %rcx)
	vmovdqu	%ymm1, -96(%rdi, %rcx)
	vmovdqu	%ymm2, -64(%rdi, %rcx)
	vmovdqu	%ymm3, -32(%rdi, %rcx)
	add	$128, %rcx
	jle	.Lcopy_next
.Lcopy_last:
	sub	$128 - 32, %rcx
	jg	.Lcopy_end
.Lcopy_one:
	vmovdqu	-32(%rsi, %rcx), %ymm0
	vmovdqu	%ymm0, -32(%rdi, %rcx)
	add	$32, %rcx
	jle	.Lcopy_one
.Lcopy_end:
	/* Up to 31 bytes are left in front of the last eight. Some are copied twice. */
	vmovdqu	-32(%rsi), %ymm0
	vmovdqu	%ymm0, -32(%rdi)
	mov	(%rsi), %rax
	mov	%rax, (%rdi)
	vzeroupper
	RET
SYM_FUNC_END(peal_copy_avx)
