package op

import (
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/tensor"
)

// Einsum sums products of elements as an equation in Einstein's notation says,
// such as bij,bjk->bik.
type Einsum struct {
	Equation string `attr:"equation"`
}

// Kind is Einsum.
func (*Einsum) Kind() string { return "Einsum" }

// ellipsis stands for the axes of an ellipsis in a term, which become the labels
// ellipsis+1 and so on, counted from the last.
const ellipsis = 1 << 8

// Terms parses the equation for operands of the given ranks: the labels of each
// operand's axes and of the output's.
func (o *Einsum) Terms(ranks []int) (in [][]int, out []int, err error) {
	if o.Equation == "" {
		return nil, nil, evalErrorf("equation is missing")
	}
	text := strings.ReplaceAll(o.Equation, " ", "")
	left, right, explicit := strings.Cut(text, "->")
	parts := strings.Split(left, ",")
	if len(parts) != len(ranks) {
		return nil, nil, evalErrorf("equation %q has %d operands, want %d", o.Equation, len(parts), len(ranks))
	}
	widest := 0
	count := map[int]int{}
	for i, p := range parts {
		letters := len(p)
		if strings.Contains(p, "...") {
			letters -= 3
			widest = max(widest, ranks[i]-letters)
		}
		term, err := o.term(p, ranks[i]-letters)
		if err != nil {
			return nil, nil, err
		}
		if len(term) != ranks[i] {
			return nil, nil, evalErrorf("term %q of equation %q has %d axes, want the operand's %d", p, o.Equation, len(term), ranks[i])
		}
		for _, l := range term {
			count[l]++
		}
		in = append(in, term)
	}
	if explicit {
		if out, err = o.term(right, widest); err != nil {
			return nil, nil, err
		}
		if widest > 0 && !strings.Contains(right, "...") {
			return nil, nil, evalErrorf("output %q of equation %q has no ellipsis, want that of the operands", right, o.Equation)
		}
		for i, l := range out {
			if count[l] == 0 || slices.Contains(out[:i], l) {
				return nil, nil, evalErrorf("output %q of equation %q has an axis twice or one that no operand has", right, o.Equation)
			}
		}
		return in, out, nil
	}
	if out, err = o.term("...", widest); err != nil {
		return nil, nil, err
	}
	for l := range ellipsis {
		if count[l] == 1 {
			out = append(out, l)
		}
	}
	return in, out, nil
}

// term returns the labels of one term, in which an ellipsis has n axes.
func (o *Einsum) term(s string, n int) ([]int, error) {
	before, after, dots := strings.Cut(s, "...")
	var labels []int
	for i, part := range []string{before, after} {
		if i == 1 && dots {
			for k := n; k > 0; k-- {
				labels = append(labels, ellipsis+k)
			}
		}
		for _, r := range part {
			if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
				return nil, evalErrorf("equation %q has the character %q, want letters, commas, an ellipsis and one ->", o.Equation, r)
			}
			labels = append(labels, int(r))
		}
	}
	return labels, nil
}

// Along follows the labels of the output's axes.
func (o *Einsum) Along(n *ir.Node, _, axis int) []int {
	var ranks []int
	for _, v := range n.Inputs {
		if !v.Type.Ranked {
			return nil
		}
		ranks = append(ranks, v.Type.Rank())
	}
	terms, out, err := o.Terms(ranks)
	if err != nil || axis >= len(out) {
		return nil
	}
	var in []int
	for _, labels := range terms {
		at := slices.Index(labels, out[axis])
		if at >= 0 && slices.Contains(labels[at+1:], out[axis]) { // a diagonal
			return nil
		}
		in = append(in, at)
	}
	return in
}

// Infer gives the labelled dimensions.
func (o *Einsum) Infer(c *ir.Infer) error {
	if err := wantTaken(c, c.Len(), rankable); err != nil {
		return err
	}
	ranks := make([]int, c.Len())
	for i := range ranks {
		if !c.In(i).Ranked {
			c.Set(0, ir.Unranked(c.In(0).DType))
			return nil
		}
		ranks[i] = c.In(i).Rank()
	}
	in, out, err := o.Terms(ranks)
	if err != nil {
		return refuse(c, err)
	}
	dims := map[int]ir.Dim{}
	for i, term := range in {
		for k, l := range term {
			d := c.In(i).Dims[k]
			old, ok := dims[l]
			switch {
			case !ok || old == ir.Size(1):
				dims[l] = d
			case d == ir.Size(1):
			default:
				if dims[l], ok = sameDim(old, d); !ok {
					return c.Errorf("equation %q: operand %d is %v, whose axis %d is %v where an operand before it has %v", o.Equation, i, c.In(i), k, d, old)
				}
			}
		}
	}
	result := make([]ir.Dim, len(out))
	for i, l := range out {
		result[i] = dims[l]
	}
	c.Set(0, ir.Of(c.In(0).DType, result...))
	return nil
}

// Work counts a multiplication and an addition for each operand after the first
// and each combination of labels.
func (o *Einsum) Work(in, out []ir.Type) ir.Work {
	w := streamWork(in, out, 0)
	ranks := make([]int, len(in))
	for i, t := range in {
		ranks[i] = t.Rank()
	}
	terms, _, err := o.Terms(ranks)
	if err != nil {
		return w
	}
	sizes := map[int]float64{}
	for i, term := range terms {
		for k, l := range term {
			sizes[l] = max(sizes[l], float64(in[i].Dims[k].Size()))
		}
	}
	w.FLOPs = 2 * float64(max(1, len(in)-1))
	for _, n := range sizes {
		w.FLOPs *= n
	}
	return w
}

// Eval multiplies the operands one after the other, summing over each label as
// soon as no later operand and not the output has it.
func (o *Einsum) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	dt := in[0].DType()
	ranks := make([]int, len(in))
	for i, t := range in {
		ranks[i] = t.Rank()
	}
	terms, out, err := o.Terms(ranks)
	if err != nil {
		return nil, err
	}
	wide := tensor.F64
	if dt.IsInt() {
		wide = tensor.I64
	}
	acc, labels := tensor.Scalar(1.0).To(wide), []int{}
	for i, t := range in {
		later := slices.Concat(append([][]int{out}, terms[i+1:]...)...)
		keep := []int{}
		for _, l := range slices.Concat(labels, terms[i]) {
			if slices.Contains(later, l) && !slices.Contains(keep, l) {
				keep = append(keep, l)
			}
		}
		if i == len(in)-1 {
			keep = out
		}
		if acc, err = contract(acc, labels, t.To(wide), terms[i], keep); err != nil {
			return nil, err
		}
		labels = keep
	}
	return one(acc.To(dt))
}

// contract multiplies two labelled tensors and sums over the labels that keep
// lacks.
func contract(a *tensor.Tensor, la []int, b *tensor.Tensor, lb, keep []int) (*tensor.Tensor, error) {
	all := slices.Clone(keep)
	for _, l := range slices.Concat(la, lb) {
		if !slices.Contains(all, l) {
			all = append(all, l)
		}
	}
	shape := make([]int, len(all))
	for i := range shape {
		shape[i] = 1
	}
	stride := func(t *tensor.Tensor, labels []int) []int {
		st := make([]int, len(all))
		for k, s := range tensor.Strides(t.Shape()) {
			if d := t.Dim(k); d != 1 {
				i := slices.Index(all, labels[k])
				shape[i] = d
				st[i] += s // a repeated label is a diagonal
			}
		}
		return st
	}
	sa, sb := stride(a, la), stride(b, lb)
	out, err := newOutput(a.DType(), shape[:len(keep)]...)
	if err != nil {
		return nil, err
	}
	if a.DType() == tensor.I64 {
		sumProducts[int64](out, a, b, shape, sa, sb, len(keep))
	} else {
		sumProducts[float64](out, a, b, shape, sa, sb, len(keep))
	}
	return out, nil
}

// sumProducts sums a times b over the dimensions of shape from the given one on.
func sumProducts[T int64 | float64](out, a, b *tensor.Tensor, shape, sa, sb []int, from int) {
	d, x, y := tensor.Data[T](out), tensor.Data[T](a), tensor.Data[T](b)
	inner := planRows(shape[from:], [][]int{sa[from:], sb[from:]})
	if inner.n == 0 { // sums of nothing
		return
	}
	walkRows(shape[:from], [][]int{sa[:from], sb[:from]}, func(at, n int, off, step []int) {
		for i := range n {
			xi, yi := x[off[0]+i*step[0]:], y[off[1]+i*step[1]:]
			if len(inner.outer) == 0 {
				d[at+i] = dot(inner.n, xi, inner.step[0], yi, inner.step[1])
				continue
			}
			inner.each(func(_, n int, off, step []int) {
				d[at+i] += dot(n, xi[off[0]:], step[0], yi[off[1]:], step[1])
			})
		}
	})
}

// dot sums the products of n elements that lie sx and sy apart.
func dot[T int64 | float64](n int, x []T, sx int, y []T, sy int) (sum T) {
	j, k := 0, 0
	for range n {
		sum += x[j] * y[k]
		j += sx
		k += sy
	}
	return sum
}
