package vec

import (
	"math/rand"
	"slices"
	"testing"
)

func TestFinishEqualsReference(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, k *kernels) {
		rng := rand.New(rand.NewSource(seed))
		normal := func() float32 { return float32(rng.NormFloat64()) }
		for _, cols := range []int{1, 7, 8, 9, 15, 16, 17, 32, 33, 63, 64} {
			for _, rows := range []int{1, 2, 5} {
				for variant := range 16 * (1 + acts) {
					byColumn, biased, residual, back := variant&1 > 0, variant&2 > 0, variant&4 > 0, variant&8 > 0
					f, act := k.finishRows, unary(nil)
					if byColumn {
						f = k.finishColumns
					}
					if a := variant/16 - 1; a >= 0 {
						act = [acts]unary{ActSiLU: k.silu, ActHardSwish: k.hardSwish, ActGELU: k.gelu}[a]
						if f = k.finishAct[a].rows; byColumn {
							f = k.finishAct[a].columns
						}
					}
					ldd, ldy, ldr := cols+int(variant), TileStride, cols+3
					dst, y := row((rows-1)*ldd+cols, 1, normal), row((rows-1)*ldy+cols, 2, normal)
					var bias, res []float32
					if biased {
						bias = row(max(rows, cols), 3, normal)
					}
					if residual {
						res = row((rows-1)*ldr+cols, 0, normal)
					}
					want, left := slices.Clone(dst), slices.Clone(y)
					for r := range rows {
						for c := range cols {
							v := y[r*ldy+c]
							if biased && byColumn {
								v += bias[c]
							} else if biased {
								v += bias[r]
							}
							if residual {
								v += res[r*ldr+c]
							}
							want[r*ldd+c] = min(max(v, -0.5), 1.5)
							if act != nil {
								act(want[r*ldd+c:][:1], []float32{v})
							}
							if back {
								left[r*ldy+c] = want[r*ldd+c]
							}
						}
					}
					f(dst, ldd, y, ldy, rows, cols, bias, res, ldr, -0.5, 1.5, back)
					guarded(t, dst)
					if !slices.Equal(y, left) {
						t.Fatalf("%d x %d, variant %d: the tile is %v, want %v", rows, cols, variant, y, left)
					}
					for i, v := range dst {
						if v != want[i] {
							t.Fatalf("%d x %d, variant %d: element %d is %v, want %v", rows, cols, variant, i, v, want[i])
						}
					}
				}
			}
		}
	})
}

func TestGatherCopiesItsChunksOnly(t *testing.T) {
	const seed = 6
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, k *kernels) {
		rng := rand.New(rand.NewSource(seed))
		for range 200 {
			src := row(300, rng.Intn(3), func() float32 { return float32(rng.NormFloat64()) })
			offset := make([]int, 1+rng.Intn(5))
			for i := range offset {
				offset[i] = rng.Intn(200)
			}
			var chunks []Chunk
			for at := rng.Intn(4); at < TileStride; at += rng.Intn(3) {
				c := Chunk{Dst: at, Src: rng.Intn(300 - 199 - TileStride), N: min(1+rng.Intn(k.chunk), TileStride-at)}
				chunks = append(chunks, c)
				at += c.N
			}
			dst := row(len(offset)*TileStride, rng.Intn(2), func() float32 { return guard })
			want := slices.Clone(dst)
			for r, o := range offset {
				for _, c := range chunks {
					copy(want[r*TileStride+c.Dst:][:c.N], src[o+c.Src:])
				}
			}
			k.gather(dst, src, offset, chunks)
			guarded(t, dst)
			if !slices.Equal(dst, want) {
				t.Fatalf("%d rows at %v, %v: got %v, want %v", len(offset), offset, chunks, dst, want)
			}
		}
	})
}

func TestPadRowsCopiesBetweenZeros(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, k *kernels) {
		defer func(b *kernels) { best = b }(best)
		best = k
		rng := rand.New(rand.NewSource(seed))
		for _, n := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 15, 16, 17, 31, 32, 33, 56} {
			for variant := range 24 {
				rows, step, left, right := 1+variant%4, 1+variant%3, rng.Intn(4), rng.Intn(19)
				if variant >= 20 {
					left = 16
				}
				lds := n*step + rng.Intn(3)
				src := row(max(0, (rows-1)*lds+(n-1)*step+1+variant%2), variant%5, func() float32 { return float32(rng.NormFloat64()) })
				dst := row(rows*(left+n+right), variant%3, func() float32 { return guard })
				want := slices.Clone(dst)
				padRowsGo(want, rows, left, n, right, src, lds, step)
				PadRows(dst, rows, left, n, right, src, lds, step)
				guarded(t, dst)
				if !slices.Equal(dst, want) {
					t.Fatalf("%d rows of %d + %d + %d, step %d: got %v, want %v", rows, left, n, right, step, dst, want)
				}
				for i, v := range want {
					r, c := i/(left+n+right), i%(left+n+right)-left
					if c >= 0 && c < n && v != src[r*lds+c*step] || (c < 0 || c >= n) && v != 0 {
						t.Fatalf("row %d column %d is %v", r, c, v)
					}
				}
			}
		}
	})
}

func TestGatherRefusesWhatDoesNotFit(t *testing.T) {
	dst, src := make([]float32, 2*TileStride), make([]float32, 20)
	ok := Chunk{Dst: TileStride - 2, Src: 3, N: 2}
	Gather(dst, src, []int{0, 15}, []Chunk{ok})
	for name, f := range map[string]func(){
		"source":       func() { Gather(dst, src, []int{0, 16}, []Chunk{ok}) },
		"before":       func() { Gather(dst, src, []int{-4, 15}, []Chunk{ok}) },
		"panel":        func() { Gather(dst[1:], src, []int{0, 15}, []Chunk{ok}) },
		"column":       func() { Gather(dst, src, []int{0}, []Chunk{{Dst: TileStride - 1, N: 2}}) },
		"empty chunk":  func() { Gather(dst, src, []int{0}, []Chunk{{}}) },
		"long chunk":   func() { Gather(dst, make([]float32, 199), []int{0}, []Chunk{{N: best.chunk + 1}}) },
		"left column":  func() { Gather(dst, src, []int{0}, []Chunk{{Dst: -1, N: 1}}) },
		"padded":       func() { PadRows(dst, 3, 1, 40, 2, make([]float32, 200), 40, 1) },
		"padding":      func() { PadRows(dst, 2, 1, 4, 2, src[:9], 6, 1) },
		"finish rows":  func() { FinishRows(dst, 4, src, 4, 6, 4, nil, nil, 0, 0, 1) },
		"finish bias":  func() { FinishColumns(dst, 4, src, 4, 5, 4, src[:3], nil, 0, 0, 1) },
		"finish res":   func() { FinishRows(dst, 4, src, 4, 5, 4, nil, src[:19], 4, 0, 1) },
		"finish dst":   func() { FinishRows(dst[:19], 4, src, 4, 5, 4, nil, nil, 0, 0, 1) },
		"narrow strip": func() { FinishRows(dst, 3, src, 4, 5, 4, nil, nil, 0, 0, 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("wrong %s is accepted", name)
				}
			}()
			f()
		}()
	}
}
