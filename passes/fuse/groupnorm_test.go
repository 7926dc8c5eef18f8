package fuse_test

import (
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/passes/fold"
	"spc/passes/fuse"
	"spc/tests/graphtest"
)

// What exporters write for a GroupNorm and a BatchNorm behind one becomes one node.
func TestGroupNorm(t *testing.T) {
	const group = `
  %shape: i64[3] = const {0, 2, -1}
  %back: i64[4] = const {2, 6, 3, 5}
  %one: f32[2] = const {1.0, 2.0}
  %zero: f32[2] = const {0.0, -1.0}
  %weight: f32[6,1,1] = const {1.0, -2.0, 3.0, 4.0, 0.5, 0.0}
  %bias: f32[6,1,1] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %r: f32[2,2,45] = Reshape "r" (%x, %shape)
  %i: f32[2,2,45] = InstanceNormalization "i" (%r, %one, %zero) {epsilon = 0.01}
  %n: f32[2,6,3,5] = Reshape "n" (%i, %back)`
	for name, c := range map[string]struct {
		body string
		left string // operators, in the order of their names
	}{
		"with weights": {group + `
  %m: f32[2,6,3,5] = Mul "m" (%weight, %n)
  %y: f32[2,6,3,5] = Add "y" (%m, %bias)`, "GroupNormalization"},
		"without": {group + `
  %y: f32[2,6,3,5] = Neg "y" (%n)`, "GroupNormalization Neg"},
		"of other channels after all": {`
  %shape: i64[3] = const {3, 2, -1}
  %back: i64[4] = const {2, 6, 3, 5}
  %one: f32[2] = const {1.0, 2.0}
  %r: f32[3,2,30] = Reshape "r" (%x, %shape)
  %i: f32[3,2,30] = InstanceNormalization "i" (%r, %one, %one)
  %y: f32[2,6,3,5] = Reshape "y" (%i, %back)`, "InstanceNormalization Reshape Reshape"},
		"an InstanceNorm with factors": {`
  %one: f32[6] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %two: f32[] = const {2.0}
  %bias: f32[1,6,1,1] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %i: f32[2,6,3,5] = InstanceNormalization "i" (%x, %one, %one)
  %m: f32[2,6,3,5] = Mul "m" (%i, %two)
  %y: f32[2,6,3,5] = Add "y" (%bias, %m)`, "InstanceNormalization"},
		"factors of columns": {`
  %one: f32[6] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %wide: f32[5] = const {1.0, 2.0, 3.0, 4.0, 5.0}
  %i: f32[2,6,3,5] = InstanceNormalization "i" (%x, %one, %one)
  %y: f32[2,6,3,5] = Mul "y" (%i, %wide)`, "InstanceNormalization Mul"},
	} {
		t.Run(name, func(t *testing.T) {
			g := graphtest.Parse(t, `graph "g"(%x: f32[2,6,3,5]) {`+c.body+`
  return %y
}`)
			old := g.Clone()
			if _, err := fuse.Norms(g); err != nil {
				t.Fatal(err)
			}
			fold.Dead(g)
			var left []string
			for _, n := range g.Nodes {
				left = append(left, n.Op.Kind())
			}
			slices.Sort(left)
			if got := strings.Join(left, " "); got != c.left {
				t.Errorf("%s are left, want %s in\n%s", got, c.left, ir.Print(g))
			}
			graphtest.Same(t, old, g, 1e-5)
		})
	}
}
