package cuda

import (
	"fmt"
	"strings"

	"spc/lower/chain"
)

// Header is spc/numbers.cuh: the numbers that kernels and those who launch them must agree on. `make kernels` writes it
// by the command in backend/cuda/include.
func Header() string {
	var s strings.Builder
	s.WriteString("// What kernels and package cuda number alike. Written by backend/cuda/include from backend/cuda/numbers.go; do not edit.\n#pragma once\n\nnamespace spc {\n\n")
	for _, c := range sizes {
		fmt.Fprintf(&s, "constexpr int %s = %d; // %s\n", c.name, c.is, c.doc)
	}
	s.WriteString("\n} // namespace spc\n")
	for _, e := range enums {
		fmt.Fprintf(&s, "\n// %s\n#define %s", e.doc, e.macro)
		for i, name := range e.names {
			if name == "" {
				continue
			}
			if i > 0 {
				s.WriteString(",")
			}
			fmt.Fprintf(&s, " \\\n  %s = %d", name, i)
		}
		s.WriteString("\n")
	}
	return s.String()
}

// Sizes; see sizes.
const (
	flatThreads    = 256
	rowThreads     = 128
	columnThreads  = 512
	recurrentUnits = 4
	chainRegisters = 8
	chainOperands  = 6
)

// sizes lists the constants of kernels.
var sizes = []struct {
	name string
	is   int
	doc  string
}{
	{"FlatThreads", flatThreads, "of a block that has an element, or a vector, for each"},
	{"RowThreads", rowThreads, "of a block that has a row"},
	{"ColumnThreads", columnThreads, "of a block that has 32 neighbouring rows, one for each lane"},
	{"UnitsOfBlock", recurrentUnits, "units of a recurrent layer, a warp for each"},
	{"ChannelUnit", ChannelUnit, "channels of a pixel that are loaded at once where these come last"},
	{"ChainRegisters", chainRegisters, "values of a chain that are held at once"},
	{"ChainOperands", chainOperands, "of a chain"},
}

// Cells of recurrent layers.
const (
	cellTanh = iota
	cellLSTM
	cellGRUAfter
	cellGRUGates
	cellGRURest
)

// Pools.
const (
	maxPool = iota
	averagePool
	averagePadded
)

// What operands of chains hold: floats of the device, or elements of a chain of integers, are its own.
const (
	kindOwn = iota
	kindI64
	kindI32
	kindU8
	kindI8
)

// Types of residuals and results of integer products.
const (
	typeU8 = iota
	typeF32
	typeF16
	typeBF16
)

// Reductions.
const (
	reduceSum = iota
	reduceGreatest
	reduceLeast
	reduceProduct
	reduceAbsSum
	reduceSquareSum
	reduceNorm
	reduceLogSum
	reduceLogSumExp
)

// enums lists the names that kernels have for numbers, by number.
var enums = []struct {
	macro, doc string
	names      []string
}{
	{"SPC_ACTIVATIONS", "Activations of epilogues.", append([]string{"None"}, functions(chain.Clip, chain.GeluTanh)...)},
	{"SPC_FUNCTIONS", "Functions of chains, beside the activations.", functions(chain.Copy, chain.Where)},
	{"SPC_CHAIN_KINDS", "What operands of chains hold.", []string{kindOwn: "Own", kindI64: "I64", kindI32: "I32", kindU8: "U8", kindI8: "I8"}},
	{"SPC_CELLS", "Cells of recurrent layers.", []string{cellTanh: "Tanh1", cellLSTM: "Lstm", cellGRUAfter: "GruAfter", cellGRUGates: "GruGates", cellGRURest: "GruRest"}},
	{"SPC_POOLS", "Pools.", []string{maxPool: "MaxPool", averagePool: "AveragePool", averagePadded: "AveragePadded"}},
	{"SPC_REDUCTIONS", "Reductions.", []string{reduceSum: "Sum", reduceGreatest: "Greatest", reduceLeast: "Least", reduceProduct: "Product",
		reduceAbsSum: "AbsSum", reduceSquareSum: "SquareSum", reduceNorm: "Norm", reduceLogSum: "LogSum", reduceLogSumExp: "LogSumExp"}},
	{"SPC_TYPES", "Types of residuals and results of integer products.", []string{typeU8: "U8", typeF32: "F32", typeF16: "F16", typeBF16: "BF16"}},
}

// functions are the names of functions, by how far their numbers are from the first. Of those of chains the activations
// are left out, which have their names in another enumeration.
func functions(first, last chain.Function) []string {
	names := make([]string, last-first+1)
	for _, f := range chain.Functions() {
		if f >= first && f <= last && (first != chain.Copy || f == chain.Copy || f > chain.GeluTanh) {
			names[f-first] = f.String()
		}
	}
	return names
}
