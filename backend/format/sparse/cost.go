package sparse

import (
	"math/bits"

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
	if !Suits(w, l) {
		return choose.Cost{}, false
	}
	return Cost(p, format, w, n, l), true
}

// Cost is that of a product of floats of n columns with w laid out so.
func Cost(p *machine.Profile, format string, w *choose.Matrix, n int, l backend.Layout) choose.Cost {
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
	busy := work
	if n <= r.VecColumns() && l.Rows == 1 && l.Cols <= 1 && l.Values == w.Nonzeros {
		busy += 2 * float64(waiting(w)) * float64(n)
	}
	spent := busy/e + loaded(w) + beside(p, w, n, n > r.VecColumns(), bytes, code) // operations at the peak that it takes the time of
	if taps, ok := machine.TapsOf(w, false); ok && rows > 0 {
		work, spent = p.ByTap(taps, r, l.Values, rows)
	}
	if work > 0 { // there are nonzeros
		e = work / spent
	}
	return choose.Cost{Config: l.Config, Kernel: Family(format, l.Rows), Work: work, Bytes: l.Bytes, Efficiency: e}
}

// waiting counts the elements that rows wait for longer ones in products with single columns: kernels take rows together, which
// go on until the longest ends. Rates are those of rows that are up to twice as long as the mean.
func waiting(w *choose.Matrix) int {
	type key struct{}
	return choose.Once(w, key{}, func() (n int) {
		const together = 16
		rows := w.Dim(0)
		for r := 0; r < rows; r += together {
			longest := 0
			for i := r; i < min(r+together, rows); i++ {
				count := 0
				for _, x := range w.Row(i) {
					count += bits.OnesCount64(x)
				}
				longest = max(longest, count)
			}
			n += together * max(0, longest-Ceil(2*w.Nonzeros, rows))
		}
		return n
	})
}

// Suits reports whether a layout saves storage and time.
func Suits(w *choose.Matrix, l backend.Layout) bool {
	filled := max(l.Filled, 0.5) * float64(l.Values)
	return 10*l.Bytes < 9*w.Type.Size()*w.Len() && float64(w.Nonzeros) >= filled && w.Len() <= MaxElems
}

// beside is what a product of n columns, which fill panels or are multiplied one by one, costs beside the work and loading
// patches, in operations at the peak. The weight, or the code of it, has so many bytes.
func beside(p *machine.Profile, w *choose.Matrix, n int, panels bool, bytes int, code bool) float64 {
	spent := p.Spilled(w, n) + p.Seen(w, n)
	if w.Slide != nil || panels {
		spent += p.Fetched(bytes, n, code)
	}
	if w.Slide == nil && panels {
		spent += p.Turned(w.Dim(0), w.Dim(1), n)
	}
	return spent
}

// family is that of the kernels for blocks of so many rows and columns.
func family(rows, cols int) machine.Family {
	if f, ok := machine.OfColumns(cols); ok && rows == 1 {
		return f
	}
	return machine.OfRows(Height(rows))
}
