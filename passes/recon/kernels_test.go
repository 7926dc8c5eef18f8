package recon

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"spc/backend/cpu"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/tests/graphtest"
)

// convolution is one with a bias, padded so that strides divide its size.
type convolution struct{ cin, cout, k, stride, group, size int }

func (s convolution) node(t testing.TB) *ir.Node {
	return graphtest.Parse(t, fmt.Sprintf(`graph "g"(%%x: f32[1,%d,%d,%d], %%w: f32[%d,%d,%d,%d], %%b: f32[%d]) {
  %%y: f32[1,%d,%d,%d] = Conv "c" (%%x, %%w, %%b) {pads = [%d, %d, %d, %d], strides = [%d, %d], group = %d}
  return %%y
}
`, s.cin, s.size, s.size, s.cout, s.cin/s.group, s.k, s.k, s.cout, s.cout, s.size/s.stride, s.size/s.stride,
		s.k/2, s.k/2, s.k/2, s.k/2, s.stride, s.stride, s.group)).Nodes[0]
}

// draw returns inputs of a node.
func draw(n *ir.Node, seed uint64) []*tensor.Tensor {
	rng := rand.New(rand.NewPCG(seed, 0))
	var in []*tensor.Tensor
	for _, v := range n.Inputs {
		shape, _ := v.Type.Shape()
		t := tensor.New(tensor.F32, shape...)
		for i := range t.F32s() {
			t.F32s()[i] = float32(rng.NormFloat64())
		}
		in = append(in, t)
	}
	return in
}

func TestKernelsOfTheCPUGiveTheGradientsOfPlainGo(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	blas := cpu.NewBLAS(1)
	defer blas.Close()
	for _, s := range []convolution{{7, 9, 3, 1, 1, 13}, {8, 8, 3, 1, 8, 30}, {8, 16, 5, 2, 8, 14}, {6, 4, 1, 1, 1, 9}, {6, 4, 3, 2, 2, 8}} {
		n := s.node(t)
		in := draw(n, seed)
		var want []*tensor.Tensor
		for _, k := range []op.Kernels{(&calib.Observer{}).Loops(), blas.Kernels()} {
			c := &op.GradContext{Kernels: k, Wants: []bool{true, true, true}}
			conv := n.Op.(op.Forward)
			out, err := conv.Forward(c, in)
			if err != nil {
				t.Fatal(err)
			}
			din, err := conv.Grad(c, in, out, out)
			if err != nil {
				t.Fatal(err)
			}
			have := append(out, din...)
			if want == nil {
				want = have
				continue
			}
			for i, x := range have {
				for j, v := range x.F32s() {
					if w := want[i].F32s()[j]; math.Abs(float64(v-w)) > 1e-4*(1+math.Abs(float64(w))) {
						t.Fatalf("%+v: element %d of tensor %d is %v, want %v", s, j, i, v, w)
					}
				}
			}
		}
	}
}

// BenchmarkConv prints the multiply-adds a second of convolutions of one image, as
// networks have them, and of their gradients, on one thread.
func BenchmarkConv(b *testing.B) {
	blas := cpu.NewBLAS(1)
	defer blas.Close()
	for _, s := range []convolution{
		{64, 16, 1, 1, 1, 55}, {16, 64, 1, 1, 1, 55}, {16, 64, 3, 1, 1, 55}, {512, 64, 1, 1, 1, 13}, {64, 256, 3, 1, 1, 13},
		{24, 144, 1, 1, 1, 56}, {144, 24, 1, 1, 1, 56}, {96, 576, 1, 1, 1, 14}, {960, 160, 1, 1, 1, 7},
		{144, 144, 3, 1, 144, 56}, {144, 144, 3, 2, 144, 56}, {576, 576, 3, 1, 576, 14}, {960, 960, 3, 1, 960, 7},
		{16, 16, 3, 1, 1, 32}, {64, 64, 3, 1, 1, 8},
	} {
		n := s.node(b)
		conv, in := n.Op.(op.Forward), draw(n, 1)
		c := &op.GradContext{Kernels: blas.Kernels(), Wants: []bool{true, true, true}}
		out, err := conv.Forward(c, in)
		if err != nil {
			b.Fatal(err)
		}
		y := []*tensor.Tensor{out[0].Clone()}
		work := 2 * float64(y[0].Len()) * float64(s.cin/s.group*s.k*s.k)
		for _, kind := range []struct {
			name string
			work float64
			run  func() error
		}{
			{"forward", work, func() error { _, err := conv.Forward(c, in); return err }},
			{"grad", 2 * work, func() error { _, err := conv.Grad(c, in, y, y); return err }},
		} {
			b.Run(fmt.Sprintf("%s/%dto%d_%dx%ds%d_at%d", kind.name, s.cin, s.cout, s.k, s.k, s.stride, s.size), func(b *testing.B) {
				for b.Loop() {
					c.Reset()
					if err := kind.run(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(kind.work*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
