package quant

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/ir/tensor"
	"spc/passes/calib"
)

// histogram counts elements in two portions.
func histogram(t *testing.T, x []float32) *calib.Histogram {
	t.Helper()
	h := calib.NewHistogram(calib.Range{Lo: slices.Min(x), Hi: slices.Max(x)})
	h.Add(x[len(x)/2:])
	h.Add(x[:len(x)/2])
	if h.Len() != int64(len(x)) {
		t.Fatalf("%d elements counted, want %d", h.Len(), len(x))
	}
	return h
}

// rounding is the sum of the squared errors of x, quantised over r.
func rounding(x []float32, r calib.Range) (sum float64) {
	p := paramsOf(r)
	for _, v := range x {
		q := min(max(math.RoundToEven(float64(v)/float64(p.scale))+float64(p.zero), 0), 255)
		d := (q-float64(p.zero))*float64(p.scale) - float64(v)
		sum += d * d
	}
	return sum
}

// samples are made-up activations.
func samples(seed uint64) map[string][]float32 {
	rng := rand.New(rand.NewPCG(seed, 0))
	out := map[string][]float32{}
	fill := func(name string, f func() float64) {
		x := make([]float32, 2000)
		for i := range x {
			x[i] = float32(f())
		}
		out[name] = x
	}
	fill("normal", rng.NormFloat64)
	fill("behind a Relu", func() float64 { return max(0, rng.NormFloat64()-0.5) })
	fill("heavy tails", func() float64 { return math.Pow(rng.NormFloat64(), 5) })
	fill("one long tail", func() float64 { return math.Exp(2*rng.NormFloat64()) - 0.2 })
	fill("negative", func() float64 { return -rng.ExpFloat64() })
	fill("clipped", func() float64 { return min(max(4*rng.NormFloat64(), 0), 6) })
	fill("far from zero", func() float64 { return 100 + rng.Float64() })
	fill("constant", func() float64 { return 2.5 })
	fill("zeros", func() float64 { return 0 })
	return out
}

func TestRangesHaveTheLeastError(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	for name, x := range samples(seed) {
		h := histogram(t, x)
		got := leastError(h)
		lo, hi := min(slices.Min(x), 0), max(slices.Max(x), 0)
		best, least := calib.Range{}, math.Inf(1)
		const steps = 48
		for i := range steps + 1 {
			for j := range steps + 1 {
				r := calib.Range{Lo: lo * float32(i) / steps, Hi: hi * float32(j) / steps}
				if e := rounding(x, r); e < least {
					best, least = r, e
				}
			}
		}
		if e := rounding(x, got); e > 1.03*least {
			t.Errorf("%s: %v has the error %g, and %v %g", name, got, e, best, least)
		}
	}
}

func TestErrorOfAHistogramIsThatOfItsElements(t *testing.T) {
	const seed = 8
	t.Logf("seed %d", seed)
	for name, x := range samples(seed) {
		h := histogram(t, x)
		for _, f := range []float32{1, 0.7, 0.3} {
			r := calib.Range{Lo: min(h.Lo, 0) * f, Hi: max(h.Hi, 0) * f}
			want, got := rounding(x, r), squaredError(h, r)
			if math.Abs(got-want) > 0.15*want+1e-9 {
				t.Errorf("%s over %v: error %g, want %g", name, r, got, want)
			}
		}
	}
}

func TestPercentilesLeaveOutTheShare(t *testing.T) {
	const seed = 9
	t.Logf("seed %d", seed)
	for name, x := range samples(seed) {
		h := histogram(t, x)
		for _, p := range []float64{90, 99, 100} {
			r := percentile(h, p)
			if p == 100 && r != h.Range {
				t.Errorf("%s: all of them lie in %v, want %v", name, r, h.Range)
			}
			below, above, bin := 0, 0, float32(h.Width())
			for _, v := range x {
				if v < r.Lo {
					below++
				}
				if v > r.Hi {
					above++
				}
			}
			drop := int((100 - p) / 200 * float64(len(x)))
			if below > drop || above > drop {
				t.Errorf("%s, %g%%: %d and %d lie outside %v, want at most %d", name, p, below, above, r, drop)
			}
			// One bin further in there would be more outside.
			for _, v := range x {
				if v < r.Lo+1.01*bin && v >= r.Lo {
					below++
				}
				if v > r.Hi-1.01*bin && v <= r.Hi {
					above++
				}
			}
			if bin > 0 && (below <= drop || above <= drop) {
				t.Errorf("%s, %g%%: %v could be narrower", name, p, r)
			}
		}
	}
}

func TestWeightsAreRoundedRowByRow(t *testing.T) {
	w := tensor.From([]float32{127, 1, -254, 0, 63.5, 0, 2, 0, 4}, 3, 3)
	q, scales := weight(w, 1)
	if want := []float32{1, 0.5, 2}; !slices.Equal(scales, want) {
		t.Errorf("scales of the columns %v, want %v", scales, want)
	}
	if got, want := tensor.Data[int8](q), []int8{127, 2, -127, 0, 127, 0, 2, 0, 2}; !slices.Equal(got, want) {
		t.Errorf("columns in integers %v, want %v", got, want)
	}
}

func TestParseRanges(t *testing.T) {
	for text, want := range map[string]Ranges{
		"minmax": {Method: MinMax}, "mse": {Method: MSE},
		"percentile": {Method: Percentile}, "percentile:99.9": {Percentile, 99.9}, "percentile:100": {Percentile, 100},
	} {
		if got, err := ParseRanges(text); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "max", "minmax:3", "mse:", "percentile:", "percentile:50", "percentile:101", "percentile:NaN"} {
		if _, err := ParseRanges(text); err == nil || !strings.Contains(err.Error(), "want") && !strings.Contains(err.Error(), "no number") {
			t.Errorf("%q: error %v, want one that says what to write", text, err)
		}
	}
}
