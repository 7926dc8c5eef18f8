package cpu

import (
	"sync/atomic"

	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Elements and runs of them whose places indices tell in each run.

// places tells where in data of a shape the elements or runs lie that indices name.
type places struct {
	run  int  // elements that lie side by side at a place
	rows int  // of places
	cols int  // places in a row
	own  bool // different rows never name the same place
	// find writes the places of a row from a column on.
	find func(at []int, indices *tensor.Tensor, row, col int) error
}

// elementPlaces are those of GatherElements and ScatterElements: the elements at the same place as the index but along an axis.
func elementPlaces(n *ir.Node, shape, at []int, along int) *places {
	last := len(shape) - 1
	if along < 0 {
		along += len(shape)
	}
	strides := tensor.Strides(shape)
	size, stride, step := shape[along], strides[along], 1
	strides[along] = 0 // of what does not depend on the index
	if along == last {
		step = 0
	}
	outer := make([]axis, last)
	for a := range outer {
		outer[a] = axis{at[a], strides[a]}
	}
	p := &places{run: 1, rows: prod(at[:last]), cols: at[last], own: along == last}
	p.find = func(to []int, indices *tensor.Tensor, row, col int) error {
		if err := indexRow(n, to, indices, row*p.cols+col, along, size); err != nil {
			return err
		}
		from := offset(outer, row) + col*step
		for c := range to {
			to[c] = from + to[c]*stride
			from += step
		}
		return nil
	}
	return p
}

// vectorPlaces are those of GatherND and ScatterND: the slices that vectors of indices name, behind axes that both inputs share.
func vectorPlaces(n *ir.Node, shape, at []int, batch int) *places {
	last := len(at) - 1
	k := at[last]
	strides := tensor.Strides(shape)
	block, perBlock := prod(shape[batch:]), prod(at[batch:last])
	vector := make([]axis, k)
	for j := range vector {
		vector[j] = axis{shape[batch+j], strides[batch+j]}
	}
	p := &places{run: prod(shape[batch+k:]), rows: prod(at[:last]), cols: 1}
	p.find = func(to []int, indices *tensor.Tensor, row, _ int) error {
		to[0] = row / perBlock * block
		for j, a := range vector {
			i, err := indexAt(n, indices, row*k+j, batch+j, a.n)
			if err != nil {
				return err
			}
			to[0] += i * a.step
		}
		return nil
	}
	return p
}

// indexAt is the i-th index, from the end where it is negative, of an axis of so many elements.
func indexAt(n *ir.Node, t *tensor.Tensor, i, axis, size int) (int, error) {
	p := intAt(t, i)
	if p < -size || p >= size {
		return 0, n.Errorf(ir.ErrInvalid, "%s", op.OutOfRange(p, axis, size))
	}
	if p < 0 {
		p += size
	}
	return p, nil
}

// intAt is the i-th element of i32 or i64.
func intAt(t *tensor.Tensor, i int) int {
	if t.DType() == tensor.I32 {
		return int(tensor.Data[int32](t)[i])
	}
	return int(tensor.Data[int64](t)[i])
}

// indexRow writes indices from one on to at.
func indexRow(n *ir.Node, at []int, t *tensor.Tensor, from, axis, size int) error {
	if t.DType() == tensor.I32 {
		return positions(n, at, tensor.Data[int32](t)[from:][:len(at)], axis, size)
	}
	return positions(n, at, tensor.Data[int64](t)[from:][:len(at)], axis, size)
}

// each makes what calls use with the places of each row of indices, or of a part of its columns, by the number of the first of them.
func (p *places) each(x *exec, byRows bool, use func(first int, at []int, run int)) func(indices *tensor.Tensor) error {
	items := p.rows
	count, each := parts(x, items, p.rows*p.cols*p.run)
	if !byRows { // every part looks all rows up
		items = p.cols * p.run
		each = max(16, (items+x.pool.Threads()-1)/x.pool.Threads())
		count = (items + each - 1) / each
	}
	at := make([][]int, x.pool.Threads())
	for w := range at {
		at[w] = make([]int, p.cols)
	}
	var indices *tensor.Tensor
	var failed atomic.Bool
	body := func(worker, i int) {
		lo, hi := i*each, min(items, (i+1)*each)
		if byRows {
			for r := lo; r < hi; r++ {
				if p.find(at[worker], indices, r, 0) != nil {
					failed.Store(true)
					return
				}
				use(r*p.cols*p.run, at[worker], p.run)
			}
			return
		}
		at := at[worker][:min(p.cols, hi-lo)]
		for r := range p.rows {
			if p.find(at, indices, r, lo) != nil {
				failed.Store(true)
				return
			}
			run := 1
			if p.cols == 1 { // the columns are those of the run
				at[0] += lo
				run = hi - lo
			}
			use(r*p.cols*p.run+lo, at, run)
		}
	}
	return func(t *tensor.Tensor) error {
		indices = t
		x.pool.For(count, body)
		if !failed.Swap(false) {
			return nil
		}
		return p.check(at[0], t)
	}
}

// check returns the first error.
func (p *places) check(at []int, indices *tensor.Tensor) error {
	for r := range p.rows {
		if err := p.find(at, indices, r, 0); err != nil {
			return err
		}
	}
	return nil
}

// placesOf are those of a node that gathers or scatters, for shapes of its data and of its indices; nil for scalars, which have none.
func placesOf(n *ir.Node, shape, at []int) *places {
	if len(shape) == 0 {
		return nil
	}
	switch o := n.Op.(type) {
	case *op.GatherElements:
		return elementPlaces(n, shape, at, o.Axis)
	case *op.ScatterElements:
		return elementPlaces(n, shape, at, o.Axis)
	case *op.GatherND:
		return vectorPlaces(n, shape, at, o.BatchDims)
	}
	return vectorPlaces(n, shape, at, 0)
}

// bindPick copies what indices name one after the other.
func bindPick(_ *program, n *ir.Node) (*bound, error) {
	shape := shapeOf(n.Inputs[0])
	p := placesOf(n, shape, shapeOf(n.Inputs[1]))
	if p == nil || !movable(n) || prod(shape) == 0 {
		return nil, nil
	}
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		switch n.Outputs[0].Type.DType.Size() {
		case 1:
			return pick[uint8](x, p, in, out)
		case 2:
			return pick[uint16](x, p, in, out)
		case 4:
			return pick[float32](x, p, in, out)
		}
		return pick[uint64](x, p, in, out)
	}}, nil
}

func pick[T word](x *exec, p *places, in, out []*tensor.Tensor) func() error {
	var dst, src []T
	find := p.each(x, true, func(first int, at []int, run int) {
		if run > 1 {
			copy(dst[first:][:run], src[at[0]:])
			return
		}
		y := dst[first:][:len(at)]
		for i, from := range at {
			y[i] = src[from]
		}
	})
	return func() error {
		dst, src = wordsOf[T](out[0]), wordsOf[T](in[0])
		return find(in[1])
	}
}

// bindScatter joins updates to a copy of the data, which may be the data, one after the other.
func bindScatter(_ *program, n *ir.Node) (*bound, error) {
	shape := shapeOf(n.Inputs[0])
	if !movable(n) || prod(shapeOf(n.Inputs[2])) == 0 || len(shape) == 0 {
		return nil, nil
	}
	p, use := placesOf(n, shape, shapeOf(n.Inputs[1])), scattererOf(n, n.Outputs[0].Type.DType)
	if use == nil {
		return nil, nil
	}
	return &bound{inplace: 0, alone: true, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		find := p.each(x, p.own, func(first int, at []int, run int) { use(out[0], in[2], at, first, run) })
		return func() error {
			if !within(out[0], in[0], 0) {
				copy(out[0].Bytes(), in[0].Bytes())
			}
			return find(in[1])
		}
	}}, nil
}

// scatterer joins updates, from one on, to the runs that begin at places.
type scatterer func(dst, src *tensor.Tensor, at []int, from, run int)

// scattererOf is that of a node that scatters elements of a type, nil where there is none.
func scattererOf(n *ir.Node, dt tensor.DType) scatterer {
	how := "none"
	switch o := n.Op.(type) {
	case *op.ScatterElements:
		how = o.Reduction
	case *op.ScatterND:
		how = o.Reduction
	}
	if how == "none" {
		switch dt.Size() {
		case 1:
			return put[uint8]
		case 2:
			return put[uint16]
		case 4:
			return put[float32]
		}
		return put[uint64]
	}
	switch dt {
	case tensor.F32:
		rows := map[string]func(y, a, b []float32){"add": vec.Add, "mul": vec.Mul, "max": vec.Max, "min": vec.Min}[how]
		elements := combine[float32](how)
		return func(dst, src *tensor.Tensor, at []int, from, run int) {
			if run == 1 {
				elements(dst, src, at, from, run)
				return
			}
			y := dst.F32s()[at[0]:][:run]
			rows(y, y, src.F32s()[from:][:run])
		}
	case tensor.F64:
		return combine[float64](how)
	case tensor.I32:
		return combine[int32](how)
	case tensor.I64:
		return combine[int64](how)
	case tensor.U8:
		return combine[uint8](how)
	case tensor.I8:
		return combine[int8](how)
	}
	return nil
}

// put copies updates.
func put[T word](dst, src *tensor.Tensor, at []int, from, run int) {
	y, x := wordsOf[T](dst), wordsOf[T](src)[from:]
	if run > 1 {
		copy(y[at[0]:][:run], x)
		return
	}
	for i, to := range at {
		y[to] = x[i]
	}
}

type number interface {
	float32 | float64 | int8 | int32 | int64 | uint8
}

// combine joins numbers of a type.
func combine[T number](how string) scatterer {
	if how == "add" {
		return accumulate[T]
	}
	join := map[string]func(a, b T) T{
		"mul": func(a, b T) T { return a * b },
		"max": func(a, b T) T { return max(a, b) },
		"min": func(a, b T) T { return min(a, b) },
	}[how]
	return func(dst, src *tensor.Tensor, at []int, from, run int) {
		y, x := tensor.Data[T](dst), tensor.Data[T](src)[from:][:len(at)*run]
		if run == 1 {
			for i, to := range at {
				y[to] = join(y[to], x[i])
			}
			return
		}
		y = y[at[0]:][:run]
		for i, v := range x {
			y[i] = join(y[i], v)
		}
	}
}

// accumulate adds numbers of a type.
func accumulate[T number](dst, src *tensor.Tensor, at []int, from, run int) {
	y, x := tensor.Data[T](dst), tensor.Data[T](src)[from:][:len(at)*run]
	if run == 1 {
		for i, to := range at {
			y[to] += x[i]
		}
		return
	}
	y = y[at[0]:][:run]
	for i, v := range x {
		y[i] += v
	}
}
