package prune

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// channels finds out which output channels can be removed together. Each row of a
// prunable weight makes a channel; nodes pass channels on, join them (a sum, a
// residual: both sides lose a channel or neither does), or need all of theirs.
type channels struct {
	weights map[*ir.Value]*candidate
	parent  []int  // of each channel, towards the one that stands for all joined with it
	fixed   []bool // of those that stand for others: it must stay
	labels  map[*ir.Value]labels
	rows    []rowChannels
	cuts    []cut
	depth   []*ir.Node            // depthwise convolutions, whose groups are their channels
	flat    map[*ir.Node]struct{} // reshapes to [n, the rest]
}

// labels are the channels along an axis of a value, an element each.
type labels struct {
	axis int
	ids  []int
}

// rowChannels are the channels that the rows of a prunable weight make.
type rowChannels struct {
	c     *candidate
	first int // the id of row 0, the others follow
}

// cut is an axis of a constant that shrinks with channels.
type cut struct {
	node  *ir.Node
	input int
	labels
	reads bool // the columns of a weight, where channels end
}

func (s *channels) fresh(n int, fixed bool) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = len(s.parent)
		s.parent = append(s.parent, ids[i])
		s.fixed = append(s.fixed, fixed)
	}
	return ids
}

func (s *channels) root(id int) int {
	for s.parent[id] != id {
		s.parent[id] = s.parent[s.parent[id]]
		id = s.parent[id]
	}
	return id
}

func (s *channels) join(a, b []int) {
	for i := range a {
		x, y := s.root(a[i]), s.root(b[i])
		x, y = min(x, y), max(x, y)
		s.parent[y] = x
		s.fixed[x] = s.fixed[x] || s.fixed[y]
	}
}

func (s *channels) fix(ids []int) {
	for _, id := range ids {
		s.fixed[s.root(id)] = true
	}
}

// keepAll makes the channels of all inputs of n stay, and those of its outputs
// unknown.
func (s *channels) keepAll(n *ir.Node) {
	for _, v := range n.Inputs {
		s.fix(s.labels[v].ids)
	}
}

// size is the size of an axis, where it is known.
func size(v *ir.Value, axis int) (int, bool) {
	if axis < 0 || axis >= v.Type.Rank() || !v.Type.Dims[axis].Known() {
		return 0, false
	}
	return v.Type.Dims[axis].Size(), true
}

// pass gives n's only output the channels ids along axis; where that cannot be,
// they stay.
func (s *channels) pass(n *ir.Node, axis int, ids []int) {
	if d, ok := size(n.Outputs[0], axis); !ok || d != len(ids) || slices.ContainsFunc(n.Outputs[1:], func(v *ir.Value) bool { return v != nil }) {
		s.fix(ids)
		s.keepAll(n)
		return
	}
	s.labels[n.Outputs[0]] = labels{axis, ids}
}

// own returns the constant of an input that only n reads.
func own(n *ir.Node, input int) *tensor.Tensor {
	v := n.Input(input)
	if v == nil || v.Const == nil || len(v.Uses()) != 1 || v.IsOutput() {
		return nil
	}
	return v.Const
}

// visit takes the channels of n's inputs to its outputs.
func (s *channels) visit(n *ir.Node) {
	var in labels
	if v := n.Input(0); v != nil {
		in = s.labels[v]
	}
	rank := -1
	if v := n.Input(0); v != nil {
		rank = v.Type.Rank()
	}
	switch o := n.Op.(type) {
	case *op.Conv:
		switch {
		case inputRank(n, 1) < 3:
			s.keepAll(n)
		case o.Group == 1:
			s.product(n, 1, 1, 0, 1)
		default:
			s.depthwise(n, o)
		}
	case *op.ConvTranspose:
		if inputRank(n, 1) < 3 || o.Group != 1 {
			s.keepAll(n)
			return
		}
		s.product(n, 1, 1, 1, 0)
	case *op.MatMul:
		r := inputRank(n, 1)
		if rank < 2 || r < 2 || n.Outputs[0].Type.Rank() != max(rank, r) {
			s.keepAll(n)
			return
		}
		s.product(n, rank-1, max(rank, r)-1, r-1, r-2)
	case *op.Gemm:
		switch {
		case o.TransA:
			s.keepAll(n)
		case o.TransB:
			s.product(n, 1, 1, 0, 1)
		default:
			s.product(n, 1, 1, 1, 0)
		}
	case *op.Unary, *op.Celu, *op.Elu, *op.Gelu, *op.HardSigmoid, *op.LeakyRelu, *op.Selu, *op.Swish, *op.Clip, *op.Identity, *op.Cast:
		s.one(n, in, in.axis)
	case *op.MaxPool, *op.AveragePool, *op.LpPool, *op.GlobalPool:
		if in.axis != 1 {
			s.keepAll(n)
			return
		}
		s.one(n, in, 1)
	case *op.BatchNormalization:
		if in.axis != 1 || o.Training || !o.Spatial || own(n, 1) == nil || own(n, 2) == nil || own(n, 3) == nil || own(n, 4) == nil {
			s.keepAll(n)
			return
		}
		for i := 1; i <= 4 && in.ids != nil; i++ {
			s.cuts = append(s.cuts, cut{n, i, labels{0, in.ids}, false})
		}
		s.one(n, in, 1)
	case *op.Binary, *op.Variadic, *op.Pow:
		s.elementwise(n)
	case *op.Concat:
		s.concat(n, o)
	case *op.Transpose:
		axis := rank - 1 - in.axis
		if o.Perm != nil {
			axis = slices.Index(o.Perm, in.axis)
		}
		s.one(n, in, axis)
	case *op.Reduce:
		s.reduce(n, o, in)
	case *op.Slice:
		starts, axes := n.Input(1), n.Input(3)
		var list []int
		if axes != nil && axes.Const != nil {
			list = axes.Const.Ints()
		} else if axes == nil && starts != nil && starts.Const != nil {
			for i := range starts.Const.Len() {
				list = append(list, i)
			}
		} else {
			s.keepAll(n)
			return
		}
		if slices.Contains(list, in.axis) || slices.Contains(list, in.axis-rank) {
			s.keepAll(n)
			return
		}
		s.one(n, in, in.axis)
	case *op.Pad:
		s.pad(n, o, in)
	case *op.Flatten:
		if o.Axis != 1 && o.Axis != 1-rank {
			s.keepAll(n)
			return
		}
		s.flatten(n, in)
	case *op.Reshape:
		if in.axis != 1 || rank < 2 || n.Outputs[0].Type.Rank() != 2 || n.Outputs[0].Type.Dims[0] != n.Inputs[0].Type.Dims[0] ||
			n.Inputs[0].Type.Dims[0] == ir.Size(0) || n.Input(1) == nil || n.Inputs[1].Const == nil {
			s.keepAll(n)
			return
		}
		if in.ids != nil {
			s.flat[n] = struct{}{}
		}
		s.flatten(n, in)
	default:
		s.keepAll(n)
	}
}

func inputRank(n *ir.Node, i int) int {
	if v := n.Input(i); v != nil {
		return v.Type.Rank()
	}
	return -1
}

// one passes the channels of the first input, the only one that may have any.
func (s *channels) one(n *ir.Node, in labels, axis int) {
	for _, v := range n.Inputs[1:] {
		s.fix(s.labels[v].ids)
	}
	if in.ids != nil {
		s.pass(n, axis, in.ids)
	}
}

// product is a product with the weight in input 1: the channels of axis inAxis of
// input 0 end in its axis wIn, those of its axis wOut begin in axis outAxis of the
// output.
func (s *channels) product(n *ir.Node, inAxis, outAxis, wOut, wIn int) {
	in := s.labels[n.Inputs[0]]
	w := n.Inputs[1]
	c := s.weights[w]
	usable := c != nil && !c.kept && own(n, 1) != nil
	if s.labels[w].ids != nil || in.ids != nil && (in.axis != inAxis || !usable) {
		s.keepAll(n)
		in.ids = nil
	}
	if in.ids != nil {
		s.cuts = append(s.cuts, cut{n, 1, labels{wIn, in.ids}, true})
	}
	bias, residual := n.Input(2), n.Input(op.Residual)
	var tied []int // the residual's channels
	if residual != nil {
		if l := s.labels[residual]; l.ids != nil && l.axis == outAxis && residual.Type.Rank() == n.Outputs[0].Type.Rank() {
			tied = l.ids
		} else {
			s.fix(l.ids)
		}
	}
	m, known := size(w, wOut)
	// A bias has an element a channel, or one for all.
	biasAxis := inputRank(n, 2) - 1
	cutBias := bias != nil && bias.Const != nil && biasAxis >= 0 && bias.Const.Dim(biasAxis) == m && m > 1
	if !usable || c.why != "" || !known || bias != nil && bias.Const == nil || residual != nil && tied == nil || len(tied) > 0 && len(tied) != m {
		s.fix(tied)
		if bias != nil {
			s.fix(s.labels[bias].ids)
		}
		return
	}
	ids := s.fresh(m, false)
	s.rows = append(s.rows, rowChannels{c, ids[0]})
	s.cuts = append(s.cuts, cut{n, 1, labels{wOut, ids}, false})
	if cutBias {
		s.cuts = append(s.cuts, cut{n, 2, labels{biasAxis, ids}, false})
	}
	s.join(tied, ids)
	s.pass(n, outAxis, ids)
}

// depthwise is a convolution of which each group is a channel.
func (s *channels) depthwise(n *ir.Node, o *op.Conv) {
	in, w := s.labels[n.Inputs[0]], own(n, 1)
	residual := n.Input(op.Residual)
	if in.ids == nil || in.axis != 1 || w == nil || o.Group != len(in.ids) || w.Dim(0) != o.Group || w.Dim(1) != 1 ||
		s.weights[n.Inputs[1]] == nil || s.weights[n.Inputs[1]].kept || n.Input(2) != nil && n.Inputs[2].Const == nil {
		s.keepAll(n)
		return
	}
	if residual != nil {
		l := s.labels[residual]
		if l.ids == nil || l.axis != 1 || len(l.ids) != len(in.ids) {
			s.keepAll(n)
			return
		}
		s.join(in.ids, l.ids)
	}
	s.cuts = append(s.cuts, cut{n, 1, labels{0, in.ids}, false})
	if n.Input(2) != nil {
		s.cuts = append(s.cuts, cut{n, 2, labels{0, in.ids}, false})
	}
	s.depth = append(s.depth, n)
	s.pass(n, 1, in.ids)
}

// elementwise joins the channels of inputs that are broadcast to each other.
func (s *channels) elementwise(n *ir.Node) {
	rank := n.Outputs[0].Type.Rank()
	var first labels
	for _, v := range n.Inputs {
		l := s.labels[v]
		if l.ids == nil {
			continue
		}
		l.axis += rank - v.Type.Rank()
		if first.ids == nil {
			first = l
		}
		if l.axis != first.axis || len(l.ids) != len(first.ids) {
			s.keepAll(n)
			return
		}
	}
	if first.ids == nil {
		return
	}
	var cuts []cut
	for i, v := range n.Inputs {
		if s.labels[v].ids != nil {
			continue
		}
		axis := first.axis - (rank - v.Type.Rank())
		d, known := size(v, axis)
		switch {
		case v.Type.Ranked && axis < 0, known && d == 1:
		case v.Const != nil && d == len(first.ids):
			cuts = append(cuts, cut{n, i, labels{axis, first.ids}, false})
		default:
			s.keepAll(n)
			return
		}
	}
	for _, v := range n.Inputs {
		if l := s.labels[v]; l.ids != nil {
			s.join(first.ids, l.ids)
		}
	}
	s.cuts = append(s.cuts, cuts...)
	s.pass(n, first.axis, first.ids)
}

// concat lines channels up, or joins them where it works along another axis.
func (s *channels) concat(n *ir.Node, o *op.Concat) {
	rank := n.Outputs[0].Type.Rank()
	axis := o.Axis
	if axis < 0 {
		axis += rank
	}
	var all []int
	some := false
	for _, v := range n.Inputs {
		l := s.labels[v]
		d, known := size(v, axis)
		if l.ids != nil && l.axis != axis || !known {
			s.keepAll(n)
			return
		}
		if some = some || l.ids != nil; l.ids == nil {
			l.ids = s.fresh(d, true)
		}
		all = append(all, l.ids...)
	}
	if some {
		s.pass(n, axis, all)
	}
}

// reduce passes channels that it does not reduce.
func (s *channels) reduce(n *ir.Node, o *op.Reduce, in labels) {
	axes := n.Input(1)
	if in.ids == nil || axes == nil || axes.Const == nil || axes.Const.Len() == 0 {
		s.keepAll(n)
		return
	}
	rank, axis := n.Inputs[0].Type.Rank(), in.axis
	for _, a := range axes.Const.Ints() {
		if a < 0 {
			a += rank
		}
		if a == in.axis {
			s.keepAll(n)
			return
		}
		if a < in.axis && !o.KeepDims {
			axis--
		}
	}
	s.one(n, in, axis)
}

// pad puts channels that stay around those of the input.
func (s *channels) pad(n *ir.Node, o *op.Pad, in labels) {
	pads := n.Input(1)
	rank := n.Inputs[0].Type.Rank()
	if in.ids == nil || pads == nil || pads.Const == nil || pads.Const.Len() != 2*rank || n.Input(3) != nil {
		s.keepAll(n)
		return
	}
	before, after := pads.Const.Ints()[in.axis], pads.Const.Ints()[rank+in.axis]
	if before < 0 || after < 0 || before+after > 0 && o.Mode != "constant" || before > 1<<20 || after > 1<<20 {
		s.keepAll(n)
		return
	}
	ids := slices.Concat(s.fresh(before, true), in.ids, s.fresh(after, true))
	s.one(n, labels{in.axis, ids}, in.axis)
}

// flatten makes of [n,c,...] a matrix in which each channel is a run of columns.
func (s *channels) flatten(n *ir.Node, in labels) {
	span, ok := 1, in.ids != nil && in.axis == 1
	for i := 2; ok && i < n.Inputs[0].Type.Rank(); i++ {
		var d int
		d, ok = size(n.Inputs[0], i)
		span *= d
	}
	if d, known := size(n.Outputs[0], 1); !ok || !known || d != span*len(in.ids) {
		s.keepAll(n)
		return
	}
	ids := make([]int, 0, span*len(in.ids))
	for _, id := range in.ids {
		for range span {
			ids = append(ids, id)
		}
	}
	s.one(n, labels{1, ids}, 1)
}

// Channels removes whole output channels of g with everything that feeds on them:
// the columns of the weights that read them, biases and scales, and the same
// channels of what is added to them. Of the prunable weights those count that have
// such channels; the fraction o.Sparsity of them is removed.
func Channels(g *ir.Graph, o GraphOptions) (*GraphResult, error) {
	p, err := planChannels(g, &o)
	if err != nil {
		return nil, err
	}
	before := make([]int, len(p.cands))
	for i, c := range p.cands {
		before[i] = prodOf(c.Value.Type)
	}
	if err := p.remove(g, p.gone); err != nil {
		return nil, err
	}
	out := &GraphResult{Pattern: o.Pattern.String(), Allocate: string(o.Allocate), Asked: o.Sparsity}
	for i, c := range p.cands {
		gl := GraphLayer{Node: c.Node.Name, Weight: c.Value.Name, Why: c.why, Prunable: c.why == "", Weights: before[i], Removed: before[i] - prodOf(c.Value.Type)}
		gl.Zeros = gl.Removed
		if c.Value.Const != nil && c.Value.Const.DType() == tensor.F32 {
			gl.Zeros += zeros(c.Value.Const.F32s())
		}
		if p.bounded[c.Value] {
			gl.Bounded = 1
		}
		t := Tally{gl.Weights, gl.Zeros}
		gl.Sparsity = t.Sparsity()
		out.Weights.add(t)
		if gl.Prunable {
			out.Prunable.add(t)
		}
		out.Layers = append(out.Layers, gl)
	}
	return out, nil
}

// channelPlan is what Channels decided.
type channelPlan struct {
	*channels
	cands   []*candidate
	gone    map[int]bool       // the channels that go, by what stands for them
	bounded map[*ir.Value]bool // weights of which a row stays only because one must
}

func planChannels(g *ir.Graph, o *GraphOptions) (*channelPlan, error) {
	cands, err := candidates(g, o)
	if err != nil {
		return nil, err
	}
	s := &channels{weights: map[*ir.Value]*candidate{}, labels: map[*ir.Value]labels{}, flat: map[*ir.Node]struct{}{}}
	for _, c := range cands {
		s.weights[c.Value] = c
	}
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			s.visit(n)
		}
		for _, v := range sub.Outputs {
			s.fix(s.labels[v].ids)
		}
	}
	own, err := targets(cands, o)
	if err != nil {
		return nil, err
	}
	groups, members, err := s.groups(own)
	if err != nil {
		return nil, err
	}
	if len(groups) == 0 && o.Sparsity > 0 {
		return nil, fmt.Errorf("--pattern channel: no channel of a prunable weight can be removed, each is split, shuffled or an output; want another pattern: %w", ir.ErrInvalid)
	}
	prunable := s.touched(members)
	for _, c := range cands {
		if c.why == "" && !prunable[c.Value] {
			c.why = "none of its channels can be removed"
		}
	}
	p := &channelPlan{channels: s, cands: cands}
	p.gone, p.bounded, err = s.choose(groups, members, cands, own, o)
	return p, err
}

// targets returns the sparsities of the weights that have their own.
func targets(cands []*candidate, o *GraphOptions) (map[*candidate]*float64, error) {
	own := map[*candidate]*float64{}
	matched := make([]bool, len(o.Targets))
	for _, c := range cands {
		if c.why == "" {
			own[c] = o.target(c, matched)
		}
	}
	return own, o.checkTargets(matched)
}

// groups returns the groups of channels, and for each channel of a group the one
// that stands for it. Channels made by the same weights, and read by as many, form
// a group; a channel's norm is that of all its rows.
func (s *channels) groups(own map[*candidate]*float64) (groups []Group, members [][]int, err error) {
	type channel struct {
		sum    float64
		size   int
		makers []int
	}
	all := map[int]*channel{}
	for i, r := range s.rows {
		m, k := r.c.View.Dims(r.c.Value.Const.Shape())
		l := Layer{Name: r.c.name, Rows: m, Cols: k, Weights: r.c.View.Matrix(r.c.Value.Const).F32s()}
		norms, err := l.RowNorms()
		if err != nil {
			return nil, nil, err
		}
		for row, norm := range norms {
			id := s.root(r.first + row)
			if s.fixed[id] {
				continue
			}
			c := all[id]
			if c == nil {
				c = &channel{}
				all[id] = c
			}
			c.sum += norm * norm
			c.makers = append(c.makers, i)
		}
	}
	for _, cut := range s.cuts {
		v := cut.node.Inputs[cut.input]
		if s.weights[v] == nil || s.weights[v].why != "" {
			continue
		}
		each := prodOf(v.Type) / len(cut.ids)
		for _, id := range cut.ids {
			if c := all[s.root(id)]; c != nil {
				c.size += each
			}
		}
	}
	index := map[string]int{}
	for id := range s.parent { // in the order of the nodes
		c := all[id]
		if c == nil {
			continue
		}
		key := fmt.Sprint(c.makers, c.size)
		g, ok := index[key]
		if !ok {
			g = len(groups)
			index[key] = g
			first := s.rows[c.makers[0]].c
			groups = append(groups, Group{Name: first.name, Size: max(c.size, 1)})
			for _, i := range c.makers {
				if t := own[s.rows[i].c]; t != nil {
					groups[g].Sparsity = t
				}
			}
			members = append(members, nil)
		}
		groups[g].Norms = append(groups[g].Norms, math.Sqrt(c.sum))
		members[g] = append(members[g], id)
	}
	return groups, members, nil
}

// touched returns the weights that can lose something.
func (s *channels) touched(members [][]int) map[*ir.Value]bool {
	can := map[int]bool{}
	for _, ids := range members {
		for _, id := range ids {
			can[id] = true
		}
	}
	out := map[*ir.Value]bool{}
	for _, c := range s.cuts {
		if slices.ContainsFunc(c.ids, func(id int) bool { return can[s.root(id)] }) {
			out[c.node.Inputs[c.input]] = true
		}
	}
	return out
}

// choose returns the channels that go, and the weights of which one stays only
// because one must. A weight loses rows and columns, so that the share of channels
// that leaves the wanted share of weights is searched for.
func (s *channels) choose(groups []Group, members [][]int, cands []*candidate, own map[*candidate]*float64, o *GraphOptions) (gone map[int]bool, bounded map[*ir.Value]bool, err error) {
	type axes struct {
		c    *candidate
		cuts []labels
	}
	var counted []*axes
	byValue := map[*ir.Value]*axes{}
	total := 0
	for _, c := range cands {
		if c.why == "" && own[c] == nil {
			a := &axes{c: c}
			counted, byValue[c.Value] = append(counted, a), a
			total += prodOf(c.Value.Type)
		}
	}
	for _, c := range s.cuts {
		if a := byValue[c.node.Inputs[c.input]]; a != nil {
			a.cuts = append(a.cuts, c.labels)
		}
	}
	try := func(share float64) (map[int]bool, []GroupResult, int, error) {
		res, err := SelectChannels(groups, share, o.Allocate)
		if err != nil {
			return nil, nil, 0, err
		}
		gone := map[int]bool{}
		for g, r := range res {
			for i, keep := range r.Keep {
				if !keep {
					gone[members[g][i]] = true
				}
			}
		}
		left := 0
		for _, a := range counted {
			n := prodOf(a.c.Value.Type)
			for _, l := range a.cuts {
				n = n / len(l.ids) * s.stay(l.ids, gone)
			}
			left += n
		}
		return gone, res, total - left, nil
	}
	gone, res, removed, err := try(0)
	if err != nil {
		return nil, nil, err
	}
	want := o.Sparsity * float64(total)
	for lo, hi := 0.0, 1.0; hi-lo > 1e-4; {
		mid := (lo + hi) / 2
		g, r, n, err := try(mid)
		if err != nil {
			return nil, nil, err
		}
		if math.Abs(float64(n)-want) < math.Abs(float64(removed)-want) {
			gone, res, removed = g, r, n
		}
		if float64(n) < want {
			lo = mid
		} else {
			hi = mid
		}
	}
	bounded = map[*ir.Value]bool{}
	for g, r := range res {
		for _, row := range s.rows {
			if r.Bounded && row.c.name == groups[g].Name {
				bounded[row.c.Value] = true
			}
		}
	}
	return gone, bounded, nil
}

func (s *channels) stay(ids []int, gone map[int]bool) (n int) {
	for _, id := range ids {
		if !gone[s.root(id)] {
			n++
		}
	}
	return n
}

// remove cuts the constants, sets what attributes and shapes say of channels, and
// infers the types again.
func (s *channels) remove(g *ir.Graph, gone map[int]bool) error {
	if len(gone) == 0 {
		return nil
	}
	for _, c := range s.cuts {
		var keep []int
		for i, id := range c.ids {
			if !gone[s.root(id)] {
				keep = append(keep, i)
			}
		}
		if len(keep) == len(c.ids) {
			continue
		}
		v := c.node.Inputs[c.input]
		t := take(v.Const, c.axis, keep)
		if len(v.Uses()) == 1 && !v.IsOutput() {
			v.SetConst(t)
		} else {
			c.node.SetInput(c.input, c.node.Graph().NewConst(v.Name, t))
		}
	}
	for _, n := range s.depth {
		o := *n.Op.(*op.Conv)
		o.Group = n.Inputs[1].Const.Dim(0)
		n.Op = &o
	}
	reshapes := make([]*ir.Node, 0, len(s.flat))
	for n := range s.flat {
		reshapes = append(reshapes, n)
	}
	slices.SortFunc(reshapes, func(a, b *ir.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range reshapes {
		n.Op = &op.Reshape{}
		n.SetInput(1, n.Graph().NewConst(n.Name+"_shape", tensor.From([]int64{0, -1}, 2)))
	}
	return g.Infer()
}

// take returns the given elements of an axis.
func take(t *tensor.Tensor, axis int, keep []int) *tensor.Tensor {
	shape := slices.Clone(t.Shape())
	n := shape[axis]
	shape[axis] = len(keep)
	out := tensor.New(t.DType(), shape...)
	outer := 1
	for _, d := range shape[:axis] {
		outer *= d
	}
	src, dst := t.Bytes(), out.Bytes()
	run := len(src) / (outer * n)
	for i := range outer {
		for j, k := range keep {
			copy(dst[(i*len(keep)+j)*run:][:run], src[(i*n+k)*run:][:run])
		}
	}
	return out
}
