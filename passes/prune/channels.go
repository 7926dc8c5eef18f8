package prune

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/option"
	"spc/ir/tensor"
)

// A bundle is a set of channels that live or go together: one of each tensor that they
// are tied through. Its score is the root mean square of the l2 norms of the weight
// rows that compute it.
type bundle struct {
	root  int32 // its label
	score float64
	order float64 // those that come first go first
}

// removal is what was decided about the channels of a graph, which still has them all.
type removal struct {
	*flow
	bounded map[*candidate]int
}

// SelectChannels decides, under Channel or Head, which output channels of the layers go, and what
// fed on them: as many that the fraction of the prunable weights that is gone is as near
// the sparsity as whole channels allow. A layer's own sparsity is the fraction of its
// channels that goes. Weights that have no channel to lose are not prunable. The graph
// keeps all of them until Shrink; constants may change in between, and products get a
// bias. Saliency is that of Select.
func (p *Plan) SelectChannels(a Allocation, saliency func(i int) []float32) error {
	for i, c := range p.cands {
		if saliency != nil && c.why == "" {
			c.saliency = saliency(i)
		}
	}
	f, groups, err := p.follow()
	if err != nil {
		return err
	}
	p.drop(f, groups, a)
	return nil
}

// follow follows the channels of the graph, and lists the groups of those that may go. A target of layers that have none is an error.
func (p *Plan) follow() (*flow, []*group, error) {
	f := follow(p.graph, p.cands, p.Options.Pattern.Kind)
	groups, err := f.open(p.cands)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range p.Options.Targets {
		var stays *candidate // the first that is named
		loses := false
		for _, c := range p.cands {
			if c.target != nil && c.named(t.Glob) {
				loses = loses || f.free(c.rows)
				stays = cmp.Or(stays, c)
			}
		}
		if !loses && stays != nil && t.Sparsity > 0 {
			return nil, nil, option.Errorf("%v %q: %s is not pruned: %s", option.Layers, t.Glob, stays.Value.Name, f.why(stays))
		}
	}
	return f, groups, nil
}

// why says why all output channels of a layer stay.
func (f *flow) why(c *candidate) string {
	if len(c.rows) == 0 {
		return "its channels are not followed"
	}
	return "its channels stay: " + f.stays[f.root(c.rows[0])]
}

// drop decides which bundles go.
func (p *Plan) drop(f *flow, groups []*group, a Allocation) {
	o := p.Options
	o.Allocate = a
	s := newShrinking(f, p.cands)
	for _, g := range groups {
		g.sort(s)
	}
	s.owned(groups)
	s.rest(groups, &o)
	f.aims(p.cands, groups)
	p.removal = &removal{f, s.bounded}
}

// aims notes of layers without a sparsity of their own that of those with which they lose channels.
func (f *flow) aims(cands []*candidate, groups []*group) {
	of := map[int32]*float64{}
	for _, g := range groups {
		for _, u := range g.bundles {
			of[u.root] = g.target
		}
	}
	for _, c := range cands {
		labels := c.rows
		if !f.free(labels) {
			labels = c.cols
		}
		c.tied = nil
		for _, l := range labels {
			c.tied = cmp.Or(c.tied, of[f.root(l)])
		}
	}
}

// Read is where a bundle of channels ends: columns of the matrix of a layer of the plan.
type Read struct {
	Layer   int
	Columns []int // ascending
}

// Bundles lists, under Channel or Head, the bundles of channels that may go, those of layers that are tied to
// each other together, and of each what reads it, by layer. A bundle may be read by nothing.
func (p *Plan) Bundles() ([][][]Read, error) {
	f, groups, err := p.follow()
	if err != nil {
		return nil, err
	}
	reads := map[int32][]Read{}
	for i, c := range p.cands {
		if len(c.cols) == 0 {
			continue
		}
		_, k := c.View.Dims(c.Value.Const.Shape())
		each := k / len(c.cols)
		for at, l := range c.cols {
			r := f.root(l)
			if n := len(reads[r]); n == 0 || reads[r][n-1].Layer != i {
				reads[r] = append(reads[r], Read{Layer: i})
			}
			last := &reads[r][len(reads[r])-1]
			for t := range each {
				last.Columns = append(last.Columns, at*each+t)
			}
		}
	}
	out := make([][][]Read, len(groups))
	for i, g := range groups {
		for _, u := range g.bundles {
			out[i] = append(out[i], reads[u.root])
		}
	}
	return out, nil
}

// SelectBundles is SelectChannels by what the model loses without each of the bundles that
// Bundles lists, provided that those of its group that lose less are gone. Over all layers those go first
// that lose the least for each weight that goes with them.
func (p *Plan) SelectBundles(a Allocation, losses [][]float64) error {
	f, groups, err := p.follow()
	if err != nil {
		return err
	}
	for i, g := range groups {
		g.losses = true
		for j, u := range g.bundles {
			u.score = losses[i][j]
		}
	}
	p.drop(f, groups, a)
	return nil
}

// Gone tells which rows and columns of layer i's matrix go with the channels that
// SelectChannels chose, nil where none does. Columns are where channels end: with zeros
// in them nothing depends on the channels any more.
func (p *Plan) Gone(i int) (rows, cols []bool) {
	c := p.cands[i]
	rows, cols = p.removal.lost(c.rows), p.removal.lost(c.cols)
	if cols != nil {
		_, k := c.View.Dims(c.Value.Const.Shape())
		each := k / len(cols)
		all := make([]bool, 0, k)
		for _, g := range cols {
			all = append(all, slices.Repeat([]bool{g}, each)...)
		}
		cols = all
	}
	return rows, cols
}

// GoneOf tells which slices of a value along an axis go with the channels that
// SelectChannels chose, nil where none does.
func (p *Plan) GoneOf(v *ir.Value) (axis int, gone []bool) {
	t := p.removal.of[v]
	if t == nil {
		return 0, nil
	}
	return t.axis, p.removal.lost(t.labels)
}

// Shrink removes the channels that SelectChannels chose, and reports it.
func (p *Plan) Shrink() error {
	f := p.removal
	if err := f.apply(p.graph); err != nil {
		return err
	}
	for i, c := range p.cands {
		l := &p.Layers[i]
		l.Why, l.Prunable = c.why, c.why == ""
		if w := c.Value.Const; w != nil {
			l.Removed = l.Weights - w.Len()
			l.Zeros = l.Removed
			if slices.Contains(prunableTypes, w.DType()) {
				l.Zeros += zeros(w.To(tensor.F32).F32s())
			}
		}
		l.Note = f.note(c)
		l.Bounded = f.bounded[c]
	}
	return nil
}

// free reports whether any of the channels may go.
func (f *flow) free(labels []int32) bool {
	return slices.ContainsFunc(labels, func(l int32) bool { return f.stays[f.root(l)] == "" })
}

// open lists the groups of channels that may go. Candidates that cannot lose any are told why.
func (f *flow) open(cands []*candidate) ([]*group, error) {
	var why, first []string // those that heads have come first
	head := f.headed()
	for _, c := range cands {
		if c.why != "" || f.free(c.rows) || f.free(c.cols) {
			continue
		}
		c.why = f.why(c)
		text := c.Node.Name + ": " + c.why
		if len(c.rows) > 0 && head[f.root(c.rows[0])] {
			first = append(first, text)
			continue
		}
		why = append(why, text)
	}
	why = append(first, why...)
	groups, err := f.groups(cands)
	if err != nil {
		return nil, err
	}
	if len(groups) == 0 {
		if len(why) == 0 {
			why = []string{"no weight is prunable"}
		}
		return nil, option.Errorf("%v %v: no %v of a prunable weight can be removed, want another pattern (%s)", option.Pattern, f.kind, f.kind, few(why))
	}
	return groups, nil
}

// group is the bundles of layers that are tied to each other, those that may go.
type group struct {
	bundles []*bundle
	target  *float64 // the fraction that goes, where a layer of it has its own
	layer   string   // that layer
	losses  bool     // scores are losses
}

// sort puts the bundles in the order in which they go. Losses become those for each weight.
func (g *group) sort(s *shrinking) {
	slices.SortStableFunc(g.bundles, func(a, b *bundle) int { return cmp.Compare(a.score, b.score) })
	if !g.losses {
		return
	}
	least := 0.0
	for _, u := range g.bundles {
		n, _ := s.costs(u)
		least = max(least, u.score/float64(max(1, n)))
		u.score = least
	}
}

// groups scores the bundles that may go, in the order of the layers.
func (f *flow) groups(cands []*candidate) ([]*group, error) {
	type tally struct {
		squares float64
		rows    int
	}
	sums := map[int32]*tally{}
	joined := &flow{} // ties the bundles of a layer
	joined.fresh(len(f.tied))
	joined.stays = make([]string, len(f.tied))
	for _, c := range cands {
		first := int32(-1)
		for _, l := range c.rows {
			if r := f.root(l); f.stays[r] == "" {
				if first < 0 {
					first = r
				}
				joined.tie([]int32{first}, []int32{r})
			}
		}
		if first < 0 {
			continue
		}
		m := c.matrix()
		norms, err := m.RowNorms()
		if err != nil {
			return nil, err
		}
		for i, l := range c.rows {
			r := f.root(l)
			if sums[r] == nil {
				sums[r] = &tally{}
			}
			sums[r].squares += norms[i] * norms[i]
			sums[r].rows++
		}
	}
	var out []*group
	byRoot := map[int32]*group{}
	seen := map[int32]bool{}
	for _, c := range cands {
		for _, l := range c.rows {
			r := f.root(l)
			if f.stays[r] != "" {
				continue
			}
			g := byRoot[joined.root(r)]
			if g == nil {
				g = &group{}
				byRoot[joined.root(r)] = g
				out = append(out, g)
			}
			if c.target != nil && g.target != nil && *c.target != *g.target {
				return nil, option.Errorf("%v: %s and %s lose the same channels, want one sparsity for both", option.Layers, g.layer, c.Node.Name)
			}
			if c.target != nil {
				g.target, g.layer = c.target, c.Node.Name
			}
			if !seen[r] {
				seen[r] = true
				g.bundles = append(g.bundles, &bundle{root: r, score: math.Sqrt(sums[r].squares / float64(sums[r].rows))})
			}
		}
	}
	return out, nil
}

// shrinking is the state of a removal: what each bundle takes away, and what is left.
type shrinking struct {
	*flow
	left    []int           // channels of each tensor
	tensors map[int32][]hit // by bundle
	sizes   []*size
	weights map[int32][]hit
	rows    map[int32][]*candidate // layers that compute the bundle
	total   int                    // prunable weights without a sparsity of their own
	removed int                    // of these
	bounded map[*candidate]int
}

// hit says how many channels of tensor or weight at go with a bundle.
type hit struct{ at, rows, cols int }

// size is a prunable weight's matrix: rows, columns and the elements of one entry.
type size struct{ rows, cols, each int }

func newShrinking(f *flow, cands []*candidate) *shrinking {
	s := &shrinking{flow: f, tensors: map[int32][]hit{}, weights: map[int32][]hit{}, rows: map[int32][]*candidate{}, bounded: map[*candidate]int{}}
	add := func(hits map[int32][]hit, at int, labels []int32, count func(*hit)) {
		for _, l := range labels {
			r := f.root(l)
			if f.stays[r] != "" {
				continue
			}
			if k := len(hits[r]); k == 0 || hits[r][k-1].at != at {
				hits[r] = append(hits[r], hit{at: at})
			}
			count(&hits[r][len(hits[r])-1])
		}
	}
	for _, t := range f.of {
		add(s.tensors, len(s.left), t.labels, func(h *hit) { h.rows++ })
		s.left = append(s.left, len(t.labels))
	}
	for _, c := range cands {
		for _, l := range c.rows {
			if r := f.root(l); !slices.Contains(s.rows[r], c) {
				s.rows[r] = append(s.rows[r], c)
			}
		}
		if c.why != "" || c.target != nil {
			continue
		}
		n := c.Value.Const.Len()
		s.total += n
		w := &size{max(1, len(c.rows)), max(1, len(c.cols)), 1}
		w.each = n / (w.rows * w.cols)
		add(s.weights, len(s.sizes), c.rows, func(h *hit) { h.rows++ })
		add(s.weights, len(s.sizes), c.cols, func(h *hit) { h.cols++ })
		s.sizes = append(s.sizes, w)
	}
	return s
}

// costs returns the prunable weights that go with a bundle now; ok is false where a
// tensor would be left without channels.
func (s *shrinking) costs(u *bundle) (n int, ok bool) {
	for _, h := range s.tensors[u.root] {
		if s.left[h.at] == h.rows {
			return 0, false
		}
	}
	for _, h := range s.weights[u.root] {
		w := s.sizes[h.at]
		n += w.each * (w.rows*w.cols - (w.rows-h.rows)*(w.cols-h.cols))
	}
	return n, true
}

func (s *shrinking) remove(u *bundle, n int) {
	for _, h := range s.tensors[u.root] {
		s.left[h.at] -= h.rows
	}
	for _, h := range s.weights[u.root] {
		s.sizes[h.at].rows -= h.rows
		s.sizes[h.at].cols -= h.cols
	}
	s.gone[u.root] = true
	s.removed += n
}

// try removes a bundle unless a tensor would be left without channels, which is noted.
func (s *shrinking) try(u *bundle) bool {
	n, ok := s.costs(u)
	if !ok {
		for _, c := range s.rows[u.root] {
			s.bounded[c]++
		}
		return false
	}
	s.remove(u, n)
	return true
}

// owned removes the bundles of groups with a target.
func (s *shrinking) owned(groups []*group) {
	for _, g := range groups {
		if g.target == nil {
			continue
		}
		drop := int(math.Ceil(*g.target*float64(len(g.bundles)) - 0.5)) // the nearest, the fewer of two, as of the rest
		for _, u := range g.bundles {
			if drop > 0 && s.try(u) {
				drop--
			}
		}
	}
}

// rest removes bundles of the other groups: the lowest scores of all, or evenly from
// each group.
func (s *shrinking) rest(groups []*group, o *GraphOptions) {
	var all []*bundle
	for _, g := range groups {
		if g.target != nil {
			continue
		}
		for i, u := range g.bundles {
			if u.order = u.score; o.Allocate != Global {
				u.order = (float64(i) + 0.5) / float64(len(g.bundles))
			}
			all = append(all, u)
		}
	}
	slices.SortStableFunc(all, func(a, b *bundle) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.score, b.score)) })
	want := o.Sparsity * float64(s.total)
	for _, u := range all {
		short := want - float64(s.removed)
		if n, ok := s.costs(u); short <= 0 || ok && float64(n)-short >= short {
			return // the removal would take the sum further away
		}
		s.try(u)
	}
}

// note says what became of a layer's channels.
func (f *flow) note(c *candidate) string {
	var parts []string
	add := func(what string, labels []int32) {
		if n := len(labels) - f.left(labels); n > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d %s are gone", n, len(labels), what))
		}
	}
	add("output channels", c.rows)
	add("columns", c.cols)
	if all, gone := f.bundles(c.rows, c.cols); f.kind == Head && gone > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d heads", gone, all))
	}
	if c.why == "" && !f.free(c.rows) {
		parts = append(parts, "output channels stay: "+f.stays[f.root(c.rows[0])])
	}
	return strings.Join(parts, "; ")
}
