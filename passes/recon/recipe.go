package recon

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"spc/ir"
)

// Recipe returns the options that suit a graph's family: those of convolutional models,
// block by block and at last the sizes of all rows, where most weights are of convolutions,
// else those of transformers, of which the whole model is trained at once. RATIONALE.md says how they were found.
func Recipe(g *ir.Graph) Options {
	convs, products := 0, 0
	for _, u := range g.WeightUses() {
		if u.Slide != nil {
			convs++
		} else {
			products++
		}
	}
	o := Options{Rate: 0.01, GainRate: 0.0002, WholeRate: 0.01, Inside: 1, Augment: true, Warmup: 0.1, Seed: 1}
	if convs > products {
		o.Epochs, o.GainEpochs, o.Batch = 10, 8, 4
	} else {
		o.WholeEpochs = 60
	}
	return o
}

const (
	counts  = "a whole number from 0 to 1000000"
	numbers = "a number from 0 to 1000000"
)

// settings lists what Set changes, by name.
var settings = []struct {
	name string
	want string
	set  func(o *Options, v float64) (ok bool)
}{
	{"blocks", counts, count(func(o *Options) *int { return &o.Epochs })},
	{"rate", numbers, number(func(o *Options) *float64 { return &o.Rate })},
	{"model", counts, count(func(o *Options) *int { return &o.WholeEpochs })},
	{"model-rate", numbers, number(func(o *Options) *float64 { return &o.WholeRate })},
	{"gains", counts, count(func(o *Options) *int { return &o.GainEpochs })},
	{"gain-rate", numbers, number(func(o *Options) *float64 { return &o.GainRate })},
	{"inside", numbers, number(func(o *Options) *float64 { return &o.Inside })},
	{"warmup", "a number from 0 to 1", func(o *Options, v float64) bool {
		o.Warmup = v
		return v >= 0 && v <= 1
	}},
	{"batch", counts, count(func(o *Options) *int { return &o.Batch })},
	{"window", counts, count(func(o *Options) *int { return &o.Window })},
	{"augment", "0 or 1", func(o *Options, v float64) bool {
		o.Augment = v == 1
		return v == 0 || v == 1
	}},
	{"seed", "a whole number from 0 to 2^53-1", func(o *Options, v float64) bool {
		o.Seed = uint64(v)
		return v >= 0 && v == math.Trunc(v) && v < 1<<53
	}},
}

// Trains reports whether anything is trained at all.
func (o *Options) Trains() bool { return o.Epochs+o.GainEpochs+o.WholeEpochs > 0 }

func count(of func(*Options) *int) func(*Options, float64) bool {
	return func(o *Options, v float64) bool {
		*of(o) = int(v)
		return v >= 0 && v == math.Trunc(v) && v <= 1e6
	}
}

func number(of func(*Options) *float64) func(*Options, float64) bool {
	return func(o *Options, v float64) bool {
		*of(o) = v
		return v >= 0 && v <= 1e6
	}
}

// Set changes the options that s names: NAME=VALUE after NAME=VALUE, parted by commas.
// Epochs are named blocks, and those of the whole model model.
func (o *Options) Set(s string) error {
	if s == "" {
		return nil
	}
	set := map[string]bool{}
next:
	for _, part := range strings.Split(s, ",") {
		name, text, _ := strings.Cut(part, "=")
		var names []string
		for _, k := range settings {
			names = append(names, k.name)
			if k.name != name {
				continue
			}
			if v, err := strconv.ParseFloat(text, 64); err != nil || !k.set(o, v) {
				return fmt.Errorf("recipe %q: %q is no value of %s, want %s: %w", s, text, name, k.want, ir.ErrInvalid)
			}
			if set[name] {
				return fmt.Errorf("recipe %q: %s is set twice: %w", s, name, ir.ErrInvalid)
			}
			set[name] = true
			continue next
		}
		return fmt.Errorf("recipe %q: nothing is named %q, want NAME=VALUE with one of %s: %w", s, name, strings.Join(names, ", "), ir.ErrInvalid)
	}
	return nil
}
