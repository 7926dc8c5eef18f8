package cuda

import (
	"slices"
	"strings"

	"spc/backend"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

func bindRNN(b *binder, n *ir.Node) (bool, error) {
	return b.recurrent(n, &n.Op.(*op.RNN).Recurrent, []string{"Tanh"}, cellTanh)
}

func bindGRU(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.GRU)
	cells := []int{cellGRUGates, cellGRURest}
	if o.ResetAfter {
		cells = []int{cellGRUAfter}
	}
	return b.recurrent(n, &o.Recurrent, []string{"Sigmoid", "Tanh"}, cells...)
}

func bindLSTM(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.LSTM)
	if o.InputForget || n.Input(7) != nil {
		return false, nil
	}
	return b.recurrent(n, &o.Recurrent, []string{"Sigmoid", "Tanh", "Tanh"}, cellLSTM)
}

// recurrent multiplies the inputs of all steps at once, and then launches, step by step, the
// phases of a cell.
func (b *binder) recurrent(n *ir.Node, o *op.Recurrent, activations []string, cells ...int) (bool, error) {
	xs, rs := shapeOf(n.Inputs[0]), shapeOf(n.Inputs[2])
	usual := func(i int) bool { return strings.EqualFold(o.Activations[i], activations[i%len(activations)]) }
	for i := range o.Activations {
		if !usual(i) {
			return false, nil
		}
	}
	if o.Clip != nil || o.BatchFirst || n.Input(4) != nil || !n.Inputs[2].IsConst() || prod(xs) == 0 || rs[2] == 0 {
		return false, nil
	}
	seq, batch, dirs, hidden := xs[0], xs[1], rs[0], rs[2]
	w, err := b.weightOf(n, 1)
	if err != nil || w == nil || batch > maxGrid {
		return false, err
	}
	rows, cols := w.rows, w.cols
	bias, ok := biasesOf(n, dirs, rows/dirs)
	if !ok {
		return false, nil
	}
	var after []float32 // a bias that is reset
	if cells[0] == cellGRUAfter && bias != nil {
		for d := range dirs {
			after = append(after, bias[1][d*3*hidden+2*hidden:][:hidden]...)
			clear(bias[1][d*3*hidden+2*hidden:][:hidden])
		}
	}
	var sum []float32
	if bias != nil {
		sum = bias[0]
		for i, v := range bias[1] {
			sum[i] += v
		}
	}
	r, err := b.prog.elements(n.Inputs[2])
	if err != nil {
		return false, err
	}
	size := b.prog.float.Size()
	gx := b.temp(seq * batch * rows * size)
	ok, err = b.multiply(w, operands{
		x: n.Inputs[0], result: gx, n: seq * batch, batch: 1, xs: [3]int{1, cols, 0}, ys: [3]int{1, rows, 0},
	}, 1, sum, &op.Epilogue{})
	if !ok || err != nil {
		return false, err
	}
	output := func(i int) *ir.Value {
		if i < len(n.Outputs) {
			return n.Outputs[i]
		}
		return nil
	}
	state := dirs * batch * hidden
	y := any(output(0))
	if output(0) == nil {
		y = tempParam(b.temp(seq * state * size))
	}
	kept := any(tempParam(b.temp(state * tensor.F32.Size())))
	if output(2) != nil && b.prog.float == tensor.F32 {
		kept = output(2)
	}
	reset := tempParam(b.temp(state * size))
	reverse := 0
	if o.Direction == "reverse" {
		reverse = 1
	}
	const units = recurrentUnits
	g := backend.Geometry{Grid: [3]int{(hidden + units - 1) / units, batch, dirs}, Block: [3]int{32 * units, 1, 1}}
	for step := range seq {
		for _, cell := range cells {
			if err := b.launch(b.name("recurrent"), g, tempParam(gx), b.round(r), valueOrNil(n.Input(5)), valueOrNil(n.Input(6)), y, kept, reset,
				floats(after), cell, step, seq, batch, hidden, reverse); err != nil {
				return false, err
			}
		}
	}
	if v := output(1); v != nil {
		if err := b.launch(b.name("recurrent_last"), flat(state), y, v, state, seq, batch*hidden, reverse); err != nil {
			return false, err
		}
	}
	if v := output(2); v != nil && kept != any(v) {
		return true, b.cast(tensor.F32, b.prog.float, prod(shapeOf(v)), kept, v)
	}
	return true, nil
}

// biasesOf returns the biases of the products with the inputs and with the states, [dirs*m] each,
// nil where a layer has none; ok is false where they are no constant.
func biasesOf(n *ir.Node, dirs, m int) (bias [][]float32, ok bool) {
	v := n.Input(3)
	if v == nil {
		return nil, true
	}
	if v.Const == nil || v.Const.DType() != tensor.F32 {
		return nil, false
	}
	bias = make([][]float32, 2)
	for row := range slices.Chunk(v.Const.F32s(), 2*m) {
		bias[0] = append(bias[0], row[:m]...)
		bias[1] = append(bias[1], row[m:]...)
	}
	return bias, true
}
