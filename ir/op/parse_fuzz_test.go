package op

import (
	"testing"

	"spc/ir"
)

// Whatever parses prints and parses again as the same text, and inference and
// verification of it end without a panic.
func FuzzParse(f *testing.F) {
	f.Add(sample)
	f.Add("graph \"g\"(%x: f32[?,3]) {\n  %w: f32[2,3] = stored \"ell\"(\"1x1\") [1, 0] 1, 3 x 2 {values = f32[3,1] {1.0, 2.0, 3.0}, index = u16[3,1] {0, 1, 1}}\n  %y: f32[?,2] = MatMul \"m\" (%x, %w)\n  return %y\n}\n")
	f.Add("graph \"g\"() {\n  %c: i64[2] = const {1, 2}\n  %r: f32[1,2] = ConstantOfShape \"r\" (%c) {value = tensor f32[1] {3.0}}\n  return %r as \"out\"\n}")
	f.Add("graph \"g\"(%a: bool[], %b: string[*], %d: f32[\"a b\",(n+1),2*n]) {\n  return %a, %b, %d\n}")
	f.Add("graph \"g\"(%s: sequence<f32[?,b]>[?1], %o: optional<sequence<i64[*]>[?]>[?2], %n: i64[]) {\n  %x: f32[?3,b] = SequenceAt \"at\" (%s, %n)\n  %t: sequence<f32[?,b]>[(?1+1)] = SequenceInsert \"in\" (%s, %x)\n  %e: optional<f32[2]>[0] = Optional \"opt\" () {type = \"f32[2]\"}\n  return %t, %o, %e\n}")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := ir.Parse(text, Registry)
		if err != nil {
			return
		}
		printed := ir.Print(g)
		h, err := ir.Parse(printed, Registry)
		if err != nil {
			t.Fatalf("%v in\n%s", err, printed)
		}
		if again := ir.Print(h); again != printed {
			t.Fatalf("printed\n%s\nthen\n%s", printed, again)
		}
		if g.Infer() == nil {
			g.Verify()
		}
	})
}
