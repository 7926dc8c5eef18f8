package sparse

import (
	"fmt"
	"slices"

	"spc/backend"
	"spc/backend/format/ukernel"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
	"spc/passes/prune"
	"spc/passes/quant"
)

// Scheme is a way to store the blocks of a weight in parts.
type Scheme interface {
	Name() string
	Layouts(w *choose.Matrix) []backend.Layout                                      // backend.Storage's
	Pack(w *tensor.Tensor, config string) ([]ir.Part, error)                        // backend.Storage's
	GPU(b *Blocks, x tensor.DType) ([]backend.GPUKernel, error)                     // backend.GPUKernels', of what Blocks returned for the store
	GPUKernels(w *choose.Matrix, config string, x tensor.DType) []backend.GPUKernel // backend.GPUKernels'
	// Blocks views a store, which may come from a hostile file, as blocks. It
	// checks the configuration and the number, the types and the shapes of the
	// parts; whether the blocks themselves are well formed is for Blocks.Check.
	Blocks(s *ir.Store) (*Blocks, error)
}

// New returns the format of a scheme: a row for floats, and those for other types.
func New(s Scheme, others ...backend.Kernels) *backend.Format {
	return &backend.Format{Storage: storage{s}, Kernels: append([]backend.Kernels{{
		Weights: Floats, X: tensor.F32, Sums: tensor.F32, ISA: ukernel.Best().ISA,
		Cost: func(p *machine.Profile, w *choose.Matrix, n int, l backend.Layout) (choose.Cost, bool) {
			return cost(p, s.Name(), w, n, l)
		},
		CPU: storage{s}.kernel, GPU: storage{s},
	}}, others...)}
}

// Storage is a scheme as a way to lay out weights.
func Storage(s Scheme) backend.Storage { return storage{s} }

// storage is a scheme as backend.Storage and backend.GPUKernels.
type storage struct{ Scheme }

func (f storage) Check(s *ir.Store) error {
	b, err := f.Blocks(s)
	if err != nil {
		return err
	}
	return b.Check()
}

func (f storage) Unpack(s *ir.Store) (*tensor.Tensor, error) {
	b, err := f.Blocks(s)
	if err != nil {
		return nil, err
	}
	return b.Matrix(), nil
}

func (f storage) kernel(s *ir.Store) (backend.Kernel, error) {
	b, err := f.Blocks(s)
	if err != nil {
		return nil, err
	}
	return b.Kernel(f.Name())
}

func (f storage) GPU(s *ir.Store, x tensor.DType) ([]backend.GPUKernel, error) {
	b, err := f.Blocks(s)
	if err != nil {
		return nil, err
	}
	return f.Scheme.GPU(b, x)
}

// Shape reads a configuration RxC, such as 4x1.
func Shape(config string) (r, c int, err error) {
	p, err := prune.ParsePattern(prune.Block.String() + ":" + config)
	if err != nil || p != p.Blocks() {
		return 0, 0, fmt.Errorf("configuration %q: want RxC, as in 4x1", config)
	}
	return p.R, p.C, nil
}

// MaxElems bounds the elements of a weight: what a small file claims must still
// be possible to unpack.
const MaxElems = 1 << 31

// Floats are the types in which elements of f32 weights are stored.
var Floats = quant.Widened()

// IsValue reports whether values of a weight may have that type.
func IsValue(dt tensor.DType) bool { return dt == tensor.I8 || slices.Contains(Floats, dt) }

// Values are the elements of a tensor of such a type, which is kept where kernels read such.
func Values(t *tensor.Tensor) ukernel.Values {
	switch t.DType() {
	case tensor.F16:
		return ukernel.F16(tensor.Data[tensor.Half](t))
	case tensor.BF16:
		return ukernel.BF16(tensor.Data[tensor.Brain](t))
	}
	return ukernel.F32(t.To(tensor.F32).F32s())
}

// Any stands for a dimension of any size in the shape of a Spec.
const Any = -1

// Spec is what a format wants of a part. Where F32 is wanted, what IsValue names is taken.
type Spec struct {
	Name  string
	DType tensor.DType
	Shape []int
}

// Parts returns the data of the parts of s, which must be exactly those wanted,
// in that order.
func Parts(s *ir.Store, want ...Spec) ([]*tensor.Tensor, error) {
	if n, err := tensor.Elems([]int{s.Rows, s.Cols}); err != nil || n > MaxElems {
		return nil, fmt.Errorf("weight of %d x %d, want at most %d elements", s.Rows, s.Cols, MaxElems)
	}
	if len(s.Parts) != len(want) {
		return nil, fmt.Errorf("%d parts, want %d", len(s.Parts), len(want))
	}
	data := make([]*tensor.Tensor, len(want))
	for i, w := range want {
		p := s.Parts[i]
		if p.Name != w.Name || p.Data == nil || p.Data.DType() != w.DType && !(w.DType == tensor.F32 && IsValue(p.Data.DType())) || !matches(p.Data.Shape(), w.Shape) {
			return nil, fmt.Errorf("part %d is %s %v, want %s %v%v", i, p.Name, p.Data, w.Name, w.DType, w.Shape)
		}
		data[i] = p.Data
	}
	return data, nil
}

func matches(shape, want []int) bool {
	if len(shape) != len(want) {
		return false
	}
	for i, d := range want {
		if d != Any && shape[i] != d {
			return false
		}
	}
	return true
}

// IndexType is the type of the indices of n things: u16 below 65536, else u32.
func IndexType(n int) tensor.DType {
	if n < 1<<16 {
		return tensor.U16
	}
	return tensor.U32
}

// Narrow stores indices of n things in their IndexType.
func Narrow(index []uint32, n int, shape ...int) *tensor.Tensor {
	if IndexType(n) == tensor.U32 {
		return tensor.From(index, shape...)
	}
	return tensor.From(convert[uint16](index), shape...)
}

// Widen is the inverse of Narrow. It shares storage where nothing changes.
func Widen(t *tensor.Tensor) []uint32 {
	if t.DType() == tensor.U16 {
		return convert[uint32](tensor.Data[uint16](t))
	}
	return tensor.Data[uint32](t)
}

// convert changes the type of indices. It shares storage where nothing changes.
func convert[To, From uint16 | uint32](in []From) []To {
	if same, ok := any(in).([]To); ok {
		return same
	}
	out := make([]To, len(in))
	for i, x := range in {
		out[i] = To(x)
	}
	return out
}
