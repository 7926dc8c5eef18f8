// Package choose picks a storage format for every weight. Each legal candidate
// of each format gets a predicted time from the resource model
//
//	time = W / (P * E)
//
// with the work W of the product, the peak P of the device and the measured or
// assumed efficiency E of the kernel at that density and shape, bounded below by
// the bytes that must move. Dense always competes. Where sizes are open that is
// predicted for several of them, and what takes the least time over all is chosen.
// Every candidate is kept with the reason why it won or lost. Choosing is lossless: which weights live was
// decided before. It imports ir; formats and the cost model come from outside.
package choose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"spc/internal/memory"
	"spc/internal/pace"
	"spc/internal/parallel"
	"spc/ir"
	"spc/ir/option"
	"spc/ir/tensor"
)

// Format is what choosing asks of a storage format. Matrices are f32 [M,K], of 8-bit weights whole
// numbers.
type Format interface {
	Packer
	// Costs lists the configurations in which w may be stored, each with the
	// cost of a product of n columns; none when the format does not suit w or has no kernels for
	// elements of its type.
	Costs(w *Matrix, n int) []Cost
}

// Packer stores matrices.
type Packer interface {
	Name() string
	// Pack stores w, its elements as f32. It is lossless but for the sign of zeros. A matrix whose nonzeros lie where the
	// configuration has no room for them is an error that wraps ErrFit.
	Pack(w *tensor.Tensor, config string) ([]ir.Part, error)
}

// Unpacker is a Packer that reads back what it stored.
type Unpacker interface {
	Packer
	// Unpack is the inverse of Pack: the matrix f32 [M,K].
	Unpack(s *ir.Store) (*tensor.Tensor, error)
}

// ErrFit says that a configuration of a format has no room for the nonzeros of a matrix.
var ErrFit = errors.New("it does not fit")

// Dense is the name of the format that leaves a weight as it is.
const Dense = "dense"

// Cost is what a format knows of its kernel for a product.
type Cost struct {
	Config     string  // the format's configuration; may be empty
	Kernel     string  // the family of kernels, such as f32_ell_4x32
	Work       float64 // floating-point operations, those on stored zeros included
	Bytes      int     // storage of the weight
	Efficiency float64 // the share of the peak that the kernel reaches, 0..1
	Bound      string  // what limits that, where it is known: "the bytes" of the weight, or something else
	Total      int     // bytes of all weights of the graph, as they were; 0 where that is not known
	Again      bool    // the product is done more than once in a run, with what the cache holds of the weight
}

// dtype is the type that elements are stored in where they are of dt unless the configuration is for a grid.
func (c *Cost) dtype(dt string) string {
	if g, err := ParseGrid(c.Config); err == nil {
		return fmt.Sprintf("int%d", g.Bits)
	}
	return dt
}

// Model predicts times for a device.
type Model interface {
	// Predict returns the seconds that a product takes, m x k x n, and the peak
	// in floating-point operations a second that it was computed with.
	Predict(c Cost, m, k, n int) (seconds, peak float64)
}

// Timing is what the node of a weight took on the device; nothing where Us is 0.
type Timing struct {
	Us    float64
	Noise float64 // the share by which that may be off
	// Scaled says that it was measured for other columns, and is what is predicted for these, scaled alike.
	Scaled bool
}

// Candidate is one way in which a weight could have been stored.
type Candidate struct {
	Format      string  `json:"format"`
	Config      string  `json:"config"`
	Kernel      string  `json:"kernel"`
	DType       string  `json:"dtype"`
	StoredBytes int     `json:"stored_bytes"`
	Work        float64 `json:"work"`       // floating-point operations
	Peak        float64 `json:"peak"`       // floating-point operations a second
	Efficiency  float64 `json:"efficiency"` // 0..1
	Bound       string  `json:"bound,omitempty"`
	PredictedUs float64 `json:"predicted_us"`
	MeasuredUs  float64 `json:"measured_us,omitempty"` // of the whole node, 0 where it was not measured
	Noise       float64 `json:"noise,omitempty"`       // the share by which MeasuredUs may be off
	// PointsUs are the times at the points of the layer, where it has some. Those above are then the geometric means,
	// and what stands before them is of the last point.
	PointsUs []float64 `json:"points_us,omitempty"`
	// ScaledPoints are those, from 0 on, at which a candidate that counts as measured was not: the prediction is scaled there as that at
	// the nearest point that was has to be.
	ScaledPoints []int  `json:"scaled_points,omitempty"`
	Chosen       bool   `json:"chosen"`
	Why          string `json:"why"`
}

// Form is a way to store a weight.
type Form struct{ Format, Config string }

func (f Form) String() string {
	if f.Config == "" {
		return f.Format
	}
	return f.Format + ":" + f.Config
}

func (c *Candidate) form() Form { return Form{c.Format, c.Config} }

// Layer says how a weight is stored, and why.
type Layer struct {
	Name        string      `json:"name"` // the node
	Weight      string      `json:"weight"`
	Op          string      `json:"op"`
	Rows        int         `json:"rows"`
	Cols        int         `json:"cols"`
	N           int         `json:"n"`                // the columns that times were predicted for, the most of Points
	Points      []Point     `json:"points,omitempty"` // where these depend on open sizes
	Sparsity    float64     `json:"sparsity"`
	Pattern     string      `json:"pattern"`
	Prunable    bool        `json:"prunable"`
	Format      string      `json:"format"`
	Config      string      `json:"config"`
	DType       string      `json:"dtype"`
	DenseBytes  int         `json:"dense_bytes"`
	StoredBytes int         `json:"stored_bytes"`
	SecondBytes int         `json:"second_bytes,omitempty"` // of these, what two forms take more than the best alone
	Nonzeros    int         `json:"nonzeros"`
	Reason      string      `json:"reason"`
	Candidates  []Candidate `json:"candidates"`
}

// Check says what numbers of a layer do not go together.
func (l *Layer) Check() error {
	if l.Rows < 0 || l.Cols < 0 || l.N < 0 || l.DenseBytes < 0 || l.StoredBytes < 0 {
		return fmt.Errorf("%d x %d, %d columns, %d bytes of %d: want none below 0", l.Rows, l.Cols, l.N, l.StoredBytes, l.DenseBytes)
	}
	for _, p := range l.Points {
		if p.N < 1 {
			return fmt.Errorf("times for %d columns, want 1 or more", p.N)
		}
	}
	for i := range l.Candidates {
		c := &l.Candidates[i]
		if n := len(c.PointsUs); c.PointsUs != nil && (n == 0 || n != len(l.Points)) || c.PointsUs == nil && len(l.Points) > 0 {
			return fmt.Errorf("%v has %d times for %d numbers of columns", c.form(), n, len(l.Points))
		}
		if least := slices.Min(append([]float64{c.PredictedUs, c.MeasuredUs, c.Noise, c.Work, c.Efficiency}, c.PointsUs...)); least < 0 || c.StoredBytes < 0 {
			return fmt.Errorf("%v has numbers below 0", c.form())
		}
		if slices.ContainsFunc(c.ScaledPoints, func(k int) bool { return k < 0 || k >= len(l.Points) }) {
			return fmt.Errorf("%v is scaled at %v of %d numbers of columns", c.form(), c.ScaledPoints, len(l.Points))
		}
	}
	return nil
}

// Auto is the choice of a format by predicted time.
const Auto = "auto"

// Options are the choices of the user.
type Options struct {
	// Half, where it is F16 or BF16, is the type in which f32 weights are stored that it
	// holds exactly.
	Half      tensor.DType
	Format    string           // Auto, or the name of the only format to use where it suits; empty is Auto
	Sizes     map[string]Sizes // of open dimensions, by their symbols; what they are by default is in docs/formats.md
	OneFormat bool             // no weight has two forms
	Sized     *Sized           // where it is set, takes what weights have two forms, or small ones, once Run is over
	// Small, where it is set and Format is Auto, names weights that are stored in the fewest bytes, whatever that takes.
	Small map[string]bool
	// Times, where it is set, tells what the node of a use of a weight took, by the number of that among the graph's, in a form, for n
	// columns and where so many microseconds are predicted. Where dense was measured, only what was measured can win.
	Times     func(number int, f Form, n int, predicted float64) Timing
	Recognise func(w *tensor.Tensor) string
	Progress  func(done, total int)
	// Settle, where it is set, has the elements of a tensor that is made lie elsewhere than in memory; Unsettle, which is set with it, is told
	// of those that nobody reads any more.
	Settle, Unsettle func(t *tensor.Tensor)
}

// Stage plans Run, whose steps are the weights: what is weighed are their elements.
func Stage(g *ir.Graph) pace.Stage {
	const element = 25e-9
	s := pace.Stage{Name: "choose"}
	for _, u := range g.WeightUses() {
		shape, _ := u.Value.Type.Shape()
		n, _ := tensor.Elems(shape)
		s.Steps = append(s.Steps, element*float64(n))
	}
	return s
}

// Run chooses a format for each weight of g, packs it, and says why, and for what sizes of the open dimensions on which columns
// of weights depend.
func Run(g *ir.Graph, formats []Format, model Model, o Options) ([]Layer, []Open, error) {
	c := &chooser{formats: formats, model: model, Options: o}
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.Name()
	}
	if c.Format == "" {
		c.Format = Auto
	}
	if c.Format != Auto && !slices.Contains(names, c.Format) {
		return nil, nil, option.Errorf("%v %q: want %s or %s", option.Format, c.Format, Auto, strings.Join(names, ", "))
	}
	if find(formats, Dense) == nil {
		return nil, nil, fmt.Errorf("no dense format to compete: %w", ir.ErrUnsupported)
	}
	points, opens := pointsOf(g, o.Sizes)
	c.points, c.opens = points, opens
	weights := g.WeightUses()
	layers := make([]Layer, len(weights))
	shared := map[*ir.Value][]use{}
	for i, w := range weights {
		if shape, ok := w.Value.Type.Shape(); ok && shared[w.Value] == nil {
			n, _ := tensor.Elems(shape)
			c.total += n * w.Value.Type.DType.Size()
		}
		shared[w.Value] = append(shared[w.Value], use{&layers[i], w, i, nil})
	}
	var list [][]use
	for i, w := range weights {
		if uses := shared[w.Value]; uses[0].Layer == &layers[i] {
			list = append(list, uses)
		}
	}
	if err := c.all(g, list, len(weights)); err != nil {
		return nil, nil, err
	}
	if s := c.Sized; s != nil {
		s.chooser = c
		s.order()
	}
	return layers, opens, nil
}

// inFlight is how many bytes of weights are looked at together; each takes a few times its own.
const inFlight = 64 << 20

// all chooses for each weight, several at once where nothing is measured. The error is that of the first.
func (c *chooser) all(g *ir.Graph, list [][]use, total int) error {
	held := map[*byte]int{} // how many constants are stored in a place
	for _, v := range g.Constants() {
		if v.Const != nil && len(v.Const.Bytes()) > 0 {
			held[&v.Const.Bytes()[0]]++
		}
	}
	sizes, workers := make([]int, len(list)), 0
	for i, uses := range list {
		shape, _ := uses[0].Value.Type.Shape()
		n, _ := tensor.Elems(shape)
		sizes[i] = 4 * n
	}
	if c.Times != nil {
		workers = 1
	}
	errs := make([]error, len(list))
	var mu sync.Mutex
	done, failed := 0, false
	parallel.Bounded(context.Background(), workers, inFlight, sizes, func(i int) { // it ends with the context, which does not
		mu.Lock()
		skip := failed
		mu.Unlock()
		if skip {
			return
		}
		v := list[i][0].Value
		was := v.Const
		err := c.choose(list[i])
		c.release(list[i])
		if err == nil && v.Const == nil && was != nil {
			c.settle(v, was, held)
		}
		mu.Lock()
		defer mu.Unlock()
		errs[i], failed = err, failed || err != nil
		if done += len(list[i]); c.Progress != nil {
			c.Progress(done, total)
		}
	})
	return cmp.Or(errs...)
}

// settle settles the stored form of a weight, and gives back what it was before where nothing else is stored there.
func (c *chooser) settle(v *ir.Value, was *tensor.Tensor, held map[*byte]int) {
	if c.Settle == nil {
		return
	}
	used := len(was.Bytes()) == 0 || held[&was.Bytes()[0]] > 1
	for _, p := range v.Store.Parts {
		used = used || p.Data.Overlaps(was)
		c.Settle(p.Data)
	}
	if !used {
		c.Unsettle(was)
	}
}

// Narrow stores the values of a weight, its parts of f32, in a type that holds them
// exactly.
func Narrow(parts []ir.Part, dt tensor.DType) []ir.Part {
	out := slices.Clone(parts)
	for i, p := range out {
		if p.Data.DType() == tensor.F32 && dt != tensor.F32 {
			out[i].Data = p.Data.To(dt)
		}
	}
	return out
}

// exact reports whether a type holds the elements of a weight as they are.
func exact(w *tensor.Tensor, dt tensor.DType) bool {
	back := w.To(dt).To(tensor.F32).F32s()
	for i, v := range w.F32s() {
		if math.Float32bits(v) != math.Float32bits(back[i]) {
			return false
		}
	}
	return true
}

type chooser struct {
	Options
	model   Model
	formats []Format
	points  []point
	opens   []Open
	total   int // bytes of all weights
}

// use is a weight that a node reads, and the layer that describes it.
type use struct {
	*Layer
	ir.WeightUse
	number int     // in the graph
	matrix *Matrix // the weight as the node sees it
}

// choose stores a weight in the format that suits best the nodes that read it, together, and describes that in their layers.
func (c *chooser) choose(uses []use) error {
	v := uses[0].Value
	shape, _ := v.Type.Shape()
	for _, u := range uses {
		rows, cols := u.View.Dims(shape)
		bytes := rows * cols * v.Type.DType.Size()
		*u.Layer = Layer{
			Name: u.Node.Name, Weight: v.Name, Op: u.Node.Op.Kind(),
			Rows: rows, Cols: cols, N: u.Columns(),
			Format: Dense, DType: v.Type.DType.String(), DenseBytes: bytes, StoredBytes: bytes,
		}
		switch {
		case v.Const == nil:
			u.Format, u.Config, u.StoredBytes = v.Store.Format, v.Store.Config, v.Store.Bytes()
			u.Reason = "stored before"
		case v.Type.DType != tensor.F32 && v.Type.DType != tensor.I8:
			u.Reason = fmt.Sprintf("kept dense: no sparse kernel for %v weights", v.Type.DType)
		}
	}
	if uses[0].Reason != "" {
		return nil
	}
	c.matrices(uses)
	if why := c.keep(uses); why != "" {
		for _, u := range uses {
			u.Reason = why
		}
		return nil
	}
	first := uses[0].matrix
	dt := v.Const.DType()
	if c.Half != tensor.Undefined && dt == tensor.F32 && first.Grid == nil && exact(first.Tensor, c.Half) {
		dt = c.Half
	}
	points := c.pointsFor(uses)
	for _, u := range uses {
		u.matrix.Type, u.DType = dt, dt.String()
		c.compete(u, points)
	}
	best := c.agree(uses)
	if best.Format == Dense && best.Config == "" && dt == v.Const.DType() {
		return nil
	}
	if err := store(uses[0].WeightUse, first, find(c.formats, best.Format), best.Config, dt); err != nil {
		return err
	}
	for _, u := range uses {
		u.Format, u.Config, u.DType, u.StoredBytes = best.Format, best.Config, best.DType, v.Store.Bytes()
	}
	return nil
}

// release gives back what the weights of uses took, and what was known of them.
func (c *chooser) release(uses []use) {
	n := 0
	for i := range uses {
		if m := uses[i].matrix; m != nil {
			n += len(m.Bytes())
		}
		uses[i].matrix = nil
	}
	if c.Settle != nil {
		memory.Dropped(n)
	}
}

// store puts a stored form of the matrix that a use sees, with elements of a type unless they are stored as codes, in the place
// of a constant.
func store(u ir.WeightUse, matrix *Matrix, f Packer, config string, dt tensor.DType) error {
	v := u.Value
	parts, err := pack(f, matrix.Tensor, matrix.Grid, config, dt)
	if err != nil {
		return u.Node.Errorf(ir.ErrInvalid, "weight %s as %s: %v", v.Name, f.Name(), err)
	}
	v.Store = &ir.Store{Format: f.Name(), Config: config, View: u.View, Rows: matrix.Dim(0), Cols: matrix.Dim(1), Parts: parts}
	v.Const = nil
	return nil
}

// Store stores a constant weight in a candidate's form.
func Store(u ir.WeightUse, f Packer, c *Candidate) error {
	dt := tensor.F32
	if !IsGrid(c.Config) {
		var err error
		if dt, err = tensor.ParseDType(c.DType); err != nil {
			return err
		}
	}
	w := u.View.Matrix(u.Value.Const).To(tensor.F32)
	return store(u, &Matrix{Tensor: w, Grid: onGrid(u.Value, u.View, w)}, f, c.Config, dt)
}

// matrices finds the weight as each node sees it, and says in the layers what zeros it has.
func (c *chooser) matrices(uses []use) {
	for i, u := range uses {
		var m *Matrix
		if i > 0 && u.View.Equal(uses[i-1].View) {
			same := *uses[i-1].matrix
			m = &same
		} else {
			mat := u.View.Matrix(u.Value.Const).To(tensor.F32)
			m = NewMatrix(mat, "")
			if m.Nonzeros == m.Len() {
				m.Pattern = Dense
			} else if c.Recognise != nil {
				m.Pattern = c.Recognise(mat)
			}
			m.Grid = onGrid(u.Value, u.View, mat)
		}
		m.Slide = u.Slide
		uses[i].matrix = m
		u.Pattern, u.Nonzeros, u.Sparsity = m.Pattern, m.Nonzeros, 1-m.Density()
	}
}

// find returns the format of the given name, nil where there is none.
func find(formats []Format, name string) Format {
	for _, f := range formats {
		if f.Name() == name {
			return f
		}
	}
	return nil
}

// keep says why a weight stays a plain constant, empty where it need not.
func (c *chooser) keep(uses []use) string {
	nodes := map[*ir.Node]bool{}
	for _, u := range uses {
		switch {
		case u.Dense != "":
			return "kept dense: " + u.Dense
		case u.Groups != 1:
			return fmt.Sprintf("kept dense: %d groups", u.Groups)
		case u.Value.IsOutput():
			return "kept dense: the weight is an output of the model"
		case len(u.Value.Uses()) != len(uses):
			return "kept dense: another operator reads the weight as data"
		case !u.View.Equal(uses[0].View) || nodes[u.Node]:
			return "kept dense: the weight is read as different matrices"
		}
		nodes[u.Node] = true
	}
	return ""
}

// compete lists the candidates of all formats, the fastest first, then the
// smallest, then in the order of the formats. Those that do not stand at each of the points are none.
func (c *chooser) compete(u use, points []*point) {
	l := u.Layer
	measured := map[Form][]Timing{}
	for i, p := range points {
		w, m := p.at(u.number, u.WeightUse.Weight), *u.matrix
		m.Slide = w.Slide
		l.N = w.Columns()
		if len(points) > 1 {
			l.Points = append(l.Points, Point{l.N, p.named(c.opens)})
		}
		for _, f := range c.formats {
			for _, cost := range f.Costs(&m, l.N) {
				if m.Grid != nil && !IsGrid(cost.Config) && f.Name() != c.Format && (c.Sized == nil || f.Name() == Dense) {
					continue // it would take many times the bytes
				}
				form := Form{f.Name(), cost.Config}
				predicted, took, peak := c.predict(cost, u, form, l.N)
				a := Candidate{
					Format: form.Format, Config: form.Config, Kernel: cost.Kernel, DType: cost.dtype(l.DType), StoredBytes: cost.Bytes,
					Work: cost.Work, Peak: peak, Efficiency: digits(cost.Efficiency), Bound: cost.Bound, PredictedUs: predicted,
					MeasuredUs: took.Us, Noise: took.Noise,
				}
				if len(points) > 1 {
					at := a.in(l.Candidates)
					if at >= 0 {
						a.PointsUs = l.Candidates[at].PointsUs
					}
					a.PointsUs = append(a.PointsUs, predicted)
					measured[form] = append(measured[form], took)
					if at >= 0 {
						l.Candidates[at] = a
						continue
					}
				}
				if i == 0 {
					l.Candidates = append(l.Candidates, a)
				}
			}
		}
	}
	if len(points) > 1 {
		l.Candidates = slices.DeleteFunc(l.Candidates, func(a Candidate) bool { return len(a.PointsUs) < len(points) })
		for i := range l.Candidates {
			l.Candidates[i].overPoints(measured[l.Candidates[i].form()])
		}
	}
	sortByTime(l.Candidates)
}

// predict returns the microseconds that a product of n columns is predicted to take, what its node was measured to, and the
// peak.
func (c *chooser) predict(cost Cost, u use, f Form, n int) (predicted float64, measured Timing, peak float64) {
	cost.Again, cost.Total = u.Reuse != ir.Size(1), c.total
	sec, peak := c.model.Predict(cost, u.Rows, u.Layer.Cols, n)
	predicted = digits(sec * 1e6)
	if c.Times != nil {
		measured = c.Times(u.number, f, n, predicted)
		measured.Us, measured.Noise = digits(measured.Us), digits(measured.Noise)
	}
	return predicted, measured, peak
}

// overPoints gives a candidate the mean times over its points, which count as measured where all were.
func (c *Candidate) overPoints(measured []Timing) {
	c.PredictedUs, c.MeasuredUs, c.Noise = geometric(c.PointsUs), 0, 0
	if slices.ContainsFunc(measured, func(t Timing) bool { return !(t.Us > 0) }) {
		return
	}
	for i, t := range measured {
		c.PointsUs[i] = t.Us
		c.Noise = max(c.Noise, t.Noise)
		if t.Scaled {
			c.ScaledPoints = append(c.ScaledPoints, i)
		}
	}
	c.MeasuredUs = geometric(c.PointsUs)
}

// sortByTime sorts what was measured before what was not, then by time and by bytes.
func sortByTime(all []Candidate) {
	unmeasured := func(c *Candidate) int {
		if c.MeasuredUs > 0 {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b Candidate) int {
		return cmp.Or(unmeasured(&a)-unmeasured(&b), cmp.Compare(a.time(), b.time()), cmp.Compare(a.StoredBytes, b.StoredBytes))
	})
}

// time is the measured time of a candidate, the predicted one where there is none.
func (c *Candidate) time() float64 {
	if c.MeasuredUs > 0 {
		return c.MeasuredUs
	}
	return c.PredictedUs
}

// bound says what the predicted time of c comes from, compared with o.
func (c *Candidate) bound(o *Candidate) string {
	switch {
	case c.MeasuredUs > 0:
		return fmt.Sprintf("%.2fx the work", ratio(c.Work, o.Work))
	case c.Bound != "" && c.Bound != "the bytes":
		return "bound by " + c.Bound
	case c.Bound != "" || c.PredictedUs > 1.01e6*c.Work/(c.Peak*c.Efficiency):
		return fmt.Sprintf("bound by %.2fx the bytes", ratio(float64(c.StoredBytes), float64(o.StoredBytes)))
	}
	return fmt.Sprintf("%.2fx the work at %.0f%% of the peak", ratio(c.Work, o.Work), 100*c.Efficiency)
}

// is returns whether a candidate is of the given format.
func is(format string) func(Candidate) bool {
	return func(c Candidate) bool { return c.Format == format }
}

// margin is how much faster than dense a sparse candidate must be by prediction: what
// is nearer is within the error of the model, and dense is sure not to lose to itself.
const margin = 1.05

// near reports whether the times of a and of dense are too close for a prediction, or for what was measured.
func (c *Candidate) near(dense *Candidate) bool {
	if c.MeasuredUs > 0 && dense.MeasuredUs > 0 {
		return dense.MeasuredUs <= (1+c.Noise)*c.MeasuredUs
	}
	return c.MeasuredUs == 0 && dense.MeasuredUs == 0 && dense.time() < margin*c.time()
}

// agree picks what the nodes that read a weight take the least time with, together. It returns the first one's candidate.
func (c *chooser) agree(uses []use) *Candidate {
	all := together(uses)
	best := c.best(all)
	p := c.pair(uses, all, best)
	if c.small(all) {
		p = nil
	}
	if c.Sized == nil && p != nil {
		return c.paired(uses, p, best)
	}
	all.Reason = c.reason(all, best)
	if c.Sized != nil {
		kept := *best
		c.Sized.add(sized{uses, all, &kept, p})
	}
	return c.told(uses, all, best)
}

// paired is agree where a pair takes less time than the best form alone.
func (c *chooser) paired(uses []use, p *Pair, best *Candidate) *Candidate {
	alone := *best
	for _, u := range uses {
		two := p.candidate(u.Layer)
		u.Candidates = append(u.Candidates, two)
		sortByTime(u.Candidates)
		u.SecondBytes = two.StoredBytes - alone.StoredBytes
	}
	all := together(uses)
	best = &all.Candidates[slices.IndexFunc(all.Candidates, is(PairFormat))]
	all.Reason = c.reason(all, best) + fmt.Sprintf(", %.2fx than %v alone", ratio(alone.time(), best.time()), alone.form())
	return c.told(uses, all, best)
}

// told says in the layers of the nodes that read a weight what it is stored in, for the reason of all of them, and why it is not in other forms. It
// returns the first one's candidate.
func (c *chooser) told(uses []use, all *Layer, best *Candidate) *Candidate {
	if len(uses) == 1 {
		uses[0].Reason = all.Reason
		at := best.in(uses[0].Candidates)
		c.explain(uses[0].Layer, &uses[0].Candidates[at], false)
		return &uses[0].Candidates[at]
	}
	for _, u := range uses {
		u.Reason = fmt.Sprintf("%s, for the %d nodes together that read the weight", all.Reason, len(uses))
		c.explain(u.Layer, &u.Candidates[best.in(u.Candidates)], true)
	}
	return &uses[0].Candidates[best.in(uses[0].Candidates)]
}

// together is the layer of the nodes that read a weight, with what the candidates take in all of them: that of a single one is
// its own.
func together(uses []use) *Layer {
	if len(uses) == 1 {
		return uses[0].Layer
	}
	all := *uses[0].Layer
	all.Candidates = nil
	for _, a := range uses[0].Candidates {
		if a.add(uses[1:]) {
			all.Candidates = append(all.Candidates, a)
		}
	}
	sortByTime(all.Candidates)
	return &all
}

// in is the place of the same way to store a weight among others, -1 where it is none of them.
func (c *Candidate) in(others []Candidate) int {
	return slices.IndexFunc(others, func(o Candidate) bool { return o.Format == c.Format && o.Config == c.Config })
}

// scaled adds points to those that are scaled.
func (c *Candidate) scaled(points []int) {
	all := slices.Concat(c.ScaledPoints, points)
	slices.Sort(all)
	c.ScaledPoints = slices.Compact(all)
}

// add adds to c what the same way to store the weight takes in other nodes, and reports whether it is there in all.
func (c *Candidate) add(others []use) bool {
	c.PointsUs = slices.Clone(c.PointsUs)
	for _, u := range others {
		i := c.in(u.Candidates)
		if i < 0 {
			return false
		}
		o := u.Candidates[i]
		if min(c.MeasuredUs, o.MeasuredUs) > 0 {
			c.MeasuredUs, c.Noise = digits(c.MeasuredUs+o.MeasuredUs), max(c.Noise, o.Noise)
		} else {
			c.MeasuredUs = 0
		}
		c.Work, c.PredictedUs = c.Work+o.Work, digits(c.PredictedUs+o.PredictedUs)
		for i, t := range o.PointsUs {
			c.PointsUs[i] += t
		}
		c.scaled(o.ScaledPoints)
	}
	if c.PointsUs != nil {
		c.PredictedUs = geometric(c.PointsUs)
		if c.MeasuredUs > 0 {
			c.MeasuredUs = c.PredictedUs
		} else {
			c.ScaledPoints = nil
		}
	}
	c.Efficiency = digits(1e6 * c.Work / (c.Peak * c.PredictedUs))
	return true
}

// safe reports whether a candidate is at no point slower than dense by more than the margin, or than it may be off.
func (c *Candidate) safe(dense *Candidate) bool {
	for i, t := range c.PointsUs {
		if t > max(margin, 1+c.Noise)*dense.PointsUs[i] {
			return false
		}
	}
	return true
}

// small reports whether a weight is to take the fewest bytes.
func (c *chooser) small(l *Layer) bool { return c.Format == Auto && c.Small[l.Weight] }

// Smallest is the candidate of the fewest bytes, of several the fastest; nil where there is none.
func (l *Layer) Smallest() *Candidate {
	var best *Candidate
	for i := range l.Candidates {
		if a := &l.Candidates[i]; a.Format != PairFormat && (best == nil || a.StoredBytes < best.StoredBytes) {
			best = a
		}
	}
	return best
}

// best is the first candidate of the format asked for, else dense. Where none is asked for it is the smallest, if that counts, or the first that is safe, unless
// that is near dense.
func (c *chooser) best(l *Layer) *Candidate {
	dense := l.dense()
	if c.small(l) {
		return l.Smallest()
	}
	wanted := func(a Candidate) bool {
		return a.safe(dense) && (dense.MeasuredUs == 0 || a.MeasuredUs > 0) && IsGrid(a.Config) == IsGrid(dense.Config)
	}
	if c.Format != Auto {
		wanted = is(c.Format)
	}
	i := slices.IndexFunc(l.Candidates, wanted)
	if i < 0 || c.Format == Auto && l.Candidates[i].near(dense) {
		return dense
	}
	return &l.Candidates[i]
}

// explain marks the candidate that was chosen, for several nodes together or for this one, and says of every one why it won
// or lost.
func (c *chooser) explain(l *Layer, best *Candidate, together bool) {
	best.Chosen = true
	dense := l.dense()
	for i := range l.Candidates {
		a := &l.Candidates[i]
		switch {
		case a == best:
			a.Why = "chosen"
		case c.small(l):
			a.Why = fmt.Sprintf("%.2fx the bytes", ratio(float64(a.StoredBytes), float64(best.StoredBytes)))
		case c.Format != Auto && a.Format != c.Format:
			a.Why = fmt.Sprintf("%s was asked for", c.Format)
		case IsGrid(dense.Config) && !IsGrid(a.Config) && a.Format != PairFormat:
			a.Why = fmt.Sprintf("%.2fx the bytes of codes, which would have to pay beside these", ratio(float64(a.StoredBytes), float64(dense.StoredBytes)))
		case a.MeasuredUs == 0 && best.MeasuredUs > 0:
			a.Why = fmt.Sprintf("not measured: predicted %.2fx the time that %v was", ratio(a.PredictedUs, best.PredictedUs), best.form())
		case a.time() < best.time() && together:
			a.Why = fmt.Sprintf("%.2fx the time, more in all nodes that read the weight", ratio(a.time(), best.time()))
		case a.time() < best.time() && !a.safe(dense):
			a.Why = fmt.Sprintf("%.2fx the time, but %s", ratio(a.time(), best.time()), l.worst(a))
		case a.time() < best.time() && a.MeasuredUs > 0:
			a.Why = fmt.Sprintf("%.2fx the time, which may be off by %.0f%%", ratio(a.time(), best.time()), 100*a.Noise)
		case a.time() < best.time():
			a.Why = fmt.Sprintf("%.2fx the time, too close to dense for a prediction", ratio(a.time(), best.time()))
		case a.PointsUs != nil:
			at := l.known(a, best)
			first, last := at[0], at[len(at)-1]
			a.Why = fmt.Sprintf("%.2fx the time: %.2fx for %s", ratio(a.time(), best.time()), ratio(a.PointsUs[first], best.PointsUs[first]), columns(l.Points[first].N))
			if last != first {
				a.Why += fmt.Sprintf(" to %.2fx for %d", ratio(a.PointsUs[last], best.PointsUs[last]), l.Points[last].N)
			}
		default:
			a.Why = fmt.Sprintf("%.2fx the time: %s", ratio(a.time(), best.time()), a.bound(best))
		}
	}
}

// next is the fastest candidate that could have been chosen in the place of dense, nil where there is none.
func (l *Layer) next() *Candidate {
	codes := IsGrid(l.dense().Config)
	i := slices.IndexFunc(l.Candidates, func(c Candidate) bool { return c.Format != Dense && IsGrid(c.Config) == codes })
	if i < 0 {
		return nil
	}
	return &l.Candidates[i]
}

// dense is the candidate that every weight has.
func (l *Layer) dense() *Candidate { return &l.Candidates[slices.IndexFunc(l.Candidates, is(Dense))] }

// known lists the points at which two candidates compare as they were predicted, or as they were measured and not scaled, if there are any.
func (l *Layer) known(a, b *Candidate) (at []int) {
	for i := range l.Points {
		if !slices.Contains(a.ScaledPoints, i) && !slices.Contains(b.ScaledPoints, i) {
			at = append(at, i)
		}
	}
	if at != nil {
		return at
	}
	for i := range l.Points {
		at = append(at, i)
	}
	return at
}

// gains says how many times as fast as dense a candidate is for the fewest columns and for the most, and where between them it is less.
func (l *Layer) gains(a *Candidate) string {
	dense, at := l.dense(), l.known(a, l.dense())
	gain := func(i int) string { return fmt.Sprintf("%.1fx", ratio(dense.PointsUs[i], a.PointsUs[i])) }
	first, last := at[0], at[len(at)-1]
	text := fmt.Sprintf("%s for %s", gain(first), columns(l.Points[first].N))
	if last != first {
		text += fmt.Sprintf(" to %s for %d", gain(last), l.Points[last].N)
	}
	least := slices.MinFunc(at, func(i, j int) int {
		return cmp.Compare(ratio(dense.PointsUs[i], a.PointsUs[i]), ratio(dense.PointsUs[j], a.PointsUs[j]))
	})
	if g := gain(least); g != gain(first) && g != gain(last) {
		text += fmt.Sprintf(", least %s for %d", g, l.Points[least].N)
	}
	return text
}

// worst says where a candidate compares worst with dense.
func (l *Layer) worst(a *Candidate) string {
	most, at, dense := 0.0, 0, l.dense()
	for i, t := range a.PointsUs {
		if r := ratio(t, dense.PointsUs[i]); r > most {
			most, at = r, i
		}
	}
	return fmt.Sprintf("%.2fx that of dense for %s", most, columns(l.Points[at].N))
}

func columns(n int) string {
	if n == 1 {
		return "1 column"
	}
	return fmt.Sprintf("%d columns", n)
}

func (c *chooser) reason(l *Layer, best *Candidate) string {
	dense, over := l.dense(), ""
	if l.Points != nil {
		over = fmt.Sprintf(" over %d to %s", l.Points[0].N, columns(l.N))
	}
	switch {
	case c.small(l):
		return fmt.Sprintf("as few bytes as may be: %.2fx the time of dense", ratio(best.time(), dense.time()))
	case c.Format != Auto && best.Format != c.Format:
		return fmt.Sprintf("%s does not suit this weight", c.Format)
	case c.Format != Auto:
		return "asked for"
	case best != dense && l.Points != nil:
		return fmt.Sprintf("%s %.1fx faster than dense: %s", best.basis(), ratio(dense.time(), best.time()), l.gains(best))
	case best != dense:
		return fmt.Sprintf("%s %.1fx faster than dense: %s", best.basis(), ratio(dense.time(), best.time()), best.bound(dense))
	case l.next() != nil:
		next := l.next()
		r, less := ratio(next.time(), best.time()), ""
		switch {
		case r < 1 && !next.safe(dense):
			less = ", but " + l.worst(next)
		case r < 1 && next.MeasuredUs > 0:
			less = fmt.Sprintf(", which may be off by %.0f%%", 100*next.Noise)
		case r < 1:
			less = ", a gain too small to rely on"
		}
		return fmt.Sprintf("%s would take %.2fx the time of dense at %.0f%% zeros%s%s", next.Format, r, 100*l.Sparsity, over, less)
	case l.Nonzeros < l.Rows*l.Cols:
		return fmt.Sprintf("only %.1f%% zeros: no sparse format saves storage", 100*l.Sparsity)
	}
	return "no zeros to save"
}

// digits rounds x to six significant digits: enough for a prediction, and the same
// on machines that round the steps to it differently.
func digits(x float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	if err != nil {
		return x
	}
	return r
}

// geometric is the geometric mean, of six digits.
func geometric(times []float64) float64 {
	sum := 0.0
	for _, t := range times {
		sum += math.Log(t)
	}
	return digits(math.Exp(sum / float64(len(times))))
}

// basis says what the candidate's time rests on.
func (c *Candidate) basis() string {
	if c.MeasuredUs > 0 {
		return "measured"
	}
	return "predicted"
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
