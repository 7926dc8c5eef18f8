package spc_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"spc"
	"spc/ir/tensor"
	"spc/tests/archs"
)

// longRows draws a weight [m,...] that has vectors of 4 rows in an eighth of its places, and one row in 24 of which nothing is zero.
func longRows(rng *rand.Rand, dims ...int) *tensor.Tensor {
	w := tensor.New(tensor.F32, dims...)
	row := w.Len() / dims[0]
	var used []bool
	for i := range dims[0] {
		if i%4 == 0 {
			used = make([]bool, row)
			for range row / 8 {
				used[rng.IntN(row)] = true
			}
		}
		for c := range row {
			if used[c] || i%24 == 11 {
				w.F32s()[i*row+c] = float32(rng.NormFloat64() / 8)
			}
		}
	}
	return w
}

// A model whose weights have a few long rows computes with them in hyb what the interpreter does, on any number of threads, of
// convolutions that are placed in images, with what follows products within them, and of few and many columns.
func TestWeightsWithAFewLongRowsCompute(t *testing.T) {
	thorough(t)
	const seed = 5
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	b := archs.New("longrows", 17)
	weight := func(name string, dims ...int) string {
		return b.Initializer(name, longRows(rng, dims...).ToProto(name))
	}
	x := b.Input("x", archs.Float32, "n", 16, 9, 14)
	pads := archs.Attrs{"pads": []int{1, 1, 1, 1}}
	y := b.Node("Relu", nil, b.Node("Conv", pads, x, weight("first", 48, 16, 3, 3)))
	z := b.Node("Relu", nil, b.Node("Add", nil, y, b.Node("Conv", nil, y, weight("point", 48, 48, 1, 1))))
	z = b.Node("Conv", archs.Attrs{"pads": []int{1, 1, 1, 1}, "strides": []int{2, 2}}, z, weight("second", 96, 48, 3, 3))
	v := b.Node("Flatten", nil, b.Node("GlobalAveragePool", nil, z))
	out := b.Node("Gemm", archs.Attrs{"transB": 1}, v, weight("fc", 120, 96), b.Weight("bias", archs.Near(0), 120))
	b.Output("y", out, archs.Float32, "n", 120)
	model, err := b.Model(seed)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []tensor.DType{tensor.Undefined, tensor.BF16} {
		for _, threads := range []int{1, 3} {
			t.Run(fmt.Sprintf("%v/%d", q, threads), func(t *testing.T) {
				m, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: model.Bytes(), Format: "hyb", Quantize: spc.QuantizeOptions{Type: q}, Run: spc.RunOptions{Threads: threads}})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				for _, l := range m.Explain().Layers {
					if l.Format != "hyb" {
						t.Errorf("%s is stored as %s: %s", l.Name, l.Format, l.Reason)
					}
				}
				var file bytes.Buffer
				if err := m.Write(&file); err != nil {
					t.Fatal(err)
				}
				r, err := spc.Read(file.Bytes(), spc.RunOptions{Threads: threads})
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				for _, n := range []int{1, 2, 7, 40} {
					in := randomInputs(r, uint64(n), n)
					want, err := m.Interpret(context.Background(), in)
					if err != nil {
						t.Fatal(err)
					}
					got, err := r.Run(context.Background(), in)
					if err != nil {
						t.Fatal(err)
					}
					if e := relL2(t, got, want); !(e < 1e-5) {
						t.Errorf("%d images: relative l2 error %g", n, e)
					}
				}
			})
		}
	}
}
