package recon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/tests/graphtest"
)

// weightsOf lists the weights of products.
func weightsOf(g *ir.Graph) []*ir.Value {
	var out []*ir.Value
	for _, u := range g.WeightUses() {
		out = append(out, u.Value)
	}
	return out
}

func squaresOf(t *testing.T, g *ir.Graph, o *calib.Observer, opt SquareOptions) [][]float64 {
	t.Helper()
	s, err := Squares(context.Background(), o, g, weightsOf(g), opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fixed sees the runs, all of them so many times.
func fixed(times int, runs ...*tensor.Tensor) *calib.Observer {
	return &calib.Observer{
		Inputs: func(context.Context, *ir.Graph) iter.Seq2[[]*tensor.Tensor, error] {
			return func(yield func([]*tensor.Tensor, error) bool) {
				for range times {
					for _, x := range runs {
						if !yield([]*tensor.Tensor{x}, nil) {
							return
						}
					}
				}
			}
		},
		Run: graphtest.Run,
	}
}

func random(r *rand.Rand, shape ...int) *tensor.Tensor {
	x := tensor.New(tensor.F32, shape...)
	for i := range x.F32s() {
		x.F32s()[i] = float32(r.NormFloat64())
	}
	return x
}

// slope is the derivative of a function of the output of a graph in f64 by element k of a
// constant.
func slope(t *testing.T, wide *ir.Graph, x *tensor.Tensor, name string, k int, of func(y []float64) []float64) []float64 {
	t.Helper()
	w := tensor.Data[float64](constOf(wide, name))
	at := w[k]
	eval := func(v float64) []float64 {
		w[k] = v
		out, err := ref.Run(context.Background(), wide, []*tensor.Tensor{x.To(tensor.F64)})
		if err != nil {
			t.Fatal(err)
		}
		return of(out[0].Float64s())
	}
	const h = 1e-5
	up, down := eval(at+h), eval(at-h)
	w[k] = at
	for i := range up {
		up[i] = (up[i] - down[i]) / (2 * h)
	}
	return up
}

// Each row of a run is a sample: the derivative of u'y is that of finite differences.
func TestSquaresAreThoseOfFiniteDifferences(t *testing.T) {
	for _, c := range []struct {
		text   string
		names  []string
		shapes [][]int
		in     []int
	}{
		{conv, convNames, convShapes, []int{2, 3, 6, 6}},
		{transformer, transformerNames, transformerShapes, []int{2, 5, 8}},
	} {
		g := network(t, c.text, "Softplus", c.names, c.shapes, "f32")
		wide := network(t, c.text, "Softplus", c.names, c.shapes, "f64")
		t.Run(g.Name, func(t *testing.T) {
			x := random(rand.New(rand.NewPCG(seed, 2)), c.in...)
			have := squaresOf(t, g, fixed(1, x), SquareOptions{Seed: seed})
			e := end{value: g.Outputs[0], scores: calib.Scores(g, g.Outputs[0]), scale: 1}
			var rows []*tensor.Tensor
			var draws [][]float32
			for k := range x.Dim(0) {
				rows = append(rows, rowOf([]*tensor.Tensor{x}, k)[0])
				y, err := ref.Run(context.Background(), g, rows[k:])
				if err != nil {
					t.Fatal(err)
				}
				u := make([]float32, y[0].Len())
				e.draw(u, y[0], rand.New(rand.NewPCG(seed, uint64(k))))
				draws = append(draws, u)
			}
			for i, v := range weightsOf(g) {
				for _, k := range []int{0, v.Const.Len() / 2, v.Const.Len() - 1} {
					want := 0.0
					for r, x := range rows {
						d := slope(t, wide, x, v.Name, k, func(y []float64) []float64 {
							sum := 0.0
							for j, v := range y {
								sum += v * float64(draws[r][j])
							}
							return []float64{sum}
						})
						want += d[0] * d[0]
					}
					if math.Abs(have[i][k]-want) > 1e-6+2e-3*want {
						t.Errorf("element %d of %s: %v, want %v", k, v.Name, have[i][k], want)
					}
				}
			}
		})
	}
}

const small = `graph "small"(%x: f32[n,4]) {
  WEIGHTS
  %a: f32[n,5] = MatMul "a" (%x, %w1)
  %b: f32[n,5] = Tanh "b" (%a)
  %c: f32[n,3] = MatMul "c" (%b, %w2)
  %y: f32[n,3] = ACT "y" (%c)
  return %y
}
`

// On average the squares are, for classes, the expectation over the classes that the
// model predicts of the squared derivative of the logarithm of their probability, and for
// other outputs the sum of the squares of their derivatives.
func TestSquaresAreTheFisherInformationOnAverage(t *testing.T) {
	const times = 600
	r := rand.New(rand.NewPCG(seed, 3))
	image := strings.NewReplacer("WEIGHTS", "%axes: i64[2] = const {1, 2}\n  WEIGHTS", "%y: f32[n,3] = ACT \"y\" (%c)", "%y: f32[n,1,1,3] = Unsqueeze \"y\" (%c, %axes)")
	for _, c := range []struct{ name, text, act string }{
		{"scores", small, "Identity"},
		{"probabilities", small, "Softmax"},
		{"values", image.Replace(small), ""},
	} {
		names, shapes := []string{"w1", "w2"}, [][]int{{4, 5}, {5, 3}}
		g := network(t, c.text, c.act, names, shapes, "f32")
		wide := network(t, c.text, c.act, names, shapes, "f64")
		for _, h := range []*ir.Graph{g, wide} { // confident enough for classes to be unlikely
			w := constOf(h, "w2")
			for i := range w.Len() {
				if h == g {
					w.F32s()[i] *= 3
				} else {
					tensor.Data[float64](w)[i] *= 3
				}
			}
		}
		var runs []*tensor.Tensor
		for range 3 {
			runs = append(runs, random(r, 1, 4))
		}
		have := squaresOf(t, g, fixed(times, runs...), SquareOptions{Seed: seed, Workers: 2})
		for i, v := range weightsOf(g) {
			for k := range v.Const.Len() {
				want := 0.0
				for _, x := range runs {
					y, err := ref.Run(context.Background(), g, []*tensor.Tensor{x})
					if err != nil {
						t.Fatal(err)
					}
					p, of := slices.Repeat([]float64{1}, 3), func(y []float64) []float64 { return y }
					switch c.name {
					case "scores":
						logSoftmax(p, y[0].F32s())
						for j := range p {
							p[j] = math.Exp(p[j])
						}
						of = func(y []float64) []float64 {
							sum := 0.0
							for _, v := range y {
								sum += math.Exp(v)
							}
							for j := range y {
								y[j] -= math.Log(sum)
							}
							return y
						}
					case "probabilities":
						p = y[0].Float64s()
						of = func(y []float64) []float64 {
							for j := range y {
								y[j] = math.Log(y[j])
							}
							return y
						}
					}
					for j, d := range slope(t, wide, x, v.Name, k, of) {
						want += p[j] * d * d
					}
				}
				if got := have[i][k] / times; math.Abs(got-want) > 0.25*want+1e-9 {
					t.Errorf("%s: element %d of %s is %v on average, want %v", c.name, k, v.Name, got, want)
				}
			}
		}
	}
}

func TestSquaresDoNotDependOnTheNumberOfWorkersNorOnHowSamplesCome(t *testing.T) {
	g := convNet(t, "Relu")
	want := squaresOf(t, g, observer(20, 1, 3, 6, 6), SquareOptions{Workers: 1, Seed: seed})
	for name, have := range map[string][][]float64{
		"three workers":  squaresOf(t, g, observer(20, 1, 3, 6, 6), SquareOptions{Workers: 3, Seed: seed}),
		"four at a time": squaresOf(t, g, observer(5, 4, 3, 6, 6), SquareOptions{Workers: 2, Seed: seed}),
	} {
		for i, v := range weightsOf(g) {
			if !slices.Equal(want[i], have[i]) {
				t.Errorf("%s: the squares of %s differ", name, v.Name)
			}
		}
	}
	other := squaresOf(t, g, observer(20, 1, 3, 6, 6), SquareOptions{Seed: seed + 1})
	if slices.Equal(want[0], other[0]) {
		t.Error("another seed gives the same squares")
	}
}

// Outputs count by relative errors, whatever their units.
func TestOutputsOfOtherUnitsCountAlike(t *testing.T) {
	g := network(t, `graph "two"(%x: f32[n,4,6]) {
  WEIGHTS
  %k: f32[] = const {1000.0}
  %a: f32[n,4,5] = MatMul "a" (%x, %w1)
  %b: f32[n,4,5] = MatMul "b" (%x, %w2)
  %c: f32[n,4,5] = Mul "c" (%b, %k)
  return %a, %c
}
`, "", []string{"w1", "w2"}, [][]int{{6, 5}, {6, 5}}, "f32")
	squares := squaresOf(t, g, observer(50, 1, 4, 6), SquareOptions{Seed: seed})
	var sums []float64
	for i, v := range weightsOf(g) {
		sum := 0.0
		for k, w := range v.Const.F32s() {
			sum += float64(w) * float64(w) * squares[i][k]
		}
		sums = append(sums, sum)
	}
	if ratio := sums[0] / sums[1]; !(ratio > 0.2 && ratio < 5) {
		t.Errorf("importances sum up to %v and %v, want about the same", sums[0], sums[1])
	}
}

func TestSquaresRefuse(t *testing.T) {
	integers := graphtest.Parse(t, `graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %a: f32[2,2] = MatMul "a" (%x, %w)
  %y: i64[2,1] = ArgMax "y" (%a) {axis = 1}
  return %y
}
`)
	nan := random(rand.New(rand.NewPCG(seed, 0)), 1, 3, 6, 6)
	nan.F32s()[40] = float32(math.NaN())
	wrong := errors.New("no more")
	failing := &calib.Observer{Inputs: func(context.Context, *ir.Graph) iter.Seq2[[]*tensor.Tensor, error] {
		return func(yield func([]*tensor.Tensor, error) bool) { yield(nil, wrong) }
	}}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		g    *ir.Graph
		o    *calib.Observer
		kind error
		want string
	}{
		{context.Background(), convNet(t, "Round"), observer(2, 1, 3, 6, 6), ir.ErrUnsupported, "dr (Round)"},
		{context.Background(), integers, observer(2, 2, 2), ir.ErrUnsupported, "no output"},
		{context.Background(), convNet(t, "Relu"), observer(0, 1, 3, 6, 6), ir.ErrInvalid, "no calibration samples"},
		{context.Background(), convNet(t, "Relu"), observer(2, 1, 3, 6), ir.ErrInvalid, "input x"},
		{context.Background(), convNet(t, "Softplus"), fixed(1, nan), ir.ErrInvalid, "want finite"},
		{context.Background(), convNet(t, "Relu"), failing, wrong, "no more"},
		{canceled, convNet(t, "Relu"), observer(2, 1, 3, 6, 6), context.Canceled, ""},
	} {
		_, err := Squares(c.ctx, c.o, c.g, weightsOf(c.g), SquareOptions{Workers: 2})
		if !errors.Is(err, c.kind) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: error %v, want %q", c.g.Name, err, c.want)
		}
	}
}
