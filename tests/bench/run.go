package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"spc"
	"spc/ir/tensor"
)

// Tolerance bounds the relative l2 error of outputs that ought to agree, and
// Int8Tolerance that of quantised models, in which a sum that rounds the other way
// moves a whole step.
const (
	Tolerance     = 1e-3
	Int8Tolerance = 0.05
)

// Bench measures rows.
type Bench struct {
	ORT     *ORT
	Models  string // folder of the networks of archs, which are built into it where they are missing
	Program string // path of the program spc, for the time to a first output
	Scratch string // an empty folder
	Threads []int
	Turns   Turns

	// Profile is what formats are chosen by in RunRegret, RunPredicted and RunSparse; nil is the default.
	Profile *spc.Profile
	// Tune is the time in which RunSparse measures formats for each model; 0 for not at all.
	Tune time.Duration

	Int8Tolerance float64 // in place of Int8Tolerance, where it is not 0

	// Progress, where it is set, is told what is measured next.
	Progress func(what string, done, total int)
	// Skip, where it is set, is told which rows lack their data.
	Skip func(row string, why error)
}

func (b *Bench) progress(what string, done, total int) {
	if b.Progress != nil {
		b.Progress(what, done, total)
	}
}

// reason is an error as results keep it: files of the networks are named without the
// folders of the machine.
func (b *Bench) reason(err error) string {
	text := strings.ReplaceAll(err.Error(), filepath.Clean(b.Models)+string(filepath.Separator), "")
	return strings.ReplaceAll(text, filepath.Clean(b.Scratch)+string(filepath.Separator), "")
}

// Run measures the rows on each number of threads. What goes wrong with a row is
// its result; an error is of the whole, such as the end of the context, and comes
// with what was measured before.
func (b *Bench) Run(ctx context.Context, rows []Row) ([]Result, error) {
	s := session{Bench: b, workers: map[int]*Worker{}, loaded: map[int]string{}}
	defer s.close()
	var out []Result
	for i, row := range rows {
		step := func(nth int, what string) {
			b.progress(row.Name+what, i*len(b.Threads)+nth, len(rows)*len(b.Threads))
		}
		step(0, ": compile")
		results, err := s.row(ctx, row, func(nth int) { step(nth, ": "+plural(b.Threads[nth], "thread")) })
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		if errors.Is(err, ErrNoData) {
			if b.Skip != nil {
				b.Skip(row.Name, err)
			}
			continue
		}
		if err != nil && len(results) == 0 {
			results = []Result{row.result(b.Threads[0])}
		}
		if err != nil {
			results[len(results)-1].Error = b.reason(err)
		}
		out = append(out, results...)
	}
	return out, nil
}

func (r Row) result(threads int) Result {
	return Result{Name: r.Name, Group: r.Group, Threads: threads, Pattern: r.Pattern, Sparsity: r.Sparsity, Int8: r.Int8, QDQ: r.QDQ, Bar: r.Bar}
}

// session holds what rows of one model share.
type session struct {
	*Bench
	key     string // of the source
	source  *source
	inputs  []file
	workers map[int]*Worker
	loaded  map[int]string // by threads, what the worker has loaded
}

func (s *session) close() {
	for _, w := range s.workers {
		w.Close()
	}
}

// open makes s.source that of the row.
func (s *session) open(ctx context.Context, row Row) error {
	key := fmt.Sprint(row.Model, row.Dims, row.Dynamic, row.FourBits, row.Saved)
	if s.key == key {
		return nil
	}
	if row.Member {
		s.key = ""
		dir, err := os.MkdirTemp(s.Scratch, "inputs")
		if err != nil {
			return err
		}
		path := filepath.Join(s.Models, row.Model+".onnx")
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: %w", ErrNoData, err)
		}
		_, err = s.member(ctx, path, dir)
		return err
	}
	path, err := locate(ctx, s.Models, row)
	if err != nil {
		return err
	}
	if row.Saved != "" {
		if path, err = s.saved(ctx, path, row.Saved); err != nil {
			return err
		}
	}
	src, err := open(ctx, path, row.Dims)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(s.Scratch, "inputs")
	if err != nil {
		return err
	}
	if s.inputs, err = writeTensors(dir, src.inputs); err != nil {
		return err
	}
	s.key, s.source = key, src
	return nil
}

// saved returns the file that ONNX Runtime's optimiser saves of a network at a level, beside it unless it is there.
func (s *session) saved(ctx context.Context, model, level string) (string, error) {
	path := strings.TrimSuffix(model, ".onnx") + "-" + level + ".onnx"
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	w, err := s.ORT.Start(ctx, 1)
	if err != nil {
		return "", err
	}
	defer w.Close()
	part := path + ".part"
	defer os.Remove(part)
	if err := w.Optimise(model, level, part); err != nil {
		return "", err
	}
	return path, os.Rename(part, path)
}

// worker returns a worker that has loaded a model with the source's inputs.
func (s *session) worker(ctx context.Context, threads int, model string) (*Worker, error) {
	w := s.workers[threads]
	if w == nil {
		var err error
		if w, err = s.ORT.Start(ctx, threads); err != nil {
			return nil, err
		}
		s.workers[threads] = w
	}
	if key := s.key + model; s.loaded[threads] != key {
		s.loaded[threads] = ""
		if _, err := w.Load(model, s.inputs); err != nil {
			return nil, err
		}
		s.loaded[threads] = key
	}
	return w, nil
}

// options are those to compile a row with.
func (s *session) options(row Row) (o spc.CompileOptions, err error) {
	o.Prune, err = pruning(row.Pattern, row.Sparsity, row.Keep)
	if row.Int8 {
		// The times of a model do not depend on which weights are zero, so that the
		// fastest way to choose them will do.
		o.Quantize, o.Calibration.Inputs = spc.QuantizeOptions{Type: tensor.I8, KeepNone: true}, s.source.calibrate
		o.Prune.Method, o.Prune.Allocate, o.Prune.Uncorrected = spc.Magnitude, spc.PerLayer, row.Pattern != ""
	}
	return o, err
}

// row measures a row on each number of threads; next is told which comes.
func (s *session) row(ctx context.Context, row Row, next func(nth int)) (out []Result, err error) {
	if err := s.open(ctx, row); err != nil {
		return nil, err
	}
	o, err := s.options(row)
	if err != nil {
		return nil, err
	}
	m, err := s.source.compile(ctx, o)
	if err != nil {
		return nil, err
	}
	r := row.result(0)
	path := filepath.Join(s.Scratch, "model.spx")
	r.Formats = formats(m)
	if err = m.Save(path); err == nil {
		r.Macs, err = Count(path, m.Explain().Layers)
	}
	m.Close()
	if err != nil {
		return nil, err
	}
	defer os.Remove(path)
	model := s.source.path // what ONNX Runtime is timed on
	var want map[string]*tensor.Tensor
	if row.Pattern != "" || row.Int8 {
		pruned := filepath.Join(s.Scratch, row.Name+".onnx")
		defer os.Remove(pruned)
		if want, err = s.reference(ctx, o, pruned, runtime.NumCPU()); err != nil {
			return nil, err
		}
		if row.QDQ {
			model = pruned
		}
	}
	debug.FreeOSMemory() // compiling leaves much behind
	for i, t := range s.Threads {
		next(i)
		r.Threads = t
		if row.Group == Dense && t > 1 {
			r.Bar = 0 // their mean has one
		}
		out = append(out, r)
		if err := s.measure(ctx, row, model, path, want, &out[len(out)-1]); err != nil {
			return out, err
		}
	}
	return out, nil
}

// reference writes the model as o prunes and quantises it into an ONNX file, and
// returns what ONNX Runtime makes of that on some threads.
func (s *session) reference(ctx context.Context, o spc.CompileOptions, path string, threads int) (map[string]*tensor.Tensor, error) {
	p, err := spc.Prune(ctx, s.source.options(o))
	if err == nil {
		err = p.Save(path)
	}
	if err != nil {
		return nil, err
	}
	w, err := s.ORT.Start(ctx, threads)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if _, err := w.Load(path, s.inputs); err != nil {
		return nil, err
	}
	return w.Outputs()
}

// measure compares outputs and times the two sides, ONNX Runtime on an ONNX file and
// spc on a compiled one, on r.Threads. A want of nil stands for ONNX Runtime's outputs.
func (s *session) measure(ctx context.Context, row Row, model, path string, want map[string]*tensor.Tensor, r *Result) error {
	w, err := s.worker(ctx, r.Threads, model)
	if err != nil {
		return err
	}
	m, err := spc.Open(path, spc.RunOptions{Threads: r.Threads})
	if err != nil {
		return err
	}
	defer m.Close()
	if want == nil {
		if want, err = w.Outputs(); err != nil {
			return err
		}
	}
	got, err := m.Run(ctx, s.source.inputs)
	if err != nil {
		return err
	}
	if r.RelL2, err = differ(got, want); err != nil {
		return err
	}
	most := Tolerance
	if row.Int8 || row.Dynamic {
		if most = Int8Tolerance; s.Int8Tolerance > 0 {
			most = s.Int8Tolerance
		}
	}
	if !(r.RelL2 <= most) {
		return fmt.Errorf("relative l2 error %.2g, want at most %.0e", r.RelL2, most)
	}
	sides := []Side{w.Run, s.source.side(m)}
	if row.Start != NoStart {
		sides, err = s.starts(row, path, r.Threads)
		if err != nil {
			return err
		}
	}
	from := use(w.Pid())
	ms, err := s.Turns.Play(ctx, sides...)
	if err != nil {
		return err
	}
	r.Others = others(from, use(w.Pid()))
	ort, own := ms[0], ms[1]
	r.ORT, r.SPC = Median(ort.Turns), Median(own.Turns)
	r.Ratio, r.Best, r.Rounds = Describe(Ratios(ort.Turns, own.Turns)), ort.Best/own.Best, len(own.Turns)
	return nil
}

// inputArgs are the arguments that give spc the inputs in a process of its own.
func (s *session) inputArgs() (args []string, err error) {
	for i, name := range slices.Sorted(maps.Keys(s.source.inputs)) {
		file := filepath.Join(s.Scratch, fmt.Sprintf("input_%d.npy", i))
		if err := tensor.WriteNPY(file, s.source.inputs[name]); err != nil {
			return nil, err
		}
		args = append(args, "-i", name+"="+file)
	}
	return args, nil
}

// starts returns the sides of a row that measures the time to a first output, a
// process a run.
func (s *session) starts(row Row, path string, threads int) ([]Side, error) {
	inputs, err := s.inputArgs()
	if err != nil {
		return nil, err
	}
	args := append([]string{"run", path, "--threads", strconv.Itoa(threads), "-o", filepath.Join(s.Scratch, "outputs")}, inputs...)
	ort := func(ctx context.Context) (ms float64, err error) {
		start := time.Now()
		w, err := s.ORT.Start(ctx, threads)
		if err != nil {
			return 0, err
		}
		defer func() {
			if cerr := w.Close(); err == nil {
				err = cerr
			}
		}()
		load, err := w.Load(s.source.path, s.inputs)
		if err != nil {
			return 0, err
		}
		first, err := w.Run(ctx, 1)
		if err != nil {
			return 0, err
		}
		if row.Start == FromSession {
			return load + first[0], nil
		}
		return time.Since(start).Seconds() * 1e3, nil
	}
	own := func(ctx context.Context) (float64, error) {
		start := time.Now()
		if out, err := exec.CommandContext(ctx, s.Program, args...).CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%s run: %w: %s", s.Program, err, lastLine(string(out)))
		}
		return time.Since(start).Seconds() * 1e3, nil
	}
	repeat := func(one func(context.Context) (float64, error)) Side {
		return func(ctx context.Context, n int) ([]float64, error) {
			ms := make([]float64, n)
			for i := range ms {
				var err error
				if ms[i], err = one(ctx); err != nil {
					return nil, err
				}
			}
			return ms, nil
		}
	}
	return []Side{repeat(ort), repeat(own)}, nil
}
