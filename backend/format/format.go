// Package format lists the storage formats; each lives in a folder of its own
// with packing, unpacking, the check of hostile data, costs and kernels. It
// imports backend.
package format

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"spc/backend"
	"spc/backend/format/bitmap"
	"spc/backend/format/block"
	"spc/backend/format/csr"
	"spc/backend/format/dense"
	"spc/backend/format/ell"
	"spc/backend/format/hyb"
	"spc/backend/format/i8"
	"spc/backend/format/nm"
	"spc/backend/format/pair"
	"spc/backend/format/sparse"
	"spc/backend/machine"
	"spc/internal/mapped"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// single lists the formats of one form, each with what multiplies weights that are stored in it by the type
// of their elements. Dense comes first: it suits every weight.
var single = []*backend.Format{
	dense.New(i8.Dense),
	sparse.New(ell.Scheme{}),
	sparse.New(nm.Scheme{}, i8.NM),
	sparse.New(block.Scheme{}, i8.Block),
	sparse.New(csr.Scheme{}),
	hyb.New(),
	bitmap.New(),
}

// Table lists the formats: those of one form, and two forms of these.
var Table = append(slices.Clip(single), pair.New(single))

// Lookup returns the format of the given name, nil where there is none.
func Lookup(name string) *backend.Format {
	for _, f := range Table {
		if f.Name() == name {
			return f
		}
	}
	return nil
}

// Choices returns the formats as choosing for a CPU sees them.
func Choices(p *machine.Profile) []choose.Format {
	out := make([]choose.Format, len(Table))
	for i, f := range Table {
		out[i] = choice{f, p}
	}
	return out
}

// choice is a format on a machine.
type choice struct {
	*backend.Format
	machine *machine.Profile
}

// Costs lists the layouts of w with their costs there.
func (c choice) Costs(w *choose.Matrix, n int) []choose.Cost { return c.Format.Costs(c.machine, w, n) }

// CheckAll checks the stored weights of a graph, on all processors, and that nothing reads
// them but nodes that multiply them as they are stored. It returns the error of the first
// that fails.
func CheckAll(g *ir.Graph) error {
	if err := checkPlaces(g); err != nil {
		return err
	}
	constants := g.Constants()
	errs := make([]error, len(constants))
	var next atomic.Int64
	var group mapped.Group
	for range min(len(constants), runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for i := int(next.Add(1) - 1); i < len(constants); i = int(next.Add(1) - 1) {
				if v := constants[i]; v.Store != nil {
					if err := Check(v.Store, v.Type); err != nil {
						errs[i] = fmt.Errorf("weight %s: %w", v.Name, err)
					}
				}
			}
		})
	}
	group.Wait()
	return cmp.Or(errs...)
}

// Loosen gives nodes tensors for those stored constants that they do not multiply as they
// are stored: where shapes that became known made the other operand constant, too.
func Loosen(g *ir.Graph, unpack func(*ir.Value) (*tensor.Tensor, error)) error {
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			if !slices.ContainsFunc(n.Inputs, packed) {
				continue
			}
			var weights []ir.Weight
			if op, ok := n.Op.(ir.WeightOp); ok {
				weights = op.Weights(n)
			}
			for i, v := range n.Inputs {
				if !packed(v) || slices.ContainsFunc(weights, func(w ir.Weight) bool { return w.Input == i && w.View.Equal(v.Store.View) }) {
					continue
				}
				t, err := unpack(v)
				if err != nil {
					return n.Errorf(ir.ErrCorrupt, "weight %s: %v", v.Name, err)
				}
				n.SetInput(i, sub.NewConst(v.Name, t))
			}
		}
	}
	return nil
}

// Settle gives nodes that multiply a weight of two forms the one for their columns, where these are known. It returns how many
// it was.
func Settle(g *ir.Graph, split func(*ir.Value) (*pair.Forms, error)) (int, error) {
	count := 0
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			op, ok := n.Op.(ir.WeightOp)
			if !ok || !slices.ContainsFunc(n.Inputs, paired) {
				continue
			}
			for _, w := range op.Weights(n) {
				v := n.Input(w.Input)
				if !paired(v) || !w.Cols.Known() {
					continue
				}
				forms, err := split(v)
				if err != nil {
					return count, n.Errorf(ir.ErrCorrupt, "weight %s: %v", v.Name, err)
				}
				n.SetInput(w.Input, sub.NewStored(v.Name, v.Type, forms.For(w.Columns())))
				count++
			}
		}
	}
	return count, nil
}

func paired(v *ir.Value) bool { return packed(v) && v.Store.Format == choose.PairFormat }

// checkPlaces checks where a graph reads stored weights.
func checkPlaces(g *ir.Graph) error {
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			var weights []ir.Weight
			if op, ok := n.Op.(ir.WeightOp); ok && slices.ContainsFunc(n.Inputs, packed) {
				weights = op.Weights(n)
			}
			for i, v := range n.Inputs {
				if !packed(v) {
					continue
				}
				at := slices.IndexFunc(weights, func(w ir.Weight) bool { return w.Input == i })
				switch {
				case at < 0:
					return n.Errorf(ir.ErrCorrupt, "input %d is the weight %s in format %s, want elements as they are", i, v.Name, v.Store.Format)
				case weights[at].Groups != 1:
					return n.Errorf(ir.ErrCorrupt, "weight %s is in format %s, want it dense for %d groups", v.Name, v.Store.Format, weights[at].Groups)
				case weights[at].Dense != "":
					return n.Errorf(ir.ErrCorrupt, "weight %s is in format %s, want it dense: %s", v.Name, v.Store.Format, weights[at].Dense)
				case !weights[at].View.Equal(v.Store.View):
					return n.Errorf(ir.ErrCorrupt, "weight %s is stored with other axes as rows than the operator multiplies", v.Name)
				}
			}
		}
		for _, v := range sub.Outputs {
			if packed(v) {
				return fmt.Errorf("output %s is a weight in format %s, want elements as they are: %w", v.Name, v.Store.Format, ir.ErrCorrupt)
			}
		}
	}
	return nil
}

func packed(v *ir.Value) bool { return v != nil && v.Store != nil }

// Check checks a store against the weight's type.
func Check(s *ir.Store, t ir.Type) error {
	shape, ok := t.Shape()
	if !ok || t.DType != tensor.F32 && t.DType != tensor.I8 {
		return fmt.Errorf("stored weight of type %v, want f32 or i8 and a known shape: %w", t, ir.ErrCorrupt)
	}
	f := Lookup(s.Format)
	if f == nil {
		return fmt.Errorf("unknown storage format %q: %w", s.Format, ir.ErrUnsupported)
	}
	if err := s.View.Check(len(shape)); err != nil {
		return fmt.Errorf("%w: %w", err, ir.ErrCorrupt)
	}
	if _, err := tensor.Elems(shape); err != nil {
		return fmt.Errorf("%w: %w", err, ir.ErrCorrupt)
	}
	if m, k := s.View.Dims(shape); m != s.Rows || k != s.Cols {
		return fmt.Errorf("stored as %d x %d, but its type %v is %d x %d: %w", s.Rows, s.Cols, t, m, k, ir.ErrCorrupt)
	}
	if err := f.Check(s); err != nil {
		return fmt.Errorf("%s: %w: %w", s.Format, err, ir.ErrCorrupt)
	}
	if dt := backend.Elements(s); (dt == tensor.I8) != (t.DType == tensor.I8) {
		return fmt.Errorf("%s: elements %v of a weight %v: %w", s.Format, dt, t, ir.ErrCorrupt)
	}
	return nil
}

// Unpack returns the dense tensor of a store that Check accepts.
func Unpack(s *ir.Store, t ir.Type) (*tensor.Tensor, error) {
	m, err := Lookup(s.Format).Unpack(s)
	if err != nil {
		return nil, err
	}
	shape, _ := t.Shape()
	return s.View.Tensor(m.To(t.DType), shape), nil
}

// Grid is that of a weight whose store, which Check accepts, has its codes; nil for others.
func Grid(s *ir.Store, t ir.Type) *ir.Grid {
	if s.Format == choose.PairFormat {
		forms, err := pair.Split(s, "")
		if err != nil {
			return nil
		}
		s = forms.First
	}
	conf, err := choose.ParseGrid(s.Config)
	shape, ok := t.Shape()
	if err != nil || !ok {
		return nil
	}
	g := &ir.Grid{Bits: conf.Bits, Axis: 1, Block: conf.Block, Scales: s.Part("scales"), Zeros: s.Part("zeros")}
	return g.Tensor(s.View, shape)
}
