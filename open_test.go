package spc_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"spc"
	"spc/ir/tensor"
	"spc/passes/choose"
	"spc/tests/archs"
	"spc/tests/graphtest"
)

// openModel has products of f32[batch,T,40] with two weights, and one of the mean over T.
func openModel(t *testing.T) []byte {
	t.Helper()
	b := archs.New("open", 17)
	x := b.Input("x", archs.Float32, "batch", "T", 40)
	h := b.Node("Relu", nil, b.Node("MatMul", nil, x, b.Weight("up", archs.LeCun(40), 40, 96)))
	y := b.Node("MatMul", nil, h, b.Weight("down", archs.LeCun(40), 96, 40))
	m := b.Node("ReduceMean", archs.Attrs{"axes": []int{1}, "keepdims": 0}, y)
	b.Output("y", y, archs.Float32, "batch", "T", 40)
	b.Output("z", b.Node("MatMul", nil, m, b.Weight("head", archs.LeCun(40), 40, 64)), archs.Float32, "batch", 64)
	model, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	return model.Bytes()
}

// Formats are chosen for what open dimensions may be, and the report says for what.
func TestFormatsAreChosenForOpenDimensions(t *testing.T) {
	prune := spc.PruneOptions{Sparsity: 0.8, KeepNone: true}
	for name, c := range map[string]struct {
		o      spc.CompileOptions
		opens  string
		points string // of each layer
	}{
		"by default":   {spc.CompileOptions{}, "[{T false 1..1024} {batch true 1..16}]", "[1 8 16 48 320 1024 2304 16384] [1 8 16 48 320 1024 2304 16384] [1 2 3 5 9 16]"},
		"a range":      {spc.CompileOptions{Open: map[string]spc.Sizes{"T": {From: 1, To: 32}, "batch": {From: 1, To: 1}}}, "[{T false 1..32} {batch true 1..1}]", "[1 2 4 8 16 32] [1 2 4 8 16 32] []"},
		"sizes":        {spc.CompileOptions{Open: map[string]spc.Sizes{"T": {From: 1, To: 128, Only: []int{1, 128}}}, Dims: map[string]int{"batch": 1}}, "[{T false 1,128}]", "[1 128] [1 128] []"},
		"known shapes": {spc.CompileOptions{Dims: map[string]int{"batch": 1, "T": 9}}, "[]", "[] [] []"},
		"one is known": {spc.CompileOptions{Shapes: map[string][]int{"x": {2, spc.AnySize, 40}}}, "[{T false 1..1024}]", "[2 8 32 128 512 2048] [2 8 32 128 512 2048] []"},
		"without a name": {spc.CompileOptions{Shapes: map[string][]int{"x": {spc.AnySize, 5, 40}}, Open: map[string]spc.Sizes{"batch": {From: 3, To: 4}}}, "[{batch true 3..4}]",
			"[15 20] [15 20] [3 4]"},
	} {
		o := c.o
		o.Bytes, o.Prune = openModel(t), prune
		m, err := spc.Compile(t.Context(), o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var opens, points []string
		for _, d := range m.Explain().Open {
			opens = append(opens, fmt.Sprintf("{%s %v %v}", d.Name, d.Batch, d.Sizes))
		}
		for _, l := range m.Explain().Layers {
			var list []int
			for _, p := range l.Points {
				list = append(list, p.N)
			}
			points = append(points, fmt.Sprint(list))
		}
		if got := fmt.Sprint(opens); got != c.opens {
			t.Errorf("%s: %s, want %s", name, got, c.opens)
		}
		if got := strings.Join(points, " "); got != c.points {
			t.Errorf("%s: %s, want %s", name, got, c.points)
		}
		m.Close()
	}
}

func TestSizesOfNoOpenDimensionAreRefused(t *testing.T) {
	for want, o := range map[string]spc.CompileOptions{
		`Open: no dimension is called "S", want one of: T, batch`: {Open: map[string]spc.Sizes{"S": {From: 1, To: 2}}},
		"Open T=1..2: the dimension has a size, want an open one": {Open: map[string]spc.Sizes{"T": {From: 1, To: 2}}, Shapes: map[string][]int{"x": {1, 7, 40}}},
		"Open T=1..2, but Dims T=5":                               {Open: map[string]spc.Sizes{"T": {From: 1, To: 2}}, Dims: map[string]int{"T": 5}},
		"Open T=0..2, want sizes from 1 to 1048576":               {Open: map[string]spc.Sizes{"T": {To: 2}}},
		"Open T=3..2, want the smaller size first":                {Open: map[string]spc.Sizes{"T": {From: 3, To: 2}}},
		"Format pair, but OneFormat":                              {Format: choose.PairFormat, OneFormat: true},
	} {
		o.Bytes = openModel(t)
		if _, err := spc.Compile(t.Context(), o); !errors.Is(err, spc.ErrInvalid) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A product takes the form for its columns, once a run tells these, from memory and from a file.
func TestProductsTakeTheFormForTheirColumns(t *testing.T) {
	for _, q := range []tensor.DType{0, tensor.BF16} {
		m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: openModel(t), Format: choose.PairFormat, Prune: spc.PruneOptions{Sparsity: 0.6, KeepNone: true}, Quantize: spc.QuantizeOptions{Type: q}})
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := m.Write(&file); err != nil {
			t.Fatal(err)
		}
		r, err := spc.Read(file.Bytes(), two)
		if err != nil {
			t.Fatal(err)
		}
		met := map[string]bool{}
		for _, T := range []int{1, 2, 3, 40, 500, 1} {
			x := tensor.New(tensor.F32, 1, T, 40)
			for i := range x.F32s() {
				x.F32s()[i] = float32(i%13) - 6
			}
			in := map[string]*tensor.Tensor{"x": x}
			want, err := m.Interpret(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			got, times, err := r.Profile(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			if e := relL2(t, got, want); !(e < 1e-5) {
				t.Errorf("%v, T = %d: relative l2 error %g", q, T, e)
			}
			for _, l := range m.Explain().Layers {
				p, err := choose.ParsePair(l.Config)
				if l.Format != choose.PairFormat || err != nil {
					t.Fatalf("%s: %s %s, %v", l.Name, l.Format, l.Config, err)
				}
				n := T
				if l.Weight == "head" {
					n = 1
				}
				form := p.For(n)
				for _, at := range times {
					if at.Node == l.Name {
						met[fmt.Sprint(l.Name, form)] = true
						if at.Format != form.Format {
							t.Errorf("%v, T = %d: %s is multiplied as %s, want %s of %s", q, T, l.Name, at.Format, form, l.Config)
						}
					}
				}
			}
		}
		if len(met) != 5 {
			t.Errorf("forms %v, want both of two weights and one of the third", met)
		}
		r.Close()
		m.Close()
	}
}

// Small architectures compute with weights in two forms what the interpreter does, whatever their sizes are.
func TestModelsOfPairsAgreeWithTheInterpreter(t *testing.T) {
	thorough(t)
	pairs := 0
	for i, a := range archs.Tiny {
		for j, pattern := range []string{"uniform", "unstructured", "block:4x1", "block:1x4"} {
			m := tiny(t, a.Name, spc.CompileOptions{Format: choose.PairFormat, Prune: spc.PruneOptions{Pattern: graphtest.Pattern(pattern), Sparsity: 0.6, KeepNone: true}, Run: two})
			for _, l := range m.Explain().Layers {
				if l.Format == choose.PairFormat {
					pairs++
				}
			}
			for _, symbol := range []int{1, 5, 16} {
				in := randomInputs(m, uint64(i+j), symbol)
				want, err := m.Interpret(t.Context(), in)
				if err != nil {
					t.Fatal(err)
				}
				got, err := m.Run(t.Context(), in)
				if err != nil {
					t.Fatal(err)
				}
				if e := relL2(t, got, want); !(e < 1e-5) {
					t.Errorf("%s, %s, symbols %d: relative l2 error %g", a.Name, pattern, symbol, e)
				}
			}
			m.Close()
		}
	}
	if pairs < 20 {
		t.Errorf("only %d weights have two forms", pairs)
	}
}
