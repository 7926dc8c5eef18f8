package emit

import (
	"math/rand/v2"
	"slices"
	"testing"

	"spc/backend/format/ukernel"
)

func TestCodeFinishesRows(t *testing.T) {
	needCode(t)
	const seed = 21
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, m := range []int{1, 29, 30, 31, 64, 65, 129, 200} {
		for _, k := range []int{1, 33, BlockK, BlockK + 1, 3*BlockK + 5} {
			for _, density := range []float64{0, 0.003, 0.2, 1} {
				w := random[uint16](rng, m, k, density)
				s := Shape{Bounds: Bounds(k), Chunk: 32 + rng.IntN(100)}
				c, granules := New(w, s), 1+rng.IntN(4)
				if c == nil {
					t.Fatal("no code")
				}
				x, r0 := floats(rng, BlockK*columns), rng.IntN((m+s.Chunk-1)/s.Chunk)*s.Chunk
				y := floats(rng, (m-r0)*columns)
				last := len(s.Bounds) - 2
				for b := range last {
					c.Mul(b, r0, m, granules, x, y, nil)
				}
				cols := granules * granule
				f := ukernel.Finish{Bias: floats(rng, m-r0), Lo: -0.25, Hi: 0.5, Ldd: cols + rng.IntN(9)}
				f.Dst = floats(rng, (m-r0-1)*f.Ldd+cols+rng.IntN(3))
				before := slices.Clone(f.Dst)
				res := make([]float32, (m-r0)*f.Ldd)
				switch rng.IntN(3) {
				case 0:
					f.Res, f.Ldr = f.Dst, f.Ldd
					copy(res, f.Dst)
				case 1:
					res = floats(rng, len(res))
					f.Res, f.Ldr = res, f.Ldd
				}
				plain := slices.Clone(y)
				c.Mul(last, r0, m, granules, x, plain, nil)
				c.Mul(last, r0, m, granules, x, y, &f)
				for r := range m - r0 {
					for col := range cols {
						v := plain[r*columns+col] + f.Bias[r] + res[r*f.Ldd+col]
						before[r*f.Ldd+col] = min(max(v, f.Lo), f.Hi)
					}
				}
				for i, v := range before {
					if f.Dst[i] != v {
						t.Fatalf("%d x %d, %d granules from row %d, rows %d apart, residual %v: element %d is %g, want %g", m, k, granules, r0, f.Ldd, f.Res != nil, i, f.Dst[i], v)
					}
				}
			}
		}
	}
}

func TestRowsAreFinishedInTheLastBlock(t *testing.T) {
	needCode(t)
	w := random[uint16](rand.New(rand.NewPCG(22, 0)), 4, 2*BlockK, 0.5)
	c := New(w, Shape{Bounds: Bounds(w.K), Chunk: 64})
	x, y := make([]float32, BlockK*columns), make([]float32, 4*columns)
	for what, finish := range map[string]struct {
		block int
		f     ukernel.Finish
	}{
		"the first block": {0, ukernel.Finish{Dst: y, Ldd: columns, Bias: make([]float32, 4)}},
		"a short bias":    {1, ukernel.Finish{Dst: y, Ldd: columns, Bias: make([]float32, 3)}},
		"a short output":  {1, ukernel.Finish{Dst: y[1:], Ldd: columns, Bias: make([]float32, 4)}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			c.Mul(finish.block, 0, 4, 4, x, y, &finish.f)
		}()
	}
}
