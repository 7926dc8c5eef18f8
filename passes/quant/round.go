package quant

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/passes/obs"
	"spc/passes/steps"
)

// Round rounds the f32 weights of g to whole numbers of Steps, block by block along what products add up, so that choosing may
// store codes of a few bits; products compute in f32. With an observer columns make up for each other's errors on what the rounded
// layers before give (obs.Solver.Round), else each block is rounded by itself. Zeros stay zeros. Weights stay as they are where KeepFloat names
// them or a node that reads them, where an element is not finite, in grouped convolutions, where they are read more than once,
// and where they are of as few bits already; the result says so. With Portable, those of a grid become constants of codes
// behind DequantizeLinear nodes, also where they came so.
func Round(ctx context.Context, g *ir.Graph, o Options) (*Result, error) {
	if err := o.Steps.Check(); err != nil {
		return nil, err
	}
	r := &Result{Type: fmt.Sprintf("i%d:%d", o.Steps.Bits, o.Steps.Block)}
	kept, err := o.kept(g)
	if err != nil {
		return nil, err
	}
	var uses []ir.WeightUse
	for _, u := range g.WeightUses() {
		w := u.Value.Const
		if w == nil || w.DType() != tensor.F32 || w.Len() == 0 {
			continue
		}
		why := o.unrounded(u)
		if glob, ok := kept[u.Node]; ok {
			why = "kept by " + glob.String()
		}
		if why != "" {
			r.Kept = append(r.Kept, Kept{u.Node.Name, u.Value.Name, why})
			continue
		}
		uses = append(uses, u)
	}
	if err := o.roundAll(ctx, g, uses, r); err != nil {
		return nil, err
	}
	r.Products = len(uses)
	if !o.Portable {
		return r, nil
	}
	for _, u := range g.WeightUses() {
		if err := spellGrid(u); err != nil {
			return nil, err
		}
	}
	return r, g.Infer()
}

// unrounded says why a weight of f32 is not rounded, empty where it is.
func (o *Options) unrounded(u ir.WeightUse) string {
	w := u.Value.Const
	matrix := &ir.Grid{Bits: o.Steps.Bits, Axis: 1, Block: o.Steps.Block}
	rows, cols := u.View.Dims(w.Shape())
	matrix.Scales = tensor.New(tensor.F16, rows, o.Steps.Blocks(cols))
	switch {
	case u.Groups != 1:
		return fmt.Sprintf("a product of %d groups", u.Groups)
	case len(u.Value.Uses()) != 1 || u.Value.IsOutput():
		return "the weight is read more than once"
	case u.Value.Grid != nil && u.Value.Grid.Bits <= o.Steps.Bits:
		return fmt.Sprintf("its elements are codes of %d bits already", u.Value.Grid.Bits)
	case !finite(w):
		return "an element of the weight is not finite"
	case matrix.Tensor(u.View, w.Shape()) == nil:
		return "what it adds up lies along axes that others lie between"
	}
	return ""
}

// roundAll rounds the weights, each after those before it.
func (o *Options) roundAll(ctx context.Context, g *ir.Graph, uses []ir.WeightUse, r *Result) error {
	var seen *sight
	if o.Observer != nil && len(uses) > 0 {
		seen = &sight{twins: calib.NewTwins(g)}
		seen.front = o.Observer.Frontier(seen.twins.Graph, 0)
		defer seen.front.Close()
	}
	lost, all := 0.0, 0.0
	for i, u := range uses {
		o.report(roundStage, i, len(uses))
		w := u.View.Matrix(u.Value.Const)
		st := o.Steps.Of(w.F32s())
		rounded, scales, err := o.rounded(ctx, seen, u, w, st)
		if err != nil {
			return err
		}
		for j, v := range w.F32s() {
			x, e := float64(v), float64(v)-float64(rounded[j])
			lost, all = lost+e*e, all+x*x
		}
		shape := u.Value.Const.Shape()
		grid := st.Grid(scales, w.Dim(0)).Tensor(u.View, shape)
		u.Value.SetConst(u.View.Tensor(tensor.From(rounded, w.Shape()...), shape))
		if o.Settle != nil {
			o.Settle(u.Value.Const)
		}
		if seen != nil {
			seen.twins.SetConst(u.Value, u.Value.Const)
		}
		u.Value.Grid = grid
	}
	if r.Error = math.Sqrt(lost / max(all, math.SmallestNonzeroFloat64)); all == 0 {
		r.Error = 0
	}
	o.report(roundStage, len(uses), len(uses))
	return nil
}

// sight is what samples show of the model as it is and with the weights that are rounded so far; nil where there are none.
type sight struct {
	twins *calib.Twins
	front *calib.Frontier
}

// rounded returns the weights of W[M,K] in whole numbers of steps, with their scales: each block by itself where there are no samples, or these do
// not show what the node reads.
func (o *Options) rounded(ctx context.Context, seen *sight, u ir.WeightUse, w *tensor.Tensor, st steps.Steps) (out, scales []float32, err error) {
	alone := func() ([]float32, []float32, error) { return st.Nearest(ctx, w.F32s(), w.Dim(0), w.Dim(1), 0) }
	if seen == nil {
		return alone()
	}
	use := seen.twins.Use(u)
	if use.Node == nil { // of a subgraph
		return alone()
	}
	if err := seen.front.Advance(ctx, seen.front.Index(use.Node)-1); err != nil { // before its dense copy
		return nil, nil, err
	}
	see := calib.GramOptions{Twins: seen.twins, Cross: true}
	if sum, skip := sumBehind(u.Node); sum != nil {
		see = calib.GramOptions{Want: seen.twins.Dense(sum), Less: seen.twins.Pruned(skip)}
	}
	gram, err := calib.GramOf(ctx, seen.front, use, see)
	if errors.Is(err, ir.ErrUnsupported) {
		return alone()
	}
	if err != nil {
		return nil, nil, err
	}
	return o.together(ctx, u, w, st, gram)
}

// aimDamp is the damping with which weights are aimed at the outputs that they had, as a fraction of the mean diagonal element: with
// that of the solvers they would fit the samples, and no others.
const aimDamp = 1

// together returns the weights that make up for each other's errors, and for those of the layers before, of which gram has what they give:
// they are aimed at what the layer gave or, where that is added to what goes past it, at the sum.
func (o *Options) together(ctx context.Context, u ir.WeightUse, w *tensor.Tensor, st steps.Steps, gram *calib.Gram) (out, scales []float32, err error) {
	layer := obs.Layer{Name: u.Node.String(), Rows: w.Dim(0), Cols: w.Dim(1), W: w.F32s(), H: gram.XX}
	s, err := obs.New(ctx, layer, 0)
	if err != nil {
		return nil, nil, err
	}
	layer.Damp = aimDamp
	held, err := obs.New(ctx, layer, 0)
	if err != nil {
		return nil, nil, err
	}
	aim := func() ([]float32, error) { return held.Aim(ctx, gram.DX) }
	if gram.TX != nil {
		aim = func() ([]float32, error) { return held.Toward(ctx, gram.TX) }
	}
	aimed, err := aim()
	if err != nil {
		return nil, nil, err
	}
	if s, err = s.With(aimed); err != nil {
		return nil, nil, err
	}
	r, err := s.Round(ctx, st)
	if err != nil {
		return nil, nil, err
	}
	return r.W, r.Scales, nil
}

// spellGrid puts codes behind a DequantizeLinear in the place of a weight with a grid, which only one node reads.
func spellGrid(u ir.WeightUse) error {
	v := u.Value
	if v.Const == nil || v.Grid == nil || len(v.Uses()) != 1 || v.IsOutput() {
		return nil
	}
	shape := v.Const.Shape()
	grid := v.Grid.Matrix(u.View, shape)
	if grid == nil {
		return nil
	}
	matrix := u.View.Matrix(v.Const)
	codes, ok := grid.Encode(matrix)
	if !ok {
		return nil
	}
	o := newOp("DequantizeLinear").(*op.DequantizeLinear)
	scales, zeros := v.Grid.Scales.To(tensor.F32), v.Grid.Zeros
	whole := v.Grid.Whole(len(shape))
	more := v.Grid.More > 0 && !whole // whose blocks lie along several axes
	if more {
		scales, zeros = grid.Scales.To(tensor.F32), grid.Zeros
		o.Axis = 1
	} else {
		codes = u.View.Tensor(codes, shape)
		o.Axis = v.Grid.Axis
	}
	reshape := func(sizes ...int) {
		o.BlockSize = 0
		scales = scales.Reshape(sizes...)
		if zeros != nil {
			zeros = zeros.Reshape(sizes...)
		}
	}
	switch o.BlockSize = v.Grid.Block; {
	case whole:
		reshape()
	case matrix.Dim(1) <= v.Grid.Block && codes.Rank() == 2: // a scale for each row, which older operator sets have
		o.Axis = 1 - o.Axis
		reshape(scales.Len())
	}
	dt := tensor.I8
	if v.Grid.Bits == 4 {
		dt = tensor.I4
	}
	g := u.Node.Graph()
	name := v.Name
	in := []*ir.Value{v, g.NewConst(name+".scale", scales)}
	if zeros != nil {
		in = append(in, g.NewConst(name+".zero", zeros.To(dt)))
	}
	n := g.InsertBefore(u.Node, name+".dequantize", o, in, name+".f32")
	u.Node.SetInput(u.Input, n.Outputs[0])
	if more {
		n = g.InsertBefore(u.Node, name+".reshape", newOp("Reshape"), []*ir.Value{n.Outputs[0], g.NewConst(name+".shape", tensor.Ints(slices.Clone(shape)...))}, name+".weight")
		u.Node.SetInput(u.Input, n.Outputs[0])
	}
	v.SetConst(codes.To(dt)) // keeps its name, by which users know the weight
	return nil
}

// sumBehind returns what adds to the output of n, which nothing else reads, what goes past n, the skip; nil where there is none.
func sumBehind(n *ir.Node) (sum, skip *ir.Value) {
	y := n.Outputs[0]
	if n.Input(2) != nil || y.IsOutput() || len(y.Uses()) != 1 {
		return nil, nil
	}
	u := y.Uses()[0]
	if u.Node.Op.Kind() != "Add" || u.Node.Graph() != n.Graph() {
		return nil, nil
	}
	skip = u.Node.Inputs[1-u.Index]
	if skip.IsConst() || !skip.Type.Ranked || !slices.Equal(skip.Type.Dims, y.Type.Dims) {
		return nil, nil
	}
	return u.Node.Outputs[0], skip
}
