// Package dense is the format that stores every element of a weight: one part,
// values [M,K], f32, f16 or bf16, or, for a weight on a grid, its codes (package group).
package dense

import (
	"fmt"
	"slices"
	"sync"

	"spc/backend"
	"spc/backend/format/group"
	"spc/backend/format/sparse"
	"spc/backend/format/ukernel"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Storage is the dense format.
type Storage struct{}

// New returns the format: a row for floats, and those for other types.
func New(others ...backend.Kernels) *backend.Format {
	return &backend.Format{Storage: Storage{}, Kernels: append([]backend.Kernels{{
		Weights: sparse.Floats, X: tensor.F32, Sums: tensor.F32, ISA: ukernel.Best().ISA,
		Cost: cost, CPU: prepare, GPU: gpu{},
	}}, others...)}
}

// Name is the format's.
const Name = choose.Dense

// Name is that of the format.
func (Storage) Name() string { return Name }

// Store stores a weight [M,K], which it keeps.
func Store(w *tensor.Tensor) *ir.Store {
	return &ir.Store{Format: Name, Rows: w.Dim(0), Cols: w.Dim(1), Parts: []ir.Part{{Name: "values", Data: w}}}
}

// prepare prepares a store of floats.
func prepare(s *ir.Store) (backend.Kernel, error) {
	if s.Config == "" {
		return Kernel(s.Part("values")), nil
	}
	w, err := group.Dense(s)
	if err != nil {
		return nil, err
	}
	return Kernel(w.Unpack()), nil
}

// Layouts lists the one configuration that suits the elements.
func (Storage) Layouts(w *choose.Matrix) []backend.Layout {
	if w.Grid != nil {
		return []backend.Layout{{Config: choose.GridOf(w.Grid).String(), Values: w.Len(), Bytes: group.DenseBytes(w.Grid, w.Dim(0), w.Dim(1))}}
	}
	return []backend.Layout{{Values: w.Len(), Bytes: w.Type.Size() * w.Len()}}
}

// cost counts a multiply-add for every element
// and column, or those of Winograd's algorithm where that costs less. Columns that are no pixels are taken for tokens.
func cost(p *machine.Profile, w *choose.Matrix, n int, l backend.Layout) (choose.Cost, bool) {
	m, k := w.Dim(0), w.Dim(1)
	filled := 2 * float64(w.Len()) * float64(backend.Columns(n)) // operations with columns that fill vectors up
	c := choose.Cost{Config: l.Config, Kernel: "f32_gemm", Work: filled, Bytes: l.Bytes}
	c.Efficiency = p.Of(machine.Dense).Efficiency(float64(k), k, n)
	if w.Len() == 0 {
		return c, true
	}
	narrow := narrow(w, n)
	if narrow || w.Slide == nil {
		c.Work = 2 * float64(w.Len()) * float64(n)
	}
	spent := c.Work / c.Efficiency // operations at the peak that it takes the time of
	switch {
	case narrow:
		spent = p.NarrowWork(m, c.Work)
	case w.Slide == nil && n > machine.Dense.VecColumns():
		spent = p.TokensWork(m, k, c.Work)
	}
	if !narrow || slices.ContainsFunc(w.Slide.Kernel, func(n int) bool { return n != 1 }) { // others read pixels where they lie
		spent += p.Spilled(w, n) + p.Seen(w, n)
	}
	if w.Grid != nil { // of which no copy for other algorithms is kept
		c.Efficiency = c.Work / spent
		return c, true
	}
	if conv, ok := machine.Of(w); ok {
		spent = p.Direct(conv) * c.Work / filled // that counts filled
		if tile := machine.Tile(conv); tile > 0 {
			c.Kernel = fmt.Sprintf("f32_winograd_%dx%d", tile, tile)
			c.Work, spent = p.Tiled(conv, tile)
		}
	}
	if taps, ok := machine.TapsOf(w, true); ok {
		c.Work, spent = p.ByTap(taps, p.Of(machine.Dense).Panels(), w.Len(), m)
	}
	c.Efficiency = c.Work / spent
	return c, true
}

// narrow reports whether w is moved over one image of so few pixels that its rows are taken as lanes.
func narrow(w *choose.Matrix, n int) bool {
	if w.Slide == nil || w.Len() == 0 {
		return false
	}
	if images, _ := w.Slide.Pixels(); images != 1 {
		return false
	}
	if slices.ContainsFunc(slices.Concat(w.Slide.Kernel, w.Slide.Stride), func(n int) bool { return n != 1 }) {
		return len(w.Slide.Kernel) <= 2 && machine.NarrowWindow(w.Dim(0), n)
	}
	return machine.Narrow(w.Dim(0), n)
}

// Pack stores the matrix itself.
func (Storage) Pack(w *tensor.Tensor, config string) ([]ir.Part, error) {
	if config != "" {
		return nil, fmt.Errorf("unknown configuration %q", config)
	}
	return []ir.Part{{Name: "values", Data: w}}, nil
}

// PackGrid stores codes.
func (s Storage) PackGrid(w *tensor.Tensor, g *ir.Grid, config string) ([]ir.Part, error) {
	if config == "" {
		return s.Pack(w, config)
	}
	if want := choose.GridOf(g).String(); config != want {
		return nil, fmt.Errorf("configuration %q of a weight on a grid %s", config, want)
	}
	return group.Pack(w, g)
}

// Check wants the values, or codes.
func (Storage) Check(s *ir.Store) error {
	if s.Config != "" {
		return group.CheckDense(s)
	}
	if v := s.Part("values"); v == nil || len(s.Parts) != 1 || !sparse.IsValue(v.DType()) || v.Rank() != 2 || v.Dim(0) != s.Rows || v.Dim(1) != s.Cols {
		return fmt.Errorf("want one part values[%d,%d] of i8 or %v", s.Rows, s.Cols, sparse.Floats)
	}
	return nil
}

// Unpack returns the values as f32.
func (Storage) Unpack(s *ir.Store) (*tensor.Tensor, error) {
	if s.Config != "" {
		w, err := group.Dense(s)
		if err != nil {
			return nil, err
		}
		return w.Unpack(), nil
	}
	return s.Part("values").To(tensor.F32), nil
}

// Kernel prepares a dense weight [M,K] of f32, f16 or bf16, which it keeps.
func Kernel(w *tensor.Tensor) backend.FloatKernel { return bind(w, false, ukernel.Best()) }

// NewTransposed prepares a dense weight of which W^T [K,M] is given and kept.
func NewTransposed(wt *tensor.Tensor) backend.FloatKernel { return bind(wt, true, ukernel.Best()) }

func bind(w *tensor.Tensor, transposed bool, kern *ukernel.Kernels) *kernel {
	d := &kernel{kern: kern, m: w.Dim(0), k: w.Dim(1), given: sparse.Values(w), transposed: transposed}
	if transposed {
		d.m, d.k = d.k, d.m
	}
	d.bounds = kern.Gemm.Bounds(d.k)
	d.rows = func() ukernel.Values { return d.given }
	if transposed {
		d.rows = sync.OnceValue(d.packRows)
	}
	d.tiles = sync.OnceValue(d.packTiles)
	d.panels = sync.OnceValue(d.packPanels)
	d.wide = sync.OnceValue(func() *kernel {
		w := *d
		w.tiles = sync.OnceValue(func() ukernel.Values { return kern.Widen(d.packTiles()) })
		w.panels = sync.OnceValue(func() ukernel.Values { return kern.Widen(d.packPanels()) })
		return &w
	})
	return d
}

// Sized returns the kernel whose copies are widened once where that many columns pay for it, and for a single column one
// that fetches a large weight ahead. What multiplies many columns one after the other asks for neither: it finds its weight
// in a cache.
func (d *kernel) Sized(n int) backend.FloatKernel {
	if n <= d.VecColumns() {
		once := *d
		once.once = true
		return &once
	}
	if !d.given.Half() || n < machine.WidenedColumns {
		return d
	}
	return d.wide()
}

// kernel multiplies with copies of the weight that are made when they are needed
// first: vectors with its rows, which are mostly the weight as it is given, panels
// with tiles, and tokens with panels.
type kernel struct {
	kern       *ukernel.Kernels
	m, k       int
	given      ukernel.Values
	transposed bool
	bounds     []int
	rows       func() ukernel.Values // [M][K]
	tiles      func() ukernel.Values // by block of columns, [M/MR][columns][MR]
	panels     func() ukernel.Values // by panel of rows, W^T [K][granules of rows]
	wide       func() *kernel        // the kernel with tiles and panels of f32
	once       bool                  // a run reads the rows once
}

// Warm makes the panels or the tiles.
func (d *kernel) Warm(tokens bool) {
	if tokens {
		d.panels()
	} else {
		d.tiles()
	}
}

func (d *kernel) packRows() ukernel.Values {
	return d.given.Rearrange(d.m*d.k, transposed[float32](d), transposed[uint16](d))
}

// transposed, tiled and panelled return what writes the copies.
func transposed[T number](d *kernel) func(dst, src []T) {
	return func(dst, src []T) { transpose(dst, d.k, src, d.m, d.k, d.m) }
}

// number is a value, or the bits of one.
type number interface{ float32 | uint16 }

// transpose writes src [rows][cols] as [cols][rows], rows of both being so many
// elements apart. It goes through squares that stay in the level 1 cache.
func transpose[T number](dst []T, ldd int, src []T, lds, rows, cols int) {
	const side = 16
	for r0 := 0; r0 < rows; r0 += side {
		n := min(side, rows-r0)
		for c0 := 0; c0 < cols; c0 += side {
			for c := c0; c < min(cols, c0+side); c++ {
				row := dst[c*ldd+r0:][:n]
				for r := range row {
					row[r] = src[(r0+r)*lds+c]
				}
			}
		}
	}
}

func (d *kernel) packTiles() ukernel.Values {
	return d.given.Rearrange(d.kern.Gemm.PackedLen(d.m, d.k), tiled[float32](d), tiled[uint16](d))
}

func tiled[T number](d *kernel) func(dst, src []T) {
	const mr = ukernel.MR
	return func(dst, src []T) {
		rows := (d.m + mr - 1) / mr * mr
		for b := range len(d.bounds) - 1 {
			from, to := d.bounds[b], d.bounds[b+1]
			block := dst[rows*from : rows*to]
			if !d.transposed {
				ukernel.Pack(&d.kern.Gemm, block, src[from:], d.m, to-from, d.k)
				continue
			}
			for i := from; i < to; i++ {
				for r := 0; r < d.m; r += mr {
					copy(block[r*(to-from)+(i-from)*mr:][:mr], src[i*d.m+r:(i+1)*d.m])
				}
			}
		}
	}
}

func (d *kernel) Name() string { return name(d.kern) }

func name(kern *ukernel.Kernels) string {
	return fmt.Sprintf("f32_gemm_%dx%d__%s", ukernel.MR, backend.Panel, kern.ISA)
}

func (d *kernel) Tile() int     { return ukernel.MR }
func (d *kernel) Bounds() []int { return d.bounds }

func (d *kernel) Panel(y, x []float32, b, granules, r0, r1 int) {
	d.panel(y, x, b, granules, r0, r1, nil)
}

// Finish is Panel of the last block, with rows that go to f.
func (d *kernel) Finish(y, x []float32, b, granules, r0, r1 int, f *ukernel.Finish) bool {
	if d.kern.Finishes() {
		d.panel(y, x, b, granules, r0, r1, f)
	}
	return d.kern.Finishes()
}

func (d *kernel) panel(y, x []float32, b, granules, r0, r1 int, f *ukernel.Finish) {
	rows, k := (d.m+ukernel.MR-1)/ukernel.MR*ukernel.MR, d.bounds[b+1]-d.bounds[b]
	tiles := d.tiles()
	d.kern.PanelOf(r1-r0, granules, k, tiles.Slice(rows*d.bounds[b]+r0*k, tiles.Len()), x, y, b > 0, f)
}

func (d *kernel) VecColumns() int { return machine.Dense.VecColumns() }

func (d *kernel) Vec(y, x []float32, r0, r1 int) {
	rows := d.rows()
	if d.once {
		d.kern.MulVecOnce(r0, r1, d.k, rows, x, y)
		return
	}
	d.kern.MulVecOf(r1-r0, d.k, rows.Slice(r0*d.k, r1*d.k), x, y)
}

// width is the number of columns of the panel of W^T that starts at row m0.
func (d *kernel) width(m0 int) int { return backend.Columns(max(2, min(backend.Panel, d.m-m0))) }

// packPanels lays out W^T in panels, the last of which is as narrow as granules
// allow and filled up with zeros.
func (d *kernel) packPanels() ukernel.Values {
	return d.given.Rearrange(backend.Columns(max(2, d.m))*d.k, panelled[float32](d), panelled[uint16](d))
}

func panelled[T number](d *kernel) func(dst, src []T) {
	return func(dst, src []T) {
		for m0 := 0; m0 < d.m; m0 += backend.Panel {
			panel, width := dst[m0*d.k:], d.width(m0)
			m1 := min(d.m, m0+backend.Panel)
			if d.transposed {
				for i := range d.k {
					copy(panel[i*width:], src[i*d.m+m0:i*d.m+m1])
				}
				continue
			}
			transpose(panel, width, src[m0*d.k:], d.k, m1-m0, d.k)
		}
	}
}

// Tokens brings the weight's next block nearer as Narrow does.
func (d *kernel) Tokens(y, x []float32, tokens, m0, m1 int, scratch []float32) {
	w, gemm := d.panels(), &d.kern.Gemm
	for ; m0 < m1; m0 += backend.Panel {
		width := d.width(m0)
		whole := width <= d.m-m0 // no column of the panel lies outside of Y
		for b := range max(1, len(d.bounds)-1) {
			from, to := 0, 0
			if d.k > 0 {
				from, to = d.bounds[b], d.bounds[b+1]
			}
			d.kern.Widened(w, m0*d.k+from*width, m0*d.k+to*width, func(panel []float32) {
				for t := 0; t < tokens; t += ukernel.MR {
					rows := min(ukernel.MR, tokens-t)
					out, ldy := y[t*d.m+m0:], d.m
					if !whole {
						out, ldy = scratch, width
						if b > 0 {
							copyRows(out, width, y[t*d.m+m0:], d.m, rows, d.m-m0)
						}
					}
					next := w.Ahead(m0*d.k + to*width + t*(to-from)*width/tokens)
					gemm.TileAhead(rows, width/backend.Granule, to-from, x[t*d.k+from:], d.k, 1, panel, width, out, ldy, b > 0, next)
					if !whole {
						copyRows(y[t*d.m+m0:], d.m, out, width, rows, d.m-m0)
					}
				}
			})
		}
	}
}

// Narrow takes tiles of columns of X from where they lie. Each of them brings a part of the weight's next block nearer, which
// the first would wait for.
func (d *kernel) Narrow(y, x []float32, ldx, n, m0, b0, b1 int) {
	w, width, gemm := d.panels(), d.width(m0), &d.kern.Gemm
	tiles := (n + ukernel.MR - 1) / ukernel.MR
	for b := b0; b < b1; b++ {
		from, to := d.bounds[b], d.bounds[b+1]
		rows := x[(from-d.bounds[b0])*ldx:]
		d.kern.Widened(w, m0*d.k+from*width, m0*d.k+to*width, func(panel []float32) {
			for i := range tiles {
				c, end := i*n/tiles, (i+1)*n/tiles
				next := w.Ahead(m0*d.k + to*width + i*(to-from)*width/tiles)
				gemm.TileAhead(end-c, width/backend.Granule, to-from, rows[c:], 1, ldx, panel, width, y[c*backend.Panel:], backend.Panel, b > 0, next)
			}
		})
	}
}

func copyRows(dst []float32, ldd int, src []float32, lds, rows, cols int) {
	for r := range rows {
		copy(dst[r*ldd:][:cols], src[r*lds:])
	}
}

// View multiplies panels by a matrix [M,K] that changes from product to product
// and is therefore not packed.
type View struct {
	kern   *ukernel.Kernels
	m, k   int
	w      []float32
	bounds []int
}

// NewView returns a view of matrices of m rows and k columns. Use names the first.
func NewView(m, k int) *View {
	kern := ukernel.Best()
	return &View{kern: kern, m: m, k: k, bounds: kern.Gemm.Bounds(k)}
}

// Use makes w, f32 [M,K], the matrix of the products that follow.
func (v *View) Use(w []float32) { v.w = w[:v.m*v.k] }

// Name is that of a weight.
func (v *View) Name() string { return name(v.kern) }

// Tile is that of a weight.
func (v *View) Tile() int { return ukernel.MR }

// Bounds are those of a weight.
func (v *View) Bounds() []int { return v.bounds }

// Panel is that of a weight.
func (v *View) Panel(y, x []float32, b, granules, r0, r1 int) {
	from, to := v.bounds[b], v.bounds[b+1]
	for r := r0; r < r1; r += ukernel.MR {
		rows := min(ukernel.MR, r1-r)
		v.kern.Gemm.Tile(rows, granules, to-from, v.w[r*v.k+from:], v.k, 1, x, backend.Panel, y[(r-r0)*backend.Panel:], backend.Panel, b > 0)
	}
}

// VecColumns is that of a weight.
func (v *View) VecColumns() int { return machine.Dense.VecColumns() }

// Vec is that of a weight.
func (v *View) Vec(y, x []float32, r0, r1 int) {
	v.kern.MulVec(r1-r0, v.k, v.w[r0*v.k:], v.k, x, y)
}
