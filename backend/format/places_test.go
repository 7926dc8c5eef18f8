package format

import (
	"errors"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/op"
)

// w is a weight of the type and the view that stand in its place, 2 x 3 with two nonzeros.
const w = `  %w: TYPE = stored "ell"("1x1") VIEW, 2 x 3 {columns = u16[2,1] {0, 2}, values = f32[2,1,1] {1.0, 2.0}}
`

// A stored weight is read by what multiplies it as it is stored, and by nothing else.
func TestStoredWeightsOutOfPlaceAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ head, typ, view, body, want string }{
		"as it should be": {"%x: f32[2,3]", "f32[3,2]", "[1, 0] 1", `%y: f32[2,2] = MatMul "fc" (%x, %w)` + "\n  return %y", ""},
		"twice":           {"%x: f32[2,3]", "f32[3,2]", "[1, 0] 1", `%h: f32[2,2] = MatMul "fc" (%x, %w)` + "\n" + `  %z: f32[2,2] = MatMul "gc" (%x, %w)` + "\n" + `  %y: f32[2,2] = Add "s" (%h, %z)` + "\n  return %y", ""},
		"an output":       {"%x: f32[2,3]", "f32[3,2]", "[1, 0] 1", `%y: f32[2,2] = MatMul "fc" (%x, %w)` + "\n  return %y, %w", "output w is a weight in format ell"},
		"nothing else":    {"", "f32[3,2]", "[1, 0] 1", "return %w", "output w is a weight in format ell"},
		"as data":         {"%x: f32[3,2]", "f32[3,2]", "[1, 0] 1", `%y: f32[3,2] = Add "a" (%x, %w)` + "\n  return %y", "a (Add): input 1 is the weight w"},
		"as the other factor": {"%x: f32[2,3]", "f32[2,3]", "[] 1", `%t: f32[3,2] = Transpose "t" (%x)` + "\n" +
			`  %y: f32[2,2] = MatMul "fc" (%w, %t)` + "\n  return %y", ""},
		"seen otherwise": {"%x: f32[3,2]", "f32[2,3]", "[] 1", `%y: f32[3,3] = MatMul "fc" (%x, %w)` + "\n  return %y", "fc (MatMul): weight w is stored with other axes"},
		"of groups":      {"%x: f32[1,6,4]", "f32[2,3,1]", "[] 1", `%y: f32[1,2,4] = Conv "c" (%x, %w) {group = 2}` + "\n  return %y", "c (Conv): weight w is in format ell, want it dense for 2 groups"},
		"in a branch": {"%c: bool[]", "f32[3,2]", "[1, 0] 1", `%y: f32[3,2] = If "if" (%c) {then_branch = graph "t"() {
    return %w
  }, else_branch = graph "e"() {
    return %w
  }}` + "\n  return %y", "output w is a weight in format ell"},
	} {
		text := `graph "g"(` + c.head + ") {\n" + strings.NewReplacer("TYPE", c.typ, "VIEW", c.view).Replace(w) + "  " + c.body + "\n}"
		g, err := ir.Parse(text, op.Registry)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		err = CheckAll(g)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ir.ErrCorrupt) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}
