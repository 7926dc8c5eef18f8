package unfold_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/unfold"
	"spc/tests/graphtest"
)

// model is one before and after pruning: file is as it was imported, before what passes made of it, after what pruning made of that.
type model struct{ file, before, after string }

// find looks for what becomes of the file of a model.
func find(t *testing.T, m model) (*ir.Graph, *ir.Graph, *unfold.Result, error) {
	t.Helper()
	file, after := graphtest.Parse(t, m.file), graphtest.Parse(t, m.after)
	r, err := unfold.Find(unfold.Graphs{
		File: file, Before: graphtest.Parse(t, m.before), After: after, Holds: func(*tensor.Tensor) bool { return true },
	})
	return file, after, r, err
}

// named returns a constant of a graph.
func named(t *testing.T, g *ir.Graph, name string) *ir.Value {
	t.Helper()
	for _, v := range g.Constants() {
		if v.Name == name {
			return v
		}
	}
	t.Fatalf("no constant %s", name)
	return nil
}

// conv is a convolution of two channels with what follows it: its weights, and the text between it and the output y.
func conv(weights, rest string) string {
	return `graph "g"(%x: f32[1,1,2,2]) {
  %w: f32[2,1,1,2] = const {` + weights + `}` + rest + `
  return %y }`
}

// norm is a batch normalisation that multiplies channels by 2 and -4, the deviations being 1 and 1, and shifts them by bias - mean*scale.
const norm = `
  %c: f32[1,2,2,1] = Conv "c" (%x, %w)
  %scale: f32[2] = const {2.0, -4.0}
  %bias: f32[2] = const {1.0, 1.0}
  %mean: f32[2] = const {3.0, 0.5}
  %var: f32[2] = const {1.0, 1.0}
  %y: f32[1,2,2,1] = BatchNormalization "y" (%c, %scale, %bias, %mean, %var) {epsilon = 0.0}`

// folded is a convolution into which a batch normalisation was folded.
func folded(weights, bias string) string {
	return `graph "g"(%x: f32[1,1,2,2]) {
  %w: f32[2,1,1,2] = const {` + weights + `}
  %b: f32[2] = const {` + bias + `}
  %c: f32[1,2,2,1] = Conv "c" (%x, %w, %b)
  return %c as "y" }`
}

// models are such of which the file is found, with the constants that it has then, computed by hand.
var models = map[string]struct {
	model
	want map[string][]float32
}{
	"a weight as it is": {model{
		conv("1.0, 2.0, 3.0, 4.0", "\n  %y: f32[1,2,2,1] = Conv \"y\" (%x, %w)"),
		conv("1.0, 2.0, 3.0, 4.0", "\n  %y: f32[1,2,2,1] = Conv \"y\" (%x, %w)"),
		conv("0.0, 2.5, 3.0, 0.0", "\n  %y: f32[1,2,2,1] = Conv \"y\" (%x, %w)"),
	}, map[string][]float32{"w": {0, 2.5, 3, 0}}},
	"nothing changed": {model{conv("1.0, 2.0, 3.0, 4.0", norm), folded("2.0, 4.0, -12.0, -16.0", "-5.0, 3.0"), folded("2.0, 4.0, -12.0, -16.0", "-5.0, 3.0")},
		nil},
	"batch normalisation": {model{conv("1.0, 2.0, 3.0, 4.0", norm), folded("2.0, 4.0, -12.0, -16.0", "-5.0, 3.0"), folded("2.0, 0.0, -10.0, 0.0", "-5.0, 3.0")},
		map[string][]float32{"w": {1, 0, 2.5, 0}}},
	"the bias of batch normalisation": {model{conv("1.0, 2.0, 3.0, 4.0", norm), folded("2.0, 4.0, -12.0, -16.0", "-5.0, 3.0"), folded("0.0, 4.0, -12.0, -16.0", "-4.5, 3.0")},
		map[string][]float32{"w": {0, 2, 3, 4}, "bias": {1.5, 1}}},
	"what is subtracted in front of a factor": {model{conv("1.0, 2.0, 3.0, 4.0", `
  %less: f32[2,1,1] = const {1.0, 1.0}
  %factor: f32[1,2,1,1] = const {2.0, 4.0}
  %c: f32[1,2,2,1] = Conv "c" (%x, %w)
  %d: f32[1,2,2,1] = Sub "d" (%c, %less)
  %y: f32[1,2,2,1] = Mul "y" (%d, %factor)`), folded("2.0, 4.0, 12.0, 16.0", "-2.0, -4.0"), folded("2.0, 4.0, 12.0, 0.0", "-1.0, -5.0")},
		map[string][]float32{"w": {1, 2, 3, 0}, "less": {0.5, 1.25}}},
	"a transpose": {model{
		`graph "g"(%x: f32[1,2]) {
  %w: f32[3,2] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %t: f32[2,3] = Transpose "t" (%w) {perm = [1, 0]}
  %y: f32[1,3] = MatMul "y" (%x, %t)
  return %y }`,
		`graph "g"(%x: f32[1,2]) {
  %t: f32[2,3] = const {1.0, 3.0, 5.0, 2.0, 4.0, 6.0}
  %y: f32[1,3] = MatMul "y" (%x, %t)
  return %y }`,
		`graph "g"(%x: f32[1,2]) {
  %t: f32[2,3] = const {1.0, 0.0, 7.0, 0.0, 4.0, 0.0}
  %y: f32[1,3] = MatMul "y" (%x, %t)
  return %y }`,
	}, map[string][]float32{"w": {1, 0, 0, 4, 7, 0}}},
	"parts of a weight": {model{
		`graph "g"(%x: f32[1,2]) {
  %a: f32[2,1] = const {1.0, 2.0}
  %b: f32[2,2] = const {3.0, 4.0, 5.0, 6.0}
  %t: f32[2,3] = Concat "t" (%a, %b) {axis = 1}
  %y: f32[1,3] = MatMul "y" (%x, %t)
  return %y }`,
		`graph "g"(%x: f32[1,2]) {
  %t: f32[2,3] = const {1.0, 3.0, 4.0, 2.0, 5.0, 6.0}
  %y: f32[1,3] = MatMul "y" (%x, %t)
  return %y }`,
		`graph "g"(%x: f32[1,2]) {
  %t: f32[2,3] = const {0.0, 3.0, 4.0, 2.0, 0.0, 6.5}
  %y: f32[1,3] = MatMul "y" (%x, %t)
  return %y }`,
	}, map[string][]float32{"a": {0, 2}, "b": {3, 4, 0, 6.5}}},
	"a bias behind a product": {model{
		`graph "g"(%x: f32[1,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %b: f32[2] = const {1.0, -1.0}
  %m: f32[1,2] = MatMul "m" (%x, %w)
  %y: f32[1,2] = Add "y" (%b, %m)
  return %y }`,
		`graph "g"(%x: f32[1,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %b: f32[2] = const {1.0, -1.0}
  %m: f32[1,2] = MatMul "m" (%x, %w)
  %y: f32[1,2] = Add "y" (%b, %m)
  return %y }`,
		`graph "g"(%x: f32[1,2]) {
  %w: f32[2,2] = const {1.0, 0.0, 0.0, 4.0}
  %b: f32[2] = const {1.5, -1.0}
  %m: f32[1,2] = MatMul "m" (%x, %w)
  %y: f32[1,2] = Add "y" (%b, %m)
  return %y }`,
	}, map[string][]float32{"w": {1, 0, 0, 4}, "b": {1.5, -1}}},
}

// With the constants that are found the file computes what pruning made of the model.
func TestWhatBecomesOfTheFile(t *testing.T) {
	for name, m := range models {
		t.Run(name, func(t *testing.T) {
			file, after, r, err := find(t, m.model)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Tensors) != len(m.want) || len(r.Biases) != 0 || len(r.Notes) != 0 {
				t.Errorf("%d tensors, want %d; biases %v, notes %q", len(r.Tensors), len(m.want), r.Biases, r.Notes)
			}
			for name, want := range m.want {
				v := named(t, file, name)
				if now := r.Tensors[v.Const]; now == nil || !slices.Equal(now.F32s(), want) || !slices.Equal(now.Shape(), v.Const.Shape()) {
					t.Errorf("%s becomes %v, want %v", name, now, want)
				}
			}
			for _, v := range file.Constants() {
				if now := r.Tensors[v.Const]; now != nil {
					v.Const = now
				}
			}
			graphtest.Same(t, after, file, 1e-6)
		})
	}
}

// A convolution whose bias nothing of the file takes up gets one, which users are told of.
func TestAConvolutionGetsABias(t *testing.T) {
	text := conv("1.0, 2.0, 3.0, 4.0", `
  %half: f32[1,2,1,1] = const {0.5, 2.0}
  %c: f32[1,2,2,1] = Conv "c" (%x, %w)
  %y: f32[1,2,2,1] = Mul "y" (%c, %half)`)
	_, _, r, err := find(t, model{text, folded("0.5, 1.0, 6.0, 8.0", "0.0, 0.0"), folded("0.5, 0.0, 6.0, 8.0", "0.25, 1.0")})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Biases) != 1 || len(r.Notes) != 1 {
		t.Fatalf("biases %v, notes %q, want one each", r.Biases, r.Notes)
	}
	if b := r.Biases[0]; b.Name != "c.bias" || b.Kind != "Conv" || b.Output != "c" || !slices.Equal(b.Tensor.F32s(), []float32{0.5, 0.5}) {
		t.Errorf("%+v, %v", b, b.Tensor.F32s())
	}
}

// What is multiplied by zero can become zero, and nothing else.
func TestChannelsThatAreMultipliedByZero(t *testing.T) {
	text := conv("1.0, 2.0, 3.0, 4.0", strings.Replace(norm, "2.0, -4.0", "0.0, -4.0", 1))
	file, _, r, err := find(t, model{text, folded("0.0, 0.0, -12.0, -16.0", "1.0, 3.0"), folded("0.0, 0.0, -12.0, 0.0", "1.0, 3.0")})
	if err != nil {
		t.Fatal(err)
	}
	if now := r.Tensors[named(t, file, "w").Const]; now == nil || !slices.Equal(now.F32s(), []float32{0, 0, 3, 0}) {
		t.Errorf("the weight becomes %v", now)
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "multiplies channel 0 of w by zero") {
		t.Errorf("notes %q", r.Notes)
	}
	_, _, _, err = find(t, model{text, folded("0.0, 0.0, -12.0, -16.0", "1.0, 3.0"), folded("0.5, 0.0, -12.0, -16.0", "1.0, 3.0")})
	if want := "multiplies channel 0 of w by zero"; !errors.Is(err, ir.ErrUnsupported) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// two are products of one weight, or of two.
func two(first, second string) string {
	return `graph "g"(%x: f32[1,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %t: f32[2,2] = Transpose "t" (%w) {perm = [1, 0]}
  %a: f32[1,2] = MatMul "a" (%x, ` + first + `)
  %y: f32[1,2] = MatMul "y" (%a, ` + second + `)
  return %y }`
}

// stored are products of constants.
func stored(first, second string) string {
	return `graph "g"(%x: f32[1,2]) {
  %t: f32[2,2] = const {` + first + `}
  %w: f32[2,2] = const {` + second + `}
  %a: f32[1,2] = MatMul "a" (%x, %t)
  %y: f32[1,2] = MatMul "y" (%a, %w)
  return %y }`
}

// product is one of a constant v, computed in the file as the text says.
func product(text string) string {
	return `graph "g"(%x: f32[1,2]) {` + text + `
  %y: f32[1,2] = MatMul "y" (%x, %v)
  return %y }`
}

// refused are models of which the file is not found, by what is said of them.
var refused = map[string]model{
	"is read elsewhere, too": {two("%t", "%w"), stored("1.0, 3.0, 2.0, 4.0", "1.0, 2.0, 3.0, 4.0"), stored("1.0, 0.0, 2.0, 4.0", "1.0, 2.0, 3.0, 4.0")},
	"the file has no v": {`graph "g"(%x: f32[1,2]) {
  %u: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %y: f32[1,2] = MatMul "y" (%x, %u)
  return %y }`,
		product("\n  %v: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}"), product("\n  %v: f32[2,2] = const {1.0, 0.0, 3.0, 4.0}")},
	"v (Neg) computes v": {product("\n  %w: f32[2,2] = const {-1.0, -2.0, -3.0, -4.0}\n  %v: f32[2,2] = Neg \"v\" (%w)"),
		product("\n  %v: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}"), product("\n  %v: f32[2,2] = const {1.0, 0.0, 3.0, 4.0}")},
	"v has an element of the file twice": {product("\n  %to: i64[2] = const {2, 2}\n  %w: f32[1,2] = const {1.0, 2.0}\n  %v: f32[2,2] = Expand \"v\" (%w, %to)"),
		product("\n  %v: f32[2,2] = const {1.0, 2.0, 1.0, 2.0}"), product("\n  %v: f32[2,2] = const {1.0, 0.0, 1.0, 2.0}")},
	"the file does not hold v as it is multiplied": {product("\n  %v: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}"),
		product("\n  %v: f32[2,2] = const {1.0, 2.5, 3.0, 4.0}"), product("\n  %v: f32[2,2] = const {1.0, 0.0, 3.0, 4.0}")},
	"pruning makes y (MatMul) another node": {product("\n  %v: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}"), product("\n  %v: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}"),
		strings.ReplaceAll(product("\n  %v: f32[2,2] = const {1.0, 0.0, 3.0, 4.0}"), "%y", "%z")},
	"pruning makes output y another value": {stored("1.0, 3.0, 2.0, 4.0", "1.0, 0.0, 0.0, 1.0"), stored("1.0, 3.0, 2.0, 4.0", "1.0, 0.0, 0.0, 1.0"), `graph "g"(%x: f32[1,2]) {
  %t: f32[2,2] = const {1.0, 3.0, 2.0, 4.0}
  %a: f32[1,2] = MatMul "a" (%x, %t)
  return %a as "y" }`},
	"y (MatMul) another input": {stored("1.0, 3.0, 2.0, 4.0", "1.0, 0.0, 0.0, 1.0"), stored("1.0, 3.0, 2.0, 4.0", "1.0, 0.0, 0.0, 1.0"),
		strings.Replace(stored("1.0, 3.0, 2.0, 4.0", "1.0, 0.0, 0.0, 1.0"), "(%a, %w)", "(%x, %w)", 1)},
	"has another bias in the file": {conv("1.0, 2.0, 3.0, 4.0", norm), folded("2.0, 4.0, -12.0, -16.0", "-5.5, 3.0"), folded("2.0, 4.0, -12.0, -16.0", "-4.0, 3.0")},
	"no constant that is the bias of y (MatMul)": {
		`graph "g"(%x: f32[1,2]) {
  %v: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %y: f32[1,2] = MatMul "y" (%x, %v)
  return %y }`,
		`graph "g"(%x: f32[1,2]) {
  %v: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %y: f32[1,2] = MatMul "y" (%x, %v)
  return %y }`,
		`graph "g"(%x: f32[1,2]) {
  %v: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %b: f32[2] = const {1.0, 2.0}
  %y: f32[1,2] = MatMul "y" (%x, %v, %b)
  return %y }`},
}

// What the file has no constant for is refused in a line.
func TestRefusedModels(t *testing.T) {
	for want, m := range refused {
		_, _, r, err := find(t, m)
		if r != nil || !errors.Is(err, ir.ErrUnsupported) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Tensors that the file does not hold as they are, as where a format packs them, cannot be changed.
func TestTensorsThatTheFileDoesNotHold(t *testing.T) {
	text := func(w string) string { return product("\n  %v: f32[2,2] = const {" + w + "}") }
	g := unfold.Graphs{
		File: graphtest.Parse(t, text("1.0, 2.0, 3.0, 4.0")), Before: graphtest.Parse(t, text("1.0, 2.0, 3.0, 4.0")), After: graphtest.Parse(t, text("1.0, 0.0, 3.0, 4.0")),
		Holds: func(*tensor.Tensor) bool { return false },
	}
	if _, err := unfold.Find(g); !errors.Is(err, ir.ErrUnsupported) || !strings.Contains(err.Error(), "does not hold v as a tensor") {
		t.Error(err)
	}
}
