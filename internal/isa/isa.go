// Package isa says which instruction sets of assembly kernels this machine has. It
// imports nothing of spc.
package isa

import "golang.org/x/sys/cpu"

// AVX512 reports whether kernels for AVX-512 run: they use its foundation, DQ, and
// BMI2 for the masks of what is left of a row.
func AVX512() bool { return cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasBMI2 }

// AVX2 reports whether kernels for AVX2 run: they use FMA, too.
func AVX2() bool { return cpu.X86.HasAVX2 && cpu.X86.HasFMA }
