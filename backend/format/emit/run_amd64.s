//go:build linux && amd64 && !noasm

#include "go_asm.h"
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
	MOVL call_text(BX), AX
	ADDQ DI, AX
	MOVL call_row(BX), R9
	SHLQ $8, R9
	ADDQ y+40(FP), R9
	MOVQ DX, R8
	MOVQ granules+24(FP), CX
	CALL AX
	ADDQ $call__size, BX
	DECQ R10
	JNE  next
	VZEROUPPER
	RET

// A row of sums, and whether it was the last of the group's.
#define STORE(r, z) \
	VMOVUPS z, (256*r)(R9) \
	DECQ    R12            \
	JZ      stored

#define FINISH(r, z) \
	VADDPS.BCST (4*r)(R13), z, z \
	VMAXPS      z, Z31, z        \
	VMINPS      z, Z30, z        \
	VMOVUPS     z, (SI)          \
	ADDQ        DI, SI           \
	DECQ        R12              \
	JZ          stored

#define FINISHSUM(r, z) \
	VADDPS.BCST (4*r)(R13), z, z \
	VADDPS      (DX), z, z       \
	ADDQ        R15, DX          \
	VMAXPS      z, Z31, z        \
	VMINPS      z, Z30, z        \
	VMOVUPS     z, (SI)          \
	ADDQ        DI, SI           \
	DECQ        R12              \
	JZ          stored

// func runLast(text *byte, calls *call, n, granules int, x, y *float32, f *ukernel.FinishArgs)
//
// R10 is f, CX counts granules.
TEXT ·runLast(SB), NOSPLIT, $8-56
	MOVQ calls+8(FP), BX
	MOVQ f+48(FP), R10

next:
	MOVL call_text(BX), AX
	ADDQ text+0(FP), AX
	MOVL call_row(BX), R9
	SHLQ $8, R9
	ADDQ y+40(FP), R9
	MOVQ x+32(FP), R8
	MOVQ granules+24(FP), CX
	CALL AX
	ADDQ $const_enterAgain, AX
	JMP  store

again:
	CALL AX

store:
	MOVL  call_rows(BX), R12
	TESTQ R10, R10
	JNZ   finish
	STORE(0, Z0)
	STORE(1, Z1)
	STORE(2, Z2)
	STORE(3, Z3)
	STORE(4, Z4)
	STORE(5, Z5)
	STORE(6, Z6)
	STORE(7, Z7)
	STORE(8, Z8)
	STORE(9, Z9)
	STORE(10, Z10)
	STORE(11, Z11)
	STORE(12, Z12)
	STORE(13, Z13)
	STORE(14, Z14)
	STORE(15, Z15)
	STORE(16, Z16)
	STORE(17, Z17)
	STORE(18, Z18)
	STORE(19, Z19)
	STORE(20, Z20)
	STORE(21, Z21)
	STORE(22, Z22)
	STORE(23, Z23)
	STORE(24, Z24)
	STORE(25, Z25)
	STORE(26, Z26)
	STORE(27, Z27)
	STORE(28, Z28)
	STORE(29, Z29)

finish:
	MOVL         call_row(BX), DX
	MOVQ         16(R10), R13 // bias
	LEAQ         (R13)(DX*4), R13
	MOVQ         24(R10), DI  // between rows
	MOVQ         DI, SI
	IMULQ        DX, SI
	ADDQ         0(R10), SI
	VBROADCASTSS 40(R10), Z31
	VBROADCASTSS 44(R10), Z30
	MOVQ         granules+24(FP), R15
	SUBQ         CX, R15
	SHLQ         $6, R15      // of the granules before
	ADDQ         R15, SI
	CMPQ         8(R10), $0
	JNE          finishsum
	FINISH(0, Z0)
	FINISH(1, Z1)
	FINISH(2, Z2)
	FINISH(3, Z3)
	FINISH(4, Z4)
	FINISH(5, Z5)
	FINISH(6, Z6)
	FINISH(7, Z7)
	FINISH(8, Z8)
	FINISH(9, Z9)
	FINISH(10, Z10)
	FINISH(11, Z11)
	FINISH(12, Z12)
	FINISH(13, Z13)
	FINISH(14, Z14)
	FINISH(15, Z15)
	FINISH(16, Z16)
	FINISH(17, Z17)
	FINISH(18, Z18)
	FINISH(19, Z19)
	FINISH(20, Z20)
	FINISH(21, Z21)
	FINISH(22, Z22)
	FINISH(23, Z23)
	FINISH(24, Z24)
	FINISH(25, Z25)
	FINISH(26, Z26)
	FINISH(27, Z27)
	FINISH(28, Z28)
	FINISH(29, Z29)

finishsum:
	MOVQ  DX, R12
	MOVQ  8(R10), DX
	ADDQ  R15, DX
	MOVQ  32(R10), R15
	IMULQ R15, R12
	ADDQ  R12, DX
	MOVL  call_rows(BX), R12
	FINISHSUM(0, Z0)
	FINISHSUM(1, Z1)
	FINISHSUM(2, Z2)
	FINISHSUM(3, Z3)
	FINISHSUM(4, Z4)
	FINISHSUM(5, Z5)
	FINISHSUM(6, Z6)
	FINISHSUM(7, Z7)
	FINISHSUM(8, Z8)
	FINISHSUM(9, Z9)
	FINISHSUM(10, Z10)
	FINISHSUM(11, Z11)
	FINISHSUM(12, Z12)
	FINISHSUM(13, Z13)
	FINISHSUM(14, Z14)
	FINISHSUM(15, Z15)
	FINISHSUM(16, Z16)
	FINISHSUM(17, Z17)
	FINISHSUM(18, Z18)
	FINISHSUM(19, Z19)
	FINISHSUM(20, Z20)
	FINISHSUM(21, Z21)
	FINISHSUM(22, Z22)
	FINISHSUM(23, Z23)
	FINISHSUM(24, Z24)
	FINISHSUM(25, Z25)
	FINISHSUM(26, Z26)
	FINISHSUM(27, Z27)
	FINISHSUM(28, Z28)
	FINISHSUM(29, Z29)

stored:
	ADDQ $64, R9
	DECQ CX
	JNZ  again
	ADDQ $call__size, BX
	DECQ n+16(FP)
	JNZ  next
	VZEROUPPER
	RET
