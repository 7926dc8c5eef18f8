package spc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"spc/internal/pace"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/option"
	"spc/ir/tensor"
	"spc/passes"
	"spc/passes/budget"
	"spc/passes/calib"
	"spc/passes/fit"
	"spc/passes/prune"
	"spc/passes/quant"
)

// Budget says what a compiled model may take and lose. What is zero asks for nothing.
type Budget struct {
	Speedup float64       `json:"speedup,omitempty"`  // over the model compiled dense, in floats
	Latency time.Duration `json:"latency,omitempty"`  // of a run
	Size    int64         `json:"size,omitempty"`     // bytes of the .spx
	FLOPs   float64       `json:"flops,omitempty"`    // the share of the multiply-adds of products that is left
	MaxDrop *float64      `json:"max_drop,omitempty"` // points, see BudgetOptions.Evaluate; nil for any number
}

// BudgetOptions say how a model is found that meets a budget.
type BudgetOptions struct {
	Budget
	// Patterns are those that layers may have; by default uniform and uniform-block:4x1, and of weights of 8-bit integers uniform-block:1x4, which there
	// are kernels for.
	Patterns []Pattern
	// Mixed leaves it to the budget which layers are in 8-bit integers, as CompileOptions.Quantize says, of I8, and which in floats. Patterns are those of floats,
	// and, where they are given, of integers, too; by default these have uniform-block:1x4.
	Mixed bool
	// Inputs makes the inputs on which times are measured: of one sample, where nobody says how many they are.
	Inputs func(ports []Port) (map[string]*tensor.Tensor, error)
	// Evaluate scores a model on samples that calibration does not see, in the same order every time: each sample in points, of which more
	// are better, so that a mean of 100 is all that can be right. Where it is nil, points are hundredths of a nat of divergence
	// from the dense model on a quarter of the calibration's runs, which nothing else sees then.
	Evaluate func(ctx context.Context, m *Model) ([]float64, error)
	// Front is how many combinations, from the dense one to the fastest, are built and measured for BudgetReport.Front, fewer where there
	// are no more of which each is faster and loses more than the one before; 0 for none.
	Front int
	// Search is how many combinations the search compares for each target, 0 for 64, none where it is below 0.
	Search int
	// Tell is called before the long part begins, with what is predicted and the seconds that it may take.
	Tell func(front []BudgetPoint, seconds float64)
}

// BudgetPoint is a combination of choices for the layers, and what is known of it.
type BudgetPoint struct {
	Layers []string `json:"layers,omitempty"` // as --layer names them
	// Of a budget that chooses types: how many weights are in 8-bit integers, and, where there are some, those that are kept from that, as --keep-float
	// names them beside none.
	Integers  int      `json:"integers,omitempty"`
	KeepFloat []string `json:"keep_float,omitempty"`
	// Small names the weights that are stored in the fewest bytes, where a size is limited, and not for the least time.
	Small     []string `json:"small,omitempty"`
	Sparsity  float64  `json:"sparsity"`     // of the prunable weights
	Predicted float64  `json:"predicted_ms"` // by the times of the layers alone
	// Divergence is that of the layers' entries in the database put together, before they are pruned one after another.
	Divergence float64 `json:"divergence"`
	Unit       string  `json:"unit,omitempty"` // of Divergence: calib.Nats, Variances or Either

	Ms      float64 `json:"ms,omitempty"`       // measured: the best of runs
	DenseMs float64 `json:"dense_ms,omitempty"` // of the dense model, in turns with these
	Speedup float64 `json:"speedup,omitempty"`  // the ratio of the two
	Median  float64 `json:"median_ms,omitempty"`
	// Bytes of the .spx, and the share of the multiply-adds of products that is left; until it is built, as its layers say.
	Size  int64   `json:"size,omitempty"`
	FLOPs float64 `json:"flops,omitempty"`
	Drop  *Drop   `json:"drop,omitempty"`
	Unmet []Unmet `json:"unmet,omitempty"` // what it does not meet of the budget
}

// Drop is how many points a model loses, in the mean over samples.
type Drop struct {
	Points float64 `json:"points"`
	Bound  float64 `json:"bound"` // above it lies the true mean with a probability of a tenth
	N      int     `json:"n"`     // samples
	Dense  float64 `json:"dense"` // the mean score of the dense model
}

// Unmet is a part of a budget that is exceeded.
type Unmet struct {
	What string  `json:"what"` // speedup, latency, size, flops or max-drop
	Want float64 `json:"want"`
	Have float64 `json:"have"`
}

// BudgetReport says how a budget was met.
type BudgetReport struct {
	Budget
	Types string `json:"types"` // that products have: f32, int8, fp16, bf16, or mixed, see BudgetOptions.Mixed
	// Judge is what points are of: "samples", or "divergence", of which they are hundredths of a nat on inputs of the calibration.
	Judge string `json:"judge"`
	// Amdahl is the speed-up of a model whose prunable products take no time.
	Amdahl float64       `json:"amdahl"`
	Tried  []BudgetPoint `json:"tried"` // the one that was taken is the last
	Front  []BudgetPoint `json:"front,omitempty"`
}

// BudgetError says that no program was found that meets a budget. It is an ErrUnmet.
type BudgetError struct {
	BudgetReport
	Nearest []BudgetPoint `json:"nearest"` // two at most
	// Quantised is the model without zeros in 8-bit integers, where products were to stay in floats and can be quantised.
	Quantised *BudgetPoint `json:"quantised,omitempty"`
	Why       string       `json:"why"`
}

// ErrUnmet is what a BudgetError wraps.
var ErrUnmet = errors.New("the budget cannot be met")

func (e *BudgetError) Error() string { return "the budget cannot be met: " + e.Why }

// Unwrap returns ErrUnmet.
func (e *BudgetError) Unwrap() error { return ErrUnmet }

// check reports options that make no sense.
func (b *BudgetOptions) check(o *CompileOptions) error {
	bad := func(n option.Name, v any, want string) error { return option.Errorf("%v %v: want %s", n, v, want) }
	switch {
	case b.Speedup != 0 && !(b.Speedup > 0 && b.Speedup <= 1e6):
		return bad(option.Speedup, b.Speedup, "a number above 0, such as 2")
	case b.Latency < 0:
		return bad(option.Latency, b.Latency, "a time above 0, such as 5ms")
	case b.Size < 0:
		return bad(option.Size, b.Size, "a size above 0, such as 10MB")
	case !(b.FLOPs >= 0 && b.FLOPs <= 1):
		return bad(option.FLOPs, b.FLOPs, "a share above 0 and at most 1")
	case b.MaxDrop != nil && !(*b.MaxDrop >= 0 && *b.MaxDrop < math.Inf(1)):
		return bad(option.MaxDrop, *b.MaxDrop, "points, 0 or more")
	case b.Front != 0 && (b.Front < 2 || b.Front > 100):
		return bad(option.Front, b.Front, "from 2 to 100 points")
	case o.Target != "" && o.Target != CPU:
		return option.Errorf("%v %s: budgets are measured on the CPU", option.Target, o.Target)
	case o.Calibration.Inputs == nil:
		return option.Errorf("a budget needs %v, samples that show what each layer loses", option.Calibration)
	case o.Size != 0:
		return option.Errorf("%v %d beside a budget, which has its own", option.FileSize, o.Size)
	case o.Prune.Sparsity != 0:
		return option.Errorf("%v %v beside a budget, which finds it", option.Sparsity, o.Prune.Sparsity)
	case o.Prune.Pattern != Pattern{}:
		return option.Errorf("%v %v beside a budget, which chooses among BudgetOptions.Patterns", option.Pattern, o.Prune.Pattern)
	case o.Prune.Allocate != "":
		return option.Errorf("%v %v beside a budget, which spreads zeros itself", option.Allocate, o.Prune.Allocate)
	case b.Mixed && o.Quantize.Type != tensor.I8:
		return option.Errorf("%v needs %v int8, which layers are in that are not in floats", option.Mixed, option.Quantize)
	case o.Quantize.codes():
		name, err := o.Quantize.word()
		return cmp.Or(err, option.Errorf("%v %s: a budget does not round weights alone to codes, want none, int8, fp16 or bf16 beside one", option.Quantize, name))
	case o.Debug.StopAfter != "" || len(o.Debug.Disable) > 0:
		return option.Errorf("%v or %v beside a budget, which measures whole programs", option.StopAfter, option.Passes)
	case b.Inputs == nil:
		return fmt.Errorf("BudgetOptions.Inputs is missing, which makes inputs: %w", ErrInvalid)
	}
	for _, p := range b.Patterns {
		if p.Removes() {
			return option.Errorf("%v %v: a budget chooses for each layer, and channels depend on each other", option.Pattern, p)
		}
		if p.Kind == prune.Depth {
			return option.Errorf("%v %v: a budget chooses for each layer, and branches go as a whole", option.Pattern, p)
		}
		if own, ok := p.OwnSparsity(); p.Kind == prune.Dense || ok && own == 0 {
			return option.Errorf("%v %v keeps every weight, and leaves a budget nothing to choose", option.Pattern, p)
		}
	}
	return nil
}

// timed reports whether times decide.
func (b *Budget) timed() bool {
	return b.Speedup > 0 || b.Latency > 0 || b.MaxDrop != nil && b.Size == 0 && b.FLOPs == 0
}

// limited reports whether anything but the drop is limited.
func (b *Budget) limited() bool { return b.Speedup > 0 || b.Latency > 0 || b.Size > 0 || b.FLOPs > 0 }

// CompileWithin compiles a model so that it meets a budget as it is measured on this machine's CPU with the threads of o.Run, and
// loses as little as it can. Each layer is made sparse by each of some patterns and shares of zeros, which gives a database of errors, times and bytes; of
// that a dynamic programme picks an entry for each layer, and an evolutionary search compares combinations by the
// outputs of the whole. What comes of it is pruned as Compile does, measured, and corrected until the budget is met.
// Where it is not the error is a BudgetError.
func CompileWithin(ctx context.Context, o CompileOptions, b BudgetOptions) (m *Model, err error) {
	o.Spool = "" // models share weights
	if b.Budget == (Budget{}) {
		return nil, fmt.Errorf("the budget is empty: %w", ErrInvalid)
	}
	_, m, err = within(ctx, o, b)
	return m, err
}

// Front builds and measures BudgetOptions.Front combinations, from the dense one to the fastest, as CompileWithin would for a budget.
func Front(ctx context.Context, o CompileOptions, b BudgetOptions) (*BudgetReport, error) {
	if b.Budget != (Budget{}) || b.Front == 0 {
		return nil, fmt.Errorf("a front has %d combinations and a budget %+v, want some and none: %w", b.Front, b.Budget, ErrInvalid)
	}
	r, _, err := within(ctx, o, b)
	return r, err
}

// within finds a model that meets the budget, where there is one, and the front that is asked for.
func within(ctx context.Context, o CompileOptions, b BudgetOptions) (*BudgetReport, *Model, error) {
	if err := b.check(&o); err != nil {
		return nil, nil, err
	}
	s := &sizing{o: o, b: b, all: o.Calibration.Inputs, cache: o.Calibration.Cache}
	s.o.Calibration.Cache = "" // which no model that is built reads
	s.b.Search = max(0, cmp.Or(b.Search, 64))
	if b.Evaluate == nil {
		s.o.Calibration.Inputs = heldInputs(o.Calibration.Inputs, false)
		s.o.Calibration.Identity += " but a quarter"
	}
	defer s.close()
	var found *Model
	err := ir.Guard(func() (err error) {
		found, err = s.run(ctx)
		return err
	})
	if err != nil && o.Model != "" && !errors.Is(err, ErrUnmet) {
		err = named(o.Model, err)
	}
	return &s.report, found, err
}

// named says of what model an error is, once.
func named(path string, err error) error {
	if text := err.Error(); len(text) > len(path) && text[:len(path)] == path {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// heldInputs yields those of samples that no search sees, or the others.
func heldInputs(all func(context.Context, []Port) iter.Seq2[map[string]*tensor.Tensor, error], held bool) func(context.Context, []Port) iter.Seq2[map[string]*tensor.Tensor, error] {
	return func(ctx context.Context, ports []Port) iter.Seq2[map[string]*tensor.Tensor, error] {
		return func(yield func(map[string]*tensor.Tensor, error) bool) {
			i := 0
			for in, err := range all(ctx, ports) {
				if err != nil || (i%4 == 3) == held {
					if !yield(in, err) || err != nil {
						return
					}
				}
				i++
			}
		}
	}
}

// sizing is the state of CompileWithin.
type sizing struct {
	o   CompileOptions
	b   BudgetOptions
	all func(context.Context, []Port) iter.Seq2[map[string]*tensor.Tensor, error] // of the calibration

	cache string // the file of the database, empty for none

	dense  *Model // in floats
	inputs map[string]*tensor.Tensor
	scores []float64 // of the dense model

	base  *fit.Base
	done  func() // ends what sees the samples
	costs costs

	rounder     *quant.Rounder // where the budget chooses types
	intPatterns []Pattern      // of integers, there
	slots       []slot         // of base.Layers, and of others that types are chosen for
	variants    []variant
	allInts     int // the variant of integers without zeros

	items [][]budget.Choice // of slots, by the effects of layers alone
	joint [][]budget.Choice // by those among others
	limit []float64         // of items' uses, as the budget says
	what  []string          // their names

	report BudgetReport
	other  bool // it looks for an alternative of another
	builds int
	build  float64 // the seconds that one is planned to take
	train  float64 // and those of its reconstruction
	judge  float64 // and those that what it loses takes to evaluate, and the divergence of a combination
	differ float64
}

func (s *sizing) close() {
	if s.dense != nil {
		s.dense.Close()
	}
	if s.done != nil {
		s.done()
	}
}

// step tells how far a stage is.
func (s *sizing) step(stage string, done, total int) {
	if s.o.Progress != nil {
		s.o.Progress(stage, done, total)
	}
}

// plain are the options of a compilation that is no stage by itself.
func (s *sizing) plain() CompileOptions {
	o := s.o
	o.Progress, o.Plan, o.Debug.DumpDir = nil, nil, ""
	o.Prune = PruneOptions{Keep: s.o.Prune.Keep, KeepNone: s.o.Prune.KeepNone, KeepEnds: s.o.Prune.KeepEnds, unjudged: true}
	return o
}

// compileDense compiles the model that others are compared with.
func (s *sizing) compileDense(ctx context.Context) (err error) {
	o := s.plain()
	o.Quantize, o.Calibration = QuantizeOptions{}, Calibration{}
	if s.dense, err = Compile(ctx, o); err != nil {
		return err
	}
	if s.inputs, err = s.b.Inputs(s.dense.Inputs()); err != nil {
		return err
	}
	// Formats are chosen for the sizes that are measured, where they have names and nobody says otherwise.
	open, sizes := maps.Clone(s.o.Open), s.measured()
	for _, d := range s.dense.report.Open {
		_, fixed := s.o.Dims[d.Name]
		if _, given := s.o.Open[d.Name]; d.Name != "" && !fixed && !given {
			if open == nil {
				open = map[string]Sizes{}
			}
			n := max(1, sizes[d.Name])
			open[d.Name] = Sizes{Only: []int{n}, From: n, To: n}
		}
	}
	if len(open) > len(s.o.Open) {
		s.dense.Close()
		s.o.Open, o.Open = open, open
		s.dense, err = Compile(ctx, o)
	}
	return err
}

// measured are the sizes that symbols of the dense model have in the inputs on which times are measured.
func (s *sizing) measured() map[string]int {
	sizes := map[string]int{}
	for _, p := range s.dense.Inputs() {
		x := s.inputs[p.Name]
		if x == nil || !p.Ranked || x.Rank() != len(p.Dims) {
			continue
		}
		for i, d := range p.Dims {
			sizes[d.Symbol()] = x.Dim(i)
		}
	}
	return sizes
}

// patterns settles the patterns that layers may have.
func (s *sizing) patterns() {
	if len(s.b.Patterns) == 0 {
		integers := []Pattern{{Kind: UniformBlock, R: 1, C: 4}}
		s.b.Patterns = []Pattern{{Kind: Uniform}, {Kind: UniformBlock, R: 4, C: 1}}
		if s.o.Quantize.Type == tensor.I8 && !s.b.Mixed || s.integers() {
			s.b.Patterns = integers
		}
		s.intPatterns = integers
	} else {
		s.intPatterns = s.b.Patterns
	}
	if len(s.b.Patterns) > 1 {
		return
	}
	s.o.Prune.Layers = slices.Clone(s.o.Prune.Layers) // whose share of zeros is given
	for i := range s.o.Prune.Layers {
		if l := &s.o.Prune.Layers[i]; l.Pattern == nil {
			l.Pattern = &s.b.Patterns[0]
		}
	}
}

// integers reports whether the model comes with weights of 8-bit integers.
func (s *sizing) integers() bool { return slices.ContainsFunc(s.dense.report.Layers, ofIntegers) }

// ofIntegers reports whether a layer's weights are 8-bit integers.
func ofIntegers(l Layer) bool { return l.DType == tensor.I8.String() || l.DType == tensor.U8.String() }

// choices are those of each layer.
func (s *sizing) choices() (list []fit.Choice) {
	patterns := slices.Clone(s.b.Patterns)
	for _, p := range s.intPatterns {
		if s.b.Mixed && !slices.Contains(patterns, p) {
			patterns = append(patterns, p)
		}
	}
	for _, p := range patterns {
		if own, ok := p.OwnSparsity(); ok {
			list = append(list, fit.Choice{Pattern: p, Sparsity: own})
			continue
		}
		least := p.LeastSparsity()
		if least > 0 {
			list = append(list, fit.Choice{Pattern: p, Sparsity: least})
		}
		for _, x := range sparsities {
			if x > least {
				list = append(list, fit.Choice{Pattern: p, Sparsity: x})
			}
		}
	}
	return list
}

// sparsities are those of the database.
var sparsities = []float64{0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95}

// run finds a model.
func (s *sizing) run(ctx context.Context) (*Model, error) {
	s.report.Budget = s.b.Budget
	var err error
	if s.report.Types, err = s.o.Quantize.word(); err != nil {
		return nil, err
	}
	switch {
	case s.b.Mixed:
		s.report.Types = "mixed"
	case s.report.Types == "none":
		s.report.Types = "f32"
	}
	if s.report.Judge = "samples"; s.b.Evaluate == nil {
		s.report.Judge = "divergence"
	}
	if s.o.Plan != nil {
		s.o.Plan(s.stages())
	}
	s.step("dense", 0, 1)
	if err := s.compileDense(ctx); err != nil {
		return nil, err
	}
	s.patterns()
	s.step("evaluate", 0, 1)
	began := time.Now()
	if s.scores, err = s.evaluate(ctx, s.dense); err != nil {
		return nil, err
	}
	s.judge = time.Since(began).Seconds()
	list := s.choices()
	if err := s.database(ctx, list); err != nil {
		return nil, err
	}
	if err := s.know(ctx); err != nil {
		return nil, err
	}
	if err := s.base.Effects(ctx); err != nil {
		return nil, err
	}
	if err := s.roundings(ctx); err != nil {
		return nil, err
	}
	if err := s.base.Save(); err != nil {
		return nil, err
	}
	front, err := s.front(ctx)
	if err != nil {
		return nil, err
	}
	if s.b.Tell != nil {
		told := s.thinned(front, max(frontPoints, s.b.Front))
		points := make([]BudgetPoint, len(told))
		for i, p := range told {
			points[i] = s.point(p.pick, p.divergence)
		}
		s.b.Tell(points, pace.Whole(s.building()))
	}
	if s.b.Front > 0 {
		if err := s.walk(ctx, front); err != nil {
			return nil, err
		}
		if s.b.Budget == (Budget{}) {
			return nil, nil
		}
	}
	if s.b.limited() {
		return s.reach(ctx, front)
	}
	return s.fastest(ctx, front)
}

// planned is how many models are built at most.
func (s *sizing) planned() int {
	n := s.b.Front
	if s.b.limited() {
		n += mostTries
		if s.drafts() {
			n++
		}
	} else if s.b.MaxDrop != nil {
		n += s.fineness()
	}
	return n
}

// building plans the models that may still be built.
func (s *sizing) building() []Stage {
	n := s.planned() - s.builds
	if n <= 0 {
		return nil
	}
	each, last := s.build+s.train, 0.0
	if s.drafts() && s.b.limited() && s.b.Front == 0 {
		each, last = s.build, s.train
	}
	stage := pace.Even("candidates", n, each+s.measuring(false))
	stage.Rest = last
	return []Stage{stage}
}

// measuring is the seconds that it takes to measure a model.
func (s *sizing) measuring(draft bool) float64 {
	if draft || s.drafts() && s.b.limited() && s.b.Front == 0 {
		return sittings * sittingSeconds
	}
	return sittings*sittingSeconds + s.judge
}

// ahead has what is next planned in front of the models that may still be built.
func (s *sizing) ahead(next ...Stage) {
	if s.o.Plan != nil {
		s.o.Plan(append(next, s.building()...))
	}
}

// stages plans the work roughly; what it takes corrects that.
func (s *sizing) stages() []Stage {
	n := cmp.Or(len(s.choices()), 2*len(sparsities)) // which are not settled yet by default
	if s.b.Mixed {                                   // in integers, too
		n = 3*n/2 + 3
	}
	list := []Stage{
		pace.Even("dense", 1, 1), pace.Even("database", 50, 2), pace.Even("times", n, 1), pace.Even("effects", 50, 0.5),
		pace.Even("effects together", 50, 1), pace.Even("compare", 24, 1), pace.Even("candidates", max(1, s.planned()), 30),
	}
	if s.b.Mixed {
		list = slices.Insert(list, 4, pace.Even("rounding", 50, 1))
		list = slices.Insert(list, 6, pace.Even("rounding together", 50, 1))
	}
	return list
}

// before returns the graph as pruning finds it, and the options of passes.
func (s *sizing) before(ctx context.Context) (g *ir.Graph, pc *passes.Context, done func(), err error) {
	c := s.o
	c.Prune.Sparsity, c.Prune.Layers, c.Prune.Allocate = 0.5, s.o.Prune.Layers, PerLayer
	c.Debug = DebugOptions{}
	seen, done := observer(&c, nil)
	defer func() {
		if err != nil {
			done()
		}
	}()
	if pc, err = c.passContext(seen); err != nil {
		return nil, nil, done, err
	}
	g, info, err := (&ImportOptions{c.Model, c.Bytes, c.Shapes, c.Dims}).read(onnx.Options{})
	if err != nil {
		return nil, nil, done, err
	}
	if pc.Choose.Sizes, err = c.open(g, info); err != nil {
		return nil, nil, done, err
	}
	if err = passes.Before(ctx, pc, g, "prune"); err == nil {
		_, err = quant.Widen(g) // as pruning begins with
	}
	return g, pc, done, err
}

// database makes the entries of all layers, or reads them.
func (s *sizing) database(ctx context.Context, list []fit.Choice) error {
	g, pc, done, err := s.before(ctx)
	if err != nil {
		return err
	}
	s.done = done
	o := pc.Prune
	s.train = pace.Whole(o.Stages(g))
	bare := o
	bare.Reconstruct = nil
	s.build = pace.Whole(bare.Stages(g))
	s.train -= s.build
	o.Cache = s.cache
	if s.base, err = fit.NewBase(ctx, g, o, list); err != nil {
		return err
	}
	if err := s.observeTypes(ctx, g, pc.Quant); err != nil {
		return err
	}
	s.arrange(list)
	return nil
}

// price makes the items of the programme: losses by the effects of layers as they are known, and what entries take.
func (s *sizing) price() [][]budget.Choice {
	s.what, s.limit = nil, nil
	b := &s.b.Budget
	var use []func(k, e int) float64
	add := func(what string, limit float64, of func(k, e int) float64) {
		s.what, s.limit, use = append(s.what, what), append(s.limit, limit), append(use, of)
	}
	if b.timed() || !b.limited() || b.MaxDrop != nil || s.b.Front > 0 {
		limit := math.Inf(1)
		if b.Speedup > 0 {
			limit = s.costs.dense / b.Speedup
		}
		if b.Latency > 0 {
			limit = min(limit, b.Latency.Seconds())
		}
		add("time", limit-s.costs.restTime, func(k, e int) float64 { return s.costs.time[k][e] })
	}
	if b.Size > 0 {
		add("size", float64(b.Size)-s.costs.restBytes, func(k, e int) float64 { return s.costs.bytes[k][e] })
	}
	if b.FLOPs > 0 {
		add("flops", b.FLOPs*s.denseWork()-s.costs.restWork, s.work)
	}
	return s.choicesOf(use)
}

// denseWork is the multiply-adds of a sample in the model that others are compared with.
func (s *sizing) denseWork() (work float64) {
	for _, l := range s.dense.report.Layers {
		work += float64(l.Nonzeros) * float64(max(1, l.N))
	}
	return work
}

// work is the multiply-adds that a form leaves of a layer.
func (s *sizing) work(k, i int) float64 {
	l := s.slots[k].layer
	if l == nil {
		return s.costs.work[k]
	}
	return s.costs.work[k] * float64(l.Weights-l.Entries[s.slots[k].forms[i].entry].Zeros) / float64(max(1, l.Weights-l.Entries[0].Zeros))
}

// combination is a form for each slot.
type combination struct {
	pick       []int
	divergence float64
}

// frontPoints is how many combinations a front has at least.
const frontPoints = 12

// fineness is how many a front has: for a drop twice as many, of which the last is looked for that loses little enough.
func (s *sizing) fineness() int {
	if s.b.MaxDrop != nil {
		return max(2*frontPoints, s.b.Front)
	}
	return max(frontPoints, s.b.Front)
}

// front are combinations from the dense one to the fastest, with what they diverge: those that the effects of layers alone suggest, and those among
// others, without those than which another is faster and diverges no more.
func (s *sizing) front(ctx context.Context) ([]combination, error) {
	s.items = s.price()
	n := s.fineness()
	alone := budget.Front(s.items, n)
	middle := alone[len(alone)/2]
	if err := s.base.Among(ctx, s.entries(middle), s.round(s.integerWeights(middle))); err != nil {
		return nil, err
	}
	if err := s.roundingsAmong(ctx, middle); err != nil {
		return nil, err
	}
	s.joint = s.price()
	var list []combination
	picks := slices.Concat([][]int{make([]int, len(s.items))}, alone[1:], budget.Front(s.joint, n)[1:])
	began := time.Now()
	for i, p := range picks {
		s.step("compare", i, len(picks))
		d, err := s.divergence(ctx, p)
		if err != nil {
			return nil, err
		}
		list = append(list, combination{p, d})
	}
	s.differ = time.Since(began).Seconds() / float64(len(picks))
	slices.SortStableFunc(list, func(a, b combination) int {
		return cmp.Or(cmp.Compare(s.uses(b.pick), s.uses(a.pick)), cmp.Compare(b.divergence, a.divergence))
	})
	var out []combination
	for _, c := range list { // the slowest first
		for len(out) > 1 && out[len(out)-1].divergence >= c.divergence {
			out = out[:len(out)-1]
		}
		if len(out) == 0 || s.uses(c.pick) < s.uses(out[len(out)-1].pick) {
			out = append(out, c)
		}
	}
	return s.thinned(out, n), nil
}

// thinned are n of a front, well spread, with both ends.
func (s *sizing) thinned(list []combination, n int) (out []combination) {
	var uses, losses []float64
	for _, c := range list {
		uses, losses = append(uses, s.uses(c.pick)), append(losses, c.divergence)
	}
	for _, i := range budget.Spread(uses, losses, n) {
		out = append(out, list[i])
	}
	return out
}

// uses is how much of the first limited thing a combination takes.
func (s *sizing) uses(pick []int) float64 { return budget.Uses(s.items, pick)[0] }

// seconds is what the layers alone say that a combination takes.
func (s *sizing) seconds(pick []int) float64 {
	t := s.costs.restTime
	for k, e := range pick {
		t += s.costs.time[k][e]
	}
	return t
}

// point describes a combination.
func (s *sizing) point(pick []int, divergence float64) BudgetPoint {
	p := BudgetPoint{Predicted: digits3(1e3 * s.seconds(pick)), Divergence: digits3(min(divergence, math.MaxFloat32)), Unit: calib.NewDivergence(s.dense.graph).Unit()}
	zeros, all := 0, 0
	for k, e := range s.entries(pick) {
		zeros, all = zeros+s.base.Layers[k].Entries[e].Zeros, all+s.base.Layers[k].Weights
	}
	p.Sparsity = float64(zeros) / float64(max(all, 1))
	bytes, work := s.costs.restBytes, s.costs.restWork
	for k, i := range pick {
		bytes, work = bytes+s.costs.bytes[k][i], work+s.work(k, i)
	}
	p.Size, p.FLOPs = int64(bytes), work/max(s.denseWork(), 1)
	for _, l := range s.layers(pick) {
		p.Layers = append(p.Layers, l.String())
	}
	if integers := s.integerWeights(pick); len(integers) > 0 {
		p.Integers = len(integers)
	}
	p.Small = s.smallWeights(pick)
	return p
}

// layers are the options that make a model a combination.
func (s *sizing) layers(pick []int) (list []LayerSparsity) {
	for _, t := range s.base.Targets(s.entries(pick)) {
		list = append(list, LayerSparsity{t.Glob.String(), t.Sparsity, t.Pattern})
	}
	return list
}
