package diff

import (
	"context"
	"strings"
	"testing"

	"spc"
	"spc/ir/tensor"
)

// What importing makes of each operator with a specification is what that says, and is found where it is not: a specification
// whose results are one more than they should be differs.
func TestSpecifications(t *testing.T) {
	const seed = 13
	t.Logf("seed %d", seed)
	for _, kind := range kinds {
		rule := Rules[kind]
		if rule.Spec == nil {
			continue
		}
		wrong := rule
		wrong.Spec = func(s *specified) []*array {
			out := rule.Spec(s)
			for i, y := range out {
				if y != nil {
					out[i] = y.each(func(x float64) float64 { return x + 1 })
				}
			}
			return out
		}
		made, found := 0, 0
		for attempt := uint64(0); attempt < 60 && made < 4; attempt++ {
			g := newGen(seed, 0, attempt)
			g.old = false
			g.newInput(g.floats(tensor.F32, 2, 3, 4, 4), g.drawer(tensor.F32))
			if !g.try(func() { rule.Make(g, kind) }) || g.kinds[kind] == 0 {
				continue
			}
			c, err := g.finish(seed, attempt)
			if err != nil {
				continue
			}
			made++
			if f := c.compareSpecified(Variant{}); f != nil {
				t.Errorf("%s, attempt %d: %v", kind, attempt, f)
			}
			Rules[kind] = wrong
			if c.compareSpecified(Variant{}) != nil {
				found++
			}
			Rules[kind] = rule
		}
		if found == 0 {
			t.Errorf("%s: of %d graphs in none is it compared with its specification", kind, made)
		}
	}
}

// Weights of few bits in blocks are stored as codes when graphs with them are compiled, so that these are what random graphs judge.
func TestCodedWeightsAreStored(t *testing.T) {
	stored, made := map[string]int{}, 0
	for attempt := uint64(0); attempt < 60 && made < 20; attempt++ {
		g := newGen(14, 0, attempt)
		g.old = false
		if !g.try(func() { codedWeight(g) }) {
			continue
		}
		c, err := g.finish(14, attempt)
		if err != nil {
			continue
		}
		made++
		m, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: c.Model})
		if err != nil {
			t.Fatalf("attempt %d: %v", attempt, err)
		}
		for _, l := range m.Explain().Layers {
			if bits, _, is := strings.Cut(l.Config, "x"); is {
				stored[bits]++
			}
		}
		m.Close()
	}
	if stored["int4"] == 0 || stored["int8"] == 0 {
		t.Errorf("of %d graphs weights are stored as %v", made, stored)
	}
}
