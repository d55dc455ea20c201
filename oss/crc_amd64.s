#include "textflag.h"

// STEP moves the lane in acc over the distance of the constants in X8 and adds
// the 16 bytes at mem. X9 and X10 are clobbered.
#define STEP(acc, mem) \
	MOVOU     mem, X9         \
	MOVO      acc, X10        \
	PCLMULQDQ $0x00, X8, X10  \
	PCLMULQDQ $0x11, X8, acc  \
	PXOR      X10, acc        \
	PXOR      X9, acc

// MERGE moves the lane in acc over 16 bytes and adds the lane next, leaving the
// sum in acc. X10 is clobbered.
#define MERGE(acc, next) \
	MOVO      acc, X10        \
	PCLMULQDQ $0x00, X8, X10  \
	PCLMULQDQ $0x11, X8, acc  \
	PXOR      X10, acc        \
	PXOR      next, acc

// func foldPCLMUL(p *byte, n int, state uint64, k *[4]uint64) (lo, hi uint64)
TEXT ·foldPCLMUL(SB), NOSPLIT, $0-48
	MOVQ p+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ state+16(FP), X7
	MOVQ k+24(FP), DI

	MOVOU 0(SI), X0
	MOVOU 16(SI), X1
	MOVOU 32(SI), X2
	MOVOU 48(SI), X3
	PXOR  X7, X0
	ADDQ  $64, SI
	SUBQ  $64, CX
	JZ    merge

	MOVOU 0(DI), X8

loop:
	STEP(X0, 0(SI))
	STEP(X1, 16(SI))
	STEP(X2, 32(SI))
	STEP(X3, 48(SI))
	ADDQ $64, SI
	SUBQ $64, CX
	JNZ  loop

merge:
	MOVOU 16(DI), X8
	MERGE(X0, X1)
	MERGE(X0, X2)
	MERGE(X0, X3)

	MOVQ   X0, lo+32(FP)
	PSRLO  $8, X0
	MOVQ   X0, hi+40(FP)
	RET
