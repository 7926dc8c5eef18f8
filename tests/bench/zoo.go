package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"spc"
	"spc/internal/atomicfile"
	"spc/ir/onnx"
	"spc/ir/tensor"
	"spc/tests/graphtest"
	"spc/tests/zoo"
)

// SelectMembers returns the members whose name matches one of the globs, all without one.
func SelectMembers(all []zoo.Member, globs []string) ([]zoo.Member, error) {
	return selected(all, globs, func(m zoo.Member) string { return m.Name })
}

// Ordered sorts results as the list has their members, those of one thread first.
func Ordered(results []Zoo, all []zoo.Member) []Zoo {
	out := slices.Clone(results)
	at := func(z Zoo) int { return slices.IndexFunc(all, func(m zoo.Member) bool { return m.Name == z.Name }) }
	slices.SortStableFunc(out, func(a, b Zoo) int { return cmp.Or(a.Threads-b.Threads, at(a)-at(b)) })
	return out
}

// Zoo is what a member measured on some threads.
type Zoo struct {
	Name     string       `json:"name"`
	Group    string       `json:"group"`
	Threads  int          `json:"threads"`
	ORT      float64      `json:"ort_ms"` // dense; the fastest run of all sittings
	Variants []ZooVariant `json:"variants,omitempty"`
	Peak     ZooPeak      `json:"peak"`
	// Interpreted are the operators that the dense compile has no kernel for, the slowest first.
	Interpreted []ZooShare `json:"interpreted,omitempty"`
	Others      float64    `json:"others"` // the share of the processors that other processes used
	Error       string     `json:"error,omitempty"`
}

// ZooVariant is a compile of a member.
type ZooVariant struct {
	Name    string  `json:"name"`
	SPC     float64 `json:"spc_ms"` // the fastest run of all sittings
	Ratio   Spread  `json:"ratio"`  // ONNX Runtime's time to spc's, by round
	Own     Spread  `json:"own"`    // the time of spc's dense compile to this one's, by round
	RelL2   float64 `json:"rel_l2"` // of the outputs, to ONNX Runtime's of the same weights
	Formats string  `json:"formats"`
}

// ZooShare is the part of a run's time that nodes of an operator take.
type ZooShare struct {
	Op    string  `json:"op"`
	Nodes int     `json:"nodes"`
	Share float64 `json:"share"`
}

// ZooPeak is the peak of the memory of a process that loads the dense model and runs it once, in MiB.
type ZooPeak struct {
	ORT float64 `json:"ort_mib"` // node's own included
	SPC float64 `json:"spc_mib"`
}

// ZooTolerance bounds the relative l2 error of members' outputs to ONNX Runtime's.
const ZooTolerance = 1e-4

// zooVariants lists the compiles; the first is the dense one.
var zooVariants = []struct {
	name string
	Variant
	// What is written in 16-bit floats: in weights those of the f32 model, in model all of it, where there is such a
	// model. Outputs of these are not compared.
	weights, model tensor.DType
}{
	{name: "dense", Variant: Variant{Untouched, 0}},
	{name: "uniform 80%", Variant: Variant{"uniform", 0.8}},
	{name: "uniform 90%", Variant: Variant{"uniform", 0.9}},
	{name: "4x1 80%", Variant: Variant{"uniform-block:4x1", 0.8}},
	{name: "f16", model: tensor.F16},
	{name: "bf16 weights", weights: tensor.BF16},
}

// zooSittings is how often models are loaded anew and ONNX Runtime's process is started.
const zooSittings = 3

// ZooTurns are those of a sitting.
var ZooTurns = Turns{Rounds: 5, Least: 2, Turn: 100 * time.Millisecond, Budget: 6 * time.Second}

// Best is the ratio of ONNX Runtime's fastest run to that of variant i.
func (z Zoo) Best(i int) float64 { return z.ORT / z.Variants[i].SPC }

// variant is the place of the variant of a name, -1 where there is none.
func (z Zoo) variant(name string) int {
	return slices.IndexFunc(z.Variants, func(v ZooVariant) bool { return v.Name == name })
}

// OwnBest is the ratio of the dense compile's fastest run to that of variant i.
func (z Zoo) OwnBest(i int) float64 { return z.Variants[0].SPC / z.Variants[i].SPC }

// RunZoo measures members, those that export writes where b.Models does not hold them. What have
// holds of a member and a number of threads without an error is not measured again, and stays. After each member save gets all so far.
func (b *Bench) RunZoo(ctx context.Context, members []zoo.Member, have []Zoo, export func(ctx context.Context, name string) error, save func([]Zoo) error) ([]Zoo, error) {
	out := slices.DeleteFunc(slices.Clone(have), func(z Zoo) bool { return z.Error != "" })
	for i, m := range members {
		left := *b
		left.Threads = slices.DeleteFunc(slices.Clone(b.Threads), func(t int) bool {
			return slices.ContainsFunc(out, func(z Zoo) bool { return z.Name == m.Name && z.Threads == t })
		})
		if len(left.Threads) == 0 {
			continue
		}
		b.progress(m.Name, i, len(members))
		s := session{Bench: &left}
		rows, err := s.zoo(ctx, m, export)
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		if err != nil {
			rows = append(rows, Zoo{Name: m.Name, Group: m.Group, Threads: left.Threads[0], Error: b.reason(err)})
		}
		out = append(out, rows...)
		if err := save(out); err != nil {
			return out, err
		}
		debug.FreeOSMemory()
	}
	return out, nil
}

// exported is the file of a member, which export writes where it is missing.
func (b *Bench) exported(ctx context.Context, name string, export func(context.Context, string) error) (string, error) {
	path := filepath.Join(b.Models, name+".onnx")
	if _, err := os.Stat(path); err != nil {
		return path, export(ctx, name)
	}
	return path, nil
}

// zoo measures a member on each number of threads.
func (s *session) zoo(ctx context.Context, m zoo.Member, export func(context.Context, string) error) ([]Zoo, error) {
	path, err := s.exported(ctx, m.Name, export)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.Scratch, "zoo")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	notes, err := s.member(ctx, path, dir)
	if err != nil {
		return nil, err
	}
	var files []string
	var variants []ZooVariant
	for i, v := range zooVariants {
		file := filepath.Join(dir, strconv.Itoa(i)+".spx")
		var z ZooVariant
		switch {
		case v.model != tensor.Undefined:
			if !s.half(ctx, file, filepath.Join(dir, "half.onnx"), v.model) {
				continue
			}
		case v.weights != tensor.Undefined:
			if z.Formats, err = s.save(ctx, file, spc.CompileOptions{Quantize: spc.QuantizeOptions{Type: v.weights}}); err != nil {
				return nil, fmt.Errorf("%s: %w", v.name, err)
			}
		default:
			if z, err = s.zooVariant(ctx, v.Variant, file, filepath.Join(dir, "pruned.onnx"), notes); err != nil {
				return nil, fmt.Errorf("%s: %w", v.name, err)
			}
		}
		z.Name = v.name
		files, variants = append(files, file), append(variants, z)
	}
	peak, err := s.peak(ctx, files[0])
	if err != nil {
		return nil, err
	}
	interpreted, err := s.interpreted(ctx, files[0])
	if err != nil {
		return nil, err
	}
	var out []Zoo
	for _, t := range s.Threads {
		z := Zoo{Name: m.Name, Group: m.Group, Threads: t, Peak: peak, Interpreted: interpreted, Variants: slices.Clone(variants)}
		if err := s.race(ctx, &z, files); err != nil {
			return out, err
		}
		out = append(out, z)
	}
	return out, nil
}

// member makes s.source the model at path, with the inputs that its notes describe.
func (s *session) member(ctx context.Context, path, dir string) (notes zoo.Notes, err error) {
	_, info, err := onnx.Import(path, onnx.Options{})
	if err != nil {
		return nil, err
	}
	notes = zoo.Notes{}
	for _, p := range info.Metadata {
		notes[p.Key] = p.Value
	}
	o, err := spc.Import(ctx, spc.ImportOptions{Model: path})
	if err != nil {
		return nil, err
	}
	s.source = &source{path: path}
	if s.source.inputs, err = notes.Inputs(o.Inputs()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s.inputs, err = writeTensors(dir, s.source.inputs)
	return notes, err
}

// zooVariant compiles a variant into file and compares its outputs with what ONNX Runtime makes of the
// same weights, which are written to pruned on the way.
func (s *session) zooVariant(ctx context.Context, v Variant, file, pruned string, notes zoo.Notes) (z ZooVariant, err error) {
	var o spc.CompileOptions
	if o.Prune, err = pruning(v.Pattern, v.Sparsity, ""); err != nil {
		return z, err
	}
	if z.Formats, err = s.save(ctx, file, o); err != nil {
		return z, err
	}
	debug.FreeOSMemory()
	// On more threads ONNX Runtime 1.30 loses terms of a ScatterElements that adds to an element twice.
	want, err := s.reference(ctx, o, pruned, 1)
	if err != nil {
		return z, err
	}
	m, err := spc.Open(file, spc.RunOptions{})
	if err != nil {
		return z, err
	}
	defer m.Close()
	got, err := m.Run(ctx, s.source.inputs)
	if err != nil {
		return z, err
	}
	if got, err = notes.Compared(got); err != nil {
		return z, err
	}
	if want, err = notes.Compared(want); err != nil {
		return z, err
	}
	if z.RelL2, err = differ(got, want); err == nil && !(z.RelL2 <= ZooTolerance) {
		err = fmt.Errorf("relative l2 error %.2g, want at most %.0e", z.RelL2, ZooTolerance)
	}
	return z, err
}

// half compiles the model in floats of a type into file, and reports whether there is such a model.
func (s *session) half(ctx context.Context, file, model string, dt tensor.DType) bool {
	g, _, err := onnx.Import(s.source.path, onnx.Options{})
	if err != nil || graphtest.Half(g, dt) != nil {
		return false
	}
	err = atomicfile.Write(model, func(w io.Writer) error { return onnx.Export(w, g, "spc", "zoo") })
	if err != nil {
		return false
	}
	m, err := spc.Compile(ctx, spc.CompileOptions{Model: model})
	if err != nil {
		return false
	}
	defer m.Close()
	return m.Save(file) == nil
}

// interpreted measures what nodes take that the CPU has no kernel for.
func (s *session) interpreted(ctx context.Context, file string) ([]ZooShare, error) {
	m, err := spc.Open(file, spc.RunOptions{Threads: 1})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	places, err := m.Placements(s.source.inputs)
	if err != nil {
		return nil, err
	}
	slow := map[string]bool{}
	for _, p := range places {
		if p.Interpreted {
			slow[p.Node] = true
		}
	}
	if len(slow) == 0 {
		return nil, nil
	}
	if _, err := m.Run(ctx, s.source.inputs); err != nil { // which may bind kernels
		return nil, err
	}
	_, times, err := m.Profile(ctx, s.source.inputs)
	if err != nil {
		return nil, err
	}
	by, total := map[string]*ZooShare{}, 0.0
	for _, t := range times {
		total += t.Time.Seconds()
		if !slow[t.Node] {
			continue
		}
		if by[t.Op] == nil {
			by[t.Op] = &ZooShare{Op: t.Op}
		}
		by[t.Op].Nodes++
		by[t.Op].Share += t.Time.Seconds()
	}
	var out []ZooShare
	for _, z := range by {
		z.Share /= total
		out = append(out, *z)
	}
	slices.SortFunc(out, func(a, b ZooShare) int { return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Op, b.Op)) })
	return out, nil
}

// race times ONNX Runtime and the compiled files on z.Threads.
func (s *session) race(ctx context.Context, z *Zoo, files []string) error {
	z.ORT = math.Inf(1)
	rounds := make([][]float64, len(files)+1)
	for range zooSittings {
		if err := s.sitting(ctx, z, files, rounds); err != nil {
			return err
		}
	}
	for i := range z.Variants {
		v := &z.Variants[i]
		v.Ratio, v.Own = Describe(Ratios(rounds[0], rounds[i+1])), Describe(Ratios(rounds[1], rounds[i+1]))
	}
	return nil
}

// sitting adds to rounds the turns of ONNX Runtime and of each file, and keeps the fastest runs.
func (s *session) sitting(ctx context.Context, z *Zoo, files []string, rounds [][]float64) error {
	w, err := s.ORT.Start(ctx, z.Threads)
	if err != nil {
		return err
	}
	defer w.Close()
	if _, err := w.Load(s.source.path, s.inputs); err != nil {
		return err
	}
	sides := []Side{w.Run}
	for i, f := range files {
		m, err := spc.Open(f, spc.RunOptions{Threads: z.Threads})
		if err != nil {
			return err
		}
		defer m.Close()
		source := s.source
		if z.Variants[i].Name == "f16" {
			source = s.source.halved()
		}
		sides = append(sides, source.side(m))
	}
	from := use(w.Pid())
	times, err := s.Turns.Play(ctx, sides...)
	if err != nil {
		return err
	}
	z.Others = max(z.Others, others(from, use(w.Pid())))
	for i, t := range times {
		rounds[i] = append(rounds[i], t.Turns...)
		if i == 0 {
			z.ORT = min(z.ORT, t.Best)
		} else if v := &z.Variants[i-1]; v.SPC == 0 || t.Best < v.SPC {
			v.SPC = t.Best
		}
	}
	return nil
}

// peak measures the memory of processes of both sides.
func (s *session) peak(ctx context.Context, file string) (p ZooPeak, err error) {
	w, err := s.ORT.Start(ctx, 1)
	if err != nil {
		return p, err
	}
	if _, err = w.Load(s.source.path, s.inputs); err == nil {
		if _, err = w.Run(ctx, 1); err == nil {
			p.ORT, err = resident(w.Pid())
		}
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return p, err
	}
	inputs, err := s.inputArgs()
	if err != nil {
		return p, err
	}
	args := append([]string{"--warmup", "0", "--threads", "1", "--runs", "1"}, inputs...)
	told, err := spcBench(ctx, s.Program, file, args...)
	p.SPC = told.Peak / (1 << 20)
	return p, err
}

// resident is the peak of the memory of a process, in MiB; 0 where the system does not tell.
func resident(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	var kib float64
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok && err == nil {
			_, err = fmt.Sscan(rest, &kib)
		}
	}
	return kib / 1024, err
}
