package recon

import (
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
