package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"spc"
	"spc/data"
	"spc/ir/tensor"
	"spc/passes/prune"
	"spc/tests/archs"
)

// Regret says what a choice of formats costs: of a problem, how much longer the node of its weight takes in the format that is chosen than
// in the best of those that were measured.
type Regret struct {
	Problem   string  `json:"problem"`
	Pattern   string  `json:"pattern"`
	Sparsity  float64 `json:"sparsity"`
	Columns   int     `json:"columns"`
	Threads   int     `json:"threads"`
	Chosen    string  `json:"chosen"`
	Best      string  `json:"best"`
	Forms     int     `json:"forms"`     // that were measured
	Us        float64 `json:"us"`        // of the chosen one
	BestUs    float64 `json:"best_us"`   // of the best
	Predicted float64 `json:"predicted"` // the prediction of the product in the chosen one, as a share of the node's time
	Tuned     bool    `json:"tuned,omitempty"`
	Profile   string  `json:"profile,omitempty"` // unless it is the default
}

// Ratio is how much longer the chosen format takes than the best.
func (r Regret) Ratio() float64 { return r.Us / r.BestUs }

// regretPatterns are the patterns of problems.
var regretPatterns = []string{"uniform", "unstructured", "2:4", "block:4x1", "block:1x4", "uniform-block:4x1", "uniform-block:8x1", "uniform-block:16x1"}

// together is how many problems one network has: its weights are read one after the other, and the results of each make way
// for the next, as in other networks.
const together = 8

// problem is a node with a weight, drawn at random.
type problem struct {
	name     string
	text     string
	sparsity float64
	weight   string                 // that is pruned
	kept     string                 // one that is not; empty where there is none
	build    func(b *archs.Builder) // adds it, with an input and an output of its own
}

// drawn draws a size from lo to hi, as often as any other with as many times as much.
func drawn(rng *rand.Rand, lo, hi, step int) int {
	n := float64(lo) * math.Pow(float64(hi)/float64(lo), rng.Float64())
	return max(lo, int(math.Round(n/float64(step)))*step)
}

// The multiply-adds of dense weights: with fewer than the least a node takes some microseconds, and its kernel little of them.
const leastProducts, mostProducts = 200e3, 400e6

// newProblem draws the number-th problem: products of tokens, convolutions, and recurrent operators.
func newProblem(rng *rand.Rand, number int) problem {
	p := problem{name: fmt.Sprintf("p%d", number), sparsity: 0.3 + 0.65*rng.Float64()}
	for {
		macs := 0.0
		p.weight, p.kept, p.text = p.name, "", ""
		switch rng.IntN(5) {
		case 0, 1:
			m, k, n := drawn(rng, 16, 3072, 8), drawn(rng, 16, 3072, 8), drawn(rng, 1, 4096, 1)
			macs, p.text = float64(m)*float64(k)*float64(n), fmt.Sprintf("tokens %d x %d, %d columns", m, k, n)
			p.build = func(b *archs.Builder) {
				x := b.Input(p.name+".x", archs.Float32, 1, n, k)
				end(b, p.name, b.Node("MatMul", nil, x, b.Weight(p.name, archs.LeCun(k), k, m)), 3)
			}
		case 2, 3:
			c, m, kernel, size := drawn(rng, 8, 512, 8), drawn(rng, 8, 512, 8), []int{1, 3, 3, 5}[rng.IntN(4)], drawn(rng, 3, 256, 1)
			stride, dilation, batch := 1+rng.IntN(5)/4, 1+rng.IntN(4)/3, 1+3*(rng.IntN(4)/3)
			pad := (kernel - 1) * dilation / 2
			out := (size+2*pad-(kernel-1)*dilation-1)/stride + 1
			macs, p.text = float64(m*c*kernel*kernel)*float64(batch*out*out), fmt.Sprintf("conv %d x %d, %dx%d, stride %d, dilation %d, %d images of %d", m, c, kernel, kernel, stride, dilation, batch, size)
			p.build = func(b *archs.Builder) {
				x := b.Input(p.name+".x", archs.Float32, batch, c, size, size)
				y := b.Node("Conv", archs.Attrs{
					"kernel_shape": []int{kernel, kernel}, "strides": []int{stride, stride}, "dilations": []int{dilation, dilation}, "pads": []int{pad, pad, pad, pad},
				}, x, b.Weight(p.name, archs.LeCun(c*kernel*kernel), m, c, kernel, kernel))
				end(b, p.name, y, 4)
			}
		default:
			hidden, k, steps, batch := drawn(rng, 32, 512, 8), drawn(rng, 32, 512, 8), drawn(rng, 1, 32, 1), drawn(rng, 1, 16, 1)
			op, gates := "LSTM", 4
			// One of its weights is pruned: what the node takes is of both.
			if p.kept = p.name + ".r"; rng.IntN(2) == 0 {
				p.weight, p.kept, p.text = p.kept, p.weight, ", states"
			}
			if rng.IntN(2) == 0 {
				op, gates = "GRU", 3
			}
			macs, p.text = float64(gates*hidden*(hidden+k))*float64(steps*batch), fmt.Sprintf("%s of %d, %d inputs, %d steps of %d", op, hidden, k, steps, batch)+p.text
			p.build = func(b *archs.Builder) {
				x := b.Input(p.name+".x", archs.Float32, steps, batch, k)
				y := b.Nodes(op, 1, archs.Attrs{"hidden_size": hidden}, x, b.Weight(p.name, archs.LeCun(k), 1, gates*hidden, k),
					b.Weight(p.name+".r", archs.LeCun(hidden), 1, gates*hidden, hidden))
				end(b, p.name, y[0], 4)
			}
		}
		if macs >= leastProducts && macs <= mostProducts {
			return p
		}
	}
}

// end makes the first elements along two axes the output, so that the others make way as soon as they are computed.
func end(b *archs.Builder, name, y string, rank int) {
	for range 2 {
		y = b.Node("Gather", archs.Attrs{"axis": 0}, y, b.Index(0))
	}
	dims := make([]any, rank-2)
	for i := range dims {
		dims[i] = fmt.Sprintf("%s.%d", name, i)
	}
	b.Output(name+".y", y, archs.Float32, dims...)
}

// RunRegret measures what the choices of so many problems cost, with spc's formats as they are predicted to be the fastest or, where tuned, as
// a first measurement found them, by a second one.
func (b *Bench) RunRegret(ctx context.Context, count int, seed uint64, tuned bool) (out []Regret, err error) {
	rng := rand.New(rand.NewPCG(seed, 22))
	for number := 0; number < count; {
		pattern := regretPatterns[number/together%len(regretPatterns)]
		var list []problem
		for range min(together, count-number) {
			list = append(list, newProblem(rng, number))
			number++
		}
		b.progress(pattern, number-len(list), count)
		for _, threads := range b.Threads {
			some, err := b.regret(ctx, list, pattern, threads, tuned)
			if err != nil {
				return out, fmt.Errorf("problems %d to %d: %w", number-len(list), number-1, err)
			}
			out = append(out, some...)
		}
	}
	return out, nil
}

// regretForms is how many formats of a weight are measured beside dense: all that are not hopeless.
const regretForms = 16

// regret measures the problems of one network.
func (b *Bench) regret(ctx context.Context, list []problem, pattern string, threads int, tuned bool) (out []Regret, err error) {
	builder := archs.New("regret", 17)
	o := spc.CompileOptions{Run: spc.RunOptions{Threads: threads}, Profile: b.Profile}
	if o.Prune.Pattern, err = prune.ParsePattern(pattern); err != nil {
		return nil, err
	}
	o.Prune.KeepNone = true
	for _, p := range list {
		p.build(builder)
		if p.kept != "" {
			o.Prune.Keep = append(o.Prune.Keep, p.kept)
		}
		if _, own := o.Prune.Pattern.OwnSparsity(); !own {
			o.Prune.Layers = append(o.Prune.Layers, spc.LayerSparsity{Glob: p.weight, Sparsity: p.sparsity})
		}
	}
	model, err := builder.Model(1)
	if err != nil {
		return nil, err
	}
	o.Bytes = model.Bytes()
	m, err := spc.Compile(ctx, o)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	measure := func(forms int) (*spc.Model, error) {
		return m.Tune(ctx, spc.TuneOptions{Forms: forms, Budget: time.Hour, Inputs: func(shapes map[string][]int) (map[string]*tensor.Tensor, error) {
			in := map[string]*tensor.Tensor{}
			for name, shape := range shapes {
				t, err := data.Random{Seed: 1}.Tensor(name, tensor.F32, shape, 0)
				if err != nil {
					return nil, err
				}
				in[name] = t
			}
			return in, nil
		}})
	}
	choice := m
	if tuned {
		if choice, err = measure(0); err != nil {
			return nil, err
		}
		defer choice.Close()
	}
	judge, err := measure(regretForms)
	if err != nil {
		return nil, err
	}
	defer judge.Close()
	texts := map[string]string{}
	for _, p := range list {
		texts[p.weight] = p.text
	}
	for i, l := range choice.Explain().Layers {
		if r, ok := regretOf(&l, judge.Explain().Layers[i].Candidates); ok {
			r.Problem, r.Pattern, r.Threads, r.Tuned = texts[l.Weight], pattern, threads, tuned
			if b.Profile != nil {
				r.Profile = b.Profile.Name
			}
			out = append(out, r)
		}
	}
	return out, nil
}

// regretOf compares the choice for a layer with what its candidates were measured to take. It is false where there was nothing to choose.
func regretOf(l *spc.Layer, measured []spc.Candidate) (r Regret, ok bool) {
	r = Regret{Sparsity: l.Sparsity, Columns: l.N, BestUs: math.Inf(1)}
	for _, c := range measured {
		if c.MeasuredUs == 0 {
			continue
		}
		r.Forms++
		form := c.Format
		if c.Config != "" {
			form += " " + c.Config
		}
		if c.MeasuredUs < r.BestUs {
			r.Best, r.BestUs = form, c.MeasuredUs
		}
		if c.Format == l.Format && c.Config == l.Config {
			r.Chosen, r.Us, r.Predicted = form, c.MeasuredUs, c.PredictedUs/c.MeasuredUs
		}
	}
	return r, r.Forms > 1 && r.Us > 0
}

// The bars of regret: the geometric mean and the worst, by prediction and tuned.
var regretBars = map[bool][2]float64{false: {1.05, 1.25}, true: {1.01, 1.05}}

// printRegret prints what choices cost, and the problems of which they cost the most.
func (r *Results) printRegret(w io.Writer) {
	list := slices.Clone(r.Regret)
	slices.SortStableFunc(list, func(a, b Regret) int {
		switch x, y := a.Ratio(), b.Ratio(); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	var ratios []float64
	for _, x := range list {
		ratios = append(ratios, x.Ratio())
	}
	bars := regretBars[list[0].Tuned]
	how := "by prediction"
	if p := list[0].Profile; p != "" {
		how += " by the profile " + p
	}
	if list[0].Tuned {
		how = "tuned, by a second measurement"
	}
	fmt.Fprintf(w, "\nthe chosen format's time to that of the best measured, %s, %s:\n", how, plural(len(list), "weight"))
	fmt.Fprintf(w, "geometric mean %.3f (bar %.2f), 99%% %.2f, worst %.2f (bar %.2f), %s above the bar\n", GeoMean(ratios), bars[0], ratios[len(ratios)/100],
		ratios[0], bars[1], plural(len(slices.DeleteFunc(slices.Clone(ratios), func(x float64) bool { return x <= bars[1] })), "weight"))
	fmt.Fprintf(w, "predicted is what the product was predicted to take, as a share of what the node took\n\n")
	t := newTable(w, "problem", "pattern", "zeros", "columns", "threads", "chosen", "us", "best", "us", "ratio", "predicted")
	right(t, 3, 4, 5, 7, 9, 10, 11)
	for _, x := range list[:min(20, len(list))] {
		t.AppendRow([]any{x.Problem, x.Pattern, share(x.Sparsity), x.Columns, x.Threads, x.Chosen, fmt.Sprintf("%.1f", x.Us), x.Best,
			fmt.Sprintf("%.1f", x.BestUs), fmt.Sprintf("%.2f", x.Ratio()), fmt.Sprintf("%.2f", x.Predicted)})
	}
	t.Render()
}
