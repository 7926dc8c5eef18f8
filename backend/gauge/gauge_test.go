package gauge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"spc/backend/machine"
	"spc/backend/predict"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

func TestParseBytes(t *testing.T) {
	for _, x := range []struct {
		text string
		want int
	}{{"1024K", 1 << 20}, {"32M", 32 << 20}, {"1G", 1 << 30}, {"512", 512}, {"", 0}, {"K", 0}, {"0K", 0}, {"-1K", 0}, {"12T", 0}, {"2000000G", 0}} {
		if n, ok := parseBytes(x.text); n != x.want || ok != (x.want > 0) {
			t.Errorf("%q is %d bytes, %v, want %d", x.text, n, ok, x.want)
		}
	}
}

// made makes samples of which the machine that a profile describes would take these times.
func made(t *testing.T, p *machine.Profile, seed uint64, count int) []*sample {
	t.Helper()
	truth := state{profile: p, model: predict.Of(p), besides: map[beside]float64{
		{"MatMul", perNode}: 2e-6, {"Conv", perNode}: 3e-6, {"LSTM", perNode}: 3e-6, {"LSTM", perStep}: 1e-6, {"LSTM", perState}: 3e-9, {"GRU", perStep}: 1e-6,
	}}
	rng := rand.New(rand.NewPCG(seed, 1))
	var out []*sample
	for i := range count {
		b := &network{graph: ir.NewGraph("made"), rng: rng, pattern: patterns[i%len(patterns)]}
		if err := b.add("p"); err != nil {
			t.Fatal(err)
		}
		if err := infer(t.Context(), b.graph); err != nil {
			t.Fatal(err)
		}
		for _, s := range samplesOf(b.graph) {
			s.find(func(choose.Form) float64 { return 1 })
			for k := range s.forms {
				f := &s.forms[k]
				f.us = truth.predict(s, f)
			}
			out = append(out, s)
		}
	}
	return out
}

// Of what was measured everything is predicted, and from what was kept of the weights.
func TestProblemsArePredicted(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	samples, err := problems(t.Context(), machine.Default, seed, 0, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) == 0 {
		t.Fatal("no product was measured")
	}
	for _, s := range samples {
		full := choose.NewMatrix(ones(s.w.Shape()...), "")
		for _, f := range s.forms {
			c, ok := f.kernels.Cost(machine.Default, s.w, s.n, f.layout)
			if !ok || !(c.Work > 0) || !(c.Efficiency > 0) || c.Bytes <= 0 {
				t.Errorf("%s as %s: %+v, %v", s.text, f.form, c, ok)
			}
			if f.form.Format != choose.Dense {
				continue
			}
			full.Slide = s.w.Slide
			if want, _ := f.kernels.Cost(machine.Default, full, s.n, f.layout); want.Work != c.Work || want.Efficiency != c.Efficiency {
				t.Errorf("%s: %+v, with all elements %+v", s.text, c, want)
			}
		}
	}
}

func ones(shape ...int) *tensor.Tensor {
	x := tensor.New(tensor.F32, shape...)
	for i := range x.F32s() {
		x.F32s()[i] = 1
	}
	return x
}

// What a machine with other rates would take leads back to these rates.
func TestFitFindsRates(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	base := clone(machine.Default)
	base.Images.Row, base.Images.Tap = 5, 10
	other := clone(base)
	for _, f := range []machine.Family{machine.Dense, machine.Rows1, machine.Generated} {
		r := other.Rates[f]
		r.Panel *= 0.7
		r.Start *= 2
		other.Rates[f] = r
	}
	other.Tokens, other.Images.Patch, other.Winograd.Grid[4] = 15, 12, 9000
	steps := 0
	f := newFit(base, made(t, other, seed, 150), func() { steps++ })
	before := f.off(base)
	got, err := f.run(t.Context(), time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	after := f.off(got)
	t.Logf("off by a factor of %.3f before, %.3f after", before, after)
	if before < 1.1 || after > 1.03 || steps == 0 {
		t.Errorf("predictions were off by a factor of %.3f, and are by %.3f", before, after)
	}
	if r := got.Rates[machine.Dense].Panel / other.Rates[machine.Dense].Panel; math.Abs(math.Log(r)) > 0.1 {
		t.Errorf("the rate of dense panels is %.2f times what it should be", r)
	}
	// What no product depends on stays, and so does what the fit began with.
	if got.Rates[machine.Dense8] != base.Rates[machine.Dense8] || base.Rates[machine.Dense].Panel != machine.Default.Rates[machine.Dense].Panel {
		t.Error("a rate changed that nothing measures")
	}
	if err := got.Check(); err != nil {
		t.Error(err)
	}
}

// Weights on grids are measured as codes, dense and as bitmaps, and their rates are found.
func TestCodesAreMeasured(t *testing.T) {
	const seed = 11
	t.Logf("seed %d", seed)
	for i, bits := range codes {
		samples, err := problems(t.Context(), machine.Default, seed, firstCodes+i, func() {})
		if err != nil {
			t.Fatal(err)
		}
		forms := map[string]int{}
		for _, s := range samples {
			for _, f := range s.forms {
				forms[f.form.String()]++
			}
		}
		dense, bitmap := fmt.Sprintf("dense:int%dx32", bits), fmt.Sprintf("bitmap:int%dx32", bits)
		if len(samples) == 0 || forms[dense] != len(samples) || forms[bitmap] == 0 || len(forms) != 2 {
			t.Errorf("%d products in %v, want each as %s, and some as %s", len(samples), forms, dense, bitmap)
		}
		// As a machine would have measured it whose kernels take half as long.
		other := clone(machine.Default)
		family := machine.Codes(bits, false)
		r := other.Rates[family]
		r.Vec, r.Panel = 2*r.Vec, 2*r.Panel
		other.Rates[family] = r
		other.Memory, other.Cold, other.Next.Bandwidth = 1e12, 1e12, 1e12 // rates count, and not bytes
		truth := state{profile: other, model: predict.Of(other), besides: map[beside]float64{{"MatMul", perNode}: 1e-6}}
		for _, s := range samples {
			for k := range s.forms {
				s.forms[k].us = truth.predict(s, &s.forms[k])
			}
		}
		base := clone(other)
		base.Rates[family] = machine.Default.Rates[family]
		got, err := newFit(base, samples, func() {}).run(t.Context(), time.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if by := got.Rates[family].Vec / r.Vec; math.Abs(math.Log(by)) > 0.2 {
			t.Errorf("%s: the rate of a column is %.2f times what it should be", family, by)
		}
	}
	if list := missing(nil); len(list) != len(patterns)+len(codes) {
		t.Errorf("without samples %v are missing", list)
	}
	seen := map[int]bool{}
	for i := range 60 {
		if n := numbered(i); seen[n] || n < firstCodes && n != 0 && !seen[n-1] {
			t.Errorf("network %d comes at %d", n, i)
		} else {
			seen[n] = true
		}
	}
}

// A fit that there is no time for is the profile that it began with.
func TestFitWithoutTime(t *testing.T) {
	base := clone(machine.Default)
	got, err := newFit(base, made(t, base, 1, 4), func() {}).run(t.Context(), time.Now().Add(-time.Second))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(base)
	if b, _ := json.Marshal(got); string(a) != string(b) {
		t.Errorf("%s, want %s", b, a)
	}
}

func TestMeasure(t *testing.T) {
	steps := 0
	m, err := Measure(t.Context(), Options{Budget: time.Second, Seed: 5, Step: func() { steps++ }})
	if err != nil {
		t.Fatal(err)
	}
	p := m.Profile
	if err := p.Check(); err != nil {
		t.Error(err)
	}
	if p.Name != "native" || p.ISA == "" || m.Problems == 0 || m.Forms <= m.Problems || steps < m.Problems || m.After > m.Before {
		t.Errorf("%+v of %d steps", m, steps)
	}
	if p.Next.Bytes < p.Near || p.Memory > p.Next.Bandwidth*1.01 && p.Next.Bytes > p.Near {
		t.Errorf("caches of %d and %d bytes, %.3g and %.3g bytes a second", p.Near, p.Next.Bytes, p.Next.Bandwidth, p.Memory)
	}
	// The same measurement leads to a profile again, and to the same one each time.
	for i, again := range []*Measured{m.Measured, m.Measured} {
		r, err := Refit(t.Context(), again, func() {})
		if err != nil {
			t.Fatal(err)
		}
		if r.Problems != m.Problems || r.Forms != m.Forms || r.After > 1.05*m.After {
			t.Errorf("fitted again: %d products in %d forms, off by %v, want %d, %d, at most %v", r.Problems, r.Forms, r.After, m.Problems, m.Forms, m.After)
		}
		if i > 0 && !reflect.DeepEqual(r.Profile, p) {
			t.Errorf("%+v and %+v of one measurement", r.Profile, p)
		}
		p = r.Profile
	}
	// A profile may say nothing of nodes.
	bare := *m.Measured
	bare.Roof = clone(bare.Roof)
	bare.Roof.Nodes = nil
	if r, err := Refit(t.Context(), &bare, func() {}); err != nil || len(r.Profile.Nodes) == 0 || r.Profile.Node("Softmax") != machine.Default.Node("Softmax") {
		t.Errorf("without nodes: %v", err)
	}
	m.Measured.Products[0].Text += " of others"
	if _, err := Refit(t.Context(), m.Measured, func() {}); !errors.Is(err, ir.ErrInvalid) {
		t.Errorf("of other products: %v", err)
	}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := machine.Parse(b); err != nil || back.Peak != p.Peak || back.Cold != p.Cold {
		t.Errorf("read again: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Measure(ctx, Options{Budget: time.Second}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
