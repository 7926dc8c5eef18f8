package choose

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"spc/ir"
	"spc/ir/tensor"
)

// Sizes are what an open dimension may be: any size from From to To, or those of Only.
type Sizes struct {
	From int   `json:"from"`
	To   int   `json:"to"`
	Only []int `json:"only,omitempty"`
}

// MostSize is the largest of Sizes, and MostPoints how many Only may have.
const (
	MostSize   = 1 << 20
	MostPoints = 16
)

// ParseSizes reads FROM..TO, or sizes with commas between them.
func ParseSizes(text string) (s Sizes, err error) {
	list := strings.Split(text, ",")
	from, to, between := strings.Cut(text, "..")
	if between {
		list = []string{from, to}
	}
	sizes := make([]int, len(list))
	for i, t := range list {
		if sizes[i], err = strconv.Atoi(t); err != nil {
			return s, fmt.Errorf("%q, want a size, a range such as 1..512, or sizes such as 1,128", text)
		}
	}
	if between {
		s = Sizes{From: sizes[0], To: sizes[1]}
	} else {
		for i, n := range sizes {
			if slices.Contains(sizes[:i], n) {
				return s, fmt.Errorf("%q, want the size %d once", text, n)
			}
		}
		s = Sizes{From: slices.Min(sizes), To: slices.Max(sizes), Only: sizes}
	}
	return s, s.Check()
}

// Check says what is wrong with sizes.
func (s Sizes) Check() error {
	all := append([]int{s.From, s.To}, s.Only...)
	switch {
	case slices.Min(all) < 1 || slices.Max(all) > MostSize:
		return fmt.Errorf("%v, want sizes from 1 to %d", s, MostSize)
	case s.From > s.To:
		return fmt.Errorf("%v, want the smaller size first", s)
	case len(s.Only) > MostPoints:
		return fmt.Errorf("%d sizes, want at most %d, or a range such as %d..%d", len(s.Only), MostPoints, s.From, s.To)
	case len(s.Only) > 0 && (slices.Min(s.Only) != s.From || slices.Max(s.Only) != s.To):
		return fmt.Errorf("%v, want the ends of the sizes %v", Sizes{From: s.From, To: s.To}, s.Only)
	}
	return nil
}

// String is what ParseSizes reads.
func (s Sizes) String() string {
	if len(s.Only) == 0 {
		return fmt.Sprintf("%d..%d", s.From, s.To)
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(s.Only), " ", ","), "[]")
}

// spread is how many sizes stand for a range.
const spread = 6

// points lists sizes that stand for all: those named, or some with about the same ratio from each to the next.
func (s Sizes) points() []int {
	list := slices.Clone(s.Only)
	for k := 0; len(s.Only) == 0 && k < spread; k++ {
		list = append(list, int(math.Round(float64(s.From)*math.Pow(float64(s.To)/float64(s.From), float64(k)/(spread-1)))))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// The sizes that symbols have unless the user says otherwise.
var (
	batchSizes = Sizes{From: 1, To: 16}
	otherSizes = Sizes{From: 1, To: 1024}
)

// Open is an open dimension on which columns of weights depend, and the sizes that formats are chosen for.
type Open struct {
	Name  string `json:"name,omitempty"` // empty for all those of a kind that have none
	Batch bool   `json:"batch,omitempty"`
	Sizes
}

// NamesBatch reports whether a symbol says by its name that it counts samples.
func NamesBatch(symbol string) bool {
	s := strings.ToLower(symbol)
	return strings.HasPrefix(s, "batch") || s == "n"
}

// symbols knows what the symbols of a graph may be.
type symbols struct {
	given map[string]Sizes
	lead  map[string]bool // symbols without a name that count samples
}

// symbolsOf looks at the inputs of g: where no symbol is named after the batch, those without a name that inputs of two or more
// axes begin with count samples.
func symbolsOf(g *ir.Graph, given map[string]Sizes) symbols {
	s, named := symbols{given, map[string]bool{}}, false
	for _, v := range g.Inputs {
		for i, d := range v.Type.Dims {
			named = named || NamesBatch(d.Symbol())
			if i == 0 && len(v.Type.Dims) > 1 && d.Fresh() {
				s.lead[d.Symbol()] = true
			}
		}
	}
	if named {
		clear(s.lead)
	}
	return s
}

func (s symbols) of(symbol string) Open {
	o := Open{Name: symbol, Batch: NamesBatch(symbol) || s.lead[symbol], Sizes: otherSizes}
	if ir.Sym(symbol).Fresh() {
		o.Name = ""
	}
	if o.Batch {
		o.Sizes = batchSizes
	}
	if given, ok := s.given[symbol]; ok {
		o.Sizes = given
	}
	return o
}

// same reports whether two open dimensions count as one.
func (o Open) same(p Open) bool { return o.Name == p.Name && o.Batch == p.Batch }

// Point is a number of columns that times are predicted for, and sizes of named symbols that give it.
type Point struct {
	N     int            `json:"n"`
	Sizes map[string]int `json:"sizes,omitempty"`
}

// Us is the time of a product of n columns with the weight as a candidate stores it, measured where that was, else predicted; between points
// in the measure of their logarithms. It is false where nothing is known of so many columns.
func (l *Layer) Us(c *Candidate, n int) (us float64, ok bool) {
	if c.PointsUs == nil {
		return c.time(), l.N == n
	}
	below, above := -1, -1 // the nearest points
	for i, p := range l.Points {
		if p.N <= n && (below < 0 || p.N > l.Points[below].N) {
			below = i
		}
		if p.N >= n && (above < 0 || p.N < l.Points[above].N) {
			above = i
		}
	}
	if below < 0 || above < 0 {
		return 0, false
	}
	a, b := l.Points[below], l.Points[above]
	if a.N == b.N {
		return c.PointsUs[below], true
	}
	part := math.Log(float64(n)/float64(a.N)) / math.Log(float64(b.N)/float64(a.N))
	return math.Exp((1-part)*math.Log(c.PointsUs[below]) + part*math.Log(c.PointsUs[above])), true
}

// Scaled is Us, and where nothing is known of so many columns that of the nearest number, as much more or less as there are columns.
func (l *Layer) Scaled(c *Candidate, n int) float64 {
	if us, ok := l.Us(c, n); ok {
		return us
	}
	nearest, off := l.N, math.Inf(1)
	for _, p := range l.Points {
		if d := math.Abs(math.Log(float64(max(1, n)) / float64(max(1, p.N)))); d < off {
			nearest, off = p.N, d
		}
	}
	us, _ := l.Us(c, nearest)
	return us * float64(n) / float64(max(1, nearest))
}

// point is sizes of all symbols of a graph, and what follows.
type point struct {
	symbols symbols
	size    func(o Open) int
	// weights are those of the graph's uses of weights as inference has them for these sizes of the inputs; nil where these
	// do not go together.
	weights []ir.Weight
}

// at is a use of a weight at the point: that of the given number in the graph.
func (p *point) at(number int, w ir.Weight) ir.Weight {
	if p.weights != nil {
		w = p.weights[number]
	}
	sizes := map[string]int{}
	for _, symbol := range w.Symbols() {
		sizes[symbol] = p.size(p.symbols.of(symbol))
	}
	return w.At(sizes)
}

// sizeOf is the size of an open dimension of an input.
func (p *point) sizeOf(d ir.Dim) int {
	sizes := map[string]int{}
	for _, symbol := range d.Symbols() {
		sizes[symbol] = p.size(p.symbols.of(symbol))
	}
	n, _ := d.At(sizes)
	return n
}

// named are the sizes of those symbols that have a name.
func (p *point) named(opens []Open) map[string]int {
	sizes := map[string]int{}
	for _, o := range opens {
		if o.Name != "" {
			sizes[o.Name] = p.size(o)
		}
	}
	return sizes
}

// mostAlone bounds the points at which one open dimension alone is large.
const mostAlone = 16

// pointsOf lists points that stand for all that the open dimensions of g may be: all in the same place of their spread, from
// the least to the largest, and each alone at its largest while the others are at their least. What has no name counts as one.
// It also lists the dimensions on which columns of weights depend, in the order of their names, those without one last. There
// is one point where all is known.
func pointsOf(g *ir.Graph, given map[string]Sizes) (points []point, opens []Open) {
	s, uses := symbolsOf(g, given), g.WeightUses()
	all, columns := s.opens(g, uses)
	most := 1
	for _, o := range all {
		most = max(most, len(o.points()))
	}
	for k := range most {
		points = append(points, point{symbols: s, size: func(o Open) int {
			list := o.points()
			return list[(2*k*(len(list)-1)+most-1)/max(1, 2*(most-1))]
		}})
	}
	for _, alone := range all[:min(len(all), mostAlone)] {
		points = append(points, point{symbols: s, size: func(o Open) int {
			list := o.points()
			if o.same(alone) {
				return list[len(list)-1]
			}
			return list[0]
		}})
	}
	if len(all) == 0 {
		return points, nil
	}
	for i := range points {
		points[i].infer(g, len(uses))
	}
	for i, o := range all {
		depend := i >= mostAlone || slices.ContainsFunc(columns, o.same) && o.Name != ""
		for j := 0; j < len(uses) && !depend; j++ {
			least, alone := points[0].at(j, uses[j].Weight), points[most+i].at(j, uses[j].Weight)
			depend = least.Columns() != alone.Columns()
		}
		if depend {
			opens = append(opens, o)
		}
	}
	return points, opens
}

// opens lists the open dimensions of the inputs of g and of the columns of its weights, and those of the columns alone.
func (s symbols) opens(g *ir.Graph, uses []ir.WeightUse) (all, columns []Open) {
	add := func(list []Open, symbols []string) []Open {
		for _, symbol := range symbols {
			if o := s.of(symbol); !slices.ContainsFunc(list, o.same) {
				list = append(list, o)
			}
		}
		return list
	}
	for _, v := range g.Inputs {
		for _, d := range v.Type.Dims {
			all = add(all, d.Symbols())
		}
	}
	for _, u := range uses {
		columns = add(columns, u.Symbols())
		all = add(all, u.Symbols())
	}
	order := func(o Open) string {
		switch {
		case o.Name != "":
			return "0" + o.Name
		case o.Batch:
			return "1"
		}
		return "2"
	}
	slices.SortFunc(all, func(a, b Open) int { return strings.Compare(order(a), order(b)) })
	return all, columns
}

// shapes are those of the inputs of g at the point; ok is false where they are no tensors of so many elements.
func (p *point) shapes(g *ir.Graph) (list [][]int, ok bool) {
	for _, v := range g.Inputs {
		if !v.Type.Ranked || v.Type.Elem != nil {
			return nil, false
		}
		shape := make([]int, len(v.Type.Dims))
		for j, d := range v.Type.Dims {
			if shape[j] = d.Size(); !d.Known() {
				shape[j] = p.sizeOf(d)
			}
		}
		if n, err := tensor.Elems(shape); err != nil || n > ir.MaxElems {
			return nil, false
		}
		list = append(list, shape)
	}
	return list, true
}

// infer finds the weights of a point.
func (p *point) infer(g *ir.Graph, uses int) {
	shapes, ok := p.shapes(g)
	if !ok {
		return
	}
	in := make([]*tensor.Tensor, len(g.Inputs))
	for i, v := range g.Inputs {
		in[i] = tensor.Header(v.Type.DType, shapes[i]...)
	}
	at, err := g.Specialise(in)
	if err != nil {
		return
	}
	if list := at.WeightUses(); len(list) == uses {
		p.weights = make([]ir.Weight, uses)
		for i, u := range list {
			p.weights[i] = u.Weight
		}
	}
}

// Place is sizes of all that is open in a graph.
type Place struct {
	Shapes  [][]int     // of the inputs
	Columns []int       // of the products of the graph's uses of weights
	Weights []ir.Weight // these uses, of such sizes
}

// Places lists the points that formats are chosen for where inputs of such shapes can be made, each once.
func Places(g *ir.Graph, given map[string]Sizes) (list []Place) {
	points, _ := pointsOf(g, given)
	for i := range points {
		p := &points[i]
		shapes, ok := p.shapes(g)
		if !ok || len(points) > 1 && p.weights == nil || slices.ContainsFunc(list, func(o Place) bool { return slices.EqualFunc(o.Shapes, shapes, slices.Equal) }) {
			continue
		}
		at := Place{Shapes: shapes}
		for number, u := range g.WeightUses() {
			w := p.at(number, u.Weight)
			at.Columns, at.Weights = append(at.Columns, w.Columns()), append(at.Weights, w)
		}
		list = append(list, at)
	}
	return list
}

// pointsFor leaves of the points of the graph those that give some uses of a weight other columns than those before, in the
// order of the first use's. What has more columns than a tensor may have elements is left out.
func (c *chooser) pointsFor(uses []use) []*point {
	var list []*point
	seen := map[string]bool{}
	for i := range c.points {
		p, key, many := &c.points[i], "", false
		for _, u := range uses {
			w := p.at(u.number, u.WeightUse.Weight)
			many = many || w.Many()
			key += fmt.Sprint(w.Columns(), " ")
			if s := w.Slide; s != nil {
				images, out := s.Pixels()
				pairs, _, _ := s.Reach()
				key += fmt.Sprint(images, out, pairs, " ")
			}
		}
		if !seen[key] && !(many && i > 0) {
			seen[key] = true
			list = append(list, p)
		}
	}
	first := func(p *point) int {
		w := p.at(uses[0].number, uses[0].WeightUse.Weight)
		return w.Columns()
	}
	slices.SortStableFunc(list, func(a, b *point) int { return cmp.Compare(first(a), first(b)) })
	return list
}
