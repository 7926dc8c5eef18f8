package backend

import (
	"fmt"
	"math"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/lower/chain"
)

// GPUKernel is a kernel in CUDA C++ that computes Y = W X for a prepared weight W[M,K] and
// a batch of matrices X[K,N], and finishes each Y[M,N] by an epilogue. All of them take the
// same parameters: the parts; pointers to X and Y; M, K, N; the strides in elements of X by
// row, by column and by matrix, and those of Y, which are also the residual's; the patches of
// images that X is (see spc/device.cuh), null for a matrix; where sums go, null where the product is
// finished, and Splits; Extra; and those of the epilogue.
// Sizes are 32-bit integers, strides those of 64 bits.
type GPUKernel struct {
	Name    string           // format, dtype, tile and instruction set
	Parts   []*tensor.Tensor // what the device holds of the weight
	Bytes   int              // about what they take
	Columns int              // of a tile
	Extra   []int
	// What it does, for choosing among kernels: multiply-adds for each column of X, zeros that
	// it multiplies among them, and elements of X that it loads for each.
	Unit            GPUUnit
	Share           float64 // of the unit's rate that is in reach; 0 is all of it
	Products, Loads int
	Reads           int // bytes of shared memory that warps read for each tile's columns of Y
	// Splits is among how many blocks the columns of W are divided, and Rows is M. Where there are
	// more than 1, they write sums in f32, one Y[M,N] after another, that a second launch adds up and finishes.
	Splits, Rows int
	// Warpgroups says that only GPUs have the kernel on which four warps multiply together, those of sm_90.
	Warpgroups bool
	// Launch returns the shape of a launch for N columns and so many matrices.
	Launch func(n, batch int) Geometry
}

// Key names a kernel and its splits.
func (k *GPUKernel) Key() string {
	if k.Splits > 1 {
		return fmt.Sprintf("%s /%d", k.Name, k.Splits)
	}
	return k.Name
}

// GPUUnit is what computes products.
type GPUUnit int

// The units: the cores for floats, tensor cores, and those for 2:4, the latter two for 8-bit
// integers, too.
const (
	Cores GPUUnit = iota
	TensorCores
	SparseTensorCores
	IntegerCores
	SparseIntegerCores
)

// GPUTile is the shape of what a block of threads computes on tensor cores, Tile of
// spc/product.cuh; or, of Groups, that by warps of which four multiply together, besides which four others bring slabs, and
// which only GPUs with Warpgroups have.
type GPUTile struct {
	MW, NW, KW, R, C, Depth, Stages int
	Groups                          bool
}

// GPUTiles are those of kernels whose rows of tiles any number of warps may share, SPC_GROUPS and SPC_TILES of
// spc/product.cuh: for many columns to few.
var GPUTiles = []GPUTile{
	{MW: 8, NW: 1, KW: 1, R: 2, C: 16, Depth: 64, Stages: 4, Groups: true},
	{MW: 4, NW: 2, KW: 1, R: 2, C: 8, Depth: 64, Stages: 3},
	{MW: 4, NW: 2, KW: 1, R: 2, C: 4, Depth: 64, Stages: 3},
	{MW: 1, NW: 1, KW: 4, R: 2, C: 4, Depth: 128, Stages: 3},
	{MW: 1, NW: 1, KW: 4, R: 1, C: 1, Depth: 256, Stages: 4},
}

// GPUTiles8 are those of kernels for integers, SPC_TILES8 of spc/product8.cuh: for many and for fewer
// rows and columns, and for few.
var GPUTiles8 = []GPUTile{
	{MW: 2, NW: 2, KW: 1, R: 4, C: 8, Depth: 64, Stages: 2},
	{MW: 2, NW: 2, KW: 1, R: 2, C: 4, Depth: 64, Stages: 2},
	{MW: 1, NW: 1, KW: 4, R: 2, C: 4, Depth: 256, Stages: 2},
	{MW: 1, NW: 1, KW: 4, R: 1, C: 1, Depth: 256, Stages: 2},
}

// GPURows8 is a multiple of the rows of each, which weights are made up to.
const GPURows8 = 128

// Rows and Columns are those of Y.
func (t GPUTile) Rows() int    { return 16 * t.R * t.MW }
func (t GPUTile) Columns() int { return 8 * t.C * t.NW }

// Warps are those of a block of threads that multiply.
func (t GPUTile) Warps() int { return t.MW * t.NW * t.KW }

// Memory is the bytes of shared memory that a block needs, Memory of spc/product.cuh.
func (t GPUTile) Memory() int {
	aligned := func(n int) int { return (n + 1023) / 1024 * 1024 }
	slabs := t.Stages * aligned(t.Depth*t.Columns()*2)
	stages := t.MW * t.NW * 16 * (8*t.C + 1) * 4
	partial := (t.KW - 1) * t.MW * t.NW * t.R * t.C * 4 * 32 * 4
	return aligned(max(slabs, stages, partial))
}

// Shared is a kernel of such a tile with the shared memory that it needs, whose slabs of W have so many bytes: that of
// Groups, or of a GroupTile of spc/product.cuh, which is Groups on some GPUs and not on others.
func (t GPUTile) Shared(k GPUKernel, share int) GPUKernel {
	const barriers = 2 * 8
	groups := t.Stages * (t.Depth*t.Columns()*2 + share + barriers)
	switch {
	case t.Groups:
		k.Warpgroups = true
		return k.Holding(groups)
	case t.Warps() == 8 && t.KW == 1 && t.R*t.MW%4 == 0 && t.Columns()%64 == 0 && t.Depth == 64:
		return k.Holding(max(t.Memory(), groups))
	}
	return k.Holding(t.Memory())
}

// String is the tile in a kernel's name: rows x columns x depth, and how many warps share the
// depth.
func (t GPUTile) String() string {
	s := fmt.Sprintf("%dx%dx%d", t.Rows(), t.Columns(), t.Depth)
	if t.KW > 1 {
		s += fmt.Sprintf("k%d", t.KW)
	}
	return s
}

// Kernel is the kernel of such a tile for a weight [M,K].
func (t GPUTile) Kernel(name string, m, k, bytes int, extra ...int) GPUKernel {
	ceil := func(a, b int) int { return (a + b - 1) / b }
	down, threads := ceil(m, t.Rows()), 32*t.Warps()
	if t.Groups {
		threads += 32 * 4
	}
	return GPUKernel{
		Name: name, Bytes: bytes, Columns: t.Columns(), Extra: extra, Splits: 1, Rows: m,
		Unit: TensorCores, Products: down * t.Rows() * k, Loads: down * k, Reads: down * t.MW * k * t.Columns() * 2,
		Launch: func(n, batch int) Geometry {
			return Geometry{Grid: [3]int{ceil(n, t.Columns()), down, batch}, Block: [3]int{threads, 1, 1}}
		},
	}
}

// Divided is a kernel of such a tile whose rows of W have about so many slabs, and its variants
// by splits that leave at least two slabs to each.
func (t GPUTile) Divided(k GPUKernel, slabs int) []GPUKernel {
	out := []GPUKernel{k}
	for splits := 2; splits <= 8 && slabs >= 2*splits; splits *= 2 {
		divided := k
		divided.Splits = splits
		divided.Launch = func(n, batch int) Geometry {
			g := k.Launch(n, batch)
			g.Grid[2] *= splits
			return g
		}
		out = append(out, divided)
	}
	return out
}

// Holding is the kernel with so many bytes of dynamic shared memory.
func (k GPUKernel) Holding(bytes int) GPUKernel {
	launch := k.Launch
	k.Launch = func(n, batch int) Geometry {
		g := launch(n, batch)
		g.Shared = bytes
		return g
	}
	return k
}

// WithParts gives kernels the same parts.
func WithParts(kernels []GPUKernel, parts ...*tensor.Tensor) []GPUKernel {
	for i := range kernels {
		kernels[i].Parts = parts
	}
	return kernels
}

// GPUWork is what a launch does, for predicting its time.
type GPUWork struct {
	Unit       GPUUnit `json:"unit"`
	Operations float64 `json:"operations"` // of the unit on floats
	Cache      float64 `json:"cache"`      // bytes that multiprocessors read
	Shared     float64 `json:"shared"`     // bytes of their own memory that warps read
	Memory     float64 `json:"memory"`     // bytes of the weight, each once
	Finish     float64 `json:"finish"`     // bytes that a second launch moves, 0 of none
	Blocks     int     `json:"blocks"`
	Warps      int     `json:"warps"` // of each
}

// Work is what a launch for n columns in each of some matrices of elements of so many bytes does.
func (k *GPUKernel) Work(n, batch, size int) GPUWork {
	g := k.Launch(n, batch)
	columns, share := float64(g.Grid[0]*k.Columns*batch), 1.0
	if k.Share > 0 {
		share = k.Share
	}
	loads := float64(k.Loads * n * batch)
	if k.Unit == Cores { // lanes gather what is as wide as a tile
		loads = float64(k.Loads) * columns
	}
	finish := 0.0
	if k.Splits > 1 { // sums are written and read
		finish = float64(k.Rows*n*batch) * float64(2*k.Splits*4+size)
	}
	return GPUWork{
		Finish:     finish,
		Unit:       k.Unit,
		Operations: 2 * float64(k.Products) * columns / share,
		Cache:      loads*float64(size) + float64(k.Bytes*g.Grid[0]*batch),
		Shared:     float64(k.Reads * g.Grid[0] * batch),
		Memory:     float64(k.Bytes),
		Warps:      g.Block[0] * g.Block[1] * g.Block[2] / 32,
		Blocks:     g.Grid[0] * g.Grid[1] * g.Grid[2],
	}
}

// GPURates are what a GPU can do, by which kernels are compared: those of data sheets, of
// which kernels reach shares that are about the same, unless a grid says which. Only their
// ratios count.
type GPURates struct {
	Cores         float64 // floating-point operations a second, f32
	Tensor        float64 // by mma.sync, 16-bit floats
	Memory, Cache float64 // bytes a second
	Shared        float64 // those of all multiprocessors' own memory
	Launch        float64 // seconds that the least kernel of a graph takes
	Processors    int
	Warpgroups    bool     // it has kernels for those
	Grid          *GPUGrid // what was measured; nil where nothing was
	Library       float64  // what of Tensor NVIDIA's libraries reach: by wgmma, more than all
}

// RatesOf returns the rates of an architecture, as nvcc names it: of the A100 for those before
// sm_90, else of the H100, with the grid that is stored of such a GPU.
func RatesOf(arch string) GPURates {
	r := DataSheet(arch)
	r.Grid = grids()[Generation(arch)]
	return r
}

// WithoutGrid are the rates of the data sheet alone.
func (r GPURates) WithoutGrid() GPURates {
	r.Grid = nil
	return r
}

// Generation is the architecture whose rates and grid stand for arch.
func Generation(arch string) string {
	if arch < "sm_90" && len(arch) == len("sm_90") {
		return "sm_80"
	}
	return "sm_90"
}

// DataSheet returns the rates of an architecture as NVIDIA states them.
func DataSheet(arch string) GPURates {
	if Generation(arch) == "sm_80" {
		return GPURates{Cores: 19.5e12, Tensor: 280e12, Memory: 2e12, Cache: 4e12, Shared: 19e12, Launch: 1.5e-6, Processors: 108, Library: 1}
	}
	return GPURates{Warpgroups: arch == "sm_90", Cores: 67e12, Tensor: 600e12, Memory: 3.3e12, Cache: 6e12, Shared: 29e12, Launch: 1.5e-6, Processors: 132, Library: 1.35}
}

// Time is about how long a kernel takes for n columns in each of some matrices of elements of
// so many bytes.
func (r GPURates) Time(k *GPUKernel, n, batch, size int) float64 {
	return r.Predict(k.Key(), k.Work(n, batch, size))
}

// Predict is about how long a launch of the kernel of a key takes, and, where there is one, that which finishes it.
func (r GPURates) Predict(kernel string, w GPUWork) float64 {
	if r.Grid != nil {
		return r.Grid.predict(r, kernel, w)
	}
	processors, memory := r.bounds(w)
	return r.Launch + max(processors, memory) + r.finish(w, r.Launch)
}

// finish is what a second launch needs where one that does nothing takes so many seconds.
func (r GPURates) finish(w GPUWork, launch float64) float64 {
	if w.Finish == 0 {
		return 0
	}
	return launch + w.Finish/r.Cache
}

// bounds is what its unit, the cache or shared memory, whichever is most, needs for a launch on the
// multiprocessors that have blocks, and what the memory needs.
func (r GPURates) bounds(w GPUWork) (processors, memory float64) {
	const warpsToFill = 8 // one of them
	share := min(1, float64(w.Blocks)/float64(r.Processors), float64(w.Blocks*w.Warps)/float64(r.Processors*warpsToFill))
	return max(w.Operations/r.rate(w.Unit), w.Cache/r.Cache, w.Shared/r.Shared) / share, w.Memory / r.Memory
}

// rate is that of a unit.
func (r GPURates) rate(u GPUUnit) float64 {
	return map[GPUUnit]float64{
		Cores: r.Cores, TensorCores: r.Tensor, SparseTensorCores: 2 * r.Tensor, IntegerCores: 2 * r.Tensor, SparseIntegerCores: 4 * r.Tensor,
	}[u]
}

// Bound says what limits a kernel by the data sheet, as choosing has it: the launch, the bytes of the
// weight, reading from the cache or from shared memory, or nothing else than its work.
func (r GPURates) Bound(k *GPUKernel, n, batch, size int) string {
	w := k.Work(n, batch, size)
	processors, memory := r.bounds(w)
	switch {
	case r.Launch+r.finish(w, r.Launch) > max(processors, memory):
		return "the launch"
	case memory > processors:
		return "the bytes"
	case w.Cache/r.Cache > max(w.Operations/r.rate(w.Unit), w.Shared/r.Shared):
		return "reads from the cache"
	case w.Shared/r.Shared > w.Operations/r.rate(w.Unit):
		return "reads from shared memory"
	}
	return ""
}

// Has reports whether the GPU has a kernel.
func (r GPURates) Has(k *GPUKernel) bool { return r.Warpgroups || !k.Warpgroups }

// Pick chooses the kernel that is predicted to be the fastest, nil of none.
func (r GPURates) Pick(kernels []GPUKernel, n, batch, size int) *GPUKernel {
	var best *GPUKernel
	least := math.Inf(1)
	for i := range kernels {
		if t := r.Time(&kernels[i], n, batch, size); r.Has(&kernels[i]) && t < least {
			best, least = &kernels[i], t
		}
	}
	return best
}

// GPUShared is the shared memory that a launch may have on any GPU from sm_80 on, in bytes.
const GPUShared = 99 << 10

// Geometry is the shape of a launch.
type Geometry struct {
	Grid, Block [3]int
	Shared      int // bytes of dynamic shared memory
}

// GPUActivation returns the number by which kernels know the activation of an epilogue,
// and its two parameters.
func GPUActivation(e *op.Epilogue) (number int, a, b float32, err error) {
	f, a, b, ok := chain.Activation(e.Act, e.ActArgs)
	if !ok {
		return 0, 0, 0, fmt.Errorf("no GPU kernel applies the activation %s: %w", e.Act, ir.ErrUnsupported)
	}
	return int(f), a, b, nil
}
