package cpu

import (
	"math"

	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindRows applies f to each row of the last axis.
func bindRows(n *ir.Node, f func(y, x []float32)) *bound {
	shape := shapeOf(n.Outputs[0])
	if len(shape) == 0 || prod(shape) == 0 {
		return nil
	}
	width := shape[len(shape)-1]
	rows := prod(shape) / width
	per := max(1, chunk/width)
	return &bound{inplace: 0, alone: true, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src, dst []float32
		some := func(_, i int) {
			for r := i * per; r < min(rows, (i+1)*per); r++ {
				f(dst[r*width:(r+1)*width], src[r*width:(r+1)*width])
			}
		}
		return func() error {
			src, dst = in[0].F32s(), out[0].F32s()
			x.pool.For((rows+per-1)/per, some)
			return nil
		}
	}}
}

// lastAxis reports whether a is the last axis of the node's first input.
func lastAxis(n *ir.Node, a int) bool {
	rank := n.Inputs[0].Type.Rank()
	return a == -1 || a == rank-1
}

func bindSoftmax(_ *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.Softmax)
	if !f32(n) || !lastAxis(n, o.Axis) {
		return nil, nil
	}
	return bindRows(n, vec.Softmax), nil
}

func bindLayerNorm(_ *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.LayerNormalization)
	gamma, ok1 := constantF32(n, 1)
	beta, ok2 := constantF32(n, 2)
	if !f32(n) || !lastAxis(n, o.Axis) || len(n.Outputs) > 1 || !ok1 || !ok2 || len(gamma) != width(n) {
		return nil, nil
	}
	if beta == nil {
		beta = make([]float32, len(gamma))
	}
	if len(beta) != len(gamma) {
		return nil, nil
	}
	return bindRows(n, func(y, x []float32) { vec.LayerNorm(y, x, gamma, beta, o.Epsilon) }), nil
}

func bindRMSNorm(_ *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.RMSNormalization)
	gamma, ok := constantF32(n, 1)
	if !f32(n) || !lastAxis(n, o.Axis) || !ok || len(gamma) != width(n) {
		return nil, nil
	}
	zero := make([]float32, len(gamma))
	return bindRows(n, func(y, x []float32) {
		inv := 1 / math.Sqrt(float64(vec.SumSquares(x, 0)/float32(len(x))+o.Epsilon))
		vec.Normalize(y, x, gamma, zero, 0, float32(inv))
	}), nil
}

// width is the size of the last axis of the node's first input, 0 for a scalar.
func width(n *ir.Node) int {
	s := shapeOf(n.Inputs[0])
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1]
}
