package quant_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/fold"
	"spc/passes/quant"
	"spc/passes/steps"
	"spc/tests/graphtest"
)

// rounds is a graph of products of all kinds, whose weights random fills.
const rounds = `graph "g"(%x: f32[n,40], %z: f32[1,4,6,6]) {
  %one: f32[40,24] = const zeros
  %two: f32[40,24] = const zeros
  %twice: f32[24,24] = const zeros
  %wide: f32[3,4,3,3] = const zeros
  %point: f32[3,36,1,1] = const zeros
  %groups: f32[4,2,1,1] = const zeros
  %wild: f32[24,2] = const zeros
  %kept: f32[24,3] = const zeros
  %a: f32[n,24] = MatMul "a" (%x, %one)
  %b: f32[n,40] = Gemm "b" (%a, %two) {transB = 1}
  %c: f32[n,24] = MatMul "c" (%a, %twice)
  %d: f32[n,24] = MatMul "d" (%c, %twice)
  %e: f32[n,2] = MatMul "e" (%d, %wild)
  %f: f32[n,3] = MatMul "f" (%d, %kept)
  %g: f32[1,3,4,4] = Conv "g" (%z, %wide)
  %h: f32[1,4,6,6] = Conv "h" (%z, %groups) {group = 2}
  %i: f32[1,36,4,1] = Reshape "i" (%z, %shape)
  %k: f32[1,3,4,1] = Conv "k" (%i, %point)
  return %b, %e, %f, %g, %h, %k
}`

// filled parses the graph with random weights.
func filled(t *testing.T, r *rand.Rand) *ir.Graph {
	t.Helper()
	text := strings.ReplaceAll(rounds, "  %a: f32", "  %shape: i64[4] = const {1, 36, 4, 1}\n  %a: f32")
	for _, line := range strings.Split(text, "\n") {
		if !strings.Contains(line, "const zeros") {
			continue
		}
		n := 1
		for _, d := range strings.Split(line[strings.Index(line, "[")+1:strings.Index(line, "]")], ",") {
			k := 0
			for _, c := range d {
				k = 10*k + int(c-'0')
			}
			n *= k
		}
		list := slices.Repeat([]string{"0"}, n)
		text = strings.Replace(text, line, strings.Replace(line, "zeros", "{"+strings.Join(list, ", ")+"}", 1), 1)
	}
	g := graphtest.Parse(t, text)
	for _, v := range g.Constants() {
		if v.Const.DType() != tensor.F32 {
			continue
		}
		for i := range v.Const.F32s() {
			if r.IntN(5) > 0 {
				v.Const.F32s()[i] = float32(0.1 * r.NormFloat64())
			}
		}
		if v.Name == "wild" {
			v.Const.F32s()[7] = float32(math.Inf(-1))
		}
	}
	return g
}

const unrounded = `c: the weight is read more than once
d: the weight is read more than once
e: an element of the weight is not finite
f: kept by kept
h: a product of 2 groups`

// TestRound rounds the weights of all kinds of products, which become numbers of their grids, and says of the others why they stay; in
// ONNX's form they stand behind DequantizeLinear nodes that give the same, and grids again when they are folded.
func TestRound(t *testing.T) {
	seed := rand.Uint64()
	for _, st := range []steps.Steps{{Bits: 4, Block: 16}, {Bits: 4, Block: 32}, {Bits: 8, Block: 32}, {Bits: 4, Block: 64}} {
		fill := func() *ir.Graph { return filled(t, rand.New(rand.NewPCG(seed, 0))) }
		before, g, portable := weights(fill()), fill(), fill()
		o := quant.Options{Steps: st, KeepFloat: globs(t, "kept")}
		r, err := quant.Run(t.Context(), g, o)
		if err != nil {
			t.Fatal(err)
		}
		var why []string
		for _, k := range r.Kept {
			why = append(why, k.Node+": "+k.Why)
		}
		if got := strings.Join(why, "\n"); got != unrounded || r.Products != 4 {
			t.Errorf("%d weights, kept\n%s\nwant\n%s", r.Products, got, unrounded)
		}
		if most := map[int]float64{4: 0.15, 8: 0.01}[st.Bits]; !(r.Error > most/100 && r.Error < most) {
			t.Errorf("%+v: an error of %g", st, r.Error)
		}
		onGrids(t, g, before, st, seed)
		again := g.Clone()
		if r, err := quant.Run(t.Context(), again, o); err != nil || r.Products != 0 {
			t.Errorf("codes were rounded again: %+v, %v", r, err)
		}

		o.Portable = true
		if _, err := quant.Run(t.Context(), portable, o); err != nil {
			t.Fatal(err)
		}
		if err := portable.Verify(); err != nil {
			t.Fatalf("%v in\n%s", err, portable)
		}
		if n := strings.Count(kinds(portable), "DequantizeLinear"); n != 4 {
			t.Errorf("%d DequantizeLinear nodes, want 4", n)
		}
		if _, err := fold.Constants(portable); err != nil {
			t.Fatal(err)
		}
		after, uses := weights(g), portable.WeightUses()
		for i, u := range g.WeightUses() {
			v := uses[i].Value
			if u.Node.Name != "e" && !slices.Equal(v.Const.F32s(), after[u.Value.Name].F32s()) {
				t.Errorf("%+v: %s is another weight behind DequantizeLinear", st, u.Node)
			}
			if (v.Grid == nil) != (u.Value.Grid == nil) {
				t.Errorf("%+v: %s has grid %+v, want %+v", st, u.Node, v.Grid, u.Value.Grid)
			}
		}
	}
}

// onGrids checks that weights with grids are of them, and have the zeros that they had.
func onGrids(t *testing.T, g *ir.Graph, before map[string]*tensor.Tensor, st steps.Steps, seed uint64) {
	t.Helper()
	grids := 0
	for _, u := range g.WeightUses() {
		v := u.Value
		if v.Grid == nil {
			continue
		}
		grids++
		m := v.Grid.Matrix(u.View, v.Const.Shape())
		if m == nil || m.Bits != st.Bits || m.Block != st.Block || m.Scales.DType() != tensor.F16 {
			t.Fatalf("%s: grid %+v", u.Node, m)
		}
		if _, ok := m.Encode(u.View.Matrix(v.Const)); !ok {
			t.Errorf("seed %d: %s is not of its grid", seed, u.Node)
		}
		for i, w := range before[v.Name].F32s() {
			if w == 0 && v.Const.F32s()[i] != 0 {
				t.Fatalf("%s: a zero became %v", u.Node, v.Const.F32s()[i])
			}
		}
	}
	if grids != 4 {
		t.Errorf("%d grids, want 4", grids)
	}
}

// TestRoundOnSamples rounds two layers with samples whose elements go together: the outputs, in f64, are nearer than those of blocks that
// are rounded by themselves.
func TestRoundOnSamples(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 0))
	zeros := func(n int) string { return "{" + strings.Repeat("0, ", n-1) + "0}" }
	make := func() *ir.Graph {
		r := rand.New(rand.NewPCG(6, 0))
		g := graphtest.Parse(t, `graph "g"(%x: f32[64,48]) {
  %v: f32[48,40] = const `+zeros(48*40)+`
  %w: f32[40,32] = const `+zeros(40*32)+`
  %a: f32[64,40] = MatMul "a" (%x, %v)
  %b: f32[64,40] = Relu "b" (%a)
  %c: f32[64,32] = MatMul "c" (%b, %w)
  return %c
}`)
		for _, v := range g.Constants() {
			for i := range v.Const.F32s() {
				v.Const.F32s()[i] = float32(r.NormFloat64())
			}
		}
		return g
	}
	mix := tensor.New(tensor.F32, 6, 48)
	for i := range mix.F32s() {
		mix.F32s()[i] = float32(r.NormFloat64())
	}
	sample := func() *tensor.Tensor {
		x := tensor.New(tensor.F32, 64, 48)
		for row := range 64 {
			var z [6]float64
			for i := range z {
				z[i] = r.NormFloat64()
			}
			for k := range 48 {
				v := 0.1 * r.NormFloat64()
				for i, s := range z {
					v += s * float64(mix.F32s()[i*48+k])
				}
				x.F32s()[row*48+k] = float32(v)
			}
		}
		return x
	}
	seen, other := []*tensor.Tensor{sample(), sample(), sample(), sample()}, sample()
	run := func(g *ir.Graph) []float32 {
		y, err := (&ref.Interpreter{}).Run(context.Background(), g, []*tensor.Tensor{other})
		if err != nil {
			t.Fatal(err)
		}
		return y[0].F32s()
	}
	want := run(make())
	away := func(o quant.Options) (sum float64) {
		g := make()
		o.Steps = steps.Steps{Bits: 4, Block: 16}
		if res, err := quant.Run(t.Context(), g, o); err != nil || res.Products != 2 {
			t.Fatal(res, err)
		}
		for i, v := range run(g) {
			d := float64(v) - float64(want[i])
			sum += d * d
		}
		return sum
	}
	alone, together := away(quant.Options{}), away(quant.Options{Observer: observer(seen...)})
	t.Logf("%.4g alone, %.4g together", alone, together)
	if !(together < 0.5*alone) {
		t.Errorf("outputs on other samples are %.4g away, by themselves %.4g", together, alone)
	}
}
