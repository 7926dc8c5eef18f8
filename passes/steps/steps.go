// Package steps finds, for weights that are to be whole numbers of steps, the steps: for each block of a row the scale by which
// rounding changes it least. It imports internal/parallel, ir
// and ir/tensor.
package steps

import (
	"context"
	"fmt"
	"math"
	"slices"

	"spc/internal/parallel"
	"spc/ir"
	"spc/ir/tensor"
)

// DefaultBlock is how many weights share a scale unless something else is asked for.
const DefaultBlock = 32

// MaxBlock bounds blocks, so that what is rounded up to them stays in an int.
const MaxBlock = 1 << 20

// Steps say which numbers weights may be: codes of so many bits times a scale for each block along a row, which may be negative,
// so that of the codes, -8 to 7 for 4 bits, the one that has no opposite serves either sign.
type Steps struct {
	Bits, Block int
	Half        bool // scales are f16, else f32
}

// Check says what is wrong with the bits or the blocks.
func (s Steps) Check() error {
	if s.Bits != 4 && s.Bits != 8 {
		return fmt.Errorf("codes of %d bits, want 4 or 8", s.Bits)
	}
	if s.Block < ir.GridBlock || s.Block > MaxBlock || s.Block&(s.Block-1) != 0 {
		return fmt.Errorf("blocks of %d weights, want a power of two from %d to %d", s.Block, ir.GridBlock, MaxBlock)
	}
	return nil
}

// Of returns the steps with the type of scales that suits a weight: f16 where that of the block with the largest element is a normal
// number, and far from overflow. A smaller one may lose digits, by which its block changes little beside the steps of the largest.
func (s Steps) Of(w []float32) Steps {
	const least, most = 0x1p-14, 0x1p15
	largest := float64(0)
	for _, v := range w {
		largest = max(largest, math.Abs(float64(v)))
	}
	step := largest / float64(s.most())
	s.Half = largest == 0 || step >= least && step <= most
	return s
}

// most is the greatest number of steps of either sign.
func (s Steps) most() int { return 1 << (s.Bits - 1) }

// Blocks is the number of blocks in a row of k weights.
func (s Steps) Blocks(k int) int { return (k + s.Block - 1) / s.Block }

// The scales among which one is looked for have the largest element of a block at so many times the greatest code, below which digits
// are lost and beyond which codes saturate. Eight bits lose by either, and have more scales between.
var reaches = map[int][2]float64{4: {0.6, 1.75}, 8: {0.85, 1.1}}

// refinements bounds how often codes and scales are fitted to each other in turn.
const refinements = 4

// Finder finds scales. It keeps memory between blocks, and is not safe for concurrent use.
type Finder struct {
	Steps
	codes []float64 // of the block, without signs
	block []float64
	turns []uint64 // scales below which the code of an element is one more, see turn
}

// turn packs a scale above 0 and the place of an element in a block, so that integers are in the order of scales.
func turn(scale float64, at int) uint64 { return math.Float64bits(scale)&^(MaxBlock-1) | uint64(at) }

// Scale returns the scale for a block of finite weights with which the sum of the squared errors, of each weight times its cost,
// nil for 1, is the least. Where all weights are 0 it is 1.
//
// As a scale falls, codes turn one after another. For given codes c the best scale is <w,c>/<c,c>, with which the sum of squares falls by
// <w,c>^2/<c,c>; the greatest of these is where the error is least. What is found so is rounded to the type of scales, and codes and
// scales are fitted to each other from there.
func (f *Finder) Scale(w, cost []float64) float64 {
	largest := 0.0
	for _, v := range w {
		largest = max(largest, math.Abs(v))
	}
	if largest == 0 {
		return 1
	}
	up, gain := f.sweep(w, cost, largest, 1)
	down, other := f.sweep(w, cost, largest, -1)
	if other > gain {
		up = -down
	}
	best, loss := 1.0, math.Inf(1) // for what is too small for the type
	try := func(x float64) bool {
		l := math.Inf(1)
		if x != 0 {
			l = f.loss(w, cost, x)
		}
		if l >= loss {
			return false
		}
		best, loss = x, l
		return true
	}
	x := f.Number(up)
	for range refinements {
		if !try(x) {
			break
		}
		x = f.Number(f.fit(w, cost, x))
	}
	if f.Half && best != 1 { // neighbours in f16
		h := tensor.ToHalf(float32(best))
		try(float64((h + 1).Float32()))
		try(float64((h - 1).Float32()))
	}
	return best
}

// sweep returns the best scale of a sign, without it, and by how much the sum of squares falls with it.
func (f *Finder) sweep(w, cost []float64, largest, sign float64) (scale, gain float64) {
	most := float64(f.most())
	reach := reaches[f.Bits]
	first, last := largest/(reach[0]*most), largest/(reach[1]*most)
	f.codes, f.turns = f.codes[:0], f.turns[:0]
	a, b := 0.0, 0.0
	for i, v := range w {
		limit := most - 1
		if v*sign < 0 {
			v, limit = -v, most
		}
		v = math.Abs(v)
		c := min(math.RoundToEven(v/first), limit)
		f.codes = append(f.codes, c)
		h := 1.0
		if cost != nil {
			h = cost[i]
		}
		a, b = a+h*c*v, b+h*c*c
		for c++; c <= limit; c++ {
			at := v / (c - 0.5)
			if at < last {
				break
			}
			f.turns = append(f.turns, turn(at, i))
		}
	}
	slices.Sort(f.turns)
	num, den := a, b
	for _, t := range slices.Backward(f.turns) {
		i := int(t & (MaxBlock - 1))
		h, c := 1.0, f.codes[i]
		if cost != nil {
			h = cost[i]
		}
		f.codes[i]++
		a, b = a+h*math.Abs(w[i]), b+h*(2*c+1)
		if a*a*den > num*num*b || den == 0 {
			num, den = a, b
		}
	}
	if den == 0 {
		return first, 0
	}
	return num / den, num * num / den
}

// fit returns the scale that is best for the codes nearest to the weights at a scale.
func (f *Finder) fit(w, cost []float64, scale float64) float64 {
	least, most := -float64(f.most()), float64(f.most()-1)
	a, b := 0.0, 0.0
	for i, v := range w {
		c := min(max(math.RoundToEven(v/scale), least), most)
		h := c
		if cost != nil {
			h *= cost[i]
		}
		a += h * v
		b += h * c
	}
	if b == 0 {
		return scale
	}
	return a / b
}

// loss is the sum of squared errors at a scale.
func (s Steps) loss(w, cost []float64, scale float64) float64 {
	sum := 0.0
	for i, v := range w {
		e := v - s.Round(v, scale)
		e *= e
		if cost != nil {
			e *= cost[i]
		}
		sum += e
	}
	return sum
}

// Number returns the number nearest to a scale that scales may be.
func (s Steps) Number(x float64) float64 {
	const most = 65504 // of f16
	if !s.Half {
		return float64(float32(x))
	}
	return float64(tensor.ToHalf(float32(min(max(x, -most), most))).Float32())
}

// Round returns the whole number of steps nearest to w, an f32.
func (s Steps) Round(w, scale float64) float64 {
	if scale == 0 {
		return 0
	}
	n := min(max(math.RoundToEven(w/scale), -float64(s.most())), float64(s.most()-1))
	return float64(float32(n*scale)) + 0 // no negative zero
}

// Nearest rounds weights [rows, cols], by least squares of each block, and returns them with the scales [rows, Blocks(cols)].
func (s Steps) Nearest(ctx context.Context, w []float32, rows, cols, workers int) (out, scales []float32, err error) {
	blocks := s.Blocks(cols)
	out, scales = make([]float32, len(w)), make([]float32, rows*blocks)
	finders := make([]Finder, parallel.Workers(workers))
	err = parallel.Each(ctx, workers, rows, func(worker, r int) {
		f := &finders[worker]
		f.Steps = s
		for b := range blocks {
			at, hi := r*cols+b*s.Block, r*cols+min((b+1)*s.Block, cols)
			f.block = f.block[:0]
			for _, v := range w[at:hi] {
				f.block = append(f.block, float64(v))
			}
			scale := f.Scale(f.block, nil)
			for i, v := range f.block {
				out[at+i] = float32(s.Round(v, scale))
			}
			scales[r*blocks+b] = float32(scale)
		}
	})
	return out, scales, err
}

// Grid returns the grid of a matrix with such scales [rows, blocks].
func (s Steps) Grid(scales []float32, rows int) *ir.Grid {
	t := tensor.From(scales, rows, len(scales)/rows)
	if s.Half {
		t = t.To(tensor.F16)
	}
	return &ir.Grid{Bits: s.Bits, Axis: 1, Block: s.Block, Scales: t}
}
