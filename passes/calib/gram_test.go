package calib_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/tests/graphtest"
)

// normal is a tensor of standard normal elements.
func normal(rng *rand.Rand, shape ...int) *tensor.Tensor {
	x := tensor.New(tensor.F32, shape...)
	for i := range x.F32s() {
		x.F32s()[i] = float32(rng.NormFloat64())
	}
	return x
}

// far returns the largest difference between two lists relative to the largest
// element of the first, infinite where their lengths differ.
func far(want, have []float64) float64 {
	if len(want) != len(have) {
		return math.Inf(1)
	}
	diff, most := 0.0, 1e-30
	for i, w := range want {
		diff, most = max(diff, math.Abs(w-have[i])), max(most, math.Abs(w))
	}
	return diff / most
}

// outer is the sum of the outer products of the columns of a[m,n] and b[k,n].
func outer(a, b []float64, n int) []float64 {
	m, k := len(a)/n, len(b)/n
	out := make([]float64, m*k)
	for i := range m {
		for j := range k {
			for c := range n {
				out[i*k+j] += a[i*n+c] * b[j*n+c]
			}
		}
	}
	return out
}

// TestGramIsThatOfTheProduct uses that Y = W X gives Y Y^T = W X X^T W^T, and that a
// weight of full rank with more rows than columns lets no error in X X^T pass.
func TestGramIsThatOfTheProduct(t *testing.T) {
	for _, c := range []struct {
		name, text string
		in, weight []int
		channels   int // the axis of the output along which the rows of Y lie
	}{
		{"1x1", `Conv "op" (%x, %v)`, []int{2, 5, 7, 6}, []int{9, 5, 1, 1}, 1},
		{"3x3", `Conv "op" (%x, %v)`, []int{1, 2, 7, 6}, []int{19, 2, 3, 3}, 1},
		{"strided, padded and dilated", `Conv "op" (%x, %v) {strides = [2, 1], dilations = [1, 2], pads = [1, 0, 2, 3]}`, []int{2, 2, 9, 8}, []int{20, 2, 3, 3}, 1},
		{"same", `Conv "op" (%x, %v) {auto_pad = "SAME_LOWER", strides = [2, 3]}`, []int{1, 3, 9, 8}, []int{20, 3, 2, 3}, 1},
		{"one axis", `Conv "op" (%x, %v) {pads = [4, 0]}`, []int{3, 2, 9}, []int{12, 2, 5}, 1},
		{"three axes", `Conv "op" (%x, %v) {strides = [1, 2, 1]}`, []int{1, 1, 4, 5, 6}, []int{20, 1, 2, 3, 3}, 1},
		{"transposed", `ConvTranspose "op" (%x, %v) {strides = [2, 3], pads = [1, 0, 0, 2], output_padding = [1, 0], dilations = [2, 1]}`, []int{2, 2, 4, 5}, []int{2, 14, 2, 3}, 1},
		{"tokens", `MatMul "op" (%x, %v)`, []int{2, 3, 4}, []int{4, 6}, 2},
		{"one token", `MatMul "op" (%x, %v)`, []int{4}, []int{4, 6}, 0},
		{"weight of rank 3", `MatMul "op" (%x, %v)`, []int{2, 3, 4}, []int{1, 4, 6}, 2},
		{"weight on the left", `MatMul "op" (%v, %x)`, []int{3, 4, 7}, []int{6, 4}, 1},
		{"matrix by vector", `MatMul "op" (%v, %x)`, []int{4}, []int{6, 4}, 0},
		{"Gemm", `Gemm "op" (%x, %v)`, []int{5, 4}, []int{4, 6}, 1},
		{"Gemm transB", `Gemm "op" (%x, %v) {transB = 1}`, []int{5, 4}, []int{6, 4}, 1},
		{"Gemm transA", `Gemm "op" (%x, %v) {transA = 1}`, []int{4, 5}, []int{4, 6}, 1},
		{"Gemm transA and transB", `Gemm "op" (%x, %v) {transA = 1, transB = 1}`, []int{4, 5}, []int{6, 4}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, 7))
			g, err := ir.Parse(fmt.Sprintf("graph \"g\"(%%x: %v, %%v: %v) {\n%%y: f32[*] = %s\nreturn %%y\n}",
				ir.Shaped(tensor.F32, c.in...), ir.Shaped(tensor.F32, c.weight...), c.text), op.Registry)
			if err != nil {
				t.Fatal(err)
			}
			w := g.NewConst("w", normal(rng, c.weight...))
			g.ReplaceUses(g.Inputs[1], w)
			g.Inputs = g.Inputs[:1]
			if err := g.Infer(); err != nil {
				t.Fatal(err)
			}
			use := g.WeightUses()[0]
			l := &lab{}
			for range 3 {
				l.samples = append(l.samples, []*tensor.Tensor{normal(rng, c.in...)})
			}
			have, err := calib.GramOf(t.Context(), l.observer().Frontier(g, 0), use, calib.GramOptions{})
			if err != nil {
				t.Fatal(err)
			}
			matrix := use.View.Matrix(w.Const)
			rows, k := matrix.Dim(0), matrix.Dim(1)
			if have.K != k || rows <= k {
				t.Fatalf("K is %d, want %d, fewer than the %d rows", have.K, k, rows)
			}
			yy, ys, columns := make([]float64, rows*rows), make([]float64, rows), 0
			for _, out := range evaluate(t, g, g.Outputs, l.samples) {
				y := out[0]
				perm := []int{c.channels}
				for i := range y.Rank() {
					if i != c.channels {
						perm = append(perm, i)
					}
				}
				flat := y.Permute(perm...).Float64s()
				n := len(flat) / rows
				columns += n
				for i, v := range outer(flat, flat, n) {
					yy[i] += v
				}
				for i, v := range flat {
					ys[i/n] += v
				}
			}
			if have.N != columns {
				t.Errorf("%d columns, want %d", have.N, columns)
			}
			m := matrix.Float64s()
			wx := make([]float64, rows*k)
			wxw := make([]float64, rows*rows)
			sum := make([]float64, rows)
			for i := range rows {
				for j := range k {
					sum[i] += m[i*k+j] * have.X[j]
					for l := range k {
						wx[i*k+j] += m[i*k+l] * have.XX[l*k+j]
					}
				}
				for j := range rows {
					for l := range k {
						wxw[i*rows+j] += wx[i*k+l] * m[j*k+l]
					}
				}
			}
			if d := far(yy, wxw); !(d < 1e-5) {
				t.Errorf("W XX W^T is off by %g", d)
			}
			if d := far(ys, sum); !(d < 1e-5) {
				t.Errorf("W X is off by %g", d)
			}
			for i := range k {
				for j := range i {
					if have.XX[i*k+j] != have.XX[j*k+i] {
						t.Fatalf("XX[%d,%d] is %v, but [%d,%d] is %v", i, j, have.XX[i*k+j], j, i, have.XX[j*k+i])
					}
				}
			}
		})
	}
}

// TestGramOfATarget uses that TX W^T is the sum of T Y^T.
func TestGramOfATarget(t *testing.T) {
	for _, c := range []struct {
		name, text string
		in, weight []int
		channels   int
	}{
		{"images", `Conv "op" (%x, %v) {strides = [2, 1], pads = [1, 0, 2, 3]}`, []int{2, 2, 9, 8}, []int{20, 2, 3, 3}, 1},
		{"one axis", `Conv "op" (%x, %v)`, []int{3, 2, 9}, []int{12, 2, 5}, 1},
		{"more than a block", `Conv "op" (%x, %v)`, []int{1, 2, 50, 50}, []int{4, 2, 1, 1}, 1},
		{"tokens", `MatMul "op" (%x, %v)`, []int{2, 3, 4}, []int{4, 6}, 2},
		{"Gemm", `Gemm "op" (%x, %v) {transB = 1}`, []int{5, 4}, []int{6, 4}, 1},
		{"weight on the left", `MatMul "op" (%v, %x)`, []int{3, 4, 7}, []int{6, 4}, -1},
		{"Gemm transA", `Gemm "op" (%x, %v) {transA = 1}`, []int{4, 5}, []int{4, 6}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, 8))
			g, err := ir.Parse(fmt.Sprintf("graph \"g\"(%%x: %v, %%v: %v) {\n%%y: f32[*] = %s\n%%p: f32[*] = Mul \"p\" (%%y, %%y)\n%%q: f32[*] = Relu \"q\" (%%y)\nreturn %%y, %%p, %%q\n}",
				ir.Shaped(tensor.F32, c.in...), ir.Shaped(tensor.F32, c.weight...), c.text), op.Registry)
			if err != nil {
				t.Fatal(err)
			}
			w := g.NewConst("w", normal(rng, c.weight...))
			g.ReplaceUses(g.Inputs[1], w)
			g.Inputs = g.Inputs[:1]
			if err := g.Infer(); err != nil {
				t.Fatal(err)
			}
			use := g.WeightUses()[0]
			l := &lab{}
			for range 3 {
				l.samples = append(l.samples, []*tensor.Tensor{normal(rng, c.in...)})
			}
			have, err := calib.GramOf(t.Context(), l.observer().Frontier(g, 0), use, calib.GramOptions{Want: g.Outputs[1], Less: g.Outputs[2]})
			if c.channels < 0 {
				if !errors.Is(err, ir.ErrUnsupported) {
					t.Fatalf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			matrix := use.View.Matrix(w.Const)
			rows, k := matrix.Dim(0), matrix.Dim(1)
			ty, ts := make([]float64, rows*rows), make([]float64, rows)
			for _, out := range evaluate(t, g, g.Outputs, l.samples) {
				perm := []int{c.channels}
				for i := range out[0].Rank() {
					if i != c.channels {
						perm = append(perm, i)
					}
				}
				y, target, relu := out[0].Permute(perm...).Float64s(), out[1].Permute(perm...).Float64s(), out[2].Permute(perm...).Float64s()
				n := len(y) / rows
				for i, v := range relu {
					target[i] -= v
					ts[i/n] += target[i]
				}
				add(&ty, outer(target, y, n))
			}
			m, got := matrix.Float64s(), make([]float64, rows*rows)
			for i := range rows {
				for j := range rows {
					for l := range k {
						got[i*rows+j] += have.TX[i*k+l] * m[j*k+l]
					}
				}
			}
			if d := far(ty, got); !(d < 1e-5) {
				t.Errorf("TX W^T is off by %g", d)
			}
			if d := far(ts, have.T); !(d < 1e-5) {
				t.Errorf("T is off by %g", d)
			}
		})
	}
}

// patches is the matrix X[K,N] of a 3x3 convolution with stride 2, padding 1 and
// dilation 2 of an image [1,c,h,w], element by element.
func patches(x *tensor.Tensor) (m []float64, n int) {
	c, h, w := x.Dim(1), x.Dim(2), x.Dim(3)
	oh, ow := (h+2-5)/2+1, (w+2-5)/2+1
	for ch := range c {
		for ky := range 3 {
			for kx := range 3 {
				for oy := range oh {
					for ox := range ow {
						v, iy, ix := 0.0, 2*oy+2*ky-1, 2*ox+2*kx-1
						if iy >= 0 && iy < h && ix >= 0 && ix < w {
							v = float64(x.F32s()[(ch*h+iy)*w+ix])
						}
						m = append(m, v)
					}
				}
			}
		}
	}
	return m, oh * ow
}

// columns picks columns of m[k,n].
func columns(m []float64, n int, picks []int) (out []float64) {
	for r := 0; r < len(m); r += n {
		for _, p := range picks {
			out = append(out, m[r+p])
		}
	}
	return out
}

func add(sum *[]float64, m []float64) {
	if *sum == nil {
		*sum = make([]float64, len(m))
	}
	for i, v := range m {
		(*sum)[i] += v
	}
}

func rowSums(m []float64, n int) []float64 {
	out := make([]float64, len(m)/n)
	for i, v := range m {
		out[i/n] += v
	}
	return out
}

const dilated = `graph "g"(%x: f32[1,3,33,31]) {
  %w1: f32[4,3,1,1] = const {1.0, -1.0, 0.5, 2.0, 0.25, -2.0, 1.0, 1.0, 1.0, 0.5, 0.0, -0.5}
  %w2: f32[1,4,3,3] = const {1.0, 2.0, -3.0, 0.25, 0.5, 1.0, 1.0, 2.0, -3.0, 0.25, 0.5, 1.0, 1.0, 2.0, -3.0, 0.25, 0.5, 1.0, 1.0, 2.0, -3.0, 0.25, 0.5, 1.0, 1.0, 2.0, -3.0, 0.25, 0.5, 1.0, 1.0, 2.0, -3.0, 0.25, 0.5, 1.0}
  %a: f32[1,4,33,31] = Conv "conv_1" (%x, %w1)
  %r: f32[1,4,33,31] = Relu "relu" (%a)
  %y: f32[1,1,16,15] = Conv "conv_2" (%r, %w2) {strides = [2, 2], pads = [1, 1, 1, 1], dilations = [2, 2]}
  return %y
}`

func TestGramOfTwinsEqualsProductsOfPatches(t *testing.T) {
	for _, most := range []int{0, 100, 7, 3} {
		t.Run(fmt.Sprint("at most ", most), func(t *testing.T) {
			g := graphtest.Parse(t, dilated)
			l := &lab{samples: imageSamples(5, 1, 3, 33, 31)}
			tw := calib.NewTwins(g)
			first, use := g.WeightUses()[0], g.WeightUses()[1]
			w := first.Value.Const.Clone()
			w.F32s()[0], w.F32s()[5] = 0, 0
			tw.SetConst(first.Value, w)
			f := l.observer().Frontier(tw.Graph, 0)
			o := calib.GramOptions{Twins: tw, Cross: true, Dense: true, MaxColumns: most}
			have, err := calib.GramOf(t.Context(), f, tw.Use(use), o)
			if err != nil {
				t.Fatal(err)
			}
			x := use.Node.Inputs[0]
			var xx, xs, dx, dd, ds []float64
			total := 0
			for s, v := range evaluate(t, tw.Graph, []*ir.Value{tw.Dense(x), tw.Pruned(x)}, l.samples) {
				d, n := patches(v[0])
				p, _ := patches(v[1])
				if most > 0 {
					quota := (s+1)*most/5 - s*most/5
					if quota == 0 {
						continue
					}
					picks := calib.Pick(n, quota, s)
					d, p, n = columns(d, n, picks), columns(p, n, picks), len(picks)
				}
				total += n
				add(&xx, outer(p, p, n))
				add(&dx, outer(d, p, n))
				add(&dd, outer(d, d, n))
				add(&xs, rowSums(p, n))
				add(&ds, rowSums(d, n))
			}
			if have.N != total || most > 0 && have.N != most {
				t.Errorf("%d columns, want %d", have.N, total)
			}
			for name, c := range map[string][2][]float64{"XX": {xx, have.XX}, "X": {xs, have.X}, "DX": {dx, have.DX}, "DD": {dd, have.DD}, "D": {ds, have.D}} {
				if d := far(c[0], c[1]); !(d < 1e-5) {
					t.Errorf("%s is off by %g", name, d)
				}
			}
			// What is kept at a position gives the same bits.
			if err := f.Advance(t.Context(), f.Index(tw.DenseNode(use.Node))); err != nil {
				t.Fatal(err)
			}
			again, err := calib.GramOf(t.Context(), f, tw.Use(use), o)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(again.DX, have.DX) || !slices.Equal(again.XX, have.XX) {
				t.Error("the sums changed when the position did")
			}
		})
	}
}

func TestGramOfEqualTwinsIsCopied(t *testing.T) {
	g := graphtest.Parse(t, dilated)
	tw := calib.NewTwins(g)
	f := (&lab{samples: imageSamples(2, 1, 3, 33, 31)}).observer().Frontier(tw.Graph, 0)
	have, err := calib.GramOf(t.Context(), f, tw.Use(g.WeightUses()[1]), calib.GramOptions{Twins: tw, Cross: true, Dense: true})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(have.XX, have.DX) || !slices.Equal(have.XX, have.DD) || !slices.Equal(have.X, have.D) {
		t.Error("moments of equal inputs differ")
	}
	have.XX[0]++
	if have.DX[0] == have.XX[0] || have.DD[0] == have.XX[0] {
		t.Error("moments share memory")
	}
}

func TestPicksAreSpread(t *testing.T) {
	for _, n := range []int{1, 7, 3136, 12544} {
		for _, quota := range []int{1, 3, 112, 4000} {
			for sample := range 50 {
				p := calib.Pick(n, quota, sample)
				if len(p) != min(n, quota) {
					t.Fatalf("%d of %d: %d picks", quota, n, len(p))
				}
				before := p[len(p)-1] - n
				for _, i := range p {
					if gap := i - before; i < 0 || i >= n || gap < 1 || gap > (n+len(p)-1)/len(p)+1 {
						t.Fatalf("%d of %d, sample %d: %v", quota, n, sample, p)
					}
					before = i
				}
			}
		}
	}
	// One pick a row of pixels is not in the same column for all samples.
	seen := map[int]bool{}
	for sample := range 50 {
		seen[calib.Pick(112*112, 112, sample)[3]%112] = true
	}
	if len(seen) < 25 {
		t.Errorf("picks lie in %d of 112 columns", len(seen))
	}
}

// recurrentGraph has an LSTM of 5 inputs and 2 states with sequence lengths.
func recurrentGraph(t *testing.T, rng *rand.Rand) *ir.Graph {
	t.Helper()
	g := ir.NewGraph("g")
	x := g.NewInput("x", ir.Shaped(tensor.F32, 4, 3, 5))
	lengths := g.NewInput("lengths", ir.Shaped(tensor.I32, 3))
	o, err := op.New("LSTM")
	if err != nil {
		t.Fatal(err)
	}
	if err := ir.SetAttr(o, "hidden_size", 2); err != nil {
		t.Fatal(err)
	}
	n := g.NewNode("lstm", o, []*ir.Value{x, g.NewConst("w", normal(rng, 1, 8, 5)), g.NewConst("r", normal(rng, 1, 8, 2)), nil, lengths}, "y")
	g.Outputs = n.Outputs
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGramOfRecurrentInputs(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	g := recurrentGraph(t, rng)
	l := &lab{}
	var want []float64
	total := 0
	for _, lengths := range [][]int32{{4, 2, 1}, {1, 1, 3}} {
		x := normal(rng, 4, 3, 5)
		l.samples = append(l.samples, []*tensor.Tensor{x, tensor.From(lengths, 3)})
		for b, length := range lengths {
			for s := range length {
				var token []float64
				for i := range 5 {
					token = append(token, float64(x.F32s()[(int(s)*3+b)*5+i]))
				}
				add(&want, outer(token, token, 1))
				total++
			}
		}
	}
	f := l.observer().Frontier(g, 0)
	uses := g.WeightUses()
	have, err := calib.GramOf(t.Context(), f, uses[0], calib.GramOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if have.N != total {
		t.Errorf("%d steps, want %d", have.N, total)
	}
	if d := far(want, have.XX); !(d < 1e-5) {
		t.Errorf("XX is off by %g", d)
	}
	if _, err := calib.GramOf(t.Context(), f, uses[1], calib.GramOptions{}); !errors.Is(err, ir.ErrUnsupported) || !strings.Contains(err.Error(), "lstm (LSTM): the inputs of weight r are states") {
		t.Errorf("recurrent weight: %v", err)
	}
}

func TestGramRefuses(t *testing.T) {
	one := func(text string, shape ...int) error {
		g := graphtest.Parse(t, text)
		f := (&lab{samples: imageSamples(2, shape...)}).observer().Frontier(g, 0)
		_, err := calib.GramOf(t.Context(), f, g.WeightUses()[0], calib.GramOptions{})
		return err
	}
	groups := one(`graph "g"(%x: f32[1,2,4,4]) {
  %w: f32[2,1,1,1] = const {1.0, -1.0}
  %y: f32[1,2,4,4] = Conv "depthwise" (%x, %w) {group = 2}
  return %y
}`, 1, 2, 4, 4)
	if !errors.Is(groups, ir.ErrUnsupported) || !strings.Contains(groups.Error(), "depthwise (Conv): 2 groups, want 1") {
		t.Errorf("groups: %v", groups)
	}
	huge := one(`graph "g"(%x: f32[2,2]) {
  %big: f32[] = const {1e+30}
  %w: f32[2,1] = const {1.0, -1.0}
  %b: f32[2,2] = Mul "mul" (%x, %big)
  %y: f32[2,1] = MatMul "fc" (%b, %w)
  return %y
}`, 2, 2)
	if !errors.Is(huge, ir.ErrInvalid) || !strings.Contains(huge.Error(), "fc (MatMul): products of its inputs overflow") {
		t.Errorf("overflow: %v", huge)
	}
	empty := one(`graph "g"(%x: f32[n,2]) {
  %w: f32[2,1] = const {1.0, -1.0}
  %y: f32[n,1] = MatMul "fc" (%x, %w)
  return %y
}`, 0, 2)
	if !errors.Is(empty, ir.ErrInvalid) || !strings.Contains(empty.Error(), "fc (MatMul): its input has no columns") {
		t.Errorf("no columns: %v", empty)
	}
	g := graphtest.Parse(t, dilated)
	f := (&lab{samples: imageSamples(2, 1, 3, 33, 31)}).observer().Frontier(g, 0)
	if _, err := calib.GramOf(t.Context(), f, g.WeightUses()[0], calib.GramOptions{Cross: true}); !errors.Is(err, ir.ErrInvalid) {
		t.Errorf("cross moments without twins: %v", err)
	}
}
