package prune

import (
	"fmt"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/tensor"
)

// GraphOptions say what to prune in a graph.
type GraphOptions struct {
	Options
	Keep     []Glob        // nodes or weights that stay as they are
	KeepNone bool          // lifts the exceptions for the first Conv and the last weight-bearing node
	Targets  []LayerTarget // the last that matches a node or weight gives its sparsity
}

// GraphResult reports what pruning did.
type GraphResult struct {
	Pattern  string       `json:"pattern"`
	Allocate string       `json:"allocate"`
	Asked    float64      `json:"asked"` // the sparsity asked for
	Prunable Tally        `json:"prunable"`
	Weights  Tally        `json:"weights"` // of every weight-bearing node
	Layers   []GraphLayer `json:"layers"`
}

// GraphLayer is a weight-bearing node's weight.
type GraphLayer struct {
	Node     string  `json:"node"`
	Weight   string  `json:"weight"`
	Prunable bool    `json:"prunable"`
	Why      string  `json:"why"` // why it is not prunable
	Weights  int     `json:"weights"`
	Zeros    int     `json:"zeros"`   // the removed ones among them
	Removed  int     `json:"removed"` // with whole channels
	RowMin   int     `json:"row_min"` // the fewest nonzeros in a row of a pruned weight
	RowMax   int     `json:"row_max"` // and the most
	Bounded  int     `json:"bounded"` // rows that kept something only because each must
	Note     string  `json:"note"`
	Sparsity float64 `json:"sparsity"`
}

// candidate is a weight of the graph, once however many nodes read it.
type candidate struct {
	ir.WeightUse
	name string
	why  string // why it is not prunable, empty where it is
	kept bool   // by the user
}

// candidates lists the distinct weights of g in the order of the nodes, and why
// those that are not prunable are not: every constant weight of a node with one
// group is, but for the first Conv, the last weight-bearing node, and what the
// user keeps. A Keep that matches none of them is an error.
func candidates(g *ir.Graph, o *GraphOptions) ([]*candidate, error) {
	var out []*candidate
	byValue := map[*ir.Value]*candidate{}
	var firstConv, last *ir.Node
	reads := map[*ir.Value]int{}
	for _, u := range g.WeightUses() {
		if firstConv == nil && u.Node.Op.Kind() == "Conv" {
			firstConv = u.Node
		}
		last = u.Node
		reads[u.Value]++
		if byValue[u.Value] == nil {
			c := &candidate{WeightUse: u, name: u.Node.String()}
			byValue[u.Value] = c
			out = append(out, c)
		} else if !slices.Equal(byValue[u.Value].View.Perm, u.View.Perm) {
			byValue[u.Value].why = "read as two different matrices"
		}
	}
	matched := make([]bool, len(o.Keep))
	for _, c := range out {
		kept := ""
		for i, k := range o.Keep {
			if k.Match(c.Node.Name) || k.Match(c.Value.Name) {
				kept, matched[i] = "kept by "+k.String(), true
			}
		}
		switch {
		case c.why != "":
		case c.Groups != 1 && strings.HasPrefix(c.Node.Op.Kind(), "Conv"):
			c.why = fmt.Sprintf("%d groups", c.Groups)
		case c.Value.Const == nil || c.Value.Const.DType() != tensor.F32:
			c.why = fmt.Sprintf("%v weights", c.Value.Type.DType)
		case len(c.Value.Uses()) != reads[c.Value] || c.Value.IsOutput():
			c.why = "read by other operators too"
		case !o.KeepNone && slices.ContainsFunc(c.Value.Uses(), func(u ir.Use) bool { return u.Node == firstConv }):
			c.why = "the first convolution"
		case !o.KeepNone && slices.ContainsFunc(c.Value.Uses(), func(u ir.Use) bool { return u.Node == last }):
			c.why = "the last weight-bearing operator"
		default:
			c.why = kept
		}
		c.kept = kept != ""
	}
	for i, ok := range matched {
		if !ok {
			return nil, fmt.Errorf("--keep %s: no layer or weight has a name like this: %w", o.Keep[i], ir.ErrInvalid)
		}
	}
	return out, nil
}

// target returns the sparsity that the last matching Target gives a weight, nil
// where none does, and marks those that match.
func (o *GraphOptions) target(c *candidate, matched []bool) (sparsity *float64) {
	for i, t := range o.Targets {
		if t.Glob.Match(c.Node.Name) || t.Glob.Match(c.Value.Name) {
			sparsity, matched[i] = &t.Sparsity, true
		}
	}
	return sparsity
}

// checkTargets reports a Target that matches nothing.
func (o *GraphOptions) checkTargets(matched []bool) error {
	for i, ok := range matched {
		if !ok {
			return fmt.Errorf("--layer %s: no prunable weight has a name like this: %w", o.Targets[i].Glob, ir.ErrInvalid)
		}
	}
	return nil
}

// Graph prunes the weights of g in place: Select decides, masks are applied.
// Under Channel these are rows of weights that remain where they are, and Channels
// is what removes them.
func Graph(g *ir.Graph, o GraphOptions) (*GraphResult, error) {
	cands, err := candidates(g, &o)
	if err != nil {
		return nil, err
	}
	matched := make([]bool, len(o.Targets))
	var layers []Layer
	for _, c := range cands {
		if c.why != "" {
			continue
		}
		shape := c.Value.Const.Shape()
		m, k := c.View.Dims(shape)
		l := Layer{Name: c.name, Rows: m, Cols: k}
		l.Sparsity = o.target(c, matched)
		if slices.Equal(c.View.Perm, []int{1, 0}) && c.View.RowAxes == 1 {
			l.Weights, l.Transposed = c.Value.Const.F32s(), true
		} else {
			l.Weights = c.View.Matrix(c.Value.Const).F32s()
		}
		layers = append(layers, l)
	}
	if err := o.checkTargets(matched); err != nil {
		return nil, err
	}
	res, err := Select(layers, o.Options)
	if err != nil {
		return nil, err
	}
	out := &GraphResult{Pattern: o.Pattern.String(), Allocate: string(o.Allocate), Asked: o.Sparsity, Prunable: res.Total}
	next := 0
	for _, c := range cands {
		gl := GraphLayer{Node: c.Node.Name, Weight: c.Value.Name, Why: c.why, Prunable: c.why == ""}
		if gl.Prunable {
			r, l := res.Layers[next], layers[next]
			next++
			if zeros(l.Weights) != r.Zeros {
				w := slices.Clone(l.Weights)
				r.Mask.Apply(w, l.Transposed)
				shape := c.Value.Const.Shape()
				if l.Transposed {
					c.Value.SetConst(tensor.From(w, shape...))
				} else {
					c.Value.SetConst(c.View.Tensor(tensor.From(w, l.Rows, l.Cols), shape))
				}
			}
			gl.Weights, gl.Zeros, gl.Bounded, gl.Note = r.Weights, r.Zeros, r.Bounded, r.Note
			gl.RowMin, gl.RowMax = r.RowMin, r.RowMax
		} else {
			gl.Weights = prodOf(c.Value.Type)
			if c.Value.Const != nil && c.Value.Const.DType() == tensor.F32 {
				gl.Zeros = zeros(c.Value.Const.F32s())
			}
		}
		gl.Sparsity = Tally{gl.Weights, gl.Zeros}.Sparsity()
		out.Weights.add(Tally{gl.Weights, gl.Zeros})
		out.Layers = append(out.Layers, gl)
	}
	return out, nil
}

func prodOf(t ir.Type) int {
	shape, _ := t.Shape()
	n, err := tensor.Elems(shape)
	if err != nil {
		return 0
	}
	return n
}

func zeros(w []float32) (n int) {
	for _, v := range w {
		if v == 0 {
			n++
		}
	}
	return n
}
