package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"spc"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/op"
	"spc/tests/zoo"
)

// Predicted says what a run of a model was predicted to take, and what it took.
type Predicted struct {
	Name        string  `json:"name"`
	Threads     int     `json:"threads"`
	Sparsity    float64 `json:"sparsity"` // uniform; 0 for dense
	PredictedMs float64 `json:"predicted_ms"`
	Ms          float64 `json:"ms"`                // the median of runs
	Unsized     int     `json:"unsized,omitempty"` // nodes whose sizes were not known, and which the prediction leaves out
	Profile     string  `json:"profile,omitempty"` // unless it is the default
	Error       string  `json:"error,omitempty"`

	nodes       []spc.NodeTime
	interpreted []string // of these, that have no kernel
}

// Off is the factor by which the prediction is off, 1 or more.
func (p Predicted) Off() float64 { return math.Exp(math.Abs(math.Log(p.PredictedMs / p.Ms))) }

// predictedSparsities are those that models are predicted at.
var predictedSparsities = []float64{0, 0.8}

// RunPredicted predicts and measures members of the zoo in b.Models, dense and pruned.
func (b *Bench) RunPredicted(ctx context.Context, members []zoo.Member, export func(ctx context.Context, name string) error) (out []Predicted, err error) {
	for i, m := range members {
		b.progress(m.Name, i, len(members))
		s := session{Bench: b}
		some, err := s.predicted(ctx, m.Name, export)
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		if err != nil {
			some = append(some, Predicted{Name: m.Name, Error: b.reason(err)})
		}
		out = append(out, some...)
		debug.FreeOSMemory()
	}
	return out, nil
}

func (s *session) predicted(ctx context.Context, name string, export func(context.Context, string) error) (out []Predicted, err error) {
	path, err := s.exported(ctx, name, export)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.Scratch, "predict")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if _, err := s.member(ctx, path, dir); err != nil {
		return nil, err
	}
	for _, sparsity := range predictedSparsities {
		for _, t := range s.Threads {
			p, err := s.predict(ctx, sparsity, t)
			if err != nil {
				return out, err
			}
			p.Name = name
			out = append(out, *p)
		}
	}
	return out, nil
}

// predict compiles a model, and compares what a run is predicted to take with what it takes.
func (s *session) predict(ctx context.Context, sparsity float64, threads int) (p *Predicted, err error) {
	pattern := ""
	if sparsity > 0 {
		pattern = "uniform"
	}
	o := spc.CompileOptions{Run: spc.RunOptions{Threads: threads}, Profile: s.Profile}
	if o.Prune, err = pruning(pattern, sparsity, ""); err != nil {
		return nil, err
	}
	m, err := s.source.compile(ctx, o)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	p = &Predicted{Threads: threads, Sparsity: sparsity}
	if s.Profile != nil {
		p.Profile = s.Profile.Name
	}
	f, err := m.Forecast(threads, s.source.inputs)
	if err != nil {
		return nil, err
	}
	if f.Predicted == nil {
		return nil, errors.New("nothing is predicted")
	}
	p.PredictedMs, p.Unsized = f.Predicted.Ms, f.Predicted.Unsized
	for _, i := range f.Interpreted {
		p.interpreted = append(p.interpreted, i.Nodes...)
	}
	return p, p.measure(ctx, m, s.source)
}

// How long a model is measured, and how often at least and at most.
const (
	predictedTime                     = 500 * time.Millisecond
	predictedLeast, predictedMostRuns = 5, 200
)

// measure runs the model, and its nodes one by one.
func (p *Predicted) measure(ctx context.Context, m *spc.Model, s *source) error {
	var runs []float64
	began := time.Now()
	for i := 0; i <= predictedLeast || i < predictedMostRuns && time.Since(began) < predictedTime; i++ {
		start := time.Now()
		if _, err := m.Run(ctx, s.inputs); err != nil {
			return err
		}
		if i > 0 {
			runs = append(runs, time.Since(start).Seconds()*1e3)
		}
	}
	p.Ms = Median(runs)
	times := map[string][]float64{}
	for range predictedLeast {
		_, nodes, err := m.Profile(ctx, s.inputs)
		if err != nil {
			return err
		}
		p.nodes = nodes
		for _, n := range nodes {
			times[n.Node] = append(times[n.Node], float64(n.Time))
		}
	}
	for i := range p.nodes {
		p.nodes[i].Time = time.Duration(Median(times[p.nodes[i].Node]))
	}
	return nil
}

// FitNodes fits what nodes without predicted products take, as a profile has it, to runs on one thread, and how much further threads add. Each
// node counts as much as its share of its model's time. What nodes with products take besides stays.
func FitNodes(p *machine.Profile, all []Predicted) {
	kinds := map[string][]nodeSample{}
	alone := map[string]float64{}
	for _, x := range all {
		if x.Error != "" || x.Threads != 1 {
			continue
		}
		alone[x.key()] = x.Ms
		for _, n := range x.nodes {
			if n.Predicted > 0 || !n.Sized || n.Time <= 0 || n.Bytes < fewBytes || slices.Contains(x.interpreted, n.Node) {
				continue
			}
			s := nodeSample{n.FLOPs / p.Peak, n.Bytes / p.Peak, n.Time.Seconds(), n.Time.Seconds() / (1e-3 * x.Ms)}
			kinds[n.Op] = append(kinds[n.Op], s)
			kinds[machine.Others] = append(kinds[machine.Others], s)
		}
	}
	fitted := maps.Clone(p.Nodes)
	if fitted == nil {
		fitted = map[string]machine.NodeCost{}
	}
	const enough = 3
	for kind, list := range kinds {
		if len(list) < enough {
			continue
		}
		n := fitNode(list)
		if o, err := op.New(kind); err == nil {
			if _, weights := o.(ir.WeightOp); weights {
				old := p.Node(kind)
				n.Start, n.Step, n.State = old.Start, old.Step, old.State
			}
		}
		fitted[kind] = n
	}
	p.Nodes = fitted
	var gains []float64
	for _, x := range all {
		if one := alone[x.key()]; one > 0 && x.Error == "" && x.Threads > 1 {
			gains = append(gains, (one/x.Ms-1)/float64(x.Threads-1))
		}
	}
	if len(gains) > 0 {
		p.Threads = digits(max(machine.LeastThreads, Median(gains)))
	}
}

// key tells models and their sparsities apart.
func (p Predicted) key() string { return fmt.Sprint(p.Name, " ", p.Sparsity) }

// fewBytes is how many bytes a node has to move for its time to say something of an operation or a byte.
const fewBytes = 1024

// nodeSample is what a node took, its work by the peak.
type nodeSample struct{ flops, bytes, seconds, weight float64 }

// fitNode finds the NodeCost that predicts samples best, by coordinate descent.
func fitNode(list []nodeSample) machine.NodeCost {
	x := [3]float64{1e-6, 4, 2}
	loss := func() (sum float64) {
		for _, s := range list {
			sum += s.weight * math.Abs(math.Log((x[0]+x[1]*s.flops+x[2]*s.bytes)/s.seconds))
		}
		return sum
	}
	best := loss()
	for factor := 2.0; factor > 1.005; factor = math.Sqrt(factor) {
		for again := true; again; {
			again = false
			for i := range x {
				for _, by := range []float64{factor, 1 / factor} {
					old := x[i]
					if x[i] = old * by; i == 0 && x[i] > 2e-5 {
						x[i] = old
						continue
					}
					if l := loss(); l < best*(1-1e-9) {
						best, again = l, true
						continue
					}
					x[i] = old
				}
			}
		}
	}
	return machine.NodeCost{Start: digits(x[0]), FLOP: digits(x[1]), Byte: digits(x[2])}
}

// digits keeps three digits.
func digits(v float64) float64 {
	out, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	if err != nil {
		return v
	}
	return out
}

// The bars of predictions: the factor that the share of the models is within, and that all are.
const (
	predictedBar, predictedShare = 1.15, 0.9
	predictedMost                = 1.3
	predictedSmall               = 0.2 // milliseconds; what takes less does not count
)

// printPredicted prints how far predictions are off, those that are the most first.
func (r *Results) printPredicted(w io.Writer) {
	var counted []Predicted
	for _, p := range r.Predicted {
		if p.Error == "" && p.Ms >= predictedSmall {
			counted = append(counted, p)
		}
	}
	slices.SortStableFunc(counted, func(a, b Predicted) int { return cmp.Compare(b.Off(), a.Off()) })
	for _, sparsity := range predictedSparsities {
		threads := map[int]bool{}
		for _, p := range counted {
			if threads[p.Threads] || p.Sparsity != sparsity {
				continue
			}
			threads[p.Threads] = true
			within, most, n, sum := 0, 0, 0, 0.0
			for _, q := range counted {
				if q.Threads != p.Threads || q.Sparsity != sparsity {
					continue
				}
				n++
				sum += math.Log(q.PredictedMs / q.Ms)
				if q.Off() <= predictedBar {
					within++
				}
				if q.Off() <= predictedMost {
					most++
				}
			}
			fmt.Fprintf(w, "\n%s zeros, %s: of %s %d are predicted within %s (bar %s), %d within %s (bar all); in the mean %.2f times what they take",
				share(sparsity), plural(p.Threads, "thread"), plural(n, "model"), within, share(predictedBar-1), share(predictedShare), most, share(predictedMost-1),
				math.Exp(sum/float64(n)))
		}
	}
	fmt.Fprint(w, "\n\n")
	t := newTable(w, "model", "zeros", "threads", "predicted ms", "ms", "ratio", "unsized nodes")
	right(t, 2, 3, 4, 5, 6, 7)
	for _, p := range counted {
		t.AppendRow([]any{p.Name, share(p.Sparsity), p.Threads, fmt.Sprintf("%.3f", p.PredictedMs), fmt.Sprintf("%.3f", p.Ms), fmt.Sprintf("%.2f", p.PredictedMs/p.Ms), p.Unsized})
	}
	t.Render()
	for _, p := range r.Predicted {
		if p.Error != "" {
			fmt.Fprintf(w, "%s: %s\n", p.Name, p.Error)
		}
	}
}
