package quant

import (
	"context"
	"fmt"
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/option"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/passes/prune"
	"spc/passes/steps"
)

// Options say how to quantise.
type Options struct {
	Type     tensor.DType // I8 for products of 8-bit integers; F16 or BF16 for weights of it
	Steps    steps.Steps  // where it has bits, of weights alone, which Round rounds; Type is not used
	Observer *calib.Observer
	Ranges   Ranges
	// KeepFloat names nodes or weights whose products stay in floating point.
	KeepFloat []prune.Glob
	// Only, where it is set, has the weights whose products may be quantised.
	Only map[string]bool
	// Depthwise quantises depthwise convolutions, too: the device has kernels for them.
	Depthwise bool
	// All quantises the products that make most of the model's error, too.
	All bool
	// Portable quantises what other runtimes need to compute in integers, too:
	// biases, and both operands of an Add that follows a product.
	Portable bool
	Progress func(stage string, done, total int)
	// Settle, where it is set, has the elements of a weight that was rounded lie elsewhere than in memory.
	Settle func(t *tensor.Tensor)
}

// Result says what was quantised.
type Result struct {
	Type     string `json:"type"`
	Products int    `json:"products"`
	// Divergence of the outputs from those of the model in floating point, on some
	// of the samples, as calib.Divergence measures it; 0 where it was not measured.
	Divergence float64 `json:"divergence,omitempty"`
	// Error is the root of the mean squared error of weights that were rounded to steps, as a share of their own.
	Error float64 `json:"error,omitempty"`
	Kept  []Kept  `json:"kept,omitempty"`
}

// LeftOut is why a product is kept that Only leaves out.
const LeftOut = "not among the weights that are to be in integers"

// Kept is a product that stayed in floating point.
type Kept struct {
	Node   string `json:"node"`
	Weight string `json:"weight"`
	Why    string `json:"why"`
}

// product is a node that can be quantised.
type product struct {
	*ir.Node
	axis int // of the weight, along which its rows lie
	rows int

	depthwise bool // each row meets a channel of its own
}

// productOf returns n where it can become a product of 8-bit integers: a Conv of one
// group, or a depthwise one where that is asked for, over at most op.MaxQuantAxes axes, a MatMul or a Gemm of f32 with a constant matrix on
// the right and at most a constant bias for each row.
func productOf(n *ir.Node, depthwise bool) (p product, ok bool) {
	o, ok := n.Op.(op.Quantisable)
	if !ok || o.Integers().Quantised() {
		return p, false
	}
	x, w := n.Inputs[0], n.Inputs[1]
	if x.IsConst() || x.Type.DType != tensor.F32 || w.Const == nil || w.Const.DType() != tensor.F32 || !finite(w.Const) {
		return p, false
	}
	return shaped(n, w.Const, depthwise)
}

// shaped is productOf for a weight w of any element type.
func shaped(n *ir.Node, w *tensor.Tensor, depthwise bool) (p product, ok bool) {
	p.Node = n
	if o, gemm := n.Op.(*op.Gemm); gemm && (o.Alpha != 1 || o.Beta != 1 && n.Input(2) != nil || o.TransA) {
		return p, false
	}
	if p.axis, p.rows, ok = matrixOf(n.Op, w); !ok {
		if p.depthwise = depthwise && isDepthwise(n.Op, w); !p.depthwise {
			return p, false
		}
		p.rows = w.Dim(0)
	}
	return p, p.bias() == nil || p.bias().Const != nil && p.bias().Const.DType() == tensor.F32 && vector(p.bias().Type, p.rows)
}

// matrixOf returns the axis of w along which the rows lie of a weight that o, a Conv of one group, a
// MatMul or a Gemm, multiplies, and their number; ok is false where devices have no kernel of integers for that.
func matrixOf(o ir.Op, w *tensor.Tensor) (axis, rows int, ok bool) {
	rank := 2
	switch o := o.(type) {
	case *op.Conv:
		if rank = max(w.Rank(), 3); o.Group != 1 || rank > 2+op.MaxQuantAxes {
			return 0, 0, false
		}
	case *op.MatMul:
		axis = 1
	case *op.Gemm:
		if !o.TransB {
			axis = 1
		}
	default:
		return 0, 0, false
	}
	if w.Rank() != rank || w.Len() == 0 {
		return 0, 0, false
	}
	rows = w.Dim(axis)
	return axis, rows, w.Len()/rows <= op.MaxQuantK
}

// mostStride is the largest stride of a depthwise convolution for which integers are faster than floats.
const mostStride = 4

// isDepthwise reports whether o is a Conv with a window of w for each channel, over so few axes that devices may have a kernel of integers for it.
func isDepthwise(o ir.Op, w *tensor.Tensor) bool {
	c, ok := o.(*op.Conv)
	return ok && w.Rank() > 2 && w.Rank() <= 2+op.MaxQuantAxes && c.Group == w.Dim(0) && w.Dim(1) == 1 && w.Len() > 0 && w.Len()/w.Dim(0) <= op.MaxQuantK &&
		!slices.ContainsFunc(c.Strides, func(s int) bool { return s > mostStride })
}

// bias is the input that is added for each row.
func (p product) bias() *ir.Value { return p.Input(2) }

// vector reports whether t is a vector of n elements, up to leading ones.
func vector(t ir.Type, n int) bool {
	for i, d := range t.Dims {
		want := ir.Size(1)
		if i == len(t.Dims)-1 {
			want = ir.Size(n)
		}
		if d != want {
			return false
		}
	}
	return t.Rank() > 0
}

// finite reports whether a weight has neither infinities nor NaN.
func finite(w *tensor.Tensor) bool {
	return !slices.ContainsFunc(w.F32s(), func(v float32) bool { return v-v != 0 })
}

// weight returns a finite weight in integers and the scale of each of its rows.
func weight(w *tensor.Tensor, axis int) (q *tensor.Tensor, scales []float32) {
	inner := 1
	for _, d := range w.Shape()[axis+1:] {
		inner *= d
	}
	rows := w.Dim(axis)
	most := make([]float64, rows)
	for i, v := range w.F32s() {
		r := i / inner % rows
		most[r] = max(most[r], math.Abs(float64(v)))
	}
	scales = make([]float32, rows)
	for r, m := range most {
		if scales[r] = float32(m / 127); !(scales[r] > 1e-30) {
			scales[r] = 0x1p-16 // a row of zeros, whose bias is written in steps of it
		}
	}
	q = tensor.New(tensor.I8, w.Shape()...)
	data := tensor.Data[int8](q)
	for i, v := range w.F32s() {
		data[i] = int8(min(max(math.RoundToEven(float64(v)/float64(scales[i/inner%rows])), -127), 127))
	}
	return q, scales
}

// Run quantises g as the options say.
func Run(ctx context.Context, g *ir.Graph, o Options) (*Result, error) {
	switch {
	case o.Rounds():
		return Round(ctx, g, o)
	case o.Integers():
		return Insert(ctx, g, o)
	}
	return Half(g, o.Type, o)
}

// Rounds reports whether weights alone become codes of a few bits.
func (o *Options) Rounds() bool { return o != nil && o.Steps.Bits != 0 }

// Integers reports whether products of 8-bit integers are asked for.
func (o *Options) Integers() bool { return o != nil && o.Type == tensor.I8 && !o.Rounds() }

// Insert quantises the products of g: it puts QuantizeLinear and DequantizeLinear
// behind the values that they read and before their weights, with ranges that the
// observer sees. What the products compute stays written in floating point. Products
// that KeepFloat names are left out, and unless All is set those that make most of
// the error (see sensitive).
func Insert(ctx context.Context, g *ir.Graph, o Options) (*Result, error) {
	r := &Result{Type: tensor.I8.String()}
	names, err := o.chosen(g, r)
	if err != nil || len(names) == 0 {
		return r, err
	}
	s := o.inserter(g, names)
	o.report(rangesStage, 0, 1)
	seen, err := s.observe(ctx)
	if err != nil {
		return nil, err
	}
	if !o.All {
		if names, err = o.sensitive(ctx, g, names, seen, r); err != nil {
			return nil, err
		}
	}
	r.Products = len(names)
	return r, o.inserter(g, names).insert(seen)
}

// chosen names the products of g that can be quantised and that the user does not
// keep. Of the others r takes note, unless they are quantised already.
func (o *Options) chosen(g *ir.Graph, r *Result) ([]string, error) {
	kept, err := o.kept(g)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, u := range g.WeightUses() {
		n := u.Node
		if q, ok := n.Op.(op.Quantisable); ok && q.Integers().Quantised() {
			continue
		}
		_, product := productOf(n, o.Depthwise)
		product = product && n.Graph() == g
		if glob, ok := kept[n]; ok {
			r.Kept = append(r.Kept, Kept{n.Name, u.Value.Name, "kept by " + glob.String()})
		} else if product && u.Input == 1 && o.Only != nil && !o.Only[u.Value.Name] {
			r.Kept = append(r.Kept, Kept{n.Name, u.Value.Name, LeftOut})
		} else if product && u.Input == 1 {
			names = append(names, n.Name)
		} else {
			r.Kept = append(r.Kept, Kept{n.Name, u.Value.Name, unfit(g, u, o.Depthwise)})
		}
	}
	return names, nil
}

// unfit says why the product of a weight cannot be one of 8-bit integers.
func unfit(g *ir.Graph, u ir.WeightUse, depthwise bool) string {
	_, ok := u.Node.Op.(op.Quantisable)
	_, isConv := u.Node.Op.(*op.Conv)
	w := u.Value.Const
	switch {
	case u.Node.Graph() != g:
		return "it lies in a subgraph"
	case !ok:
		return u.Node.Op.Kind() + " does not compute in integers"
	case u.Input != 1:
		return "the weight is on the left"
	case isConv && w != nil && w.Rank() > 2+op.MaxQuantAxes:
		return fmt.Sprintf("a convolution over %d axes has no kernel of integers", w.Rank()-2)
	case u.Groups != 1 && !(depthwise && w != nil && isDepthwise(u.Node.Op, w)):
		return fmt.Sprintf("a product of %d groups", u.Groups)
	case w == nil || w.DType() != tensor.F32:
		return fmt.Sprintf("the weight is %v, want f32", u.Value.Type.DType)
	case !finite(w):
		return "an element of the weight is not finite"
	}
	return "its operands have no form in integers"
}

// kept returns the nodes that the user keeps, with a glob that says so. A glob that
// matches no weight is an error.
func (o *Options) kept(g *ir.Graph) (map[*ir.Node]prune.Glob, error) {
	matched := make([]bool, len(o.KeepFloat))
	kept := map[*ir.Node]prune.Glob{}
	for _, u := range g.WeightUses() {
		for i, glob := range o.KeepFloat {
			if glob.Match(u.Node.Name) || glob.Match(u.Value.Name) {
				matched[i], kept[u.Node] = true, glob
			}
		}
	}
	if i := slices.Index(matched, false); i >= 0 {
		return nil, option.Errorf("%v %q: no layer or weight has a name like this", option.KeepFloat, o.KeepFloat[i])
	}
	return kept, nil
}

// inserter quantises some products of a graph.
type inserter struct {
	*Options
	g        *ir.Graph
	products map[*ir.Node]product
	order    []product
	group    map[*ir.Value]*ir.Value // a forest: values that share their parameters
}

func (o *Options) inserter(g *ir.Graph, products []string) *inserter {
	s := &inserter{Options: o, g: g, products: map[*ir.Node]product{}, group: map[*ir.Value]*ir.Value{}}
	named := map[string]bool{}
	for _, name := range products {
		named[name] = true
	}
	for _, n := range g.Nodes {
		if p, ok := productOf(n, o.Depthwise); ok && named[n.Name] {
			s.products[n] = p
			s.order = append(s.order, p)
		}
	}
	return s
}

// insert changes the graph.
func (s *inserter) insert(seen *observed) error {
	s.correct(seen)
	if err := s.activations(s.values(), seen.ranges); err != nil {
		return err
	}
	if err := s.weights(seen); err != nil {
		return err
	}
	return s.g.Infer()
}

// find returns the value that stands for the group of v.
func (s *inserter) find(v *ir.Value) *ir.Value {
	for s.group[v] != nil {
		v = s.group[v]
	}
	return v
}

// values lists the f32 values to quantise, and joins those that transparent nodes
// connect: what products read, what leads there, and with Portable the operands of
// an Add behind a product.
func (s *inserter) values() []*ir.Value {
	var out []*ir.Value
	seen := map[*ir.Value]bool{}
	var add func(v *ir.Value)
	add = func(v *ir.Value) {
		if seen[v] || v.IsConst() || v.Type.DType != tensor.F32 || v.Graph() != s.g {
			return
		}
		seen[v] = true
		out = append(out, v)
		for _, u := range data(v.Def) {
			add(u)
			if a, b := s.find(u), s.find(v); a != b && seen[u] {
				s.group[a] = b
			}
		}
	}
	for _, p := range s.order {
		add(p.Inputs[0])
	}
	if s.Portable {
		for _, n := range s.g.Nodes {
			if n.Op.Kind() == "Add" && slices.ContainsFunc(n.Inputs, func(v *ir.Value) bool { return s.behindProduct(v) }) {
				for _, v := range n.Inputs {
					add(v)
				}
			}
		}
	}
	return out
}

// behindProduct reports whether a product defines v.
func (s *inserter) behindProduct(v *ir.Value) bool {
	_, ok := s.products[v.Def]
	return v.Def != nil && ok
}

// takes reports whether a reader of a quantised value computes in integers.
func (s *inserter) takes(u ir.Use) bool {
	if _, ok := s.products[u.Node]; ok {
		return u.Index == 0 || u.Index == op.Residual
	}
	if s.Portable && u.Node.Op.Kind() == "Add" {
		return true
	}
	return false
}

// activations quantises the values. A group of
// values is quantised where its values are made if only products and nodes that are
// transparent to quantisation read it; else only for the products.
func (s *inserter) activations(values []*ir.Value, ranges map[string]calib.Range) error {
	union := map[*ir.Value]calib.Range{}
	whole := map[*ir.Value]bool{}
	in := map[*ir.Value]bool{}
	for _, v := range values {
		in[v] = true
		r, seen := s.find(v), ranges[v.Name]
		u, ok := union[r]
		if !ok {
			u, whole[r] = seen, true
		}
		union[r] = calib.Range{Lo: min(u.Lo, seen.Lo), Hi: max(u.Hi, seen.Hi)}
	}
	for _, v := range values {
		if v.IsOutput() {
			whole[s.find(v)] = false
		}
		for _, u := range v.Uses() {
			if d := data(u.Node); d != nil && in[u.Node.Outputs[0]] && u.Index < len(d) {
				continue
			}
			if !s.takes(u) {
				whole[s.find(v)] = false
			}
		}
	}
	for _, v := range values {
		r := s.find(v)
		p := paramsOf(union[r])
		if !whole[r] {
			p = paramsOf(ranges[v.Name])
		}
		uses := slices.Clone(v.Uses())
		read := slices.ContainsFunc(uses, s.takes)
		if !whole[r] && !read {
			continue
		}
		d, err := p.pair(v)
		if err != nil {
			return err
		}
		for _, u := range uses {
			_, product := s.products[u.Node]
			if whole[r] || product && u.Index == 0 || s.Portable && u.Node.Op.Kind() == "Add" {
				u.Node.SetInput(u.Index, d)
			}
		}
	}
	return nil
}

// shared reports whether a weight is read by others than products with its rows
// along the axis.
func (s *inserter) shared(w *ir.Value, axis int) bool {
	return w.IsOutput() || slices.ContainsFunc(w.Uses(), func(u ir.Use) bool {
		p, ok := s.products[u.Node]
		return !ok || u.Index != 1 || p.axis != axis
	})
}

// weights quantises the weights. Products that read the same one still do.
func (s *inserter) weights(seen *observed) error {
	type use struct {
		*ir.Value
		axis int
	}
	uses := map[use][]product{}
	var order []use
	for _, p := range s.order {
		u := use{p.Inputs[1], p.axis}
		if uses[u] == nil {
			order = append(order, u)
		}
		uses[u] = append(uses[u], p)
	}
	for _, u := range order {
		w := seen.weight(uses[u][0])
		q, scales := w.ints, w.scales
		ints := u.Value // keeps its name, by which users know the weight, unless others read it
		shared := s.shared(u.Value, u.axis)
		if shared {
			ints = s.g.NewConst(u.Name+".i8", q)
		}
		o := newOp("DequantizeLinear")
		if err := ir.SetAttr(o, "axis", u.axis); err != nil {
			return err
		}
		n := s.g.InsertBefore(s.g.Nodes[0], u.Name+".dequantize", o, []*ir.Value{
			ints,
			s.g.NewConst(u.Name+".scale", tensor.From(scales, len(scales))),
			s.g.NewConst(u.Name+".zero", tensor.New(tensor.I8, len(scales))),
		}, u.Name+".f32")
		for _, p := range uses[u] {
			p.SetInput(1, n.Outputs[0])
			if s.Portable {
				if err := s.bias(p, scales); err != nil {
					return err
				}
			}
		}
		if !shared {
			ints.SetConst(q)
		}
	}
	return nil
}

// bias makes the bias of p i32, whose scale is that of the sums.
func (s *inserter) bias(p product, scales []float32) error {
	b := p.bias()
	if b == nil {
		return nil
	}
	xs, _ := quantizer(p.Inputs[0].Def, "DequantizeLinear")
	ints, bs := make([]int32, p.rows), make([]float32, p.rows)
	for i, v := range b.Const.F32s() {
		bs[i] = xs.scale * scales[i]
		r := math.RoundToEven(float64(v) / float64(bs[i]))
		if !normal(bs[i]) || !(math.Abs(r) <= math.MaxInt32) {
			return nil // too large for the scale, or that is none: stays in floating point
		}
		ints[i] = int32(r)
	}
	o := newOp("DequantizeLinear")
	if err := ir.SetAttr(o, "axis", 0); err != nil {
		return err
	}
	n := s.g.InsertBefore(p.Node, p.Name+".bias.dequantize", o, []*ir.Value{
		s.g.NewConst(p.Name+".bias.i32", tensor.From(ints, p.rows)),
		s.g.NewConst(p.Name+".bias.scale", tensor.From(bs, p.rows)),
	}, p.Name+".bias.f32")
	p.SetInput(2, n.Outputs[0])
	return nil
}
