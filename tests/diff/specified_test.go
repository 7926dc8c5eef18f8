package diff

import (
	"testing"

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
