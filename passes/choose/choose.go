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

// Run chooses a format for each weight of g, packs it, and says why. What is not known
// of the number of columns is estimated, see ir.Weight.Columns.
func Run(g *ir.Graph, formats []Format, model Model, o Options) ([]Layer, error) {
	c := &chooser{formats: formats, readers: map[*ir.Value]int{}, model: model, Options: o}
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
	for _, w := range weights {
		c.readers[w.Value]++
	}
	layers := make([]Layer, len(weights))
	for i, w := range weights {
		if err := c.choose(&layers[i], w); err != nil {
			return nil, err
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
	readers map[*ir.Value]int // how many weight-bearing inputs read a weight
}

// choose stores the weight w in the format that suits it best, and describes
// that in l.
func (c *chooser) choose(l *Layer, w ir.WeightUse) error {
	v := w.Value
	shape, _ := v.Type.Shape()
	rows, cols := w.View.Dims(shape)
	*l = Layer{
		Name: w.Node.Name, Weight: v.Name, Op: w.Node.Op.Kind(),
		Rows: rows, Cols: cols, N: w.Columns(),
		Format: Dense, DType: v.Type.DType.String(), DenseBytes: rows * cols * v.Type.DType.Size(),
	}
	if v.Const == nil {
		l.Format, l.Config, l.StoredBytes = v.Store.Format, v.Store.Config, v.Store.Bytes()
		l.Reason = "stored before"
		return nil
	}
	l.StoredBytes = l.DenseBytes
	if dt := v.Const.DType(); dt != tensor.F32 && dt != tensor.I8 {
		l.Reason = fmt.Sprintf("kept dense: no sparse kernel for %v weights", dt)
		return nil
	}
	mat := w.View.Matrix(v.Const).To(tensor.F32)
	m := NewMatrix(mat, "")
	m.Slide = w.Slide
	if m.Nonzeros == m.Len() {
		m.Pattern = Dense
	} else if c.Recognise != nil {
		m.Pattern = c.Recognise(mat)
	}
	l.Pattern, l.Nonzeros, l.Sparsity = m.Pattern, m.Nonzeros, 1-m.Density()
	if l.Reason = c.keep(w); l.Reason != "" {
		return nil
	}
	m.Type = v.Const.DType()
	if c.Half != tensor.Undefined && m.Type == tensor.F32 && exact(mat, c.Half) {
		m.Type = c.Half
	}
	l.DType = m.Type.String()
	c.compete(l, m, w.Reuse != ir.Size(1))
	best := c.pick(l)
	l.Format, l.Config = best.Format, best.Config
	if best.Format == Dense && m.Type == v.Const.DType() {
		return nil
	}
	parts, err := find(c.formats, best.Format).Pack(mat, best.Config)
	if err != nil {
		return w.Node.Errorf(ir.ErrInvalid, "weight %s as %s: %v", v.Name, best.Format, err)
	}
	parts = Narrow(parts, m.Type)
	v.Store = &ir.Store{Format: best.Format, Config: best.Config, View: w.View, Rows: rows, Cols: cols, Parts: parts}
	v.Const = nil
	l.StoredBytes = v.Store.Bytes()
	return nil
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
func (c *chooser) keep(w ir.WeightUse) string {
	uses := len(w.Value.Uses())
	switch {
	case w.Dense != "":
		return "kept dense: " + w.Dense
	case w.Groups != 1:
		return fmt.Sprintf("kept dense: %d groups", w.Groups)
	case w.Value.IsOutput():
		return "kept dense: the weight is an output of the model"
	case uses != c.readers[w.Value]:
		return "kept dense: another operator reads the weight as data"
	case uses > 1:
		return fmt.Sprintf("kept dense: the weight is read %d times", uses)
	}
	return ""
}

// compete lists the candidates of all formats, the fastest first, then the
// smallest, then in the order of the formats. Again is that of their costs.
func (c *chooser) compete(l *Layer, m *Matrix, again bool) {
	for _, f := range c.formats {
		for _, cost := range f.Costs(m, l.N) {
			cost.Again = again
			sec, peak := c.model.Predict(cost, l.Rows, l.Cols, l.N)
			l.Candidates = append(l.Candidates, Candidate{
				Format: f.Name(), Config: cost.Config, Kernel: cost.Kernel, DType: l.DType, StoredBytes: cost.Bytes,
				Work: cost.Work, Peak: peak, Efficiency: digits(cost.Efficiency), Bound: cost.Bound, PredictedUs: digits(sec * 1e6),
				MeasuredUs: digits(c.model.Measured(cost, l.Rows, l.Cols, l.N) * 1e6),
			})
		}
	}
	slices.SortStableFunc(l.Candidates, func(a, b Candidate) int {
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
	best.Chosen = true
	for i := range l.Candidates {
		a := &l.Candidates[i]
		switch {
		case a == best:
			a.Why = "chosen"
		case c.Format != Auto && a.Format != c.Format:
			a.Why = fmt.Sprintf("%s was asked for", c.Format)
		case a.time() < best.time():
			a.Why = fmt.Sprintf("%.2fx the time, too close to dense for a prediction", ratio(a.time(), best.time()))
		default:
			a.Why = fmt.Sprintf("%.2fx the time: %s", ratio(a.time(), best.time()), a.bound(best))
		}
	}
	l.Reason = c.reason(l, best, dense)
	return best
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
