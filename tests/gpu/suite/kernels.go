// Package suite has the tests of the CUDA back end for any driver: the emulator, the emulator
// behind the binding of the driver, or a GPU. It imports the back end and the other tests.
package suite

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"spc/backend"
	"spc/backend/cuda"
	"spc/backend/format"
	"spc/backend/format/dense"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/choose"
)

const seed = 5

// product is Y[M,N] = W X with an epilogue, and its float64 reference, for a batch of X.
type product struct {
	m, k, n, batch int
	dt             tensor.DType
	tokens         bool           // X lies as [batch,N,K] and Y as [batch,N,M], else as [batch,K,N] and [batch,M,N]
	w              *tensor.Tensor // f32, of values that dt holds
	x, res         *tensor.Tensor // dt
	want, limit    []float64      // of Y, and how far it may be off
	alpha          []float32
	bias           []float32
	ep             op.Epilogue
	image          *tensor.Tensor // dt, of which x is the patches, nil where it is a matrix
	patches        []int32
	images         int // that patches of a matrix are of
	// Sums may be rounded to dt twice before their activation: cuBLASLt 13.1 does so where K is 2, which
	// elements of its GELU show that are what the function makes of a rounded sum.
	narrow bool
}

func draw(rng *rand.Rand, dt tensor.DType, shape ...int) *tensor.Tensor {
	t := tensor.New(tensor.F32, shape...)
	for i := range t.F32s() {
		t.F32s()[i] = float32(rng.NormFloat64())
	}
	return t.To(dt)
}

// rows draws a weight of which each row has about so many nonzeros, some none at all.
func rows(rng *rand.Rand, dt tensor.DType, m, k int, share float64) *tensor.Tensor {
	w := draw(rng, dt, m, k).To(tensor.F32)
	for i := range w.F32s() {
		if rng.Float64() >= share || m > 3 && i/max(1, k) == 2 {
			w.F32s()[i] = 0
		}
	}
	return w
}

// halve leaves at most 2 of every 4 elements of a row.
func halve(rng *rand.Rand, w *tensor.Tensor) {
	k := w.Dim(1)
	for r := range w.Dim(0) {
		for at := 0; at < k; at += 4 {
			group := w.F32s()[r*k+at : r*k+min(at+4, k)]
			for _, i := range rng.Perm(len(group))[min(2, len(group)):] {
				group[i] = 0
			}
		}
	}
}

// holes empties half of the blocks of 32 x 16, and the blocks of the first 64 rows but one.
func holes(rng *rand.Rand, w *tensor.Tensor) {
	rows, cols := w.Dim(0), w.Dim(1)
	for r := 0; r < rows; r += 32 {
		for c := 0; c < cols; c += 16 {
			if r+c == 0 || r >= 64 && rng.IntN(2) == 0 {
				continue
			}
			for i := r; i < min(r+32, rows); i++ {
				clear(w.F32s()[i*cols+c : i*cols+min(c+16, cols)])
			}
		}
	}
}

// epilogues lists some of the epilogues that a product may have.
var epilogues = []op.Epilogue{
	{}, {Act: "Relu"}, {Act: "Clip", ActArgs: []float32{-0.5, 1.5}}, {Act: "LeakyRelu", ActArgs: []float32{0.1}},
	{Act: "HardSigmoid", ActArgs: []float32{0.2, 0.5}}, {Act: "HardSwish"}, {Act: "Sigmoid"}, {Act: "Tanh"},
	{Act: "Swish", ActArgs: []float32{1.5}}, {Act: "Gelu", ActArgs: []float32{0}}, {Act: "Gelu", ActArgs: []float32{1}},
}

func newProduct(rng *rand.Rand, dt tensor.DType, w *tensor.Tensor, n int) *product {
	p := &product{m: w.Dim(0), k: w.Dim(1), n: n, batch: 1 + rng.IntN(2), dt: dt, tokens: rng.IntN(3) == 0, w: w, ep: epilogues[rng.IntN(len(epilogues))]}
	p.x = draw(rng, dt, p.batch, p.k, n)
	if rng.IntN(2) == 0 {
		p.res = draw(rng, dt, p.batch, p.m, n)
	}
	if rng.IntN(2) == 0 {
		p.bias = draw(rng, tensor.F32, p.m).F32s()
	}
	if rng.IntN(2) == 0 {
		p.alpha = draw(rng, tensor.F32, p.m).F32s()
	}
	p.reference()
	return p
}

// strides are those of X or Y with so many rows: by row, by column and by matrix.
func (p *product) strides(rows int) [3]int {
	if p.tokens {
		return [3]int{1, rows, rows * p.n}
	}
	return [3]int{p.n, 1, rows * p.n}
}

// slid is the size of what a kernel gives that slides over an image.
func slid(in []int, spans []op.Span) (out []int) {
	for i, s := range spans {
		out = append(out, (in[i]+s.Begin+s.End-(s.Kernel-1)*s.Dilation-1)/s.Stride+1)
	}
	return out
}

// unroll returns where in images [channels, in...] each element of their patches lies, which are a
// matrix for each image, -1 outside.
func unroll(batch, channels int, in, out []int, spans []op.Span) []int {
	taps, pixels := spans[0].Kernel*spans[1].Kernel, out[0]*out[1]
	from := make([]int, batch*channels*taps*pixels)
	for i := range from {
		c, tap, n := i/(taps*pixels), i/pixels%taps, i%pixels // of all channels of all images
		row := n/out[1]*spans[0].Stride + tap/spans[1].Kernel*spans[0].Dilation - spans[0].Begin
		column := n%out[1]*spans[1].Stride + tap%spans[1].Kernel*spans[1].Dilation - spans[1].Begin
		from[i] = -1
		if row >= 0 && row < in[0] && column >= 0 && column < in[1] {
			from[i] = (c*in[0]+row)*in[1] + column
		}
	}
	return from
}

// window draws a convolution of at most so many channels whose patches have k elements: its channels,
// image and spans.
func window(rng *rand.Rand, most, k int) (channels int, in []int, spans []op.Span) {
	// As many taps as make K, in one line or some.
	for channels = most; k%channels > 0; {
		channels--
	}
	kh, kw := 1, k/channels
	for kw%2 == 0 && kh < kw {
		kh, kw = kh*2, kw/2
	}
	span := func(kernel int) op.Span {
		return op.Span{Kernel: kernel, Stride: 1 + rng.IntN(2), Dilation: 1 + rng.IntN(2), Begin: rng.IntN(kernel), End: rng.IntN(kernel)}
	}
	spans = []op.Span{span(kh), span(kw)}
	return channels, []int{(kh-1)*spans[0].Dilation + 1 + rng.IntN(6), (kw-1)*spans[1].Dilation + 1 + rng.IntN(9)}, spans
}

// newConvolution is the product of a weight with the patches of images [c, h, w], which are K rows; or, where
// channels come last, with those of one or two images [h, w, c] at once.
func newConvolution(rng *rand.Rand, dt tensor.DType, w *tensor.Tensor, channels int, in []int, spans []op.Span) *product {
	out := slid(in, spans)
	last, images := channels%cuda.ChannelUnit == 0, 1
	if last {
		images += rng.IntN(2)
	}
	pixels, taps := out[0]*out[1], spans[0].Kernel*spans[1].Kernel
	p := newProduct(rng, dt, w, images*pixels)
	p.tokens = last && p.tokens
	p.image, p.images = draw(rng, dt, p.batch*images, channels, in[0], in[1]), images
	p.patches = cuda.Patches(channels, in, out, spans, last)
	x, image := tensor.New(tensor.F32, p.batch, p.k, p.n), p.image.To(tensor.F32)
	xs := p.strides(p.k)
	for i, from := range unroll(p.batch*images, channels, in, out, spans) {
		b, k, n := i/(p.k*pixels), i/pixels%p.k, i%pixels
		if last {
			k = k%taps*channels + k/taps
		}
		if n += b % images * pixels; from >= 0 {
			x.F32s()[b/images*xs[2]+k*xs[0]+n*xs[1]] = image.F32s()[from]
		}
	}
	p.x = x.To(dt)
	if last {
		p.image = image.Permute(0, 2, 3, 1).To(dt)
	}
	p.reference()
	return p
}

// steepest is more than the slope of each activation that a library computes: of GELU, at 1.4.
const steepest = 1.13

// reference computes want in float64, and limit. Sums in float32 may be off by a
// rounding of each of their terms, and results by one to dt; activations stretch what
// comes before them by no more than a factor of 2.
func (p *product) reference() {
	w, x := p.w.F32s(), p.x.Float64s()
	var res []float64
	if p.res != nil {
		res = p.res.Float64s()
	}
	xs, ys := p.strides(p.k), p.strides(p.m)
	p.want, p.limit = make([]float64, p.batch*p.m*p.n), make([]float64, p.batch*p.m*p.n)
	round := map[tensor.DType]float64{tensor.F32: 0x1p-23, tensor.F16: 0x1p-11, tensor.BF16: 0x1p-8}[p.dt]
	for i := range p.batch * p.m * p.n {
		b, m, n := i/(p.m*p.n), i/p.n%p.m, i%p.n
		at := m*ys[0] + n*ys[1] + b*ys[2]
		sum, size, terms := 0.0, 0.0, 3.0
		for k := range p.k {
			if v := float64(w[m*p.k+k]); v != 0 {
				v *= x[k*xs[0]+n*xs[1]+b*xs[2]]
				sum += v
				size += math.Abs(v)
				terms++
			}
		}
		add := func(v float64) {
			sum += v
			size += math.Abs(v)
		}
		if p.alpha != nil {
			sum *= float64(p.alpha[m])
			size *= math.Abs(float64(p.alpha[m]))
		}
		if p.bias != nil {
			add(float64(p.bias[m]))
		}
		if p.res != nil {
			add(res[at])
		}
		if a, ok := op.Activations[p.ep.Act]; ok {
			sum = a.F(sum, p.ep.ActArgs)
		}
		before := 0.0
		if p.narrow && p.ep.Act != "" {
			before = 2 * steepest * size * round
		}
		p.want[at], p.limit[at] = sum, before+2*terms*size*0x1p-24+math.Abs(sum)*round+0x1p-20*math.Min(1, size)+0x1p-25
	}
}

// check compares y, of dt, with the reference.
func (p *product) check(y *tensor.Tensor) error {
	for i, v := range y.Float64s() {
		if v == p.want[i] { // infinities, too
			continue
		}
		if math.IsInf(p.want[i], 0) || !(math.Abs(v-p.want[i]) <= p.limit[i]) {
			return fmt.Errorf("element %d is %v, want %v within %v", i, v, p.want[i], p.limit[i])
		}
	}
	return nil
}

func (p *product) String() string {
	return fmt.Sprintf("%v image %v M=%d K=%d N=%d batch %d tokens %t %s%v residual %t bias %t alpha %t", p.dt, p.patches != nil, p.m, p.k, p.n, p.batch, p.tokens, p.ep.Act, p.ep.ActArgs, p.res != nil, p.bias != nil, p.alpha != nil)
}

// test runs a kernel and checks what it gives.
func (p *product) test(d cuda.Driver, k *backend.GPUKernel) error {
	y, err := p.run(d, k)
	if err != nil {
		return err
	}
	return p.check(y)
}

// run launches a kernel on the product, and returns Y.
func (p *product) run(d cuda.Driver, k *backend.GPUKernel) (*tensor.Tensor, error) {
	act, a, b, err := backend.GPUActivation(&p.ep)
	if err != nil {
		return nil, err
	}
	y := tensor.New(p.dt, p.batch, p.m, p.n)
	for i := range y.Bytes() { // not a number, so that an element that is not written is seen
		y.Bytes()[i] = 0xff
	}
	xs, ys := p.strides(p.k), p.strides(p.m)
	x, patches := p.x, (*tensor.Tensor)(nil)
	if p.image != nil {
		x, patches, xs[2] = p.image, tensor.From(p.patches, len(p.patches)), p.image.Len()/p.batch
	}
	sums := (*tensor.Tensor)(nil)
	if k.Splits > 1 {
		sums = tensor.From(slices.Repeat([]float32{float32(math.NaN())}, k.Splits*y.Len()), k.Splits, y.Len())
	}
	all := slices.Concat(read(k.Parts...), read(x), written(y), ints(p.m, p.k, p.n), ints(xs[:]...), ints(ys[:]...), read(patches), written(sums),
		ints(max(1, k.Splits)), ints(k.Extra...))
	optional := func(v []float32) *tensor.Tensor {
		if v == nil {
			return nil
		}
		return tensor.From(v, len(v))
	}
	epilogue := slices.Concat(read(optional(p.alpha), optional(p.bias), p.res), ints(act), floats(a, b))
	if sums == nil {
		return y, launch(d, k.Name, k.Launch(p.n, p.batch), all, epilogue)
	}
	if err := launch(d, k.Name, k.Launch(p.n, p.batch), all, make([]param, len(epilogue))); err != nil {
		return nil, err
	}
	g := backend.Geometry{Grid: [3]int{(y.Len() + 255) / 256, 1, 1}, Block: [3]int{256, 1, 1}}
	return y, launch(d, p.dt.String()+"_finish", g, read(sums), written(y), ints(y.Len(), p.m, ys[0], k.Splits), epilogue)
}

// param is a parameter of a kernel: a cell, or a tensor in the device's memory, which holds afterwards what the kernel wrote
// where that is written.
type param struct {
	cell    cuda.Cell
	tensor  *tensor.Tensor
	written bool
}

func ints(v ...int) (out []param) {
	for _, v := range v {
		out = append(out, param{cell: cuda.IntCell(v)})
	}
	return out
}

func floats(v ...float32) (out []param) {
	for _, v := range v {
		out = append(out, param{cell: cuda.FloatCell(v)})
	}
	return out
}

// read are tensors, nil where a pointer is null.
func read(t ...*tensor.Tensor) (out []param) {
	for _, t := range t {
		out = append(out, param{tensor: t})
	}
	return out
}

func written(t *tensor.Tensor) []param { return []param{{tensor: t, written: true}} }

// onEach calls f for all drivers at once.
func onEach(drivers []cuda.Driver, f func(d cuda.Driver) error) error {
	errs := make([]error, len(drivers))
	var all sync.WaitGroup
	for i, d := range drivers {
		all.Go(func() {
			if err := f(d); err != nil {
				errs[i] = fmt.Errorf("driver %d: %w", i, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// launch runs a kernel to its end.
func launch(d cuda.Driver, kernel string, g backend.Geometry, params ...[]param) (err error) {
	k, err := d.Kernel(kernel)
	if err != nil {
		return err
	}
	s, err := d.Stream()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	all := slices.Concat(params...)
	cells := make([]cuda.Cell, len(all))
	for i, p := range all {
		if p.tensor == nil {
			cells[i] = p.cell
			continue
		}
		at, err := d.Alloc(max(1, len(p.tensor.Bytes())))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Free(at)) }()
		if err := s.Upload(at, p.tensor.Bytes()); err != nil {
			return err
		}
		cells[i] = cuda.Cell(at)
	}
	if err := s.Launch(k, g, cells); err != nil {
		return err
	}
	for i, p := range all {
		if p.written && p.tensor != nil {
			if err := s.Download(p.tensor.Bytes(), cuda.Pointer(cells[i])); err != nil {
				return err
			}
		}
	}
	return nil
}

// store packs a weight in a configuration, or, where none is given, in the first that the
// format offers.
func store(f *backend.Format, config string, w *tensor.Tensor, n int) (*ir.Store, error) {
	if config == "" {
		costs := f.Costs(machine.Default, choose.NewMatrix(w, ""), n)
		if len(costs) == 0 {
			return nil, nil
		}
		config = costs[0].Config
	}
	s := &ir.Store{Format: f.Name(), Config: config, Rows: w.Dim(0), Cols: w.Dim(1)}
	var err error
	s.Parts, err = f.Pack(w, s.Config)
	return s, err
}

// Kernels tests that every kernel of every format gives the product, whatever the shape, on
// each of some drivers.
func Kernels(t *testing.T, drivers ...cuda.Driver) {
	t.Logf("seed %d", seed)
	type shape struct{ m, k, n int }
	shapes := []shape{{1, 1, 1}, {31, 5, 3}, {32, 64, 8}, {33, 130, 17}, {70, 40, 32}, {64, 96, 1}, {5, 300, 4}, {96, 33, 16}, {130, 70, 65}, {33, 2528, 9}}
	launched, long := map[string]int{}, map[string]bool{}
	whole := true // no part of the test was left out
	for _, f := range format.Table {
		for _, dt := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
			ran := false
			t.Run(fmt.Sprintf("%s %v", f.Name(), dt), func(t *testing.T) {
				ran = true
				rng := rand.New(rand.NewPCG(seed, uint64(dt)))
				all := shapes
				if dt == tensor.F16 {
					all = append(all, shape{3, 70000, 4}) // columns of 32 bits
				}
				for j, s := range all {
					share := []float64{0.5, 0.2, 1, 0.05}[rng.IntN(4)]
					if s.k > 2000 { // several slabs of every kernel, which take all chunks of a bitmap at once or none
						if share = 0.3; f.Name() == "nm" { // which takes what fills its groups
							share = 1
						}
					}
					w := rows(rng, dt, s.m, s.k, share)
					config := ""
					switch f.Name() {
					case "nm":
						halve(rng, w)
					case "block":
						config = []string{"16x16", "32x32", "64x64", "32x16", "4x1"}[rng.IntN(5)]
						holes(rng, w)
					}
					p := newProduct(rng, dt, w, s.n)
					st, err := store(f, config, w, s.n)
					if err != nil {
						t.Fatal(err)
					}
					if st == nil {
						continue
					}
					kernels, err := f.GPU(st, dt)
					if err != nil {
						t.Fatal(err)
					}
					offered := f.GPUKernels(choose.NewMatrix(w, ""), st.Config, dt)
					if len(offered) != len(kernels) {
						t.Fatalf("%d kernels, and %d that costs speak of", len(kernels), len(offered))
					}
					for i, k := range kernels {
						bytes := 0
						for _, p := range k.Parts {
							bytes += len(p.Bytes())
						}
						// Parts are made up to whole tiles.
						if o := offered[i]; o.Key() != k.Key() || o.Bytes != k.Bytes || o.Products != k.Products || k.Bytes > bytes+64 {
							t.Fatalf("%+v with parts of %d bytes, but costs speak of %+v", k, bytes, o)
						}
					}
					if f.Name() == "dense" && dt != tensor.F32 {
						kernels = append(kernels, backend.WithParts([]backend.GPUKernel{dense.GEMM(dt, s.m, s.k, [3]int{s.k, 1, 0})}, w.To(dt))...)
					}
					convolution := (*product)(nil)
					if channels := []int{1, 3, 4, 7, 8, 24, 64}[rng.IntN(7)]; s.k > 16 && s.k < 1000 && dt != tensor.F32 {
						channels, in, spans := window(rng, channels, s.k)
						convolution = newConvolution(rng, dt, w, channels, in, spans)
					}
					for i := range kernels {
						if s.k > 1<<16 && kernels[i].Unit != backend.Cores { // their columns have no indices
							continue
						}
						if s.k > 2000 { // which takes long, and kernels of several formats are the same
							if long[kernels[i].Key()] {
								continue
							}
							long[kernels[i].Key()] = true
						}
						if !backend.DataSheet(drivers[0].Arch()).Has(&kernels[i]) {
							continue
						}
						products := []*product{p}
						if convolution != nil && kernels[i].Unit != backend.Cores && !strings.Contains(kernels[i].Name, "strided") {
							products = append(products, convolution)
						}
						for l, p := range products {
							some := drivers
							if l > 0 || dt == tensor.BF16 { // the code of which is that of f16
								some = drivers[(i+j+l)%len(drivers):][:1]
							}
							if err := onEach(some, func(d cuda.Driver) error { return p.test(d, &kernels[i]) }); err != nil {
								t.Fatalf("%s on %v, %v", kernels[i].Key(), p, err)
							}
						}
						launched[kernels[i].Key()]++
					}
				}
			})
			whole = whole && ran
		}
	}
	for _, name := range []string{
		"f32_dense_64x64x16_simt", "f16_dense_128x128x64_mma", "bf16_dense_32x32x128k4_mma", "f16_dense_16x8x256k4_mma",
		"f16_ell_32x8w4_u16_simt", "f16_ell_32x8w4_u32_simt", "f16_ell_2x1_u8_simt", "bf16_ell_2x8_u8_simt", "f32_ell_2x4_u8_simt", "f32_csr_4x128_u16_simt", "f16_csr_4x8_u32_simt", "f32_csr_4x1_u16_simt", "bf16_csr_4x32_u16_simt",
		"f16_bitmap_256x64x64_mma", "bf16_bitmap_128x32x128k2_mma", "f16_bitmap_64x16x256k4_mma", "bf16_bitmap_32x8x512k8_mma", "f16_bitmap_16x8x256k4_mma",
		"bf16_bitmap1x2_256x64x64_mma", "f16_bitmap1x2_128x32x128k2_mma", "bf16_bitmap1x2_64x16x256k4_mma", "bf16_bitmap1x2_32x8x512k8_mma", "f16_bitmap1x2_16x8x256k4_mma",
		"f16_nm24_128x128x64_mmasp", "bf16_nm24_32x32x128k4_mmasp", "f16_nm24_16x8x256k4_mmasp",
		"f16_dense_128x64x64_mma /8", "bf16_dense_32x32x128k4_mma /4", "f16_bitmap_256x64x64_mma /2", "bf16_bitmap_16x8x256k4_mma /4", "f16_nm24_128x128x64_mmasp /4",
		"f16_block_16x128x16_mma", "f16_block_32x128x32_mma", "f16_block_64x128x64_mma", "f16_block_64x8x64k4_mma",
		"f16_dense_strided_64x64x32_mma", "bf16_dense_strided_64x64x32_mma",
	} {
		if whole && launched[name] == 0 {
			t.Errorf("%s was not launched", name)
		}
	}
}

// Warpgroups tests the kernels by which four warps multiply together where a GPU does so, on edges of their
// tiles and slabs.
func Warpgroups(t *testing.T, drivers ...cuda.Driver) {
	t.Logf("seed %d", seed)
	rates := backend.DataSheet(drivers[0].Arch())
	launched, absent := map[string]int{}, map[string]bool{}
	for _, c := range []struct{ format, config, kernels string }{
		{"dense", "", `_dense_(128|256)x`}, {"nm", "", `_nm24_(128|256)x`}, {"block", "64x64", `_block_64x(128|256)x64`},
		{"block", "64x128", `_block_64x(128|256)x64`},
	} {
		f := format.Lookup(c.format)
		for _, dt := range []tensor.DType{tensor.F16, tensor.BF16} {
			t.Run(fmt.Sprintf("%s %s %v", c.format, c.config, dt), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, uint64(dt)))
				for i, s := range []struct{ m, k, n int }{{1, 8, 1}, {65, 456, 72}, {130, 70, 130}} {
					w := rows(rng, dt, s.m, s.k, 1)
					switch c.format {
					case "nm":
						halve(rng, w)
					case "block":
						holes(rng, w)
					}
					st, err := store(f, c.config, w, s.n)
					if err != nil || st == nil {
						t.Fatalf("%v: %v, %v", s, st, err)
					}
					kernels, err := f.GPU(st, dt)
					if err != nil {
						t.Fatal(err)
					}
					products := []*product{newProduct(rng, dt, w, s.n), newProduct(rng, dt, w, s.n)}
					for j, p := range products { // columns of a slab are lines, or its rows
						p.tokens = j == 0
						p.reference()
					}
					channels, in, spans := window(rng, 1+2*(i%2), s.k)
					products = append(products, newConvolution(rng, dt, w, channels, in, spans))
					if channels, in, spans := window(rng, 24, s.k); channels%cuda.ChannelUnit == 0 { // which come last
						in[1] += 12 * spans[1].Stride // so that there are several tiles
						products = append(products, newConvolution(rng, dt, w, channels, in, spans))
					}
					for j := range kernels {
						k := &kernels[j]
						if !regexp.MustCompile(c.kernels).MatchString(k.Name) {
							continue
						}
						if !rates.Has(k) {
							absent[k.Key()] = true
							continue
						}
						for l, p := range products {
							some := drivers
							if dt == tensor.BF16 { // the code of which is that of f16
								some = drivers[(j+l)%len(drivers):][:1]
							}
							if err := onEach(some, func(d cuda.Driver) error { return p.test(d, k) }); err != nil {
								t.Fatalf("%s on %v, %v", k.Key(), p, err)
							}
						}
						launched[k.Key()]++
					}
				}
			})
		}
	}
	for _, name := range []string{
		"f16_dense_128x128x64_mma", "bf16_dense_128x64x64_mma", "bf16_nm24_128x128x64_mmasp", "f16_nm24_128x64x64_mmasp",
		"f16_dense_256x128x64_mma", "bf16_dense_256x128x64_mma /2", "f16_nm24_256x128x64_mmasp /2", "bf16_nm24_256x128x64_mmasp", "f16_block_64x256x64_mma", "bf16_block_64x256x64_mma",
		"f16_block_64x128x64_mma", "bf16_block_64x128x64_mma", "f16_dense_128x64x64_mma /2", "f16_nm24_128x128x64_mmasp /2",
	} {
		if launched[name] == 0 && !absent[name] && !t.Failed() {
			t.Errorf("%s was not launched", name)
		}
	}
}

// uniform draws a weight with s nonzeros in each row, in the columns that may have some.
func uniform(rng *rand.Rand, dt tensor.DType, m, k, s int, may func(column int) bool) *tensor.Tensor {
	w := tensor.New(tensor.F32, m, k)
	for i := range m {
		left := s
		for _, c := range rng.Perm(k) {
			if left > 0 && may(c) {
				w.F32s()[i*k+c] = 1 + rng.Float32() // so that infinities do not cancel
				left--
			}
		}
	}
	return tensor.From(w.To(dt).To(tensor.F32).F32s(), m, k)
}

// Staged tests that kernels that stage X in shared memory give the product where groups of
// nonzeros, slabs of columns and tiles of rows end, whatever is in the columns that a row does
// not read.
func Staged(t *testing.T, drivers ...cuda.Driver) {
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	ell := format.Lookup("ell")
	all := func(int) bool { return true }
	launched := map[string]int{}
	for i, s := range []struct {
		m, k, s int
		may     func(column int) bool
	}{
		{1, 1, 1, all}, {2, 5, 0, all}, {3, 40, 7, all}, {33, 255, 8, all}, {70, 256, 9, all}, {31, 257, 16, all}, {5, 1000, 17, all},
		{9, 520, 3, func(c int) bool { return c < 3 || c >= 515 }},        // a slab is skipped
		{20, 2000, 6, func(c int) bool { return c < 290 || c >= 1500 }},   // and some
		{7, 1300, 10, func(c int) bool { return c%256 == 0 || c == 255 }}, // steps of 255 and 256
		{3, 1800, 1100, all}, // more groups than lanes have under way
		{4, 49152, 11, all},  // as many columns as fit for f16
		{8130, 40, 3, all},   // pairs of rows one after another
		{40, 384, 128, all},
	} {
		w := uniform(rng, tensor.BF16, s.m, s.k, s.s, s.may) // of values that each type holds
		st, err := store(format.Lookup("ell"), "1x1", w, 1)
		if err != nil {
			t.Fatal(err)
		}
		columns := []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
		switch {
		case s.k > 10000:
			columns = []int{1}
		case s.m > 1000:
			columns = []int{8}
		}
		for _, n := range columns {
			dt := []tensor.DType{tensor.F16, tensor.F32, tensor.BF16}[(i+n/2)%3]
			kernels, err := ell.GPU(st, dt)
			if err != nil {
				t.Fatal(err)
			}
			products := []*product{newProduct(rng, dt, w, n), newProduct(rng, dt, w, n)}
			products[0].tokens, products[1].tokens = false, true
			for _, p := range products {
				p.unread(rng)
				for j := range kernels {
					k := &kernels[j]
					if !strings.Contains(k.Name, "_ell_2x") || s.m > 1000 && k.Columns < n {
						continue
					}
					if err := onEach(drivers, func(d cuda.Driver) error { return p.test(d, k) }); err != nil {
						t.Fatalf("%s on %v, %d nonzeros in a row, %v", k.Name, p, s.s, err)
					}
					launched[k.Name]++
				}
			}
		}
	}
	for _, dt := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
		for _, n := range []int{1, 2, 4, 8} {
			if name := fmt.Sprintf("%v_ell_2x%d_u8_simt", dt, n); launched[name] == 0 {
				t.Errorf("%s was not launched", name)
			}
		}
	}
}

// unread makes infinities and NaN of what X has in columns in which W has no nonzero, and infinities
// of a tenth of what the others have, and computes the reference, whose epilogue keeps those.
func (p *product) unread(rng *rand.Rand) {
	read := make([]bool, p.k)
	for i, v := range p.w.F32s() {
		read[i%p.k] = read[i%p.k] || v != 0
	}
	x := p.x.To(tensor.F32)
	xs := p.strides(p.k)
	for b := range p.batch {
		for k := range p.k {
			for n := range p.n {
				at := &x.F32s()[k*xs[0]+n*xs[1]+b*xs[2]]
				switch {
				case !read[k]:
					*at = float32([]float64{math.Inf(1), math.Inf(-1), math.NaN()}[rng.IntN(3)])
				case p.k < 100 && rng.IntN(10) == 0:
					*at = float32(math.Inf(1))
				}
			}
		}
	}
	p.x, p.ep, p.alpha = x.To(p.dt), op.Epilogue{}, nil
	p.reference()
}
