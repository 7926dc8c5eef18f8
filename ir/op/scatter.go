package op

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

var reductions = []string{"none", "add", "mul", "max", "min"}

// checkScatter refuses a node that lacks an input, updates of another type than the
// data, and a reduction that does not exist or that the type does not have.
func checkScatter(c *ir.Infer, reduction string) error {
	if err := wantPresent(c, 3); err != nil {
		return err
	}
	if !slices.Contains(reductions, reduction) {
		return c.Errorf("reduction %q, want one of %q", reduction, reductions)
	}
	dt := c.In(0).DType
	if plain := dt.Bits() >= 8 && (dt.IsInt() || dt.IsFloat() && dt.Bits() >= 16); reduction != "none" && !plain {
		return c.Unsupportedf("reduction %s of %v", reduction, dt)
	}
	return wantSame(c, 2)
}

// scatter copies y and combines runs of elements of u with those of the copy at
// offs.
func scatter(y, u *tensor.Tensor, offs []int, run int, reduction string) (*tensor.Tensor, error) {
	if reduction == "none" {
		y = y.Clone()
		for i, at := range offs {
			copyRun(y, at, u, i*run, run)
		}
		return y, nil
	}
	out, err := viaF32([]*tensor.Tensor{y, u}, func(in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		y, u := in[0].Clone(), in[1]
		switch y.DType() {
		case tensor.F32:
			scatterInto[float32](y, u, offs, run, reduction)
		case tensor.F64:
			scatterInto[float64](y, u, offs, run, reduction)
		case tensor.I8:
			scatterInto[int8](y, u, offs, run, reduction)
		case tensor.I16:
			scatterInto[int16](y, u, offs, run, reduction)
		case tensor.I32:
			scatterInto[int32](y, u, offs, run, reduction)
		case tensor.I64:
			scatterInto[int64](y, u, offs, run, reduction)
		case tensor.U8:
			scatterInto[uint8](y, u, offs, run, reduction)
		case tensor.U16:
			scatterInto[uint16](y, u, offs, run, reduction)
		case tensor.U32:
			scatterInto[uint32](y, u, offs, run, reduction)
		case tensor.U64:
			scatterInto[uint64](y, u, offs, run, reduction)
		}
		return one(y)
	})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

func scatterInto[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64](y, u *tensor.Tensor, offs []int, run int, reduction string) {
	dst, src := tensor.Data[T](y), tensor.Data[T](u)
	for i, at := range offs {
		d, s := dst[at:at+run], src[i*run:(i+1)*run]
		for j, v := range s {
			switch reduction {
			case "add":
				d[j] += v
			case "mul":
				d[j] *= v
			case "max":
				d[j] = max(d[j], v)
			case "min":
				d[j] = min(d[j], v)
			}
		}
	}
}

// ScatterElements writes each element of its third input into a copy of the first,
// at the same place but for one axis, along which the element of the second is the
// index.
type ScatterElements struct {
	streaming
	Axis      int    `attr:"axis,0"`
	Reduction string `attr:"reduction,none"`
}

// Kind is ScatterElements.
func (*ScatterElements) Kind() string { return "ScatterElements" }

// Infer keeps the type of the data.
func (o *ScatterElements) Infer(c *ir.Infer) error {
	if err := checkScatter(c, o.Reduction); err != nil {
		return err
	}
	if err := checkElements(c, o.Axis); err != nil {
		return err
	}
	at, u := c.In(1), c.In(2)
	if err := wantRank(c, 2, at.Rank()); at.Ranked && err != nil {
		return err
	}
	for i := range at.Dims {
		if !u.Ranked {
			break
		}
		if _, ok := sameDim(at.Dims[i], u.Dims[i]); !ok {
			return c.Errorf("updates are %v, want the shape of the indices, %v", u, at)
		}
	}
	c.Set(0, c.In(0))
	if o.Reduction == "none" {
		moveElems(c, o, 0, 2)
	}
	return nil
}

// Eval writes the updates one after the other.
func (o *ScatterElements) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	offs, err := elementOffsets(in[0].Shape(), in[1], o.Axis)
	if err != nil {
		return nil, err
	}
	y, err := scatter(in[0], in[2], offs, 1, o.Reduction)
	return []*tensor.Tensor{y}, err
}

// upgradeScatter renames Scatter, as ScatterElements was called before opset 11.
func upgradeScatter(l *Legacy) error {
	l.Kind = "ScatterElements"
	return nil
}

// ScatterND writes the slices of its third input into a copy of the first, where
// the index vectors along the last axis of the second point.
type ScatterND struct {
	streaming
	Reduction string `attr:"reduction,none"`
}

// Kind is ScatterND.
func (*ScatterND) Kind() string { return "ScatterND" }

// Infer keeps the type of the data.
func (o *ScatterND) Infer(c *ir.Infer) error {
	if err := checkScatter(c, o.Reduction); err != nil {
		return err
	}
	if err := needInts(c, 1, -1); err != nil {
		return err
	}
	x, at, u := c.In(0), c.In(1), c.In(2)
	c.Set(0, x)
	if !x.Ranked || !at.Ranked || at.Rank() > 0 && !at.Dims[at.Rank()-1].Known() {
		return nil
	}
	want, err := new(GatherND).dims(x.Dims, at.Dims)
	if err != nil {
		return refuse(c, err)
	}
	if err := wantRank(c, 2, len(want)); err != nil {
		return err
	}
	for i, d := range u.Dims {
		if _, ok := sameDim(d, want[i]); !ok {
			return c.Errorf("updates are %v, want %v", u, want)
		}
	}
	if o.Reduction == "none" {
		moveElems(c, o, 0, 2)
	}
	return nil
}

// Offsets returns where in a tensor of the given shape the runs of elements begin that
// index vectors name, and their length.
func (o *ScatterND) Offsets(shape []int, at *tensor.Tensor) (offs []int, run int, err error) {
	return vectorOffsets(shape, at, 0)
}

// Eval writes the updates one after the other.
func (o *ScatterND) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	offs, run, err := vectorOffsets(in[0].Shape(), in[1], 0)
	if err != nil {
		return nil, err
	}
	y, err := scatter(in[0], in[2], offs, run, o.Reduction)
	return []*tensor.Tensor{y}, err
}

// TensorScatter writes its second input, [batch, ..., n, ...], into a copy of the
// first, [batch, ..., size, ...], along an axis from the position that its third
// lists for each of the batch, by default zero: the update of a cache. In mode
// circular positions beyond the end continue at the start. An owned cache is an input of the graph that nobody else reads:
// a device may write to it where it lies, and have the output there.
type TensorScatter struct {
	streaming
	Axis  int    `attr:"axis,-2"`
	Mode  string `attr:"mode,linear"`
	Owned bool   `attr:"spc_owned,0"`
}

// Kind is TensorScatter.
func (*TensorScatter) Kind() string { return "TensorScatter" }

// Infer keeps the type of the cache.
func (o *TensorScatter) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 2); err != nil {
		return err
	}
	if o.Mode != "linear" && o.Mode != "circular" {
		return c.Errorf("mode %q, want linear or circular", o.Mode)
	}
	if err := wantSame(c, 1); err != nil {
		return err
	}
	if err := wantInts(c, 2, 1); err != nil {
		return err
	}
	x, u, at := c.In(0), c.In(1), c.In(2)
	c.Set(0, x)
	if !x.Ranked {
		return nil
	}
	a, err := axis(c, o.Axis, x.Rank())
	if err != nil {
		return err
	}
	if a == 0 {
		return c.Errorf("axis %d is the batch, want another", o.Axis)
	}
	if err := wantRank(c, 1, x.Rank()); err != nil {
		return err
	}
	for i, d := range u.Dims {
		e, ok := sameDim(d, x.Dims[i])
		if i == a {
			ok = !e.Known() || !d.Known() || !x.Dims[i].Known() || d.Size() <= x.Dims[i].Size()
		}
		if !ok {
			return c.Errorf("updates are %v, want them to fit into %v along axis %d and to agree with it elsewhere", u, x, a)
		}
	}
	if at.Ranked {
		if _, ok := sameDim(at.Dims[0], x.Dims[0]); !ok {
			return c.Errorf("positions are %v, want one for each of %v", at, x.Dims[0])
		}
	}
	return nil
}

// Eval copies the update in, slice by slice.
func (o *TensorScatter) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	y, u := in[0].Clone(), in[1]
	a := norm(o.Axis, y.Rank())
	size, n := y.Dim(a), u.Dim(a)
	run := product(y.Shape()[a+1:])
	middle := product(y.Shape()[1:a])
	start := make([]int, y.Dim(0))
	if len(in) > 2 && in[2] != nil {
		start = in[2].Ints()
	}
	if u.Len() == 0 {
		return one(y)
	}
	for b, s := range start {
		if s < 0 || o.Mode == "linear" && s > size-n || s >= size {
			return nil, evalErrorf("position %d for %d elements of %d", s, n, size)
		}
		for m := range middle {
			row := b*middle + m
			for i := range n {
				copyRun(y, (row*size+(s+i)%size)*run, u, (row*n+i)*run, run)
			}
		}
	}
	return one(y)
}
