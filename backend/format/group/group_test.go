package group

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"spc/backend"
	"spc/ir/tensor"
)

// shape is one of weights to draw.
type shape struct {
	m, k, bits, block int
	half, zeros       bool
	density           float64 // of a bitmap; 0 where all are stored
}

func (s shape) String() string {
	return fmt.Sprintf("%d x %d, %d bits, groups of %d, f16 scales %v, zeros %v, density %v", s.m, s.k, s.bits, s.block, s.half, s.zeros, s.density)
}

// draw draws a weight, and returns its elements, too, which it computes of what it drew.
func draw(rng *rand.Rand, s shape) (*Bitmap, []float64) {
	w := &Bitmap{Weight: Weight{M: s.m, K: s.k, Bits: s.bits, Block: s.block, Blocks: (s.k + s.block - 1) / s.block}, Words: (s.k + 63) / 64}
	w.Scales = tensor.New(tensor.F32, s.m, w.Blocks)
	for i := range w.Scales.F32s() {
		w.Scales.F32s()[i] = float32(math.Ldexp(0.5+rng.Float64(), rng.IntN(16)-12))
	}
	if s.half {
		w.Scales = w.Scales.To(tensor.F16)
	}
	if s.zeros {
		w.Zeros = make([]int8, s.m*w.Blocks)
		for i := range w.Zeros {
			w.Zeros[i] = int8(code(rng, s.bits))
		}
	}
	if s.density > 0 {
		w.Set = make([]uint64, s.m*w.Words)
	}
	elements, scales := make([]float64, s.m*s.k), w.Scales.To(tensor.F32).F32s()
	for r := range s.m {
		row := w.row(rng, s, r, elements[r*s.k:(r+1)*s.k], scales[r*w.Blocks:])
		w.Codes = append(w.Codes, row...)
	}
	if s.density > 0 {
		for range Beyond * s.bits / 8 {
			w.Codes = append(w.Codes, byte(rng.Uint32())) // what lies behind does not matter
		}
	}
	return w, elements
}

// row draws the codes of a row, and sets its elements and bits.
func (w *Bitmap) row(rng *rand.Rand, s shape, r int, elements []float64, scales []float32) []byte {
	var codes []int
	for c := range (s.k + Chunk - 1) / Chunk * Chunk {
		b := min(c, s.k-1) / s.block
		zero, q := 0, code(rng, s.bits)
		if s.zeros {
			zero = int(w.Zeros[r*w.Blocks+b])
		}
		switch {
		case c >= s.k:
			q = zero
		case s.density == 0:
		case rng.Float64() < s.density && r%5 != 3:
			w.Set[r*w.Words+c/64] |= 1 << (c % 64)
		default:
			continue
		}
		if c < s.k {
			elements[c] = float64(q-zero) * float64(scales[b])
		}
		if c < s.k || s.density == 0 {
			codes = append(codes, q)
		}
	}
	out := make([]byte, (len(codes)*s.bits+7)/8)
	for i, q := range codes {
		switch {
		case s.bits == 8:
			out[i] = byte(q)
		case s.density > 0:
			out[i/2] |= byte(q+8) << (i % 2 * 4)
		default:
			out[i/32*16+i%16] |= byte(q+8) << (i % 32 / 16 * 4)
		}
	}
	return out
}

// view is what kernels are bound to.
func (w *Bitmap) view() (*matrix, error) {
	if w.Set == nil {
		return w.dense()
	}
	return w.matrix()
}

func code(rng *rand.Rand, bits int) int { return rng.IntN(1<<bits) - 1<<(bits-1) }

// shapes are those of all forms: of few rows and of many, of few columns and more than any block has, in groups that are chunks, several or
// none, that end with a block, within one, or behind all.
func shapes(rng *rand.Rand) (all []shape) {
	for _, bits := range []int{4, 8} {
		for _, block := range []int{32, 64, 512, 4096, 16, 24, 96} {
			for _, half := range []bool{false, true} {
				for form := range 4 {
					s := shape{m: 1 + rng.IntN(21), k: 1 + rng.IntN(700), bits: bits, block: block, half: half}
					switch form {
					case 1:
						s.zeros = true
					case 2:
						s.density = 0.3
					case 3:
						s.density, s.k = 1, 1+rng.IntN(2200)
					}
					all = append(all, s)
				}
			}
		}
	}
	return all
}

// Kernels of every instruction set compute what float64 does, of all rows and of some, in all the ways that there are.
func TestKernelsOfEveryInstructionSet(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, s := range shapes(rng) {
		w, elements := draw(rng, s)
		m, err := w.view()
		if err != nil {
			t.Fatalf("%v: %v", s, err)
		}
		for _, kern := range available {
			k := bind(m, kern)
			for _, n := range []int{1, 2, 5} {
				checkTokens(t, rng, k, s, elements, n)
			}
			checkPanel(t, rng, k, s, elements)
		}
	}
}

// product is what kernels of f32 compute, and how far off they may be.
func product(elements, x []float64) (want, off float64) {
	for i, v := range elements {
		want, off = want+v*x[i], off+math.Abs(v*x[i])
	}
	return want, off*2e-6 + 1e-30
}

// column draws a column, the mean of whose elements is not 0.
func column(rng *rand.Rand, k int) (x []float32, wide []float64) {
	for range k {
		x = append(x, rng.Float32()-0.25)
		wide = append(wide, float64(x[len(x)-1]))
	}
	return x, wide
}

func checkTokens(t *testing.T, rng *rand.Rand, k few, s shape, elements []float64, n int) {
	t.Helper()
	var xs []float32
	var wide [][]float64
	for range n {
		x, d := column(rng, s.k)
		xs, wide = append(xs, x...), append(wide, d)
	}
	r0 := rng.IntN(s.m)
	y := make([]float32, n*s.m)
	k.Tokens(y, xs, n, r0, s.m, nil)
	vec := make([]float32, s.m-r0+1)
	vec[s.m-r0] = 42 // behind the rows
	for c := range n {
		k.Vec(vec[:s.m-r0], xs[c*s.k:][:s.k], r0, s.m)
		for r := range s.m {
			want, off := product(elements[r*s.k:(r+1)*s.k], wide[c])
			if r < r0 {
				want, off = 0, 0
			}
			got := float64(y[c*s.m+r])
			if !(math.Abs(got-want) <= off) {
				t.Fatalf("%v by %s: row %d, column %d of %d is %v, want %v", s, k.Name(), r, c, n, got, want)
			}
			if got := float64(vec[max(0, r-r0)]); r >= r0 && !(math.Abs(got-want) <= 2*off) {
				t.Fatalf("%v by %s: row %d of a column is %v, want %v", s, k.Name(), r, got, want)
			}
		}
	}
	if vec[s.m-r0] != 42 {
		t.Fatalf("%v by %s: it writes behind the last row", s, k.Name())
	}
}

func checkPanel(t *testing.T, rng *rand.Rand, k few, s shape, elements []float64) {
	t.Helper()
	const n = 21 // in two granules
	x, wide := make([]float32, s.k*backend.Panel), make([][]float64, n)
	for c := range n {
		var col []float32
		col, wide[c] = column(rng, s.k)
		for i, v := range col {
			x[i*backend.Panel+c] = v
		}
	}
	r0 := rng.IntN(s.m) / k.Tile() * k.Tile()
	y := make([]float32, (s.m-r0+k.Tile()-1)/k.Tile()*k.Tile()*backend.Panel)
	panels := k.Sized(n).(*weight)
	bounds := panels.Bounds()
	for b := range len(bounds) - 1 {
		panels.Panel(y, x[bounds[b]*backend.Panel:], b, 2, r0, s.m)
	}
	for r := r0; r < s.m; r++ {
		for c := range n {
			want, off := product(elements[r*s.k:(r+1)*s.k], wide[c])
			if got := float64(y[(r-r0)*backend.Panel+c]); !(math.Abs(got-want) <= off) {
				t.Fatalf("%v by %s: row %d, column %d of a panel is %v, want %v", s, k.Name(), r, c, got, want)
			}
		}
	}
}

// Floats are the elements, rounded once, whatever makes them, up to the ends of what scales may be.
func TestFloatsAreElements(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, s := range shapes(rng) {
		w, elements := draw(rng, s)
		if !s.half {
			for i := range w.Scales.F32s() {
				factor := math.Ldexp(1, rng.IntN(200)-110)
				v := float32(float64(w.Scales.F32s()[i]) * factor)
				w.Scales.F32s()[i] = v
				groups := (s.k + s.block - 1) / s.block
				for c := i % groups * s.block; c < min(s.k, (i%groups+1)*s.block); c++ {
					at := i/groups*s.k + c
					elements[at] = elements[at] * factor
				}
			}
		}
		m, err := w.view()
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]float32, blockColumns)
		for _, kern := range available {
			k := bind(m, kern)
			for r := range s.m {
				for c := 0; c < s.k; c += blockColumns {
					c1 := min(s.k, c+blockColumns)
					k.floats(new(scratch), dst, r, c, c1, k.valueAt(r, c))
					for i, got := range dst[:c1-c] {
						if want := float32(elements[r*s.k+c+i]); got != want {
							t.Fatalf("%v by %s: element %d of row %d is %v, want %v", s, k.Name(), c+i, r, got, want)
						}
					}
				}
			}
		}
	}
}

// Rows of scales that are far apart do not disturb each other.
func TestScalesOfAnySize(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, exponent := range []int{-125, -60, 60, 100} {
		for form := range 3 {
			s := shape{m: 7, k: 200, bits: 4 << (form % 2), block: 32, density: []float64{0, 0, 0.5}[form], zeros: form == 1}
			w, elements := draw(rng, s)
			for i := range w.Scales.F32s() {
				w.Scales.F32s()[i] = float32(math.Ldexp(float64(w.Scales.F32s()[i]), exponent))
			}
			for i := range elements {
				elements[i] = math.Ldexp(elements[i], exponent)
			}
			m, err := w.view()
			if err != nil {
				t.Fatal(err)
			}
			x, wide := column(rng, s.k)
			y := make([]float32, s.m)
			for _, kern := range available {
				bind(m, kern).Vec(y, x, 0, s.m)
				for r := range s.m {
					want, off := product(elements[r*s.k:(r+1)*s.k], wide)
					off += 64 * s0(exponent)
					if !(math.Abs(float64(y[r])-want) <= off) {
						t.Errorf("%v by %s, scales times 2^%d: row %d is %v, want %v", s, kern.isa, exponent, r, y[r], want)
					}
				}
			}
		}
	}
}

// s0 is what a sum may lose where scales are next to the least floats.
func s0(exponent int) float64 {
	if exponent < -100 {
		return 0x1p-149
	}
	return 0
}

func TestKernelRefusesPartsOfOtherSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, s := range []shape{{m: 5, k: 70, bits: 4, block: 32, zeros: true}, {m: 5, k: 70, bits: 8, block: 32}, {m: 5, k: 70, bits: 4, block: 64, half: true, density: 0.5}} {
		for _, c := range []struct {
			name   string
			change func(w *Bitmap)
		}{
			{"rows", func(w *Bitmap) { w.M++ }},
			{"no columns", func(w *Bitmap) { w.K = 0 }},
			{"columns", func(w *Bitmap) { w.K += 64 }},
			{"many columns", func(w *Bitmap) { w.K = math.MaxInt }},
			{"many rows", func(w *Bitmap) { w.M = 1 << 62 }},
			{"blocks", func(w *Bitmap) { w.Block = 8 }},
			{"no blocks", func(w *Bitmap) { w.Block = 0 }},
			{"bits", func(w *Bitmap) { w.Bits = 3 }},
			{"other bits", func(w *Bitmap) { w.Bits = 12 - w.Bits }},
			{"scales", func(w *Bitmap) { w.Scales = tensor.New(tensor.F16, 5, 4) }},
			{"scales of i8", func(w *Bitmap) { w.Scales = tensor.New(tensor.I8, w.Scales.Shape()...) }},
			{"no scales", func(w *Bitmap) { w.Scales = nil }},
			{"zeros", func(w *Bitmap) { w.Zeros = make([]int8, 3) }},
			{"codes", func(w *Bitmap) { w.Codes = w.Codes[:len(w.Codes)-1] }},
			{"a bit behind", func(w *Bitmap) { w.Set = append([]uint64{1, 1 << 6}, w.Set[min(2, len(w.Set)):]...) }},
			{"bits that are set", func(w *Bitmap) { w.Set = append([]uint64{^uint64(0)}, w.Set[min(1, len(w.Set)):]...) }},
		} {
			w, _ := draw(rng, s)
			c.change(w)
			if _, err := w.view(); err == nil {
				t.Errorf("%v with other %s is accepted", s, c.name)
			} else if strings.Contains(err.Error(), "\n") {
				t.Errorf("%v with other %s: %v", s, c.name, err)
			}
		}
	}
}
