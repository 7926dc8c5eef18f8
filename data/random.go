package data

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"spc/ir"
	"spc/ir/tensor"
)

// maxElems bounds the tensors that are made up from a shape alone.
const maxElems = 1 << 28

// Random describes seeded inputs: floats are standard normal, or uniform in
// [Lo, Hi) where Ranged; integers are uniform in a range.
type Random struct {
	Seed   uint64
	Lo, Hi float64
	Ranged bool
}

// ParseRandom reads random:SEED or random:SEED:LO:HI.
func ParseRandom(s string) (Random, error) {
	var r Random
	parts := strings.Split(s, ":")
	ok := parts[0] == "random" && (len(parts) == 2 || len(parts) == 4)
	if ok {
		var err error
		r.Seed, err = strconv.ParseUint(parts[1], 10, 64)
		ok = err == nil
	}
	if ok && len(parts) == 4 {
		var e1, e2 error
		r.Ranged = true
		r.Lo, e1 = strconv.ParseFloat(parts[2], 64)
		r.Hi, e2 = strconv.ParseFloat(parts[3], 64)
		ok = e1 == nil && e2 == nil && r.Lo < r.Hi && r.Lo >= -math.MaxFloat32 && r.Hi <= math.MaxFloat32
	}
	if !ok {
		return Random{}, fmt.Errorf("%q, want random:SEED or random:SEED:LO:HI with LO below HI", s)
	}
	return r, nil
}

// Tensor returns the tensor for the input of that name; the same seed, name, type
// and shape give the same elements. Integers are uniform in [Lo, Hi) where Ranged,
// else in [0, bound); a bound below 1 means 2. Both are cut to what the type holds.
func (r Random) Tensor(name string, dt tensor.DType, shape []int, bound int) (*tensor.Tensor, error) {
	n, err := tensor.Elems(shape)
	if err == nil && n > maxElems {
		err = fmt.Errorf("shape %v has %d elements, want at most %d", shape, n, maxElems)
	}
	if err != nil {
		return nil, fmt.Errorf("random input %s: %w: %w", name, err, ir.ErrInvalid)
	}
	h := fnv.New64a()
	io.WriteString(h, name)
	rng := rand.New(rand.NewPCG(r.Seed, h.Sum64()))
	switch {
	case dt.IsFloat():
		v := make([]float64, n)
		for i := range v {
			if v[i] = rng.NormFloat64(); r.Ranged {
				v[i] = r.Lo + rng.Float64()*(r.Hi-r.Lo)
			}
		}
		return tensor.FromFloat64s(dt, v, shape...), nil
	case dt.IsInt() || dt == tensor.Bool:
		lo, hi, err := r.integers(dt, bound)
		if err != nil {
			return nil, fmt.Errorf("random input %s: %w: %w", name, err, ir.ErrInvalid)
		}
		v := make([]int64, n)
		for i := range v {
			v[i] = lo + rng.Int64N(hi-lo)
		}
		return tensor.FromInt64s(dt, v, shape...), nil
	}
	return nil, fmt.Errorf("random input %s: no random elements of type %v: %w", name, dt, ir.ErrUnsupported)
}

// integers returns the range of the integers of a type.
func (r Random) integers(dt tensor.DType, bound int) (lo, hi int64, err error) {
	if bound < 1 {
		bound = 2
	}
	lo, hi = 0, int64(bound)
	if r.Ranged {
		const most = 1 << 53 // to there float64 holds every integer
		if r.Lo != math.Trunc(r.Lo) || r.Hi != math.Trunc(r.Hi) || r.Lo < -most || r.Hi > most {
			return 0, 0, fmt.Errorf("range %v:%v for %v, want integers", r.Lo, r.Hi, dt)
		}
		lo, hi = int64(r.Lo), int64(r.Hi)
	}
	least, end := int64(0), int64(math.MaxInt64)
	switch bits := dt.Bits(); {
	case dt == tensor.Bool:
		end = 2
	case dt.IsSigned() && bits < 64:
		least, end = -1<<(bits-1), 1<<(bits-1)
	case dt.IsSigned():
		least = math.MinInt64
	case bits < 64:
		end = 1 << bits
	}
	if lo, hi = max(lo, least), min(hi, end); lo >= hi {
		return 0, 0, fmt.Errorf("range %v:%v holds no value of type %v", r.Lo, r.Hi, dt)
	}
	return lo, hi, nil
}
