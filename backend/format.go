package backend

import (
	"fmt"
	"slices"
	"strings"

	"spc/backend/machine"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Storage is a way to lay out a weight W[M,K], whatever the type of its elements. Those are
// the part values of a store.
type Storage interface {
	Name() string
	// Layouts lists the configurations that may suit w.
	Layouts(w *choose.Matrix) []Layout
	// Pack lays out w, f32 [M,K], with its elements as f32: choosing narrows them. A matrix whose
	// nonzeros lie where the configuration has no room for them is an error that wraps
	// choose.ErrFit.
	Pack(w *tensor.Tensor, config string) ([]ir.Part, error)
	// Check reports whether a store, which may come from a hostile file, is
	// well formed: every part present with the right type and shape, every index
	// in range. The other methods may rely on it.
	Check(s *ir.Store) error
	// Unpack is the inverse of Pack: the matrix f32 [M,K].
	Unpack(s *ir.Store) (*tensor.Tensor, error)
}

// GridStorage is a Storage that has configurations for weights on a grid (choose.Grid), which it lists for a choose.Matrix that has one.
type GridStorage interface {
	Storage
	choose.Gridder
}

// Layout is what a configuration of a storage format makes of a weight.
type Layout struct {
	Config string
	Rows   int // of a block
	Cols   int // of a block, where it is no column
	Values int // stored, zeros included
	Bytes  int // of all parts, their values of the matrix's type
	// Filled is the share of values that must not be zero where kernels gain nothing by the
	// places of the others, 0 for half of them.
	Filled float64
}

// Kernels is what multiplies the weights of one format with elements of some types.
type Kernels struct {
	Weights []tensor.DType // in which elements are stored
	X, Sums tensor.DType   // of activations and of sums on the CPU
	ISA     string         // of this machine's CPU
	// Cost is that of a product of n columns with w laid out so on a machine, elements being of type w.Type;
	// false where no kernel suits that.
	Cost func(p *machine.Profile, w *choose.Matrix, n int, l Layout) (choose.Cost, bool)
	// CPU prepares a store that Check accepts: for sums in f32 a FloatKernel, in i32 an
	// IntegerKernel.
	CPU func(s *ir.Store) (Kernel, error)
	GPU GPUKernels // nil where GPUs have none
}

// GPUKernels is the kernels that GPUs have for the weights of one format with elements of some
// types.
type GPUKernels interface {
	// GPU prepares a store that Check accepts for the kernels that multiply it by X of type x,
	// and lists them: f32, f16 or bf16, to which values are rounded, or u8 for weights i8, of which
	// sums are i32 and the parameters of the epilogue those of SPC_EPILOGUE8 in spc/product8.cuh.
	GPU(s *ir.Store, x tensor.DType) ([]GPUKernel, error)
	// GPUKernels lists those that GPU would list for w in the configuration of a layout, without parts.
	GPUKernels(w *choose.Matrix, config string, x tensor.DType) []GPUKernel
}

// Format is a storage format with what multiplies weights that are stored in it: a row for
// each type of elements that has kernels of its own.
type Format struct {
	Storage
	Kernels []Kernels
}

// For returns the row for elements of a type, nil where there is none.
func (f *Format) For(elements tensor.DType) *Kernels {
	i := slices.IndexFunc(f.Kernels, func(k Kernels) bool { return slices.Contains(k.Weights, elements) })
	if i < 0 {
		return nil
	}
	return &f.Kernels[i]
}

// PackGrid is that of a GridStorage, and Pack of others.
func (f *Format) PackGrid(w *tensor.Tensor, g *ir.Grid, config string) ([]ir.Part, error) {
	if s, ok := f.Storage.(GridStorage); ok {
		return s.PackGrid(w, g, config)
	}
	return f.Pack(w, config)
}

// Elements is the type in which the elements of a store that Check accepts are stored: that of the part values, or of
// those of its forms, whose names end so; f32 where there are codes of a grid.
func Elements(s *ir.Store) tensor.DType {
	i := slices.IndexFunc(s.Parts, func(p ir.Part) bool { return p.Name == "values" || strings.HasSuffix(p.Name, "_values") })
	if i < 0 {
		return tensor.F32
	}
	return s.Parts[i].Data.DType()
}

// GPUInput is the type of X for weights with elements of a type, on a GPU whose floats are of
// another.
func GPUInput(elements, float tensor.DType) tensor.DType {
	if elements == tensor.I8 {
		return tensor.U8
	}
	return float
}

// Costs lists the layouts of w that its type has kernels for, each with the cost of a product
// of n columns on the CPU of a machine.
func (f *Format) Costs(p *machine.Profile, w *choose.Matrix, n int) (costs []choose.Cost) {
	k := f.For(w.Type)
	if k == nil {
		return nil
	}
	for _, l := range f.Layouts(w) {
		if c, ok := k.Cost(p, w, n, l); ok {
			costs = append(costs, c)
		}
	}
	return costs
}

// Kernel prepares a store that Check accepts for the CPU, nil where its elements have no kernels.
func (f *Format) Kernel(s *ir.Store) (Kernel, error) {
	k := f.For(Elements(s))
	if k == nil {
		return nil, nil
	}
	made, err := k.CPU(s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return made, nil
}

// GPU lists the kernels for a store that Check accepts and X of a type, none where there are none.
func (f *Format) GPU(s *ir.Store, x tensor.DType) ([]GPUKernel, error) {
	k := f.For(Elements(s))
	if k == nil || k.GPU == nil {
		return nil, nil
	}
	return k.GPU.GPU(s, x)
}

// GPUKernels lists those that GPU would list for w, without parts.
func (f *Format) GPUKernels(w *choose.Matrix, config string, x tensor.DType) []GPUKernel {
	k := f.For(w.Type)
	if k == nil || k.GPU == nil {
		return nil
	}
	return k.GPU.GPUKernels(w, config, x)
}
