package sparse

import (
	"spc/backend"
	"spc/backend/format/emit"
	"spc/backend/machine"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// cost is that of a product of floats of n columns with w laid out so, if
// that suits w: it takes at least a tenth less storage than dense, since indices
// slow down the reading of values from far caches, and at least half of the
// values are not zero. With fewer, single rows do so much less work that no
// kernel for blocks makes up for it.
func cost(p *machine.Profile, format string, w *choose.Matrix, n int, l backend.Layout) (choose.Cost, bool) {
	filled := max(l.Filled, 0.5) * float64(l.Values)
	if 10*l.Bytes >= 9*w.Type.Size()*w.Len() || float64(w.Nonzeros) < filled || w.Len() > maxElems {
		return choose.Cost{}, false
	}
	rows := Ceil(w.Dim(0), l.Rows) * l.Rows
	steps := float64(l.Values) / float64(rows)
	r, loaded, bytes, code := p.Of(family(l.Rows, l.Cols)), p.Loaded, l.Bytes, false
	if l.Rows == 1 && n >= generatedColumns && w.Type == tensor.F32 {
		r, loaded, bytes, code = p.Of(machine.Generated), p.Placed, emit.Bytes*l.Values, true
	}
	if w.Slide != nil { // pixels fill panels
		r = r.Panels()
	}
	work := 2 * float64(l.Values) * float64(r.Columns(n))
	e := r.Efficiency(steps, w.Dim(1), n)
	spent := work/e + p.Spilled(w, n) + p.Seen(w, n) + loaded(w) // operations at the peak that it takes the time of
	if w.Slide != nil || n > r.VecColumns() {
		spent += p.Fetched(bytes, n, code)
	}
	if w.Slide == nil && n > r.VecColumns() {
		spent += p.Turned(w.Dim(0), w.Dim(1), n)
	}
	if taps, ok := machine.TapsOf(w, false); ok && rows > 0 {
		work, spent = p.ByTap(taps, r, l.Values, rows)
	}
	if work > 0 { // there are nonzeros
		e = work / spent
	}
	return choose.Cost{Config: l.Config, Kernel: Family(format, l.Rows), Work: work, Bytes: l.Bytes, Efficiency: e}, true
}

// family is that of the kernels for blocks of so many rows and columns.
func family(rows, cols int) machine.Family {
	if f, ok := machine.OfColumns(cols); ok && rows == 1 {
		return f
	}
	return machine.OfRows(Height(rows))
}
