package quant

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"spc/ir/option"
	"spc/passes/calib"
)

// Ranges says which part of the range that an activation had on the samples its 256
// steps span. Elements outside saturate. The zero value is MSE.
type Ranges struct {
	Method     RangeMethod
	Percentile float64 // of Percentile, above 50 and at most 100; 0 is 99.99
}

// RangeMethod is a way of finding that part.
type RangeMethod string

// The methods.
const (
	// MinMax spans all of it.
	MinMax RangeMethod = "minmax"
	// Percentile leaves out as many elements on either side that so many percent
	// are left.
	Percentile RangeMethod = "percentile"
	// MSE makes the mean of the squared errors of rounding and saturating least.
	MSE RangeMethod = "mse"
)

// defaultPercentile is that of "percentile".
const defaultPercentile = 99.99

// ParseRanges reads minmax, percentile, percentile:P or mse.
func ParseRanges(s string) (Ranges, error) {
	name, arg, has := strings.Cut(s, ":")
	r := Ranges{Method: RangeMethod(name)}
	if has && r.Method == Percentile {
		var err error
		if r.Percentile, err = strconv.ParseFloat(arg, 64); err != nil || r.Percentile == 0 {
			return Ranges{}, option.Errorf("%v %q: want a percentile above 50 and at most 100, as in percentile:99.9", option.Ranges, s)
		}
		has = false
	}
	if s == "" || has && (r.Method == MinMax || r.Method == MSE) {
		return Ranges{}, option.Errorf("%v %q: want minmax, percentile, percentile:P or mse", option.Ranges, s)
	}
	if err := r.Check(); err != nil {
		return Ranges{}, err
	}
	return r, nil
}

// Check returns an error unless the ranges are such.
func (r Ranges) Check() error {
	switch {
	case r.Method != "" && r.Method != MinMax && r.Method != MSE && r.Method != Percentile:
		return option.Errorf("%v %q: want minmax, percentile, percentile:P or mse", option.Ranges, r.Method)
	case r.Method == Percentile && r.Percentile != 0 && !(r.Percentile > 50 && r.Percentile <= 100):
		return option.Errorf("%v %v: want a percentile above 50 and at most 100, as in percentile:99.9", option.Ranges, r)
	case r.Method != Percentile && r.Percentile != 0:
		return option.Errorf("%v %v: %s takes no percentile", option.Ranges, r, r)
	}
	return nil
}

// String is what ParseRanges reads.
func (r Ranges) String() string {
	switch {
	case r.Method == "":
		return string(MSE)
	case r.Method == Percentile && r.Percentile != 0:
		return fmt.Sprintf("%s:%v", r.Method, r.Percentile)
	}
	return string(r.Method)
}

// of returns the range over which a value with these elements is to be quantised.
func (r Ranges) of(h *calib.Histogram) calib.Range {
	switch r.Method {
	case MinMax:
		return h.Range
	case Percentile:
		return percentile(h, cmp.Or(r.Percentile, defaultPercentile))
	}
	return leastError(h)
}

// percentile returns the range between the percentiles (100-p)/2 and (100+p)/2, to
// the edge of a bin outside.
func percentile(h *calib.Histogram, p float64) calib.Range {
	drop := int64((100 - p) / 200 * float64(h.Len()))
	first, last := 0, calib.Bins-1
	// Zeros are counted in the bin that they lie in.
	zero := -1
	if w := h.Width(); w > 0 && h.Lo <= 0 && h.Hi >= 0 {
		zero = min(int(-float64(h.Lo)/w), calib.Bins-1)
	}
	count := func(bin int) int64 {
		if bin == zero {
			return h.Count[bin] + h.Zeros
		}
		return h.Count[bin]
	}
	for n := count(first); n <= drop && first < last; n += count(first) {
		first++
	}
	for n := count(last); n <= drop && last > first; n += count(last) {
		last--
	}
	return edges(h, first, last+1)
}

// edges returns the range from the lower edge of a bin to that of another.
func edges(h *calib.Histogram, from, to int) calib.Range {
	w := h.Width()
	r := calib.Range{Lo: float32(float64(h.Lo) + float64(from)*w), Hi: float32(float64(h.Lo) + float64(to)*w)}
	if to == calib.Bins {
		r.Hi = h.Hi
	}
	return r
}

// rangeSteps is the number of parts into which each side of a range is divided to
// look for the least error.
const rangeSteps = 128

// leastError returns the range, within that of h and with 0 in it, over which
// rounding and saturating make the least squared error. Both sides are searched in
// turn, the other one held, until neither moves.
func leastError(h *calib.Histogram) calib.Range {
	lo, hi := min(float64(h.Lo), 0), max(float64(h.Hi), 0)
	best := calib.Range{Lo: float32(lo), Hi: float32(hi)}
	least := squaredError(h, best)
	for range 8 {
		before := best
		for i := 1; i <= rangeSteps; i++ {
			f := float64(i) / rangeSteps
			for _, r := range []calib.Range{{Lo: float32(lo * f), Hi: best.Hi}, {Lo: best.Lo, Hi: float32(hi * f)}} {
				if e := squaredError(h, r); e < least {
					best, least = r, e
				}
			}
		}
		if best == before {
			break
		}
	}
	return best
}

// squaredError is the sum of the squared errors that the elements of h have when
// they are quantised over r, the elements of a bin being spread evenly. Zeros have
// none.
func squaredError(h *calib.Histogram, r calib.Range) float64 {
	p := paramsOf(r)
	step, w := float64(p.scale), h.Width()
	at := func(x float64) float64 { return x/step + float64(p.zero) } // in steps
	if w == 0 {
		u := at(float64(h.Lo))
		d := u - min(max(math.RoundToEven(u), 0), 255)
		return float64(h.Len()-h.Zeros) * d * d * step * step
	}
	sum := 0.0
	below := sawtooth(at(float64(h.Lo)))
	for i, n := range h.Count {
		above := sawtooth(at(float64(h.Lo) + float64(i+1)*w))
		if n > 0 {
			sum += float64(n) * (above - below)
		}
		below = above
	}
	return sum * step * step * step / w
}

// sawtooth is the integral from 0 to u of the squared distance to the nearest of
// the whole numbers 0..255.
func sawtooth(u float64) float64 {
	cube := func(d float64) float64 { return d * d * d / 3 }
	if u <= 0 {
		return cube(u)
	}
	n := min(math.Floor(u+0.5), 255)
	return n/12 + cube(u-n)
}
