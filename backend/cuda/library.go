package cuda

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"spc/backend"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Library multiplies dense matrices on a GPU, as one of NVIDIA's does where it is installed.
// It may be used concurrently.
type Library interface {
	// Name says which it is, as part of the names of kernels.
	Name() string
	// Plan finds out how to compute a product; the plan is nil where the library has no way.
	Plan(p Product) (Plan, error)
	// Close gives the library back, after its plans were closed, once for each time that the Driver
	// returned it.
	Close() error
}

// Libraries says when a Library computes products.
type Libraries int

// The choices: where it is found and predicted to be faster than kernels, never, or wherever
// it has a way, and then it must be there.
const (
	PredictedLibraries Libraries = iota
	NoLibraries
	AlwaysLibraries
)

// Plan is a product as a library computes it. It may be queued on several streams at a time.
type Plan interface {
	// Workspace is the bytes of device memory that it needs while it runs.
	Workspace() int
	// Compressed is the bytes of what takes the place of a weight, 0 where that is taken as it is.
	Compressed() int
	Close() error
}

// Product is Y = act(Alpha * W X + bias + residual) for a batch of matrices W[M,K] and X[K,N],
// summed in f32. All addresses are multiples of 256.
type Product struct {
	DType          tensor.DType // of W and X
	Out            tensor.DType // of Y, the bias and the residual
	M, K, N, Batch int
	W, X, Y        [3]int // strides in elements by row, by column and by matrix; the residual's are those of Y
	Alpha          float32
	Residual       bool
	Bias           Pointer // M elements, or 0; only where the rows of Y are neighbours in memory
	Act            Activation
	Workspace      int // bytes that it may need
}

// Activation is one that libraries apply.
type Activation int

// The activations: none, Relu, and Gelu by tanh.
const (
	NoActivation Activation = iota
	Relu
	GeluTanh
)

// InColumns returns how a library that wants matrices by columns reads one of such strides: the
// distance of columns, or, where rows are what lies together, that of rows, of the transposed
// matrix. It reports false where elements lie apart both ways.
func InColumns(rows, cols, row, column int) (distance int, transposed, ok bool) {
	if row == 1 || rows == 1 {
		if distance = column; cols == 1 {
			distance = rows
		}
		if distance >= rows {
			return distance, false, true
		}
	}
	if column == 1 || cols == 1 {
		if distance = row; rows == 1 {
			distance = cols
		}
		return distance, true, distance >= cols
	}
	return 0, false, false
}

// fused is what a library itself can do of an epilogue.
type fused struct {
	ok   bool // all of it
	act  Activation
	bias *tensor.Tensor // of the type of Y, nil where there is none
}

// fuse finds out whether a library finishes Y as kernels do. Its bias has the type of Y and lies
// along columns of Y, so others would be rounded; its approximation of Gelu is only as good as
// 16-bit floats need. The library for 2:4 weights has no Gelu, takes biases of images, too, and
// rounds them, which is the only way that it has.
func (b *binder) fuse(m, n int, ys [3]int, bias []float32, ep *op.Epilogue, sparse bool) (f fused) {
	_, transposed, ok := InColumns(m, n, ys[0], ys[1])
	if !ok {
		return f
	}
	float := b.prog.float
	switch {
	case ep.Act == "":
	case ep.Act == "Relu":
		f.act = Relu
	case ep.Act == "Gelu" && len(ep.ActArgs) > 0 && ep.ActArgs[0] != 0 && float != tensor.F32 && !sparse:
		f.act = GeluTanh
	default:
		return f
	}
	if bias != nil {
		f.bias = tensor.From(bias, len(bias))
		if float != tensor.F32 {
			f.bias = f.bias.To(float)
			if !sparse && !slices.Equal(f.bias.To(tensor.F32).F32s(), bias) {
				return f
			}
		}
		if transposed && !sparse {
			return f
		}
	}
	f.ok = true
	return f
}

// libraryTime is about how long a library takes for a product, as it was measured where it was, else: it chooses tiles, and
// divides the sums where there are too few of them.
func libraryTime(r backend.GPURates, dt tensor.DType, m, k, n, batch int, sparse bool) float64 {
	if dt != tensor.F32 {
		name := backend.DenseLibrary
		if sparse {
			name = backend.SparseLibrary
		}
		if t, ok := r.LibraryTime(name, m, k, n, batch); ok {
			return t
		}
	}
	least := math.Inf(1)
	if r.Grid != nil { // which says of own kernels alone more than the data sheet
		r.Launch = r.Grid.Launch * 1e-6
		r = r.WithoutGrid()
	}
	tiles := []backend.GPUTile{{MW: 4, NW: 2, KW: 1, R: 2, C: 16, Depth: 32}, {MW: 4, NW: 1, KW: 1, R: 1, C: 8, Depth: 32}, {MW: 2, NW: 1, KW: 1, R: 1, C: 2, Depth: 32}}
	if r.Warpgroups { // and clusters: two blocks share what they read
		tiles = append(tiles, backend.GPUTile{MW: 8, NW: 2, KW: 1, R: 2, C: 16, Depth: 32})
	}
	for _, t := range tiles {
		kernel := t.Kernel("", m, k, m*k*dt.Size())
		kernel.Share = r.Library
		if dt == tensor.F32 {
			kernel.Unit, kernel.Share = backend.Cores, min(1, r.Library)
		}
		if sparse {
			const reached = 0.75 // of twice the rate of dense products
			kernel.Unit, kernel.Share, kernel.Bytes = backend.SparseTensorCores, reached*r.Library, m*k/2*dt.Size()+m*k/8
		}
		launch := kernel.Launch
		kernel.Launch = func(n, batch int) backend.Geometry {
			g := launch(n, batch)
			g.Grid[1] *= max(1, k/256)
			return g
		}
		least = min(least, r.Time(&kernel, n, batch, dt.Size()))
	}
	return least
}

// workspace is the most memory that a plan may need: what NVIDIA recommends for a Hopper GPU,
// 32 MiB, and for those before.
func workspace(arch string) int {
	if backend.Generation(arch) == "sm_90" {
		return 32 << 20
	}
	return 4 << 20
}

// openLibraries opens those of the device. Where there is none, or it does not take the device, kernels compute
// in its place, unless the one for dense matrices is always asked for.
func (p *program) openLibraries() (err error) {
	lost := func() bool {
		e := (*Error)(nil)
		return errors.As(err, &e) && e.Lost
	}
	if p.library, err = p.driver.Library(); err != nil && (p.always || lost()) {
		if errors.Is(err, ir.ErrDevice) {
			return err
		}
		return fmt.Errorf("%s: %w: %v", p.driver.Name(), ir.ErrUnsupported, err)
	}
	if p.sparse, err = p.driver.SparseLibrary(); lost() {
		return errors.Join(err, p.closeLibraries())
	}
	return nil
}

func (p *program) closeLibraries() error {
	var errs []error
	for _, lib := range []Library{p.library, p.sparse} {
		if lib != nil {
			errs = append(errs, lib.Close())
		}
	}
	p.library, p.sparse = nil, nil
	return errors.Join(errs...)
}

// multiplier is the matrix W[rows,cols] of a product.
type multiplier struct {
	value      *ir.Value                      // it, nil where it is a weight
	matrix     func() (*tensor.Tensor, error) // makes it where it is a weight
	strides    [3]int                         // of rows, columns and matrices of a batch
	rows, cols int
}

// library has a library compute a product, where there is one and it is predicted to take less
// than best seconds, or always asked for. It reports false where there is none, or it has no way.
func (b *binder) library(lib Library, best float64, w multiplier, o operands, alpha float32, bias []float32, ep *op.Epilogue) (bool, error) {
	if lib == nil {
		return false, nil
	}
	float, sparse, rows, cols := b.prog.float, lib == b.prog.sparse, w.rows, w.cols
	f := b.fuse(rows, o.n, o.ys, bias, ep, sparse)
	if sparse && !f.ok { // it writes no sums in f32
		return false, nil
	}
	if !b.prog.always && b.timeWith(rows, cols, &o, f.ok, sparse) >= best {
		return false, nil
	}
	epilogue, err := epilogueOf(ep, nil, bias, o.residual)
	if err != nil {
		return false, err
	}
	p := Product{
		DType: float, Out: tensor.F32, M: rows, K: cols, N: o.n, Batch: o.batch, W: w.strides, X: o.xs, Y: o.ys, Alpha: alpha,
		Workspace: workspace(b.prog.driver.Arch()),
	}
	var inside *tensor.Tensor // the bias where the library adds it
	if f.ok {
		p.Out, p.Act, p.Residual, inside = float, f.act, o.residual != nil, f.bias
	}
	plan, err := b.planOf(lib, p, inside)
	if plan == nil {
		return false, err
	}
	if o.lay != nil {
		if err := o.lay(&o); err != nil {
			return false, err
		}
	}
	count := rows * o.n * o.batch
	sums, residual := o.y, param{}
	if !f.ok && float != tensor.F32 {
		sums = b.temp(count * tensor.F32.Size())
	}
	if p.Residual {
		residual = value(o.residual)
	}
	if err := b.launchPlan(lib, plan, w, o.x, residual, sums); err != nil {
		return false, err
	}
	if f.ok {
		return true, nil
	}
	return true, b.finish(sums, o.y, count, rows, o.ys[0], 1, epilogue)
}

// beside are the rates by which own kernels are compared with a library: as both were measured, else by the data sheet, since what
// was measured of the one alone says nothing of the other.
func (p *program) beside(sparse bool) backend.GPURates {
	name := backend.DenseLibrary
	if sparse {
		name = backend.SparseLibrary
	}
	if _, measured := p.rates.LibraryTime(name, 1, 1, 1, 1); measured && p.float != tensor.F32 {
		return p.rates
	}
	return p.rates.WithoutGrid()
}

// timeWith is about how long a product takes with a library, with what kernels do before it and,
// unless it is fused, after it.
func (b *binder) timeWith(rows, cols int, o *operands, fused, sparse bool) float64 {
	float, rates := b.prog.float, b.prog.beside(sparse)
	t := libraryTime(rates, float, rows, cols, o.n, o.batch, sparse)
	if !fused { // sums are written and read once more, in f32
		t += rates.Launch + float64(rows*o.n*o.batch*2*tensor.F32.Size())/rates.Cache
	}
	if o.lay != nil { // patches are written and read
		t += rates.Launch + float64(cols*o.n*o.batch*2*float.Size())/rates.Cache
	}
	return t
}

// planOf has a library plan a product with a bias, nil where it adds none. It returns nil where
// the library has no way.
func (b *binder) planOf(lib Library, p Product, bias *tensor.Tensor) (plan Plan, err error) {
	if bias != nil { // a plan wants to know where it will be
		if p.Bias, err = b.prog.driver.Alloc(len(bias.Bytes())); err != nil {
			return nil, err
		}
	}
	if plan, err = lib.Plan(p); err != nil {
		err = fmt.Errorf("%s: %w", lib.Name(), err)
	}
	if plan == nil {
		if p.Bias != 0 {
			if freed := b.prog.driver.Free(p.Bias); err == nil {
				err = freed
			}
		}
		return nil, err
	}
	b.plans = append(b.plans, plan)
	if p.Bias != 0 {
		b.constants = append(b.constants, p.Bias)
		if err := b.stream.Upload(p.Bias, bias.Bytes()); err != nil {
			return nil, err
		}
	}
	return plan, nil
}

// launchPlan launches a plan on a matrix and on other parameters.
func (b *binder) launchPlan(lib Library, plan Plan, w multiplier, x, residual, sums param) error {
	var space param
	if n := plan.Workspace(); n > 0 {
		space = b.temp(n)
	}
	matrix := value(w.value)
	if w.matrix != nil {
		t, err := w.matrix()
		if err != nil {
			return err
		}
		if matrix.tensor = t; plan.Compressed() > 0 {
			if matrix, err = b.compress(plan, t); err != nil {
				return fmt.Errorf("%s: %w", lib.Name(), err)
			}
		}
	}
	l := launch{node: b.node, name: b.name(lib.Name()), plan: plan, params: params{matrix, x, residual, sums, space}}
	err := b.resolve(l.params)
	if err == nil {
		b.made = append(b.made, l)
	}
	return err
}

// compress uploads a weight as a plan takes it, for this set of input shapes alone.
func (b *binder) compress(plan Plan, w *tensor.Tensor) (param, error) {
	from, err := b.prog.upload(b.stream, w)
	if err != nil {
		return param{}, err
	}
	to, err := b.prog.driver.Alloc(plan.Compressed())
	if err == nil {
		b.constants = append(b.constants, to)
		err = b.stream.Compress(plan, to, from)
	}
	if freed := b.prog.driver.Free(from); err == nil { // Compress has waited
		err = freed
	}
	return param{cell: Cell(to)}, err
}
