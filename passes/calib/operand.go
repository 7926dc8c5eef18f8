package calib

import (
	"fmt"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// operand is the right side X[K,N] of a product with a weight W[M,K]: how its columns
// lie in the value that a node reads.
type operand struct {
	x       *ir.Value
	input   int // of the node
	k       int
	tokens  bool      // the elements of a column lie side by side, and are written so
	lengths *ir.Value // of the sequences of a recurrent operator, nil where all count

	// columns returns how many columns a value of a shape has, and what writes some of
	// them to dst from column at on: rows are blockColumns apart, or tokens K.
	columns func(shape []int, lengths *tensor.Tensor) (n int, load loader, err error)
}

// loader writes the columns of x with the given indices.
type loader func(dst []float32, at int, x []float32, picks []int)

// operandOf returns the operand of a weight.
func operandOf(use ir.WeightUse) (*operand, error) {
	n := use.Node
	shape, ok := use.Value.Type.Shape()
	if !ok {
		return nil, n.Errorf(ir.ErrInvalid, "weight %s is %v, want a known shape", use.Value.Name, use.Value.Type)
	}
	if use.Groups != 1 {
		return nil, n.Errorf(ir.ErrUnsupported, "%d groups, want 1", use.Groups)
	}
	_, k := use.View.Dims(shape)
	in := &operand{k: k}
	switch o := n.Op.(type) {
	case *op.Conv:
		in.columns = sliding(shape[1], shape[2:], func(x []int) (window, error) {
			spans, out, err := o.Geometry(x, shape)
			return window{spans, x[2:], out, false}, err
		})
	case *op.ConvTranspose:
		in.columns = sliding(shape[0], shape[2:], func(x []int) (window, error) {
			spans, out, err := o.Geometry(x[2:], shape[2:])
			return window{spans, x[2:], out, true}, err
		})
	case *op.MatMul:
		if use.Input == 1 {
			in.tokens, in.columns = true, tokens(k)
			break
		}
		in.input, in.columns = 1, strided(k, func(x []int) int {
			if len(x) == 1 {
				return 1
			}
			return x[len(x)-1]
		})
	case *op.Gemm:
		if o.TransA {
			in.columns = strided(k, func(x []int) int { return x[1] })
			break
		}
		in.tokens, in.columns = true, tokens(k)
	case *op.LSTM:
		return recurrent(in, use, o.BatchFirst)
	case *op.GRU:
		return recurrent(in, use, o.BatchFirst)
	case *op.RNN:
		return recurrent(in, use, o.BatchFirst)
	default:
		return nil, n.Errorf(ir.ErrUnsupported, "the inputs of its weight are not known")
	}
	in.x = n.Inputs[in.input]
	return in, nil
}

// recurrent is the operand of the input weight of a recurrent node: the steps of all
// sequences.
func recurrent(in *operand, use ir.WeightUse, batchFirst bool) (*operand, error) {
	n := use.Node
	if use.Input != 1 {
		return nil, n.Errorf(ir.ErrUnsupported, "the inputs of weight %s are states inside of the operator, which cannot be seen", use.Value.Name)
	}
	in.x, in.tokens, in.lengths = n.Inputs[0], true, n.Input(4)
	all := tokens(in.k)
	in.columns = func(x []int, lengths *tensor.Tensor) (int, loader, error) {
		count, load, err := all(x, nil)
		if lengths == nil || err != nil {
			return count, load, err
		}
		var steps []int // those inside of their sequences
		length := lengths.Int64s()
		for i := range count {
			step, sequence := i/x[1], i%x[1]
			if batchFirst {
				step, sequence = sequence, step
			}
			if int64(step) < length[sequence] {
				steps = append(steps, i)
			}
		}
		var picked []int
		return len(steps), func(dst []float32, at int, x []float32, picks []int) {
			picked = picked[:0]
			for _, p := range picks {
				picked = append(picked, steps[p])
			}
			load(dst, at, x, picked)
		}, nil
	}
	return in, nil
}

// tokens is for columns whose elements are contiguous.
func tokens(k int) func([]int, *tensor.Tensor) (int, loader, error) {
	load := func(dst []float32, at int, x []float32, picks []int) {
		for j, p := range picks {
			copy(dst[(at+j)*k:][:k], x[p*k:])
		}
	}
	return func(x []int, _ *tensor.Tensor) (int, loader, error) {
		if x[len(x)-1] != k {
			return 0, nil, fmt.Errorf("its input is of shape %v, want %d features", x, k)
		}
		return product(x[:len(x)-1]), load, nil
	}
}

// strided is for columns that lie side by side, plane(shape) in a matrix [K, plane].
func strided(k int, plane func(x []int) int) func([]int, *tensor.Tensor) (int, loader, error) {
	return func(x []int, _ *tensor.Tensor) (int, loader, error) {
		width := plane(x)
		if k*width == 0 || product(x)%(k*width) != 0 {
			return 0, func([]float32, int, []float32, []int) {}, nil
		}
		g := gather{channels: k, plane: width, taps: 1}
		return product(x) / k, func(dst []float32, at int, x []float32, picks []int) {
			g.offsets(picks, func(p, _ int) int { return p/width*k*width + p%width })
			g.load(dst, at, x, len(picks))
		}, nil
	}
}

// window is how a convolution reads its input.
type window struct {
	spans     []op.Span
	in, out   []int // spatial sizes
	transpose bool
}

// sliding is for the patches of images of so many channels.
func sliding(channels int, kernel []int, geometry func(x []int) (window, error)) func([]int, *tensor.Tensor) (int, loader, error) {
	return func(x []int, _ *tensor.Tensor) (int, loader, error) {
		if len(x) != len(kernel)+2 || x[1] != channels {
			return 0, nil, fmt.Errorf("its input is of shape %v, want %d channels and %d spatial axes", x, channels, len(kernel))
		}
		w, err := geometry(x)
		if err != nil {
			return 0, nil, err
		}
		pixels := product(w.out)
		g := gather{channels: channels, plane: product(w.in), taps: product(kernel)}
		return x[0] * pixels, func(dst []float32, at int, x []float32, picks []int) {
			g.offsets(picks, func(p, tap int) int {
				q := w.position(p%pixels, tap)
				if q < 0 {
					return q
				}
				return p/pixels*channels*g.plane + q
			})
			g.load(dst, at, x, len(picks))
		}, nil
	}
}

// position is the pixel of the input that a tap reads for a pixel of the output, -1
// where there is none.
func (w *window) position(pixel, tap int) int {
	at, scale := 0, 1
	for i := len(w.spans) - 1; i >= 0; i-- {
		s := w.spans[i]
		o, k := pixel%w.out[i], tap%s.Kernel
		pixel, tap = pixel/w.out[i], tap/s.Kernel
		q := o*s.Stride + k*s.Dilation - s.Begin
		if w.transpose {
			if q = o + s.Begin - k*s.Dilation; q%s.Stride != 0 {
				return -1
			}
			q /= s.Stride
		}
		if q < 0 || q >= w.in[i] {
			return -1
		}
		at += q * scale
		scale *= w.in[i]
	}
	return at
}

// gather copies columns from planes.
type gather struct {
	channels, plane, taps int

	offset []int // by tap and column, of the first channel's element; -1 for padding
}

// offsets tabulates at(column, tap) for the columns.
func (g *gather) offsets(picks []int, at func(column, tap int) int) {
	g.offset = g.offset[:0]
	for t := range g.taps {
		for _, p := range picks {
			g.offset = append(g.offset, at(p, t))
		}
	}
}

// load writes n columns, row by row.
func (g *gather) load(dst []float32, at int, x []float32, n int) {
	for r := range g.channels * g.taps {
		row := dst[r*blockColumns+at:][:n]
		c, t := r/g.taps, r%g.taps
		from := c * g.plane
		for j, o := range g.offset[t*n:][:n] {
			if o < 0 {
				row[j] = 0
			} else {
				row[j] = x[from+o]
			}
		}
	}
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}
