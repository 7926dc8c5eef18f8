package cpu

import (
	"fmt"
	"slices"
	"sync"

	"spc/backend"
	"spc/backend/format"
	"spc/backend/format/dense"
	"spc/backend/format/pair"
	"spc/ir"
	"spc/ir/tensor"
)

// weightKey identifies what was prepared of a weight: of a store or a dense constant, seen through
// a view or for some purpose.
type weightKey struct {
	store  *ir.Store
	dense  *tensor.Tensor
	as     string
	groups int
}

// keyOfWeight is the key of a constant as it is given.
func keyOfWeight(v *ir.Value, as string) weightKey {
	return weightKey{store: v.Store, dense: v.Const, as: as}
}

// prepared returns what make makes of a weight. It is made once, when it is first asked for,
// while others are, too.
func prepared[T any](p *program, key weightKey, make func() (T, error)) (T, error) {
	p.mu.Lock()
	made := p.weights[key]
	if made == nil {
		made = sync.OnceValues(func() (any, error) { return make() })
		p.weights[key] = made
	}
	p.mu.Unlock()
	v, err := made()
	t, _ := v.(T)
	return t, err
}

// weight returns the kernels, one for each group, of a constant weight; none where its format
// has no kernels for its elements.
func (p *program) weight(v *ir.Value, ref ir.Weight) ([]backend.Kernel, error) {
	key := keyOfWeight(v, "")
	if key.groups = ref.Groups; v.Store == nil {
		key.as = fmt.Sprint(ref.View)
	}
	return prepared(p, key, func() ([]backend.Kernel, error) { return p.newKernels(v, ref) })
}

func (p *program) newKernels(v *ir.Value, ref ir.Weight) ([]backend.Kernel, error) {
	if v.Store != nil && ref.Groups == 1 {
		k, err := format.Lookup(v.Store.Format).Kernel(v.Store)
		if k == nil {
			return nil, err
		}
		return []backend.Kernel{k}, nil
	}
	if v.Store != nil { // dense: no other is asked for in groups
		return groupsOf(v.Store, ref.Groups)
	}
	if ref.Groups == 1 && v.Const.DType() == tensor.F32 && v.Const.Rank() == 2 && ref.View.RowAxes == 1 && slices.Equal(ref.View.Perm, []int{1, 0}) {
		k := dense.NewTransposed(v.Const)
		p.source(k, v.Const.Bytes())
		return []backend.Kernel{k}, nil
	}
	m := ref.View.Matrix(v.Const)
	all := make([]backend.Kernel, ref.Groups)
	for g := range all {
		part := m
		if ref.Groups > 1 {
			part = rowsOf(m, g*m.Dim(0)/ref.Groups, m.Dim(0)/ref.Groups)
		}
		k, err := format.Lookup(dense.Name).Kernel(dense.Store(part))
		if err != nil || k == nil {
			return nil, err
		}
		if all[g] = k; v.Const.DType() == tensor.F32 { // others are kept
			size := len(v.Const.Bytes()) / ref.Groups
			p.source(k, v.Const.Bytes()[g*size:][:size])
		}
	}
	return all, nil
}

// groupsOf returns kernels for parts of the rows of a dense store, as each of its parts has rows.
func groupsOf(s *ir.Store, groups int) ([]backend.Kernel, error) {
	all := make([]backend.Kernel, groups)
	for g := range all {
		rows := &ir.Store{Format: s.Format, Config: s.Config, Rows: s.Rows / groups, Cols: s.Cols}
		for _, p := range s.Parts {
			size := len(p.Data.Bytes()) / groups
			t, err := tensor.FromBytes(p.Data.DType(), []int{rows.Rows, p.Data.Dim(1)}, p.Data.Bytes()[g*size:][:size])
			if err != nil {
				return nil, err
			}
			rows.Parts = append(rows.Parts, ir.Part{Name: p.Name, Data: t})
		}
		var err error
		if all[g], err = format.Lookup(dense.Name).Kernel(rows); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// rowsOf returns rows of a matrix f32.
func rowsOf(m *tensor.Tensor, from, rows int) *tensor.Tensor {
	k := m.Dim(1)
	return tensor.From(m.F32s()[from*k:(from+rows)*k], rows, k)
}

// source says what a dense kernel is made of.
func (p *program) source(k backend.Kernel, b []byte) {
	p.mu.Lock()
	p.sources[k] = b
	p.mu.Unlock()
}

// copied says that a kernel has copied its weight and hardly reads it again.
func (p *program) copied(k backend.Kernel) {
	p.mu.Lock()
	b := p.sources[k]
	p.mu.Unlock()
	if p.unneeded != nil && b != nil {
		p.unneeded(b)
	}
}

// prepare makes the kernels of all weights of g, at the same time.
func (p *program) prepare(g *ir.Graph) {
	type use struct {
		v   *ir.Value
		ref ir.Weight
	}
	var uses []use
	for _, n := range g.Nodes {
		w, ok := n.Op.(ir.WeightOp)
		if !ok || binders[n.Op.Kind()] == nil || !static(n) {
			continue
		}
		for _, ref := range w.Weights(n) {
			if v := n.Input(ref.Input); multiplied(v, ref) {
				uses = append(uses, use{v, ref})
			}
		}
	}
	// An error comes again, with the node's name, when the node is bound.
	p.pool.begin() // others help
	defer p.pool.end()
	p.pool.NewTeam().For(len(uses), func(_, i int) { p.weight(uses[i].v, uses[i].ref) })
}

// multiplied reports whether there may be kernels for a weight.
func multiplied(v *ir.Value, ref ir.Weight) bool {
	if v == nil || !v.IsConst() {
		return false
	}
	dt := v.Type.DType
	return dt == tensor.F32 || dt == tensor.I8 && ref.Groups == 1
}

// kernelsOf returns the weight of n at an input, where that is constant, with its prepared
// kernels: none where they are not of the kind K.
func kernelsOf[K backend.Kernel](p *program, n *ir.Node, input int) (ir.Weight, []K, error) {
	w, ok := n.Op.(ir.WeightOp)
	if !ok {
		return ir.Weight{}, nil, nil
	}
	for _, ref := range w.Weights(n) {
		v := n.Input(ref.Input)
		if ref.Input != input || !multiplied(v, ref) {
			continue
		}
		all, err := p.weight(v, ref)
		if err != nil {
			return ref, nil, n.Errorf(ir.ErrInvalid, "weight %s: %v", v.Name, err)
		}
		var kernels []K
		for _, k := range all {
			if k, ok := k.(K); ok {
				kernels = append(kernels, k)
			}
		}
		return ref, kernels, nil
	}
	return ir.Weight{}, nil, nil
}

// weightOf returns the weight of n at an input with kernels for floats.
func (p *program) weightOf(n *ir.Node, input int) (ir.Weight, []backend.FloatKernel, error) {
	return kernelsOf[backend.FloatKernel](p, n, input)
}

// sized returns the kernels for products of n columns in place of those.
func sized(kernels []backend.FloatKernel, n int) []backend.FloatKernel {
	out := slices.Clone(kernels)
	for i, k := range out {
		if s, ok := k.(backend.Sizer); ok {
			out[i] = s.Sized(n)
		}
	}
	return out
}

// elements returns those of a constant weight.
func (p *program) elements(v *ir.Value) (*tensor.Tensor, error) {
	if v.Const != nil {
		return v.Const, nil
	}
	return p.unpack(v)
}

// unpack returns the elements of a stored weight.
func (p *program) unpack(v *ir.Value) (*tensor.Tensor, error) {
	return prepared(p, keyOfWeight(v, "elements"), func() (*tensor.Tensor, error) { return format.Unpack(v.Store, v.Type) })
}

// forms returns those of a weight in two.
func (p *program) forms(v *ir.Value) (*pair.Forms, error) {
	return prepared(p, keyOfWeight(v, "forms"), func() (*pair.Forms, error) { return pair.Split(v.Store, v.Name) })
}
