// Package isa says which instruction sets of assembly kernels this machine has. It
// imports nothing of spc.
//
// Each can be switched off in the environment, which makes kernels for lesser machines
// run: GODEBUG=cpu.avx512f=off leaves AVX2, with cpu.avxvnni=off as well without VNNI.
// Go's runtime does not know the second and says "unknown cpu feature", but
// golang.org/x/sys/cpu, which answers here, obeys it. Set it for spc or a test binary
// only (go test -exec): go build keeps what its tools say, and says it again later.
package isa

import "golang.org/x/sys/cpu"

// AVX512 reports whether kernels for AVX-512 run: they use its foundation, DQ, and
// BMI2 for the masks of what is left of a row.
func AVX512() bool { return cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasBMI2 }

// VNNI reports whether kernels for integers in AVX-512 with VNNI run.
func VNNI() bool { return AVX512() && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VNNI }

// VBMI reports whether kernels for VNNI may pick single bytes of a register, too.
func VBMI() bool { return VNNI() && cpu.X86.HasAVX512VBMI }

// AMX reports whether the processor has tiles of 8-bit integers, and what the kernels
// use beside them; the system may have to be asked for them.
func AMX() bool {
	return VBMI() && cpu.X86.HasAMXTile && cpu.X86.HasAMXInt8
}

// AVX2 reports whether kernels for AVX2 run: they use FMA, too.
func AVX2() bool { return cpu.X86.HasAVX2 && cpu.X86.HasFMA }

// F16C reports whether there are instructions that convert 16-bit numbers.
func F16C() bool { return cpu.X86.HasF16C }

// AVXVNNI reports whether kernels for VNNI on registers of AVX2 run.
func AVXVNNI() bool { return AVX2() && cpu.X86.HasAVXVNNI }
