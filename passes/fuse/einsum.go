package fuse

import (
	"cmp"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Einsums spells each Einsum as products of matrices or of elements, sums, transposes and reshapes, operand after
// operand from the left, as Einsum evaluates them. A constant operand becomes the right factor of a MatMul, which is a
// weight. What stays: diagonals, sums over an axis that an operand broadcasts, and, where sizes are open, what only a
// reshape to two open sizes can say (lowering knows them).
func Einsums(g *ir.Graph) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		o, ok := n.Op.(*op.Einsum)
		if !ok || !slices.Contains(multiplied, n.Inputs[0].Type.DType) {
			return false, nil
		}
		ranks := make([]int, len(n.Inputs))
		for i, v := range n.Inputs {
			if !v.Type.Ranked || slices.Contains(v.Type.Dims, ir.Size(0)) {
				return false, nil
			}
			ranks[i] = v.Type.Rank()
		}
		terms, out, err := o.Terms(ranks)
		if err != nil {
			return false, nil
		}
		plan := &einsum{builder: builder{n}, dry: true}
		if plan.evaluate(terms, out); plan.stays {
			return false, nil
		}
		e := &einsum{builder: builder{n}}
		y := e.evaluate(terms, out)
		if e.err != nil {
			return false, e.err
		}
		forward(n, y.v)
		return true, nil
	})
}

// multiplied lists the types that MatMul takes.
var multiplied = []tensor.DType{tensor.F16, tensor.BF16, tensor.F32, tensor.F64, tensor.I32, tensor.I64, tensor.U32, tensor.U64}

// einsum rewrites one node: what it adds comes before that. Dry, it adds nothing and finds whether the node stays.
type einsum struct {
	builder
	dry   bool
	stays bool
	err   error
}

// factor is a value whose axes have labels. Dims holds their sizes, open ones as merged where axes became one.
type factor struct {
	v        *ir.Value // nil where it would be made
	labels   []int
	dims     []ir.Dim
	constant bool
}

var merged = ir.Sym("merged")

func (x factor) dim(label int) ir.Dim { return x.dims[slices.Index(x.labels, label)] }

// evaluate multiplies the operands one after the other, and sums over each label that neither later ones nor the
// output have.
func (e *einsum) evaluate(terms [][]int, out []int) factor {
	var acc factor
	left := make([]int, len(terms))
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		next := e.next(acc, terms, left)
		i := left[next]
		left = slices.Delete(left, next, next+1)
		v := e.at.Inputs[i]
		x := factor{v: v, labels: terms[i], dims: v.Type.Dims, constant: v.IsConst()}
		for k, l := range x.labels {
			if slices.Contains(x.labels[:k], l) { // a diagonal
				e.stays = true
			}
		}
		later := slices.Clone(out)
		for _, j := range left {
			later = append(later, terms[j]...)
		}
		if i == 0 {
			acc = e.sum(x, later)
			continue
		}
		x = e.sum(x, slices.Concat(later, acc.labels))
		acc = e.sum(acc, slices.Concat(later, x.labels))
		if acc = e.multiply(acc, x, later); e.stays || e.err != nil {
			return acc
		}
	}
	return e.transpose(acc, out, acc.v != nil && acc.v.Def == nil) // an input as it is is copied, not renamed
}

// next returns which of the operands that are left is multiplied next: the first, but before a constant one that makes
// the product larger by no label. Shared labels then are summed over with the constant, which is one matrix and not a
// stack of them.
func (e *einsum) next(acc factor, terms [][]int, left []int) int {
	if len(left) == len(terms) || acc.constant || !e.at.Inputs[left[0]].IsConst() {
		return 0
	}
	for at, i := range left {
		within := !e.at.Inputs[i].IsConst()
		for _, l := range terms[i] {
			within = within && slices.Contains(acc.labels, l)
		}
		if within {
			return at
		}
	}
	return 0
}

// sum sums over the labels that keep lacks.
func (e *einsum) sum(x factor, keep []int) factor {
	y, axes := factor{constant: x.constant}, []int{}
	for i, l := range x.labels {
		if slices.Contains(keep, l) {
			y.labels, y.dims = append(y.labels, l), append(y.dims, x.dims[i])
		} else {
			axes = append(axes, i)
		}
	}
	if len(axes) == 0 {
		return x
	}
	if dt := e.at.Inputs[0].Type.DType; len(e.at.Inputs) > 1 && dt.IsFloat() && dt.Size() < 4 { // would be rounded twice
		e.stays = true
	}
	y.v = e.node("ReduceSum", map[string]any{"keepdims": 0}, x.v, e.ints(axes...))
	return y
}

// multiply multiplies a and b and sums over the labels of both that later lacks. The labels of the result are ordered as
// in later, but those of a come before those of b where the product is one of matrices.
func (e *einsum) multiply(a, b factor, later []int) factor {
	var batch, sum, m, n []int
	for _, l := range a.labels {
		switch {
		case !slices.Contains(b.labels, l):
			m = append(m, l)
		case slices.Contains(later, l):
			batch = append(batch, l)
		default:
			sum = append(sum, l)
		}
	}
	for _, l := range b.labels {
		if !slices.Contains(a.labels, l) {
			n = append(n, l)
		}
	}
	for _, l := range slices.Concat(batch, sum) {
		da, db := a.dim(l), b.dim(l)
		if da != db && (da != ir.Size(1) && db != ir.Size(1) || slices.Contains(sum, l)) {
			e.stays = true
			return a
		}
	}
	place := func(x, y int) int { return cmp.Compare(slices.Index(later, x), slices.Index(later, y)) }
	for _, labels := range [][]int{batch, m, n} {
		slices.SortStableFunc(labels, place)
	}
	if len(sum) == 0 {
		all := slices.Concat(batch, m, n)
		slices.SortStableFunc(all, place)
		return e.elements(a, b, all)
	}
	last := func(labels []int) int { // where the last of them is wanted
		if len(labels) == 0 {
			return -1
		}
		return slices.Index(later, labels[len(labels)-1])
	}
	if a.constant != b.constant && a.constant || a.constant == b.constant && last(m) > last(n) {
		a, b, m, n = b, a, n, m
	}
	return e.matrices(a, b, batch, m, sum, n)
}

// elements multiplies elements with equal labels.
func (e *einsum) elements(a, b factor, labels []int) factor {
	y := factor{labels: labels, constant: a.constant && b.constant}
	for _, l := range labels {
		d := ir.Size(1)
		for _, x := range []factor{a, b} {
			if slices.Contains(x.labels, l) && x.dim(l) != d {
				d = x.dim(l)
			}
		}
		y.dims = append(y.dims, d)
	}
	y.v = e.node("Mul", nil, e.spread(a, labels), e.spread(b, labels))
	return y
}

// spread gives a value an axis for each label, of size one where it has none; those before its first are implied.
func (e *einsum) spread(x factor, labels []int) *ir.Value {
	var own, axes []int
	for _, l := range labels {
		switch {
		case slices.Contains(x.labels, l):
			own = append(own, l)
		case len(own) > 0:
			axes = append(axes, len(own)+len(axes))
		}
	}
	x = e.transpose(x, own, false)
	if len(axes) == 0 {
		return x.v
	}
	return e.node("Unsqueeze", nil, x.v, e.ints(axes...))
}

// matrices multiplies a, seen as [batch,m,sum], by b, seen as [batch,sum,n].
func (e *einsum) matrices(a, b factor, batch, m, sum, n []int) factor {
	y := factor{labels: slices.Concat(batch, m, n), constant: a.constant && b.constant}
	rows := [][]int{m}
	if len(batch) == 0 && len(m) > 0 { // the right factor is one matrix, the left one may have any number of axes
		rows = single(m)
	}
	left := e.merge(a, slices.Concat(single(batch), rows, [][]int{sum}))
	right := e.merge(b, slices.Concat(single(batch), [][]int{sum, n}))
	var dims []ir.Dim // of the product
	for i := range batch {
		d := left.dims[i]
		if d == ir.Size(1) {
			d = right.dims[i]
		}
		dims, y.dims = append(dims, d), append(y.dims, d)
	}
	dims = slices.Concat(dims, left.dims[len(batch):len(left.dims)-1], right.dims[len(right.dims)-1:])
	for _, l := range m {
		y.dims = append(y.dims, a.dim(l))
	}
	for _, l := range n {
		y.dims = append(y.dims, b.dim(l))
	}
	y.v = e.reshape(e.node("MatMul", nil, left.v, right.v), dims, y.dims)
	return y
}

// single makes a group of each label.
func single(labels []int) [][]int {
	var groups [][]int
	for _, l := range labels {
		groups = append(groups, []int{l})
	}
	return groups
}

// merge orders the axes by groups of labels and makes one axis of each group.
func (e *einsum) merge(x factor, groups [][]int) factor {
	x = e.transpose(x, slices.Concat(groups...), false)
	var dims []ir.Dim
	for _, labels := range groups {
		d := ir.Size(1)
		for _, l := range labels {
			switch k := x.dim(l); {
			case len(labels) == 1:
				d = k
			case d.Known() && k.Known():
				d = ir.Size(d.Size() * k.Size())
			default:
				d = merged
			}
		}
		dims = append(dims, d)
	}
	return factor{v: e.reshape(x.v, x.dims, dims), dims: dims, constant: x.constant}
}

// transpose orders the axes by their labels.
func (e *einsum) transpose(x factor, labels []int, always bool) factor {
	if slices.Equal(x.labels, labels) && !always {
		return x
	}
	y, perm := factor{labels: labels, constant: x.constant}, []int{}
	for _, l := range labels {
		i := slices.Index(x.labels, l)
		perm, y.dims = append(perm, i), append(y.dims, x.dims[i])
	}
	y.v = e.node("Transpose", map[string]any{"perm": perm}, x.v)
	return y
}

// reshape gives a value of sizes from the sizes to. An open size is copied from where it is, or, where all others are
// known, is what is left.
func (e *einsum) reshape(v *ir.Value, from, to []ir.Dim) *ir.Value {
	if slices.Equal(from, to) {
		return v
	}
	target, open, copied := make([]int, len(to)), 0, 0
	for i, d := range to {
		switch {
		case d.Known():
			target[i] = d.Size()
		case i < len(from) && from[i] == d && d != merged:
			copied++
		default:
			target[i] = -1
			open++
		}
	}
	if open > 1 || open == 1 && copied > 0 {
		e.stays = true
	}
	return e.node("Reshape", nil, v, e.ints(target...))
}

// ints is a constant.
func (e *einsum) ints(x ...int) *ir.Value {
	if e.dry {
		return nil
	}
	return e.constant("axes", tensor.Ints(x...))
}

// node adds a node, and is nil where it does not.
func (e *einsum) node(kind string, attrs map[string]any, in ...*ir.Value) *ir.Value {
	if e.dry || e.stays || e.err != nil {
		return nil
	}
	var v *ir.Value
	v, e.err = e.add(kind, kind, attrs, in...)
	return v
}
