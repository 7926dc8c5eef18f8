// Package calib observes the values of a graph on samples. How samples are made, how
// a graph is evaluated and how matrices are multiplied are functions that whoever
// calls it gives.
//
// A Frontier goes through a graph node by node with all samples, Twins show a pruned
// graph and its dense original at once, and a Gram holds the second moments of what a
// weight multiplies. The package imports ir, ir/op and passes/fold.
package calib

import (
	"context"
	"fmt"
	"iter"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/fold"
)

// Inputs yields inputs of a graph, one tensor for each of its inputs, in an order
// that is the same every time. Tensors that were yielded do not change any more. An
// error ends the sequence.
type Inputs func(ctx context.Context, g *ir.Graph) iter.Seq2[[]*tensor.Tensor, error]

// Some yields those that take chooses by their numbers.
func (inputs Inputs) Some(take func(i int) bool) Inputs {
	return func(ctx context.Context, g *ir.Graph) iter.Seq2[[]*tensor.Tensor, error] {
		return func(yield func([]*tensor.Tensor, error) bool) {
			i := 0
			for in, err := range inputs(ctx, g) {
				if err != nil || take(i) {
					if !yield(in, err) || err != nil {
						return
					}
				}
				i++
			}
		}
	}
}

// Runner evaluates g, which it may change, on each of the inputs and calls see with the
// outputs, in the order of the inputs. The tensors change after see has returned, but
// for those that it took by setting their places in the slice to nil. Inputs are read, and
// see is called, on the goroutine that calls the runner; when see is called the inputs of
// these outputs are read no more.
type Runner func(ctx context.Context, g *ir.Graph, in iter.Seq2[[]*tensor.Tensor, error], see func(out []*tensor.Tensor) error) error

// Observer evaluates graphs on samples.
type Observer struct {
	Inputs  Inputs
	Run     Runner
	Kernels op.Kernels // those that are nil are plain Go
	Room    *Room      // for what is kept of samples; nil bounds what each Frontier keeps, and what does not fit is computed anew
}

// Loops are the kernels, with a Gemm.
func (o *Observer) Loops() op.Kernels {
	k := o.Kernels
	if k.Gemm == nil {
		k.Gemm = plainGemm
	}
	return k
}

func plainGemm(tA, tB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	t := map[bool]blas.Transpose{false: blas.NoTrans, true: blas.Trans}
	if m > 0 && n > 0 {
		gonum.Implementation{}.Sgemm(t[tA], t[tB], m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
	}
}

// Range is the least and the greatest element that a value had.
type Range struct{ Lo, Hi float32 }

// Ranges returns the range of each of the values, f32 tensors of the root graph g,
// over all samples. Elements that are not finite are an error, and so is a value that
// has no elements in any sample.
func (o *Observer) Ranges(ctx context.Context, g *ir.Graph, values []*ir.Value) ([]Range, error) {
	ranges := make([]Range, len(values))
	for i := range ranges {
		ranges[i] = Range{float32(math.Inf(1)), float32(math.Inf(-1))}
	}
	err := o.See(ctx, g, values, func(i int, t *tensor.Tensor) error { return ranges[i].add(t.F32s()) })
	for i, r := range ranges {
		if err == nil && r.Lo > r.Hi {
			err = fmt.Errorf("value %s has no elements in any calibration sample, want some: %w", values[i].Name, ir.ErrInvalid)
		}
	}
	return ranges, err
}

// See evaluates g on all samples and calls see with each of the values, f32 tensors of
// the root graph g, sample by sample; the tensors are lent. No samples are an error.
func (o *Observer) See(ctx context.Context, g *ir.Graph, values []*ir.Value, see func(i int, t *tensor.Tensor) error) error {
	if len(values) == 0 {
		return nil
	}
	watched, err := watch(g, values)
	if err != nil {
		return err
	}
	samples := 0
	err = o.Run(ctx, watched, o.Inputs(ctx, watched), func(out []*tensor.Tensor) error {
		samples++
		for i, t := range out {
			if err := see(i, t); err != nil {
				return fmt.Errorf("calibration sample %d: value %s: %w", samples, values[i].Name, err)
			}
		}
		return nil
	})
	if err == nil && samples == 0 {
		err = fmt.Errorf("no calibration samples: %w", ir.ErrInvalid)
	}
	return err
}

// add widens r to hold the elements.
func (r *Range) add(x []float32) error {
	lo, hi := r.Lo, r.Hi
	for _, v := range x {
		if !(v-v == 0) {
			return notFinite(float64(v))
		}
		lo, hi = min(lo, v), max(hi, v)
	}
	r.Lo, r.Hi = lo, hi
	return nil
}

func notFinite(v float64) error {
	return fmt.Errorf("element %v, want finite numbers: %w", v, ir.ErrInvalid)
}

// watch returns a copy of g whose outputs are the values.
func watch(g *ir.Graph, values []*ir.Value) (*ir.Graph, error) {
	c := g.Clone()
	named := map[string]*ir.Value{}
	for _, v := range c.Inputs {
		named[v.Name] = v
	}
	for _, n := range c.Nodes {
		for _, v := range n.Outputs {
			if v != nil {
				named[v.Name] = v
			}
		}
	}
	c.Outputs, c.OutputNames = nil, nil
	for _, v := range values {
		w := named[v.Name]
		if w == nil || w.Type.DType != tensor.F32 {
			return nil, fmt.Errorf("value %s is no f32 tensor of the graph: %w", v.Name, ir.ErrInvalid)
		}
		c.Outputs = append(c.Outputs, w)
	}
	fold.Dead(c)
	return c, nil
}
