// Package quant makes products of 8-bit integers, rounds weights to 16-bit floats
// (Half), and has models in such floats compute in f32 (WidenFloats). Insert spells quantisation out in
// QuantizeLinear and DequantizeLinear nodes, as ONNX does; Integers turns products
// between such nodes, whoever made them, into quantised ones (op.Quant). A Rounder does both to some products of copies of a graph. Weights are
// i8, symmetric, with a scale for each output channel; activations are u8 with one
// scale and zero point a tensor. The package imports ir, ir/op, passes/calib,
// passes/fold and passes/prune.
package quant

import (
	"fmt"
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/calib"
)

// params are the scale and the zero point of a u8 tensor.
type params struct {
	scale float32
	zero  int
}

// paramsOf returns the parameters with which 0..255 spans a range and zero.
func paramsOf(r calib.Range) params {
	lo, hi := min(float64(r.Lo), 0), max(float64(r.Hi), 0)
	scale := float32((hi - lo) / 255)
	if !(scale >= math.SmallestNonzeroFloat32*1e6) { // nothing but zeros
		return params{1, 0}
	}
	return params{scale, int(min(max(math.RoundToEven(-lo/float64(scale)), 0), 255))}
}

// quantizer returns the parameters of a QuantizeLinear or DequantizeLinear between
// f32 and u8 whose scale and zero point are constants for the whole tensor, and which
// floats can compute with for every element; ok is false for any other node.
func quantizer(n *ir.Node, kind string) (p params, ok bool) {
	p, dt, ok := byteParams(n, kind)
	return p, ok && dt == tensor.U8
}

// normal reports whether floats hold s and its reciprocal with all their bits.
func normal(s float32) bool { return s >= 0x1p-126 && s <= 0x1p126 }

// fits reports whether sums of products of 8 bits may be scaled by s, and then by 1/y: neither
// overflows, and where s loses bits, no sum, of at most 2^31, is anything beside a step of y.
func fits(s, y float32) bool {
	return s <= 0x1p126 && s/y <= 0x1p64 && (s >= 0x1p-126 || y >= 0x1p-62)
}

// byteParams is quantizer for u8 and i8, which dt tells.
func byteParams(n *ir.Node, kind string) (p params, dt tensor.DType, ok bool) {
	if n == nil || n.Op.Kind() != kind {
		return p, dt, false
	}
	float, ints := n.Inputs[0], n.Outputs[0]
	if kind == "DequantizeLinear" {
		float, ints = ints, float
	}
	dt = ints.Type.DType
	s := n.Inputs[1].Const
	if float.Type.DType != tensor.F32 || dt != tensor.U8 && dt != tensor.I8 || s == nil || s.DType() != tensor.F32 || s.Len() != 1 {
		return p, dt, false
	}
	p.scale = s.F32s()[0]
	if !normal(p.scale) || !normal(255*p.scale) {
		return p, dt, false
	}
	if z := n.Input(2); z != nil {
		if z.Const == nil || z.Const.Len() != 1 {
			return p, dt, false
		}
		p.zero = int(z.Const.Int64s()[0])
	}
	return p, dt, true
}

// defined returns the node that defines v, nil where there is none.
func defined(v *ir.Value) *ir.Node {
	if v == nil {
		return nil
	}
	return v.Def
}

// insertAfter makes a node directly behind the definition of v.
func insertAfter(v *ir.Value, name string, o ir.Op, inputs []*ir.Value, output string) (*ir.Node, error) {
	g := v.Graph()
	at := 0
	if v.Def != nil {
		at = slices.Index(g.Nodes, v.Def) + 1
	}
	var n *ir.Node
	if at == len(g.Nodes) {
		n = g.NewNode(name, o, inputs, output)
	} else {
		n = g.InsertBefore(g.Nodes[at], name, o, inputs, output)
	}
	return n, n.Infer()
}

// newOp makes an operator with default attributes.
func newOp(kind string) ir.Op {
	o, err := op.New(kind)
	if err != nil {
		panic(fmt.Sprintf("quant: %v", err)) // kind is one of this package's constants
	}
	return o
}

// pair puts a QuantizeLinear and a DequantizeLinear with the parameters behind v and
// returns the output of the latter.
func (p params) pair(v *ir.Value) (*ir.Value, error) {
	g := v.Graph()
	scale := g.NewConst(v.Name+".scale", tensor.Scalar(p.scale))
	zero := g.NewConst(v.Name+".zero", tensor.Scalar(uint8(p.zero)))
	q, err := insertAfter(v, v.Name+".quantize", newOp("QuantizeLinear"), []*ir.Value{v, scale, zero}, v.Name+".u8")
	if err != nil {
		return nil, err
	}
	u := q.Outputs[0]
	d, err := insertAfter(u, v.Name+".dequantize", newOp("DequantizeLinear"), []*ir.Value{u, scale, zero}, v.Name+".f32")
	if err != nil {
		return nil, err
	}
	return d.Outputs[0], nil
}

// data returns the inputs that hold the data of a transparent node: one that only moves elements, or
// takes one of several, so that it does the same to quantised tensors. It is nil for any other node,
// one with outputs besides the first, and a pool that devices have no kernel of integers for.
func data(n *ir.Node) []*ir.Value {
	if n == nil || len(n.Outputs) == 0 || slices.ContainsFunc(n.Outputs[1:], func(v *ir.Value) bool { return v != nil }) {
		return nil
	}
	m, data := op.Moves(n)
	p, pool := n.Op.(*op.MaxPool)
	pool = pool && len(p.KernelShape) <= op.MaxQuantAxes
	if m >= op.Permutes && op.Operands(n) == 0 || pool { // Dropout takes floats alone
		return data
	}
	return nil
}
