package unfold_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/prune"
	"spc/passes/unfold"
	"spc/tests/graphtest"
)

// twoConvs are two convolutions with what lies between them.
func twoConvs(weights, between, second, reads string) string {
	return `graph "g"(%x: f32[1,1,2,2]) {` + weights + between + second + `
  %y: f32[1,1,2,1] = Conv "y" (` + reads + `, %v)
  return %y }`
}

const (
	wideFirst  = "\n  %w: f32[2,1,1,2] = const {1.0, 2.0, 3.0, 4.0}"
	wideSecond = "\n  %v: f32[1,2,1,1] = const {5.0, 6.0}"
)

// inner is batch normalisation between the two.
var inner = strings.NewReplacer("%y", "%n", `"y"`, `"n"`).Replace(norm)

// lost is a model of which channel 0 of the first convolution goes, between which and the second one the file has what is given, and which is folded into it.
func lost(t *testing.T, between, folded, bias string) (unfold.Graphs, *ir.Graph) {
	t.Helper()
	g := unfold.Graphs{
		File: graphtest.Parse(t, twoConvs(wideFirst, between, wideSecond, "%n")),
		Before: graphtest.Parse(t, twoConvs("\n  %w: f32[2,1,1,2] = const {"+folded+"}\n  %b: f32[2] = const {"+bias+"}",
			"\n  %c: f32[1,2,2,1] = Conv \"c\" (%x, %w, %b)", wideSecond, "%c")),
		Holds: func(*tensor.Tensor) bool { return true },
		Cuts:  []prune.Cut{{Name: "w", Axis: 0, Keep: []int{1}}, {Name: "b", Axis: 0, Keep: []int{1}}, {Name: "v", Axis: 1, Keep: []int{1}}},
	}
	_, weights, _ := strings.Cut(folded, ", ")
	_, weights, _ = strings.Cut(weights, ", ")
	_, shift, _ := strings.Cut(bias, ", ")
	g.After = graphtest.Parse(t, twoConvs("\n  %w: f32[1,1,1,2] = const {"+weights+"}\n  %b: f32[1] = const {"+shift+"}",
		"\n  %c: f32[1,1,2,1] = Conv \"c\" (%x, %w, %b)", "\n  %v: f32[1,1,1,1] = const {6.0}", "%c"))
	return g, g.File
}

// What is folded into a product loses the channels that it loses, each constant in the shape that it has.
func TestWhatGoesWithChannels(t *testing.T) {
	for name, c := range map[string]struct {
		between, folded, bias string
		want                  map[string][]float32
	}{
		"batch normalisation": {inner, "2.0, 4.0, -12.0, -16.0", "-5.0, 3.0",
			map[string][]float32{"w": {3, 4}, "scale": {-4}, "bias": {1}, "mean": {0.5}, "var": {1}, "v": {6}}},
		"factors and summands": {`
  %less: f32[2,1,1] = const {1.0, 1.5}
  %factor: f32[1,2,1,1] = const {2.0, 4.0}
  %half: f32[] = const {0.5}
  %c: f32[1,2,2,1] = Conv "c" (%x, %w)
  %d: f32[1,2,2,1] = Sub "d" (%c, %less)
  %e: f32[1,2,2,1] = Mul "e" (%d, %factor)
  %n: f32[1,2,2,1] = Mul "n" (%e, %half)`, "1.0, 2.0, 6.0, 8.0", "-1.0, -3.0",
			map[string][]float32{"w": {3, 4}, "less": {1.5}, "factor": {4}, "v": {6}}},
	} {
		t.Run(name, func(t *testing.T) {
			g, file := lost(t, c.between, c.folded, c.bias)
			r, err := unfold.Find(g)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Tensors) != len(c.want) || len(r.Biases)+len(r.Constants)+len(r.Attrs)+len(r.Aliases)+len(r.Notes) > 0 || !r.Changes() {
				t.Errorf("%+v", r)
			}
			for name, want := range c.want {
				v := named(t, file, name)
				now := r.Tensors[v.Const]
				if now == nil || !slices.Equal(now.F32s(), want) || now.Rank() != v.Const.Rank() {
					t.Errorf("%s becomes %v, want %v", name, now, want)
				}
			}
			shapes, err := r.Apply(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := shapes["n"]; len(d) != 4 || d[1] != ir.Size(1) || shapes["y"] != nil {
				t.Errorf("shapes %v", shapes)
			}
			graphtest.Same(t, g.After, file, 1e-6)
		})
	}
}

// A constant of channels that the file gives another shape gets it by a list of its own, or an attribute where operators had such.
func TestSizesOfConstantsThatLoseChannels(t *testing.T) {
	for _, opset := range []int{4, 13} {
		g, file := lost(t, `
  %one: f32[2] = const {1.0, 1.5}
  %to: i64[3] = const {2, 1, 1}
  %less: f32[2,1,1] = Reshape "less" (%one, %to)
  %c: f32[1,2,2,1] = Conv "c" (%x, %w)
  %n: f32[1,2,2,1] = Sub "n" (%c, %less)`, "1.0, 2.0, 3.0, 4.0", "-1.0, -1.5")
		g.Opset = opset
		r, err := unfold.Find(g)
		if err != nil {
			t.Fatal(err)
		}
		if now := r.Tensors[named(t, file, "one").Const]; now == nil || !slices.Equal(now.F32s(), []float32{1.5}) {
			t.Errorf("opset %d: %v", opset, now)
		}
		if opset < 5 {
			if len(r.Constants) != 0 || len(r.Attrs) != 1 || r.Attrs[0].Output != "less" || r.Attrs[0].Name != "shape" || !slices.Equal(r.Attrs[0].Value.([]int), []int{1, 1, 1}) {
				t.Errorf("opset %d: %+v", opset, r)
			}
			continue
		}
		if len(r.Constants) != 1 {
			t.Fatalf("%+v", r)
		}
		if c := r.Constants[0]; c.Kind != "Reshape" || c.Output != "less" || c.Index != 1 || !slices.Equal(c.Tensor.Ints(), []int{1, 1, 1}) {
			t.Errorf("%+v", c)
		}
		if _, err := r.Apply(file); err != nil {
			t.Fatal(err)
		}
		graphtest.Same(t, g.After, file, 1e-6)
	}
}

// A constant that loses channels, and is read elsewhere, is refused.
func TestChannelsOfConstantsThatOthersRead(t *testing.T) {
	between := inner + "\n  %m: f32[2] = Neg \"m\" (%scale)"
	g, _ := lost(t, between, "2.0, 4.0, -12.0, -16.0", "-5.0, 3.0")
	const want = "scale is read elsewhere, too"
	if r, err := unfold.Find(g); r != nil || !errors.Is(err, ir.ErrUnsupported) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// Graphs that differ in a constant by more than rounding, in what a node reads, or in a node are not the same.
func TestSame(t *testing.T) {
	const text = `graph "g"(%x: f32[1,2]) {
  %t: f32[2,2] = const {1.0, 3.0, 2.0, 4.0}
  %a: f32[1,2] = MatMul "a" (%x, %t)
  %r: f32[1,2] = Relu "r" (%a)
  %y: f32[1,2] = Add "y" (%a, %r)
  return %y }`
	for change, want := range map[string]string{
		"1.0, 3.0|1.0000001, 3.0": "",
		"1.0, 3.0|1.001, 3.0":     "input 1 of a (MatMul) is another in the file",
		"(%a, %r)|(%r, %a)":       "input 0 of y (Add) is another in the file",
		"Relu|Tanh":               "the file has no form of r (Relu)",
	} {
		from, to, _ := strings.Cut(change, "|")
		err := unfold.Same(graphtest.Parse(t, strings.Replace(text, from, to, 1)), graphtest.Parse(t, text))
		if want == "" && err != nil || want != "" && (!errors.Is(err, ir.ErrUnsupported) || err.Error() != want) {
			t.Errorf("%s: %v, want %q", change, err, want)
		}
	}
}

// What reads a sum that is gone reads its skip.
func TestSumsThatAreGone(t *testing.T) {
	text := func(sum, in string) string {
		return `graph "g"(%x: f32[1,2]) {
  %t: f32[2,2] = const {1.0, 3.0, 2.0, 4.0}
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %a: f32[1,2] = MatMul "a" (%x, %t)` + sum + `
  %y: f32[1,2] = MatMul "y" (` + in + `, %w)
  return %y }`
	}
	whole := text("\n  %s: f32[1,2] = Add \"s\" (%a, %x)", "%s")
	file := graphtest.Parse(t, whole)
	g := unfold.Graphs{File: file, Before: graphtest.Parse(t, whole), After: graphtest.Parse(t, text("", "%a")), Holds: func(*tensor.Tensor) bool { return true }}
	r, err := unfold.Find(g)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Aliases) != 1 || r.Aliases["s"] != "a" || len(r.Tensors) > 0 {
		t.Errorf("%+v", r)
	}
	if _, err := r.Apply(file); err != nil {
		t.Fatal(err)
	}
	graphtest.Same(t, g.After, file, 0)
}
