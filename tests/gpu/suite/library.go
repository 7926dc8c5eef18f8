package suite

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spc/backend/cuda"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Library tests that a device's library gives products and the epilogues that it is asked for,
// however the operands lie, alone and captured.
func Library(t *testing.T, d cuda.Driver) {
	lib, err := d.Library()
	if err != nil {
		t.Skipf("skipped: no library of products: %v", err)
	}
	defer giveBack(t, lib)
	acts := []struct {
		epilogue op.Epilogue
		act      cuda.Activation
	}{{op.Epilogue{}, cuda.NoActivation}, {op.Epilogue{Act: "Relu"}, cuda.Relu}, {op.Epilogue{Act: "Gelu", ActArgs: []float32{1}}, cuda.GeluTanh}}
	for _, dt := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
		t.Run(dt.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(dt)))
			planned := 0
			for i := range 60 {
				size := func() int { return []int{1, 2, 8, 31, 64, 130}[rng.IntN(6)] }
				p := newProduct(rng, dt, draw(rng, dt, size(), size()).To(tensor.F32), size())
				p.alpha = slices.Repeat([]float32{[]float32{1, -0.5}[rng.IntN(2)]}, p.m)
				if p.bias != nil {
					p.bias = draw(rng, dt, p.m).To(tensor.F32).F32s()
				}
				if !p.tokens && p.n > 1 {
					p.bias = nil
				}
				a := acts[rng.IntN(len(acts))]
				if dt == tensor.F32 && a.act == cuda.GeluTanh {
					a = acts[1]
				}
				p.ep, p.narrow = a.epilogue, dt != tensor.F32
				p.reference()
				out := dt
				if i%4 == 0 { // sums, for a kernel to finish
					out, p.bias, p.res, p.ep, a.act = tensor.F32, nil, nil, op.Epilogue{}, cuda.NoActivation
					p.reference()
				}
				y, err := p.multiply(d, lib, a.act, out, i%3 == 0, p.batch == 2)
				if err == errNoPlan {
					continue
				}
				planned++
				if err == nil {
					err = p.check(y)
				}
				if err != nil {
					t.Fatalf("product %d: %v of %v: %v", i, p, out, err)
				}
			}
			if planned < 40 {
				t.Errorf("the library has a way for %d products", planned)
			}
		})
	}
	t.Run("NaN", func(t *testing.T) { // is one after Relu, too
		rng := rand.New(rand.NewPCG(seed, 1))
		p := newProduct(rng, tensor.F16, draw(rng, tensor.F16, 64, 64).To(tensor.F32), 64)
		p.w.F32s()[0], p.tokens, p.bias, p.res, p.alpha, p.ep = float32(math.NaN()), true, nil, nil, slices.Repeat([]float32{1}, 64), op.Epilogue{Act: "Relu"}
		y, err := p.multiply(d, lib, cuda.Relu, tensor.F16, false, false)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range y.Float64s() {
			if math.IsNaN(v) != (i%64 == 0) {
				t.Fatalf("element %d is %v", i, v)
			}
		}
	})
}

// SparseLibrary tests that a device's library for 2:4 weights gives their products and epilogues.
func SparseLibrary(t *testing.T, d cuda.Driver) {
	lib, err := d.SparseLibrary()
	if err != nil {
		t.Skipf("skipped: no library of products of 2:4 weights: %v", err)
	}
	defer giveBack(t, lib)
	for _, dt := range []tensor.DType{tensor.F16, tensor.BF16} {
		t.Run(dt.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(dt)))
			planned := 0
			for i := range 40 {
				size := func(step int) int { return step * (1 + rng.IntN(9)) }
				w := draw(rng, dt, size(16), size(16)).To(tensor.F32)
				halve(rng, w)
				p := newProduct(rng, dt, w, size(8))
				p.alpha = slices.Repeat([]float32{[]float32{1, -0.5}[rng.IntN(2)]}, p.m)
				if p.bias != nil {
					p.bias = draw(rng, dt, p.m).To(tensor.F32).F32s()
				}
				act := cuda.NoActivation
				if p.ep = (op.Epilogue{}); i%2 == 0 {
					p.ep.Act, act = "Relu", cuda.Relu
				}
				p.reference()
				y, err := p.multiply(d, lib, act, dt, i%3 == 0, false)
				if err == errNoPlan {
					continue
				}
				planned++
				if err == nil {
					err = p.check(y)
				}
				if err != nil {
					t.Fatalf("product %d: %v: %v", i, p, err)
				}
			}
			if planned < 30 {
				t.Errorf("the library has a way for %d products", planned)
			}
		})
	}
}

func giveBack(t *testing.T, lib cuda.Library) {
	if err := lib.Close(); err != nil {
		t.Error(err)
	}
}

var errNoPlan = errors.New("the library has no way")

// multiply has a library compute a product of W, or of W as its transposed lies, and returns Y.
func (p *product) multiply(d cuda.Driver, lib cuda.Library, act cuda.Activation, out tensor.DType, captured, flipped bool) (y *tensor.Tensor, err error) {
	s, err := d.Stream()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	y = tensor.New(out, p.batch, p.m, p.n)
	for i := range y.Bytes() {
		y.Bytes()[i] = 0xff
	}
	w, ws := p.w.To(p.dt), [3]int{p.k, 1, 0}
	if flipped { // not the weight's rows, but its columns lie together
		w, ws = w.Permute(1, 0), [3]int{1, p.m, 0}
	}
	var at [4]cuda.Pointer // W, X, the residual and Y
	for i, from := range []*tensor.Tensor{w, p.x, p.res, y} {
		if from == nil {
			continue
		}
		if at[i], err = d.Alloc(len(from.Bytes())); err != nil {
			return nil, err
		}
		defer func(p cuda.Pointer) { err = errors.Join(err, d.Free(p)) }(at[i])
		if err := s.Upload(at[i], from.Bytes()); err != nil {
			return nil, err
		}
	}
	q := cuda.Product{
		DType: p.dt, Out: out, M: p.m, K: p.k, N: p.n, Batch: p.batch, W: ws, X: p.strides(p.k), Y: p.strides(p.m),
		Alpha: p.alpha[0], Residual: p.res != nil, Act: act, Workspace: 1 << 20,
	}
	if p.bias != nil {
		b := tensor.From(p.bias, p.m).To(out).Bytes()
		if q.Bias, err = d.Alloc(len(b)); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, d.Free(q.Bias)) }()
		if err := s.Upload(q.Bias, b); err != nil {
			return nil, err
		}
	}
	plan, err := lib.Plan(q)
	if err != nil {
		return nil, err
	}
	if plan == nil {
		return nil, errNoPlan
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	var space cuda.Pointer
	if n := plan.Workspace(); n > q.Workspace {
		return nil, fmt.Errorf("a workspace of %d bytes, want at most %d", n, q.Workspace)
	} else if n > 0 {
		if space, err = d.Alloc(n); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, d.Free(space)) }()
	}
	if n := plan.Compressed(); n > 0 {
		var to cuda.Pointer
		if to, err = d.Alloc(n); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, d.Free(to)) }()
		if err := s.Compress(plan, to, at[0]); err != nil {
			return nil, err
		}
		at[0] = to
	}
	run := func() error { return s.Multiply(plan, at[0], at[1], at[2], at[3], space) }
	if err := run(); err != nil {
		return nil, err
	}
	if captured { // and again, so that the graph's result is what is seen
		g, err := s.Capture(run)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(s.Upload(at[3], y.Bytes()), g.Launch(), s.Sync(), g.Close()); err != nil {
			return nil, err
		}
	}
	return y, s.Download(y.Bytes(), at[3])
}
