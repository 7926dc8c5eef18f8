package fit

import (
	"math"

	"spc/ir/option"
	"spc/passes/obs"
	"spc/passes/prune"
)

// Method is how the weights that go are chosen.
type Method string

// The methods.
const (
	Magnitude Method = "magnitude" // by |w|
	Wanda     Method = "wanda"     // by |w| times the norm of its input
	Taylor    Method = "taylor"    // by the change of the model's loss to first order
	OBS       Method = "obs"       // by the loss that remains after the others made up for it
	ALPS      Method = "alps"      // by splitting weights that fit from weights that are sparse
	Gates     Method = "gates"     // by probabilities that are learnt
)

// Aim is what a layer stays near when its weights are pruned.
type Aim string

// The aims.
const (
	Weights Aim = "weights" // the dense model's weights, on the pruned model's inputs
	Outputs Aim = "dense"   // the dense model's outputs, which the layer's weights are first fitted to on the pruned model's inputs
)

// Aims lists the aims.
func Aims() []Aim { return []Aim{Weights, Outputs} }

// ParseAim reads one of Aims.
func ParseAim(s string) (Aim, error) { return option.OneOf(option.Aim, s, Aims()) }

// A method chooses which weights of a layer go.
type method struct {
	Method
	doc string // which weights go
	// sees says what it needs of samples.
	sees sight
	// prune makes weights s.W of a layer sparse, as l.stays says where that is set.
	prune func(f *fitter, l *layer, s *obs.Solver, sparsity float64) (*edit, error)
	// work is about the multiplications of a layer where SparseGPT takes the place of the
	// method beyond some number of them, nil where it never does.
	work works
	// updates is set where weights that stay make up for those that go.
	updates bool
	// rank is the saliency by which weights of different layers are compared, nil for |w|.
	rank func(l *layer) []float32
}

// sight is what a method needs of samples.
type sight int

const (
	seesNothing sight = iota
	seesMoments       // of what layers see
	seesSlopes        // of the outputs, by weights
)

// works is about how many multiplications a layer [rows, cols] takes with a pattern.
type works func(p prune.Pattern, rows, cols int) float64

// exactWorks is that of exact OBS: of each group of rows that share a mask, and where there is N:M within blocks of each row besides.
func exactWorks(p prune.Pattern, rows, cols int) float64 {
	r, _ := p.Unit()
	groups, k := float64((rows+r-1)/r), float64(cols)
	if _, ok := p.Within(); ok {
		groups += float64(rows)
	}
	return groups * k * k * k / 6
}

func alpsWorks(_ prune.Pattern, rows, cols int) float64 {
	const iterations, inverses = 70, 25 // on most layers
	k := float64(cols)
	return iterations*float64(rows)*k*k + inverses*k*k*k/2
}

// methods lists the methods.
var methods = []method{
	{Magnitude, "the smallest weights", seesNothing, func(f *fitter, l *layer, s *obs.Solver, sparsity float64) (*edit, error) {
		return f.choose(l, s.W, nil, sparsity)
	}, nil, false, nil},
	{Wanda, "those that multiply little", seesMoments, func(f *fitter, l *layer, s *obs.Solver, sparsity float64) (*edit, error) {
		return f.choose(l, s.W, s.Wanda(), sparsity)
	}, nil, false, powerful},
	{Taylor, "those on which the outputs hardly depend, by gradients", seesSlopes, func(f *fitter, l *layer, s *obs.Solver, sparsity float64) (*edit, error) {
		return f.steep(l, s.W, sparsity)
	}, nil, false, func(l *layer) []float32 { return l.taylor(l.weights) }},
	{OBS, "those that the others can make up for", seesMoments, surgery(obs.Exact, exactWorks), exactWorks, true, powerful},
	{ALPS, "those that weights can do without which are drawn to the pattern little by little", seesMoments, surgery(obs.ALPS, alpsWorks), alpsWorks, true, powerful},
	{Gates, "those of the least probability to be of use, which gradients teach", seesMoments, surgery(obs.Exact, exactWorks), exactWorks, true, powerful},
}

// Methods lists the methods.
func Methods() []Method {
	var out []Method
	for i := range methods {
		out = append(out, methods[i].Method)
	}
	return out
}

// Doc says which weights go, and whether samples are needed for that.
func (m Method) Doc() (which string, samples bool) {
	row := (&Options{Method: m}).method()
	return row.doc, row.sees != seesNothing
}

// ParseMethod reads one of Methods.
func ParseMethod(s string) (Method, error) { return option.OneOf(option.Method, s, Methods()) }

// method is the row of a method that Check has found.
func (o *Options) method() *method {
	for i := range methods {
		if methods[i].Method == o.Method {
			return &methods[i]
		}
	}
	return nil
}

// rank is what the method ranks weights of different layers by.
func (f *fitter) rank(l *layer) []float32 {
	if r := f.method().rank; r != nil {
		return r(l)
	}
	return nil
}

// powerful is |w| times the root of its input's power, nil where that is not known.
func powerful(l *layer) []float32 {
	if l.power == nil {
		return nil
	}
	s := make([]float32, len(l.weights))
	for i, w := range l.weights {
		s[i] = float32(math.Abs(float64(w)) * math.Sqrt(l.power[i%l.cols]))
	}
	return s
}
