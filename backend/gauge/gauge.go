// Package gauge measures a machine: what its profile says of the speed of kernels. It imports passes and, of backend, all but
// GPUs.
package gauge

import (
	"cmp"
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"time"

	"spc/backend/cpu"
	"spc/backend/format/ukernel"
	"spc/backend/machine"
	"spc/ir"
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
	// Unmeasured are the patterns of weights that there was no time for.
	Unmeasured []string `json:"unmeasured,omitempty"`
	// Before and After are by which factor predictions of the form of each product that is the fastest are off, in the geometric mean: by the
	// default profile at this machine's peak and bandwidths, and by this one.
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	// Fitted are the parameters of the profile that were fitted.
	Fitted []Parameter `json:"-"`
	// Products are what was measured: of each product dense, and the form that was the fastest.
	Products []Product `json:"-"`
}

// Parameter is a number of a profile, before it was fitted and after.
type Parameter struct {
	Name          string
	Before, After float64
}

// Product is what a product took, and what the fitted profile predicts of it.
type Product struct {
	Text    string `json:"product"`
	Pattern string `json:"pattern"`
	Dense   Took   `json:"dense"`
	Best    Took   `json:"best"`
}

// Took is a form of a product.
type Took struct {
	Form        string  `json:"form"`
	Us          float64 `json:"us"`
	PredictedUs float64 `json:"predicted_us"`
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
	base := clone(plain)
	begin(base)
	until := began.Add(time.Duration((1 - fitting) * float64(o.Budget)))
	rng := rand.New(rand.NewPCG(o.Seed, 1))
	m := &Measurement{}
	var samples []*sample
	longest := time.Duration(0)
	for number := 0; number == 0 || time.Now().Add(longest).Before(until); number++ {
		start := time.Now()
		some, err := problems(ctx, base, rng, number, o.Step)
		if err != nil {
			return nil, err
		}
		samples = append(samples, some...)
		longest = max(longest, time.Since(start))
		if number < len(patterns) {
			m.Unmeasured = patterns[number+1:]
		}
	}
	for _, s := range samples {
		m.Problems++
		m.Forms += len(s.forms)
	}
	f := newFit(base, samples, o.Step)
	if m.Profile, err = f.run(ctx, began.Add(o.Budget)); err != nil {
		return nil, err
	}
	m.Before, m.After = f.off(plain), f.off(m.Profile)
	m.Fitted, m.Products = f.told(), f.products()
	return m, nil
}

// roof is the default profile with this machine's peak, caches and bandwidths.
func roof(ctx context.Context, step func()) (*machine.Profile, error) {
	p, k := clone(machine.Default), ukernel.Best()
	p.Name, p.CPU, p.ISA, p.Date = "native", cpu.Model(), k.ISA, time.Now().UTC().Format(time.DateOnly)
	near, next := caches(p.Near, 2*p.Next.Bytes)
	p.Near, p.Images.Near = near, near
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

// begin gives the terms that the default profile does not tell apart something that a fit can begin with.
func begin(p *machine.Profile) {
	i := &p.Images
	i.Row, i.Tap, i.Lay, i.Turn = cmp.Or(i.Row, i.Patch/2), cmp.Or(i.Tap, i.Patch), cmp.Or(i.Lay, i.Patch), cmp.Or(i.Turn, i.Patch/2)
	i.Plane = cmp.Or(i.Plane, 5000)
	p.Cold = cmp.Or(p.Cold, (p.Next.Bandwidth+p.Memory)/2)
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
	c.Rates = maps.Clone(p.Rates)
	c.Winograd.Grid = maps.Clone(p.Winograd.Grid)
	return &c
}
