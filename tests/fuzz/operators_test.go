package fuzz

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/tests/conformance"
)

// TestEvalTakesWhatInferTakes changes the attributes and inputs of the operators in
// the official suite: what inference accepts is evaluated, or refused with an
// error, never a panic, and the outputs have the types that were inferred.
func TestEvalTakesWhatInferTakes(t *testing.T) {
	archive := filepath.Join(conformance.Shared(), conformance.Archive)
	if _, err := os.Stat(archive); err != nil {
		t.Skipf("suite: %v", err)
	}
	tests, err := conformance.Load(archive)
	if err != nil {
		t.Fatal(err)
	}
	const seed, changes = 1, 6
	t.Logf("seed %d", seed)
	accepted := 0
	for i, c := range tests {
		if c.Group != "node" || len(c.Sets) == 0 {
			continue
		}
		g, _, err := onnx.ImportBytes(c.Model, "", onnx.Options{})
		if err != nil || len(g.Nodes) != 1 || len(ir.Subgraphs(g.Nodes[0].Op)) > 0 {
			continue
		}
		in := inputs(g, c.Sets[0])
		if in == nil {
			continue
		}
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		for range changes {
			if try(t, r, c.Name, g.Nodes[0], in) {
				accepted++
			}
		}
	}
	t.Logf("%d changes accepted", accepted)
}

// inputs returns the inputs of the graph's only node, nil where they are not known.
func inputs(g *ir.Graph, set conformance.Set) []*tensor.Tensor {
	values := map[*ir.Value]*tensor.Tensor{}
	for i, v := range g.Inputs {
		if i >= len(set.In) {
			return nil
		}
		x, _, err := tensor.DecodeTensorProto(set.In[i])
		if err != nil || x.Len() > 4096 {
			return nil
		}
		values[v] = x
	}
	in := make([]*tensor.Tensor, len(g.Nodes[0].Inputs))
	for i, v := range g.Nodes[0].Inputs {
		if v == nil {
			continue
		}
		if in[i] = values[v]; v.Const != nil {
			in[i] = v.Const
		}
	}
	return in
}

// try changes a node and evaluates it; it reports whether inference accepts it.
func try(t *testing.T, r *rand.Rand, name string, n *ir.Node, in []*tensor.Tensor) (accepted bool) {
	o := changeOp(t, r, n.Op)
	in = slices.Clone(in)
	for i, x := range in {
		switch k := r.IntN(24); {
		case x != nil && k < 8:
			in[i] = change(r, x)
		case k == 8:
			in[i] = nil
		}
	}
	say := fmt.Sprintf("%s: %s %v of %v", name, o.Kind(), ir.Attrs(o), in)
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s: panic: %v", say, p)
		}
	}()
	g := ir.NewGraph("g")
	values := make([]*ir.Value, len(in))
	for i, x := range in {
		if x != nil {
			values[i] = g.NewInput("", ir.TypeOf(x))
		}
	}
	m := g.NewNode("n", o, values, make([]string, len(n.Outputs))...)
	in = in[:len(m.Inputs)]
	if m.Infer() != nil {
		return false
	}
	exact, err := m.InferFor(in)
	if err != nil {
		exact = make([]ir.Type, len(m.Outputs)) // the elements are refused
	}
	out, err := o.Eval(&ir.Eval{Outputs: len(m.Outputs)}, in)
	if err != nil {
		return true
	}
	for i, v := range m.Outputs {
		if i >= len(out) || out[i] == nil {
			t.Errorf("%s: output %d is missing", say, i)
		} else if !holds(out[i], v.Type) || !holds(out[i], exact[i]) {
			t.Errorf("%s: output %d is %v, inferred %v and %v", say, i, out[i], v.Type, exact[i])
		}
	}
	return true
}

// holds reports whether a tensor is of a type; the zero type holds of all.
func holds(x *tensor.Tensor, t ir.Type) bool {
	if t.DType == tensor.Undefined {
		return true
	}
	if x.DType() != t.DType || t.Ranked && x.Rank() != t.Rank() {
		return false
	}
	for i, d := range t.Dims {
		if d.Known() && d.Size() != x.Dim(i) {
			return false
		}
	}
	return true
}

// changeOp copies an operator and changes some of its attributes.
func changeOp(t *testing.T, r *rand.Rand, o ir.Op) ir.Op {
	c, err := op.New(o.Kind())
	if err != nil {
		t.Fatal(err)
	}
	reflect.ValueOf(c).Elem().Set(reflect.ValueOf(o).Elem())
	number := func(n int) int {
		switch r.IntN(8) {
		case 0:
			return -n
		case 1:
			return 0
		case 2:
			return 1 << (r.IntN(4) * 20)
		case 3:
			return -1 << (r.IntN(4) * 20)
		}
		return n + r.IntN(5) - 2
	}
	for _, a := range ir.Attrs(c) {
		if r.IntN(4) > 0 {
			continue
		}
		v := a.Value
		switch x := v.(type) {
		case int:
			v = number(x)
		case float32:
			v = x * float32(r.IntN(5)-2)
		case []int:
			s := slices.Clone(x)
			switch k := r.IntN(4); {
			case k == 0:
				s = append(s, 1)
			case k == 1 && len(s) > 0:
				s = s[1:]
			case len(s) > 0:
				i := r.IntN(len(s))
				s[i] = number(s[i])
			}
			v = s
		case []float32:
			v = x[:r.IntN(len(x)+1)]
		case *tensor.Tensor:
			v = change(r, x)
		}
		// A value that the attribute cannot take is left out.
		_ = ir.SetAttr(c, a.Name, v)
	}
	return c
}

// change returns a tensor of another shape, type or elements.
func change(r *rand.Rand, x *tensor.Tensor) *tensor.Tensor {
	shape, dt := slices.Clone(x.Shape()), x.DType()
	switch k := r.IntN(8); {
	case k < 3 && len(shape) > 0:
		i := r.IntN(len(shape))
		shape[i] = max(shape[i]+r.IntN(3)-1, 0)
	case k == 3 && len(shape) > 0:
		shape = shape[1:]
	case k == 4:
		shape = slices.Insert(shape, r.IntN(len(shape)+1), 1+r.IntN(2))
	case k == 5:
		dt = tensor.DType(1 + r.IntN(26))
	}
	n := 1
	for _, d := range shape {
		n *= d
	}
	switch {
	case dt == tensor.String:
		s, old := make([]string, n), []string{"", "a", "monday", "a b"}
		if x.DType() == dt && x.Len() > 0 {
			old = x.Strings()
		}
		for i := range s {
			s[i] = old[r.IntN(len(old))]
		}
		return tensor.FromStrings(s, shape...)
	case dt.IsFloat():
		v, old := make([]float64, n), []float64{-1, 0, 0.5, 1, 2}
		if x.DType().IsFloat() && x.Len() > 0 {
			old = x.Float64s()
		}
		for i := range v {
			v[i] = old[r.IntN(len(old))]
			if r.IntN(40) == 0 {
				v[i] *= 1e30
			}
		}
		return tensor.FromFloat64s(dt, v, shape...)
	case dt.IsInt() || dt == tensor.Bool:
		v, old := make([]int64, n), []int64{-1, 0, 1, 2}
		if (x.DType().IsInt() || x.DType() == tensor.Bool) && x.Len() > 0 {
			old = x.Int64s()
		}
		for i := range v {
			v[i] = old[r.IntN(len(old))] + int64(r.IntN(3)/2)
			if r.IntN(20) == 0 {
				v[i] = -v[i] << r.IntN(62)
			}
		}
		return tensor.FromInt64s(dt, v, shape...)
	}
	return tensor.New(dt, shape...)
}
