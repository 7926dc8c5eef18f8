package cuda

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"spc/backend"
	"spc/backend/format"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// channelsLast is the order of the axes of an image in memory, [N,H,W,C], where its channels come last.
var channelsLast = []int{0, 2, 3, 1}

// layout decides of which images the channels come last on the device: of those in 16-bit floats whose
// channels are whole units and that nobody wants otherwise. So convolutions load eight channels of a
// pixel at once, where neighbouring pixels of a channel are at odd addresses as soon as one of them is outside.
func (b *binder) layout() (int, error) {
	if b.prog.float == tensor.F32 {
		return 0, nil
	}
	for _, n := range b.graph.Nodes {
		for _, v := range n.Outputs {
			if v == nil || v.IsOutput() || v.Type.DType != tensor.F32 || v.Type.Rank() != 4 || !v.Type.Static() {
				continue
			}
			s := shapeOf(v)
			b.last[v] = s[1] > 0 && s[1]%ChannelUnit == 0 && s[2]*s[3] > 1
		}
	}
	wants := map[*ir.Node]*wanted{}
	for _, n := range b.graph.Nodes {
		w, err := b.wants(n)
		if err != nil {
			return 0, err
		}
		wants[n] = w
	}
	b.settle(wants)
	for _, n := range b.graph.Nodes {
		if o, ok := n.Op.(*op.Conv); ok && o.Group == 1 && b.last[n.Inputs[0]] {
			fits, err := b.multipliesLast(n)
			if err != nil {
				return 0, err
			}
			if !fits {
				wants[n].free = nil
			}
		}
	}
	b.settle(wants)
	count := 0
	for _, last := range b.last {
		if last {
			count++
		}
	}
	return count, nil
}

// settle refuses channels that come last until all nodes have what they want.
func (b *binder) settle(wants map[*ir.Node]*wanted) {
	for changed := true; changed; {
		changed = false
		refuse := func(v *ir.Value) {
			changed = changed || b.last[v]
			b.last[v] = false
		}
		first := func(v *ir.Value) bool { return !b.last[v] }
		for _, n := range b.graph.Nodes {
			w := wants[n]
			if w == nil {
				continue
			}
			see := func(v *ir.Value) {
				if !slices.Contains(w.free, v) && !slices.Contains(w.alike, v) {
					refuse(v)
				}
			}
			n.Reads(see)
			for _, v := range n.Outputs {
				see(v)
			}
			if slices.ContainsFunc(w.alike, first) {
				for _, v := range w.alike {
					refuse(v)
				}
			}
			if slices.ContainsFunc(w.same, first) && !slices.ContainsFunc(n.Outputs[0].Uses(), longer) {
				refuse(n.Outputs[0])
			}
		}
	}
}

// longer reports whether images are read that are worth turning around: by a convolution of several taps.
func longer(u ir.Use) bool {
	o, ok := u.Node.Op.(*op.Conv)
	return ok && o.Group == 1 && prod(shapeOf(u.Node.Inputs[1])[2:]) > 1
}

// wanted is how a node wants images to lie that it reads or writes: those that are free either
// way, those that are alike all the same way, and others with their channels first. Where one of the same has its channels
// first, what is made of them has, too, unless that is worth it.
type wanted struct{ free, alike, same []*ir.Value }

func (b *binder) wants(n *ir.Node) (*wanted, error) {
	w := &wanted{}
	if p := b.program(n); p != nil { // which reads by any strides
		y := n.Outputs[0]
		w.free = append(slices.Clone(p.Operands), y)
		for _, v := range p.Operands {
			if slices.Equal(shapeOf(v), shapeOf(y)) {
				w.same = append(w.same, v)
			}
		}
		return w, nil
	}
	if unfit(n) != "" {
		return w, nil
	}
	switch o := n.Op.(type) {
	case *op.Conv:
		x, y := n.Inputs[0], n.Outputs[0]
		if o.Quantised() || x.Type.Rank() != 4 || !n.Inputs[1].IsConst() {
			break
		}
		alike := []*ir.Value{y}
		if v := n.Input(op.Residual); v != nil {
			alike = append(alike, v)
		}
		if o.Group > 1 {
			if depthwise(o, shapeOf(x), shapeOf(n.Inputs[1]), shapeOf(y)) != "" {
				w.alike = append(alike, x)
			}
			break
		}
		if b.prog.sparse != nil { // the library for 2:4 weights wants X to lie as Y
			product, err := b.weightOf(n, 1)
			if err != nil || product == nil {
				return w, err
			}
			if product.sparse {
				if prod(shapeOf(n.Inputs[1])[2:]) == 1 {
					w.alike = append(alike, x)
				}
				break
			}
		}
		w.free, w.alike = []*ir.Value{x}, alike
	case *op.MaxPool, *op.AveragePool, *op.Resize:
		w.alike = []*ir.Value{n.Inputs[0], n.Outputs[0]}
	case *op.Concat:
		if o.Axis == 1 || o.Axis == 1-4 {
			w.alike = append(slices.Clone(n.Inputs), n.Outputs[0])
		}
	case *op.Transpose, *op.GlobalPool:
		w.free = n.Inputs[:1]
	case *op.Reduce:
		if lo, hi, ok := o.Neighbours(n); ok && lo == 2 && hi == 4 {
			w.free = n.Inputs[:1]
		}
	}
	return w, nil
}

// multipliesLast reports whether a convolution is better off with channels that come last: its weight can be had so, and
// tensor cores or a library multiply it, for other kernels load neighbouring pixels.
func (b *binder) multipliesLast(n *ir.Node) (bool, error) {
	w, err := b.lastWeight(n)
	if w == nil || err != nil {
		return false, err
	}
	y := shapeOf(n.Outputs[0])
	k := b.prog.rates.Pick(w.kernels, y[0]*prod(y[2:]), 1, b.prog.float.Size())
	return w.matrix != nil && !w.sparse && b.prog.library != nil || k != nil && k.Unit != backend.Cores, nil
}

// follow has a node that is being bound write y, with its channels first, where one of the values that lie as y does has them so
// after all: the CPU writes it.
func (b *binder) follow(y *ir.Value, alike ...*ir.Value) {
	for _, v := range alike {
		if v != nil && !b.last[v] {
			delete(b.last, y)
		}
	}
}

// strides are those of a value in memory, along the axes of its shape.
func (b *binder) strides(v *ir.Value) []int {
	s := shapeOf(v)
	if !b.last[v] {
		return tensor.Strides(s)
	}
	out := make([]int, len(s))
	for i, n := range tensor.Strides(along(channelsLast, s)) {
		out[channelsLast[i]] = n
	}
	return out
}

// along picks elements in an order.
func along[T any](order []int, from []T) []T {
	out := make([]T, len(order))
	for i, a := range order {
		out[i] = from[a]
	}
	return out
}

// order is that of the axes of a value in memory.
func (b *binder) order(v *ir.Value) []int {
	if b.last[v] {
		return channelsLast
	}
	order := make([]int, len(shapeOf(v)))
	for i := range order {
		order[i] = i
	}
	return order
}

// lastWeight is the weight of a convolution whose rows of X are those of a tap after each other, with a column for each
// channel, nil where it cannot be had: where what is stored depends on which columns are neighbours, as 2:4 and
// blocks do.
func (b *binder) lastWeight(n *ir.Node) (*weight, error) {
	ws := shapeOf(n.Inputs[1])
	channels, taps := ws[1], prod(ws[2:])
	if taps == 1 {
		return b.weightOf(n, 1)
	}
	x := shapeOf(n.Inputs[0])
	spans, out, err := n.Op.(*op.Conv).Geometry(x, ws)
	if err != nil {
		return nil, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	if x[0]*prod(x[1:]) > math.MaxInt32 || Patches(channels, x[2:], out, spans, true) == nil {
		return nil, nil
	}
	columns := make([]int, channels*taps)
	for i := range columns {
		columns[i] = i%channels*taps + i/channels
	}
	return b.weightIn(n, 1, columns)
}

// reordered is a store of a weight [M,K] with its columns in another order, nil where that
// has more elements than the weight's.
func reordered(s *ir.Store, columns []int) (*ir.Store, error) {
	f := format.Lookup(s.Format)
	w, err := f.Unpack(s)
	if err != nil {
		return nil, err
	}
	out := &ir.Store{Format: s.Format, Config: s.Config, Rows: s.Rows, Cols: s.Cols, View: ir.View{RowAxes: 1}}
	out.Parts, err = f.Pack(reorder(w, columns), s.Config)
	switch {
	case errors.Is(err, choose.ErrFit): // 2 of 4 neighbours, say
		return nil, nil
	case err != nil:
		return nil, err
	}
	elements := func(s *ir.Store) (n int) {
		for _, p := range s.Parts {
			n += p.Data.Len()
		}
		return n
	}
	if elements(out) > elements(s) {
		return nil, nil
	}
	return out, nil
}

// reorder is a matrix f32 with its columns in another order.
func reorder(w *tensor.Tensor, columns []int) *tensor.Tensor {
	rows, cols := w.Dim(0), w.Dim(1)
	out := tensor.New(tensor.F32, rows, cols)
	for r := range rows {
		from, to := w.F32s()[r*cols:][:cols], out.F32s()[r*cols:][:cols]
		for i, c := range columns {
			to[i] = from[c]
		}
	}
	return out
}

// depthwise is the name of the kernel for a convolution of each channel with a weight of its own, squares of 3 or 5 at
// steps of 1 or 2, empty where there is none.
func depthwise(o *op.Conv, x, w, y []int) string {
	spans, _, err := o.Geometry(x, w)
	if err != nil || len(spans) != 2 || w[1] != 1 || o.Group != y[1] || y[0] > maxGrid || y[1] > maxGrid {
		return ""
	}
	h, v := spans[0], spans[1]
	if (h.Kernel != 3 && h.Kernel != 5) || v.Kernel != h.Kernel || h.Stride > 2 || v.Stride != h.Stride || h.Dilation != 1 || v.Dilation != 1 {
		return ""
	}
	return fmt.Sprintf("%dx%ds%d", h.Kernel, h.Kernel, h.Stride)
}
