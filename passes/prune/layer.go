package prune

import (
	"fmt"
	"math"

	"spc/ir"
)

func (l *Layer) errorf(format string, args ...any) error {
	return &ir.NodeError{Node: l.Name, Kind: ir.ErrInvalid, Msg: fmt.Sprintf(format, args...)}
}

// Layer is one prunable weight, seen as the matrix W[Rows, Cols] (M x K). The
// slices are read only. Layers that are not to be pruned are left out.
type Layer struct {
	Name       string // names the layer in errors: its node, as in "conv_3 (Conv)"
	Rows, Cols int

	// Weights holds W row by row or, where Transposed, column by column, as
	// ONNX keeps the right-hand side of a MatMul.
	Weights    []float32
	Transposed bool

	// Saliency, in the layout of Weights, ranks the weights in place of |w|.
	// It is finite and not negative.
	Saliency []float32

	// Sparsity is the layer's own target, which takes it out of the global
	// count; nil leaves it to Options.
	Sparsity *float64

	// Pattern is the layer's own, for SelectEach, and asks for a Sparsity; nil leaves it to
	// Options.
	Pattern *Pattern
}

// check validates shape and values.
func (l *Layer) check() error {
	if err := l.checkShape(); err != nil {
		return err
	}
	if i := findBits(l.Weights, isNotFinite); i >= 0 {
		r, c := l.position(i)
		return l.errorf("weight [%d,%d] is %v, want finite weights to prune", r, c, l.Weights[i])
	}
	if l.Saliency != nil {
		if len(l.Saliency) != len(l.Weights) {
			return l.errorf("%d saliencies for %d weights", len(l.Saliency), len(l.Weights))
		}
		if i := findBits(l.Saliency, isNotSaliency); i >= 0 {
			r, c := l.position(i)
			return l.errorf("saliency [%d,%d] is %v, want a finite number of at least 0", r, c, l.Saliency[i])
		}
	}
	return nil
}

func (l *Layer) checkShape() error {
	if l.Rows < 1 || l.Cols < 1 {
		return l.errorf("weight matrix %dx%d, want at least one row and one column", l.Rows, l.Cols)
	}
	if len(l.Weights)/l.Cols != l.Rows || len(l.Weights)%l.Cols != 0 {
		return l.errorf("%d weights for a %dx%d matrix", len(l.Weights), l.Rows, l.Cols)
	}
	return nil
}

func (l *Layer) position(i int) (row, col int) {
	if l.Transposed {
		return i % l.Rows, i / l.Rows
	}
	return i / l.Cols, i % l.Cols
}

const (
	signBit      = 1 << 31
	exponentBits = 0xff << 23
)

func isNotFinite(b uint32) bool   { return b&exponentBits == exponentBits }
func isNotSaliency(b uint32) bool { return isNotFinite(b) || b > signBit }

func findBits(s []float32, bad func(uint32) bool) int {
	for i, v := range s {
		if bad(math.Float32bits(v)) {
			return i
		}
	}
	return -1
}

// panelRows is how many rows of a transposed layer are read together.
const panelRows = 16

// loadKeys writes the keys of rows [r0, r0+n) to dst, row by row. Of a transposed layer there are at most panelRows.
func (l *Layer) loadKeys(dst []uint32, r0, n int) {
	if !l.Transposed {
		lo, hi := r0*l.Cols, (r0+n)*l.Cols
		dst = dst[:hi-lo]
		if l.Saliency == nil {
			for i, w := range l.Weights[lo:hi] {
				dst[i] = math.Float32bits(w) &^ signBit
			}
			return
		}
		sal := l.Saliency[lo:hi]
		for i, w := range l.Weights[lo:hi] {
			dst[i] = key(w, sal[i])
		}
		return
	}
	var tile [panelRows][panelRows]uint32 // rows of dst whose length is a power of two would share a few lines of the cache
	for c0 := 0; c0 < l.Cols; c0 += panelRows {
		wide := min(panelRows, l.Cols-c0)
		for c := range wide {
			lo := (c0+c)*l.Rows + r0
			column := l.Weights[lo : lo+n]
			if l.Saliency == nil {
				for i, w := range column {
					tile[i][c] = math.Float32bits(w) &^ signBit
				}
				continue
			}
			for i, s := range l.Saliency[lo : lo+n] {
				tile[i][c] = key(column[i], s)
			}
		}
		for i := range n {
			copy(dst[i*l.Cols+c0:][:wide], tile[i][:])
		}
	}
}

// key orders by saliency, and keeps 0 for weights that are zero.
func key(w, saliency float32) uint32 {
	if w == 0 {
		return 0
	}
	return max(math.Float32bits(saliency)&^signBit, 1)
}

// RowNorms returns the l2 norm of each row's saliencies, the score by which
// output channels are ranked.
func (l *Layer) RowNorms() ([]float64, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	return l.rowNorms(new(scratch)), nil
}

func (l *Layer) rowNorms(s *scratch) []float64 {
	norms := make([]float64, l.Rows)
	for r := range norms {
		sum := 0.0
		for _, k := range s.row(l, r) {
			v := float64(math.Float32frombits(k))
			sum += v * v
		}
		norms[r] = math.Sqrt(sum)
	}
	return norms
}

// Nonzeros returns the mask of the weights that are not zero, which is what
// Recognise looks at. Weights need not be finite.
func (l *Layer) Nonzeros() (*Mask, error) {
	if err := l.checkShape(); err != nil {
		return nil, err
	}
	m := NewMask(l.Rows, l.Cols)
	if l.Transposed {
		for c := range l.Cols {
			for r, w := range l.Weights[c*l.Rows : (c+1)*l.Rows] {
				if w != 0 {
					m.Set(r, c)
				}
			}
		}
		return m, nil
	}
	for r := range l.Rows {
		words := m.Row(r)
		for c, w := range l.Weights[r*l.Cols : (r+1)*l.Cols] {
			if w != 0 {
				words[c>>6] |= 1 << (c & 63)
			}
		}
	}
	return m, nil
}
