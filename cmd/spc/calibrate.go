package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spc"
	"spc/data"
	"spc/ir/option"
	"spc/ir/tensor"
)

// The number of calibration samples by default.
const (
	calibSamples       = 128
	calibRandomSamples = 8
)

// Calibration samples are run in batches of up to calibBatch, as long as there are
// calibRuns of them.
const (
	calibBatch = 16
	calibRuns  = 32
)

// calibFlags are the flags that say what calibration sees.
type calibFlags struct {
	calib, samples, cache string
	count                 int
	memory                int64
	norm                  normFlags
}

func (f *calibFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.calib, "calib", "", "what pruning and --quantize see: samples as eval reads them (a folder of images,\nan npy or idx `FILE`), or random:SEED[:LO:HI]")
	fs.StringVar(&f.samples, "samples", "all", "which calibration samples to choose from: all, even, odd or A:B:STEP")
	fs.IntVar(&f.count, "calib-samples", 0, fmt.Sprintf("how many of them, spread evenly; by default %d, or %d random ones", calibSamples, calibRandomSamples))
	fs.StringVar(&f.cache, "calib-cache", "", "a `FILE` for what --allocate global, normalised, curves, joint and auto, or a budget, see of\nthe dense model: made where there is none, read where it is there")
	choiceVar(fs, &f.memory, "memory", "", parseMemory, "how much memory is for what --calib shows of layers, such as 500MB; what does not\nfit waits in a file next to the output. By default half of what the machine has left")
	f.norm.add(c)
	complete(c, "samples", values("all", "even", "odd"))
	complete(c, "calib-samples", cobra.NoFileCompletions)
}

// parseMemory reads how much memory samples may take.
func parseMemory(s string) (int64, error) {
	n, err := parseSize(s)
	if err != nil {
		return 0, option.Errorf("%v %q: want a size such as 500MB or 4GB", option.CalibrationMemory, s)
	}
	return n, nil
}

// spilled says how much of what calibration kept of samples waited in a file.
func spilled(w io.Writer, r *spc.Report) {
	if c := r.Calibration; c != nil && c.Spilled > 0 {
		fmt.Fprintf(w, "%-9s %s of their values waited in a file, beyond the %s for them in memory\n", "samples", size(c.File), size(int64(c.Limit)))
	}
}

// apply sets what calibration sees. What it returns closes the data when the
// compilation is done.
func (f *calibFlags) apply(c *cobra.Command, o *spc.CompileOptions, s sizes) (func(), error) {
	fs := c.Flags()
	nothing := func() {}
	unused := func(reason string, names ...string) error {
		for _, name := range names {
			if fs.Changed(name) {
				return fmt.Errorf("--%s has no use %s", name, reason)
			}
		}
		return nil
	}
	switch {
	case f.calib == "":
		return nothing, unused("without --calib", append(f.norm.flags(), "samples", "calib-samples", "calib-cache", "memory")...)
	case fs.Changed("calib-samples") && f.count < 1:
		return nil, fmt.Errorf("--calib-samples %d, want 1 or more", f.count)
	}
	o.Calibration.Cache, o.Calibration.Memory = f.cache, f.memory
	if strings.HasPrefix(f.calib, "random:") {
		r, err := data.ParseRandom(f.calib)
		if err != nil {
			return nil, fmt.Errorf("--calib: %w", err)
		}
		needless := []string{"samples"}
		if !fs.Changed("eval-data") { // whose images they prepare
			needless = append(f.norm.flags(), needless...)
		}
		if err := unused("with --calib random", needless...); err != nil {
			return nil, err
		}
		o.Calibration.Identity = fmt.Sprint(f.calib, f.number(calibRandomSamples), s)
		o.Calibration.Inputs, o.Calibration.Count = f.random(r, s), f.number(calibRandomSamples)
		return nothing, nil
	}
	chosen, err := data.ParseSamples(f.samples)
	if err != nil {
		return nil, fmt.Errorf("--samples: %w", err)
	}
	set, err := data.Open(f.calib, "")
	if err != nil {
		return nil, fmt.Errorf("--calib: %w", err)
	}
	of := chosen.Of(set.Len())
	index := spread(of, f.number(calibSamples))
	if f.count > len(index) && len(index) > 0 {
		warn(c, fmt.Sprintf("--calib-samples %d: %s has %d, which are taken", f.count, f.calib, len(of)))
	}
	if len(index) == 0 {
		set.Close()
		return nil, fmt.Errorf("--samples %s chooses none of the %d of %s", f.samples, set.Len(), f.calib)
	}
	// Runs of several samples are faster; allocations are compared on some of the runs.
	e := &evaluator{set: set, index: index, prefer: min(max(len(index)/calibRuns, 1), calibBatch)}
	if set.Tokens() {
		err = unused("with tokens", f.norm.flags()...)
	} else {
		e.feed.Norm, err = f.norm.norm(fs)
	}
	if err != nil {
		set.Close()
		return nil, err
	}
	if o.Calibration.Identity, err = f.identity(set, index, e.feed.Norm, s); err != nil {
		set.Close()
		return nil, err
	}
	o.Calibration.Inputs, o.Calibration.Count = e.inputs(s), len(index)
	return func() { set.Close() }, nil
}

// shares returns a sample of a set, by the indices of some, that calibration sees, too; -1 where there is none.
func (f *calibFlags) shares(set *data.Set, index []int) int {
	a, err := os.Stat(f.calib)
	if err != nil {
		return -1
	}
	b, err := os.Stat(set.Path)
	chosen, bad := data.ParseSamples(f.samples)
	if err != nil || bad != nil || !os.SameFile(a, b) {
		return -1
	}
	seen := spread(chosen.Of(set.Len()), f.number(calibSamples))
	for _, i := range index {
		if slices.Contains(seen, i) {
			return i
		}
	}
	return -1
}

// identity says which samples of which data a model sees, and how they are prepared. Files
// are told apart by their size and the time of their last change.
func (f *calibFlags) identity(set *data.Set, index []int, norm data.Norm, s sizes) (string, error) {
	path, err := filepath.Abs(f.calib)
	if err != nil {
		return "", err
	}
	files, last := sha256.New(), ""
	for _, i := range index {
		file := set.File(i)
		if file == last {
			continue
		}
		last = file
		info, err := os.Stat(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(files, "%q %d %v\n", filepath.Base(file), info.Size(), info.ModTime().UTC())
	}
	return fmt.Sprintf("%s %x %v %v %v", path, files.Sum(nil), index, norm, s), nil
}

// number is the number of samples that the user asked for.
func (f *calibFlags) number(def int) int {
	if f.count > 0 {
		return f.count
	}
	return def
}

// spread picks n of the indices, evenly.
func spread(index []int, n int) []int {
	if n >= len(index) {
		return index
	}
	out := make([]int, n)
	for i := range out {
		out[i] = index[i*len(index)/n]
	}
	return out
}

// inputs yields the samples as inputs of a model with the given ports.
func (e *evaluator) inputs(s sizes) func(context.Context, []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] {
	return func(ctx context.Context, ports []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] {
		return func(yield func(map[string]*tensor.Tensor, error) bool) {
			if err := e.fit(ports, s); err != nil {
				yield(nil, fmt.Errorf("--calib: %w", err))
				return
			}
			for b, err := range e.set.Batches(ctx, e.index, e.feed) {
				if !yield(map[string]*tensor.Tensor{e.input: b.Input}, err) || err != nil {
					return
				}
			}
		}
	}
}

// random yields random inputs, of a seed that grows by one from sample to sample.
func (f *calibFlags) random(r data.Random, s sizes) func(context.Context, []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] {
	return func(ctx context.Context, ports []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] {
		return func(yield func(map[string]*tensor.Tensor, error) bool) {
			for i := range f.number(calibRandomSamples) {
				sample := r
				sample.Seed += uint64(i)
				in, err := (&request{ports: ports, sizes: s, missing: &sample}).tensors()
				if err == nil {
					err = ctx.Err()
				}
				if !yield(in, err) || err != nil {
					return
				}
			}
		}
	}
}
