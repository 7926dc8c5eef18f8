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
	"fmt"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/tensor"
)

// Format is what choosing asks of a storage format. Matrices are f32 [M,K].
type Format interface {
	Name() string
	// Costs lists the configurations in which w may be stored, each with the
	// cost of a product of n columns; none when the format does not suit w.
	Costs(w *Matrix, n int) []Cost
	// Pack stores w. It is lossless but for the sign of zeros.
	Pack(w *tensor.Tensor, config string) ([]ir.Part, error)
}

// Dense is the name of the format that leaves a weight as it is.
const Dense = "dense"

// Cost is what a format knows of its kernel for a product.
type Cost struct {
	Config     string  // the format's configuration; may be empty
	Kernel     string  // the family of kernels, such as f32_ell_4x32
	Work       float64 // floating-point operations, those on stored zeros included
	Bytes      int     // storage of the weight
	Efficiency float64 // the share of the peak that the kernel reaches, 0..1
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
	PredictedUs float64 `json:"predicted_us"`
	MeasuredUs  float64 `json:"measured_us"` // 0 where it was not measured
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

// Options are the choices of the user.
type Options struct {
	Format    string // auto, or the name of the only format to use where it is legal
	Recognise func(w *tensor.Tensor) string
	Progress  func(done, total int)
}

// Run chooses a format for each weight of g, packs it, and says why. Symbols in
// the number of columns count as one.
func Run(g *ir.Graph, formats []Format, model Model, o Options) ([]Layer, error) {
	weights := g.WeightUses()
	readers := map[*ir.Value]int{}
	for _, w := range weights {
		readers[w.Value]++
	}
	var layers []Layer
	for i, w := range weights {
		layer, err := one(w, readers[w.Value], formats, model, o)
		if err != nil {
			return nil, err
		}
		layers = append(layers, *layer)
		if o.Progress != nil {
			o.Progress(i+1, len(weights))
		}
	}
	return layers, nil
}

// Columns is the number of columns of a product, with symbols taken as one.
func Columns(w ir.Weight) int {
	n := 1
	for _, d := range []ir.Dim{w.Cols, w.Reuse} {
		if d.Known() {
			n *= d.Size()
		} else if k, ok := ir.Div(d, ir.Sym(d.Symbol())); ok && k.Known() {
			n *= k.Size()
		}
		for _, f := range strings.Split(d.Symbol(), "*") {
			var k int
			if _, err := fmt.Sscanf(f, "%d", &k); err == nil && k > 0 {
				n *= k
			}
		}
	}
	return max(n, 1)
}

func one(w ir.WeightUse, readers int, formats []Format, model Model, o Options) (*Layer, error) {
	v, n := w.Value, Columns(w.Weight)
	l := &Layer{Name: w.Node.Name, Weight: v.Name, Op: w.Node.Op.Kind(), N: n, Format: Dense, DType: v.Type.DType.String()}
	shape, _ := v.Type.Shape()
	l.Rows, l.Cols = w.View.Dims(shape)
	if v.Const == nil {
		// Another reader of the same weight has had it stored.
		l.Format, l.Config = v.Store.Format, v.Store.Config
		l.StoredBytes = v.Store.Bytes()
		l.DenseBytes = l.Rows * l.Cols * v.Type.DType.Size()
		l.Reason = "shared with another operator"
		return l, nil
	}
	l.DenseBytes = len(v.Const.Bytes())
	l.StoredBytes = l.DenseBytes
	stay := func(format string, args ...any) (*Layer, error) {
		l.Reason = fmt.Sprintf(format, args...)
		return l, nil
	}
	if v.Const.DType() != tensor.F32 {
		return stay("kept dense: no sparse kernel for %v weights", v.Const.DType())
	}
	mat := w.View.Matrix(v.Const)
	m := NewMatrix(mat, "")
	if m.Nonzeros < m.Len() && o.Recognise != nil {
		m.Pattern = o.Recognise(mat)
	} else if m.Nonzeros == m.Len() {
		m.Pattern = Dense
	}
	l.Pattern, l.Nonzeros, l.Sparsity = m.Pattern, m.Nonzeros, 1-m.Density()
	switch {
	case w.Groups != 1:
		return stay("kept dense: %d groups", w.Groups)
	case len(v.Uses()) != readers || readers > 1:
		return stay("kept dense: the weight is read %d times", len(v.Uses()))
	case v.IsOutput():
		return stay("kept dense: the weight is an output of the model")
	}
	for _, f := range formats {
		for _, c := range f.Costs(m, n) {
			sec, peak := model.Predict(c, l.Rows, l.Cols, n)
			l.Candidates = append(l.Candidates, Candidate{
				Format: f.Name(), Config: c.Config, Kernel: c.Kernel, DType: "f32", StoredBytes: c.Bytes,
				Work: c.Work, Peak: peak, Efficiency: c.Efficiency, PredictedUs: sec * 1e6,
				MeasuredUs: model.Measured(c, l.Rows, l.Cols, n) * 1e6,
			})
		}
	}
	best, err := pick(l, o.Format)
	if err != nil {
		return nil, w.Node.Errorf(ir.ErrUnsupported, "%v", err)
	}
	best.Chosen = true
	explain(l, best, o.Format)
	l.Format, l.Config = best.Format, best.Config
	if best.Format == Dense {
		return l, nil
	}
	i := slices.IndexFunc(formats, func(f Format) bool { return f.Name() == best.Format })
	parts, err := formats[i].Pack(mat, best.Config)
	if err != nil {
		return nil, w.Node.Errorf(ir.ErrInvalid, "weight %s as %s: %v", v.Name, best.Format, err)
	}
	v.Store = &ir.Store{Format: best.Format, Config: best.Config, View: w.View, Rows: l.Rows, Cols: l.Cols, Parts: parts}
	v.Const = nil
	l.StoredBytes = v.Store.Bytes()
	return l, nil
}

// time is the measured time of a candidate, the predicted one where there is none.
func (c *Candidate) time() float64 {
	if c.MeasuredUs > 0 {
		return c.MeasuredUs
	}
	return c.PredictedUs
}

func pick(l *Layer, format string) (*Candidate, error) {
	var best *Candidate
	for i := range l.Candidates {
		c := &l.Candidates[i]
		if format != "auto" && c.Format != format {
			continue
		}
		if best == nil || c.time() < best.time() {
			best = c
		}
	}
	if best == nil { // the format that the user wants does not suit this weight
		for i := range l.Candidates {
			if l.Candidates[i].Format == Dense {
				return &l.Candidates[i], nil
			}
		}
		return nil, fmt.Errorf("no format can store a %d x %d weight", l.Rows, l.Cols)
	}
	return best, nil
}

func explain(l *Layer, best *Candidate, format string) {
	slices.SortStableFunc(l.Candidates, func(a, b Candidate) int { return cmp.Compare(a.time(), b.time()) })
	best = &l.Candidates[slices.IndexFunc(l.Candidates, func(c Candidate) bool { return c.Chosen })]
	var dense *Candidate
	for i := range l.Candidates {
		if l.Candidates[i].Format == Dense {
			dense = &l.Candidates[i]
		}
	}
	for i := range l.Candidates {
		c := &l.Candidates[i]
		switch {
		case c == best:
			c.Why = "chosen"
		case format != "auto" && c.Format != format:
			c.Why = "not the format asked for"
		case c.Format == Dense:
			c.Why = fmt.Sprintf("%.2fx the time: does %.1fx the work at %.0f%% of the peak", ratio(c.time(), best.time()), ratio(c.Work, best.Work), 100*c.Efficiency)
		case c.Work > best.Work*1.02:
			c.Why = fmt.Sprintf("%.2fx the time: %.2fx the work at %.0f%% of the peak", ratio(c.time(), best.time()), ratio(c.Work, best.Work), 100*c.Efficiency)
		default:
			c.Why = fmt.Sprintf("%.2fx the time: its kernel reaches %.0f%% of the peak", ratio(c.time(), best.time()), 100*c.Efficiency)
		}
	}
	switch {
	case format != "auto" && best.Format != format:
		l.Reason = fmt.Sprintf("%s does not suit this weight", format)
	case format != "auto":
		l.Reason = "asked for"
	case best.Format == Dense && len(l.Candidates) == 1:
		l.Reason = "no zeros to save"
		if l.Nonzeros < l.Rows*l.Cols {
			l.Reason = fmt.Sprintf("only %.1f%% zeros: no sparse format saves work", 100*l.Sparsity)
		}
	case best.Format == Dense:
		next := l.Candidates[1]
		l.Reason = fmt.Sprintf("%s would take %.2fx the time of dense at %.0f%% zeros", next.Format, ratio(next.time(), best.time()), 100*l.Sparsity)
	default:
		l.Reason = fmt.Sprintf("%.1fx faster than dense: %.0f%% of the work at %.0f%% of the peak", ratio(dense.time(), best.time()), 100*ratio(best.Work, dense.Work), 100*best.Efficiency)
	}
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
