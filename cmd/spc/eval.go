package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"spc"
	"spc/data"
	"spc/internal/atomicfile"
	"spc/internal/pace"
	"spc/ir/tensor"
)

// The metrics of an evaluation.
const (
	top1       = "top1"
	top5       = "top5"
	perplexity = "perplexity"
)

// evaluation is what eval prints. Value and Top5 are in percent, a perplexity is
// not.
type evaluation struct {
	Metric  string   `json:"metric"`
	Value   number   `json:"value"`
	Top5    *float64 `json:"top5,omitempty"`
	N       int      `json:"n"`
	Seconds float64  `json:"seconds"`
}

// evalFlags are the flags of eval.
type evalFlags struct {
	norm                          normFlags
	shapes                        shapeFlags
	path, labels, samples, metric string
	each                          string
	skip                          []int
	device                        deviceFlags
	batch                         int
	asJSON                        bool
}

func evalCommand() *cobra.Command {
	var f evalFlags
	c := &cobra.Command{
		Use:   "eval MODEL.{spx,onnx} --data PATH",
		Short: "Measure a model's accuracy or perplexity on labelled samples",
		Long: `Measure a model on samples: a folder of .jpg and .png files with labels in a .csv
whose columns are file and class_index, npy images u8[n,c,h,w], npy tokens [n,t], or
idx images. Images are resized to the model's input. A model that also scores a
background, which labels do not count, wants --skip-class.

The perplexity of tokens is that of positions 1 to t-1, each given those before it.`,
		Example: `  spc eval model.spx --data photos/ --labels labels.csv --preprocess imagenet
  spc eval model.spx --data test.npy --labels labels.npy --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225
  spc eval model.onnx --data t10k-images-idx3-ubyte.gz --labels t10k-labels-idx1-ubyte.gz --preprocess none
  spc eval lm.spx --data tokens.npy --metric perplexity --samples 0:100:2`,
		Args:              usage(1, 1),
		ValidArgsFunction: files(1, "spx", "onnx"),
	}
	fs := c.Flags()
	fs.StringVar(&f.path, "data", "", "a folder of images, or an npy or idx `FILE`")
	fs.StringVar(&f.labels, "labels", "", "the classes, a .csv, npy or idx `FILE`; of a folder, by default its labels.csv")
	fs.StringVar(&f.samples, "samples", "all", "which samples: all, even, odd or A:B:STEP")
	fs.IntVar(&f.batch, "batch", 0, "samples in a run; by default what the model declares, else 16")
	f.norm.add(c)
	fs.IntSliceVar(&f.skip, "skip-class", nil, "scores to leave out, such as 0 for a background class")
	fs.StringVar(&f.metric, "metric", "", "top1, top5 or perplexity; by default perplexity for tokens, else top1")
	fs.StringVar(&f.each, "per-sample", "", "a csv `FILE` for the points of each sample: 100 where the metric counts it as right, of\ntokens the mean logarithm of their probabilities in percent; models are compared by it")
	complete(c, "per-sample", files(0, "csv"))
	f.device.add(c, "the model")
	f.shapes.add(fs)
	addModelFlags(fs)
	jsonFlag(fs, &f.asJSON)
	if err := c.MarkFlagRequired("data"); err != nil {
		panic(err)
	}
	complete(c, "labels", files(0, "csv", "npy", "gz", "idx"))
	complete(c, "samples", values("all", "even", "odd"))
	complete(c, "metric", values(top1, top5, perplexity))
	complete(c, "batch", cobra.NoFileCompletions)
	complete(c, "skip-class", cobra.NoFileCompletions)

	c.RunE = f.run
	return c
}

// run runs the command.
func (f *evalFlags) run(c *cobra.Command, args []string) error {
	fs := c.Flags()
	chosen, err := data.ParseSamples(f.samples)
	if err != nil {
		return fmt.Errorf("--samples: %w", err)
	}
	s, err := f.shapes.parse()
	if err != nil {
		return err
	}
	if f.each != "" {
		if err := checkOutput("--per-sample", f.each); err != nil {
			return err
		}
	}
	set, err := data.Open(f.path, f.labels)
	if err != nil {
		return err
	}
	defer set.Close()
	e := evaluator{path: args[0], metric: f.metric, set: set, index: chosen.Of(set.Len()), skip: f.skip, batch: f.batch}
	if len(e.index) == 0 {
		return fmt.Errorf("--samples %s chooses none of the %d of %s", f.samples, set.Len(), f.path)
	}
	if err := e.checkMetric(); err != nil {
		return err
	}
	if !set.Tokens() {
		if e.feed.Norm, err = f.norm.norm(fs); err != nil {
			return err
		}
	}
	if err := f.device.open(c); err != nil {
		return err
	}
	p := newProgress(c)
	defer p.close()
	p.runs(args[0], pace.Even("eval", len(e.index), 1))
	if e.model, err = loadModel(c, args[0], s, f.device.run); err != nil {
		return err
	}
	defer e.model.Close()
	e.output = e.model.Outputs()[0].Name
	if err := e.fit(e.model.Inputs(), s); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	p.Plan(nil)
	result, err := e.run(c.Context(), p)
	p.close()
	if err != nil {
		return err
	}
	if hint := e.background(); hint != "" {
		warn(c, hint)
	}
	if f.each != "" {
		if err := e.writePoints(f.each); err != nil {
			return err
		}
	}
	if f.asJSON {
		return printJSON(c.OutOrStdout(), result)
	}
	result.print(c.OutOrStdout())
	return nil
}

// evaluator runs a model over samples.
type evaluator struct {
	path   string // of the model
	model  *spc.Model
	set    *data.Set
	index  []int
	metric string
	skip   []int
	batch  int
	prefer int // the batch where the model leaves it open, 0 for 16
	feed   data.Feed

	input, output string
	ranking       data.Ranking
	perplexity    data.Perplexity
	points        []float64 // of each sample: 100 where it is right, of tokens the mean logarithm of their probabilities in percent

	// shifted is what ranking would be with class 0 skipped; it ends with a label for which
	// there is no class then.
	shifted      data.Ranking
	shiftedEnded bool
}

// checkMetric picks the metric that suits the samples, or checks the user's.
func (e *evaluator) checkMetric() error {
	suits := []string{top1, top5}
	if e.set.Tokens() {
		suits = []string{perplexity}
	}
	switch {
	case e.metric == "":
		e.metric = suits[0]
	case !slices.Contains([]string{top1, top5, perplexity}, e.metric):
		return fmt.Errorf("--metric %q, want top1, top5 or perplexity", e.metric)
	case !slices.Contains(suits, e.metric) && e.set.Tokens():
		return fmt.Errorf("--metric %s needs images, and %s holds tokens", e.metric, e.set.Path)
	case !slices.Contains(suits, e.metric):
		return fmt.Errorf("--metric perplexity needs tokens, and %s holds images", e.set.Path)
	}
	if e.set.Tokens() && len(e.skip) > 0 {
		return fmt.Errorf("--skip-class needs classes, and %s holds tokens", e.set.Path)
	}
	if !e.set.Tokens() && e.set.Labels == nil {
		return fmt.Errorf("%s has no labels, give --labels", e.set.Path)
	}
	e.ranking.Skip, e.shifted.Skip = e.skip, []int{0}
	return nil
}

// fit finds out what a model with the given inputs takes of a sample, and how many.
func (e *evaluator) fit(ports []spc.Port, s sizes) error {
	if len(ports) != 1 {
		return fmt.Errorf("samples need a model of one input, it has %d: %s", len(ports), describe(ports))
	}
	p := ports[0]
	b := newBinder(ports, s.dims)
	for name, shape := range s.shapes {
		if err := b.shape(name, shape); err != nil {
			return err
		}
	}
	e.input = p.Name
	if e.set.Tokens() {
		if !p.Ranked || len(p.Dims) != 2 || !p.DType.IsInt() {
			return fmt.Errorf("input %s is %v, tokens want integers [n,t]", p.Name, p)
		}
		e.feed.DType = p.DType
		e.feed.Length, _ = b.size(p.Dims[1])
	} else {
		norm := e.feed.Norm
		var err error
		if e.feed, err = imageFeed(p, b); err != nil {
			return fmt.Errorf("input %s: %w", p.Name, err)
		}
		e.feed.Norm = norm
	}
	n, fixed := b.size(p.Dims[0])
	switch {
	case fixed && n < 1:
		return fmt.Errorf("input %s is %v, want a batch of one or more", p.Name, p)
	case fixed && e.batch > 0 && e.batch != n:
		return fmt.Errorf("--batch %d, but input %s is %v", e.batch, p.Name, p)
	case fixed:
		e.feed.Batch, e.feed.Pad = n, true
	case e.batch > 0:
		e.feed.Batch = e.batch
	default:
		e.feed.Batch = cmp.Or(e.prefer, 16)
	}
	return nil
}

func (e *evaluator) run(ctx context.Context, p *progress) (*evaluation, error) {
	start := time.Now()
	done := 0
	for b, err := range e.set.Batches(ctx, e.index, e.feed) {
		if err != nil {
			return nil, err
		}
		if p != nil {
			p.At("eval", done, len(e.index))
		}
		out, err := e.model.Run(ctx, map[string]*tensor.Tensor{e.input: b.Input})
		if err == nil {
			err = e.score(b, out[e.output])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.path, err)
		}
		done += len(b.Samples)
	}
	r := &evaluation{Metric: e.metric, N: done, Seconds: time.Since(start).Seconds()}
	switch e.metric {
	case perplexity:
		r.Value = number(e.perplexity.Value())
	default:
		best, five := 100*share(e.ranking.Top1, e.ranking.N), 100*share(e.ranking.Top5, e.ranking.N)
		r.Value, r.Top5 = number(best), &five
		if e.metric == top5 {
			r.Value = number(five)
		}
	}
	return r, nil
}

// score adds the samples of a batch to the metric.
func (e *evaluator) score(b data.Batch, out *tensor.Tensor) error {
	rows := b.Input.Dim(0)
	if !out.DType().IsFloat() || out.Rank() < 2 || out.Dim(0) != rows {
		return fmt.Errorf("output %s is %v, want scores [%d,...]", e.output, out, rows)
	}
	if e.set.Tokens() && (out.Rank() != 3 || out.Dim(1) != b.Input.Dim(1)) {
		return fmt.Errorf("output %s is %v, want logits [%d,%d,v]", e.output, out, rows, b.Input.Dim(1))
	}
	if !e.set.Tokens() && slices.Max(out.Shape()[1:]) < out.Len()/rows {
		return fmt.Errorf("output %s is %v, want one score per class [%d,classes]: --metric %s is for classifiers", e.output, out, rows, e.metric)
	}
	values := out.To(tensor.F32).F32s()
	each := len(values) / rows
	for r, i := range b.Samples {
		row := values[r*each : (r+1)*each]
		var err error
		if e.set.Tokens() {
			var ids []int64
			var one data.Perplexity
			if ids, err = e.set.TokensOf(i); err == nil {
				err = cmp.Or(one.Add(row, ids), e.perplexity.Add(row, ids)) // which have the same errors
			}
			e.points = append(e.points, -100*math.Log(one.Value()))
		} else {
			label, before := e.set.Labels[i], e.right()
			err = e.ranking.Add(row, label)
			e.points = append(e.points, 100*float64(e.right()-before))
			if !e.shiftedEnded && err == nil && len(e.skip) == 0 && label+1 < len(row) {
				err = e.shifted.Add(row, label)
			} else {
				e.shiftedEnded = true
			}
		}
		if err != nil {
			return fmt.Errorf("sample %d of %s: %w", i, e.set.Path, err)
		}
	}
	return nil
}

// writePoints writes a line for each sample.
func (e *evaluator) writePoints(path string) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, "sample,points")
		for i, p := range e.points {
			if err == nil {
				_, err = fmt.Fprintf(w, "%d,%v\n", e.index[i], p)
			}
		}
		return err
	})
}

// right is how many samples are by the metric.
func (e *evaluator) right() int {
	if e.metric == top5 {
		return e.ranking.Top5
	}
	return e.ranking.Top1
}

// background says that class 0 is perhaps one that labels do not count; it is empty where the
// accuracy does not tell.
func (e *evaluator) background() string {
	const sure = 10 // right predictions that are no chance
	if right := e.shifted.Top1; !e.shiftedEnded && right >= sure && right > 3*e.ranking.Top1 {
		return fmt.Sprintf("top-1 is %.2f%% with --skip-class 0: is class 0 of %s a background, which the labels do not count?", 100*share(right, e.shifted.N), e.path)
	}
	return ""
}

func (r *evaluation) print(w io.Writer) {
	what := "images"
	switch r.Metric {
	case perplexity:
		what = "sequences"
		fmt.Fprintf(w, "perplexity %.4f", float64(r.Value))
	case top5:
		fmt.Fprintf(w, "top-5 %.2f%%", float64(r.Value))
	default:
		fmt.Fprintf(w, "top-1 %.2f%%  top-5 %.2f%%", float64(r.Value), *r.Top5)
	}
	fmt.Fprintf(w, "  %d %s in %.1f s, %.4g a second\n", r.N, what, r.Seconds, float64(r.N)/max(r.Seconds, tiny))
}
