package op

import (
	"spc/ir"
	"spc/ir/tensor"
)

// RotaryEmbedding turns pairs of the first elements of each head of X[B,H,S,D],
// or X[B,S,H*D], by angles that depend on the position (Su et al., RoFormer,
// 2021). The cosines and sines are [positions, R/2], looked up by
// position_ids[B,S], or [B,S,R/2] where there are none; those of one sample serve all.
type RotaryEmbedding struct {
	streaming
	// Interleaved pairs neighbours; else an element of the first half of the R
	// turned ones is paired with one of the second half.
	Interleaved bool `attr:"interleaved,0"`
	Heads       *int `attr:"num_heads"`
	Dim         int  `attr:"rotary_embedding_dim,0"` // R; 0 for the whole head
}

// Kind is RotaryEmbedding.
func (*RotaryEmbedding) Kind() string { return "RotaryEmbedding" }

// Along keeps samples apart: tables by position serve all, tables of angles have
// those of each sample.
func (*RotaryEmbedding) Along(n *ir.Node, _, axis int) []int {
	switch {
	case axis > 0:
		return nil
	case n.Input(3) != nil:
		return []int{0, Whole, Whole, 0}
	}
	return []int{0, 0, 0}
}

// Infer checks the shapes of the caches.
func (o *RotaryEmbedding) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 3); err != nil {
		return err
	}
	for i := range 3 {
		if err := wantOneOf(c, i, reals); err != nil {
			return err
		}
		if err := wantSame(c, i); err != nil {
			return err
		}
	}
	if err := wantOneOf(c, 3, []tensor.DType{tensor.I64}); err != nil {
		return err
	}
	x := c.In(0)
	c.Set(0, x)
	if !x.Ranked {
		return nil
	}
	if r := x.Rank(); r != 3 && r != 4 {
		return c.Errorf("input has rank %d, want 3 or 4", r)
	}
	d, err := headDims(c, "input", x, o.Heads, "num_heads")
	if err != nil {
		return err
	}
	batch, seq, depth := d[0], d[2], d[3]
	half := c.Fresh()
	if o.Dim < 0 {
		return c.Errorf("rotary_embedding_dim is %d, want at least 0", o.Dim)
	}
	if o.Dim > 0 {
		if depth.Known() && o.Dim > depth.Size() {
			return c.Errorf("rotary_embedding_dim is %d, want at most the %v elements of a head", o.Dim, depth)
		}
		depth = ir.Size(o.Dim)
	}
	if depth.Known() {
		if depth.Size()%2 != 0 {
			return c.Errorf("%v elements of a head are turned, want an even number", depth)
		}
		half = ir.Size(depth.Size() / 2)
	}
	cache := []ir.Dim{batch, seq, half}
	if t := c.In(1); t.Ranked && t.Rank() == 3 && t.Dims[0] == ir.Size(1) {
		cache[0] = ir.Size(1)
	}
	if c.Has(3) {
		if err := wantDims(c, 3, "position_ids", batch, seq); err != nil {
			return err
		}
		cache = []ir.Dim{known(dimOf(c, c.In(1), 0), dimOf(c, c.In(2), 0)), half}
	}
	if err := wantDims(c, 1, "cos_cache", cache...); err != nil {
		return err
	}
	return wantDims(c, 2, "sin_cache", cache...)
}

// Eval turns each pair.
func (o *RotaryEmbedding) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if _, empty, err := evalOutputs(o, 1, in); err != nil || empty != nil {
		return empty, err
	}
	t := in[0]
	packed := t.Rank() == 3
	if !packed { // to [B,S,H,D], in which both forms are alike
		t = t.Permute(0, 2, 1, 3)
	}
	batch, seq := t.Dim(0), t.Dim(1)
	heads, depth := t.Dim(2), t.Dim(-1)
	if packed {
		heads = *o.Heads
		depth = t.Dim(2) / heads
	}
	half := in[1].Dim(-1)
	x, cos, sin := t.Float64s(), in[1].Float64s(), in[2].Float64s()
	var ids []int
	if p := optional(in, 3); p != nil {
		ids = p.Ints()
	}
	for row := range batch * seq {
		at := row % max(1, len(cos)/half)
		if ids != nil {
			if at = ids[row]; at < 0 || at >= in[1].Dim(0) {
				return nil, evalErrorf("position %d is out of range for %v", at, in[1])
			}
		}
		c, s := cos[at*half:][:half], sin[at*half:][:half]
		for h := range heads {
			v := x[(row*heads+h)*depth:][:depth]
			for i := range half {
				a, b := i, half+i
				if o.Interleaved {
					a, b = 2*i, 2*i+1
				}
				v[a], v[b] = c[i]*v[a]-s[i]*v[b], s[i]*v[a]+c[i]*v[b]
			}
		}
	}
	y := tensor.FromFloat64s(t.DType(), x, t.Shape()...)
	if !packed {
		y = y.Permute(0, 2, 1, 3)
	}
	return one(y)
}
