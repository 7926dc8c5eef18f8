package fuse_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"spc/passes/fold"
	"spc/passes/fuse"
	"spc/tests/graphtest"
)

// reported runs the passes that recognise operators and returns what is reported.
func reported(t *testing.T, text string) *fuse.Recognised {
	t.Helper()
	g := graphtest.Parse(t, text)
	for _, f := range []graphtest.Pass{fuse.Identities, fuse.Activations, fuse.Norms, fuse.Rotaries, fuse.Attentions} {
		if _, err := f(g); err != nil {
			t.Fatal(err)
		}
		fold.Dead(g)
	}
	return fuse.Recognise(g)
}

// What only looks like attention is named with the first thing that it fails by.
func TestMissedAttention(t *testing.T) {
	const scores = `
  %s: f32[*] = MatMul "s" (%q, %kt)`
	for name, c := range map[string]struct{ middle, reason string }{
		"the scores are read elsewhere": {scores + `
  %p: f32[*] = Softmax "p" (%s)
  %y2: f32[*] = Relu "y2" (%s)`, "the scores s are read elsewhere, too"},
		"another axis": {scores + `
  %p: f32[*] = Softmax "p" (%s) {axis = 2}`, "the softmax is along axis 2 of f32[batch,2,seq,keys], not the last one"},
		"factors of keys": {scores + `
  %e: f32[*] = Mul "e" (%s, %mask)
  %p: f32[*] = Softmax "p" (%e)`, "e multiplies scores by what is not the same for all of a head"},
		"a negative scale": {scores + `
  %minus: f32[] = const {-1.0}
  %e: f32[*] = Mul "e" (%s, %minus)
  %p: f32[*] = Softmax "p" (%e)`, "the scores are scaled by -1, want a positive number"},
		"a function between": {scores + `
  %e: f32[*] = Abs "e" (%s)
  %p: f32[*] = Softmax "p" (%e)`, "e (Abs) is between the product and the softmax"},
		"probabilities that are changed": {scores + `
  %p0: f32[*] = Softmax "p0" (%s)
  %p: f32[*] = Mul "p" (%p0, %mask)`, "p (Mul) is between the softmax and the product behind it"},
		"hidden by little": {scores + `
  %see: bool[*] = Cast "see" (%full) {to = 9}
  %little: f32[] = const {-100.0}
  %e: f32[*] = Where "e" (%see, %s, %little)
  %p: f32[*] = Softmax "p" (%e)`, "e hides scores by what is not a number of at most -1e+09"},
		"a number that may hide all": {scores + `
  %see: bool[*] = Cast "see" (%full) {to = 9}
  %much: f32[] = const {-1e9}
  %e: f32[*] = Where "e" (%see, %s, %much)
  %p: f32[*] = Softmax "p" (%e)`, "a query from which see hides all keys sees all alike, as these become -1e+09"},
	} {
		t.Run(name, func(t *testing.T) {
			text := attending(headSplit, c.middle, headJoin)
			if strings.Contains(c.middle, "%y2") {
				text = strings.Replace(text, "return %y", "return %y, %y2", 1)
			}
			want := &fuse.Recognised{Missed: []fuse.Missed{{What: "attention", Node: "p", Reason: c.reason}}}
			if strings.Contains(c.middle, `"p0"`) {
				want.Missed[0].Node = "p0"
			}
			if d := cmp.Diff(want, reported(t, text)); d != "" {
				t.Errorf("-want +have:\n%s", d)
			}
		})
	}
}

// What is recognised, and what looks like nothing, is not named.
func TestRecognised(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want fuse.Recognised
	}{
		"attention": {attending(headSplit, `
  %s: f32[*] = MatMul "s" (%q, %kt)
  %p: f32[*] = Softmax "p" (%s)`, headJoin), fuse.Recognised{Attentions: 1}},
		"a softmax of what a weight makes": {`graph "g"(%a: f32[1,1,seq,3], %v: f32[1,1,2,4]) {
  %w: f32[1,1,3,2] = const {1.0, -2.0, 0.5, 3.0, 0.25, -1.0}
  %s: f32[*] = MatMul "s" (%a, %w)
  %p: f32[*] = Softmax "p" (%s)
  %y: f32[*] = MatMul "y" (%p, %v)
  return %y }`, fuse.Recognised{}},
		"an activation and a norm": {`graph "g"(%x: f32[n,3]) {
  %two: f32[] = const {2.0}
  %eps: f32[] = const {0.5}
  %last: i64[1] = const {-1}
  %g: f32[*] = Sigmoid "g" (%x)
  %a: f32[*] = Mul "a" (%g, %x)
  %q: f32[*] = Pow "q" (%a, %two)
  %m: f32[*] = ReduceMean "m" (%q, %last)
  %e: f32[*] = Add "e" (%m, %eps)
  %r: f32[*] = Sqrt "r" (%e)
  %y: f32[*] = Div "y" (%a, %r)
  return %y }`, fuse.Recognised{Norms: 1, Activations: 1}},
		"a mean of squares": {`graph "g"(%x: f32[n,3]) {
  %last: i64[1] = const {-1}
  %q: f32[*] = Mul "q" (%x, %x)
  %y: f32[*] = ReduceMean "m" (%q, %last)
  return %y }`, fuse.Recognised{}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(&c.want, reported(t, c.text)); d != "" {
				t.Errorf("-want +have:\n%s", d)
			}
		})
	}
}

func TestMissedNorm(t *testing.T) {
	for name, c := range map[string]struct{ axes, root, by, reason string }{
		"other axes": {"{1}", `%r: f32[*] = Sqrt "r" (%e)`, "%x, %r",
			"the mean is over the axes [1] of f32[2,3,4], not the last ones"},
		"another value": {"{2}", `%r: f32[*] = Sqrt "r" (%e)`, "%b, %r",
			"what is divided by the root is not x, whose squares the mean is of, or has another shape than the result"},
		"an open epsilon": {"{2}", `%f: f32[*] = Add "f" (%m, %eps)
  %r: f32[*] = Sqrt "r" (%f)`, "%x, %r",
			"what is added to the mean of squares is not a constant number"},
		"a difference of means": {"{2}", `%n: f32[*] = ReduceMean "n" (%x, %axes)
  %n2: f32[*] = Mul "n2" (%n, %n)
  %d: f32[*] = Sub "d" (%m, %n2)
  %r: f32[*] = Sqrt "r" (%d)`, "%x, %r",
			"the variance is computed as the mean of squares less the square of the mean"},
	} {
		t.Run(name, func(t *testing.T) {
			text := `graph "g"(%x: f32[2,3,4], %b: f32[2,3,4], %eps: f32[]) {
  %axes: i64[1] = const ` + c.axes + `
  %half: f32[] = const {0.5}
  %q: f32[*] = Mul "q" (%x, %x)
  %m: f32[*] = ReduceMean "m" (%q, %axes)
  ` + map[bool]string{true: "", false: `%e: f32[*] = Add "e" (%m, %half)` + "\n  "}[!strings.Contains(c.root, "%e)")] + c.root + `
  %y: f32[*] = Div "y" (` + c.by + `)
  return %y }`
			want := &fuse.Recognised{Missed: []fuse.Missed{{What: "norm", Node: "m", Reason: c.reason}}}
			if d := cmp.Diff(want, reported(t, text)); d != "" {
				t.Errorf("-want +have:\n%s", d)
			}
		})
	}
}

// What turns halves of heads by angles that are not known to fit is named.
func TestMissedRotary(t *testing.T) {
	want := &fuse.Recognised{Missed: []fuse.Missed{{What: "rotary embedding", Node: "y", Reason: "the angles cos of the halves of a head are not certain to be equal"}}}
	have := reported(t, `graph "g"(%x: f32[batch,3,seq,4], %cos: f32[1,1,seq,4], %sin: f32[1,1,seq,4]) {
  %lo: f32[*], %hi: f32[*] = Split "halves" (%x) {axis = -1, num_outputs = 2}
  %minus: f32[*] = Neg "minus" (%hi)
  %turned: f32[*] = Concat "turned" (%minus, %lo) {axis = -1}
  %xc: f32[*] = Mul "xc" (%x, %cos)
  %rs: f32[*] = Mul "rs" (%turned, %sin)
  %y: f32[*] = Add "y" (%xc, %rs)
  return %y }`)
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("-want +have:\n%s", d)
	}
}
