//go:build linux && amd64 && !noasm

#include "textflag.h"

// func run(text *byte, calls *call, n, granules int, x, y *float32)
//
// The code that is called returns by RET, needs no stack besides, and changes CX, SI,
// R8, R9, R11 and vectors only. The frame has room for the return address.
TEXT ·run(SB), NOSPLIT, $8-48
	MOVQ text+0(FP), DI
	MOVQ calls+8(FP), BX
	MOVQ n+16(FP), R10
	MOVQ x+32(FP), DX

next:
	MOVL 0(BX), AX
	ADDQ DI, AX
	MOVL 4(BX), R9
	ADDQ y+40(FP), R9
	MOVQ DX, R8
	MOVQ granules+24(FP), CX
	CALL AX
	ADDQ $8, BX
	DECQ R10
	JNE  next
	VZEROUPPER
	RET
