package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spc"
	"spc/backend/cpu"
	"spc/data"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// tieHelp says what --tie takes.
const tieHelp = "`OUTPUT=INPUT`: the output is the input of the next step; * stands for what several have\nin common, as in present.*=past_key_values.*, and auto for caches that are named so"

// tieVar adds the flag that ties outputs to inputs.
func tieVar(c *cobra.Command, fs *pflag.FlagSet, to *[]string) {
	fs.StringArrayVar(to, "tie", nil, tieHelp)
	complete(c, "tie", values("auto"))
}

// tiesOf reads what --tie says of a model.
func tiesOf(args []string, inputs, outputs []spc.Port) (map[string]string, error) {
	ties := map[string]string{}
	for _, arg := range args {
		out, in, named := strings.Cut(arg, "=")
		found := false
		switch {
		case arg == "auto":
			caches := spc.PastTies(inputs, outputs)
			if len(caches) == 0 {
				return nil, fmt.Errorf("--tie auto: no output has the name and the sizes of a cache that an input goes on with; the outputs are %s, the inputs %s", describe(outputs), describe(inputs))
			}
			maps.Copy(ties, caches)
			found = true
		case !named || out == "" || in == "" || strings.Count(out, "*") != strings.Count(in, "*") || strings.Count(out, "*") > 1:
			return nil, fmt.Errorf("--tie %s: want OUTPUT=INPUT, each with one * or none, or auto", arg)
		case !strings.Contains(out, "*"):
			ties[out], found = in, true
		default:
			head, tail, _ := strings.Cut(out, "*")
			for _, p := range outputs {
				if rest, ok := strings.CutPrefix(p.Name, head); ok && strings.HasSuffix(rest, tail) {
					ties[p.Name] = strings.Replace(in, "*", strings.TrimSuffix(rest, tail), 1)
					found = true
				}
			}
		}
		if !found {
			return nil, fmt.Errorf("--tie %s: no output is named so; the outputs are %s", arg, describe(outputs))
		}
	}
	for _, out := range slices.Sorted(maps.Keys(ties)) {
		if !slices.ContainsFunc(inputs, func(p spc.Port) bool { return p.Name == ties[out] }) {
			return nil, fmt.Errorf("--tie: no input is named %q, to which output %s is tied; the inputs are %s", ties[out], out, describe(inputs))
		}
	}
	return ties, nil
}

// untied lists the inputs that no output is tied to.
func untied(inputs []spc.Port, ties map[string]string) []spc.Port {
	tied := slices.Collect(maps.Values(ties))
	return slices.DeleteFunc(slices.Clone(inputs), func(p spc.Port) bool { return slices.Contains(tied, p.Name) })
}

// stepFlags say that a model runs several times, on what the run before left.
type stepFlags struct {
	steps int
	ties  []string
}

func (f *stepFlags) add(c *cobra.Command) {
	c.Flags().IntVar(&f.steps, "steps", 0, "runs, of which each but the first gets what --tie names of the one before; a file of as\nmany inputs, one axis more than the model's, has one for each, and one of a mask of all\ntokens what the last gets. The outputs are the last's")
	tieVar(c, c.Flags(), &f.ties)
	complete(c, "steps", cobra.NoFileCompletions)
}

// session begins a session of a model that is here.
func (s *side) session(o spc.SessionOptions) (*spc.Session, error) {
	switch {
	case s.remote != nil:
		return nil, fmt.Errorf("%s: steps are not tied at a server, but by its states", s.path)
	case s.model == nil:
		return s.original.NewSession(o)
	case s.interpret:
		return s.model.NewInterpretedSession(o)
	}
	return s.model.NewSession(o)
}

// steps runs a model n times, on the inputs that each step gets, and returns the outputs of the last.
func (s *side) steps(ctx context.Context, ties map[string]string, n int, inputs func(i int) map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
	session, err := s.session(spc.SessionOptions{Ties: ties})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path, err)
	}
	defer session.Close()
	out := map[string]*tensor.Tensor{}
	for i := range n {
		if err := session.Step(ctx, inputs(i), out); err != nil {
			return nil, fmt.Errorf("%s: step %d: %w", s.path, i+1, err)
		}
	}
	for name, in := range ties {
		out[name] = session.State(in)
	}
	return out, nil
}

// decoding is a prompt and steps of one token each.
type decoding struct{ Prompt, Steps int }

// maxTokens bounds what --decode asks for.
const maxTokens = 1 << 20

func (d decoding) String() string { return fmt.Sprintf("%d:%d", d.Prompt, d.Steps) }

func parseDecoding(s string) (d decoding, err error) {
	if n, err := fmt.Sscanf(s, "%d:%d", &d.Prompt, &d.Steps); err != nil || n != 2 || d.String() != s || d.Prompt < 1 || d.Steps < 1 || d.Prompt+d.Steps > maxTokens {
		return d, fmt.Errorf("%q, want PROMPT:STEPS, such as 128:64, both at least 1 and together at most %d", s, maxTokens)
	}
	return d, nil
}

// decodeTimes is what bench --decode prints.
type decodeTimes struct {
	Model   string  `json:"model"`
	Batch   int     `json:"batch"`
	Device  string  `json:"device"`
	Threads int     `json:"threads"`
	Prompt  int     `json:"prompt"`
	Steps   int     `json:"steps"`
	FirstMs float64 `json:"first_ms"`          // from the prompt to the first token
	Tokens  float64 `json:"tokens_per_second"` // of the steps, of all samples
	Ms      latency `json:"ms"`                // of a step
	// PeakBytes is resident in the process at most, from before the first run on.
	PeakBytes int64 `json:"peak_bytes"`
}

// decoder is a model whose steps are measured.
type decoder struct {
	path    string
	model   *spc.Model
	session *spc.Session
	ports   []spc.Port // that are not tied
	tokens  string     // the symbol of the new ones
	given   map[string]source
	dims    map[string]int
	norm    func() (data.Norm, error)
}

// runDecode measures a session.
func (f *benchFlags) runDecode(c *cobra.Command, path string) error {
	s, err := f.shapes.parse()
	if err != nil {
		return err
	}
	if err := f.device.open(c); err != nil {
		return err
	}
	model, err := loadBatch(c, path, f.batch, &s, f.device.run)
	if err != nil {
		return err
	}
	defer model.Close()
	d := &decoder{path: path, model: model, dims: maps.Clone(s.dims), norm: func() (data.Norm, error) { return f.inputs.norm.norm(c.Flags()) }}
	if d.dims == nil {
		d.dims = map[string]int{}
	}
	if err := d.open(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer d.session.Close()
	r := decodeTimes{Model: path, Threads: f.device.run.Threads, Prompt: f.decode.Prompt, Steps: f.decode.Steps}
	if r.Threads == 0 {
		r.Threads = cpu.Cores()
	}
	for r.Device != f.device.used() { // again where another device has taken over
		r.Device = f.device.used()
		if err := d.measure(c.Context(), &r); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if f.asJSON {
		return printJSON(c.OutOrStdout(), r)
	}
	r.print(c.OutOrStdout())
	return nil
}

// open begins the session, and finds out which dimension counts tokens.
func (d *decoder) open(f *benchFlags) error {
	inputs, outputs := d.model.Inputs(), d.model.Outputs()
	args := f.ties
	if len(args) == 0 {
		args = []string{"auto"}
	}
	ties, err := tiesOf(args, inputs, outputs)
	if err != nil {
		return err
	}
	if d.session, err = d.model.NewSession(spc.SessionOptions{Ties: ties, Capacity: f.decode.Prompt + f.decode.Steps}); err != nil {
		return err
	}
	d.ports = untied(inputs, ties)
	if d.given, err = f.inputs.sources(d.ports); err != nil {
		return err
	}
	d.tokens, err = tokenSymbol(inputs, outputs, ties)
	return err
}

// tokenSymbol is what caches grow by in a step, or the only open size of inputs that are not tied, but for the batch.
func tokenSymbol(inputs, outputs []spc.Port, ties map[string]string) (string, error) {
	port := func(list []spc.Port, name string) spc.Port {
		return list[slices.IndexFunc(list, func(p spc.Port) bool { return p.Name == name })]
	}
	own := map[string]bool{} // of caches
	for _, out := range slices.Sorted(maps.Keys(ties)) {
		to, from := port(outputs, out), port(inputs, ties[out])
		for i, d := range from.Dims {
			own[d.Symbol()] = true
			if i < len(to.Dims) && to.Dims[i] != d {
				if by := ir.Sum(to.Dims[i], ir.Mul(ir.Size(-1), d)); len(by.Symbols()) == 1 && by.Symbol() == by.Symbols()[0] && !by.Fresh() {
					return by.Symbol(), nil
				}
			}
		}
	}
	var open []string
	for _, p := range untied(inputs, ties) {
		if strings.Contains(p.Name, "mask") { // of all tokens
			continue
		}
		for _, d := range p.Dims {
			for _, s := range d.Symbols() {
				if !own[s] && !choose.NamesBatch(s) && !slices.Contains(open, s) {
					open = append(open, s)
				}
			}
		}
	}
	if len(open) != 1 {
		return "", fmt.Errorf("--decode: cannot tell which size of the inputs counts tokens: %s", describe(inputs))
	}
	return open[0], nil
}

// inputs are those of a step of n tokens behind others: random ones, but for positions and masks that let all be seen.
func (d *decoder) inputs(behind, n int) (map[string]*tensor.Tensor, error) {
	dims := maps.Clone(d.dims)
	dims[d.tokens] = n
	for _, p := range d.ports {
		for i, e := range p.Dims {
			for _, s := range e.Symbols() {
				if _, known := dims[s]; known || i == 0 || choose.NamesBatch(s) {
					continue
				}
				if dims[s] = behind + n; e.Computed() { // all tokens, as a mask has them: those before, or what they are with these
					dims[s] = behind
				}
			}
		}
	}
	r := request{ports: d.ports, sources: d.given, sizes: sizes{dims: dims}, missing: &data.Random{Seed: 1}, norm: d.norm}
	in, err := r.tensors()
	if err != nil {
		return nil, err
	}
	for _, p := range d.ports {
		if _, given := d.given[p.Name]; given || !p.DType.IsInt() {
			continue
		}
		x, each := in[p.Name], 1
		if x.Rank() > 0 {
			each = x.Dim(x.Rank() - 1)
		}
		switch {
		case p.Name == "seqlens_k": // as GroupQueryAttention has them
			in[p.Name] = counted(x, func(int) int64 { return int64(behind + n - 1) })
		case p.Name == "total_sequence_length":
			in[p.Name] = counted(x, func(int) int64 { return int64(behind + n) })
		case strings.Contains(p.Name, "position"):
			in[p.Name] = counted(x, func(i int) int64 { return int64(behind + i%each) })
		case strings.Contains(p.Name, "mask"):
			in[p.Name] = counted(x, func(int) int64 { return 1 })
		}
	}
	return in, nil
}

// counted is a tensor of the type of x, whose elements f gives.
func counted(x *tensor.Tensor, f func(i int) int64) *tensor.Tensor {
	y := tensor.New(tensor.I64, x.Shape()...)
	for i := range tensor.Data[int64](y) {
		tensor.Data[int64](y)[i] = f(i)
	}
	return y.To(x.DType())
}

// measure decodes twice, the first time to make everything ready.
func (d *decoder) measure(ctx context.Context, r *decodeTimes) error {
	forgetPeak()
	for range 2 {
		d.session.Reset()
		out, times := map[string]*tensor.Tensor{}, make([]float64, 0, r.Steps)
		for i := range r.Steps + 1 {
			behind, n := 0, r.Prompt
			if i > 0 {
				behind, n = r.Prompt+i-1, 1
			}
			in, err := d.inputs(behind, n)
			if err != nil {
				return err
			}
			start := time.Now()
			if err := d.session.Step(ctx, in, out); err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
			if ms := time.Since(start).Seconds() * 1e3; i > 0 {
				times = append(times, ms)
			} else {
				r.FirstMs = ms
			}
			if r.Batch = 1; len(d.ports) > 0 && in[d.ports[0].Name].Rank() > 0 {
				r.Batch = in[d.ports[0].Name].Dim(0)
			}
		}
		r.Ms = latencies(times)
		r.Tokens = float64(r.Batch) / r.Ms.Mean * 1e3
	}
	r.PeakBytes = peakBytes()
	return nil
}

func (r *decodeTimes) print(w io.Writer) {
	on := ""
	if r.Device != "cpu" {
		on = r.Device + ", "
	}
	fmt.Fprintf(w, "%s  batch %d, %s%s, a prompt of %s and %s\n\n", printable(r.Model), r.Batch, on, plural(r.Threads, "thread"), plural(r.Prompt, "token"), plural(r.Steps, "step"))
	t := newTable(w, "first token", "tokens", "a step: mean", "p50", "p90", "p99", "peak memory")
	right(t, 1, 2, 3, 4, 5, 6, 7)
	ms := func(v float64) string { return fmt.Sprintf("%.4g ms", v) }
	t.AppendRow([]any{ms(r.FirstMs), fmt.Sprintf("%.4g/s", r.Tokens), ms(r.Ms.Mean), ms(r.Ms.P50), ms(r.Ms.P90), ms(r.Ms.P99), size(r.PeakBytes)})
	t.Render()
}
