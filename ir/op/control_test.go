package op

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"spc/ir"
)

// A subgraph that takes more or fewer values than its operator gives it is refused, by
// inference and, as graphs of compiled programs are read, by Verify.
func TestSubgraphsTakeWhatTheyAreGiven(t *testing.T) {
	const branches = `then_branch = graph "then"(THEN) {
    %a: f32[2] = Relu "a" (%x)
    return %a
  }, else_branch = graph "else"(ELSE) {
    %b: f32[2] = Neg "b" (%x)
    return %b
  }`
	branch := func(then, other string) string {
		return strings.NewReplacer("THEN", then, "ELSE", other).Replace(branches)
	}
	for _, c := range []struct{ kind, in, attrs, want string }{
		{"If", "%c", branch("", ""), ""},
		{"If", "%c", branch("%i: f32[2]", ""), "n (If): branch then has 1 inputs, want none"},
		{"If", "%c", branch("", "%i: f32[2], %j: f32[2]"), "n (If): branch else has 2 inputs, want none"},
		{"If", "%yes", branch("%i: f32[2]", ""), "n (If): branch then has 1 inputs, want none"},
		{"If", "%yes", branch("", "%i: f32[2]"), "n (If): branch else has 1 inputs, want none"},
		{"Loop", "%n, _, %x", `body = graph "body"(%i: i64[], %go: bool[], %v: f32[2]) {
    return %go, %v
  }`, ""},
		{"Loop", "%n, _, %x", `body = graph "body"(%i: i64[], %go: bool[], %v: f32[2], %w: f32[2]) {
    return %go, %v
  }`, "n (Loop): the body does not take"},
		{"Loop", "%n, _, %x", `body = graph "body"(%i: i64[], %go: bool[]) {
    return %go, %x
  }`, "n (Loop): the body does not take"},
		{"Scan", "%x", `body = graph "body"(%v: f32[], %w: f32[]) {
    return %v
  }, num_scan_inputs = 1`, "n (Scan): the body does not take"},
		{"SequenceMap", "%s", `body = graph "body"(%v: f32[2], %w: f32[2]) {
    return %v
  }`, "n (SequenceMap): the body does not take"},
		{"ai.onnx.preview:FlexAttention", "%q, %q, %q", `score_mod = graph "mod"(%v: f32[1,1,1,1], %w: f32[1,1,1,1]) {
    return %v
  }`, "n (ai.onnx.preview:FlexAttention): subgraph mod has 2 inputs"},
	} {
		text := fmt.Sprintf(`graph "g"(%%x: f32[2], %%c: bool[], %%n: i64[], %%s: sequence<f32[2]>[3], %%q: f32[1,1,1,1]) {
  %%yes: bool[] = const {1}
  %%y: f32[2] = %s "n" (%s) {%s}
  return %%y
}`, c.kind, c.in, c.attrs)
		for _, check := range []func(*ir.Graph) error{(*ir.Graph).Infer, (*ir.Graph).Verify} {
			g, err := ir.Parse(text, Registry)
			if err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			switch err := check(g); {
			case c.want == "" && err != nil:
				t.Errorf("%v in\n%s", err, text)
			case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || !errors.Is(err, ir.ErrInvalid)):
				t.Errorf("error %v, want %q in\n%s", err, c.want, text)
			}
		}
	}
}
