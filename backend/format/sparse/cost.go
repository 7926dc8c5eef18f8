package sparse

import (
	"spc/backend"
	"spc/backend/format/rate"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// cost is that of a product of floats of n columns with w laid out so, if
// that suits w: it takes at least a tenth less storage than dense, since indices
// slow down the reading of values from far caches, and at least half of the
// values are not zero. With fewer, single rows do so much less work that no
// kernel for blocks makes up for it.
func cost(format string, w *choose.Matrix, n int, l backend.Layout) (choose.Cost, bool) {
	filled := max(l.Filled, 0.5) * float64(l.Values)
	if 10*l.Bytes >= 9*w.Type.Size()*w.Len() || float64(w.Nonzeros) < filled || w.Len() > maxElems {
		return choose.Cost{}, false
	}
	rows := Ceil(w.Dim(0), l.Rows) * l.Rows
	steps := float64(l.Values) / float64(rows)
	r, loaded := Rate(l.Rows, l.Cols), rate.Loaded
	if l.Rows == 1 && n >= generatedColumns && w.Type == tensor.F32 {
		r, loaded = rate.Generated, rate.Placed
	}
	if w.Slide != nil { // pixels fill panels
		r.VecColumns = 1
	}
	work := 2 * float64(l.Values) * float64(r.Columns(n))
	e := r.Efficiency(steps, w.Dim(1), n)
	if w.Slide == nil && n > r.VecColumns {
		e = rate.Turned(w.Dim(1), n, work, e)
	}
	return choose.Cost{
		Config: l.Config, Kernel: Family(format, l.Rows), Work: work, Bytes: l.Bytes,
		Efficiency: loaded(w, work, e),
	}, true
}

// Rate is that of the kernels for blocks of so many rows and columns.
func Rate(rows, cols int) rate.Rate {
	if r, ok := rate.Runs[cols]; ok && rows == 1 {
		return r
	}
	return rate.Blocks[Height(rows)]
}
