package gauge

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"spc/backend"
	"spc/backend/cpu"
	"spc/backend/format"
	"spc/backend/machine"
	"spc/backend/measure"
	"spc/backend/predict"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes"
	"spc/passes/choose"
	"spc/passes/prune"
)

// patterns are those of the weights that are measured, most of which have kernels of their own.
var patterns = []string{
	"uniform", "unstructured", "2:4", "block:4x1", "block:1x4", "uniform-block:2x1", "uniform-block:8x1", "uniform-block:16x1", "block:1x8", "block:1x16",
}

// codes are the numbers of bits of weights that are stored as codes.
var codes = []int{4, 8}

// firstCodes is the number of the first network whose weights are on grids, so that of others the number says what they were before there
// were such.
const firstCodes = 1 << 16

// numbered is the number of the network that is the i-th to be measured: every sixth has weights on grids.
func numbered(i int) int {
	const every = 6
	if i%every == every/2 {
		return firstCodes + i/every
	}
	return i - (i+every/2)/every
}

// together is how many products a network has. Their weights are read one after the other, so that each comes from where it does in
// other networks.
const together = 8

// sample is a product with what its node took in some forms.
type sample struct {
	network, weight int // which of which network, from 0

	kind    string // of its operator
	text    string // with the sizes
	w       *choose.Matrix
	pattern string
	n       int // columns
	times   int // how often the product is done: the steps of a recurrence, for its states
	total   int // bytes of all weights of the network
	forms   []formTime
	// Of a recurrence: its other product, which is dense, and the elements of states that its steps compute.
	other  *sample
	steps  int
	states int
}

// formTime is what a product took in a form.
type formTime struct {
	kernels *backend.Kernels
	form    choose.Form
	layout  backend.Layout
	us      float64
	weight  float64 // in fitting
}

// The multiply-adds of a dense product: with fewer other things take the time, with more fewer products are measured. Those of
// large images and weights may have more: they are what does not fit caches.
const least, most, mostLarge = 2e5, 60e6, 400e6

// drawn is the number-th network of products that a seed draws.
func drawn(ctx context.Context, seed uint64, number int) (*network, error) {
	b := &network{number: number, graph: ir.NewGraph("gauge"), rng: rand.New(rand.NewPCG(seed, uint64(number))), pattern: patterns[number%len(patterns)], grids: map[string]*ir.Grid{}}
	if number >= firstCodes {
		b.pattern, b.bits = "unstructured", codes[(number-firstCodes)%len(codes)]
	}
	for i := range together {
		if err := b.add(fmt.Sprintf("p%d", i)); err != nil {
			return nil, err
		}
	}
	err := infer(ctx, b.graph)
	for _, v := range b.graph.Constants() {
		v.Grid = b.grids[v.Name]
	}
	return b, err
}

// problems draws a network of products, and measures them in all forms that suit.
func problems(ctx context.Context, p *machine.Profile, seed uint64, number int, step func()) ([]*sample, error) {
	b, err := drawn(ctx, seed, number)
	if err != nil {
		return nil, err
	}
	g := b.graph
	layers, _, err := choose.Run(g.Clone(), format.Choices(p), predict.Of(p), choose.Options{})
	if err != nil {
		return nil, err
	}
	m := measure.Measurement{
		Graph: g, Layers: layers, Threads: 1, Most: forms, Until: time.Now().Add(time.Hour), Step: step, Rounds: rounds, Cache: p.Next.Bytes,
		Load: func(g *ir.Graph) (backend.Program, error) {
			return cpu.Device{}.Load(g, backend.Options{Threads: 1, Checked: true})
		},
	}
	for _, at := range choose.Places(g, nil) {
		place := measure.Place{Place: at}
		for _, shape := range at.Shapes {
			x := tensor.New(tensor.F32, shape...)
			for i := range x.F32s() {
				x.F32s()[i] = b.rng.Float32()
			}
			place.In = append(place.In, x)
		}
		m.Places = append(m.Places, place)
	}
	timings, err := m.Run(ctx)
	if err != nil {
		return nil, err
	}
	return b.samples(func(s *sample, f choose.Form) float64 { return timings.Of(s.weight, f, s.n, 1).Us }), nil
}

// samples lists the products of a network of which there was something to choose, with what they took in forms; 0 where that was
// not measured.
func (b *network) samples(took func(s *sample, f choose.Form) float64) (out []*sample) {
	all := samplesOf(b.graph)
	for i, s := range all {
		s.network, s.weight, s.pattern = b.number, i, b.pattern
		s.find(func(f choose.Form) float64 { return took(s, f) })
		if len(s.forms) > 1 {
			out = append(out, s)
		}
	}
	for _, s := range all {
		s.w.Tensor = tensor.Header(tensor.F32, s.w.Shape()...) // predictions need no elements
	}
	return out
}

// infer finds the types of a graph as compilations do, and leaves its weights as they are.
func infer(ctx context.Context, g *ir.Graph) error {
	c := &passes.Context{Formats: format.Choices(machine.Default), Model: predict.Of(machine.Default), Choose: choose.Options{Format: choose.Dense}}
	return passes.Run(ctx, c, g, passes.Options{})
}

// samplesOf lists the products of a graph whose weights are constants.
func samplesOf(g *ir.Graph) (out []*sample) {
	total := 0
	first := map[*ir.Node]*sample{}
	for _, u := range g.WeightUses() {
		total += u.Value.Const.Len() * u.Value.Type.DType.Size()
		s := &sample{
			kind: u.Node.Op.Kind(), n: u.Columns(), times: u.Reuse.AtOne(), w: choose.NewMatrix(u.View.Matrix(u.Value.Const).To(tensor.F32), ""),
		}
		s.w.Slide = u.Slide
		if g := u.Value.Grid; g != nil {
			s.w.Grid = g.Matrix(u.View, u.Value.Const.Shape())
		}
		s.text = fmt.Sprintf("%s %dx%d, %.0f%% zeros, %d columns", s.kind, s.w.Dim(0), s.w.Dim(1), 100*(1-s.w.Density()), s.n)
		if s.w.Grid != nil {
			s.text += fmt.Sprintf(", codes of %d bits", s.w.Grid.Bits)
		}
		if u.Slide != nil {
			s.text += fmt.Sprintf(", kernel %v, stride %v, dilation %v, %d images", u.Slide.Kernel, u.Slide.Stride, u.Slide.Dilation, u.Slide.Images.AtOne())
		}
		if s.times > 1 {
			s.text += fmt.Sprintf(", %d times", s.times)
		}
		if o := first[u.Node]; o != nil { // a recurrence: its input's product, and now that of its states
			s.other, o.other = o, s
			s.steps, s.states = s.times, s.times*s.n*s.w.Dim(1)
			o.steps, o.states = s.steps, s.states
		}
		first[u.Node] = s
		out = append(out, s)
	}
	for _, s := range out {
		s.total = total
	}
	return out
}

// How many forms of a weight are measured beside dense, and in how many rounds.
const (
	forms  = 12
	rounds = 7
)

// find finds the layouts that were measured and may be chosen.
func (s *sample) find(took func(choose.Form) float64) {
	best := math.Inf(1)
	for _, f := range format.Table {
		k := f.For(s.w.Type)
		if k == nil || f.Name() == choose.PairFormat {
			continue
		}
		for _, l := range f.Layouts(s.w) {
			form := choose.Form{Format: f.Name(), Config: l.Config}
			if _, ok := k.Cost(machine.Default, s.w, s.n, l); !ok {
				continue
			}
			if us := math.Round(100*took(form)) / 100; us > 0 {
				s.forms = append(s.forms, formTime{k, form, l, us, 0})
				best = min(best, us)
			}
		}
	}
	for i := range s.forms {
		s.forms[i].weight = best / s.forms[i].us
	}
}

// network makes a graph of products that have nothing in common.
type network struct {
	number  int
	graph   *ir.Graph
	rng     *rand.Rand
	pattern string
	bits    int                 // of codes, 0 where weights are floats
	grids   map[string]*ir.Grid // of weights, by their names
}

// draw draws a size from lo to hi, as often as any other with as many times as much.
func (b *network) draw(lo, hi, step int) int {
	n := float64(lo) * math.Pow(float64(hi)/float64(lo), b.rng.Float64())
	return max(lo, int(math.Round(n/float64(step)))*step)
}

// pick draws one of some numbers.
func (b *network) pick(list ...int) int { return list[b.rng.IntN(len(list))] }

// add adds a product. Networks of large images have no others, which would find their weights and inputs driven out of caches, nor
// do those of large weights.
func (b *network) add(name string) error {
	for b.bits > 0 { // as decoders have them: large, and mostly for few columns
		m, k, n := b.draw(256, 4096, 8), b.draw(256, 4096, block), b.draw(1, b.pick(1, 16, 256), 1)
		if fits(m*k*n, most) {
			return b.tokens(name, m, k, n)
		}
	}
	for b.number%7 == 5 {
		m, k, n := b.draw(384, 3072, 8), b.draw(384, 3072, 8), b.draw(32, 512, 1)
		if fits(m*k*n, mostLarge) {
			return b.tokens(name, m, k, n)
		}
	}
	for b.number%7 == 6 {
		v := conv{m: b.draw(8, 128, 8), c: b.draw(8, 128, 8), kernel: b.pick(1, 3, 3), size: b.draw(64, 288, 1), stride: b.pick(1, 1, 1, 2), dilation: 1, images: 1}
		if fits(v.products(), mostLarge) {
			return b.conv(name, v)
		}
	}
	for {
		if b.rng.IntN(6) == 0 {
			gates, hidden, k, steps, batch := b.pick(3, 4), b.draw(32, 512, 8), b.draw(32, 512, 8), b.draw(2, 32, 1), b.draw(1, 16, 1)
			if fits(gates*hidden*(hidden+k)*steps*batch, most) {
				return b.recurrence(name, gates, hidden, k, steps, batch)
			}
			continue
		}
		m, k := b.draw(16, 2048, 8), b.draw(16, 2048, 8)
		if b.rng.IntN(2) == 0 {
			if n := b.draw(1, b.pick(8, 2048, 2048), 1); fits(m*k*n, most) {
				return b.tokens(name, m, k, n)
			}
			continue
		}
		v := conv{
			m: b.draw(8, 512, 8), c: b.draw(8, 512, 8), kernel: b.pick(1, 1, 3, 3, 5), size: b.draw(3, 64, 1),
			stride: b.pick(1, 1, 1, 2), dilation: b.pick(1, 1, 1, 2), images: b.pick(1, 1, 1, 4),
		}
		if fits(v.products(), most) {
			return b.conv(name, v)
		}
	}
}

// fits reports whether a product of so many multiply-adds, at most most, is measured.
func fits(products int, most float64) bool {
	return float64(products) >= least && float64(products) <= most
}

// tokens adds X[1,N,K] W^T.
func (b *network) tokens(name string, m, k, n int) error {
	w, err := b.weight(m, k)
	if err != nil {
		return err
	}
	if b.bits > 0 {
		b.grids[name+".w0"] = onGrid(b.rng, w, b.bits)
	}
	wt := tensor.New(tensor.F32, k, m)
	for i, v := range w.F32s() {
		wt.F32s()[i%k*m+i/k] = v
	}
	return b.product(name, "MatMul", nil, []int{1, n, k}, wt)
}

// block is how many columns of a weight share a scale.
const block = 32

// onGrid puts what is not zero of w[M,K] on a grid, and returns that of w transposed.
func onGrid(rng *rand.Rand, w *tensor.Tensor, bits int) *ir.Grid {
	m, k := w.Dim(0), w.Dim(1)
	g := &ir.Grid{Bits: bits, Axis: 0, Block: block, Scales: tensor.New(tensor.F32, k/block, m)}
	_, most := g.Codes()
	for i, v := range w.F32s() {
		scale := &g.Scales.F32s()[i%k/block*m+i/k]
		*scale = 1.0 / 64
		if v != 0 {
			w.F32s()[i] = *scale * float32(1+rng.IntN(most))
		}
	}
	return g
}

// conv is a convolution of square images, padded so that strides alone make them smaller.
type conv struct{ m, c, kernel, size, stride, dilation, images int }

// products is the number of its multiply-adds.
func (v conv) products() int {
	out := (v.size-1)/v.stride + 1
	return v.images * v.m * v.c * v.kernel * v.kernel * out * out
}

func (b *network) conv(name string, v conv) error {
	w, err := b.weight(v.m, v.c*v.kernel*v.kernel)
	if err != nil {
		return err
	}
	pad := v.kernel / 2 * v.dilation
	return b.product(name, "Conv", map[string]any{
		"kernel_shape": []int{v.kernel, v.kernel}, "strides": []int{v.stride, v.stride}, "dilations": []int{v.dilation, v.dilation}, "pads": []int{pad, pad, pad, pad},
	}, []int{v.images, v.c, v.size, v.size}, w.Reshape(v.m, v.c, v.kernel, v.kernel))
}

// recurrence adds an LSTM or GRU, one of whose weights is pruned: of two what the node takes could not be told apart.
func (b *network) recurrence(name string, gates, hidden, k, steps, batch int) error {
	w, r := full(1, gates*hidden, k), full(1, gates*hidden, hidden)
	pruned := &w
	if b.rng.IntN(2) == 0 {
		pruned = &r
	}
	p, err := b.weight((*pruned).Dim(1), (*pruned).Dim(2))
	if err != nil {
		return err
	}
	*pruned = p.Reshape((*pruned).Shape()...)
	kind := map[int]string{3: "GRU", 4: "LSTM"}[gates]
	return b.product(name, kind, map[string]any{"hidden_size": hidden}, []int{steps, batch, k}, w, r)
}

// full is a tensor without zeros.
func full(shape ...int) *tensor.Tensor {
	x := tensor.New(tensor.F32, shape...)
	for i := range x.F32s() {
		x.F32s()[i] = 0.01
	}
	return x
}

// product adds a node with weights, of what a node computes just before, as in other networks. Its first elements along two axes are an
// output: the others make way as soon as they are computed.
func (b *network) product(name, kind string, attrs map[string]any, shape []int, weights ...*tensor.Tensor) error {
	x := b.graph.NewInput(name+".x", ir.TypeOf(tensor.Header(tensor.F32, shape...)))
	before, err := newOp("Relu", nil)
	if err != nil {
		return err
	}
	o, err := newOp(kind, attrs)
	if err != nil {
		return err
	}
	in := []*ir.Value{b.graph.NewNode(name+".before", before, []*ir.Value{x}, name+".in").Outputs[0]}
	for i, w := range weights {
		in = append(in, b.graph.NewConst(fmt.Sprintf("%s.w%d", name, i), w))
	}
	y := b.graph.NewNode(name, o, in, name+".y").Outputs[0]
	for i := range 2 {
		first, err := newOp("Gather", map[string]any{"axis": 0})
		if err != nil {
			return err
		}
		at := b.graph.NewConst(fmt.Sprintf("%s.at%d", name, i), tensor.Scalar(int64(0)))
		y = b.graph.NewNode(fmt.Sprintf("%s.first%d", name, i), first, []*ir.Value{y, at}, fmt.Sprintf("%s.y%d", name, i)).Outputs[0]
	}
	b.graph.Outputs = append(b.graph.Outputs, y)
	return nil
}

func newOp(kind string, attrs map[string]any) (ir.Op, error) {
	o, err := op.New(kind)
	for name, v := range attrs {
		err = errors.Join(err, ir.SetAttr(o, name, v))
	}
	return o, err
}

// weight draws W[M,K] of the pattern, its sparsity from 0.3 to 0.95 where the pattern has none of its own.
func (b *network) weight(m, k int) (*tensor.Tensor, error) {
	p, err := prune.ParsePattern(b.pattern)
	if err != nil {
		return nil, err
	}
	sparsity, own := p.OwnSparsity()
	if !own {
		sparsity = 0.3 + 0.65*b.rng.Float64()
	}
	w := tensor.New(tensor.F32, m, k)
	for i := range w.F32s() {
		w.F32s()[i] = b.rng.Float32() + 0.1
	}
	r, err := prune.Select([]prune.Layer{{Rows: m, Cols: k, Weights: w.F32s()}}, prune.Options{Pattern: p, Sparsity: sparsity})
	if err != nil {
		return nil, err
	}
	r.Layers[0].Mask.Apply(w.F32s(), false)
	return w, nil
}
