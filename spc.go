// Package spc compiles ONNX models into sparse programs and runs them.
//
//	m, err := spc.Compile(ctx, spc.CompileOptions{Model: "model.onnx", Prune: spc.PruneOptions{Sparsity: 0.8}})
//	err = m.Save("model.spx")
//
//	m, err := spc.Open("model.spx", spc.RunOptions{})
//	out, err := m.Run(ctx, map[string]*tensor.Tensor{"image": x})
//
// Errors that come from models, files, inputs and devices wrap one of the kinds below.
package spc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"spc/backend"
	"spc/backend/format"
	"spc/backend/machine"
	"spc/internal/atomicfile"
	"spc/internal/mapped"
	"spc/internal/spool"
	"spc/internal/verify"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/option"
	"spc/ir/tensor"
	"spc/lower"
	"spc/lower/spx"
	"spc/passes"
	"spc/passes/calib"
	"spc/passes/choose"
	"spc/passes/fit"
	"spc/passes/fuse"
	"spc/passes/prune"
	"spc/passes/quant"
)

// Version is the version of this module.
const Version = "0.1.0"

// The kinds of errors.
var (
	ErrInvalid     = ir.ErrInvalid
	ErrUnsupported = ir.ErrUnsupported
	ErrCorrupt     = ir.ErrCorrupt
	ErrVersion     = ir.ErrVersion
	ErrNoDevice    = ir.ErrNoDevice
	ErrDevice      = ir.ErrDevice // of a device itself, whatever runs on it
)

// Layer says how a weight is stored, and why.
type Layer = choose.Layer

// Candidate is one way in which a weight could have been stored.
type Candidate = choose.Candidate

// Recognised counts operators that exporters spell out.
type Recognised = fuse.Recognised

// OpenDim is an open dimension, with the sizes that formats are chosen for.
type OpenDim = choose.Open

// Report explains a model: what pruning did, and how each weight is stored.
type Report struct {
	Options ReportOptions `json:"options"`
	Layers  []Layer       `json:"layers"`
	Totals  Totals        `json:"totals"`
	// Open lists the open dimensions on which columns of weights depend, with the sizes that formats are chosen for.
	Open   []OpenDim           `json:"open,omitempty"`
	Prune  *fit.Result         `json:"prune,omitempty"`
	Passes []passes.PassReport `json:"passes"`
	// Transposes names the Transpose nodes that no pass could fold away.
	Transposes []string `json:"transposes"`
	// Recognised counts the operators that exporters spell out, and lists what looks like one and was not recognised.
	Recognised *Recognised    `json:"recognised,omitempty"`
	Quant      *quant.Result  `json:"quant,omitempty"`   // what Quantize did
	Written    *Written       `json:"written,omitempty"` // how Prune writes the model
	Nodes      map[string]int `json:"nodes"`             // of the compiled graph, by operator
	// Interpreted lists the operators for which the CPU has no kernel, see Model.Forecast.
	Interpreted []Interpreted `json:"interpreted,omitempty"`
	// Predicted is the time of a run on one thread, see Model.Forecast.
	Predicted *PredictedRun `json:"predicted,omitempty"`
	Tuned     *Tuned        `json:"tuned,omitempty"` // how formats were measured, see Model.Tune
	// Budget says how CompileWithin found the model.
	Budget *BudgetReport `json:"budget,omitempty"`
	// Calibration tells what was kept of samples while the model was compiled, where Calibration.Spool is set. The model's file does not
	// tell: it is the same wherever that was.
	Calibration *CalibrationUse `json:"calibration,omitempty"`
}

// ReportOptions are the options that the model was compiled with.
type ReportOptions struct {
	Pattern  string  `json:"pattern"`
	Sparsity float64 `json:"sparsity"`
	Allocate string  `json:"allocate"`
	Format   string  `json:"format"`
	Target   string  `json:"target"`
	Quantize string  `json:"quantize,omitempty"`
	// Profile is that of the CPU that formats were chosen for, nil for DefaultProfile.
	Profile *Profile `json:"profile,omitempty"`
	// OneFormat forbade that weights have two formats.
	OneFormat bool `json:"one_format,omitempty"`
	// Size is how many bytes the file was to have at most, beside a budget; 0 for any number.
	Size int64 `json:"size,omitempty"`
	// Command would make the model again, in the folder of what it names; empty where a program
	// compiled it that did not say so.
	Command []string `json:"command,omitempty"`
}

// CPU is the profile that formats were chosen by, or would be.
func (o *ReportOptions) CPU() *Profile { return cmp.Or(o.Profile, machine.Default) }

// Totals sums over all weights. Those that were removed with whole channels count
// as zeros.
type Totals struct {
	Weights       int `json:"weights"`
	Nonzeros      int `json:"nonzeros"`
	Prunable      int `json:"prunable"`
	PrunableZeros int `json:"prunable_zeros"`
	DenseBytes    int `json:"dense_bytes"`
	StoredBytes   int `json:"stored_bytes"`
}

// Types of other packages that programs meet here.
type (
	Dim       = ir.Dim           // a size, a symbol, or an expression of symbols
	Type      = ir.Type          // of a value
	Tolerance = verify.Tolerance // of a comparison
	Profile   = machine.Profile  // of the speed of a CPU
	Family    = machine.Family   // of kernels, in a profile
	Rate      = machine.Rate     // of a family

	CalibrationUse = calib.Usage // of memory, and of a file, by what is kept of samples
)

// Port is an input or an output of a model. Sequences and optionals are tensors whose
// elements are tensors (tensor.NewSequence, tensor.NewOptional): their DType says so, Dims
// is the number of their elements, of an optional 0 or 1, and Elem the type of each.
type Port struct {
	Name  string
	DType tensor.DType
	Dims  []Dim // sizes and symbols
	Elem  *Type // nil but for sequences and optionals
	// Ranked is false where not even the number of dimensions is known.
	Ranked bool
	// Bound is, of an integer input, the size of the axis that its elements index
	// through a Gather; 0 where there is none.
	Bound int
}

func (p Port) String() string {
	return ir.Type{DType: p.DType, Dims: p.Dims, Ranked: p.Ranked, Elem: p.Elem}.String()
}

// Model is a compiled model. It is safe for concurrent use.
type Model struct {
	graph    *ir.Graph
	meta     spx.Meta
	report   Report
	file     *spx.File    // nil unless the model was opened from a file
	data     func() error // closes the files that weights lie in; may be nil
	options  RunOptions
	lowering lower.Options
	turns    chan struct{} // has an element for each Run that goes on
	masks    map[string]*tensor.Tensor

	mu     sync.Mutex
	prog   backend.Program
	closed bool
	fault  error          // that the file has met, which ends all use of the model
	runs   sync.WaitGroup // in progress
	calls  []*call        // that are free

	decoders map[string]*decoder // by ties, of sessions
	readers  atomic.Int32        // of the files, which the last of them closes
}

// call is the memory of a Run: inputs and outputs in the model's order.
type call struct {
	in, out []*tensor.Tensor
}

// Compile compiles an ONNX model.
func Compile(ctx context.Context, o CompileOptions) (*Model, error) {
	return compile(ctx, o, nil)
}

// compile is Compile, but where k is not nil it keeps the graph in a form that ONNX has, and in k what it was on the way, with
// external data, which the caller closes.
func compile(ctx context.Context, o CompileOptions, k *kept) (m *Model, err error) {
	w := &weights{}
	if o.Spool != "" {
		w.spool = spool.New(o.Spool)
	}
	err = ir.Guard(func() error {
		if m, err = build(ctx, o, k, w); err == nil && k == nil && o.Spool == "" {
			w.keep(m.graph)
		}
		return err
	})
	switch {
	case err != nil || k == nil && o.Spool == "":
		err = errors.Join(err, w.close())
	case k == nil:
		m.data = w.close
	default:
		k.weights = w
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// build is compile, but leaves the files that weights lie in to the caller, whatever it returns.
func build(ctx context.Context, o CompileOptions, k *kept, w *weights) (*Model, error) {
	if err := cmp.Or(checkThreads(option.CalibrationThreads, o.Calibration.Threads), o.Calibration.checkMemory()); err != nil {
		return nil, err
	}
	seen, done := observer(&o, w)
	defer done()
	c, err := o.passContext(seen)
	if err != nil {
		return nil, err
	}
	told, err := o.report(c)
	if err != nil {
		return nil, err
	}
	m := &Model{meta: spx.Meta{Producer: "spc " + Version, Target: string(o.Target)}}
	if err := m.use(o.Run); err != nil {
		return nil, err
	}
	c.Portable = k != nil
	if c.Quant != nil {
		c.Quant.Portable = c.Portable
	}
	if o.Progress != nil {
		o.Progress("import", 0, 1)
	}
	how := onnx.Options{Places: k != nil, Views: true}
	var info *onnx.Info
	if m.graph, info, err = (&ImportOptions{o.Model, o.Bytes, o.Shapes, o.Dims}).read(how); err != nil {
		return nil, err
	}
	w.read(info, c)
	if k != nil {
		k.File = m.graph.Clone()
	}
	m.meta.Source = strings.TrimSpace(info.Producer + " " + info.ProducerVersion)
	if c.Choose.Sizes, err = o.open(m.graph, info); err != nil {
		return nil, err
	}
	po, err := o.pipeline(k)
	if err != nil {
		return nil, err
	}
	if err := passes.Run(ctx, c, m.graph, po); err != nil {
		if o.Model != "" {
			err = fmt.Errorf("%s: %w", o.Model, err)
		}
		return nil, err
	}
	if p := c.Report.Prune; p != nil && k != nil {
		k.Cuts = p.Cuts
	}
	m.masks = c.Report.Masks
	if p := c.Report.Prune; p != nil && p.Runs > 0 && o.Calibration.Count > 0 {
		p.Samples = o.Calibration.Count
	}
	m.report = reportOf(told, &c.Report)
	if m.report.Calibration, err = keptOf(seen); err != nil {
		return nil, err
	}
	m.report.finish(m.graph)
	if err := m.fit(&o, c); err != nil {
		return nil, err
	}
	if o.Target == CPU && k == nil && o.Debug.StopAfter == "" {
		m.forecast()
	}
	if d := o.Debug; d.DumpDir != "" && d.StopAfter == "" && o.Target == CPU {
		if err := m.dumpLowering(d.DumpDir); err != nil {
			return nil, err
		}
	}
	if err := m.prepare(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// fit gives weights second forms, or small ones, so that the .spx has at most as many bytes as were asked for, if any were.
func (m *Model) fit(o *CompileOptions, c *passes.Context) error {
	if c.Choose.Sized == nil {
		return nil
	}
	if err := m.fitInto(o.Size, c.Choose.Sized, &c.Report); err != nil {
		if o.Model != "" {
			err = fmt.Errorf("%s: %w", o.Model, err)
		}
		return err
	}
	return nil
}

func (m *Model) fitInto(most int64, s *choose.Sized, r *passes.Report) error {
	measure := func() (size int64, err error) {
		samples := m.report.Calibration
		m.report = reportOf(m.report.Options, r)
		m.report.Calibration = samples
		m.report.finish(m.graph)
		m.forecast()
		return sizeOf(m)
	}
	size, err := measure()
	if err != nil {
		return err
	}
	if size <= most {
		if err := s.Grow(most - size); err != nil {
			return err
		}
		for size, err = measure(); err == nil && size > most && s.Back(); { // the report took more than was thought
			size, err = measure()
		}
		return err
	}
	for size > most {
		some, err := s.Shrink(size - most)
		if err != nil {
			return err
		}
		if size, err = measure(); err != nil {
			return err
		}
		if size > most && !some {
			return fmt.Errorf("%w: with every weight in the fewest bytes that it can be stored in, the file takes %d, want at most %d", ErrUnmet, size, most)
		}
	}
	return nil
}

// reportOf is what passes reported, of a model that was compiled with the options told.
func reportOf(told ReportOptions, r *passes.Report) Report {
	return Report{
		Options:    told,
		Layers:     r.Layers,
		Open:       r.Open,
		Prune:      r.Prune,
		Quant:      r.Quant,
		Passes:     r.Passes,
		Transposes: r.Transposes,
		Recognised: r.Recognised,
		Nodes:      map[string]int{},
	}
}

// check reports numbers of a report that do not go together, as those of a file that was tampered with may.
func (r *Report) check() error {
	if p := r.Options.Profile; p != nil {
		if err := p.Check(); err != nil {
			return err
		}
	}
	if p := r.Predicted; p != nil {
		if err := p.check(); err != nil {
			return err
		}
	}
	for i := range r.Layers {
		if err := r.Layers[i].Check(); err != nil {
			return fmt.Errorf("layer %s, weight %s: %w", r.Layers[i].Name, r.Layers[i].Weight, err)
		}
	}
	return nil
}

// upgrade gives formats of version 1 of the container their names.
func (r *Report) upgrade() {
	for i := range r.Layers {
		l := &r.Layers[i]
		l.Format = format.UpgradedName(l.Format)
		for j := range l.Candidates {
			l.Candidates[j].Format = format.UpgradedName(l.Candidates[j].Format)
		}
	}
}

// finish computes what follows from the layers and the graph.
func (r *Report) finish(g *ir.Graph) {
	pruned := map[string]prune.GraphLayer{}
	if r.Prune != nil {
		for _, l := range r.Prune.Layers {
			pruned[l.Weight] = l
		}
	}
	kept := map[string]string{}
	if r.Quant != nil {
		for _, k := range r.Quant.Kept {
			kept[k.Node] = k.Why
		}
	}
	seen := map[string]bool{}
	rounded, prunable := 0, 0 // weights that rounding to codes made zero, which pruning does not count
	for i := range r.Layers {
		l := &r.Layers[i]
		p := pruned[l.Weight]
		before := func(text string) { // unless the layer comes from a report that was finished
			if !strings.Contains(l.Reason, text+"; ") {
				l.Reason = text + "; " + l.Reason
			}
		}
		if why := kept[l.Name]; why != "" {
			before("not quantised, " + why)
		}
		if p.Why != "" && r.Prune.Asks {
			before("not pruned, " + p.Why)
		}
		if p.Removed > 0 {
			before(fmt.Sprintf("%d of %d weights removed", p.Removed, p.Weights))
		}
		l.Prunable = p.Prunable
		if seen[l.Weight] {
			continue
		}
		seen[l.Weight] = true
		n := l.Rows*l.Cols + p.Removed
		r.Totals.Weights += n
		r.Totals.Nonzeros += l.Nonzeros
		if l.Prunable {
			r.Totals.Prunable += n
			r.Totals.PrunableZeros += n - l.Nonzeros
		}
		if more := n - l.Nonzeros - p.Zeros; p.Weights == n && choose.IsGrid(l.Config) {
			if rounded += more; l.Prunable {
				prunable += more
			}
		}
		r.Totals.DenseBytes += l.DenseBytes / max(l.Rows*l.Cols, 1) * n
		r.Totals.StoredBytes += l.StoredBytes
	}
	if p := r.Prune; p != nil { // which counts the channels that are gone, too
		r.Totals.Weights, r.Totals.Nonzeros = p.Weights.Weights, p.Weights.Weights-p.Weights.Zeros-rounded
		r.Totals.Prunable, r.Totals.PrunableZeros = p.Prunable.Weights, p.Prunable.Zeros+prunable
	}
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			r.Nodes[n.Op.Kind()]++
		}
	}
}

// Save writes the model as an .spx file: whole, or not at all.
func (m *Model) Save(path string) error { return atomicfile.Write(path, m.Write) }

// Write writes the content of an .spx file.
func (m *Model) Write(w io.Writer) error {
	told := m.report
	told.Calibration = nil
	explain, err := json.Marshal(told)
	if err != nil {
		return err
	}
	return m.guard(func() error { return spx.Write(w, &spx.File{Graph: m.graph, Meta: m.meta, Explain: explain}) })
}

// Open opens an .spx file. Its weights are mapped, not read, unless the options say so or the file
// is on another machine; Close unmaps them. The file must not change meanwhile: to put another in
// its place by its name, as Save does, is no change. Where it is truncated, runs return an
// error that wraps ErrCorrupt.
func Open(path string, o RunOptions) (*Model, error) {
	get := spx.Open
	if o.Copy {
		get = spx.Copy
	}
	f, err := get(path)
	if err != nil {
		return nil, err
	}
	m, err := load(f, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// Read reads the content of an .spx file, which must not change while the model
// is in use.
func Read(b []byte, o RunOptions) (*Model, error) {
	f, err := spx.Read(b)
	if err != nil {
		return nil, err
	}
	return load(f, o)
}

// load makes a model of a file, which is closed where that fails.
func load(f *spx.File, o RunOptions) (m *Model, err error) {
	m = &Model{graph: f.Graph, meta: f.Meta, file: f, data: f.Close}
	err = ir.Guard(func() error {
		if f.Explain != nil {
			if err := json.Unmarshal(f.Explain, &m.report); err != nil {
				return fmt.Errorf("section EXPL: %w: %w", err, ErrCorrupt)
			}
			if err := m.report.check(); err != nil {
				return fmt.Errorf("section EXPL: %w: %w", err, ErrCorrupt)
			}
		}
		if f.Version == 1 {
			if err := format.Upgrade(f.Graph); err != nil {
				return err
			}
			m.report.upgrade()
		}
		return format.CheckAll(f.Graph)
	})
	if err == nil {
		err = m.use(o)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	if err := m.prepare(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Explain says how each weight is stored, and why.
func (m *Model) Explain() *Report { return &m.report }

// Masks tells which elements of each pruned weight, by its name, are not zero. It is nil
// unless the model was compiled with PruneOptions.Masks.
func (m *Model) Masks() map[string]*tensor.Tensor { return m.masks }

// Graph prints the compiled graph as text, or the error where the file is truncated or the
// model closed.
func (m *Model) Graph() (text string) {
	err := m.guard(func() error {
		text = m.graph.String()
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return text
}

// guard returns what f does, which uses the weights. Where the file is truncated, it returns
// the first error that said so, then and from then on.
func (m *Model) guard(f func() error) error {
	release, err := m.hold()
	if err != nil {
		return err
	}
	defer release()
	return m.met(ir.Guard(f))
}

// hold makes Close wait until release is called. It is an error where the weights cannot be
// used any more.
func (m *Model) hold() (release func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(); err != nil {
		return nil, err
	}
	m.runs.Add(1)
	return m.runs.Done, nil
}

// usable returns an error for a model that is closed or whose file was found truncated.
// The caller holds m.mu.
func (m *Model) usable() error {
	if m.closed {
		return fmt.Errorf("the model is closed: %w", ErrInvalid)
	}
	return m.fault
}

// met returns err, or the first error by which the file was found truncated where err is one.
func (m *Model) met(err error) error {
	var fault *mapped.Fault
	if !errors.As(err, &fault) {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault == nil {
		m.fault = err
	}
	return m.fault
}

// Inputs lists the inputs in the model's order.
func (m *Model) Inputs() []Port { return inputs(m.graph) }

func inputs(g *ir.Graph) []Port {
	out := make([]Port, len(g.Inputs))
	for i, v := range g.Inputs {
		out[i] = Port{v.Name, v.Type.DType, v.Type.Dims, v.Type.Elem, v.Type.Ranked, bound(v)}
	}
	return out
}

// Outputs lists the outputs in the model's order.
func (m *Model) Outputs() []Port { return outputs(m.graph) }

func outputs(g *ir.Graph) []Port {
	out := make([]Port, len(g.Outputs))
	for i, v := range g.Outputs {
		out[i] = Port{g.OutputName(i), v.Type.DType, v.Type.Dims, v.Type.Elem, v.Type.Ranked, 0}
	}
	return out
}

// turn waits until one more Run may go on, which ends with the receipt of an element of m.turns.
func (m *Model) turn(ctx context.Context) error {
	select {
	case m.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin loads the model on its device, where it is not yet, for a run that ends
// with the call of end.
func (m *Model) begin() (backend.Program, *call, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(); err != nil {
		return nil, nil, err
	}
	if m.prog == nil {
		var err error
		if m.prog, err = m.load(m.graph); err != nil {
			return nil, nil, err
		}
	}
	m.runs.Add(1)
	if n := len(m.calls); n > 0 {
		c := m.calls[n-1]
		m.calls = m.calls[:n-1]
		return m.prog, c, nil
	}
	return m.prog, &call{make([]*tensor.Tensor, len(m.graph.Inputs)), make([]*tensor.Tensor, len(m.graph.Outputs))}, nil
}

// load loads a program of the model's weights. The caller holds m.mu.
func (m *Model) load(g *ir.Graph) (backend.Program, error) {
	o := backend.Options{Threads: m.options.Threads, Specialised: m.options.Specialised, Memory: m.options.Memory, Lowering: m.lowering}
	if m.data != nil {
		o.Closed = m.read()
	}
	if m.file != nil {
		o.Checked, o.Unneeded = true, m.file.Drop
	}
	p, err := m.on().Load(g, o)
	if err != nil && o.Closed != nil {
		o.Closed()
	}
	return p, err
}

// read says that something reads the files until the function that it returns is called, which closes them where nothing else
// does.
func (m *Model) read() (done func() error) {
	data := m.data
	m.readers.Add(1)
	return sync.OnceValue(func() error {
		if m.readers.Add(-1) > 0 {
			return nil
		}
		return data()
	})
}

func (m *Model) end(c *call) {
	clear(c.in)
	clear(c.out)
	m.mu.Lock()
	m.calls = append(m.calls, c)
	m.mu.Unlock()
	m.runs.Done()
}

// Run evaluates the model on one tensor for each input, by name, and returns the
// outputs by name. Where ctx is cancelled it returns at once. The inputs may change
// then, also while a GPU is not done yet; but an operator on the CPU for which there is
// no kernel, and which takes long, may go on reading them for a while.
func (m *Model) Run(ctx context.Context, inputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
	outputs := make(map[string]*tensor.Tensor, len(m.graph.Outputs))
	if err := m.run(ctx, inputs, outputs, nil); err != nil {
		return nil, err
	}
	return outputs, nil
}

// RunInto is Run into a map that the caller keeps: an output is written into the
// tensor of its name where that has its type and shape, and put into the map as a
// new tensor otherwise. From the second Run on inputs of the same shapes it
// allocates nothing, except for operators that have no kernel.
//
// The tensors may be inputs of the same call, as states are; each must have storage
// of its own, and be used by one Run at a time. After an error, outputs is as it was.
func (m *Model) RunInto(ctx context.Context, inputs, outputs map[string]*tensor.Tensor) error {
	if outputs == nil {
		return fmt.Errorf("no map for the outputs: %w", ErrInvalid)
	}
	return m.run(ctx, inputs, outputs, nil)
}

// NodePlace is where a node runs on a device that leaves some to the CPU: in its Part-th run of
// nodes on the device, which is queued at once, or, where Part is 0, on the CPU, and why.
type NodePlace struct {
	Node, Op string
	Part     int
	Why      string
	// Interpreted says, where the device is the CPU, that there is no kernel, and the slow interpreter computes the node.
	Interpreted bool
	// Cascade is, where it is not 0, the number of nodes that the CPU computes together, strip by strip, in runs that
	// nobody takes the times of.
	Cascade int
	// Spared are the bytes, read and written, of what the CPU finds in its place and does not copy, which the work of the node counts.
	Spared int
}

// Placements tells where the nodes of the model run for such inputs, in the order of
// execution.
func (m *Model) Placements(inputs map[string]*tensor.Tensor) ([]NodePlace, error) {
	p, c, err := m.begin()
	if err != nil {
		return nil, err
	}
	defer m.end(c)
	partial, ok := p.(backend.Partial)
	if !ok {
		return nil, nil
	}
	if err := arrange(m.graph, c.in, inputs); err != nil {
		return nil, err
	}
	placed, err := partial.Placements(c.in)
	out := make([]NodePlace, len(placed))
	for i, at := range placed {
		out[i] = NodePlace{at.Node.Name, at.Node.Op.Kind(), at.Part, at.Why, at.Interpreted, at.Cascade, at.Spared}
	}
	return out, m.met(err)
}

// Interpret is Run by the reference interpreter: slow, and obviously right.
func (m *Model) Interpret(ctx context.Context, inputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
	var out map[string]*tensor.Tensor
	err := m.guard(func() (err error) {
		out, err = interpret(ctx, m.graph, inputs)
		return err
	})
	return out, err
}

// arrange puts inputs into a graph's order. What is missing is left to whoever runs the graph.
func arrange(g *ir.Graph, in []*tensor.Tensor, inputs map[string]*tensor.Tensor) error {
	known := 0
	for i, v := range g.Inputs {
		t, ok := inputs[v.Name]
		if in[i] = t; ok {
			known++
		}
		if t != nil && !t.Stored() {
			return fmt.Errorf("input %s is %v without storage, want its elements: %w", v.Name, t, ErrInvalid)
		}
	}
	if known == len(inputs) {
		return nil
	}
	names := make([]string, len(g.Inputs))
	for i, v := range g.Inputs {
		names[i] = v.Name
	}
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		if !slices.Contains(names, name) {
			return fmt.Errorf("no input is named %q; the inputs are %s: %w", name, strings.Join(names, ", "), ErrInvalid)
		}
	}
	return nil
}

func (m *Model) run(ctx context.Context, inputs, outputs map[string]*tensor.Tensor, trace func(*ir.Node, time.Duration)) error {
	if err := m.turn(ctx); err != nil {
		return err
	}
	defer func() { <-m.turns }()
	p, c, err := m.begin()
	if err != nil {
		return err
	}
	defer m.end(c)
	if err := arrange(m.graph, c.in, inputs); err != nil {
		return err
	}
	for i := range c.out {
		name := m.graph.OutputName(i)
		if c.out[i] = outputs[name]; c.out[i] != nil && !c.out[i].Stored() {
			return fmt.Errorf("the tensor for output %s is %v without storage, want one with elements to write to: %w", name, c.out[i], ErrInvalid)
		}
	}
	if err := p.Trace(ctx, c.in, c.out, trace); err != nil {
		return m.met(err)
	}
	for i, t := range c.out {
		outputs[m.graph.OutputName(i)] = t
	}
	return nil
}

// Close frees the model's threads and unmaps its file once the runs in progress
// are done; outputs stay valid.
func (m *Model) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.runs.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	done := func() error { return nil }
	if m.data != nil {
		done = m.read()
	}
	var err error
	for _, d := range m.decoders {
		err = errors.Join(err, d.prog.Close())
	}
	if m.prog != nil {
		err = errors.Join(err, m.prog.Close())
	}
	err = errors.Join(err, done())
	m.prog, m.file, m.data, m.decoders = nil, nil, nil, nil
	return err
}
