package suite

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spc/backend"
	"spc/backend/cuda"
	"spc/backend/format"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// epilogues8 are those whose f32 arithmetic has one result.
var epilogues8 = []op.Epilogue{{}, {Act: "Relu"}, {Act: "Clip", ActArgs: []float32{-3, 40}}, {Act: "LeakyRelu", ActArgs: []float32{0.1}}}

// types8 numbers types as spc/product8.cuh does.
var types8 = []tensor.DType{tensor.U8, tensor.F32, tensor.F16, tensor.BF16}

// product8 is Y[M,N] = W X in 8-bit integers with an epilogue, for a batch of X.
type product8 struct {
	product                  // its sizes, layout, bias and epilogue
	w, x, res *tensor.Tensor // i8 [M,K], u8 and the residual's type
	q         op.Quant
	y         tensor.DType
	want      *tensor.Tensor // of type y
}

func newProduct8(rng *rand.Rand, w *tensor.Tensor, n int, tokens bool) *product8 {
	p := &product8{w: w, y: types8[rng.IntN(4)]}
	p.m, p.k, p.n, p.batch = w.Dim(0), w.Dim(1), n, 1+rng.IntN(2)
	p.tokens, p.ep = tokens, epilogues8[rng.IntN(4)]
	p.x = tensor.New(tensor.U8, p.batch, p.k, n)
	for i := range p.x.Bytes() {
		p.x.Bytes()[i] = byte(rng.Uint32())
		if rng.IntN(8) == 0 {
			p.x.Bytes()[i] = 255
		}
	}
	if rng.IntN(2) == 0 {
		p.bias = draw(rng, tensor.F32, p.m).F32s()
	}
	p.q = op.Quant{XScale: 0.03, XZero: rng.IntN(256), YZero: rng.IntN(256), YScale: float32(math.Exp(rng.NormFloat64())), WScale: []float32{0.01}}
	if rng.IntN(2) == 0 {
		p.q.WScale = make([]float32, p.m)
		for i := range p.q.WScale {
			p.q.WScale[i] = rng.Float32()/50 + 1e-3
		}
	}
	switch rng.IntN(3) {
	case 0:
		p.q.RScale, p.q.RZero = 0.25, rng.IntN(256)
		p.res = tensor.New(tensor.U8, p.batch, p.m, n)
		for i := range p.res.Bytes() {
			p.res.Bytes()[i] = byte(rng.Uint32())
		}
	case 1:
		dt := types8[1+rng.IntN(3)]
		p.res = draw(rng, dt, p.batch, p.m, n)
	}
	p.reference()
	return p
}

// newConvolution8 is the product of a weight with the patches of images, whose padding is the zero point.
func newConvolution8(rng *rand.Rand, w *tensor.Tensor) *product8 {
	channels, in, spans := window(rng, []int{1, 3, 4, 7}[rng.IntN(4)], w.Dim(1))
	out := slid(in, spans)
	p := newProduct8(rng, w, out[0]*out[1], false)
	p.image, p.patches = tensor.New(tensor.U8, p.batch, channels, in[0], in[1]), cuda.Patches(channels, in, out, spans, false)
	for i := range p.image.Bytes() {
		p.image.Bytes()[i] = byte(rng.Uint32())
	}
	for i, from := range unroll(p.batch, channels, in, out, spans) {
		if p.x.Bytes()[i] = byte(p.q.XZero); from >= 0 {
			p.x.Bytes()[i] = p.image.Bytes()[from]
		}
	}
	p.reference()
	return p
}

// way is how X comes to a kernel: by pixels, or by so many neighbours at once in a column or a row.
func (p *product8) way() string {
	if p.image != nil {
		return "pixels"
	}
	far := p.n
	if p.tokens {
		far = p.k
	}
	piece := min(far&-far, 16)
	if piece < 4 {
		piece = 1
	}
	return fmt.Sprintf("tokens %t by %d", p.tokens, piece)
}

// reference computes want as op.Quant says.
func (p *product8) reference() {
	w, x := tensor.Data[int8](p.w), p.x.Bytes()
	var res []float64
	if p.res != nil {
		res = p.res.Float64s()
	}
	xs, ys := p.strides(p.k), p.strides(p.m)
	out := make([]float32, p.batch*p.m*p.n)
	for i := range out {
		b, m, n := i/(p.m*p.n), i/p.n%p.m, i%p.n
		at := m*ys[0] + n*ys[1] + b*ys[2]
		sum := 0
		for k := range p.k {
			sum += int(w[m*p.k+k]) * (int(x[k*xs[0]+n*xs[1]+b*xs[2]]) - p.q.XZero)
		}
		v := float32(sum) * (p.q.XScale * p.q.WScale[m%len(p.q.WScale)])
		if p.bias != nil {
			v = float32(v) + p.bias[m]
		}
		if res != nil && p.q.RScale != 0 {
			v += float32(p.q.RScale * (float32(res[at]) - float32(p.q.RZero)))
		} else if res != nil {
			v += float32(res[at])
		}
		if a, ok := op.Activations[p.ep.Act]; ok {
			v = float32(a.F(float64(v), p.ep.ActArgs))
		}
		if out[at] = v; p.y == tensor.U8 {
			out[at] = float32(min(max(math.RoundToEven(float64(v/p.q.YScale))+float64(p.q.YZero), 0), 255))
		}
	}
	p.want = tensor.From(out, len(out)).To(p.y)
}

func (p *product8) String() string {
	res := "no"
	if p.res != nil {
		res = p.res.DType().String()
	}
	return fmt.Sprintf("image %v M=%d K=%d N=%d batch %d tokens %t to %v %s%v %s residual, bias %t, %+v", p.patches != nil, p.m, p.k, p.n, p.batch, p.tokens, p.y, p.ep.Act, p.ep.ActArgs, res, p.bias != nil, p.q)
}

// run launches a kernel on the product, and compares.
func (p *product8) run(d cuda.Driver, k *backend.GPUKernel) error {
	act, a, b, err := backend.GPUActivation(&p.ep)
	if err != nil {
		return err
	}
	y := tensor.New(p.y, p.batch*p.m*p.n)
	for i := range y.Bytes() {
		y.Bytes()[i] = ^p.want.Bytes()[i] // so that an element that is not written is seen
	}
	shift, scale := make([]int32, p.m), make([]float32, p.m)
	for i, v := range tensor.Data[int8](p.w) {
		shift[i/p.k] -= int32(v) * int32(p.q.XZero)
	}
	for m := range scale {
		scale[m] = p.q.XScale * p.q.WScale[m%len(p.q.WScale)]
	}
	xs, ys := p.strides(p.k), p.strides(p.m)
	x, patches := p.x, (*tensor.Tensor)(nil)
	if p.image != nil {
		x, patches, xs[2] = p.image, tensor.From(p.patches, len(p.patches)), p.image.Len()/p.batch
	}
	var bias *tensor.Tensor
	if p.bias != nil {
		bias = tensor.From(p.bias, p.m)
	}
	kind := 0
	if p.res != nil {
		kind = slices.Index(types8, p.res.DType())
	}
	if err := launch(d, k.Name, k.Launch(p.n, p.batch), read(k.Parts...), read(x), written(y), ints(p.m, p.k, p.n), ints(xs[:]...), ints(ys[:]...), read(patches),
		ints(p.q.XZero), ints(k.Extra...), read(tensor.From(shift, p.m), tensor.From(scale, p.m), bias, p.res), ints(kind), floats(p.q.RScale),
		ints(p.q.RZero, slices.Index(types8, p.y)), floats(p.q.YScale), ints(p.q.YZero, act), floats(a, b)); err != nil {
		return err
	}
	want := p.want.Float64s()
	for i, v := range y.Float64s() {
		if v != want[i] {
			return fmt.Errorf("element %d is %v, want %v", i, v, want[i])
		}
	}
	return nil
}

// weight8 draws a weight of i8 as a format stores it best: any, in groups of four of which a share
// is there, or with 2 of every 4.
func weight8(rng *rand.Rand, kind string, m, k int) *tensor.Tensor {
	w := tensor.New(tensor.F32, m, k)
	for i := range w.F32s() {
		w.F32s()[i] = float32(int8(rng.Uint32()))
	}
	switch kind {
	case "nm":
		halve(rng, w)
	case "block":
		share := []float64{0.05, 0.5, 0.9}[rng.IntN(3)]
		for r := range m {
			for c := 0; c < k; c += 4 {
				// Whole slabs are empty, too.
				if rng.Float64() >= share || r/64+c/64 > 0 && (r/64+c/64)%2 == 0 {
					clear(w.F32s()[r*k+c : r*k+min(c+4, k)])
				}
			}
		}
	}
	return w.To(tensor.I8)
}

// Kernels8 tests that every kernel of every format of 8-bit weights gives the product to the bit,
// whatever the shape, on each of some drivers.
func Kernels8(t *testing.T, drivers ...cuda.Driver) {
	t.Logf("seed %d", seed)
	shapes := [][3]int{{1, 1, 1}, {31, 5, 3}, {32, 64, 8}, {33, 130, 17}, {70, 40, 36}, {64, 256, 1}, {5, 300, 4}, {96, 33, 16}, {130, 288, 132}, {128, 516, 64},
		{40, 1000, 24}, {3, 4900, 2}}
	for _, f := range format.Table {
		if f.For(tensor.I8) == nil {
			continue
		}
		t.Run(f.Name(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 8))
			launched, ways := map[string]int{}, map[string]int{}
			for j, s := range shapes {
				w := weight8(rng, f.Name(), s[0], s[1])
				float := w.To(tensor.F32)
				matrix := choose.NewMatrix(float, "")
				matrix.Type = tensor.I8
				costs := f.Costs(machine.Default, matrix, s[2])
				if len(costs) == 0 { // no group is missing
					continue
				}
				config := costs[0].Config
				parts, err := f.Pack(float, config)
				if err != nil {
					t.Fatal(err)
				}
				st := &ir.Store{Format: f.Name(), Config: config, Rows: s[0], Cols: s[1], Parts: choose.Narrow(parts, tensor.I8)}
				if err := f.Check(st); err != nil {
					t.Fatal(err)
				}
				kernels, err := f.GPU(st, tensor.U8)
				if err != nil {
					t.Fatal(err)
				}
				offered := f.GPUKernels(matrix, config, tensor.U8)
				if len(offered) != len(kernels) || len(kernels) == 0 {
					t.Fatalf("%d kernels, and %d that costs speak of", len(kernels), len(offered))
				}
				for i := range kernels {
					k, offer := &kernels[i], offered[i]
					bytes := 0
					for _, p := range k.Parts {
						bytes += len(p.Bytes())
					}
					// Parts are made up to whole tiles.
					if offer.Name != k.Name || offer.Bytes != k.Bytes || offer.Products != k.Products || offer.Loads != k.Loads || k.Bytes > bytes+64 {
						t.Fatalf("%+v with parts of %d bytes, but costs speak of %+v", k, bytes, offer)
					}
					// One layout in all orders, and the others in one.
					first := (i+j)%2 == 0
					products := []*product8{newProduct8(rng, w, s[2], first), newProduct8(rng, w, s[2], !first)}
					if s[1] > 16 && s[1] < 1000 {
						products = append(products, newConvolution8(rng, w))
					}
					for l, p := range products {
						some := drivers
						if l > 0 {
							some = drivers[(i+j+l)%len(drivers):][:1]
						}
						if err := onEach(some, func(d cuda.Driver) error { return p.run(d, k) }); err != nil {
							t.Fatalf("%s on %v, %v", k.Name, p, err)
						}
						launched[k.Name] += len(some)
						ways[k.Name+" "+p.way()]++
					}
				}
			}
			for _, tile := range backend.GPUTiles8 {
				unit := map[string]string{"dense": "dense_%v_mma", "block": "block1x4_%v_mma", "nm": "nm24_%v_mmasp"}[f.Name()]
				kernel := "s8_" + fmt.Sprintf(unit, tile)
				if launched[kernel] < 5*len(drivers) {
					t.Errorf("tile %v was launched too seldom: %v", tile, launched)
				}
				for _, way := range []string{
					"pixels", "tokens true by 16", "tokens true by 8", "tokens true by 4", "tokens true by 1",
					"tokens false by 16", "tokens false by 8", "tokens false by 4", "tokens false by 1",
				} {
					if ways[kernel+" "+way] == 0 {
						t.Errorf("tile %v was not launched with %s: %v", tile, way, ways)
					}
				}
			}
		})
	}
}
