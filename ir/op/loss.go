package op

import (
	"spc/ir"
	"spc/ir/tensor"
)

// Loss is the negative logarithm of the probability of a class, weighted by
// weight[C]: NegativeLogLikelihoodLoss takes the logarithms x[N,C,D1..Dk] and
// SoftmaxCrossEntropyLoss scores, whose logarithmic softmax is its second output.
// The classes are labels[N,D1..Dk].
type Loss struct {
	family
	Ignore    *int   `attr:"ignore_index"`   // a label that counts nothing
	Reduction string `attr:"reduction,mean"` // none, sum, or mean over the weights
}

// Infer checks the shapes of labels and weight.
func (o *Loss) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 2); err != nil {
		return err
	}
	for _, i := range []int{0, 2} {
		if err := wantOneOf(c, i, reals); err != nil {
			return err
		}
		if err := wantSame(c, i); err != nil {
			return err
		}
	}
	if err := wantInts(c, 1, -1); err != nil {
		return err
	}
	x, labels := c.In(0), c.In(1)
	if x.Ranked && x.Rank() < 2 {
		return c.Errorf("input has rank %d, want at least 2", x.Rank())
	}
	if err := wantDims(c, 2, "weight", dimOf(c, x, 1)); err != nil {
		return err
	}
	each := ir.Type{DType: x.DType, Dims: labels.Dims, Ranked: labels.Ranked}
	if x.Ranked {
		each = ir.Of(x.DType, append([]ir.Dim{x.Dims[0]}, x.Dims[2:]...)...)
		if err := wantDims(c, 1, "labels", each.Dims...); err != nil {
			return err
		}
	}
	switch o.Reduction {
	case "none":
		c.Set(0, each)
	case "sum", "mean":
		c.Set(0, ir.Of(x.DType))
	default:
		return c.Errorf("reduction is %q, want none, sum or mean", o.Reduction)
	}
	c.Set(1, x)
	return nil
}

// Eval sums in float64. A mean over nothing is NaN.
func (o *Loss) Eval(c *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if _, err := evalTypes(o, c.Outputs, in); err != nil {
		return nil, err
	}
	x, shape, labels, weight := in[0].Float64s(), in[0].Shape(), in[1].Ints(), float64s(in, 2)
	classes, plane := shape[1], product(shape[2:])
	if o.kind == "SoftmaxCrossEntropyLoss" {
		eachLine(x, classes, plane, logSoftmax)
	}
	losses := make([]float64, len(labels))
	sum, weights := 0.0, 0.0
	for i, label := range labels {
		if o.Ignore != nil && label == *o.Ignore {
			continue
		}
		if label < 0 || label >= classes {
			return nil, evalErrorf("label %d is out of range for %d classes", label, classes)
		}
		w := 1.0
		if weight != nil {
			w = weight[label]
		}
		losses[i] = -w * x[(i/plane*classes+label)*plane+i%plane]
		sum += losses[i]
		weights += w
	}
	dt := in[0].DType()
	out := make([]*tensor.Tensor, 2)
	switch o.Reduction {
	case "none":
		out[0] = tensor.FromFloat64s(dt, losses, in[1].Shape()...)
	case "sum":
		out[0] = tensor.FromFloat64s(dt, []float64{sum})
	default:
		out[0] = tensor.FromFloat64s(dt, []float64{sum / weights})
	}
	if c.Outputs < 2 {
		return out[:1], nil
	}
	out[1] = tensor.FromFloat64s(dt, x, shape...)
	return out, nil
}

// Work counts an exponential, a sum and a product for each element.
func (o *Loss) Work(in, out []ir.Type) ir.Work {
	w := streamWork(in, out, 0)
	w.FLOPs = 5 * elems(in[0])
	return w
}
