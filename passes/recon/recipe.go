package recon

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"spc/ir"
	"spc/ir/option"
)

// DefaultSeed is the seed of recipes that name none.
const DefaultSeed = 1

// suited returns the options that suit a graph's family: those of convolutional models,
// block by block and at last the sizes of all rows, where most weights are of convolutions,
// else those of transformers, of which the whole model is trained at once. RATIONALE.md says how they were found.
func suited(g *ir.Graph) Options {
	convs, products := 0, 0
	for _, u := range g.WeightUses() {
		if u.Slide != nil {
			convs++
		} else {
			products++
		}
	}
	o := Options{Rate: 0.01, GainRate: 0.0002, WholeRate: 0.01, Inside: 1, Augment: true, Warmup: 0.1, Seed: DefaultSeed}
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

// setting is what a recipe may change.
type setting struct {
	name string
	want string
	set  func(o *Options, v float64) (ok bool)
}

// settings lists them.
var settings = [...]setting{
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

// trains reports whether anything is trained at all.
func (o *Options) trains() bool { return o.Epochs+o.GainEpochs+o.WholeEpochs > 0 }

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

// Recipe changes how a model is reconstructed, by the names of settings: blocks, gains and
// model are epochs for each block, for the sizes of rows and for the whole model, rate,
// gain-rate and model-rate the peaks of their rates, inside, warmup, batch, window, augment
// (0 or 1) and seed those fields of Options. What it does not name is as suits the model.
type Recipe map[string]float64

// ParseRecipe reads NAME=VALUE after NAME=VALUE, with commas between them.
func ParseRecipe(s string) (Recipe, error) {
	r := Recipe{}
	for _, part := range strings.Split(s, ",") {
		name, text, _ := strings.Cut(part, "=")
		v, err := strconv.ParseFloat(text, 64)
		if i := find(name); i >= 0 && err != nil {
			return nil, option.Errorf("recipe %q: %q is no value of %s, want %s", s, text, name, settings[i].want)
		}
		if _, twice := r[name]; twice {
			return nil, option.Errorf("recipe %q: %s is set twice", s, name)
		}
		r[name] = v
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	return r, nil
}

// Check returns an error unless all names are such, and have values that they may.
func (r Recipe) Check() error { return r.change(&Options{}) }

// change sets what the recipe names.
func (r Recipe) change(o *Options) error {
	for _, name := range slices.Sorted(maps.Keys(r)) {
		switch i := find(name); {
		case i < 0:
			return option.Errorf("recipe: nothing is named %q, want NAME=VALUE with one of %s", name, strings.Join(Settings(), ", "))
		case !settings[i].set(o, r[name]):
			return option.Errorf("recipe: %v is no value of %s, want %s", r[name], name, settings[i].want)
		}
	}
	return nil
}

// Of returns the options for a graph.
func (r Recipe) Of(g *ir.Graph) (Options, error) {
	o := suited(g)
	if err := r.change(&o); err != nil {
		return o, err
	}
	if !o.trains() {
		return o, option.Errorf("recipe: nothing is trained, want epochs of blocks, gains or model")
	}
	return o, nil
}

// Settings lists the names of a recipe.
func Settings() []string {
	var names []string
	for _, s := range settings {
		names = append(names, s.name)
	}
	return names
}

func find(name string) int {
	return slices.IndexFunc(settings[:], func(s setting) bool { return s.name == name })
}
