package chain

import (
	"testing"

	"spc/tests/graphtest"
)

// A normalisation by constants is a product and a sum, which become one node with what follows, named as it was.
func TestNormalisationsByConstantsAreChains(t *testing.T) {
	for _, test := range []struct {
		shape, attrs string
		chained      bool
	}{
		{"[2,3,4,5]", "", true}, {"[2,3]", "", true}, {"[2,3,4,5]", " {training_mode = 1}", false}, {"[n,3,m]", " {epsilon = 0.5}", true},
		{"[n,c,m]", "", false},
	} {
		text := `graph "g"(%x: f32` + test.shape + `) {
  %s: f32[3] = const {2.0, -0.5, 1.0}
  %b: f32[3] = const {0.25, 1.0, -3.0}
  %m: f32[3] = const {0.5, -1.0, 2.0}
  %v: f32[3] = const {1.0, 4.0, 0.25}
  %n: f32` + test.shape + ` = BatchNormalization "bn" (%x, %s, %b, %m, %v)` + test.attrs + `
  return %n
}`
		before, after := graphtest.Parse(t, text), graphtest.Parse(t, text)
		count, err := Affine(after)
		if err != nil || (count == 1) != test.chained {
			t.Fatalf("%s%s: %d, %v", test.shape, test.attrs, count, err)
		}
		if err := after.Verify(); err != nil {
			t.Fatal(err)
		}
		last := after.Nodes[len(after.Nodes)-1]
		if last.Name != "bn" || (last.Op.Kind() == "Add") != test.chained {
			t.Errorf("%s%s: the last node is %v", test.shape, test.attrs, last)
		}
		graphtest.Same(t, before, after, 1e-6)
	}
}
