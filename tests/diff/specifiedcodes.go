package diff

import (
	"math"
	"slices"

	"spc/ir/tensor"
)

// unpacked are n numbers of some bits, of which bytes hold the first in their lowest.
func unpacked(b []float64, bits, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = float64(int(b[i*bits/8]) >> (i * bits % 8) & (1<<bits - 1))
	}
	return out
}

// nbitsSpec has the inputs A, B, scales, zero points, blocks of columns, and a bias.
func nbitsSpec(s *specified) []*array {
	k, n, bits, block := s.int("K", 0), s.int("N", 0), s.int("bits", 4), s.int("block_size", 0)
	blocks := (k + block - 1) / block
	codes, scales := s.in(1).x, s.in(2).x
	width := block * bits / 8
	w := newArray(k, n)
	for c := range n {
		for i := range k {
			at := c*blocks + i/block
			code := unpacked(codes[at*width:][:width], bits, block)[i%block]
			if groups := s.in(4); groups != nil {
				at = c*blocks + int(groups.x[i])
			}
			zero := math.Ldexp(1, bits-1)
			if z := s.in(3); z != nil && s.given[3].DType() == tensor.U8 {
				row := (blocks*bits + 7) / 8
				zero = unpacked(z.x[c*row:][:row], bits, blocks)[at-c*blocks]
			} else if z != nil {
				zero = z.x[at]
			}
			w.x[i*n+c] = (code - zero) * scales[at]
		}
	}
	return []*array{s.in(0).times(w).plus(s.in(5))}
}

// gatherBlocksSpec is of tables [rows, columns] of which rows are looked up.
func gatherBlocksSpec(s *specified) []*array {
	bits, block := s.int("bits", 4), s.int("block_size", 128)
	table, scales, zeros := s.in(0), s.in(2), s.in(3)
	packed := s.given[0].DType() == tensor.U8
	open := func(a *array, columns int) *array {
		if a == nil || !packed {
			return a
		}
		y, row := newArray(a.shape[0], columns), a.shape[1]
		for r := range a.shape[0] {
			copy(y.x[r*columns:], unpacked(a.x[r*row:][:row], bits, columns))
		}
		return y
	}
	if packed {
		table = open(table, table.shape[1]*8/bits)
	}
	zeros = open(zeros, scales.shape[1])
	y := newArray(table.shape...)
	for i, code := range table.x {
		at := i/table.shape[1]*scales.shape[1] + i%table.shape[1]/block
		zero := 0.0
		if zeros != nil {
			zero = zeros.x[at]
		} else if packed {
			zero = math.Ldexp(1, bits-1)
		}
		y.x[i] = (code - zero) * scales.x[at]
	}
	return []*array{y.rows(s.in(1))}
}

// meant is what the integers of an input stand for by the scale and the zero point behind it.
func (s *specified) meant(i int) *array {
	scale, zero := s.number(i+1, 1), s.number(i+2, 0)
	return s.in(i).each(func(x float64) float64 { return (x - zero) * scale })
}

// rounded makes integers of y, of type dt, by the scale and the zero point in an input and the one behind it.
func (s *specified) rounded(y *array, i int, dt tensor.DType) []*array {
	scale, zero := s.number(i, 1), s.number(i+1, 0)
	least, most := 0.0, 255.0
	if dt == tensor.I8 {
		least, most = -128, 127
	}
	return []*array{y.each(func(x float64) float64 {
		return min(most, max(least, math.RoundToEven(x/scale)+zero))
	})}
}

// qlinearSpec is an operator of integers that is f of what X stands for.
func qlinearSpec(f func(s *specified, x *array) *array) specification {
	return func(s *specified) []*array { return s.rounded(f(s, s.meant(0)), 3, s.given[0].DType()) }
}

func qlinearBinarySpec(f func(x, y float64) float64) specification {
	return func(s *specified) []*array {
		return s.rounded(s.meant(0).with(s.meant(3), f), 6, s.given[0].DType())
	}
}

func qlinearWhereSpec(s *specified) []*array {
	x, y, c := s.meant(1), s.meant(4), s.in(0)
	one := x.with(c, func(x, c float64) float64 { return x * c })
	other := y.with(c, func(y, c float64) float64 { return y * (1 - c) })
	return s.rounded(one.plus(other), 7, s.given[1].DType())
}

func qlinearConcatSpec(s *specified) []*array {
	var y *array
	for i := 2; i < len(s.given); i += 3 {
		x := s.meant(i)
		if axis := (s.int("axis", 0) + x.rank()) % x.rank(); y != nil {
			x = y.followed(axis, x)
		}
		y = x
	}
	return s.rounded(y, 0, s.given[2].DType())
}

func softmaxSpec(s *specified, x *array) *array {
	axis := (s.int("axis", -1) + x.rank()) % x.rank()
	perm := allAxes(x.rank())
	perm[axis], perm[x.rank()-1] = perm[x.rank()-1], perm[axis]
	y := x.permuted(perm...)
	n := y.dim(-1)
	for r := 0; r < len(y.x); r += n {
		row, sum := y.x[r:][:n], 0.0
		most := slices.Max(row)
		for i, v := range row {
			row[i] = math.Exp(v - most)
			sum += row[i]
		}
		for i := range row {
			row[i] /= sum
		}
	}
	return y.permuted(perm...)
}

// meanSpec is the mean of images.
func meanSpec(s *specified, x *array) *array {
	if s.is("channels_last") {
		x = x.permuted(0, 3, 1, 2)
	}
	n := x.shape[2] * x.shape[3]
	y := newArray(x.shape[0], x.shape[1], 1, 1)
	for i, v := range x.x {
		y.x[i/n] += v / float64(n)
	}
	if s.is("channels_last") {
		y = y.permuted(0, 2, 3, 1)
	}
	return y
}

// columns are what the integers of an input stand for by scales and zero points of one number, or one for each of the last axis.
func (s *specified) columns(i, scale, zero int) *array {
	return s.in(i).with(s.in(zero), minus64).with(s.in(scale), times)
}

func integersToFloatSpec(s *specified) []*array {
	a := s.in(0).with(s.in(4), minus64).scaled(s.number(2, 1))
	return []*array{a.times(s.columns(1, 3, 5)).plus(s.in(6))}
}

// dynamicMatMulSpec rounds A to 8 bits as DynamicQuantizeLinear of ONNX says, which divides in f32.
func dynamicMatMulSpec(s *specified) []*array {
	a := s.in(0)
	var least, most float32
	for _, v := range a.x {
		least, most = min(least, float32(v)), max(most, float32(v))
	}
	scale := (most - least) / 255
	if scale > 0 {
		zero := min(255, max(0, math.RoundToEven(float64(-least/scale))))
		a = a.each(func(x float64) float64 {
			return (min(255, max(0, math.RoundToEven(float64(float32(x)/scale))+zero)) - zero) * float64(scale)
		})
	}
	return []*array{a.times(s.columns(1, 2, 3)).plus(s.in(4))}
}

// qGemmSpec has the inputs A and B, each with its scale and zero point behind it, C in steps of both scales, and the scale and zero point of
// the result, which is of floats without them.
func qGemmSpec(s *specified) []*array {
	scale := s.in(4)
	b := s.in(3)
	if z := s.in(5); z != nil {
		if s.is("transB") && len(z.x) > 1 {
			z = z.reshaped(len(z.x), 1)
		}
		b = b.with(z, minus64)
	}
	zero := s.number(2, 0)
	a, b := s.oriented(s.in(0).each(func(x float64) float64 { return x - zero }), b)
	y := a.times(b).plus(s.in(6)).with(scale, times).scaled(s.number(1, 1) * s.float("alpha", 1))
	if s.in(7) == nil {
		return []*array{y}
	}
	return s.rounded(y, 7, s.given[8].DType())
}
