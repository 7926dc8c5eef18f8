package recon

import (
	"math"
	"math/rand/v2"

	"spc/ir/tensor"
)

// augment writes another example of what x, a sample of a model's input, is an example
// of: an image [1,c,h,w], mirrored every other time and moved by up to an eighth of
// its size with its edges continued; tokens [1,t] up to a place, and those of other
// behind it. Anything else stays.
func augment(dst, x, other *tensor.Tensor, rng *rand.Rand) {
	switch {
	case x.DType() == tensor.F32 && x.Rank() == 4 && x.Dim(0) == 1 && x.Dim(1) <= 4:
		h, w := x.Dim(2), x.Dim(3)
		mirror := rng.IntN(2) == 1
		dy, dx := rng.IntN(h/4+1)-h/8, rng.IntN(w/4+1)-w/8
		from, to := x.F32s(), dst.F32s()
		for c := range x.Dim(1) {
			for i := range h {
				src := from[(c*h+min(max(i+dy, 0), h-1))*w:][:w]
				row := to[(c*h+i)*w:][:w]
				for j := range row {
					k := min(max(j+dx, 0), w-1)
					if mirror {
						k = w - 1 - k
					}
					row[j] = src[k]
				}
			}
		}
	case x.DType().IsInt() && x.Rank() == 2 && x.Dim(0) == 1 && x.Fits(other):
		n := len(x.Bytes()) / x.Dim(1)
		at := rng.IntN(x.Dim(1)+1) * n
		copy(dst.Bytes(), x.Bytes()[:at])
		copy(dst.Bytes()[at:], other.Bytes()[at:])
	default:
		copy(dst.Bytes(), x.Bytes())
	}
}

// redrawn is the share of tokens that redraw replaces.
const redrawn = 0.5

// redraw replaces a share of the tokens ids[n,t], but for the first of each row, by
// others, drawn as the dense model's scores y[n,t,v] of the token before say: a few
// sequences become as many as are wanted, and like those that the model knows (Liu et
// al., "LLM-QAT", 2023, draw whole sequences). Where y is nothing like that, the tokens
// stay. There is a source of random numbers for each row.
func redraw(ids, y *tensor.Tensor, draws []*rand.Rand) {
	if ids.Rank() != 2 || y.Rank() != 3 || ids.Dim(0) != len(draws) || y.Dim(0) != ids.Dim(0) || y.Dim(1) != ids.Dim(1) {
		return
	}
	n, v := ids.Dim(1), y.Dim(2)
	tokens := ids.Int64s()
	for _, id := range tokens {
		if id < 0 || id >= int64(v) {
			return
		}
	}
	logs := make([]float64, v)
	for k, rng := range draws {
		for p := 1; p < n; p++ {
			if rng.Float64() >= redrawn {
				continue
			}
			logSoftmax(logs, y.F32s()[(k*n+p-1)*v:][:v])
			u := rng.Float64()
			for j, l := range logs {
				if u -= math.Exp(l); u < 0 {
					tokens[k*n+p] = int64(j)
					break
				}
			}
		}
	}
	ids.CopyFrom(tensor.FromInt64s(ids.DType(), tokens, ids.Shape()...))
}
