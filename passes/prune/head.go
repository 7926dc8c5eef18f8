package prune

import (
	"math/bits"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Under Head the flow goes on where a reshape makes several axes of the one of the channels. It follows
// that axis along which computed tensors are multiplied by each other later, one pair of matrices for
// each slice, as scores of attention are for each head. All channels of a slice are tied, so that a bundle is a head, with
// the key and value head of a group of query heads the group. Other channels stay.

// axes is a set of axes of a tensor, a bit each.
type axes uint64

// maxAxes bounds the ranks whose axes are told.
const maxAxes = 64

func (a axes) has(axis int) bool { return axis < maxAxes && a>>axis&1 != 0 }

// multiplied finds the axes of values whose slices end, one by one, in slices of both factors of a product of
// computed tensors.
func multiplied(g *ir.Graph) map[*ir.Value]axes {
	m := map[*ir.Value]axes{}
	backward(g, m)
	return m
}

func backward(g *ir.Graph, m map[*ir.Value]axes) {
	for _, n := range slices.Backward(g.Nodes) {
		for _, sub := range ir.Subgraphs(n.Op) {
			if sub.Refused == nil {
				backward(sub, m)
			}
		}
		for i, v := range n.Outputs {
			if v == nil || v.Type.Rank() > maxAxes {
				continue
			}
			set := m[v]
			if i == 0 {
				set |= batches(n)
			}
			for left := set; left != 0; left &= left - 1 {
				behind(n, i, bits.TrailingZeros64(uint64(left)), m)
			}
		}
	}
}

// batches returns the axes along which n multiplies slices of one computed tensor by those of another.
func batches(n *ir.Node) (set axes) {
	if _, ok := n.Op.(*op.MatMul); !ok || n.Inputs[0].Const != nil || n.Inputs[1].Const != nil {
		return 0
	}
	for axis := range min(n.Outputs[0].Type.Rank(), maxAxes) {
		if in := op.Along(n, 0, axis); in != nil && in[0] != op.Whole && in[1] != op.Whole {
			set |= 1 << axis
		}
	}
	return set
}

// behind adds to m the axes of the inputs of n whose slices belong to those of an output along axis; of those that a
// reshape joins, all.
func behind(n *ir.Node, out, axis int, m map[*ir.Value]axes) {
	if in := op.Along(n, out, axis); in != nil {
		for i, a := range in {
			if a != op.Whole && a < maxAxes {
				m[n.Inputs[i]] |= 1 << a
			}
		}
		return
	}
	if how, _ := op.Moves(n); how != op.Keeps || out != 0 || !n.Inputs[0].Type.Ranked {
		return
	}
	x, from := apart(n.Inputs[0].Type.Dims, n.Outputs[0].Type.Dims)
	y, to := apart(n.Outputs[0].Type.Dims, n.Inputs[0].Type.Dims)
	for j := range y {
		if to[j] != axis {
			continue
		}
		_, _, i0, i1, ok := aligned(y, x, j)
		for i := i0; ok && i < i1; i++ {
			if x[i] != ir.Size(1) && from[i] < maxAxes {
				m[n.Inputs[0]] |= 1 << from[i]
			}
		}
	}
}

// apart takes axes whose sizes are known multiples of open ones of another shape, such as samples times heads, for two. At tells the axis that each is
// of.
func apart(dims, other []ir.Dim) (out []ir.Dim, at []int) {
	for a, d := range dims {
		for _, u := range other {
			if each, ok := ir.Div(d, u); ok && !u.Known() && each.Known() && each.Size() > 1 {
				out, at = append(out, u), append(at, a)
				d = each
			}
		}
		out, at = append(out, d), append(at, a)
	}
	return out, at
}

// aligned is op.Aligned, also where what is open lies before axis i.
func aligned(in, out []ir.Dim, i int) (i0, i1, j0, j1 int, ok bool) {
	if i0, i1, j0, j1, ok = op.Aligned(in, out, i); ok {
		return i0, i1, j0, j1, true
	}
	in, out = slices.Clone(in), slices.Clone(out)
	slices.Reverse(in)
	slices.Reverse(out)
	i0, i1, j0, j1, ok = op.Aligned(in, out, len(in)-1-i)
	return len(in) - i1, len(in) - i0, len(out) - j1, len(out) - j0, ok
}

// headless is why channels stay that are of no head.
const headless = "they are of no attention head"

// byHeads keeps the channels that are of no head.
func (f *flow) byHeads() {
	head := f.headed()
	for l := range int32(len(f.tied)) {
		if r := f.root(l); !head[r] && f.stays[r] == "" {
			f.stays[r] = headless
		}
	}
}

// headed tells which roots are heads.
func (f *flow) headed() map[int32]bool {
	head := map[int32]bool{}
	for _, l := range f.heads {
		head[f.root(l)] = true
	}
	return head
}

// bundles counts those that may go of the channels of some tensors, and those that are gone.
func (f *flow) bundles(tensors ...[]int32) (all, gone int) {
	seen := map[int32]bool{}
	for _, l := range slices.Concat(tensors...) {
		r := f.root(l)
		if seen[r] || f.stays[r] != "" {
			continue
		}
		seen[r] = true
		all++
		if f.gone[r] {
			gone++
		}
	}
	return all, gone
}

// split chooses, of the wide axes out that a reshape makes of the axes in, of which the i-th has the channels of t, the one along which these are
// followed: the first whose slices are of one bundle each or, where there is none, the first that is marked as one
// that heads go by. The labels are nil where there is neither, or where there are too many elements.
func (f *flow) split(t *track, dims [2][]ir.Dim, i int, marked func(j int) bool) (axis int, labels []int32) {
	in, out := dims[0], dims[1]
	if ir.Mul(in...).Size() > maxBeside {
		return 0, nil
	}
	var ties [][2]int32
	for _, j := range wideAxes(out, 0, len(out)) {
		list, tied := f.regroup(t, in, i, out, j)
		if tied == nil {
			return j, list
		}
		if labels == nil && marked(j) {
			axis, labels, ties = j, list, tied
		}
	}
	for _, p := range ties {
		f.tie(p[:1], p[1:])
	}
	f.heads = append(f.heads, labels...)
	return axis, labels
}

// repeats reports whether an axis of an open size is one of each of n channels, again and again.
func repeats(d ir.Dim, n int) bool {
	_, ok := ir.Div(d, ir.Size(n))
	return ok && !d.Known()
}

// openReshape is reshape where an open size is multiplied by that of heads: an axis of samples times heads is taken for two.
func (f *flow) openReshape(n *ir.Node, t *track) bool {
	var in []ir.Dim
	i := t.axis
	for a, d := range n.Inputs[0].Type.Dims {
		if q, ok := ir.Div(d, ir.Size(len(t.labels))); a == t.axis && ok && !d.Known() {
			in = append(in, q)
			i, d = a+1, ir.Size(len(t.labels))
		}
		in = append(in, d)
	}
	out, at := apart(n.Outputs[0].Type.Dims, in)
	i0, i1, j0, j1, ok := aligned(in, out, i)
	if !ok {
		return false
	}
	marked := f.multiplied[n.Outputs[0]]
	axis, labels := f.split(t, [2][]ir.Dim{in[i0:i1], out[j0:j1]}, i-i0, func(j int) bool { return marked.has(at[j0+j]) })
	return labels != nil && f.reshaped(n, t, at[j0+axis], labels)
}

// resize gives the list of sizes of n, if it has one, as many as channels are left along an axis of
// the output. It is false where that cannot be said.
func (f *flow) resize(n *ir.Node, axis int, labels []int32) bool {
	i, all := op.SizesInput(n)
	if i < 0 || n.Input(i) == nil {
		return true
	}
	s, rank := n.Inputs[i], n.Outputs[0].Type.Rank()
	switch {
	case !all || s.Const == nil && (f.kind == Channel || len(s.Elems) != rank) || s.Const != nil && s.Const.Len() != rank:
		return false
	case s.Const == nil:
		return f.rescale(n, i, axis, labels)
	}
	shape := s.Const.Ints()
	if shape[axis] > 1 {
		f.fixes = append(f.fixes, func() error {
			if shape[axis] = f.left(labels); shape[axis] < len(labels) {
				n.SetInput(i, n.Graph().NewConst(s.Name, tensor.Ints(shape...)))
			}
			return nil
		})
	}
	return true
}

// rescale is resize for a list of sizes that is computed: what it says of the axis is multiplied by the share of the labels
// that is left.
func (f *flow) rescale(n *ir.Node, i, axis int, labels []int32) bool {
	s := n.Inputs[i]
	switch s.Elems[axis] {
	case ir.Size(1), ir.Size(-1):
		return true
	case n.Outputs[0].Type.Dims[axis]:
	default:
		return false
	}
	f.fixes = append(f.fixes, func() error {
		left := f.left(labels)
		if left == len(labels) {
			return nil
		}
		for _, step := range []struct {
			kind string
			by   int
		}{{"Mul", left}, {"Div", len(labels)}} {
			o, err := op.New(step.kind)
			if err != nil {
				return err
			}
			by := slices.Repeat([]int{1}, len(s.Elems))
			by[axis] = step.by
			name := n.Name + ".sizes"
			c := n.Graph().InsertBefore(n, name, o, []*ir.Value{n.Inputs[i], n.Graph().NewConst(name, tensor.Ints(by...))}, name)
			if err := c.Infer(); err != nil {
				return err
			}
			n.SetInput(i, c.Outputs[0])
		}
		return nil
	})
	return true
}

// slice follows the channels that a Slice takes in a row.
func (f *flow) slice(n *ir.Node) bool {
	t := f.input(n, 0)
	if t == nil || f.kind != Head || !n.Inputs[0].Type.Dims[t.axis].Known() {
		return false
	}
	var lists [4][]int // starts, ends, axes and steps
	for i := range lists {
		v := n.Input(i + 1)
		switch {
		case v != nil && v.Const != nil:
			lists[i] = v.Const.Ints()
		case v != nil || i < 3:
			return false
		}
	}
	starts, ends, axes, steps := lists[0], lists[1], lists[2], lists[3]
	at := slices.IndexFunc(axes, func(a int) bool { return a == t.axis || a == t.axis-n.Inputs[0].Type.Rank() })
	if at < 0 || steps != nil && steps[at] != 1 {
		return false
	}
	place := func(p int) int {
		if p < 0 {
			p += len(t.labels)
		}
		return max(0, min(p, len(t.labels)))
	}
	start := place(starts[at])
	end := max(start, place(ends[at]))
	f.fixes = append(f.fixes, func() error {
		if f.left(t.labels) == len(t.labels) {
			return nil
		}
		starts[at] = f.left(t.labels[:start])
		ends[at] = starts[at] + f.left(t.labels[start:end])
		for i, list := range [][]int{starts, ends} {
			v := n.Inputs[i+1]
			n.SetInput(i+1, n.Graph().NewConst(v.Name, tensor.Ints(list...).To(v.Const.DType())))
		}
		return nil
	})
	f.set(n, 0, t.axis, t.labels[start:end])
	return true
}
