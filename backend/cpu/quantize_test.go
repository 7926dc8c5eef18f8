package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"spc/backend"
	"spc/backend/ref"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// The kernel gives the bits of the operator: elements half way between two steps, what is not
// finite, and scales that floats hardly hold included.
func TestDynamicQuantizeLinearIsExact(t *testing.T) {
	const seed = 810
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	inf := float32(math.Inf(1))
	for i := range 300 {
		n := 1 + r.IntN([]int{5, 70, 3 * rangeChunk}[i%3])
		g := graphtest.Parse(t, fmt.Sprintf(`graph "g"(%%x: f32[%d]) {
  %%q: u8[%d], %%s: f32[], %%z: u8[] = DynamicQuantizeLinear "d" (%%x)
  return %%q, %%s, %%z
}`, n, n))
		x := tensor.New(tensor.F32, n)
		size := float32(math.Pow(2, float64(r.IntN(40)-20)))
		if r.IntN(10) == 0 {
			size = []float32{1e-44, 1e-38, 1e-30, 1e32, 1e38, 0}[r.IntN(6)]
		}
		shift := float32(r.IntN(5) - 2)
		for j := range x.F32s() {
			x.F32s()[j] = size * (shift + float32(r.NormFloat64()))
			if i%2 == 0 { // quotients are halves
				x.F32s()[j] = size * float32(r.IntN(511)) / 2
			}
		}
		if i%2 == 0 {
			x.F32s()[r.IntN(n)] = 255 * size
		}
		if r.IntN(8) == 0 {
			x.F32s()[r.IntN(n)] = []float32{inf, -inf, float32(math.NaN())}[r.IntN(3)]
		}
		in := []*tensor.Tensor{x}
		want, err := (&ref.Interpreter{}).Run(context.Background(), g, in)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Device{}.Load(g, backend.Options{Threads: 1 + i%2})
		if err != nil {
			t.Fatal(err)
		}
		got := make([]*tensor.Tensor, 3)
		if err := p.Run(context.Background(), in, got); err != nil {
			t.Fatal(err)
		}
		for k := range want {
			if !bytes.Equal(got[k].Bytes(), want[k].Bytes()) {
				t.Fatalf("%d: output %d of %d elements times %v is %v, want %v", i, k, n, size, got[k].Float64s()[:1], want[k].Float64s()[:1])
			}
		}
		p.Close()
	}
}

// All bytes, signed or not, are what the operators make of them, there and back.
func TestQuantizeLinearOfBytes(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.U8, tensor.I8} {
		for _, zero := range []int{0, 7, 127} {
			g := graphtest.Parse(t, fmt.Sprintf(`graph "g"(%%x: %[1]v[256], %%f: f32[300], %%s: f32[], %%p: %[1]v[1]) {
  %%scale: f32[] = const {0.25}
  %%zero: %[1]v[] = const {%[2]d}
  %%y: f32[256] = DequantizeLinear "d" (%%x, %%scale, %%zero)
  %%q: %[1]v[300] = QuantizeLinear "q" (%%f, %%scale, %%zero)
  %%z: f32[256] = DequantizeLinear "computed" (%%x, %%s, %%p)
  return %%y, %%q, %%z
}`, dt, zero))
			x, f := tensor.New(dt, 256), tensor.New(tensor.F32, 300)
			for i := range x.Bytes() {
				x.Bytes()[i] = byte(i)
			}
			for i := range f.F32s() {
				f.F32s()[i] = float32(i-150) / 8
			}
			f.F32s()[0] = float32(math.NaN())
			in := []*tensor.Tensor{x, f, tensor.Scalar(float32(0.3)), tensor.Ints(zero).To(dt)}
			want, err := (&ref.Interpreter{}).Run(context.Background(), g, in)
			if err != nil {
				t.Fatal(err)
			}
			p, err := Device{}.Load(g, backend.Options{Threads: 2})
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range g.Nodes {
				b, err := binders[n.Op.Kind()](nil, n)
				if err != nil || b == nil {
					t.Errorf("%v: %s has no kernel: %v", dt, n.Name, err)
				}
			}
			got := make([]*tensor.Tensor, 3)
			if err := p.Run(context.Background(), in, got); err != nil {
				t.Fatal(err)
			}
			for k := range want {
				if !bytes.Equal(got[k].Bytes(), want[k].Bytes()) {
					t.Errorf("%v, zero point %d: output %d is %v, want %v", dt, zero, k, got[k].Float64s(), want[k].Float64s())
				}
			}
			p.Close()
		}
	}
}
