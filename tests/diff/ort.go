package diff

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"spc/ir"
	"spc/ir/onnx/onnxpb"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/tests/bench"
)

// Peer is an ONNX Runtime with which the interpreter is compared.
type Peer struct {
	ort    *bench.ORT
	worker *bench.Worker
	dir    string
}

// FindPeer finds ONNX Runtime where npm installed it.
func FindPeer(folder string) (*Peer, error) {
	dir, err := os.MkdirTemp("", "spc-diff")
	if err != nil {
		return nil, err
	}
	ort, err := bench.FindORT(folder, dir)
	if err != nil {
		return nil, err
	}
	return &Peer{ort: ort, dir: dir}, nil
}

// Decision is a class of differences from ONNX Runtime, and what the specification of ONNX
// says of it.
type Decision struct {
	Kind string // the operator; Reduce for all that begin so
	When func(s *site) bool
	Why  string
}

// Decisions lists them; each holds for what its sentence is about, and nothing else of its
// operator. What is said of ONNX Runtime is of the version that the Makefile installs.
var Decisions = []Decision{
	{Kind: "MaxPool", When: padded0, Why: "the elements that Pad 25 adds are its constant, and MaxPool 22 takes them for elements like others; ONNX Runtime makes them the window's own padding, which never is the maximum"},
	{Kind: "NonZero", When: func(s *site) bool { return s.rank(0) == 0 }, Why: "NonZero 13 gives a row for each dimension of its input, so that a scalar, unlike in numpy, gives the shape [0, N]"},
	{Kind: "Scan", When: passedOn, Why: "Scan 25 stacks what the body gives in each round; ONNX Runtime gives other elements where that is an input of the body itself"},
	{Kind: "Gemm", When: func(s *site) bool { return s.has(2) && s.dim(0, 1-s.number("transA", 0)) == 0 }, Why: "Gemm 13 adds beta times C whatever the product is, which of no columns is zero; ONNX Runtime leaves beta out there"},
	{Kind: "MatMulInteger", When: func(s *site) bool { return s.dim(0, -1) == 0 }, Why: "as for QLinearMatMul"},
	{Kind: "ArgMax", When: empty, Why: "as for Reduce: the axis has one element, or is gone"},
	{Kind: "ArgMin", When: empty, Why: "as for ArgMax"},
	{Kind: "Sigmoid", When: func(s *site) bool { return s.f.near(1e-7) }, Why: "Sigmoid 13 is 1 / (1 + exp(-x)), which is not zero; ONNX Runtime has a quotient of polynomials, which is below about -18"},
	{Kind: "Reduce", When: empty, Why: "an axis that is reduced has one element, or is gone, whatever the other axes have, and nothing reduces to the neutral element (ReduceProd 18, ReduceSum 13); ONNX Runtime leaves it as it is where the input has no elements"},
	{Kind: "Conv", When: func(s *site) bool { return s.has(2) && quantisedAround(s) }, Why: "Conv 22 between DequantizeLinear 21 and QuantizeLinear 21 is one of floats with its bias as it is; ONNX Runtime makes them one of integers, for which it rounds the bias"},
	{Kind: "Gemm", When: func(s *site) bool { return s.has(2) && quantisedAround(s) }, Why: "as for Conv"},
	{Kind: "Add", When: quantisedAround, Why: "as for Conv: a sum of floats, which is not rounded before QuantizeLinear is"},
	{Kind: "Gelu", When: func(s *site) bool { return s.f.near(1e-6) && s.is(0, tensor.F64) }, Why: "Gelu 20 is of the precision of its type; ONNX Runtime has it for f64 from less exact constants"},
	{Kind: "MeanVarianceNormalization", When: flat, Why: "MeanVarianceNormalization 13 divides by the deviation plus 1e-9, so that what has next to none shows how the mean was rounded"},
	{Kind: "MatMul", When: quantisedAround, Why: "as for Conv"},
	{Kind: "Loop", When: noRounds, Why: "Loop 24 says nothing of the further dimensions of what it stacks where there is no round; they are those that inference knows, and ONNX Runtime has none"},
	{Kind: "GridSample", When: func(s *site) bool {
		return s.text("padding_mode", "zeros") == "border" && s.text("mode", "linear") == "cubic"
	}, Why: "GridSample 22 with padding border takes the value at the border for a location beyond it; ONNX Runtime interpolates there, in mode cubic, from the border's neighbours"},
	{Kind: "BlackmanWindow", When: func(s *site) bool { return s.f.near(1e-6) }, Why: "BlackmanWindow 17 is a sum of cosines, which at its ends is zero but for rounding"},
	{Kind: "MatMul", When: dequantisedWeight, Why: "MatMul 13 behind DequantizeLinear 21 is a product of floats; ONNX Runtime rounds its other operand, too"},
	{Kind: "Gemm", When: dequantisedWeight, Why: "as for MatMul"},
	{Kind: microsoft + "MatMulNBits", When: func(s *site) bool { return s.number("bits", 4) == 2 && s.has(4) }, Why: "MatMulNBits takes the scale of group g_idx[k] for column k, whatever its bits are; ONNX Runtime gives another product for 2 bits"},
	{Kind: microsoft + "GroupQueryAttention", When: func(s *site) bool { return s.has(3) && !s.gives(1) }, Why: "GroupQueryAttention gives the same whether present_key and present_value, which are optional, are wanted or not; ONNX Runtime gives other values without them"},
	{Kind: microsoft + "QLinearMul", When: func(s *site) bool { return s.within(1) }, Why: "QLinearMul says nothing of how its product is rounded; it is as by QuantizeLinear 21, half to even before the zero point is added, and in ONNX Runtime after"},
	{Kind: microsoft + "QLinearAdd", When: func(s *site) bool { return s.within(1) }, Why: "as for QLinearMul"},
	{Kind: microsoft + "DynamicQuantizeLSTM", When: func(s *site) bool { return s.f.near(1e-2) }, Why: "DynamicQuantizeLSTM says of no state that it is rounded; ONNX Runtime rounds that of each step to 8 bits"},
	{Kind: "QuantizeLinear", When: func(s *site) bool { return s.madeBy(0, "DequantizeLinear") != nil }, Why: "QuantizeLinear 21 rounds and saturates where it stands; ONNX Runtime makes two one after the other one"},
	{Kind: "AffineGrid", When: func(s *site) bool {
		size := s.ints(1)
		return s.number("align_corners", 0) == 1 && len(size) > 2 && slices.Contains(size[2:], 1)
	}, Why: "AffineGrid 20 divides by the size less one where corners are aligned, which says nothing of an axis of size one; it is at 0, as in PyTorch"},
	{Kind: "HannWindow", When: symmetricOne, Why: "HannWindow 17 divides by the size less one where it is not periodic, which says nothing of size one; its element is 1, as in numpy"},
	{Kind: "HammingWindow", When: symmetricOne, Why: "as for HannWindow"},
	{Kind: "Pad", When: wrapsTwice, Why: "Pad 25 in mode wrap goes on around the input as often as it takes; ONNX Runtime leaves zeros where that is more than once"},
	{Kind: "QLinearMatMul", When: func(s *site) bool { return s.dim(0, -1) == 0 }, Why: "QLinearMatMul 21 is a product, which of no columns is zero and stands at the zero point; ONNX Runtime leaves the output as it finds it"},
	{Kind: "DynamicQuantizeLinear", When: empty, Why: "DynamicQuantizeLinear 11 has no scale for an input without elements, which has no least and no largest"},
}

// site is a node of a graph that was shrunk, and the difference that the graph shows.
type site struct {
	c *Case
	m *onnxpb.ModelProto
	n *onnxpb.NodeProto
	f *Finding
}

func (s *site) has(i int) bool { return i < len(s.n.Input) && s.n.Input[i] != "" }

// gives reports whether output i is wanted.
func (s *site) gives(i int) bool { return i < len(s.n.Output) && s.n.Output[i] != "" }

// input is an input of the node, as the interpreter computes it; nil where it is absent.
func (s *site) input(i int) *tensor.Tensor {
	if !s.has(i) {
		return nil
	}
	return s.value(s.n.Input[i])
}

func (s *site) value(name string) *tensor.Tensor {
	if t := s.c.Runs[0].Inputs[name]; t != nil {
		return t
	}
	p := proto.CloneOf(s.m)
	p.Graph.Output = []*onnxpb.ValueInfoProto{{Name: name}}
	for _, w := range p.Graph.Initializer { // which are no outputs
		if w.Name == name {
			t, err := tensor.FromProto(w, nil)
			if err != nil {
				return nil
			}
			return t
		}
	}
	tidy(p.Graph)
	in := map[string]*tensor.Tensor{}
	for _, v := range p.Graph.Input {
		in[v.Name] = s.c.Runs[0].Inputs[v.Name]
	}
	b, err := proto.Marshal(p)
	if err != nil {
		return nil
	}
	got, err := s.c.oracle(b, in, passes)
	if err != nil || got[name] == nil {
		return nil
	}
	return got[name].base
}

// rank is that of an input, -1 where it is absent.
func (s *site) rank(i int) int {
	if t := s.input(i); t != nil {
		return t.Rank()
	}
	return -1
}

// dim is a dimension of an input, -1 where there is none.
func (s *site) dim(i, axis int) int {
	if r := s.rank(i); axis >= r || axis < -r {
		return -1
	}
	return s.input(i).Dim(axis)
}

func (s *site) is(i int, dt tensor.DType) bool {
	t := s.input(i)
	return t != nil && t.DType() == dt
}

// ints are the elements of an input of integers.
func (s *site) ints(i int) []int {
	if t := s.input(i); t != nil && t.DType().IsInt() {
		return t.Ints()
	}
	return nil
}

func (s *site) attribute(name string) *onnxpb.AttributeProto {
	for _, a := range s.n.Attribute {
		if a.Name == name {
			return a
		}
	}
	return nil
}

func (s *site) number(name string, absent int) int {
	if a := s.attribute(name); a != nil {
		return int(a.I)
	}
	return absent
}

func (s *site) text(name, absent string) string {
	if a := s.attribute(name); a != nil {
		return string(a.S)
	}
	return absent
}

// madeBy is the node of an operator that makes an input, nil where none does.
func (s *site) madeBy(i int, kind string) *onnxpb.NodeProto {
	if !s.has(i) {
		return nil
	}
	for _, o := range s.m.Graph.Node {
		if o.OpType == kind && slices.Contains(o.Output, s.n.Input[i]) {
			return o
		}
	}
	return nil
}

// near reports whether all elements differ by no more than a bound, or so much of them.
func (f *Finding) near(bound float64) bool {
	if f == nil || f.Class != "value" || f.got == nil || !f.got.Fits(f.want) {
		return false
	}
	x, y := f.got.Float64s(), f.want.Float64s()
	for i := range x {
		if !(math.Abs(x[i]-y[i]) <= bound*max(1, math.Abs(y[i]))) {
			return false
		}
	}
	return true
}

// empty tells nodes whose first input has no elements.
func empty(s *site) bool {
	t := s.input(0)
	return t != nil && t.Len() == 0
}

// padded0 tells nodes behind a Pad that adds constants.
func padded0(s *site) bool {
	p := s.madeBy(0, "Pad")
	if p == nil {
		return false
	}
	pad := &site{s.c, s.m, p, s.f}
	return pad.text("mode", "constant") == "constant" && slices.ContainsFunc(pad.ints(1), func(k int) bool { return k > 0 })
}

// passedOn tells a Scan whose body gives an input of its own, to be stacked.
func passedOn(s *site) bool {
	a := s.attribute("body")
	if a == nil || a.G == nil {
		return false
	}
	own, from := map[string]bool{}, map[string]string{}
	for _, v := range a.G.Input {
		own[v.Name] = true
	}
	for _, n := range a.G.Node {
		if n.OpType == "Identity" {
			from[n.Output[0]] = n.Input[0]
		}
	}
	states := len(s.n.Input) - s.number("num_scan_inputs", 0)
	for _, o := range a.G.Output[min(states, len(a.G.Output)):] {
		name := o.Name
		for from[name] != "" {
			name = from[name]
		}
		if own[name] {
			return true
		}
	}
	return false
}

// quantisedAround tells nodes whose operands DequantizeLinear makes and whose output
// QuantizeLinear reads, perhaps behind others, where results differ by a step of that, or,
// of products, by as much more as rounding a bias to the product of both scales makes.
func quantisedAround(s *site) bool {
	a, b := s.madeBy(0, "DequantizeLinear"), s.madeBy(1, "DequantizeLinear")
	if a == nil || b == nil {
		return false
	}
	behind := map[string]bool{s.n.Output[0]: true}
	for _, o := range s.m.Graph.Node {
		if slices.ContainsFunc(o.Input, func(v string) bool { return behind[v] }) {
			if o.OpType == "QuantizeLinear" {
				steps := 1.0
				if s.n.OpType != "Add" {
					steps += s.scale(a) * s.scale(b) / 2 / s.scale(o)
				}
				return s.within(steps)
			}
			for _, v := range o.Output {
				behind[v] = true
			}
		}
	}
	return false
}

// scale is the largest of a QuantizeLinear or a DequantizeLinear, NaN where it is not known.
func (s *site) scale(n *onnxpb.NodeProto) float64 {
	if t := s.value(n.Input[1]); t != nil && t.Len() > 0 {
		return slices.Max(t.Float64s())
	}
	return math.NaN()
}

// within reports whether what differs are integers by so many, or what DequantizeLinear
// makes of such.
func (s *site) within(steps float64) bool {
	if s.f.Class != "value" || s.f.want == nil || !s.f.got.Fits(s.f.want) {
		return false
	}
	if s.f.want.DType().IsFloat() {
		last := &site{s.c, s.m, &onnxpb.NodeProto{Input: []string{s.f.Output}}, s.f}
		o := last.madeBy(0, "DequantizeLinear")
		if o == nil {
			return false
		}
		steps *= s.scale(o)
	}
	x, y := s.f.got.Float64s(), s.f.want.Float64s()
	for i := range x {
		if !(math.Abs(x[i]-y[i]) <= steps) {
			return false
		}
	}
	return true
}

// dequantisedWeight tells products of a weight that DequantizeLinear makes of a constant.
func dequantisedWeight(s *site) bool {
	d := s.madeBy(1, "DequantizeLinear")
	if d == nil || s.madeBy(0, "DequantizeLinear") != nil {
		return false
	}
	codes := &site{s.c, s.m, d, s.f}
	return codes.madeBy(0, "Constant") != nil || slices.ContainsFunc(s.m.Graph.Initializer, func(w *onnxpb.TensorProto) bool { return w.Name == d.Input[0] })
}

// flat tells normalisations of what in places hardly differs from its mean.
func flat(s *site) bool {
	x := s.input(0)
	if x == nil {
		return false
	}
	axes := []int{0, 2, 3}
	if a := s.attribute("axes"); a != nil {
		axes = nil
		for _, k := range a.Ints {
			axes = append(axes, (int(k)+x.Rank())%max(x.Rank(), 1))
		}
	}
	type group struct{ low, high float64 }
	groups := map[string]*group{}
	at := make([]int, x.Rank())
	for _, v := range x.Float64s() {
		key := slices.Clone(at)
		for _, a := range axes {
			if a < len(key) {
				key[a] = 0
			}
		}
		k := fmt.Sprint(key)
		if groups[k] == nil {
			groups[k] = &group{v, v}
		}
		groups[k].low, groups[k].high = min(groups[k].low, v), max(groups[k].high, v)
		for i := len(at) - 1; i >= 0; i-- {
			if at[i]++; at[i] < x.Dim(i) {
				break
			}
			at[i] = 0
		}
	}
	for _, g := range groups {
		if g.high-g.low <= 1e-5*max(math.Abs(g.high), math.Abs(g.low)) {
			return true
		}
	}
	return false
}

// noRounds tells a Loop of no rounds that stacks values, where shapes differ.
func noRounds(s *site) bool {
	a := s.attribute("body")
	if s.f.Class != "shape" || a == nil || len(a.G.GetOutput())-1 <= len(s.n.Input)-2 {
		return false
	}
	if n := s.ints(0); len(n) == 1 && n[0] <= 0 {
		return true
	}
	cond := s.input(1)
	return cond != nil && cond.Len() == 1 && cond.Bytes()[0] == 0
}

// symmetricOne tells windows of size one that are not periodic.
func symmetricOne(s *site) bool {
	return s.number("periodic", 1) == 0 && slices.Equal(s.ints(0), []int{1})
}

// wrapsTwice tells a Pad in mode wrap that adds more than its input has.
func wrapsTwice(s *site) bool {
	x, pads := s.input(0), s.ints(1)
	if s.text("mode", "constant") != "wrap" || x == nil {
		return false
	}
	axes := s.ints(3)
	if axes == nil {
		for i := range x.Rank() {
			axes = append(axes, i)
		}
	}
	if len(pads) != 2*len(axes) {
		return false
	}
	for i, a := range axes {
		if n := s.dim(0, a); pads[i] > n || pads[i+len(axes)] > n {
			return true
		}
	}
	return false
}

// Decided returns what decides a difference that was shrunk, empty where nothing does.
func Decided(c *Case, f *Finding) string {
	m := new(onnxpb.ModelProto)
	if proto.Unmarshal(c.Model, m) != nil {
		return ""
	}
	for _, n := range m.Graph.Node {
		kind := op.KindOf(n.Domain, n.OpType)
		for _, d := range Decisions {
			if (d.Kind == kind || d.Kind == "Reduce" && strings.HasPrefix(kind, d.Kind)) && d.When(&site{c, m, n, f}) {
				return d.Kind + ": " + d.Why
			}
		}
	}
	return ""
}

// Differs is Check for Shrink.
func (p *Peer) Differs(ctx context.Context, c *Case) *Finding {
	f, _ := p.Check(ctx, c)
	return f
}

// Check compares the interpreter with ONNX Runtime on the inputs of the first run. It
// returns an error where that does not take the model.
func (p *Peer) Check(ctx context.Context, c *Case) (*Finding, error) {
	in := c.Runs[0].Inputs
	want, err := c.oracle(c.Model, in, passes)
	if err != nil {
		return nil, err
	}
	if p.worker == nil {
		if p.worker, err = p.ort.Start(ctx, 1); err != nil {
			return nil, err
		}
	}
	path := filepath.Join(p.dir, "model.onnx")
	model, given, err := tensorsOnly(c.Model, in)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(path, model, 0o666); err != nil {
		return nil, err
	}
	got, err := p.worker.Evaluate(path, given)
	if err != nil {
		if strings.Contains(err.Error(), "process ended") {
			p.worker.Close()
			p.worker = nil
		}
		return nil, err
	}
	v := Variant{Name: "ONNX Runtime", Threads: 1}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] == nil && want[name].base.DType().IsList() {
			continue
		}
		if class, detail := want[name].differs(got[name]); class != "" {
			return &Finding{Class: class, Variant: v, Output: name, Detail: fmt.Sprintf("ONNX Runtime gives %s", detail), got: got[name], want: want[name].base}, nil
		}
	}
	return nil, nil
}

// tensorsOnly is a model whose inputs and outputs are tensors, for ONNX Runtime for node has
// no form for others: a sequence is made of its elements, and outputs that are lists are
// left out, with what only they need. It returns the inputs, too.
func tensorsOnly(model []byte, in map[string]*tensor.Tensor) ([]byte, map[string]*tensor.Tensor, error) {
	list := func(v *onnxpb.ValueInfoProto) bool { return v.Type.GetTensorType() == nil }
	m := new(onnxpb.ModelProto)
	if err := proto.Unmarshal(model, m); err != nil || !slices.ContainsFunc(m.Graph.Input, list) && !slices.ContainsFunc(m.Graph.Output, list) {
		return model, in, err
	}
	m.Graph.Output = slices.DeleteFunc(m.Graph.Output, list)
	if len(m.Graph.Output) == 0 {
		return nil, nil, fmt.Errorf("lists alone: %w", ir.ErrUnsupported)
	}
	tidy(m.Graph)
	given := map[string]*tensor.Tensor{}
	inputs := m.Graph.Input
	m.Graph.Input = nil
	for _, v := range inputs {
		t := in[v.Name]
		if !t.DType().IsSequence() {
			m.Graph.Input, given[v.Name] = append(m.Graph.Input, v), t
			continue
		}
		n := &onnxpb.NodeProto{OpType: "SequenceConstruct", Output: []string{v.Name}}
		for i, e := range t.Items() {
			name := fmt.Sprintf("%s/%d", v.Name, i)
			n.Input = append(n.Input, name)
			m.Graph.Input, given[name] = append(m.Graph.Input, infoOf(name, e)), e
		}
		if t.Len() == 0 {
			n.OpType, n.Attribute = "SequenceEmpty", []*onnxpb.AttributeProto{attribute("dtype", t.DType().Elem())}
		}
		m.Graph.Node = slices.Insert(m.Graph.Node, 0, n)
	}
	b, err := proto.Marshal(m)
	return b, given, err
}
