package spc

import (
	"cmp"
	"context"
	"crypto/sha256"
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
	Forms  int           // of a weight that are measured beside dense; 0 for 4, or 10 where the budget allows
	// Timings, where it is set, is a file of what was measured, which is made where there is none: what it has is not measured again, also
	// of other models. It is an error where it is damaged, or of another machine or build of the program.
	Timings string
	// Anew: everything is measured again, and takes the place of what Timings has of it, or of all where that is damaged or of another machine
	// or build. It is an error where it is no file of timings.
	Anew bool
	// Progress and Plan are those of CompileOptions; the plan is TuneStages.
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
	// Why says why nothing was measured, as where the budget did not suffice; the program is then the predicted one, or the one that was
	// tuned before.
	Why string `json:"why,omitempty"`
	// Unkept says why what was measured could not be written into the file of timings.
	Unkept string `json:"unkept,omitempty"`
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
	return []Stage{pace.Even("tune", tuneSteps, budget.Seconds()/tuneSteps)}
}

// tuneSteps is the number of steps of the stage.
const tuneSteps = 100

// Tune chooses formats by what they take on the CPU of this machine, with the threads of the model's options, and returns the model with
// these. Dense and the forms of each weight that are predicted to be the fastest run in turns, in their places in the network, on
// inputs of sizes that stand for what open dimensions may be; a form wins over dense only where it is faster by more than the
// noise. In the end whole programs run: one with these forms, one with those by prediction, and one all dense, which wins ties and
// whenever another is slower on some of the inputs. The model itself stays as it is.
func (m *Model) Tune(ctx context.Context, o TuneOptions) (tuned *Model, err error) {
	if m.report.Options.Target != string(CPU) || m.options.Device != nil {
		return nil, option.Errorf("%v %s: what is measured is the CPU, want a model for %s", option.Target, m.report.Options.Target, CPU)
	}
	if b := m.report.Budget; b != nil && len(b.Tried) > 0 {
		if n := len(b.Tried[len(b.Tried)-1].Small); n > 0 {
			return nil, option.Errorf("%v %d: %d weights are stored in the fewest bytes for that, which to tune would undo", option.Size, b.Size, n)
		}
	}
	if n := m.report.Options.Size; n > 0 {
		return nil, option.Errorf("%v %d, for which formats were chosen: to tune would undo that", option.FileSize, n)
	}
	if f := m.report.Options.Format; f != choose.Auto {
		return nil, option.Errorf("%v %s: want %s, which leaves a choice", option.Format, f, choose.Auto)
	}
	if o.Inputs == nil {
		return nil, fmt.Errorf("TuneOptions.Inputs is missing, which makes inputs: %w", ErrInvalid)
	}
	if o.Forms < 0 || o.Budget < 0 {
		return nil, fmt.Errorf("TuneOptions: %d forms in %v, want none below 0: %w", o.Forms, o.Budget, ErrInvalid)
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
	known   *measure.Record
	told    *Tuned

	began, end time.Time
}

// measuring is the share of the budget for the forms of weights, the others being for whole programs.
const measuring = 0.65

func (m *Model) tune(ctx context.Context, o *TuneOptions) (*Model, error) {
	if o.Budget == 0 {
		o.Budget = DefaultTuneBudget
	}
	if o.Plan != nil {
		o.Plan(TuneStages(o.Budget))
	}
	t := &tuning{Model: m, o: o, began: time.Now()}
	t.end = t.began.Add(o.Budget)
	t.told = &Tuned{CPU: cpu.Model(), Threads: t.threads(), Kept: "predicted"}
	if err := t.remember(); err != nil {
		return nil, err
	}
	if err := t.prepare(); err != nil {
		return nil, err
	}
	predicted, err := t.choose("predicted", nil, choose.Auto)
	if err != nil {
		return nil, err
	}
	if len(t.places) == 0 {
		return t.unmeasured(predicted, cmp.Or(t.told.Why, "no sizes of the inputs go together with the model"))
	}
	t.told.Why = ""
	ms := measure.Measurement{
		Graph: t.plain, Layers: predicted.layers, Places: t.places, Load: t.load, Threads: t.threads(), Most: o.Forms, Known: t.known, Step: t.step,
		Cache: t.report.Options.CPU().Next.Bytes,
		Until: time.Now().Add(time.Duration(measuring * float64(time.Until(t.end)))),
	}
	timings, err := ms.Run(ctx)
	if errors.Is(err, measure.ErrBudget) {
		return t.unmeasured(predicted, err.Error())
	}
	if err != nil {
		return nil, err
	}
	t.told.Measured, t.told.Known = timings.Measured, timings.Known
	t.keep(&measure.Record{Entries: timings.Fresh()})
	t.told.Hints = t.known.Of(timings.Problems(), "")
	measured, err := t.choose("measured", timings.Of, choose.Auto)
	if err != nil {
		return nil, err
	}
	dense, err := t.choose("dense", nil, choose.Dense)
	if err != nil {
		return nil, err
	}
	all := []program{dense, measured, predicted}
	var programs []program // those that differ
	for i, p := range all {
		all[i].at = slices.IndexFunc(programs, func(q program) bool { return sameForms(p.layers, q.layers) })
		if all[i].at < 0 {
			all[i].at = len(programs)
			programs = append(programs, p)
		}
	}
	if len(programs) == 1 { // there is nothing to compare
		t.told.Kept = "dense"
		return t.finish(measured)
	}
	kept, err := t.judge(ctx, all, programs, timings.Problems())
	if err != nil {
		return nil, err
	}
	if kept.name != "measured" {
		kept.layers = t.keptOf(kept, measured.layers)
	}
	return t.finish(kept)
}

// unmeasured is the model where nothing was measured, for some reason: as it was tuned before, else as it is predicted.
func (t *tuning) unmeasured(predicted program, why string) (*Model, error) {
	if was := t.report.Tuned; was != nil && was.Measured+was.Known > 0 {
		*t.told = *was
		t.told.Unkept = ""
		predicted = program{graph: t.graph.Clone(), layers: t.report.Layers}
	}
	t.told.Why = why
	return t.finish(predicted)
}

// step tells the progress: how much of the budget has gone.
func (t *tuning) step() {
	if t.o.Progress != nil {
		t.o.Progress("tune", min(tuneSteps-1, int(tuneSteps*time.Since(t.began)/t.o.Budget)), tuneSteps)
	}
}

// judge finds the program to keep, of those dense, by measurement and by prediction, among those of them that differ.
func (t *tuning) judge(ctx context.Context, all, programs []program, problems [][]string) (program, error) {
	graphs, layers := make([]*ir.Graph, len(programs)), make([][]Layer, len(programs))
	for i, p := range programs {
		graphs[i], layers[i] = p.graph, p.layers
	}
	key := measure.Key(problems, layers, t.places)
	verdict := t.known.Verdict(key)
	if verdict == nil || len(verdict.Ms) != len(programs) || len(verdict.Ms[0]) > len(t.places) {
		var err error
		if verdict, err = measure.Judge(ctx, graphs, t.places, t.end, t.report.Options.CPU().Next.Bytes, t.load, t.step); err != nil {
			return program{}, err
		}
		t.keep(&measure.Record{Programs: []measure.Program{{Key: key, Verdict: *verdict}}})
	}
	for i := range verdict.Ms[0] {
		ms := func(k int) float64 { return verdict.Ms[all[k].at][i] }
		at := TunedPlace{Shapes: map[string][]int{}, DenseMs: ms(0), MeasuredMs: ms(1), PredictedMs: ms(2)}
		for k, v := range t.graph.Inputs {
			at.Shapes[v.Name] = t.places[i].Shapes[k]
		}
		t.told.Places = append(t.told.Places, at)
	}
	t.told.Hints = t.known.Of(problems, key)
	t.told.Kept = programs[verdict.Best].name
	return programs[verdict.Best], nil
}

// keep adds to what is known, and to the file of timings, into which others may have written meanwhile. That it cannot be written is
// no error of the model.
func (t *tuning) keep(fresh *measure.Record) {
	if fresh.Entries == nil && fresh.Programs == nil {
		return
	}
	all := &measure.Record{Version: t.known.Version, Machine: t.known.Machine}
	all.Add(t.known)
	t.known.Add(fresh)
	if t.o.Timings == "" {
		return
	}
	if r, err := readTimings(t.o.Timings, t.known.Machine); err == nil {
		all.Add(r)
	}
	all.Add(fresh)
	claims.Update(t.o.Timings)
	if err := atomicfile.Write(t.o.Timings, all.Write); err != nil {
		t.told.Unkept = err.Error()
	}
	claims.Again(t.o.Timings)
}

// remember finds what is known of this machine.
func (t *tuning) remember() error {
	id, err := cpu.Machine()
	if err != nil {
		return err
	}
	t.known = &measure.Record{Version: measure.RecordVersion, Machine: id}
	if t.o.Anew {
		if t.o.Timings == "" {
			return nil
		}
		if err := CheckTimings(t.o.Timings, true); err != nil {
			return option.Errorf("%v %s: %v", option.Timings, t.o.Timings, err)
		}
		return nil
	}
	if told := t.report.Tuned; told != nil && told.Hints != nil && told.Hints.Check(id) == nil {
		t.known.Add(told.Hints)
	}
	if t.o.Timings != "" { // which counts where both have something
		r, err := readTimings(t.o.Timings, id)
		if err != nil {
			return option.Errorf("%v %s: %v", option.Timings, t.o.Timings, err)
		}
		t.known.Add(r)
	}
	return nil
}

// mostTimings bounds the bytes of a file of timings.
const mostTimings = 64 << 20

// readTimings reads a file of timings, nil where there is none.
func readTimings(path, id string) (*measure.Record, error) {
	b, err := timingsBytes(path)
	if b == nil || err != nil {
		return nil, err
	}
	return measure.ReadRecord(b, id)
}

// timingsBytes are those of a file, nil where there is none.
func timingsBytes(path string) ([]byte, error) {
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
	return io.ReadAll(f)
}

// CheckTimings says what is wrong with a file of timings; nil where there is none. One to be made anew may be damaged, or of another machine,
// but is no other file.
func CheckTimings(path string, anew bool) error {
	if anew {
		b, err := timingsBytes(path)
		if err == nil && len(b) > 0 && !measure.IsRecord(b) {
			err = fmt.Errorf("want a file of timings to make anew, and this is another, which is left as it is: %w", ErrInvalid)
		}
		return err
	}
	id, err := cpu.Machine()
	if err == nil {
		_, err = readTimings(path, id)
	}
	return err
}

// TimingsName is a name for a file of timings, which other machines and other builds of the program do not have.
func TimingsName() (string, error) {
	id, err := cpu.Machine()
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("timings-%x.json", sum[:6]), err
}

// program is a graph in which formats were chosen in some way.
type program struct {
	name   string
	graph  *ir.Graph
	layers []Layer
	at     int // in the list of programs that differ
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
		grid := format.Grid(v.Store, v.Type)
		v.SetConst(w)
		v.Grid = grid
	}
	c := &t.context
	c.Formats, c.Model = CPU.formats(t.report.Options.Profile)
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
		shapes, elements := map[string][]int{}, 0
		for i, v := range t.graph.Inputs {
			shapes[v.Name] = at.Shapes[i]
			n, _ := tensor.Elems(at.Shapes[i])
			elements += n
		}
		if elements > mostElements {
			t.told.Why = fmt.Sprintf("inputs of %d elements are too many to measure, of which there may be %d", elements, mostElements)
			continue
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
	return nil
}

// mostElements bounds the elements of inputs that a model is measured on.
const mostElements = 1 << 26

// choose returns a graph in which formats are chosen, by times where some were measured.
func (t *tuning) choose(name string, times func(number int, f choose.Form, n int, predicted float64) choose.Timing, wanted string) (program, error) {
	g, c := t.plain.Clone(), t.context
	c.Choose.Times, c.Choose.Format = times, wanted
	err := passes.Choose(&c, g)
	return program{name: name, graph: g, layers: c.Report.Layers}, err
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
		if p.name == "dense" {
			l.Reason = "kept dense: no whole program was measured to be faster"
		}
	}
	return p.layers
}

// finish makes the model of a program.
func (t *tuning) finish(p program) (*Model, error) {
	out := &Model{graph: p.graph, meta: t.meta, masks: t.masks}
	if err := out.use(t.options); err != nil {
		return nil, err
	}
	if t.told.Seconds == 0 { // it is not as it was tuned before
		t.told.Seconds = math.Round(time.Since(t.began).Seconds()*10) / 10
	}
	if t.told.Hints == nil && t.report.Tuned != nil {
		t.told.Hints = t.report.Tuned.Hints
	}
	r := t.report
	r.Layers, r.Tuned, r.Totals, r.Nodes = p.layers, t.told, Totals{}, map[string]int{}
	r.finish(p.graph)
	out.report = r
	out.forecast()
	if err := out.prepare(); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}
