package diff

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// How exact an operator is: what it makes of exact inputs.
type rounding int

const (
	moves    rounding = iota // results are bits of the inputs, or follow from them without rounding
	sums                     // sums of elements
	products                 // sums of products of elements of the first two inputs, and perhaps the third
	divides                  // quotients
	rounds                   // anything else
)

// The number of evaluations with noise: pairs whose noise has opposite signs. Where ranges
// of 8 bits come from calibration, many elements lie between two integers, and each may
// go its own way.
const (
	passes     = 6
	passes8bit = 32
)

// noiseBits is by how many bits noise exceeds the unit in the last place. Results of a
// right program stay so far inside of what noise does that no bound needs tuning, and
// what noise makes jump (the place of a maximum, a rounding to an integer) is not compared.
const noiseBits = 6

// value is a tensor as it was evaluated without noise and with each kind of it.
type value struct {
	base  *tensor.Tensor
	noisy []*tensor.Tensor // of each evaluation with noise, and the one that flushes; none where it is exact
	exact bool             // every right way to compute it gives these bits
	open  []int            // the axes whose sizes may depend on elements, so that inference does not know them
	rank  bool             // it does not even know how many there are
	loops bool             // the graph repeats a subgraph, perhaps never
}

// plain is the value of an input.
func plain(t *tensor.Tensor) *value {
	return &value{base: t, exact: true}
}

// item is element i of a list; what noise makes another list of has none.
func (v *value) item(i int) *value {
	e := &value{base: v.base.Items()[i], exact: v.exact}
	for _, t := range v.noisy {
		var x *tensor.Tensor
		if t != nil && t.Len() == v.base.Len() {
			x = t.Items()[i]
		}
		e.noisy = append(e.noisy, x)
	}
	return e
}

// elements is the number of elements of a tensor, or of all that are in a list.
func elements(t *tensor.Tensor) int {
	if !t.DType().IsList() {
		return t.Len()
	}
	n := t.Len()
	for _, e := range t.Items() {
		n += elements(e)
	}
	return n
}

// stable reports whether noise leaves the type, the integers and the strings of v as
// they are, no number of it is infinite, and what it does to floats is small.
func (v *value) stable() bool {
	if v.base.DType().IsList() {
		_, ok := v.spread()
		for i := range v.base.Len() {
			ok = ok && v.item(i).stable()
		}
		return ok
	}
	if v.base.DType().IsFloat() {
		for _, x := range v.base.Float64s() {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return false
			}
		}
	}
	if v.exact {
		return true
	}
	d, ok := v.spread()
	if !ok {
		return false
	}
	if d == nil {
		return true
	}
	most, size := slices.Max(append(d, 0)), 0.0
	for _, x := range v.base.Float64s() {
		size = max(size, math.Abs(x))
	}
	return most <= size*math.Ldexp(1, -min(mantissa(v.base.DType()), 24)/3)
}

// spread returns, for each float, how far noise moves it; nil for other elements, and for
// lists. ok is false where noise changes the shape or other elements.
func (v *value) spread() (d []float64, ok bool) {
	if v.base.DType().IsList() {
		for _, t := range v.noisy {
			if t == nil || t.DType() != v.base.DType() || t.Len() != v.base.Len() {
				return nil, false
			}
		}
		ok = true
		for i := 0; ok && i < v.base.Len(); i++ {
			_, ok = v.item(i).spread()
		}
		return nil, ok
	}
	if v.base.DType().IsFloat() {
		d = make([]float64, v.base.Len())
	}
	var x []float64
	if d != nil {
		x = v.base.Float64s()
	}
	for _, t := range v.noisy {
		if t == nil || !t.Fits(v.base) {
			return nil, false
		}
		if d == nil {
			if !t.Equal(v.base) {
				return nil, false
			}
			continue
		}
		for i, y := range t.Float64s() {
			switch {
			case y == x[i] || math.IsNaN(y) && math.IsNaN(x[i]):
			case math.IsNaN(y-x[i]) || math.IsInf(y-x[i], 0):
				return nil, false
			default:
				d[i] = max(d[i], math.Abs(y-x[i]))
			}
		}
	}
	return d, true
}

// undefined reports whether v and got are empty and have other sizes only along axes that
// inference does not know: what a Loop or a Scan of no rounds stacks has no elements to take them
// from, and how much of a body's type is known depends on what was folded into constants.
func (v *value) undefined(got *tensor.Tensor) bool {
	want := v.base
	if !v.loops || want.DType().IsList() || want.Len() > 0 || got.DType() != want.DType() || got.Len() > 0 || !v.rank && got.Rank() != want.Rank() {
		return false
	}
	if v.rank {
		return true
	}
	for i, d := range want.Shape() {
		if got.Dim(i) != d && !slices.Contains(v.open, i) {
			return false
		}
	}
	return true
}

// differs compares got with v and returns what is wrong, empty where nothing is. It says
// nothing of what noise changes.
func (v *value) differs(got *tensor.Tensor) (class, detail string) {
	want := v.base
	if got == nil {
		return "missing", "no result"
	}
	d, ok := v.spread()
	if !ok {
		return "", ""
	}
	if want.DType().IsList() && got.DType() == want.DType() && got.Len() == want.Len() {
		for i, e := range got.Items() {
			if class, detail := v.item(i).differs(e); class != "" {
				return class, fmt.Sprintf("element %d of %v: %s", i, want, detail)
			}
		}
		return "", ""
	}
	if v.undefined(got) {
		return "", ""
	}
	if !got.Fits(want) {
		return "shape", fmt.Sprintf("%v, want %v", got, want)
	}
	if !want.DType().IsFloat() {
		if got.Equal(want) {
			return "", ""
		}
		return "value", firstDifference(got, want)
	}
	x, y := want.Float64s(), got.Float64s()
	var most, size float64
	for i := range x {
		if most = max(most, d[i]); !math.IsInf(x[i], 0) && !math.IsNaN(x[i]) {
			size = max(size, math.Abs(x[i]))
		}
	}
	bad, at, worst := 0, -1, 0.0
	for i := range x {
		if x[i] == y[i] || math.IsNaN(x[i]) && math.IsNaN(y[i]) {
			continue
		}
		bound := 0.0
		if !v.exact {
			bound = 2*d[i] + most/2 + size*math.Ldexp(1, noiseBits-2-mantissa(want.DType()))
		}
		if e := math.Abs(x[i] - y[i]); !(e <= bound) {
			bad++
			if at < 0 || e > worst {
				at, worst = i, e
			}
		}
	}
	if bad == 0 {
		return "", ""
	}
	return "value", fmt.Sprintf("%d of %d elements of %v differ, most at %d: %v, want %v", bad, len(x), want, at, y[at], x[at])
}

func firstDifference(got, want *tensor.Tensor) string {
	if want.DType() == tensor.String {
		a, b := got.Strings(), want.Strings()
		for i := range b {
			if a[i] != b[i] {
				return fmt.Sprintf("element %d of %v is %q, want %q", i, want, a[i], b[i])
			}
		}
		return ""
	}
	n := want.DType().Size()
	a, b := got.Bytes(), want.Bytes()
	for i := 0; i < len(b); i += n {
		if string(a[i:i+n]) != string(b[i:i+n]) {
			return fmt.Sprintf("element %d of %v is %x, want %x (bytes)", i/n, want, a[i:i+n], b[i:i+n])
		}
	}
	return ""
}

// mantissa is the number of significant bits of a floating-point type.
func mantissa(dt tensor.DType) int {
	switch dt {
	case tensor.F64:
		return 53
	case tensor.F32:
		return 24
	case tensor.F16:
		return 11
	case tensor.BF16:
		return 8
	}
	return 3
}

// evaluate evaluates a graph without noise, with so many kinds of it from a seed, and once more
// without any for what noise never does, see evaluator.flush.
func evaluate(ctx context.Context, g *ir.Graph, in []*value, seed uint64, passes int) ([]*value, error) {
	out := make([]*value, len(g.Outputs))
	exact := map[*ir.Node][]cell{}
	for pass := -1; pass <= passes; pass++ {
		e := &evaluator{ctx: ctx, sign: 1, exact: exact}
		if pass >= 0 {
			e.noise = rand.New(rand.NewPCG(seed, uint64(pass/2)))
			e.quiet = pass/2%3 == 2
			if e.sign = float64(1 - 2*(pass%2)); pass == passes {
				e.sign, e.flush = 0, true
			}
		}
		cells := make([]cell, len(in))
		for i, v := range in {
			cells[i] = cell{v.base, v.exact}
			if pass >= 0 && !v.exact {
				cells[i].t = v.noisy[pass]
			}
		}
		got, err := e.graph(g, cells, nil)
		if err != nil {
			if pass < 0 {
				return nil, err
			}
			got = make([]cell, len(out)) // noise makes it fail: nothing is to be told of the outputs
		}
		all := true
		for i, c := range got {
			switch {
			case pass < 0:
				out[i] = &value{base: c.t, exact: c.exact}
				all = all && c.exact
			case !out[i].exact:
				out[i].noisy = append(out[i].noisy, c.t)
			}
		}
		if pass < 0 && all {
			break
		}
	}
	return out, nil
}

// maxRuns bounds how often the subgraphs of a graph run, in all rounds of loops within loops:
// a list in which no tensor is large may have maxElems/2 elements.
const maxRuns = maxElems / 2

// evaluator evaluates graphs by the operators' own Eval once.
type evaluator struct {
	ctx   context.Context
	noise *rand.Rand // nil for none
	sign  float64    // of noise, 0 for none of any size
	quiet bool       // inputs stay as they are: where noise moves what is rounded to integers, it is elsewhere that later ones jump
	flush bool       // sums that noise could make zero are zero, elements that it could make equal are equal, and exponents that it could make integers are integers
	runs  int        // of subgraphs, all together
	// exact holds the outputs of the nodes, outside of subgraphs, that noise does not reach:
	// inputs and outputs of theirs are exact without it.
	exact map[*ir.Node][]cell
}

type cell struct {
	t     *tensor.Tensor
	exact bool
}

type scope struct {
	outer  *scope
	values map[*ir.Value]cell
}

func (s *scope) find(v *ir.Value) (cell, error) {
	if v.Const != nil {
		return cell{v.Const, true}, nil
	}
	for ; s != nil; s = s.outer {
		if c, ok := s.values[v]; ok {
			return c, nil
		}
	}
	return cell{}, fmt.Errorf("%s has no value: %w", v.Name, ir.ErrInvalid)
}

func (e *evaluator) graph(g *ir.Graph, in []cell, outer *scope) ([]cell, error) {
	s := &scope{outer, map[*ir.Value]cell{}}
	for i, v := range g.Inputs {
		s.values[v] = in[i]
	}
	for _, n := range g.Nodes {
		if err := e.ctx.Err(); err != nil {
			return nil, err
		}
		if err := e.node(n, s); err != nil {
			return nil, err
		}
	}
	out := make([]cell, len(g.Outputs))
	for i, v := range g.Outputs {
		c, err := s.find(v)
		if err != nil {
			return nil, err
		}
		out[i] = c
	}
	return out, nil
}

func (e *evaluator) node(n *ir.Node, s *scope) error {
	if known, ok := e.exact[n]; ok && e.noise != nil {
		for i, v := range n.Outputs {
			if v != nil {
				s.values[v] = known[i]
			}
		}
		return nil
	}
	in := make([]*tensor.Tensor, len(n.Inputs))
	exact := true
	for i, v := range n.Inputs {
		if v == nil {
			continue
		}
		c, err := s.find(v)
		if err != nil {
			return err
		}
		in[i] = c.t
		exact = exact && c.exact
	}
	if len(ir.Subgraphs(n.Op)) == 0 {
		types, err := n.InferFor(in)
		if err != nil {
			return err
		}
		for _, t := range types {
			if shape, ok := t.Shape(); ok {
				if k, err := tensor.Elems(shape); err != nil || k > maxElems {
					return n.Errorf(ir.ErrInvalid, "%v is large", t)
				}
			}
		}
	} else {
		n.Reads(func(v *ir.Value) { // what the subgraphs capture
			if c, err := s.find(v); err == nil {
				exact = exact && c.exact
			}
		})
	}
	states := exact
	c := &ir.Eval{Outputs: len(n.Outputs), Run: func(g *ir.Graph, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		if e.runs++; e.runs > maxRuns {
			return nil, fmt.Errorf("subgraphs run more than %d times: %w", maxRuns, ir.ErrInvalid)
		}
		cells := make([]cell, len(in))
		for i, t := range in {
			cells[i] = cell{t, states}
		}
		got, err := e.graph(g, cells, s)
		if err != nil {
			return nil, err
		}
		out := make([]*tensor.Tensor, len(got))
		for i, c := range got {
			out[i] = c.t
			states = states && c.exact
		}
		return out, nil
	}}
	kind := n.Op.Kind()
	r := Rules[kind].Round
	rough := r != moves && !(exact && exactly(n, r, in)) || r == products && scaled(n.Outputs[0])
	if e.noise != nil && Rules[kind].Sparse && skips(in) {
		return n.Errorf(ir.ErrInvalid, "it multiplies zeros by what is not finite")
	}
	if rough && e.noise != nil && !e.quiet && !Rules[kind].Calm {
		for i, t := range in {
			if t != nil && (i == 0 || !Rules[kind].First) {
				in[i] = e.perturb(t, t.DType())
			}
		}
	}
	if e.flush && !exact && Rules[kind].Ties {
		in = tied(in)
	}
	if e.flush && !exact && Rules[kind].Whole {
		in = whole(in)
	}
	out, err := n.Op.Eval(c, in)
	if err != nil {
		return fmt.Errorf("%v: %w", n, err)
	}
	if e.flush && rough && (r == sums || r == products) {
		for i := range out {
			out[i] = cancelled(out[i], in, r)
		}
	}
	if f := Rules[kind].Noise; f != nil && rough && e.noise != nil {
		if err := f(e, n, in, out); err != nil {
			return fmt.Errorf("%v: %w", n, err)
		}
	}
	if len(ir.Subgraphs(n.Op)) > 0 {
		exact, rough = states, false
	}
	keep := e.noise == nil && s.outer == nil && exact && !rough
	var cells []cell
	for i, v := range n.Outputs {
		if v == nil {
			cells = append(cells, cell{})
			continue
		}
		if i >= len(out) || out[i] == nil {
			return n.Errorf(ir.ErrInvalid, "output %d was not computed", i)
		}
		t, same := out[i], exact && !rough || kind == "Shape" || kind == "Size" || kind == "SequenceLength" || kind == "OptionalHasElement"
		if narrows := !exact && len(in) > 0 && in[0] != nil && innermost(t) != innermost(in[0]); e.noise != nil && (rough || narrows) {
			t = e.perturb(t, t.DType())
		}
		s.values[v] = cell{t, same}
		cells = append(cells, s.values[v])
	}
	if keep {
		e.exact[n] = cells
	}
	return nil
}

// skips reports whether a product multiplies zeros by infinities or NaN: that is NaN, and
// where a format leaves the zeros of the weight out it need not be.
func skips(in []*tensor.Tensor) bool {
	zero, wild := false, false
	for _, t := range in {
		if t == nil || !t.DType().IsFloat() {
			continue
		}
		for _, x := range t.Float64s() {
			zero = zero || x == 0
			wild = wild || math.IsNaN(x-x)
		}
	}
	return zero && wild
}

// cancelled returns what sums, or sums of products, gave, with zeros in the place of elements that are not
// larger than noise in their terms: another order of adding may give exactly zero, which noise never does.
func cancelled(t *tensor.Tensor, in []*tensor.Tensor, r rounding) *tensor.Tensor {
	if t == nil || !t.DType().IsFloat() {
		return t
	}
	terms := 0.0 // what a term may be as large as
	if r == products {
		terms = 1
	}
	for i, x := range in {
		if x == nil || !x.DType().IsFloat() {
			continue
		}
		most := 0.0
		for _, v := range x.Float64s() {
			most = max(most, math.Abs(v))
		}
		if r == products && i < 2 {
			terms *= most
		} else {
			terms = max(terms, most)
		}
	}
	small := terms * math.Ldexp(1, noiseBits-mantissa(t.DType()))
	y := t.Float64s()
	for i, v := range y {
		if math.Abs(v) < small {
			y[i] = 0
		}
	}
	return tensor.FromFloat64s(t.DType(), y, t.Shape()...)
}

// tied returns tensors of which floats that are as near to each other as noise may bring them are
// the same: rounding in another way may make them equal, which noise never does.
func tied(in []*tensor.Tensor) []*tensor.Tensor {
	var all []float64
	least := 53
	for _, t := range in {
		if t == nil || !t.DType().IsFloat() {
			return in
		}
		all, least = append(all, t.Float64s()...), min(least, mantissa(t.DType()))
	}
	all = slices.DeleteFunc(all, func(x float64) bool { return math.IsNaN(x - x) })
	if len(all) == 0 {
		return in
	}
	slices.Sort(all)
	all = slices.Compact(all)
	near := max(-all[0], all[len(all)-1]) * math.Ldexp(1, noiseBits+2-least)
	first := map[float64]float64{} // of those that are the same
	for i, x := range all {
		first[x] = x
		if i > 0 && x-all[i-1] <= near {
			first[x] = first[all[i-1]]
		}
	}
	out := slices.Clone(in)
	for i, t := range in {
		x := t.Float64s()
		for j, v := range x {
			if f, ok := first[v]; ok {
				x[j] = f
			}
		}
		out[i] = tensor.FromFloat64s(t.DType(), x, t.Shape()...)
	}
	return out
}

// whole returns tensors of which floats that are as near to an integer as noise may bring them are
// that integer: a negative number has powers of integers alone, which noise never makes.
func whole(in []*tensor.Tensor) []*tensor.Tensor {
	out := slices.Clone(in)
	for i, t := range in {
		if t == nil || !t.DType().IsFloat() {
			continue
		}
		x := t.Float64s()
		for j, v := range x {
			if n := math.Round(v); math.Abs(v-n) <= math.Ldexp(math.Abs(n), noiseBits-mantissa(t.DType())) {
				x[j] = n
			}
		}
		out[i] = tensor.FromFloat64s(t.DType(), x, t.Shape()...)
	}
	return out
}

// further is noise of an operator that its inputs and outputs do not show.
type further func(e *evaluator, n *ir.Node, in, out []*tensor.Tensor) error

// meanNoise moves what a LayerNormalization makes of each row by what rounding the row's mean
// does: noise in the inputs does not, where it leaves a row of few elements what it is.
func meanNoise(e *evaluator, n *ir.Node, in, out []*tensor.Tensor) error {
	all, err := n.Op.Eval(&ir.Eval{Outputs: 3}, in)
	if err != nil || out[0].Len() == 0 {
		return err
	}
	means, inverse, y := all[1].Float64s(), all[2].Float64s(), out[0].Float64s()
	scale := in[1].Expand(out[0].Shape()...).Float64s()
	width := len(y) / len(means)
	for r := range means {
		by := e.sign * math.Ldexp(means[r]*inverse[r], noiseBits-mantissa(out[0].DType()))
		if e.noise.Uint64()&1 == 0 {
			by = -by
		}
		for i := range width {
			y[r*width+i] += by * scale[r*width+i]
		}
	}
	out[0] = tensor.FromFloat64s(out[0].DType(), y, out[0].Shape()...)
	return nil
}

// gateNoise moves states of a GRU by what rounding its update gate z does: of a z near one
// 1 - z keeps few bits, while noise is in proportion to what (1 - z)·n + z·h comes to. The
// candidates n are of tanh, and not above one.
func gateNoise(e *evaluator, _ *ir.Node, _, out []*tensor.Tensor) error {
	for k, t := range out {
		if t == nil {
			continue
		}
		step, y := e.sign*math.Ldexp(1, noiseBits-mantissa(t.DType())), t.Float64s()
		for i := range y {
			if e.noise.Uint64()&1 == 0 {
				y[i] += step
			} else {
				y[i] -= step
			}
		}
		out[k] = tensor.FromFloat64s(t.DType(), y, t.Shape()...)
	}
	return nil
}

// innermost is the element type of a tensor, or of those in a list.
func innermost(t *tensor.Tensor) tensor.DType {
	dt := t.DType()
	for dt.IsList() {
		dt = dt.Elem()
	}
	return dt
}

// perturb changes each float of t by as much as its type's precision, raised by noiseBits,
// up or down.
func (e *evaluator) perturb(t *tensor.Tensor, dt tensor.DType) *tensor.Tensor {
	if dt.IsList() {
		return t.Map(func(x *tensor.Tensor) *tensor.Tensor { return e.perturb(x, x.DType()) })
	}
	if !dt.IsFloat() || t.Len() == 0 || e.sign == 0 {
		return t
	}
	step := e.sign * math.Ldexp(1, noiseBits-mantissa(dt))
	x := t.Float64s()
	var word uint64
	for i := range x {
		if i%7 == 0 {
			word = e.noise.Uint64()
		}
		by := step * (0.5 + float64(word&0xff)/512) // of different sizes, lest two cancel out
		if word>>8&1 == 0 {
			by = -by
		}
		word >>= 9
		x[i] += x[i] * by
		if a := math.Abs(x[i]); dt == tensor.F32 && a > 0 && a < 0x1p-100 {
			x[i] += math.Copysign(0x1p-125, by) // kernels may take what is below the normal numbers for zero
		}
	}
	return tensor.FromFloat64s(dt, x, t.Shape()...)
}

// exactly reports whether a node whose inputs are exact has exact outputs, in whatever
// order it adds: no sum needs more bits than its type has.
func exactly(n *ir.Node, r rounding, in []*tensor.Tensor) bool {
	type digits struct {
		low  int     // of the lowest bit that is set
		size float64 // the largest
		n    int
	}
	measure := func(t *tensor.Tensor) digits {
		d := digits{1 << 10, 0, 0}
		if t == nil {
			return d
		}
		d.n = t.Len()
		if t.DType() == tensor.String || t.DType() == tensor.C64 || t.DType() == tensor.C128 {
			return d
		}
		for _, x := range t.Float64s() {
			if x == 0 {
				continue
			}
			if math.IsNaN(x) || math.IsInf(x, 0) {
				d.low, d.size = -1<<20, math.Inf(1)
				continue
			}
			f, e := math.Frexp(x)
			d.low = min(d.low, e-53+bits.TrailingZeros64(uint64(math.Abs(f)*(1<<53))))
			d.size = max(d.size, math.Abs(x))
		}
		return d
	}
	if len(in) == 0 || in[0] == nil || n.Outputs[0] == nil {
		return r == moves
	}
	dt := n.Outputs[0].Type.DType
	if !dt.IsFloat() && !in[0].DType().IsFloat() {
		return r != rounds
	}
	most := mantissa(in[0].DType()) - 1
	if dt.IsFloat() {
		most = mantissa(dt) - 1
	}
	var low int
	var size float64
	switch r {
	case sums:
		low = 1 << 10
		for _, t := range in {
			d := measure(t)
			k := 1
			if len(in) == 1 || t.DType() != in[0].DType() || n.Op.Kind() == "CumSum" || len(in) == 2 && in[1] != nil && in[1].DType() == tensor.I64 {
				k = max(d.n, 1)
			}
			low, size = min(low, d.low), size+d.size*float64(k)
		}
	case products:
		a := measure(in[0])
		b := a
		if len(in) > 1 {
			b = measure(in[1])
		}
		k := max(1, min(a.n, b.n))
		switch n.Op.Kind() {
		case "Mul", "PRelu":
			k = 1
		case "Conv":
			if inexactConv(n.Op.(*op.Conv), in[1]) {
				return false
			}
		case "Gemm":
			o := n.Op.(*op.Gemm)
			if o.Alpha != 1 || o.Beta != 1 {
				return false
			}
		}
		low, size = a.low+b.low, a.size*b.size*float64(k)
		for _, t := range in[min(2, len(in)):] {
			if t != nil && t.DType().IsFloat() {
				d := measure(t)
				low, size = min(low, d.low), size+d.size
			}
		}
	case divides:
		a := measure(in[0])
		least := math.Inf(1)
		for _, x := range in[1].Float64s() {
			if f, _ := math.Frexp(x); math.Abs(f) != 0.5 {
				return false
			}
			least = min(least, math.Abs(x))
		}
		low, size = a.low-int(math.Log2(measure(in[1]).size)), a.size/least
	default:
		return false
	}
	return size == 0 || size < math.Ldexp(1, min(low+most, 1000)) && low > -100
}

// scaled reports whether a product is multiplied by what its weight may be multiplied by
// in its place, and is rounded then.
func scaled(v *ir.Value) bool {
	if v == nil {
		return false
	}
	for _, u := range v.Uses() {
		switch u.Node.Op.Kind() {
		case "BatchNormalization":
			return true
		case "Mul", "Div":
			if c := u.Node.Input(1 - u.Index); c != nil && c.Const != nil && c.Const.DType().IsFloat() && slices.ContainsFunc(c.Const.Float64s(), func(x float64) bool { return x*64 != math.Trunc(x*64) }) {
				return true
			}
			if scaled(u.Node.Outputs[0]) {
				return true
			}
		case "Add", "Sub":
			if scaled(u.Node.Outputs[0]) {
				return true
			}
		}
	}
	return false
}

// inexactConv reports whether a convolution may be computed by transforms, which round.
func inexactConv(_ *op.Conv, w *tensor.Tensor) bool {
	return w.Rank() == 4 && w.Dim(2) == 3 && w.Dim(3) == 3
}
