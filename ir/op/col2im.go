package op

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Col2Im adds columns [n, c*block, blocks] up to images [n, c, ...], the inverse of
// cutting an image into blocks: its second input lists the image's dimensions, its
// third the block's.
type Col2Im struct {
	streaming
	Dilations []int `attr:"dilations"`
	Pads      []int `attr:"pads"` // before each axis, then after each
	Strides   []int `attr:"strides"`
}

// Kind is Col2Im.
func (*Col2Im) Kind() string { return "Col2Im" }

// Infer divides the rows by the block.
func (o *Col2Im) Infer(c *ir.Infer) error {
	x := c.In(0)
	if !x.DType.IsFloat() && !x.DType.IsInt() {
		return c.Unsupportedf("input 0 is %v, want numbers", x)
	}
	if err := wantRank(c, 0, 3); err != nil {
		return err
	}
	for i := 1; i <= 2; i++ {
		if err := needInts(c, i, 1); err != nil {
			return err
		}
	}
	image, ok := dimsOf(c, 1)
	if !ok {
		c.Set(0, ir.Unranked(x.DType))
		return nil
	}
	n, ch := dimOf(c, x, 0), c.Fresh()
	if block, ok := intsOf(c, 2); ok && x.Ranked {
		q, ok := ir.Div(x.Dims[1], ir.Mul(ir.Sizes(block...)...))
		if !ok && x.Dims[1].Known() {
			return c.Errorf("%v rows, want a multiple of the block %v", x.Dims[1], block)
		}
		if ok {
			ch = q
		}
		if sizes, err := shapeOf(image, nil); err == nil {
			g, err := o.geometry(sizes, block)
			if err != nil {
				return refuse(c, err)
			}
			if differ(x.Dims[2], ir.Size(product(g.blocks))) {
				return c.Errorf("%v columns, want %d", x.Dims[2], product(g.blocks))
			}
		}
	}
	c.Set(0, ir.Of(x.DType, slices.Concat([]ir.Dim{n, ch}, image)...))
	return nil
}

// blockGeometry is how blocks lie in an image.
type blockGeometry struct {
	image, block, blocks     []int // blocks is the number of blocks along each axis
	stride, dilation, before []int
}

func (o *Col2Im) geometry(image, block []int) (*blockGeometry, error) {
	r := len(image)
	g := &blockGeometry{image: image, block: block, blocks: make([]int, r), stride: o.Strides, dilation: o.Dilations, before: o.Pads}
	ones := slices.Repeat([]int{1}, r)
	if g.stride == nil {
		g.stride = ones
	}
	if g.dilation == nil {
		g.dilation = ones
	}
	pads := o.Pads
	if pads == nil {
		pads = make([]int, 2*r)
	}
	if r == 0 || len(block) != r || len(g.stride) != r || len(g.dilation) != r || len(pads) != 2*r {
		return nil, evalErrorf("image %v, block %v, strides %v, dilations %v, pads %v, want one for each axis and two pads", image, block, g.stride, g.dilation, pads)
	}
	g.before = pads[:r]
	for a := range r {
		for _, v := range []int{image[a], block[a], g.stride[a], g.dilation[a], pads[a] + 1, pads[r+a] + 1} {
			if v < 1 || v > 1<<30 {
				return nil, evalErrorf("image %v, block %v, strides %v, dilations %v, pads %v, want them positive", image, block, g.stride, g.dilation, pads)
			}
		}
		room := image[a] + pads[a] + pads[r+a] - g.dilation[a]*(block[a]-1) - 1
		if room < 0 {
			return nil, evalErrorf("block %v does not fit into image %v", block, image)
		}
		g.blocks[a] = room/g.stride[a] + 1
	}
	for _, s := range [][]int{image, block, g.blocks} {
		if _, err := tensor.Elems(s); err != nil {
			return nil, evalErrorf("%v", err)
		}
	}
	return g, nil
}

// Eval adds each element of a column to its place.
func (o *Col2Im) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	g, err := o.geometry(in[1].Ints(), in[2].Ints())
	if err != nil {
		return nil, err
	}
	s := in[0].Shape()
	block, columns := product(g.block), product(g.blocks)
	if s[1]%block != 0 || s[2] != columns {
		return nil, evalErrorf("columns are %v, want [n, c*%d, %d]", in[0], block, columns)
	}
	shape := slices.Concat([]int{s[0], s[1] / block}, g.image)
	if err := checkOutput(shape); err != nil {
		return nil, err
	}
	x, y := in[0].Float64s(), make([]float64, product(shape))
	image := product(g.image)
	for row := range s[0] * s[1] {
		img := y[row/block*image:][:image]
		for col, v := range x[row*columns:][:columns] {
			if at, ok := g.offset(row%block, col); ok {
				img[at] += v
			}
		}
	}
	return one(saturated(in[0].DType(), y, shape))
}

// offset returns where element e of block b lies in the image; ok is false in the
// padding.
func (g *blockGeometry) offset(e, b int) (at int, ok bool) {
	stride := 1
	for a := len(g.image) - 1; a >= 0; a-- {
		p := b%g.blocks[a]*g.stride[a] + e%g.block[a]*g.dilation[a] - g.before[a]
		if p < 0 || p >= g.image[a] {
			return 0, false
		}
		at += p * stride
		stride *= g.image[a]
		b /= g.blocks[a]
		e /= g.block[a]
	}
	return at, true
}
