package sparse

import (
	"spc/backend/format/rate"
	"spc/passes/choose"
)

// Storage is what a configuration of a format makes of a weight.
type Storage struct {
	Config string
	Rows   int // of a block
	Cols   int // of a block, where it is no column
	Values int // stored, zeros included
	Bytes  int // of all parts
}

// Offer appends to costs that of a product of n columns with w stored so, if
// that suits w: it takes at least a tenth less storage than dense, since indices
// slow down the reading of values from far caches, and at least half of the
// values are not zero. With fewer, single rows do so much less work that no
// kernel for blocks makes up for it.
func Offer(costs []choose.Cost, format string, w *choose.Matrix, n int, s Storage) []choose.Cost {
	if 10*s.Bytes >= 9*w.ValueBytes*w.Len() || s.Values > 2*w.Nonzeros || w.Len() > maxElems {
		return costs
	}
	rows := Ceil(w.Dim(0), s.Rows) * s.Rows
	steps := float64(s.Values) / float64(rows)
	r, loaded := Rate(s.Rows, s.Cols), rate.Loaded
	if s.Rows == 1 && n >= generatedColumns && w.ValueBytes == 4 {
		r, loaded = rate.Generated, rate.Placed
	}
	if w.Slide != nil { // pixels fill panels
		r.VecColumns = 1
	}
	work := 2 * float64(s.Values) * float64(r.Columns(n))
	return append(costs, choose.Cost{
		Config: s.Config, Kernel: Family(format, s.Rows), Work: work, Bytes: s.Bytes,
		Efficiency: loaded(w, work, r.Efficiency(steps, w.Dim(1), n)),
	})
}

// Rate is that of the kernels for blocks of so many rows and columns.
func Rate(rows, cols int) rate.Rate {
	if r, ok := rate.Runs[cols]; ok && rows == 1 {
		return r
	}
	return rate.Blocks[Height(rows)]
}
