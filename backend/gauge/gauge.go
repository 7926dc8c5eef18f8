// Package gauge measures a machine: what its profile says of the speed of kernels. It imports passes and, of backend, all but
// GPUs.
package gauge

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"spc/backend/cpu"
	"spc/backend/format/ukernel"
	"spc/backend/machine"
	"spc/ir"
	"spc/passes/choose"
)

// Options say how a machine is measured.
type Options struct {
	Budget time.Duration // for all of it; 0 for DefaultBudget
	Seed   uint64        // of the problems
	Step   func()        // is called now and then; may be nil
}

// DefaultBudget is how long Measure takes unless it is told otherwise.
const DefaultBudget = 25 * time.Second

// Measurement is a profile, and what it was fitted to.
type Measurement struct {
	Profile  *machine.Profile `json:"profile"`
	Problems int              `json:"problems"` // how many products were measured
	Forms    int              `json:"forms"`    // in how many forms in all
	// Unmeasured are the patterns of weights, and the types of codes, of which no product was measured.
	Unmeasured []string `json:"unmeasured,omitempty"`
	// Before and After are by which factor predictions of the form of each product that is the fastest are off, in the geometric mean: by the
	// default profile at this machine's peak and bandwidths, and by this one.
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	// Fitted are the parameters that were fitted: those of the profile, and what nodes take besides.
	Fitted []Parameter `json:"-"`
	// Measured is what the profile was fitted to.
	Measured *Measured `json:"-"`
}

// Parameter is a number that was fitted, before and after.
type Parameter struct {
	Name          string
	Before, After float64
}

// Measured is what was measured of a machine.
type Measured struct {
	Roof     *machine.Profile `json:"roof"` // its peak, caches and bandwidths, at the default profile's rates
	Seed     uint64           `json:"seed"` // of the products
	Products []Product        `json:"products"`
}

// Product is what the node of a product took.
type Product struct {
	Network int                `json:"network"` // which of those that the seed draws
	Weight  int                `json:"weight"`  // which of that network
	Text    string             `json:"product"`
	Pattern string             `json:"pattern"`
	Us      map[string]float64 `json:"us"` // by form
}

// fitting is the share of the budget that fitting may take.
const fitting = 0.15

// Measure measures this machine's peak and bandwidths, and then products that are drawn at random, dense and in other formats, as they
// run in a network on one thread, and fits the shares of the peak that kernels reach to these. What no product depends on, as the rates of 8-bit
// integers, stays as the default profile has it.
func Measure(ctx context.Context, o Options) (m *Measurement, err error) {
	if o.Budget == 0 {
		o.Budget = DefaultBudget
	}
	if o.Step == nil {
		o.Step = func() {}
	}
	err = ir.Guard(func() (err error) {
		m, err = run(ctx, o)
		return err
	})
	return m, err
}

func run(ctx context.Context, o Options) (*Measurement, error) {
	began := time.Now()
	plain, err := roof(ctx, o.Step)
	if err != nil {
		return nil, err
	}
	until := began.Add(time.Duration((1 - fitting) * float64(o.Budget)))
	var unmeasured []string
	var samples []*sample
	longest := time.Duration(0)
	for i := 0; i == 0 || time.Now().Add(longest).Before(until); i++ {
		start := time.Now()
		some, err := problems(ctx, begun(plain), o.Seed, numbered(i), o.Step)
		if err != nil {
			return nil, err
		}
		samples = append(samples, some...)
		longest = max(longest, time.Since(start))
		unmeasured = missing(samples)
	}
	m, err := fitted(ctx, plain, samples, began.Add(o.Budget), o.Step)
	if err == nil {
		m.Unmeasured, m.Measured.Seed = unmeasured, o.Seed
	}
	return m, err
}

// missing lists the patterns, and the codes, that no product has.
func missing(samples []*sample) (list []string) {
	seen := map[string]bool{}
	for _, s := range samples {
		seen[s.kept()] = true
	}
	for _, p := range patterns {
		if !seen[p] {
			list = append(list, p)
		}
	}
	for _, bits := range codes {
		if name := fmt.Sprintf("int%d", bits); !seen[name] {
			list = append(list, name)
		}
	}
	return list
}

// kept is the pattern of a weight in floats, and the type of one in codes.
func (s *sample) kept() string {
	if s.w.Grid != nil {
		return fmt.Sprintf("int%d", s.w.Grid.Bits)
	}
	return s.pattern
}

// Refit fits a profile to what was measured before, as long as that takes; step is called now and then.
func Refit(ctx context.Context, d *Measured, step func()) (m *Measurement, err error) {
	if err := d.Roof.Check(); err != nil {
		return nil, err
	}
	err = ir.Guard(func() (err error) {
		samples, err := d.samples(ctx)
		if err != nil {
			return err
		}
		m, err = fitted(ctx, d.Roof, samples, time.Time{}, step)
		return err
	})
	if err == nil {
		m.Measured.Seed = d.Seed
	}
	return m, err
}

// samples draws the products again.
func (d *Measured) samples(ctx context.Context) (out []*sample, err error) {
	at, networks := map[[2]int]*Product{}, map[int]bool{}
	for i := range d.Products {
		p := &d.Products[i]
		at[[2]int{p.Network, p.Weight}] = p
		networks[p.Network] = true
	}
	for _, number := range slices.Sorted(maps.Keys(networks)) {
		if number < 0 {
			return nil, fmt.Errorf("network %d, want 0 or more: %w", number, ir.ErrInvalid)
		}
		b, err := drawn(ctx, d.Seed, number)
		if err != nil {
			return nil, err
		}
		out = append(out, b.samples(func(s *sample, f choose.Form) float64 {
			if p := at[[2]int{s.network, s.weight}]; p != nil && p.Text == s.text {
				return p.Us[f.String()]
			}
			return 0
		})...)
	}
	if len(out) != len(d.Products) || len(out) == 0 {
		return nil, fmt.Errorf("%d of %d products are those that are drawn with seed %d: %w", len(out), len(d.Products), d.Seed, ir.ErrInvalid)
	}
	return out, nil
}

// fitted fits a profile to products, no longer than until then, if that is not zero.
func fitted(ctx context.Context, plain *machine.Profile, samples []*sample, until time.Time, step func()) (*Measurement, error) {
	f := newFit(begun(plain), samples, step)
	p, err := f.run(ctx, until)
	if err != nil {
		return nil, err
	}
	m := &Measurement{Profile: p, Problems: len(samples), Before: f.off(plain), After: f.off(p), Fitted: f.told(), Measured: &Measured{Roof: plain}}
	for _, s := range samples {
		m.Forms += len(s.forms)
		us := map[string]float64{}
		for _, x := range s.forms {
			us[x.form.String()] = x.us
		}
		m.Measured.Products = append(m.Measured.Products, Product{s.network, s.weight, s.text, s.kept(), us})
	}
	return m, nil
}

// roof is the default profile with this machine's peak, caches and bandwidths.
func roof(ctx context.Context, step func()) (*machine.Profile, error) {
	p, k := clone(machine.Default), ukernel.Best()
	p.Name, p.CPU, p.ISA, p.Date = "native", cpu.Model(), k.ISA, time.Now().UTC().Format(time.DateOnly)
	near, next := caches(p.Near, 2*p.Next.Bytes)
	p.Near, p.Images.Near = near, near
	p.Nodes, p.Threads = map[string]machine.NodeCost{}, 0 // those of the default profile hold, but for what is fitted
	const calls = 20000
	flops := 0.0
	took := fastest(40, func() { flops = k.Peak(calls) })
	p.Peak = flops / took.Seconds()
	step()
	var err error
	measure := func(bytes int) float64 {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return 1
		}
		defer step()
		return bandwidth(bytes)
	}
	p.Memory = measure(min(max(4*next, 64<<20), 1<<30))
	// Of the cache behind level 2 others may take a part: it counts as far as weights come from it faster than halfway from memory.
	p.Next = machine.Level{Bytes: near, Bandwidth: p.Memory}
	for bytes := 2 * near; bytes <= next; bytes *= 2 {
		b := measure(bytes)
		if b < math.Sqrt(p.Next.Bandwidth*p.Memory) {
			break
		}
		p.Next.Bytes = bytes
		if bytes == 2*near {
			p.Next.Bandwidth = b
		}
	}
	p.Memory = min(p.Memory, p.Next.Bandwidth)
	return p, err
}

// begun is a profile whose terms that the default one does not tell apart are something that a fit can begin with.
func begun(plain *machine.Profile) *machine.Profile {
	p := clone(plain)
	i := &p.Images
	i.Row, i.Tap, i.Lay, i.Turn = cmp.Or(i.Row, i.Patch/2), cmp.Or(i.Tap, i.Patch), cmp.Or(i.Lay, i.Patch), cmp.Or(i.Turn, i.Patch/2)
	i.Plane, i.Spill, i.Held = cmp.Or(i.Plane, 5000), cmp.Or(i.Spill, 40), cmp.Or(i.Held, 4*float64(i.Near))
	p.Fetch, p.Code = cmp.Or(p.Fetch, 2), cmp.Or(p.Code, 2)
	p.Cold = cmp.Or(p.Cold, (p.Next.Bandwidth+p.Memory)/2)
	return p
}

// fastest is the shortest of some calls.
func fastest(times int, f func()) time.Duration {
	f()
	best := time.Duration(1<<63 - 1)
	for range times {
		start := time.Now()
		f()
		best = min(best, max(1, time.Since(start)))
	}
	return best
}

// clone copies a profile.
func clone(p *machine.Profile) *machine.Profile {
	c := *p
	c.Rates, c.Nodes = maps.Clone(p.Rates), maps.Clone(p.Nodes)
	if c.Nodes == nil {
		c.Nodes = map[string]machine.NodeCost{}
	}
	c.Winograd.Grid = maps.Clone(p.Winograd.Grid)
	return &c
}
