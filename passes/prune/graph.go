package prune

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/option"
	"spc/ir/tensor"
)

// GraphOptions say what to prune in a graph.
type GraphOptions struct {
	Options
	Keep     []Glob        // nodes or weights that stay as they are
	KeepNone bool          // lifts the exceptions for a first Conv and for the last weight-bearing nodes
	KeepEnds bool          // makes them for any such, also where they are not small
	Targets  []LayerTarget // the last that matches a node or weight gives its sparsity
	// Settle, where it is set, has the elements of a weight that was pruned lie elsewhere than in memory.
	Settle func(t *tensor.Tensor)
}

// Asks reports whether the options ask for zeros.
func (o *GraphOptions) Asks() bool {
	_, own := o.Pattern.OwnSparsity()
	return o.Sparsity > 0 || len(o.Targets) > 0 || own
}

// GraphResult reports what pruning did.
type GraphResult struct {
	Pattern  string       `json:"pattern"`
	Allocate string       `json:"allocate"`
	Asks     bool         `json:"asks"`  // zeros were asked for
	Asked    float64      `json:"asked"` // the sparsity of all
	Aim      float64      `json:"aim"`   // what that and the layers' own come to, of the prunable weights
	Prunable Tally        `json:"prunable"`
	Weights  Tally        `json:"weights"` // of every weight-bearing node
	Layers   []GraphLayer `json:"layers"`
	Cuts     []Cut        `json:"-"` // what went with channels
}

// GraphLayer is a weight-bearing node's weight, as it was before pruning.
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
	How      string  `json:"how,omitempty"`    // it was pruned, and what that did, where calibration saw its inputs
	Unseen   string  `json:"unseen,omitempty"` // why samples did not show its inputs, and magnitudes decided
	Sparsity float64 `json:"sparsity"`
}

// candidate is a weight of the graph, once however many nodes read it.
type candidate struct {
	ir.WeightUse
	readers  []*ir.Node
	why      string    // why it is not prunable, empty where it is
	products float64   // multiply-adds of all readers
	target   *float64  // its own sparsity
	tied     *float64  // that of layers with which it loses channels
	pattern  *Pattern  // its own pattern, nil where it has that of all
	rowsStay string    // why the user or the default keeps its output channels
	kept     string    // why the user keeps all of it
	saliency []float32 // what ranks its channels, nil for |w|

	rows, cols []int32 // labels of its output and input channels, see flow
}

// shared reports whether anything but one operator reads the weight.
func (c *candidate) shared() bool { return len(c.Value.Uses()) > 1 || c.Value.IsOutput() }

// named reports whether a glob matches the weight or a node that reads it.
func (c *candidate) named(g Glob) bool {
	return g.Match(c.Value.Name) || slices.ContainsFunc(c.readers, func(n *ir.Node) bool { return g.Match(n.Name) })
}

// quantised reports whether products of integers alone read the weight. Where zeros are asked
// for, such products are recognised after pruning, which sees their weights in floats.
func (c *candidate) quantised() bool {
	return !slices.ContainsFunc(c.readers, func(n *ir.Node) bool {
		q, ok := n.Op.(op.Quantisable)
		return !ok || !q.Integers().Quantised()
	})
}

// prunableTypes lists the types of weights that are pruned. What is narrower stands in
// them while it is pruned.
var prunableTypes = []tensor.DType{tensor.F32, tensor.F64, tensor.F16, tensor.BF16}

// candidates lists the distinct weights of g in the order of the nodes, and why
// those that are not prunable are not: every constant weight of a convolution of one
// group, a product, an LSTM or a GRU is, but for the ends of the graph, and what the user
// keeps. A glob that matches nothing is an error.
func candidates(g *ir.Graph, o *GraphOptions) ([]*candidate, error) {
	var out []*candidate
	byValue := map[*ir.Value]*candidate{}
	for _, u := range g.WeightUses() {
		c := byValue[u.Value]
		if c == nil {
			c = &candidate{WeightUse: u}
			byValue[u.Value] = c
			out = append(out, c)
		}
		c.readers = append(c.readers, u.Node)
		c.products += u.Products(openSize)
		_, rnn := u.Node.Op.(*op.RNN)
		_, conv := u.Node.Op.(*op.Conv)
		switch {
		case rnn:
			c.why = "weights of RNN are not pruned"
		case u.Groups != 1 && conv:
			c.why = fmt.Sprintf("%d groups", u.Groups)
		case u.View.RowAxes != c.View.RowAxes || !slices.Equal(u.View.Perm, c.View.Perm):
			c.why = "read as two different matrices"
		}
	}
	for _, c := range out {
		switch {
		case c.why != "":
		case c.Value.Const == nil:
			c.why = "stored before"
		case !slices.Contains(prunableTypes, c.Value.Const.DType()) && !(c.quantised() && !o.Asks()):
			c.why = fmt.Sprintf("%v weights", c.Value.Type.DType)
		case c.Value.Const.Len() == 0:
			c.why = "no elements"
		case len(c.Value.Uses()) != len(c.readers) || c.Value.IsOutput():
			c.why = "read by other operators too"
		}
	}
	if !o.KeepNone {
		protectEnds(g, out, o.KeepEnds)
	}
	matched, kept := make([]bool, len(o.Targets)), make([]bool, len(o.Keep))
	for _, c := range out {
		c.keep(o.Keep, kept)
		c.why = cmp.Or(c.why, c.rowsStay)
		for i, t := range o.Targets {
			if c.why == "" && c.named(t.Glob) {
				c.target, c.pattern, matched[i] = &t.Sparsity, t.Pattern, true
			}
		}
	}
	for i, ok := range kept {
		if !ok {
			return nil, option.Errorf("%v %q: no layer or weight has a name like this", option.Keep, o.Keep[i])
		}
	}
	for i, ok := range matched {
		if !ok {
			for _, c := range out {
				if c.named(o.Targets[i].Glob) {
					return nil, option.Errorf("%v %q: %s is not pruned: %s", option.Layers, o.Targets[i].Glob, c.Value.Name, c.why)
				}
			}
			return nil, option.Errorf("%v %q: no prunable weight has a name like this", option.Layers, o.Targets[i].Glob)
		}
	}
	return out, nil
}

// keep says that the user keeps the weight where one of the globs matches it, and notes which do.
func (c *candidate) keep(globs []Glob, matched []bool) {
	for i, k := range globs {
		if c.named(k) {
			matched[i] = true
			c.kept = "kept by " + k.String()
			c.rowsStay = cmp.Or(c.rowsStay, c.kept)
		}
	}
}

// Graph prunes the weights of g in place. Under Channel and Head, layers lose output
// channels and whatever read them; under other patterns, weights become zero.
func Graph(g *ir.Graph, o GraphOptions) (*GraphResult, error) {
	p, err := NewPlan(g, o)
	if err != nil {
		return nil, err
	}
	if err := p.CheckPrunable(); err != nil {
		return nil, err
	}
	if o.Asks() {
		if err := p.Select(o.Allocate, nil); err != nil {
			return nil, err
		}
	}
	return p.Result(), nil
}

// Plan is the pruning of a graph's weights, layer by layer.
type Plan struct {
	Options GraphOptions
	Layers  []GraphLayer // in the order of the nodes
	graph   *ir.Graph
	cands   []*candidate // of Layers
	removal *removal     // of channels, once they were chosen
}

// NewPlan lists the weights of g, and which of them may be pruned.
func NewPlan(g *ir.Graph, o GraphOptions) (*Plan, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", err, ir.ErrInvalid)
	}
	for _, t := range o.Targets {
		if err := t.check(o.Pattern); err != nil {
			return nil, err
		}
	}
	cands, err := candidates(g, &o)
	if err != nil {
		return nil, err
	}
	p := &Plan{Options: o, graph: g, cands: cands}
	p.Layers = make([]GraphLayer, len(cands))
	newPool(o.Workers).run(len(cands), func(_ *scratch, i int) { p.Layers[i] = cands[i].layer() })
	return p, nil
}

// Use returns the weight of layer i.
func (p *Plan) Use(i int) ir.WeightUse { return p.cands[i].WeightUse }

// Target is layer i's own sparsity, nil where the user gave none.
func (p *Plan) Target(i int) *float64 { return p.cands[i].target }

// Pattern is that of layer i.
func (p *Plan) Pattern(i int) Pattern {
	if own := p.cands[i].pattern; own != nil {
		return *own
	}
	return p.Options.Pattern
}

// Matrix returns the weight of layer i as it is now, as a matrix to select in.
func (p *Plan) Matrix(i int) Layer { return p.cands[i].matrix() }

// CheckPrunable returns an error that says why each layer may not be pruned where none may,
// though zeros are asked for.
func (p *Plan) CheckPrunable() error {
	if !p.Options.Asks() || len(p.Prunable()) > 0 {
		return nil
	}
	var why []string
	for _, c := range p.cands {
		why = append(why, c.Node.Name+": "+c.why)
	}
	text := few(why)
	if len(why) == 0 {
		text = "it has no constant weights"
	}
	return fmt.Errorf("zeros are asked for, and no weight of the model is prunable (%s): %w", text, ir.ErrInvalid)
}

// few joins the first of some reasons.
func few(why []string) string {
	const most = 3
	if len(why) > most {
		why = append(why[:most:most], fmt.Sprintf("and %d more", len(why)-most))
	}
	return strings.Join(why, "; ")
}

// Prunable lists the layers that may be pruned.
func (p *Plan) Prunable() []int {
	var out []int
	for i, c := range p.cands {
		if c.why == "" {
			out = append(out, i)
		}
	}
	return out
}

// Select prunes every prunable layer. Saliency, where it is set, returns what ranks the
// weights of layer i, as Layer.Saliency, in place of |w|.
func (p *Plan) Select(a Allocation, saliency func(i int) []float32) error {
	if p.Options.Pattern.Removes() {
		if err := p.SelectChannels(a, saliency); err != nil {
			return err
		}
		return p.Shrink()
	}
	if p.Options.Pattern.Kind == Depth {
		return option.Errorf("%v depth needs calibration samples, which %v gives", option.Pattern, option.Calibration)
	}
	o := p.Options.Options
	o.Allocate = a
	for list := p.Prunable(); len(list) > 0; {
		n := len(list)
		if a != Global {
			n = p.few(list)
		}
		if err := p.selectIn(list[:n], o, saliency); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// few is how many of the first layers of a list are selected in together, where none depends on others: that takes memory for their
// masks, and what is made of them.
func (p *Plan) few(list []int) int {
	const most = 16 << 20
	n, sum := 0, 0
	for n < len(list) && (n == 0 || sum+p.Layers[list[n]].Weights <= most) {
		sum += p.Layers[list[n]].Weights
		n++
	}
	return n
}

// selectIn prunes layers.
func (p *Plan) selectIn(list []int, o Options, saliency func(i int) []float32) error {
	var in []Layer
	for _, i := range list {
		l := p.Matrix(i)
		if saliency != nil {
			l.Saliency = saliency(i)
		}
		l.Pattern = p.cands[i].pattern
		in = append(in, l)
	}
	res, err := SelectEach(in, o)
	if err != nil {
		return err
	}
	pool := newPool(o.Workers)
	for k, i := range list {
		r, l := &res[k], &in[k]
		if pool.zeros(l.Weights) != r.Zeros {
			p.set(i, pool.kept(r.Mask, l), l.Transposed)
			if p.Options.Settle != nil {
				p.Options.Settle(p.cands[i].Value.Const)
			}
		}
		p.note(i, r, r.Zeros)
		in[k], r.Mask = Layer{}, nil
	}
	return nil
}

// Set replaces the weight of layer i by a matrix [Rows, Cols].
func (p *Plan) Set(i int, w []float32) { p.set(i, w, false) }

func (p *Plan) set(i int, w []float32, transposed bool) {
	c := p.cands[i]
	old := c.Value.Const
	t := tensor.From(w, old.Shape()...)
	if !transposed {
		m, k := c.View.Dims(old.Shape())
		t = c.View.Tensor(tensor.From(w, m, k), old.Shape())
	}
	before, now := old.To(tensor.F32).F32s(), t.F32s()
	if t = t.To(old.DType()); t.DType() == tensor.F64 { // what did not change has more digits
		for i, v := range tensor.Data[float64](old) {
			if now[i] == before[i] {
				tensor.Data[float64](t)[i] = v
			}
		}
	}
	c.Value.SetConst(t)
}

// Note reports what was decided for layer i, whose weight is as it should be.
func (p *Plan) Note(i int, r *LayerResult) {
	p.note(i, r, zeros(p.cands[i].Value.Const.To(tensor.F32).F32s()))
}

func (p *Plan) note(i int, r *LayerResult, zeros int) {
	l := &p.Layers[i]
	l.Bounded, l.Note, l.RowMin, l.RowMax, l.Zeros = r.Bounded, r.Note, r.RowMin, r.RowMax, zeros
}

// Kept names the weights, and the nodes that read them, that the user keeps.
func (p *Plan) Kept() []string {
	var out []string
	for _, c := range p.cands {
		if c.kept == "" {
			continue
		}
		out = append(out, c.Value.Name)
		for _, n := range c.readers {
			out = append(out, n.Name)
		}
	}
	return out
}

// Result sums up the layers as they are reported.
func (p *Plan) Result() *GraphResult {
	out := &GraphResult{Pattern: p.Options.Pattern.String(), Allocate: string(p.Options.Allocate), Asks: p.Options.Asks(), Asked: p.Options.Sparsity, Layers: p.Layers}
	if p.removal != nil {
		out.Cuts = p.removal.taken
	}
	for i := range out.Layers {
		l := &out.Layers[i]
		t := Tally{l.Weights, l.Zeros}
		l.Sparsity = t.Sparsity()
		out.Weights.add(t)
		if l.Prunable {
			out.Prunable.add(t)
			s := p.Options.Sparsity
			if own := cmp.Or(p.cands[i].target, p.cands[i].tied); own != nil {
				s = *own
			}
			out.Aim += s * float64(l.Weights)
		}
	}
	out.Aim /= float64(max(out.Prunable.Weights, 1))
	return out
}

// layer describes the weight as it is.
func (c *candidate) layer() GraphLayer {
	l := GraphLayer{Node: c.Node.Name, Weight: c.Value.Name, Why: c.why, Prunable: c.why == ""}
	if shape, ok := c.Value.Type.Shape(); ok {
		l.Weights, _ = tensor.Elems(shape)
	}
	if w := c.Value.Const; w != nil {
		if dt := w.DType(); dt == tensor.I8 || slices.Contains(prunableTypes, dt) { // I8 is symmetric, as the weights of products are
			l.Zeros = zeros(w.To(tensor.F32).F32s())
		}
	}
	return l
}

// matrix returns the weight as a layer to select in.
func (c *candidate) matrix() Layer {
	m, k := c.View.Dims(c.Value.Const.Shape())
	l := Layer{Name: c.Node.String(), Rows: m, Cols: k, Sparsity: c.target, Saliency: c.saliency}
	if slices.Equal(c.View.Perm, []int{1, 0}) && c.View.RowAxes == 1 {
		l.Weights, l.Transposed = c.Value.Const.To(tensor.F32).F32s(), true
	} else {
		l.Weights = c.View.Matrix(c.Value.Const).To(tensor.F32).F32s()
	}
	return l
}

func zeros(w []float32) int { return tensor.CountZeros(w) }
