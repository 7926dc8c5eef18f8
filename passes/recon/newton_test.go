package recon

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// two is a network of two layers with a ReLU between them.
const two = `graph "two"(%%x: f32[n,6]) {
  %%w: f32[5,6] = const {%s}
  %%b: f32[5] = const {%s}
  %%v: f32[3,5] = const {%s}
  %%h: f32[n,5] = Gemm "h" (%%x, %%w, %%b) {transB = 1}
  %%r: f32[n,5] = Relu "r" (%%h)
  %%y: f32[n,3] = Gemm "y" (%%r, %%v) {transB = 1}
  return %%y
}
`

func numbers32(r *rand.Rand, n int) string {
	var list []string
	for range n {
		list = append(list, fmt.Sprintf("%.4f", r.NormFloat64()))
	}
	return strings.Join(list, ", ")
}

func twoLayers(t *testing.T) *ir.Graph {
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 21))
	return graphtest.Parse(t, fmt.Sprintf(two, numbers32(r, 30), numbers32(r, 5), numbers32(r, 15)))
}

// solver is Newton's method on a whole graph as one block, towards a dense one.
func solver(t *testing.T, g, dense *ir.Graph, samples int) *newton {
	t.Helper()
	o := observer(samples, 1, 6)
	r := &runner{o: o, g: g, dense: dense, loops: o.Loops()}
	if err := r.pair(); err != nil {
		t.Fatal(err)
	}
	r.front = r.o.Frontier(r.twins.Graph, r.Budget)
	r.Budget = 1 << 20
	p, err := newPiece(g.Nodes, g.Outputs, parameters(g.Nodes, func(string) bool { return false }))
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.collect(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	l := loss{value: g.Outputs[0], weight: 1, power: 1}
	tr := &trainer{piece: p, losses: []loss{l}, samples: s, kernels: r.loops, workers: 1}
	if err := tr.prepare(8); err != nil {
		t.Fatal(err)
	}
	n := newNewton(tr, 1)
	n.diag = make([]float64, n.size)
	return n
}

// jacobian finds, in float64 and by central differences, what the outputs of the two layers
// for the samples change by with each element of w, b and v that may change, in the order of a
// vector of n.
func jacobian(n *newton) [][]float64 {
	var values [][]float64
	for _, q := range n.piece.params {
		var v []float64
		for _, x := range q.tensor.F32s() {
			v = append(v, float64(x))
		}
		values = append(values, v)
	}
	outputs := func() (y []float64) {
		at := func(name string) []float64 {
			return values[slices.IndexFunc(n.piece.params, func(q *param) bool { return q.value.Name == name })]
		}
		w, b, v := at("w"), at("b"), at("v")
		for _, s := range n.some {
			x := n.samples[s].in[0].F32s()
			var h [5]float64
			for i := range h {
				h[i] = b[i]
				for k, e := range x {
					h[i] += w[i*6+k] * float64(e)
				}
				h[i] = math.Max(h[i], 0)
			}
			for o := range 3 {
				sum := 0.0
				for i, e := range h {
					sum += v[o*5+i] * e
				}
				y = append(y, sum)
			}
		}
		return y
	}
	var rows [][]float64
	for k, free := range n.free {
		for _, i := range free {
			const step = 1e-6
			was := values[k][i]
			values[k][i] = was + step
			above := outputs()
			values[k][i] = was - step
			below := outputs()
			values[k][i] = was
			row := make([]float64, len(above))
			for j := range row {
				row[j] = (above[j] - below[j]) / (2 * step) * float64(n.piece.params[k].scale[i])
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func TestProductsOfTheCurvatureAreThoseOfTheJacobian(t *testing.T) {
	dense, off := bent(twoLayers(t))
	n := solver(t, off, dense, 40)
	if len(n.some) != 35 || n.size != 15+5+7 {
		t.Fatalf("%d samples, %d parameters", len(n.some), n.size)
	}
	j := jacobian(n)
	// The loss of a sample is the mean of three squares.
	factor := 2. / 3 / float64(len(n.some))
	r := rand.New(rand.NewPCG(seed, 22))
	for range 5 {
		v, got, want := make([]float64, n.size), make([]float64, n.size), make([]float64, n.size)
		image := make([]float64, len(j[0]))
		for i := range v {
			v[i] = r.NormFloat64()
			for k, d := range j[i] {
				image[k] += d * v[i]
			}
		}
		size := 0.0
		for i := range want {
			for k, d := range j[i] {
				want[i] += factor * d * image[k]
			}
			size += want[i] * want[i]
		}
		if err := n.times(context.Background(), got, v); err != nil {
			t.Fatal(err)
		}
		off := 0.0
		for i, x := range got {
			off += (x - want[i]) * (x - want[i])
		}
		if e := math.Sqrt(off / size); !(e < 5e-3) {
			t.Errorf("J'J v is off by %.2g of its size", e)
		} else {
			t.Logf("off by %.2g", e)
		}
	}
	// The diagonal is a mean over random signs.
	mean := make([]float64, n.size)
	const draws = 100
	for k := range draws {
		if err := n.diagonal(context.Background(), k); err != nil {
			t.Fatal(err)
		}
		for i, d := range n.diag {
			mean[i] += d / draws
		}
	}
	wants, floor := make([]float64, n.size), 0.0
	for i := range wants {
		for _, x := range j[i] {
			wants[i] += factor * x * x
		}
		floor += 1e-3 * wants[i] / float64(n.size)
	}
	for i, d := range mean {
		want := max(wants[i], floor)
		if math.Abs(d-want) > 0.2*want {
			t.Errorf("element %d of the diagonal is %.4g, want %.4g", i, d, want)
		}
	}
}

// leastSquares solves, in float64, for the elements of a row of y = w x that are not zero.
func leastSquares(x [][]float64, y []float64, stays []int) []float64 {
	n := len(stays)
	a := make([][]float64, n)
	for i := range a {
		a[i] = make([]float64, n+1)
		for s := range x {
			for j, c := range stays {
				a[i][j] += x[s][stays[i]] * x[s][c]
			}
			a[i][n] += x[s][stays[i]] * y[s]
		}
	}
	for i := range a {
		for k := range a {
			if k == i {
				continue
			}
			f := a[k][i] / a[i][i]
			for j := i; j <= n; j++ {
				a[k][j] -= f * a[i][j]
			}
		}
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = a[i][n] / a[i][i]
	}
	return out
}

func TestOfALinearLayerNewtonFindsTheLeastSquaresOnItsMask(t *testing.T) {
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 23))
	dense := graphtest.Parse(t, fmt.Sprintf(`graph "one"(%%x: f32[n,6]) {
  %%w: f32[4,6] = const {%s}
  %%y: f32[n,4] = Gemm "y" (%%x, %%w) {transB = 1}
  return %%y
}
`, numbers32(r, 24)))
	g := dense.Clone()
	halve(g)
	n := solver(t, g, dense, 40)
	n.held = n.seen
	res, err := n.solve(context.Background(), course{newton: 6, seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if !(res.after < res.before) {
		t.Errorf("the loss went from %v to %v", res.before, res.after)
	}
	var x [][]float64
	for _, s := range n.seen {
		var row []float64
		for _, v := range n.samples[s].in[0].F32s() {
			row = append(row, float64(v))
		}
		x = append(x, row)
	}
	full, got := constOf(dense, "w").F32s(), n.piece.params[0].tensor.F32s()
	for row := range 4 {
		var stays []int
		for c, v := range constOf(g, "w").F32s()[row*6:][:6] {
			if v != 0 {
				stays = append(stays, c)
			} else if got[row*6+c] != 0 {
				t.Errorf("w[%d,%d] became %v", row, c, got[row*6+c])
			}
		}
		var y []float64
		for _, s := range x {
			sum := 0.0
			for c, v := range s {
				sum += v * float64(full[row*6+c])
			}
			y = append(y, sum)
		}
		for i, want := range leastSquares(x, y, stays) {
			if v := got[row*6+stays[i]]; math.Abs(float64(v)-want) > 1e-3 {
				t.Errorf("w[%d,%d] is %v, want %v", row, stays[i], v, want)
			}
		}
	}
}

func TestNewtonComesNearerTheDenseModel(t *testing.T) {
	for _, c := range []struct {
		text   string
		names  []string
		shapes [][]int
		in     []int
	}{
		{conv, convNames, convShapes, []int{1, 3, 6, 6}},
		{transformer, transformerNames, transformerShapes, []int{1, 5, 8}},
	} {
		dense, off := bent(network(t, c.text, "Relu", c.names, c.shapes, "f32"))
		t.Run(dense.Name, func(t *testing.T) {
			g, rep := reconstructed(t, dense, off, observer(24, c.in...), Options{Newton: 4, Workers: 2, Seed: 1})
			for _, b := range rep.Blocks {
				if b.Of != OfSnows || b.Note != "" || b.After > b.Before || b.Steps == 0 || b.Samples != 24 {
					t.Errorf("%+v", b)
				}
			}
			if a, b := distance(t, dense, g, c.in), distance(t, dense, off, c.in); a > b/2 {
				t.Errorf("outputs of unseen samples are off by %v, want half of the %v before", a, b)
			}
			before := map[string]*tensor.Tensor{}
			for _, u := range off.WeightUses() {
				before[u.Value.Name] = u.Value.Const
			}
			for _, u := range g.WeightUses() {
				for i, v := range u.Value.Const.F32s() {
					if (v == 0) != (before[u.Value.Name].F32s()[i] == 0) {
						t.Fatalf("element %d of %s became %v", i, u.Value.Name, v)
					}
				}
			}
			if dense.Name == "transformer" {
				return
			}
			again, _ := reconstructed(t, dense, off, observer(24, c.in...), Options{Newton: 4, Workers: 1, Seed: 1})
			same(t, "one worker and two", g, again)
		})
	}
}

func TestNewtonEndsWithItsContext(t *testing.T) {
	dense, off := bent(twoLayers(t))
	n := solver(t, off, dense, 40)
	ctx, cancel := context.WithCancel(context.Background())
	_, err := n.solve(ctx, course{newton: 3, seed: 1, progress: func(done, total int) {
		if cancel(); done > total {
			t.Errorf("%d of %d", done, total)
		}
	}})
	if err == nil || ctx.Err() == nil {
		t.Error("a cancelled context does not end it")
	}
}
