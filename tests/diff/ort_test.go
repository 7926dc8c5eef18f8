package diff

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/tests/archs"
)

// TestDecisions has, for each row, a graph that its sentence is about, and ones with the
// same operator that it says nothing of.
func TestDecisions(t *testing.T) {
	one := tensor.From([]float32{1}, 1)
	value := func(got, want *tensor.Tensor) *Finding {
		return &Finding{Class: "value", Output: "y", got: got, want: want}
	}
	large := value(tensor.From([]float32{7}, 1), one)
	small := value(tensor.From([]float32{1e-8}, 1), tensor.From([]float32{0}, 1))
	shape := &Finding{Class: "shape", Output: "y"}
	u8 := func(got, want uint8) *Finding {
		return value(tensor.From([]uint8{got}, 1), tensor.From([]uint8{want}, 1))
	}
	const quantised = `graph "g"(%x: u8[1,1], %w: u8[1,1], %f: f32[1,1]) {
  %s: f32[] = const {0.5}
  %o: f32[] = const {0.0625}
  %b: f32[1] = const {0.1}
  %d: f32[1,1] = DequantizeLinear "d" (%x, %s)
  %e: f32[1,1] = DequantizeLinear "e" (%w, %s)
  NODE
  %r: f32[1,1] = Relu "r" (%p)
  %y: u8[1,1] = QuantizeLinear "q" (%r, %s)
  return %y
}`
	around := func(node string) string { return strings.Replace(quantised, "NODE", node, 1) }
	const loop = `graph "g"(%x: f32[2]) {
  %n: i64[] = const {N}
  %z: f32[2], %y: f32[?,2] = Loop "loop" (%n, _, %x) {body = graph "b"(%i: i64[], %c: bool[], %v: f32[2]) {
    %w: f32[2] = Neg "neg" (%v)
    return %c, %w, %w
  }}
  return %y
}`
	const scan = `graph "g"(%h: f32[2], %x: f32[3,2]) {
  %z: f32[2], %y: f32[3,2] = Scan "scan" (%h, %x) {body = graph "b"(%s: f32[2], %e: f32[2]) {
    %a: f32[2] = Add "add" (%s, %e)
    %i: f32[2] = Identity "id" (%e)
    return %a, OUT
  }, num_scan_inputs = 1}
  return %y
}`
	node := func(inputs, consts, node string) string {
		return `graph "g"(` + inputs + `) {` + consts + "\n" + `%y: f32[*] = ` + node + "\nreturn %y\n}"
	}
	in := map[string]*tensor.Tensor{}
	for _, c := range []struct {
		name, text string
		f          *Finding
		kind       string // empty where nothing decides
	}{
		{"a padded maximum", node("%x: f32[1,1,2,2]", `%p: i64[8] = const {0,0,1,1,0,0,1,1} %q: f32[1,1,4,4] = Pad "p" (%x, %p)`, `MaxPool "m" (%q) {kernel_shape = [2, 2]}`), large, "MaxPool"},
		{"a maximum of what is padded by its edge", node("%x: f32[1,1,2,2]", `%p: i64[8] = const {0,0,1,1,0,0,1,1} %q: f32[1,1,4,4] = Pad "p" (%x, %p) {mode = "edge"}`, `MaxPool "m" (%q) {kernel_shape = [2, 2]}`), large, ""},
		{"a maximum of what is cut", node("%x: f32[1,1,4,4]", `%p: i64[8] = const {0,0,-1,-1,0,0,-1,-1} %q: f32[1,1,2,2] = Pad "p" (%x, %p)`, `MaxPool "m" (%q) {kernel_shape = [2, 2]}`), large, ""},
		{"a scalar's places", node("%x: f32[]", "", `NonZero "m" (%x)`), shape, "NonZero"},
		{"a vector's places", node("%x: f32[2]", "", `NonZero "m" (%x)`), shape, ""},
		{"a scan that stacks what it reads", strings.Replace(scan, "OUT", "%i", 1), large, "Scan"},
		{"a scan that stacks what it computes", strings.Replace(scan, "OUT", "%a", 1), large, ""},
		{"a Gemm of no columns", node("%x: f32[2,0], %w: f32[0,3], %c: f32[3]", "", `Gemm "m" (%x, %w, %c) {beta = 0.5}`), large, "Gemm"},
		{"a Gemm of no columns, transposed", node("%x: f32[0,2], %w: f32[0,3], %c: f32[3]", "", `Gemm "m" (%x, %w, %c) {beta = 0.5, transA = 1}`), large, "Gemm"},
		{"a Gemm without C", node("%x: f32[2,0], %w: f32[0,3]", "", `Gemm "m" (%x, %w)`), large, ""},
		{"a Gemm of columns", node("%x: f32[2,1], %w: f32[1,3], %c: f32[3]", "", `Gemm "m" (%x, %w, %c)`), large, ""},
		{"a sum of nothing", node("%x: f32[0,2]", `%a: i64[1] = const {0}`, `ReduceSum "m" (%x, %a)`), shape, "Reduce"},
		{"a sum of something", node("%x: f32[1,2]", `%a: i64[1] = const {0}`, `ReduceSum "m" (%x, %a)`), shape, ""},
		{"a bias that is rounded", around(`%p: f32[1,1] = Gemm "m" (%d, %e, %b)`), u8(4, 5), "Gemm"},
		{"a bias and two steps", around(`%p: f32[1,1] = Gemm "m" (%d, %e, %b)`), u8(4, 6), ""},
		{"a bias that is rounded by more", strings.Replace(around(`%p: f32[1,1] = Gemm "m" (%d, %e, %b)`), "(%r, %s)", "(%r, %o)", 1), u8(4, 6), "Gemm"},
		{"a bias that is rounded by less", strings.Replace(around(`%p: f32[1,1] = Gemm "m" (%d, %e, %b)`), "(%r, %s)", "(%r, %o)", 1), u8(4, 8), ""},
		{"no bias", around(`%p: f32[1,1] = Gemm "m" (%d, %e)`), u8(4, 5), ""},
		{"an operand of floats", around(`%p: f32[1,1] = Gemm "m" (%f, %e, %b)`), u8(4, 5), ""},
		{"a sum that is rounded", around(`%p: f32[1,1] = Add "m" (%d, %e)`), u8(4, 5), "Add"},
		{"a sum of one that was quantised", around(`%p: f32[1,1] = Add "m" (%d, %f)`), u8(4, 5), ""},
		{"a product that is rounded", around(`%p: f32[1,1] = MatMul "m" (%d, %e)`), u8(4, 5), "MatMul"},
		{"a product two steps away", around(`%p: f32[1,1] = MatMul "m" (%d, %e)`), u8(4, 2), ""},
		{"what is quantised again", node("%x: u8[1]", `%s: f32[] = const {0.5} %d: f32[1] = DequantizeLinear "d" (%x, %s)`, `QuantizeLinear "m" (%d, %s)`), u8(4, 6), "QuantizeLinear"},
		{"what is quantised", node("%x: f32[1]", `%s: f32[] = const {0.5}`, `QuantizeLinear "m" (%x, %s)`), u8(4, 5), ""},
		{"Gelu for f64", node("%x: f64[1]", "", `Gelu "m" (%x) {approximate = "tanh"}`), small, "Gelu"},
		{"Gelu for f64, wrong", node("%x: f64[1]", "", `Gelu "m" (%x) {approximate = "tanh"}`), large, ""},
		{"Gelu for f32", node("%x: f32[1]", "", `Gelu "m" (%x) {approximate = "tanh"}`), small, ""},
		{"what hardly differs from its mean", node("", `%x: f32[1,2,1,2] = const {1, 2, 3, 3}`, `MeanVarianceNormalization "m" (%x)`), large, "MeanVarianceNormalization"},
		{"what differs from its mean", node("", `%x: f32[1,2,1,2] = const {1, 2, 3, 4}`, `MeanVarianceNormalization "m" (%x)`), large, ""},
		{"what hardly differs along other axes", node("", `%x: f32[2,2,1,1] = const {1, 2, 1, 2}`, `MeanVarianceNormalization "m" (%x) {axes = [1]}`), large, ""},
		{"a loop of no rounds", strings.Replace(loop, "N}", "0}", 1), shape, "Loop"},
		{"a loop of no rounds with other elements", strings.Replace(loop, "N}", "0}", 1), large, ""},
		{"a loop of a round", strings.Replace(loop, "N}", "1}", 1), shape, ""},
		{"a cubic border", node("%x: f32[1,1,2,2], %g: f32[1,1,1,2]", "", `GridSample "m" (%x, %g) {mode = "cubic", padding_mode = "border"}`), large, "GridSample"},
		{"a linear border", node("%x: f32[1,1,2,2], %g: f32[1,1,1,2]", "", `GridSample "m" (%x, %g) {mode = "linear", padding_mode = "border"}`), large, ""},
		{"a cubic reflection", node("%x: f32[1,1,2,2], %g: f32[1,1,1,2]", "", `GridSample "m" (%x, %g) {mode = "cubic", padding_mode = "reflection"}`), large, ""},
		{"the end of a window", node("", `%n: i64[] = const {4}`, `BlackmanWindow "m" (%n)`), small, "BlackmanWindow"},
		{"the middle of a window", node("", `%n: i64[] = const {4}`, `BlackmanWindow "m" (%n)`), large, ""},
		{"a weight of integers", node("%x: f32[1,1]", `%w: u8[1,1] = const {3} %s: f32[] = const {0.5} %d: f32[1,1] = DequantizeLinear "d" (%w, %s)`, `MatMul "m" (%x, %d)`), large, "MatMul"},
		{"a weight of integers in Gemm", node("%x: f32[1,1]", `%w: u8[1,1] = const {3} %s: f32[] = const {0.5} %d: f32[1,1] = DequantizeLinear "d" (%w, %s)`, `Gemm "m" (%x, %d)`), large, "Gemm"},
		{"an operand of integers", node("%x: f32[1,1], %w: u8[1,1]", `%s: f32[] = const {0.5} %d: f32[1,1] = DequantizeLinear "d" (%w, %s)`, `MatMul "m" (%x, %d)`), large, ""},
		{"a grid of one row", node("%x: f32[1,2,3]", `%n: i64[4] = const {1, 1, 1, 4}`, `AffineGrid "m" (%x, %n) {align_corners = 1}`), large, "AffineGrid"},
		{"a grid of rows of a batch of one", node("%x: f32[1,2,3]", `%n: i64[4] = const {1, 1, 3, 4}`, `AffineGrid "m" (%x, %n) {align_corners = 1}`), large, ""},
		{"a grid that is not aligned", node("%x: f32[1,2,3]", `%n: i64[4] = const {1, 1, 1, 4}`, `AffineGrid "m" (%x, %n)`), large, ""},
		{"a window of one", node("", `%n: i64[] = const {1}`, `HannWindow "m" (%n) {periodic = 0}`), large, "HannWindow"},
		{"a window of two", node("", `%n: i64[] = const {2}`, `HannWindow "m" (%n) {periodic = 0}`), large, ""},
		{"a periodic window of one", node("", `%n: i64[] = const {1}`, `HammingWindow "m" (%n)`), large, ""},
		{"around twice", node("%x: f32[1,2]", `%p: i64[4] = const {0, 1, 0, 3}`, `Pad "m" (%x, %p) {mode = "wrap"}`), large, "Pad"},
		{"around once", node("%x: f32[1,2]", `%p: i64[4] = const {0, 1, 1, 2}`, `Pad "m" (%x, %p) {mode = "wrap"}`), large, ""},
		{"an edge repeated", node("%x: f32[1,2]", `%p: i64[4] = const {0, 1, 0, 3}`, `Pad "m" (%x, %p) {mode = "edge"}`), large, ""},
		{"integers of no columns", node("%x: u8[2,0], %w: u8[0,3]", `%s: f32[] = const {0.5} %z: u8[] = const {3}`, `QLinearMatMul "m" (%x, %s, %z, %w, %s, %z, %s, %z)`), large, "QLinearMatMul"},
		{"whole integers of no columns", node("%x: u8[2,0], %w: u8[0,3]", "", `MatMulInteger "m" (%x, %w)`), large, "MatMulInteger"},
		{"whole integers of no rows", node("%x: u8[0,2], %w: u8[2,3]", "", `MatMulInteger "m" (%x, %w)`), large, ""},
		{"the place of nothing", node("%x: f32[2,0]", "", `ArgMax "m" (%x)`), shape, "ArgMax"},
		{"the place of something", node("%x: f32[2,1]", "", `ArgMin "m" (%x)`), shape, ""},
		{"the end of a sigmoid", node("%x: f32[1]", "", `Sigmoid "m" (%x)`), small, "Sigmoid"},
		{"a sigmoid", node("%x: f32[1]", "", `Sigmoid "m" (%x)`), large, ""},
		{"integers of no rows", node("%x: u8[0,2], %w: u8[2,3]", `%s: f32[] = const {0.5} %z: u8[] = const {3}`, `QLinearMatMul "m" (%x, %s, %z, %w, %s, %z, %s, %z)`), large, ""},
	} {
		g, err := ir.Parse(c.text, op.Registry)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := g.Infer(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var file bytes.Buffer
		if err := onnx.Export(&file, g, "spc", ""); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		clear(in)
		for _, v := range g.Inputs {
			s, _ := v.Type.Shape()
			in[v.Name] = tensor.New(v.Type.DType, s...)
		}
		decided := Decided(&Case{Model: file.Bytes(), Runs: []Run{{Inputs: in}}}, c.f)
		if kind, _, _ := strings.Cut(decided, ":"); kind != c.kind {
			t.Errorf("%s: decided by %q, want %q", c.name, decided, c.kind)
		}
	}
}

// TestDecisionsOfContribOperators is TestDecisions of operators that an import expands.
func TestDecisionsOfContribOperators(t *testing.T) {
	value := func(got, want *tensor.Tensor) *Finding {
		return &Finding{Class: "value", Output: "y", got: got, want: want}
	}
	large := value(tensor.From([]float32{7}, 1), tensor.From([]float32{1}, 1))
	small := value(tensor.From([]float32{1.001}, 1), tensor.From([]float32{1}, 1))
	byOne := value(tensor.From([]uint8{4}, 1), tensor.From([]uint8{5}, 1))
	byTwo := value(tensor.From([]uint8{3}, 1), tensor.From([]uint8{5}, 1))
	for _, c := range []struct {
		operator string
		attrs    archs.Attrs
		inputs   int
		outputs  int
		f        *Finding
		decided  bool
	}{
		{"MatMulNBits", archs.Attrs{"bits": 2}, 5, 1, large, true},
		{"MatMulNBits", archs.Attrs{"bits": 4}, 5, 1, large, false},
		{"MatMulNBits", archs.Attrs{"bits": 2}, 4, 1, large, false},
		{"GroupQueryAttention", nil, 7, 1, large, true},
		{"GroupQueryAttention", nil, 7, 3, large, false},
		{"GroupQueryAttention", nil, 3, 1, large, false},
		{"QLinearMul", nil, 8, 1, byOne, true},
		{"QLinearMul", nil, 8, 1, byTwo, false},
		{"QLinearAdd", nil, 8, 1, byOne, true},
		{"QLinearAdd", nil, 8, 1, byTwo, false},
		{"DynamicQuantizeLSTM", nil, 8, 1, small, true},
		{"DynamicQuantizeLSTM", nil, 8, 1, large, false},
	} {
		b := archs.New("contrib", 21)
		var in []string
		for i := range c.inputs {
			in = append(in, b.Input(fmt.Sprintf("x%d", i), archs.Float32, 1))
		}
		b.Output("y", b.Microsoft(c.operator, c.outputs, c.attrs, in...)[0], archs.Float32, 1)
		m, err := b.Model(1)
		if err != nil {
			t.Fatalf("%s: %v", c.operator, err)
		}
		decided := Decided(&Case{Model: m.Bytes(), Runs: []Run{{Inputs: map[string]*tensor.Tensor{}}}}, c.f)
		if strings.HasPrefix(decided, "com.microsoft:"+c.operator+": ") != c.decided || (decided != "") != c.decided {
			t.Errorf("%s %v of %d inputs and %d outputs: decided by %q, want %v", c.operator, c.attrs, c.inputs, c.outputs, decided, c.decided)
		}
	}
}
