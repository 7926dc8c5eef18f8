package quant

import (
	"slices"

	"spc/ir/tensor"
)

// Kind is a way to quantise products.
type Kind struct {
	Name string // as --quantize has it
	Type tensor.DType
	// Codes is set of weights alone in codes of the type, of which blocks have scales.
	Codes bool
	// Rounding bounds the relative error of weights that are rounded to the type alone, and widened in products;
	// it is 0 of products of integers, and of codes.
	Rounding float64
}

// Kinds lists them. Of normal numbers in 16 bits the error is 1/256 at most.
var Kinds = []Kind{
	{"int8", tensor.I8, false, 0},
	{"int8w", tensor.I8, true, 0},
	{"int4", tensor.I4, true, 0},
	{"fp16", tensor.F16, false, 0.01},
	{"bf16", tensor.BF16, false, 0.01},
}

// Widened lists the types of weights that are widened to f32 in products, those of f32 first.
func Widened() []tensor.DType {
	types := []tensor.DType{tensor.F32}
	for _, k := range Kinds {
		if k.Rounding > 0 {
			types = append(types, k.Type)
		}
	}
	return types
}

// maxRounding is Kind.Rounding of a type.
func maxRounding(dt tensor.DType) float64 {
	i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Type == dt })
	return Kinds[i].Rounding
}
