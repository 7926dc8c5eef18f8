package diff

import (
	"context"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"spc/backend/ref"
	"spc/ir/onnx/onnxpb"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Importing makes other operators of those that ONNX Runtime adds, so that the interpreter, which evaluates a graph as it
// was imported, says nothing of whether it made the right ones. What they are to compute is here once more, as
// onnxruntime's docs/ContribOperators.md specifies it, in float64 and without a part of what imports them: each node is
// compared with that by itself, from the inputs that it has in the graph. What compiling does to what was made of them the
// interpreter judges, as in all graphs. Operators without a specification here are of ONNX under another name, or round
// where their specification says nothing; the outputs of ONNX Runtime in tests/contrib are their oracle.

// specification is what an operator computes: its outputs, of which those that are nil, or left out, are not compared.
type specification func(s *specified) []*array

// specified is a node as a specification reads it.
type specified struct {
	*onnxpb.NodeProto
	given []*tensor.Tensor // nil where absent
}

func (s *specified) kind() string { return op.KindOf(s.Domain, s.OpType) }

// in is an input, nil where it is absent.
func (s *specified) in(i int) *array {
	if i >= len(s.given) || s.given[i] == nil {
		return nil
	}
	return arrayOf(s.given[i])
}

// number is an input of one number, or another where it is absent.
func (s *specified) number(i int, absent float64) float64 {
	if x := s.in(i); x != nil {
		return x.x[0]
	}
	return absent
}

func (s *specified) attribute(name string) *onnxpb.AttributeProto {
	for _, a := range s.Attribute {
		if a.Name == name {
			return a
		}
	}
	return nil
}

func (s *specified) int(name string, absent int) int {
	if a := s.attribute(name); a != nil {
		return int(a.I)
	}
	return absent
}

func (s *specified) is(name string) bool { return s.int(name, 0) == 1 }

func (s *specified) float(name string, absent float64) float64 {
	if a := s.attribute(name); a != nil {
		return float64(a.F)
	}
	return absent
}

func (s *specified) ints(name string, absent ...int) []int {
	a := s.attribute(name)
	if a == nil {
		return absent
	}
	out := make([]int, len(a.Ints))
	for i, v := range a.Ints {
		out[i] = int(v)
	}
	return out
}

// hasSpecified reports whether a node of the graph itself has a specification.
func (c *Case) hasSpecified() bool {
	p := new(onnxpb.ModelProto)
	return proto.Unmarshal(c.Model, p) == nil && len(specifiedNodes(p)) > 0
}

func specifiedNodes(p *onnxpb.ModelProto) (nodes []*onnxpb.NodeProto) {
	for _, n := range p.Graph.Node {
		if Rules[op.KindOf(n.Domain, n.OpType)].Spec != nil {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// compareSpecified compares the nodes that have a specification with it, as the interpreter evaluates them.
func (c *Case) compareSpecified(v Variant) *Finding {
	p := new(onnxpb.ModelProto)
	if proto.Unmarshal(c.Model, p) != nil {
		return nil
	}
	nodes := specifiedNodes(p)
	constant := map[string]bool{}
	for _, w := range p.Graph.Initializer {
		constant[w.Name] = true
	}
	read := map[string]bool{}
	for _, n := range p.Graph.Node {
		if n.OpType == "Constant" {
			constant[n.Output[0]] = true
		}
	}
	for _, n := range nodes {
		for _, name := range n.Input {
			read[name] = true
		}
	}
	delete(read, "")
	p.Graph.Output = nil
	for _, name := range slices.Sorted(maps.Keys(read)) {
		p.Graph.Output = append(p.Graph.Output, &onnxpb.ValueInfoProto{Name: name})
	}
	for i, r := range c.Runs[:min(2, len(c.Runs))] {
		if i > 0 && sameShapes(r.Inputs, c.Runs[0].Inputs) {
			break // it says nothing more
		}
		values, err := plainValues(p, r.Inputs)
		if err != nil {
			continue // as for other variants
		}
		for _, n := range nodes {
			if f := c.compareNode(n, values, constant); f != nil {
				f.Variant, f.Run = v, i
				return f
			}
		}
	}
	return nil
}

func sameShapes(a, b map[string]*tensor.Tensor) bool {
	return maps.EqualFunc(a, b, func(x, y *tensor.Tensor) bool {
		return x.DType().IsList() || slices.Equal(x.Shape(), y.Shape())
	})
}

// plainValues are the outputs of a model, without noise.
func plainValues(p *onnxpb.ModelProto, in map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
	p = proto.CloneOf(p)
	tidy(p.Graph)
	b, err := proto.Marshal(p)
	if err != nil {
		return nil, err
	}
	given := map[string]*tensor.Tensor{}
	for _, v := range p.Graph.Input {
		given[v.Name] = in[v.Name]
	}
	g, list, err := imported(b, given)
	if err != nil {
		return nil, err
	}
	got, err := ref.Run(context.Background(), g, list)
	if err != nil {
		return nil, err
	}
	out := map[string]*tensor.Tensor{}
	for i, t := range got {
		out[g.OutputName(i)] = t
	}
	return out, nil
}

// compareNode compares a node alone, so that noise is of nothing else.
func (c *Case) compareNode(n *onnxpb.NodeProto, values map[string]*tensor.Tensor, constant map[string]bool) *Finding {
	g := &Gen{seed: c.Seed ^ c.Index}
	captured, s := map[string]*val{}, &specified{NodeProto: n}
	for _, name := range n.Input {
		s.given = append(s.given, values[name])
		if name != "" {
			captured[name] = &val{name: name, v: plain(values[name]), constant: constant[name]}
		}
	}
	got, err := g.evaluate(n, captured)
	if err != nil {
		return nil
	}
	want := Rules[s.kind()].Spec(s)
	for i, name := range slices.DeleteFunc(slices.Clone(n.Output), func(name string) bool { return name == "" }) {
		at := slices.Index(n.Output, name)
		if at >= len(want) || want[at] == nil || !got[i].stable() {
			continue
		}
		if class, detail := got[i].differs(want[at].tensor(got[i].base.DType())); class != "" {
			return &Finding{Class: class, Output: name, Detail: s.kind() + " is not what it is specified to be: the specification gives " + detail}
		}
	}
	return nil
}

// Activations, as specifications write them.

func specifiedGelu(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) }

func specifiedTanhGelu(x float64) float64 {
	return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

func specifiedSigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func specifiedRelu(x float64) float64 { return max(x, 0) }

func leaky(alpha float64) func(float64) float64 {
	return func(x float64) float64 {
		if x < 0 {
			return alpha * x
		}
		return x
	}
}

// activation is that which a fused operator names.
func activation(name string, alpha float64) func(float64) float64 {
	switch name {
	case "Relu":
		return specifiedRelu
	case "Tanh":
		return math.Tanh
	case "Sigmoid":
		return specifiedSigmoid
	case "LeakyRelu":
		return leaky(alpha)
	}
	return func(x float64) float64 { return x }
}

func gelusSpec(s *specified) []*array {
	x := s.in(0)
	switch s.OpType {
	case "FastGelu":
		return []*array{x.plus(s.in(1)).each(specifiedTanhGelu)}
	case "QuickGelu":
		alpha := s.float("alpha", float64(float32(1.702)))
		return []*array{x.each(func(x float64) float64 { return x * specifiedSigmoid(alpha*x) })}
	}
	return []*array{x.plus(s.in(1)).each(specifiedGelu)}
}

// fusedAxes is the order in which the axes of an operand of FusedMatMul are multiplied: the first, where batches are transposed,
// goes behind them, and then the last two are swapped.
func fusedAxes(rank int, trans, batch bool) []int {
	perm := allAxes(rank)
	if batch {
		copy(perm, perm[1:rank-1])
		perm[rank-2] = 0
	}
	if trans {
		slices.Reverse(perm[rank-2:])
	}
	return perm
}

func fusedMatMulSpec(s *specified) []*array {
	a, b := s.in(0), s.in(1)
	a = a.permuted(fusedAxes(a.rank(), s.is("transA"), s.is("transBatchA"))...)
	b = b.permuted(fusedAxes(b.rank(), s.is("transB"), s.is("transBatchB"))...)
	return []*array{a.times(b).scaled(s.float("alpha", 1))}
}

// oriented are A and B of a product of matrices, as transA and transB tell them.
func (s *specified) oriented(a, b *array) (*array, *array) {
	if s.is("transA") {
		a = a.transposed()
	}
	if s.is("transB") {
		b = b.transposed()
	}
	return a, b
}

func fusedGemmSpec(s *specified) []*array {
	a, b := s.oriented(s.in(0), s.in(1))
	y := a.times(b).scaled(s.float("alpha", 1))
	if c := s.in(2); c != nil {
		y = y.plus(c.scaled(s.float("beta", 1)))
	}
	return []*array{y.each(activation(string(s.attribute("activation").GetS()), s.float("activation_alpha", 0)))}
}

// fusedConvSpec is of images alone.
func fusedConvSpec(s *specified) []*array {
	x, w := s.in(0), s.in(1)
	pads, strides, groups := s.ints("pads", 0, 0, 0, 0), s.ints("strides", 1, 1), s.int("group", 1)
	n, c, m, per := x.shape[0], x.shape[1], w.shape[0], w.shape[1]
	var out [2]int
	for i := range out {
		out[i] = (x.shape[2+i]+pads[i]+pads[2+i]-w.shape[2+i])/strides[i] + 1
	}
	y := newArray(n, m, out[0], out[1])
	for at := range y.x {
		col, row, f, b := at%out[1], at/out[1]%out[0], at/(out[0]*out[1])%m, at/(out[0]*out[1]*m)
		for k := range per * w.shape[2] * w.shape[3] {
			i, j, e := k%w.shape[3], k/w.shape[3]%w.shape[2], k/(w.shape[3]*w.shape[2])
			r, q := row*strides[0]+j-pads[0], col*strides[1]+i-pads[1]
			if r >= 0 && r < x.shape[2] && q >= 0 && q < x.shape[3] {
				y.x[at] += x.x[((b*c+f/(m/groups)*per+e)*x.shape[2]+r)*x.shape[3]+q] * w.x[f*per*w.shape[2]*w.shape[3]+k]
			}
		}
	}
	if b := s.in(2); b != nil {
		y = y.plus(b.reshaped(m, 1, 1))
	}
	alpha := 0.0
	if p := s.attribute("activation_params"); p != nil {
		alpha = float64(p.Floats[0])
	}
	return []*array{y.plus(s.in(3)).each(activation(string(s.attribute("activation").GetS()), alpha))}
}

func skipNormSpec(s *specified) []*array {
	x := s.in(0).plus(s.in(1)).plus(s.in(4))
	y, inverse, mean := x.normalised(s.float("epsilon", 1e-12), true)
	return []*array{y.with(s.in(2), times).plus(s.in(3)), mean, inverse, x}
}

func times(x, y float64) float64 { return x * y }

func rmsNormSpec(s *specified) []*array {
	y, inverse, _ := s.in(0).normalised(s.float("epsilon", 1e-5), false)
	return []*array{y.with(s.in(1), times), inverse}
}

func skipRMSNormSpec(s *specified) []*array {
	x := s.in(0).plus(s.in(1)).plus(s.in(3))
	y, inverse, _ := x.normalised(s.float("epsilon", 1e-5), false)
	return []*array{y.with(s.in(2), times), nil, inverse, x}
}

func embedNormSpec(s *specified) []*array {
	ids, places := s.in(0), s.in(8)
	if places == nil {
		places = newArray(1, ids.shape[1])
		for i := range places.x {
			places.x[i] = float64(i)
		}
	}
	return s.embedded(s.in(2).rows(ids).plus(s.in(3).rows(places)), s.in(4), s.in(5), s.in(6))
}

// embedded is the rest of an embedding: segments, a norm, and the ones of the mask.
func (s *specified) embedded(sum, segments, gamma, beta *array) []*array {
	switch ids := s.in(1); {
	case segments != nil && ids != nil:
		sum = sum.plus(segments.rows(ids))
	case segments != nil:
		sum = sum.plus(segments.part(0, 0, 1).reshaped(segments.shape[1]))
	}
	y, _, _ := sum.normalised(s.float("epsilon", 1e-12), true)
	count := newArray(sum.shape[0])
	if mask := s.in(7); mask != nil {
		for i, v := range mask.x {
			if v == 1 {
				count.x[i/mask.shape[1]]++
			}
		}
	}
	return []*array{y.with(gamma, times).plus(beta), count, sum}
}

func qembedNormSpec(s *specified) []*array {
	float := func(i int) *array { // tables and vectors begin at 2, their scales at 8, and their zero points at 13
		if s.in(i) == nil {
			return nil
		}
		zero := s.number(i+11, 0)
		return s.in(i).each(func(x float64) float64 { return (x - zero) * s.number(i+6, 1) })
	}
	ids := s.in(0)
	order := newArray(1, ids.shape[1])
	for i := range order.x {
		order.x[i] = float64(i)
	}
	return s.embedded(float(2).rows(ids).plus(float(3).rows(order)), float(4), float(5), float(6))[:2]
}

func expandDimsSpec(s *specified) []*array {
	x, at := s.in(0), int(s.number(1, 0))
	if at < 0 {
		at += x.rank() + 1
	}
	return []*array{x.reshaped(slices.Insert(slices.Clone(x.shape), at, 1)...)}
}

func triluSpec(s *specified) []*array {
	x, k := s.in(0), int(s.number(1, 0))
	y, m, n := newArray(x.shape...), x.dim(-2), x.dim(-1)
	for i, v := range x.x {
		if row, col := i/n%m, i%n; s.int("upper", 1) == 1 && col-row >= k || s.int("upper", 1) == 0 && col-row <= k {
			y.x[i] = v
		}
	}
	return []*array{y}
}
