package e2e

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"spc"
	"spc/data"
	"spc/ir/tensor"
)

// Budgeted lists the models of which budgets are asked, and Budgets what is asked of each, on one thread. Even samples
// calibrate, odd ones judge.
var (
	Budgeted = []string{"squeezenet1.1-imagenet", "mobilenetv2-imagenet", "resnet56-cifar10", "vit-cifar10"}
	Budgets  = []string{
		"--speedup 1.1", "--speedup 1.3", "--flops 0.5", "--max-drop 1", "--max-drop 1 --quantize auto",
		"--max-drop 1 --quantize int8", "--speedup 1.8 --quantize int8", "--max-drop 3 --flops 0.7",
	}
)

// Promise is what came of a budget.
type Promise struct {
	Model   string `json:"model"`
	Budget  string `json:"budget"`
	Verdict string `json:"verdict"` // kept, cannot, or broken and by what
	// What was measured here: not by the program that promised.
	Speedup float64 `json:"speedup,omitempty"`
	Bytes   int64   `json:"bytes,omitempty"`
	FLOPs   float64 `json:"flops,omitempty"`
	Drop    float64 `json:"drop"`  // points
	Bound   float64 `json:"bound"` // with a confidence of 90%
	Samples int     `json:"samples,omitempty"`
	Why     string  `json:"why,omitempty"` // of cannot, and what is nearest
	Seconds float64 `json:"seconds"`
}

// Kept, Cannot and Broken are verdicts, the last followed by what does not hold.
const (
	Kept   = "kept"
	Cannot = "cannot"
	Broken = "broken"
)

// Ask asks spc, a program at a path, for a budget of a model, and measures what it promises. What spc learns of the model is kept in a file for other
// budgets.
func Ask(ctx context.Context, program, model, budget, cache string) (p Promise, err error) {
	p = Promise{Model: model, Budget: budget}
	m := pruned(model)
	if m == nil {
		return p, fmt.Errorf("%s is none of the models that are pruned", model)
	}
	dir, err := os.MkdirTemp("", "spc-budgets-")
	if err != nil {
		return p, err
	}
	defer os.RemoveAll(dir)
	onnx, sparse, dense := filepath.Join(Root(), model, "model.onnx"), filepath.Join(dir, "sparse.spx"), filepath.Join(dir, "dense.spx")
	flags := fmt.Sprintf("%s --calib %s --samples even --calib-samples %d --threads 1 --quiet --json --calib-cache %s", budget, m.Data, m.Samples, cache)
	args := slices.Concat([]string{"compile", onnx, "-o", sparse}, words(flags), evalFlags(m))
	began := time.Now()
	out, status, err := output(ctx, program, args)
	p.Seconds = math.Round(time.Since(began).Seconds())
	switch {
	case err != nil:
		return p, err
	case status == 2:
		var e spc.BudgetError
		if err := json.Unmarshal(out, &e); err != nil {
			return p, err
		}
		p.Verdict, p.Why = Cannot, evidence(&e)
		return p, nil
	}
	if _, _, err := output(ctx, program, []string{"compile", onnx, "-o", dense, "--quiet"}); err != nil {
		return p, err
	}
	return p, p.check(ctx, program, m, dense, sparse, budget)
}

// evalFlags are the flags of compile for the samples that judge.
func evalFlags(m *PrunedModel) []string {
	data := words(m.Data)
	return slices.Concat([]string{"--eval-data", data[0], "--eval-samples", "odd"}, words(m.Eval))
}

// evidence says why a budget cannot be met.
func evidence(e *spc.BudgetError) string {
	text := fmt.Sprintf("%s; at most %.2fx", e.Why, e.Amdahl)
	add := func(what string, n *spc.BudgetPoint) {
		text += fmt.Sprintf("; %s%.2fx", what, n.Speedup)
		if n.Drop != nil {
			text += fmt.Sprintf(" with %.2f points lost, at most %.2f", n.Drop.Points, n.Drop.Bound)
		}
	}
	for i := range e.Nearest {
		add("", &e.Nearest[i])
	}
	if e.Quantised != nil {
		add("in 8-bit integers ", e.Quantised)
	}
	return text
}

// output runs a program, whose status may be 2.
func output(ctx context.Context, program string, args []string) (out []byte, status int, err error) {
	c := exec.CommandContext(ctx, program, args...)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err = c.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 {
		return out, 2, nil
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(errs.Bytes()))
	}
	return out, 0, err
}

// check measures a program and judges whether the budget holds.
func (p *Promise) check(ctx context.Context, program string, m *PrunedModel, dense, sparse, budget string) error {
	var err error
	var took float64
	if p.Speedup, took, err = race(ctx, dense, sparse); err != nil {
		return err
	}
	info, err := os.Stat(sparse)
	if err != nil {
		return err
	}
	p.Bytes = info.Size()
	if p.FLOPs, err = left(sparse); err != nil {
		return err
	}
	points := make([][]float64, 2)
	for i, path := range []string{dense, sparse} {
		file := path + ".csv"
		args := slices.Concat([]string{"eval", path, "--samples", "odd", "--per-sample", file, "--json", "--data"}, words(m.Data+" "+m.Eval))
		if _, _, err := output(ctx, program, args); err != nil {
			return err
		}
		if points[i], err = readPoints(file); err != nil {
			return err
		}
	}
	if p.Drop, p.Bound, err = compare(points[0], points[1]); err != nil {
		return err
	}
	p.Samples = len(points[0])
	p.judge(budget, took)
	return nil
}

// noise is the share by which two measurements of the same ratio of times differ on a quiet machine.
const noise = 0.03

// judge says whether what was measured is within the budget.
func (p *Promise) judge(budget string, seconds float64) {
	var broken []string
	fields := strings.Fields(budget)
	for i := 0; i+1 < len(fields); i += 2 {
		want, err := strconv.ParseFloat(fields[i+1], 64)
		if err != nil { // a time or the name of a type
			if d, err := time.ParseDuration(fields[i+1]); err == nil {
				want = d.Seconds()
			}
		}
		bad := false
		switch fields[i] {
		case "--speedup":
			bad = p.Speedup < want*(1-noise)
		case "--latency":
			bad = seconds > want*(1+noise)
		case "--flops":
			bad = p.FLOPs > want
		case "--size":
			bad = float64(p.Bytes) > want
		case "--max-drop":
			bad = !(p.Bound <= want)
		}
		if bad {
			broken = append(broken, fields[i])
		}
	}
	p.Verdict = Kept
	if len(broken) > 0 {
		p.Verdict = Broken + ": " + strings.Join(broken, ", ")
	}
}

// race runs two programs in turns, one sample on one thread, and returns how many times as fast as the first the second is by their best runs, and
// the seconds of its median run.
func race(ctx context.Context, dense, sparse string) (ratio, seconds float64, err error) {
	const sittings, rounds = 3, 40
	var models []*spc.Model
	var in map[string]*tensor.Tensor
	for _, path := range []string{dense, sparse} {
		m, err := spc.Open(path, spc.RunOptions{Threads: 1})
		if err != nil {
			return 0, 0, err
		}
		defer m.Close()
		models = append(models, m)
		if in != nil {
			continue
		}
		in = map[string]*tensor.Tensor{}
		for _, p := range m.Inputs() {
			shape := make([]int, len(p.Dims))
			for i, d := range p.Dims {
				if shape[i] = 1; d.Known() {
					shape[i] = d.Size()
				}
			}
			if in[p.Name], err = (data.Random{Seed: 2}).Tensor(p.Name, p.DType, shape, p.Bound); err != nil {
				return 0, 0, err
			}
		}
	}
	best := [2]float64{math.Inf(1), math.Inf(1)}
	var all []float64
	for range sittings {
		for round := range rounds {
			for k, m := range models {
				at := time.Now()
				if _, err := m.Run(ctx, in); err != nil {
					return 0, 0, err
				}
				if t := time.Since(at).Seconds(); round > 0 {
					best[k] = min(best[k], t)
					if k == 1 {
						all = append(all, t)
					}
				}
			}
		}
		time.Sleep(200 * time.Millisecond) // another sitting
	}
	slices.Sort(all)
	return best[0] / best[1], all[len(all)/2], nil
}

// left is the share of multiply-adds that a program has left of its products.
func left(path string) (float64, error) {
	m, err := spc.Open(path, spc.RunOptions{})
	if err != nil {
		return 0, err
	}
	defer m.Close()
	some, all := 0.0, 0.0
	for _, l := range m.Explain().Layers {
		n := float64(max(1, l.N))
		some, all = some+n*float64(l.Nonzeros), all+n*float64(l.Rows*l.Cols)
	}
	return some / all, nil
}

// readPoints reads what spc eval --per-sample wrote.
func readPoints(path string) (points []float64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, err
	}
	for _, r := range rows[min(1, len(rows)):] {
		v, err := strconv.ParseFloat(r[len(r)-1], 64)
		if err != nil {
			return nil, err
		}
		points = append(points, v)
	}
	return points, nil
}

// compare returns how many points the second model loses, of samples that are right or wrong, and what that is at most with a confidence of 90%: the
// largest drop of which what is seen is no worse a sample than one in ten (Tango, "Equivalence test and confidence interval for the difference in
// proportions", 1998, with the share of samples that differ as it is seen).
func compare(dense, sparse []float64) (drop, bound float64, err error) {
	if len(dense) != len(sparse) || len(dense) == 0 {
		return 0, 0, fmt.Errorf("%d and %d samples", len(dense), len(sparse))
	}
	n, worse, better := len(dense), 0, 0
	for i := range dense {
		switch {
		case dense[i] > sparse[i]:
			worse++
		case dense[i] < sparse[i]:
			better++
		}
	}
	drop = 100 * float64(worse-better) / float64(n)
	// By halves, as the variance is that of the drop that is tried.
	discordant := float64(worse+better) / float64(n)
	low, high := drop/100, 1.0
	for range 60 {
		d := (low + high) / 2
		variance := max(discordant, d) - d*d
		if z := (d - drop/100) / math.Sqrt(variance/float64(n)); z < oneSided90 {
			low = d
		} else {
			high = d
		}
	}
	return drop, 100 * high, nil
}

const oneSided90 = 1.2815515655446004
