package spc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"time"

	"spc/backend"
	"spc/backend/cpu"
	"spc/backend/format"
	"spc/backend/measure"
	"spc/internal/atomicfile"
	"spc/internal/claims"
	"spc/internal/pace"
	"spc/internal/regular"
	"spc/ir"
	"spc/ir/option"
	"spc/ir/tensor"
	"spc/passes"
	"spc/passes/choose"
)

// TuneOptions say how formats are measured.
type TuneOptions struct {
	// Inputs makes inputs of such shapes, by their names. Their values matter where they decide how much is computed.
	Inputs func(shapes map[string][]int) (map[string]*tensor.Tensor, error)
	Budget time.Duration // for all of it; 0 for DefaultTuneBudget
	Forms  int           // of a weight that are measured beside dense; 0 for 4
	// Timings, where it is set, is a file of what was measured, which is made where there is none: what it has is not measured again, also
	// of other models. It is an error where it is damaged, or of another machine or build of the program, unless Anew is set, which
	// replaces it.
	Timings string
	Anew    bool
	// Progress and Plan are those of CompileOptions.
	Progress func(stage string, done, total int)
	Plan     func(stages []Stage)
}

// DefaultTuneBudget is how long Tune takes at most unless it is told otherwise, but for a model that takes longer to be made
// ready.
const DefaultTuneBudget = 60 * time.Second

// Tuned says how a model was tuned.
type Tuned struct {
	CPU      string  `json:"cpu,omitempty"`
	Threads  int     `json:"threads"`
	Seconds  float64 `json:"seconds"`
	Measured int     `json:"measured"` // uses of weights with several forms that were measured
	Known    int     `json:"known"`    // of which all was known from before
	// Places are the shapes of inputs on which whole programs ran.
	Places []TunedPlace `json:"places"`
	// Kept is the program that was: "measured", in which each weight has the form that was measured to be the fastest, "predicted" or
	// "dense".
	Kept string `json:"kept"`
	// Why says why nothing was measured, where the budget did not suffice; the program is then the predicted one.
	Why string `json:"why,omitempty"`
	// Hints are what was measured and known, so that on the same machine the model is not measured again.
	Hints *measure.Record `json:"hints,omitempty"`
}

// TunedPlace is what whole programs took on inputs of some shapes: medians of runs in turns.
type TunedPlace struct {
	Shapes      map[string][]int `json:"shapes"`
	DenseMs     float64          `json:"dense_ms"`
	PredictedMs float64          `json:"predicted_ms"`
	MeasuredMs  float64          `json:"measured_ms"`
}

// TuneStages plans Tune.
func TuneStages(budget time.Duration) []Stage {
	if budget == 0 {
		budget = DefaultTuneBudget
	}
	return []Stage{pace.Even("tune", 1, budget.Seconds())}
}

// Tune chooses formats by what they take on the CPU of this machine, with the threads of the model's options, and returns the model with
// these. Dense and the forms of each weight that are predicted to be the fastest run in turns, in their places in the network, on
// inputs of sizes that stand for what open dimensions may be; a form wins over dense only where it is faster by more than the
// noise. In the end whole programs run: one with these forms, one with those by prediction, and one all dense, which wins ties and
// whenever another is slower on some of the inputs. The model itself stays as it is.
func (m *Model) Tune(ctx context.Context, o TuneOptions) (tuned *Model, err error) {
	if m.report.Options.Target != string(CPU) || m.options.Device != nil {
		return nil, option.Errorf("%v %s: what is measured is the CPU, want a model for %s", option.Target, m.report.Options.Target, CPU)
	}
	if f := m.report.Options.Format; f != choose.Auto {
		return nil, option.Errorf("%v %s: want %s, which leaves a choice", option.Format, f, choose.Auto)
	}
	release, err := m.hold()
	if err != nil {
		return nil, err
	}
	defer release()
	err = ir.Guard(func() (err error) {
		tuned, err = m.tune(ctx, &o)
		return err
	})
	return tuned, m.met(err)
}

// tuning is the state of Tune.
type tuning struct {
	*Model
	o       *TuneOptions
	context passes.Context
	plain   *ir.Graph // whose weights are constants
	places  []measure.Place
	known   *measure.Record // before
	end     time.Time
}

// measuring is the share of the budget for the forms of weights, the others being for whole programs.
const measuring = 0.65

func (m *Model) tune(ctx context.Context, o *TuneOptions) (*Model, error) {
	began := time.Now()
	if o.Budget == 0 {
		o.Budget = DefaultTuneBudget
	}
	t := &tuning{Model: m, o: o, end: began.Add(o.Budget)}
	if err := t.remember(); err != nil {
		return nil, err
	}
	if err := t.prepare(); err != nil {
		return nil, err
	}
	predicted, predictedLayers, err := t.choose(nil, choose.Auto)
	if err != nil {
		return nil, err
	}
	dense, denseLayers, err := t.choose(nil, choose.Dense)
	if err != nil {
		return nil, err
	}
	ms := measure.Measurement{
		Graph: t.plain, Layers: predictedLayers, Places: t.places, Load: t.load, Threads: t.threads(), Known: t.known, Most: o.Forms,
		Until: time.Now().Add(time.Duration(measuring * float64(time.Until(t.end)))),
	}
	if o.Progress != nil {
		ms.Progress = func(done, total int) { o.Progress("tune", done, total) }
	}
	timings, err := ms.Run(ctx)
	if errors.Is(err, measure.ErrBudget) {
		return t.finish(predicted, predictedLayers, &Tuned{CPU: cpu.Model(), Threads: t.threads(), Kept: "predicted", Why: err.Error()})
	}
	if err != nil {
		return nil, err
	}
	measured, measuredLayers, err := t.choose(timings.Of, choose.Auto)
	if err != nil {
		return nil, err
	}
	programs := []program{{"dense", dense, denseLayers}, {"measured", measured, measuredLayers}, {"predicted", predicted, predictedLayers}}
	if sameForms(measuredLayers, predictedLayers) {
		programs = programs[:2]
		if sameForms(measuredLayers, denseLayers) {
			programs = programs[:1]
		}
	}
	verdict, hints, err := t.judge(ctx, programs, ms.Places, timings)
	if err != nil {
		return nil, err
	}
	kept := programs[verdict.Best]
	told := &Tuned{CPU: cpu.Model(), Threads: t.threads(), Measured: timings.Measured, Known: timings.Known, Kept: kept.name, Hints: hints}
	for i := range verdict.Ms[0] {
		at := TunedPlace{Shapes: map[string][]int{}, DenseMs: verdict.Ms[0][i], MeasuredMs: verdict.Ms[min(1, len(programs)-1)][i], PredictedMs: verdict.Ms[len(programs)-1][i]}
		for k, v := range m.graph.Inputs {
			at.Shapes[v.Name] = ms.Places[i].Shapes[k]
		}
		told.Places = append(told.Places, at)
	}
	told.Seconds = math.Round(time.Since(began).Seconds()*10) / 10
	if kept.name != "measured" {
		kept.layers = t.keptOf(kept, measuredLayers)
	}
	return t.finish(kept.graph, kept.layers, told)
}

// judge finds the program to keep, and what is known in the end.
func (t *tuning) judge(ctx context.Context, programs []program, places []measure.Place, timings *measure.Timings) (*measure.Verdict, *measure.Record, error) {
	graphs, layers := make([]*ir.Graph, len(programs)), make([][]Layer, len(programs))
	for i, p := range programs {
		graphs[i], layers[i] = p.graph, p.layers
	}
	fresh := &measure.Record{Version: t.known.Version, Machine: t.known.Machine, Entries: timings.Fresh()}
	key := measure.Key(timings.Problems(), layers, places)
	verdict := t.known.Verdict(key)
	if verdict == nil || len(verdict.Ms) != len(programs) || len(verdict.Ms[0]) > len(places) {
		var err error
		if verdict, err = measure.Judge(ctx, graphs, places, t.end, t.load); err != nil {
			return nil, nil, err
		}
		fresh.Programs = []measure.Program{{Key: key, Verdict: *verdict}}
	}
	if t.o.Timings != "" && (fresh.Entries != nil || fresh.Programs != nil) {
		all := *t.known
		all.Add(fresh)
		claims.Update(t.o.Timings)
		if err := atomicfile.Write(t.o.Timings, all.Write); err != nil {
			return nil, nil, err
		}
	}
	hints := t.known.Of(timings.Problems(), key)
	hints.Add(fresh)
	return verdict, hints, nil
}

// remember finds what is known of this machine.
func (t *tuning) remember() error {
	id, err := cpu.Machine()
	if err != nil {
		return err
	}
	t.known = &measure.Record{Version: measure.RecordVersion, Machine: id}
	if told := t.report.Tuned; told != nil && told.Hints != nil && told.Hints.Check(id) == nil {
		t.known.Add(told.Hints)
	}
	if t.o.Timings == "" || t.o.Anew {
		return nil
	}
	r, err := readTimings(t.o.Timings, id)
	if err != nil {
		return option.Errorf("%v %s: %v", option.Timings, t.o.Timings, err)
	}
	t.known.Add(r)
	return nil
}

// mostTimings bounds the bytes of a file of timings.
const mostTimings = 64 << 20

// readTimings reads a file of timings, nil where there is none.
func readTimings(path, id string) (*measure.Record, error) {
	f, size, err := regular.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > mostTimings {
		return nil, fmt.Errorf("%d bytes, want at most %d: %w", size, mostTimings, ErrCorrupt)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	return measure.ReadRecord(b, id)
}

// CheckTimings says what is wrong with a file of timings; nil where there is none.
func CheckTimings(path string) error {
	id, err := cpu.Machine()
	if err == nil {
		_, err = readTimings(path, id)
	}
	return err
}

// program is a graph in which formats were chosen in some way.
type program struct {
	name   string
	graph  *ir.Graph
	layers []Layer
}

// sameForms reports whether two choices are one.
func sameForms(a, b []Layer) bool {
	return slices.EqualFunc(a, b, func(a, b Layer) bool { return a.Format == b.Format && a.Config == b.Config })
}

// threads is the number that runs have.
func (t *tuning) threads() int {
	if t.options.Threads > 0 {
		return t.options.Threads
	}
	return cpu.Cores()
}

// prepare finds the weights as constants, how formats are chosen for them, and inputs.
func (t *tuning) prepare() error {
	t.plain = t.graph.Clone()
	for _, u := range t.plain.WeightUses() {
		v := u.Value
		if v.Store == nil {
			continue
		}
		w, err := format.Unpack(v.Store, v.Type)
		if err != nil {
			return u.Node.Errorf(ErrCorrupt, "weight %s: %v", v.Name, err)
		}
		v.Const, v.Store = w, nil
	}
	c := &t.context
	c.Formats, c.Model = CPU.formats()
	c.Choose.OneFormat = t.report.Options.OneFormat
	for _, l := range t.report.Layers {
		if dt, err := tensor.ParseDType(l.DType); err == nil && (dt == tensor.F16 || dt == tensor.BF16) {
			c.Choose.Half = dt
		}
	}
	c.Choose.Sizes = map[string]Sizes{}
	for _, o := range t.report.Open {
		if o.Name != "" {
			c.Choose.Sizes[o.Name] = o.Sizes
		}
	}
	for _, at := range choose.Places(t.plain, c.Choose.Sizes) {
		shapes := map[string][]int{}
		for i, v := range t.graph.Inputs {
			shapes[v.Name] = at.Shapes[i]
		}
		in, err := t.o.Inputs(shapes)
		if err != nil {
			return err
		}
		p := measure.Place{Place: at, In: make([]*tensor.Tensor, len(t.graph.Inputs))}
		if err := arrange(t.graph, p.In, in); err != nil {
			return err
		}
		t.places = append(t.places, p)
	}
	if len(t.places) == 0 {
		return option.Errorf("%v: those of the inputs are not known, want sizes for all of their dimensions", option.Shapes)
	}
	return nil
}

// choose returns a graph in which formats are chosen, by times where some were measured, and the layers of its report.
func (t *tuning) choose(times func(number int, f choose.Form, n int, predicted float64) choose.Timing, wanted string) (*ir.Graph, []Layer, error) {
	g, c := t.plain.Clone(), t.context
	c.Choose.Times, c.Choose.Format = times, wanted
	err := passes.Choose(&c, g)
	return g, c.Report.Layers, err
}

func (t *tuning) load(g *ir.Graph) (backend.Program, error) {
	return cpu.Device{}.Load(g, backend.Options{Threads: t.options.Threads, Checked: true, Lowering: t.lowering})
}

// keptOf are the layers of a program that whole programs say is kept, though each weight by itself would have another form, with what was
// measured.
func (t *tuning) keptOf(p program, measured []Layer) []Layer {
	for i := range p.layers {
		l, m := &p.layers[i], &measured[i]
		if m.Candidates == nil || l.Format == m.Format && l.Config == m.Config {
			*l = *m
			continue
		}
		var own []Candidate // where measuring did not find the pair that was predicted
		for _, c := range l.Candidates {
			if c.Chosen && !slices.ContainsFunc(m.Candidates, func(o Candidate) bool { return o.Format == c.Format && o.Config == c.Config }) {
				own = append(own, c)
			}
		}
		l.Candidates = append(own, m.Candidates...)
		for j := range l.Candidates {
			c := &l.Candidates[j]
			switch c.Chosen = c.Format == l.Format && c.Config == l.Config; {
			case c.Chosen:
				c.Why = "chosen"
			case c.Why == "chosen":
				c.Why = "the fastest by itself, but whole programs were measured to be faster without"
			}
		}
		l.Reason = fmt.Sprintf("kept %s: whole programs were measured, and the %s one was the fastest", l.Format, p.name)
	}
	return p.layers
}

// finish makes the model of a graph whose formats are chosen.
func (t *tuning) finish(g *ir.Graph, layers []Layer, told *Tuned) (*Model, error) {
	out := &Model{graph: g, meta: t.meta, masks: t.masks}
	if err := out.use(t.options); err != nil {
		return nil, err
	}
	r := t.report
	r.Layers, r.Tuned, r.Totals, r.Nodes = layers, told, Totals{}, map[string]int{}
	r.finish(g)
	out.report = r
	if err := out.prepare(); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}
