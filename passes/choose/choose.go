// Package choose picks a storage format for every weight. Each legal candidate
// of each format gets a predicted time from the resource model
//
//	time = W / (P * E)
//
// with the work W of the product, the peak P of the device and the measured or
// assumed efficiency E of the kernel at that density and shape, bounded below by
// the bytes that must move. Dense always competes. Every candidate is kept with
// the reason why it won or lost. Choosing is lossless: which weights live was
// decided before. It imports ir; formats and the cost model come from outside.
package choose

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"spc/internal/pace"
	"spc/ir"
	"spc/ir/option"
	"spc/ir/tensor"
)

// Format is what choosing asks of a storage format. Matrices are f32 [M,K], of 8-bit weights whole
// numbers.
type Format interface {
	Name() string
	// Costs lists the configurations in which w may be stored, each with the
	// cost of a product of n columns; none when the format does not suit w or has no kernels for
	// elements of its type.
	Costs(w *Matrix, n int) []Cost
	// Pack stores w, its elements as f32. It is lossless but for the sign of zeros. A matrix whose nonzeros lie where the
	// configuration has no room for them is an error that wraps ErrFit.
	Pack(w *tensor.Tensor, config string) ([]ir.Part, error)
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

// Model predicts times for a device.
type Model interface {
	// Predict returns the seconds that a product takes, m x k x n, and the peak
	// in floating-point operations a second that it was computed with. Measured
	// reports the seconds measured on the device, 0 where there is no measurement.
	Predict(c Cost, m, k, n int) (seconds, peak float64)
	Measured(c Cost, m, k, n int) float64
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
	MeasuredUs  float64 `json:"measured_us,omitempty"` // 0 where it was not measured
	Chosen      bool    `json:"chosen"`
	Why         string  `json:"why"`
}

// Layer says how a weight is stored, and why.
type Layer struct {
	Name        string      `json:"name"` // the node
	Weight      string      `json:"weight"`
	Op          string      `json:"op"`
	Rows        int         `json:"rows"`
	Cols        int         `json:"cols"`
	N           int         `json:"n"` // the columns that times were predicted for
	Sparsity    float64     `json:"sparsity"`
	Pattern     string      `json:"pattern"`
	Prunable    bool        `json:"prunable"`
	Format      string      `json:"format"`
	Config      string      `json:"config"`
	DType       string      `json:"dtype"`
	DenseBytes  int         `json:"dense_bytes"`
	StoredBytes int         `json:"stored_bytes"`
	Nonzeros    int         `json:"nonzeros"`
	Reason      string      `json:"reason"`
	Candidates  []Candidate `json:"candidates"`
}

// Auto is the choice of a format by predicted time.
const Auto = "auto"

// Options are the choices of the user.
type Options struct {
	// Half, where it is F16 or BF16, is the type in which f32 weights are stored that it
	// holds exactly.
	Half      tensor.DType
	Format    string // Auto, or the name of the only format to use where it suits; empty is Auto
	Recognise func(w *tensor.Tensor) string
	Progress  func(done, total int)
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

// Run chooses a format for each weight of g, packs it, and says why. What is not known
// of the number of columns is estimated, see ir.Weight.Columns.
func Run(g *ir.Graph, formats []Format, model Model, o Options) ([]Layer, error) {
	c := &chooser{formats: formats, model: model, Options: o}
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.Name()
	}
	if c.Format == "" {
		c.Format = Auto
	}
	if c.Format != Auto && !slices.Contains(names, c.Format) {
		return nil, option.Errorf("%v %q: want %s or %s", option.Format, c.Format, Auto, strings.Join(names, ", "))
	}
	if find(formats, Dense) == nil {
		return nil, fmt.Errorf("no dense format to compete: %w", ir.ErrUnsupported)
	}
	weights := g.WeightUses()
	layers := make([]Layer, len(weights))
	shared := map[*ir.Value][]use{}
	for i, w := range weights {
		if shape, ok := w.Value.Type.Shape(); ok && shared[w.Value] == nil {
			n, _ := tensor.Elems(shape)
			c.total += n * w.Value.Type.DType.Size()
		}
		shared[w.Value] = append(shared[w.Value], use{&layers[i], w})
	}
	for i, w := range weights {
		if uses := shared[w.Value]; uses[0].Layer == &layers[i] {
			if err := c.choose(uses); err != nil {
				return nil, err
			}
		}
		if c.Progress != nil {
			c.Progress(i+1, len(weights))
		}
	}
	return layers, nil
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
	total   int // bytes of all weights
}

// use is a weight that a node reads, and the layer that describes it.
type use struct {
	*Layer
	ir.WeightUse
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
	matrices := c.matrices(uses)
	if why := c.keep(uses); why != "" {
		for _, u := range uses {
			u.Reason = why
		}
		return nil
	}
	first := matrices[0]
	dt := v.Const.DType()
	if c.Half != tensor.Undefined && dt == tensor.F32 && exact(first.Tensor, c.Half) {
		dt = c.Half
	}
	for i, u := range uses {
		matrices[i].Type, u.DType = dt, dt.String()
		c.compete(u.Layer, matrices[i], u.Reuse != ir.Size(1))
	}
	best := c.agree(uses)
	if best.Format == Dense && dt == v.Const.DType() {
		return nil
	}
	parts, err := find(c.formats, best.Format).Pack(first.Tensor, best.Config)
	if err != nil {
		return uses[0].Node.Errorf(ir.ErrInvalid, "weight %s as %s: %v", v.Name, best.Format, err)
	}
	parts = Narrow(parts, dt)
	v.Store = &ir.Store{Format: best.Format, Config: best.Config, View: uses[0].View, Rows: uses[0].Rows, Cols: uses[0].Cols, Parts: parts}
	v.Const = nil
	for _, u := range uses {
		u.Format, u.Config, u.StoredBytes = best.Format, best.Config, v.Store.Bytes()
	}
	return nil
}

// matrices returns the weight as each node sees it, and says in the layers what zeros it has.
func (c *chooser) matrices(uses []use) []*Matrix {
	all := make([]*Matrix, len(uses))
	for i, u := range uses {
		if i > 0 && u.View.Equal(uses[i-1].View) {
			same := *all[i-1]
			all[i] = &same
		} else {
			mat := u.View.Matrix(u.Value.Const).To(tensor.F32)
			all[i] = NewMatrix(mat, "")
			if all[i].Nonzeros == all[i].Len() {
				all[i].Pattern = Dense
			} else if c.Recognise != nil {
				all[i].Pattern = c.Recognise(mat)
			}
		}
		m := all[i]
		m.Slide = u.Slide
		u.Pattern, u.Nonzeros, u.Sparsity = m.Pattern, m.Nonzeros, 1-m.Density()
	}
	return all
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
// smallest, then in the order of the formats. Again is that of their costs.
func (c *chooser) compete(l *Layer, m *Matrix, again bool) {
	for _, f := range c.formats {
		for _, cost := range f.Costs(m, l.N) {
			cost.Again, cost.Total = again, c.total
			sec, peak := c.model.Predict(cost, l.Rows, l.Cols, l.N)
			l.Candidates = append(l.Candidates, Candidate{
				Format: f.Name(), Config: cost.Config, Kernel: cost.Kernel, DType: l.DType, StoredBytes: cost.Bytes,
				Work: cost.Work, Peak: peak, Efficiency: digits(cost.Efficiency), Bound: cost.Bound, PredictedUs: digits(sec * 1e6),
				MeasuredUs: digits(c.model.Measured(cost, l.Rows, l.Cols, l.N) * 1e6),
			})
		}
	}
	sortByTime(l.Candidates)
}

func sortByTime(all []Candidate) {
	slices.SortStableFunc(all, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.time(), b.time()), cmp.Compare(a.StoredBytes, b.StoredBytes))
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

// near reports whether the times of a and of dense are too close for a prediction.
func (c *Candidate) near(dense *Candidate) bool {
	return c.MeasuredUs == 0 && dense.MeasuredUs == 0 && dense.time() < margin*c.time()
}

// agree picks what the nodes that read a weight take the least time with, together. It returns the first one's candidate.
func (c *chooser) agree(uses []use) *Candidate {
	if len(uses) == 1 {
		return c.pick(uses[0].Layer)
	}
	all := *uses[0].Layer
	all.Candidates = nil
	for _, a := range uses[0].Candidates {
		if a.add(uses[1:]) {
			all.Candidates = append(all.Candidates, a)
		}
	}
	sortByTime(all.Candidates)
	best := c.pick(&all)
	for _, u := range uses {
		u.Reason = fmt.Sprintf("%s, for the %d nodes together that read the weight", all.Reason, len(uses))
		c.explain(u.Layer, &u.Candidates[best.in(u.Candidates)], true)
	}
	return &uses[0].Candidates[best.in(uses[0].Candidates)]
}

// in is the place of the same way to store a weight among others, -1 where it is none of them.
func (c *Candidate) in(others []Candidate) int {
	return slices.IndexFunc(others, func(o Candidate) bool { return o.Format == c.Format && o.Config == c.Config })
}

// add adds to c what the same way to store the weight takes in other nodes, and reports whether it is there in all.
func (c *Candidate) add(others []use) bool {
	for _, u := range others {
		i := c.in(u.Candidates)
		if i < 0 {
			return false
		}
		o := u.Candidates[i]
		if min(c.MeasuredUs, o.MeasuredUs) > 0 {
			c.MeasuredUs = digits(c.MeasuredUs + o.MeasuredUs)
		} else {
			c.MeasuredUs = 0
		}
		c.Work, c.PredictedUs = c.Work+o.Work, digits(c.PredictedUs+o.PredictedUs)
	}
	c.Efficiency = digits(1e6 * c.Work / (c.Peak * c.PredictedUs))
	return true
}

// pick marks the first candidate of the format asked for, else dense, and says
// of every candidate why it won or lost.
func (c *chooser) pick(l *Layer) *Candidate {
	dense := &l.Candidates[slices.IndexFunc(l.Candidates, is(Dense))]
	best := &l.Candidates[0]
	if best.near(dense) {
		best = dense
	}
	if c.Format != Auto {
		best = dense
		if i := slices.IndexFunc(l.Candidates, is(c.Format)); i >= 0 {
			best = &l.Candidates[i]
		}
	}
	c.explain(l, best, false)
	l.Reason = c.reason(l, best, dense)
	return best
}

// explain marks the candidate that was chosen, for several nodes together or for this one, and says of every one why it won
// or lost.
func (c *chooser) explain(l *Layer, best *Candidate, together bool) {
	best.Chosen = true
	for i := range l.Candidates {
		a := &l.Candidates[i]
		switch {
		case a == best:
			a.Why = "chosen"
		case c.Format != Auto && a.Format != c.Format:
			a.Why = fmt.Sprintf("%s was asked for", c.Format)
		case a.time() < best.time() && together:
			a.Why = fmt.Sprintf("%.2fx the time, more in all nodes that read the weight", ratio(a.time(), best.time()))
		case a.time() < best.time():
			a.Why = fmt.Sprintf("%.2fx the time, too close to dense for a prediction", ratio(a.time(), best.time()))
		default:
			a.Why = fmt.Sprintf("%.2fx the time: %s", ratio(a.time(), best.time()), a.bound(best))
		}
	}
}

func (c *chooser) reason(l *Layer, best, dense *Candidate) string {
	switch {
	case c.Format != Auto && best.Format != c.Format:
		return fmt.Sprintf("%s does not suit this weight", c.Format)
	case c.Format != Auto:
		return "asked for"
	case best != dense:
		return fmt.Sprintf("%s %.1fx faster than dense: %s", best.basis(), ratio(dense.time(), best.time()), best.bound(dense))
	case len(l.Candidates) > 1:
		next := l.Candidates[slices.IndexFunc(l.Candidates, func(c Candidate) bool { return c.Format != Dense })]
		r, less := ratio(next.time(), best.time()), ""
		if r < 1 {
			less = ", a gain too small to rely on"
		}
		return fmt.Sprintf("%s would take %.2fx the time of dense at %.0f%% zeros%s", next.Format, r, 100*l.Sparsity, less)
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
