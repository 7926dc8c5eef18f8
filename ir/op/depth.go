package op

import (
	"spc/ir"
	"spc/ir/tensor"
)

// DepthToSpace moves blocks of channels into the image: [n, c*b*b, h, w] becomes
// [n, c, h*b, w*b]. In mode DCR the block's position is the slower part of a
// channel's number, in CRD the faster.
type DepthToSpace struct {
	permuting
	Block int    `attr:"blocksize"`
	Mode  string `attr:"mode,DCR"`
}

// Kind is DepthToSpace.
func (*DepthToSpace) Kind() string { return "DepthToSpace" }

// Along keeps images apart.
func (*DepthToSpace) Along(_ *ir.Node, _, axis int) []int {
	if axis > 0 {
		return nil
	}
	return []int{0}
}

// Infer divides the channels.
func (o *DepthToSpace) Infer(c *ir.Infer) error {
	if o.Mode != "DCR" && o.Mode != "CRD" {
		return c.Errorf("mode %q, want DCR or CRD", o.Mode)
	}
	x, err := blockInput(c, o.Block)
	if err != nil {
		return err
	}
	b := ir.Size(o.Block)
	ch, ok := ir.Div(x[1], ir.Mul(b, b))
	if !ok {
		if x[1].Known() {
			return c.Errorf("%v channels, want a multiple of %d", x[1], o.Block*o.Block)
		}
		ch = c.Fresh()
	}
	c.Set(0, ir.Of(c.In(0).DType, x[0], ch, ir.Mul(x[2], b), ir.Mul(x[3], b)))
	return nil
}

// blockInput checks the block size and returns the four dimensions of input 0.
func blockInput(c *ir.Infer, block int) ([]ir.Dim, error) {
	if block < 1 || block > 1<<20 {
		return nil, c.Errorf("blocksize %d, want it positive", block)
	}
	if err := wantRank(c, 0, 4); err != nil {
		return nil, err
	}
	if !c.In(0).Ranked {
		return c.FreshDims(4), nil
	}
	return c.In(0).Dims, nil
}

// Eval permutes the axes of the block.
func (o *DepthToSpace) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	s, b := in[0].Shape(), o.Block
	n, c, h, w := s[0], s[1]/(b*b), s[2], s[3]
	var y *tensor.Tensor
	if o.Mode == "DCR" {
		y = in[0].Reshape(n, b, b, c, h, w).Permute(0, 3, 4, 1, 5, 2)
	} else {
		y = in[0].Reshape(n, c, b, b, h, w).Permute(0, 1, 4, 2, 5, 3)
	}
	return one(y.Reshape(n, c, h*b, w*b))
}

// SpaceToDepth moves blocks of the image into channels: [n, c, h*b, w*b] becomes
// [n, b*b*c, h, w]. It is the inverse of DepthToSpace in mode DCR.
type SpaceToDepth struct {
	permuting
	Block int `attr:"blocksize"`
}

// Kind is SpaceToDepth.
func (*SpaceToDepth) Kind() string { return "SpaceToDepth" }

// Along keeps images apart.
func (*SpaceToDepth) Along(_ *ir.Node, _, axis int) []int {
	if axis > 0 {
		return nil
	}
	return []int{0}
}

// Infer divides height and width.
func (o *SpaceToDepth) Infer(c *ir.Infer) error {
	x, err := blockInput(c, o.Block)
	if err != nil {
		return err
	}
	b := ir.Size(o.Block)
	dims := []ir.Dim{x[0], ir.Mul(x[1], b, b), x[2], x[3]}
	for i := 2; i < 4; i++ {
		d, ok := ir.Div(x[i], b)
		if !ok {
			if x[i].Known() {
				return c.Errorf("an image of %v by %v, want multiples of %d", x[2], x[3], o.Block)
			}
			d = c.Fresh()
		}
		dims[i] = d
	}
	c.Set(0, ir.Of(c.In(0).DType, dims...))
	return nil
}

// Eval permutes the axes of the block.
func (o *SpaceToDepth) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	s, b := in[0].Shape(), o.Block
	n, c, h, w := s[0], s[1], s[2]/b, s[3]/b
	return one(in[0].Reshape(n, c, h, b, w, b).Permute(0, 3, 5, 1, 2, 4).Reshape(n, c*b*b, h, w))
}
