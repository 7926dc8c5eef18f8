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
	for i, a := range o.Activations {
		if !strings.EqualFold(a, activations[i%len(activations)]) {
			return false, nil
		}
	}
	xs, rs := shapeOf(n.Inputs[0]), shapeOf(n.Inputs[2])
	if o.Clip != nil || o.BatchFirst || n.Input(4) != nil || !n.Inputs[2].IsConst() || prod(xs) == 0 || rs[2] == 0 {
		return false, nil
	}
	s := &steps{node: n, cells: cells, seq: xs[0], batch: xs[1], dirs: rs[0], hidden: rs[2]}
	if o.Direction == "reverse" {
		s.reverse = 1
	}
	w, err := b.weightOf(n, 1)
	if err != nil || w == nil || s.batch > maxGrid {
		return false, err
	}
	bias, ok := s.biases(w.rows)
	if !ok {
		return false, nil
	}
	if s.weight, err = b.prog.elements(n.Inputs[2]); err != nil {
		return false, err
	}
	s.inputs = b.temp(s.seq * s.batch * w.rows * b.prog.float.Size())
	ok, err = b.multiply(w, operands{
		x: value(n.Inputs[0]), y: s.inputs, n: s.seq * s.batch, batch: 1, xs: [3]int{1, w.cols, 0}, ys: [3]int{1, w.rows, 0},
	}, 1, bias, &op.Epilogue{})
	if !ok || err != nil {
		return false, err
	}
	return true, b.launchSteps(s)
}

// steps are those of a recurrent layer.
type steps struct {
	node                     *ir.Node
	cells                    []int
	seq, batch, dirs, hidden int
	reverse                  int            // 1 where the sequence is gone through from its end
	weight                   *tensor.Tensor // of the products with the states
	reset                    []float32      // biases of these that are reset, nil where there are none
	inputs                   param          // the temporary of the products with the inputs
}

// biases returns what is added to the rows of the products with the inputs, and sets the biases
// that are reset; ok is false where biases are no constant.
func (s *steps) biases(rows int) (sum []float32, ok bool) {
	bias, ok := biasesOf(s.node, s.dirs, rows/s.dirs)
	if !ok || bias == nil {
		return nil, ok
	}
	if s.cells[0] == cellGRUAfter {
		for d := range s.dirs {
			last := bias[1][d*3*s.hidden+2*s.hidden:][:s.hidden]
			s.reset = append(s.reset, last...)
			clear(last)
		}
	}
	sum = bias[0]
	for i, v := range bias[1] {
		sum[i] += v
	}
	return sum, true
}

// launchSteps launches the phases of the cells step by step, and what hands out the last states.
func (b *binder) launchSteps(s *steps) error {
	output := func(i int) *ir.Value {
		if i < len(s.node.Outputs) {
			return s.node.Outputs[i]
		}
		return nil
	}
	size, state := b.prog.float.Size(), s.dirs*s.batch*s.hidden
	y := value(output(0))
	if output(0) == nil {
		y = b.temp(s.seq * state * size)
	}
	kept := b.temp(state * tensor.F32.Size())
	if output(2) != nil && b.prog.float == tensor.F32 {
		kept = value(output(2))
	}
	reset := b.temp(state * size)
	const units = recurrentUnits
	g := backend.Geometry{Grid: [3]int{(s.hidden + units - 1) / units, s.batch, s.dirs}, Block: [3]int{32 * units, 1, 1}}
	for step := range s.seq {
		for _, cell := range s.cells {
			if err := b.launch(b.name("recurrent"), g, params{s.inputs}, tensors(b.round(s.weight)), values(s.node.Input(5), s.node.Input(6)),
				params{y, kept, reset}, data(s.reset), ints(cell, step, s.seq, s.batch, s.hidden, s.reverse)); err != nil {
				return err
			}
		}
	}
	if v := output(1); v != nil {
		if err := b.launch(b.name("recurrent_last"), flat(state), params{y, value(v)}, ints(state, s.seq, s.batch*s.hidden, s.reverse)); err != nil {
			return err
		}
	}
	if v := output(2); v != nil && kept != value(v) {
		return b.cast(tensor.F32, b.prog.float, prod(shapeOf(v)), kept, value(v))
	}
	return nil
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
