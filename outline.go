package spc

import (
	"fmt"

	"spc/backend"
	"spc/backend/cpu"
	"spc/backend/format"
	"spc/ir"
	"spc/ir/tensor"
)

// Outline is a compiled graph as a picture of it needs it: what is computed from what.
type Outline struct {
	Values  []OutlineValue
	Nodes   []OutlineNode // in the order of execution; those of a node's subgraphs follow it
	Inputs  []int         // values
	Outputs []OutlineOutput
	Assumed bool // sizes that are open were taken for others, as there were no inputs
}

// OutlineValue is a value that is no constant.
type OutlineValue struct {
	Name, Type string
	Def        int // the node that computes it, -1 for an input of a graph
}

// OutlineOutput is an output of the model and the value that it is.
type OutlineOutput struct {
	Name  string
	Value int
}

// OutlineNode is a node of the graph or of a subgraph.
type OutlineNode struct {
	Name, Op string
	// Inputs are the values that it reads, those that its subgraphs read from outside among them, each once.
	Inputs, Outputs []int
	Parent          int // the node whose subgraph it is in, -1 where it is in none
	// FLOPs and Bytes are its work, 0 where sizes are not known before it runs, and Seconds what it is predicted to take on a
	// CPU, 0 where that is not known.
	FLOPs, Bytes, Seconds float64
	// Interpreted says that the CPU has no kernel for it.
	Interpreted bool
}

// Outline describes the compiled graph, with the work that nodes have for such inputs, whose elements do not matter.
// Without any, sizes are taken as Forecast takes them.
func (m *Model) Outline(inputs map[string]*tensor.Tensor) (*Outline, error) {
	in, known := make([]*tensor.Tensor, len(m.graph.Inputs)), true
	if inputs == nil {
		in, known = m.sizes()
	} else if err := arrange(m.graph, in, inputs); err != nil {
		return nil, err
	}
	var o *Outline
	err := m.guard(func() error {
		d := &drawing{Outline: Outline{Assumed: !known}, values: map[*ir.Value]int{}, predicted: map[string]cpu.Prediction{}}
		if in != nil {
			sizes, err := ir.BindInputs(m.graph, in)
			if err != nil {
				return err
			}
			list, err := cpu.Predict(m.graph, in, backend.Options{Threads: 1, Checked: true}, m.rates(1))
			switch {
			case err == nil:
				d.sizes = sizes
			case inputs != nil:
				return err
			default: // the graph does not fit sizes that nobody gave
				d.Assumed = true
			}
			for _, p := range list {
				d.predicted[p.Node.Name] = p
			}
		}
		d.graph(m.graph, -1)
		for _, v := range m.graph.Inputs {
			d.Inputs = append(d.Inputs, d.value(v, -1))
		}
		for i, v := range m.graph.Outputs {
			if !v.IsConst() {
				d.Outputs = append(d.Outputs, OutlineOutput{m.graph.OutputName(i), d.value(v, -1)})
			}
		}
		o = &d.Outline
		return nil
	})
	return o, err
}

// drawing is an outline that is being made.
type drawing struct {
	Outline
	values    map[*ir.Value]int
	sizes     map[string]int
	predicted map[string]cpu.Prediction
}

func (d *drawing) graph(g *ir.Graph, parent int) {
	for _, n := range g.Nodes {
		i := len(d.Nodes)
		p := d.predicted[n.Name]
		d.Nodes = append(d.Nodes, OutlineNode{Name: n.Name, Op: n.Op.Kind(), Parent: parent, Seconds: p.Seconds, Interpreted: p.Interpreted})
		var inputs, outputs []int
		seen := map[*ir.Value]bool{}
		n.Reads(func(v *ir.Value) {
			if v == nil || v.IsConst() || seen[v] || v.Graph() != g && !outer(v.Graph(), g) {
				return
			}
			seen[v] = true
			inputs = append(inputs, d.value(v, -1))
		})
		for _, v := range n.Outputs {
			if v != nil {
				outputs = append(outputs, d.value(v, i))
			}
		}
		at := &d.Nodes[i]
		at.Inputs, at.Outputs = inputs, outputs
		at.FLOPs, at.Bytes = d.work(n)
		for _, sub := range ir.Subgraphs(n.Op) {
			d.graph(sub, i)
		}
	}
}

// outer reports whether a graph is around another.
func outer(g, around *ir.Graph) bool {
	for ; around.Owner != nil; around = around.Owner.Graph() {
		if around.Owner.Graph() == g {
			return true
		}
	}
	return false
}

func (d *drawing) value(v *ir.Value, def int) int {
	i, ok := d.values[v]
	if !ok {
		i = len(d.Values)
		d.values[v] = i
		d.Values = append(d.Values, OutlineValue{v.Name, v.Type.String(), def})
	}
	if def >= 0 {
		d.Values[i].Def = def
	}
	return i
}

// work is a node's, 0 where its sizes are not known.
func (d *drawing) work(n *ir.Node) (flops, bytes float64) {
	known := true
	at := func(t ir.Type) ir.Type {
		t = t.Map(func(dim ir.Dim) ir.Dim {
			size, ok := dim.At(d.sizes)
			if !ok {
				known = false
			}
			return ir.Size(size)
		})
		known = known && t.Static()
		return t
	}
	in := make([]ir.Type, len(n.Inputs))
	for i, v := range n.Inputs {
		if v != nil {
			in[i] = at(v.Type)
		}
	}
	var out []ir.Type
	for _, v := range n.Outputs {
		if v == nil {
			out = append(out, ir.Type{})
			continue
		}
		out = append(out, at(v.Type))
	}
	if !known || len(ir.Subgraphs(n.Op)) > 0 {
		return 0, 0
	}
	w := n.Op.Work(in, out)
	return w.FLOPs, w.Bytes
}

// Weights calls f with each weight that layers of the report describe, once, by its name: as the matrix M x K of f32
// that is multiplied, with what pruning made zero. It stops at the first error.
func (m *Model) Weights(f func(name string, matrix *tensor.Tensor) error) error {
	return m.guard(func() error {
		seen := map[*ir.Value]bool{}
		for _, u := range m.graph.WeightUses() {
			v := u.Value
			if seen[v] {
				continue
			}
			seen[v] = true
			var w *tensor.Tensor
			if v.Store != nil {
				var err error
				if w, err = format.Lookup(v.Store.Format).Unpack(v.Store); err != nil {
					return fmt.Errorf("weight %s: %w", v.Name, err)
				}
			} else {
				w = u.View.Matrix(v.Const)
			}
			if err := f(v.Name, w.To(tensor.F32)); err != nil {
				return err
			}
		}
		return nil
	})
}
