package cpu

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// finder computes the outputs of a node whose types are not known before it runs, as its operator's Eval does.
type finder func(n *ir.Node, in []*tensor.Tensor) ([]*tensor.Tensor, error)

// finders lists the operators that have one: where the sizes of outputs are those of what was found, and where new sizes come with
// each run, for which binding a kernel would take longer than what it does.
var finders = map[string]finder{
	"Concat":            moveNow, // to what a loop has made so far
	"Gather":            gatherNow,
	"GatherElements":    pickNow,
	"GatherND":          pickNow,
	"NonMaxSuppression": suppress,
	"NonZero":           nonZero,
	"ScatterElements":   scatterNow,
	"ScatterND":         scatterNow,
	"Slice":             moveNow,
}

// moveNow has the operator copy runs, which it does as fast as any kernel.
func moveNow(n *ir.Node, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return n.Op.Eval(&ir.Eval{Outputs: 1}, in)
}

// gatherNow copies the rows that indices name.
func gatherNow(n *ir.Node, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, indices := in[0], in[1]
	if !moved(x.DType()) {
		return n.Op.Eval(&ir.Eval{Outputs: 1}, in)
	}
	shape := x.Shape()
	along := n.Op.(*op.Gather).Axis
	if along < 0 {
		along += len(shape)
	}
	at := make([]int, indices.Len())
	if err := indexRow(n, at, indices, 0, along, shape[along]); err != nil {
		return nil, err
	}
	outer, inner := prod(shape[:along]), prod(shape[along+1:])
	places := make([]int, 0, outer*len(at))
	for o := range outer {
		for _, p := range at {
			places = append(places, (o*shape[along]+p)*inner)
		}
	}
	return runs(x, slices.Concat(shape[:along], indices.Shape(), shape[along+1:]), places, inner)
}

// pickNow copies what indices name one after the other.
func pickNow(n *ir.Node, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, indices := in[0], in[1]
	shape, last := indices.Shape(), indices.Rank()-1
	if o, is := n.Op.(*op.GatherND); is {
		shape = slices.Concat(shape[:last], x.Shape()[o.BatchDims+shape[last]:])
	}
	p := placesOf(n, x.Shape(), indices.Shape())
	if p == nil || !moved(x.DType()) {
		return n.Op.Eval(&ir.Eval{Outputs: 1}, in)
	}
	places := make([]int, p.rows*p.cols)
	for r := range p.rows {
		if err := p.find(places[r*p.cols:][:p.cols], indices, r, 0); err != nil {
			return nil, err
		}
	}
	return runs(x, shape, places, p.run)
}

// scatterNow joins updates to a copy of the data, one after the other.
func scatterNow(n *ir.Node, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, indices, updates := in[0], in[1], in[2]
	p := placesOf(n, x.Shape(), indices.Shape())
	if p == nil || !moved(x.DType()) {
		return n.Op.Eval(&ir.Eval{Outputs: 1}, in)
	}
	use := scattererOf(n, x.DType())
	if use == nil {
		return n.Op.Eval(&ir.Eval{Outputs: 1}, in)
	}
	y := x.Clone()
	at := make([]int, p.cols)
	for r := range p.rows {
		if err := p.find(at, indices, r, 0); err != nil {
			return nil, err
		}
		if updates.Len() > 0 {
			use(y, updates, at, r*p.cols*p.run, p.run)
		}
	}
	return []*tensor.Tensor{y}, nil
}

// runs makes a tensor of the runs of x that begin at places.
func runs(x *tensor.Tensor, shape, places []int, run int) ([]*tensor.Tensor, error) {
	y := tensor.New(x.DType(), shape...)
	switch x.DType().Size() {
	case 1:
		copyRuns[uint8](y, x, places, run)
	case 2:
		copyRuns[uint16](y, x, places, run)
	case 4:
		copyRuns[float32](y, x, places, run)
	default:
		copyRuns[uint64](y, x, places, run)
	}
	return []*tensor.Tensor{y}, nil
}

func copyRuns[T word](y, x *tensor.Tensor, places []int, run int) {
	dst, src := wordsOf[T](y), wordsOf[T](x)
	if len(dst) == 0 {
		return
	}
	if run == 1 {
		for i, from := range places {
			dst[i] = src[from]
		}
		return
	}
	for i, from := range places {
		copy(dst[i*run:][:run], src[from:])
	}
}

// nonZero lists the places of the elements that are not zero.
func nonZero(n *ir.Node, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	var at []int
	switch x.DType() {
	case tensor.Bool:
		at = nonZeros(tensor.Data[bool](x))
	case tensor.F32:
		at = nonZeros(x.F32s())
	case tensor.I64:
		at = nonZeros(tensor.Data[int64](x))
	case tensor.I32:
		at = nonZeros(tensor.Data[int32](x))
	default:
		return n.Op.Eval(&ir.Eval{Outputs: 1}, in)
	}
	y := tensor.New(tensor.I64, x.Rank(), len(at))
	d := tensor.Data[int64](y)
	for a := x.Rank() - 1; a >= 0; a-- {
		row, size := d[a*len(at):][:len(at)], x.Dim(a)
		for k, i := range at {
			if row[k] = int64(i); a > 0 {
				at[k] = i / size
				row[k] = int64(i - at[k]*size)
			}
		}
	}
	return []*tensor.Tensor{y}, nil
}

// nonZeros counts before it lists, so that the list is made once.
func nonZeros[T comparable](x []T) []int {
	var zero T
	count := 0
	for _, v := range x {
		if v != zero {
			count++
		}
	}
	at := make([]int, 0, count)
	for i, v := range x {
		if v != zero {
			at = append(at, i)
		}
	}
	return at
}
