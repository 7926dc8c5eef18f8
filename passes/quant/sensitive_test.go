package quant_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/prune"
	"spc/passes/quant"
)

// outlier is a graph of five products. What the third reads has a channel a thousand
// times as large as the others, which it hardly weighs.
func outlier(t *testing.T, rng *rand.Rand) *ir.Graph {
	t.Helper()
	const width = 8
	g := ir.NewGraph("g")
	v := g.NewInput("x", ir.Type{DType: tensor.F32, Dims: []ir.Dim{ir.Sym("batch"), ir.Size(width)}, Ranked: true})
	random := func(shape ...int) *tensor.Tensor {
		w := tensor.New(tensor.F32, shape...)
		for i := range w.F32s() {
			w.F32s()[i] = float32(rng.NormFloat64()) / 2
		}
		return w
	}
	add := func(kind, name string, w *tensor.Tensor) {
		o, err := op.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		n := g.NewNode(name, o, []*ir.Value{v, g.NewConst(name+".w", w)}, "")
		v = n.Outputs[0]
	}
	for i := range 5 {
		w := random(width, width)
		if i == 2 {
			factors := tensor.From(slices.Repeat([]float32{1}, width), width)
			factors.F32s()[3] = 1000
			add("Mul", "spread", factors)
			for j := range width {
				w.F32s()[3*width+j] /= 1000
			}
		}
		add("MatMul", fmt.Sprintf("m%d", i), w)
	}
	g.Outputs = append(g.Outputs, v)
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	return g
}

func globs(t *testing.T, texts ...string) (out []prune.Glob) {
	t.Helper()
	for _, s := range texts {
		g, err := prune.ParseGlob(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, g)
	}
	return out
}

func TestSensitiveProductsStayInFloatingPoint(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	g := outlier(t, rng)
	var samples []*tensor.Tensor
	for range 50 { // more than are looked at
		x := tensor.New(tensor.F32, 2, 8)
		for i := range x.F32s() {
			x.F32s()[i] = float32(rng.NormFloat64())
		}
		samples = append(samples, x)
	}
	insert := func(o quant.Options) *quant.Result {
		t.Helper()
		o.Observer = observer(samples...)
		c := g.Clone()
		r, err := quant.Insert(context.Background(), c, o)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := quant.Products(c, true); err != nil || n != r.Products {
			t.Fatalf("%d products (%v), want %d", n, err, r.Products)
		}
		return r
	}
	r := insert(quant.Options{})
	if len(r.Kept) != 1 || r.Kept[0].Node != "m2" || !strings.Contains(r.Kept[0].Why, "sensitive") || r.Products != 4 {
		t.Errorf("%d products, kept %+v, want 4 and m2 alone", r.Products, r.Kept)
	}
	if !(r.Divergence > 0 && r.Divergence < 0.01) {
		t.Errorf("the outputs diverge by %g, want little", r.Divergence)
	}
	if r := insert(quant.Options{All: true}); r.Products != 5 || r.Kept != nil {
		t.Errorf("%d products, kept %+v, want all 5", r.Products, r.Kept)
	}
	r = insert(quant.Options{KeepFloat: globs(t, "m2", "m4.*")})
	if r.Products != 3 || len(r.Kept) != 2 || r.Kept[1] != (quant.Kept{Node: "m4", Weight: "m4.w", Why: "kept by m4.*"}) {
		t.Errorf("%d products, kept %+v, want 3, and m2 and m4 as asked for", r.Products, r.Kept)
	}
	if r := insert(quant.Options{KeepFloat: globs(t, "m*")}); r.Products != 0 || len(r.Kept) != 5 {
		t.Errorf("%d products, kept %+v, want all kept", r.Products, r.Kept)
	}
	_, err := quant.Insert(context.Background(), g, quant.Options{Observer: observer(samples...), KeepFloat: globs(t, "m2", "no*")})
	if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), `"no*": no layer`) {
		t.Errorf("error %v, want one about no*", err)
	}
}
