package op

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
)

func vec(v ...float32) *tensor.Tensor { return tensor.From(v, len(v)) }

func seq(items ...*tensor.Tensor) *tensor.Tensor { return tensor.NewSequence(tensor.F32, items...) }

func TestSequences(t *testing.T) {
	a, b, c := vec(1), vec(2, 3), vec(4, 5, 6)
	at := func(i int64) *tensor.Tensor { return tensor.Scalar(i) }
	grid := tensor.From([]float32{1, 2, 3, 4, 5, 6}, 3, 2)
	row := func(v ...float32) *tensor.Tensor { return tensor.From(v, 1, len(v)) }
	for _, test := range []struct {
		node string
		in   []*tensor.Tensor
		want *tensor.Tensor
	}{
		{"SequenceConstruct", []*tensor.Tensor{a, b}, seq(a, b)},
		{"SequenceEmpty", nil, seq()},
		{"SequenceEmpty {dtype = 7}", nil, tensor.NewSequence(tensor.I64)},
		{"SequenceAt", []*tensor.Tensor{seq(a, b, c), at(1)}, b},
		{"SequenceAt", []*tensor.Tensor{seq(a, b, c), at(-1)}, c},
		{"SequenceAt", []*tensor.Tensor{seq(a, b, c), tensor.Scalar(int32(-3))}, a},
		{"SequenceInsert", []*tensor.Tensor{seq(a, b), c}, seq(a, b, c)},
		{"SequenceInsert", []*tensor.Tensor{seq(), c}, seq(c)},
		{"SequenceInsert", []*tensor.Tensor{seq(a, b), c, at(0)}, seq(c, a, b)},
		{"SequenceInsert", []*tensor.Tensor{seq(a, b), c, at(2)}, seq(a, b, c)},
		{"SequenceInsert", []*tensor.Tensor{seq(a, b), c, at(-1)}, seq(a, c, b)},
		{"SequenceInsert", []*tensor.Tensor{seq(a, b), c, at(-2)}, seq(c, a, b)},
		{"SequenceErase", []*tensor.Tensor{seq(a, b, c)}, seq(a, b)},
		{"SequenceErase", []*tensor.Tensor{seq(a, b, c), at(0)}, seq(b, c)},
		{"SequenceErase", []*tensor.Tensor{seq(a, b, c), at(-2)}, seq(a, c)},
		{"SequenceLength", []*tensor.Tensor{seq(a, b, c)}, at(3)},
		{"SplitToSequence", []*tensor.Tensor{grid}, seq(row(1, 2), row(3, 4), row(5, 6))},
		{"SplitToSequence {keepdims = 0}", []*tensor.Tensor{grid}, seq(vec(1, 2), vec(3, 4), vec(5, 6))},
		{"SplitToSequence {axis = -1, keepdims = 0}", []*tensor.Tensor{grid}, seq(vec(1, 3, 5), vec(2, 4, 6))},
		{"SplitToSequence {keepdims = 0}", []*tensor.Tensor{grid, at(2)}, seq(tensor.From([]float32{1, 2, 3, 4}, 2, 2), row(5, 6))},
		{"SplitToSequence", []*tensor.Tensor{grid, tensor.Ints(1, 0, 2)}, seq(row(1, 2), tensor.New(tensor.F32, 0, 2), tensor.From([]float32{3, 4, 5, 6}, 2, 2))},
		{"SplitToSequence {axis = 1}", []*tensor.Tensor{tensor.New(tensor.F32, 2, 0)}, seq()},
		{"ConcatFromSequence {axis = 0}", []*tensor.Tensor{seq(a, b, c)}, vec(1, 2, 3, 4, 5, 6)},
		{"ConcatFromSequence {axis = -1}", []*tensor.Tensor{seq(row(1, 2), row(3))}, row(1, 2, 3)},
		{"ConcatFromSequence {axis = 0, new_axis = 1}", []*tensor.Tensor{seq(b, b)}, tensor.From([]float32{2, 3, 2, 3}, 2, 2)},
		{"ConcatFromSequence {axis = -1, new_axis = 1}", []*tensor.Tensor{seq(vec(1, 2), vec(3, 4))}, tensor.From([]float32{1, 3, 2, 4}, 2, 2)},
		{"Optional", []*tensor.Tensor{a}, tensor.NewOptional(tensor.F32, a)},
		{"Optional", []*tensor.Tensor{seq(a)}, tensor.NewOptional(tensor.SequenceOf(tensor.F32), seq(a))},
		{`Optional {type = "sequence<i64[2]>[?]"}`, nil, tensor.NewOptional(tensor.SequenceOf(tensor.I64), nil)},
		{"OptionalGetElement", []*tensor.Tensor{tensor.NewOptional(tensor.F32, a)}, a},
		{"OptionalGetElement", []*tensor.Tensor{seq(a)}, seq(a)},
		{"OptionalGetElement", []*tensor.Tensor{a}, a},
		{"OptionalHasElement", []*tensor.Tensor{tensor.NewOptional(tensor.F32, a)}, tensor.Scalar(true)},
		{"OptionalHasElement", []*tensor.Tensor{tensor.NewOptional(tensor.F32, nil)}, tensor.Scalar(false)},
		{"OptionalHasElement", []*tensor.Tensor{seq()}, tensor.Scalar(true)},
		{"OptionalHasElement", nil, tensor.Scalar(false)},
		{"Identity", []*tensor.Tensor{seq(a, b)}, seq(a, b)},
	} {
		if have := evals(t, test.node, 1, test.in...)[0]; !have.Equal(test.want) {
			t.Errorf("%s of %v: %v, want %v", test.node, test.in, have, test.want)
		}
	}
}

// What is refused says which positions there are, at inference where it is known then.
func TestSequencesRefuse(t *testing.T) {
	a := vec(1)
	at := func(i int64) *tensor.Tensor { return tensor.Scalar(i) }
	for _, test := range []struct {
		node string
		in   []*tensor.Tensor
		want string
	}{
		{"SequenceAt", []*tensor.Tensor{seq(a, a), at(2)}, "position 2 of a sequence of 2, want -2 to 1"},
		{"SequenceAt", []*tensor.Tensor{seq(a, a), at(-3)}, "position -3 of a sequence of 2, want -2 to 1"},
		{"SequenceAt", []*tensor.Tensor{seq(), at(0)}, "position 0 of an empty sequence"},
		{"SequenceErase", []*tensor.Tensor{seq(a), at(1)}, "position 1 of a sequence of 1, want -1 to 0"},
		{"SequenceErase", []*tensor.Tensor{seq()}, "an empty sequence"},
		{"SequenceInsert", []*tensor.Tensor{seq(a, a), a, at(3)}, "position 3 of a sequence of 2, want -2 to 2"},
		{"SequenceInsert", []*tensor.Tensor{seq(a, a), a, at(-3)}, "position -3 of a sequence of 2, want -2 to 2"},
		{"SequenceInsert", []*tensor.Tensor{seq(a), at(1)}, "want an element of sequence<f32[1]>[1]"},
		{"SequenceAt", []*tensor.Tensor{a, at(1)}, "want a sequence"},
		{"SequenceAt", []*tensor.Tensor{seq(a), a}, "want one position"},
		{"SequenceConstruct", []*tensor.Tensor{a, at(1)}, "want f32 as input 0"},
		{"SequenceConstruct", []*tensor.Tensor{seq(a)}, "want a tensor"},
		{"SplitToSequence", []*tensor.Tensor{vec(1, 2, 3), at(0)}, "pieces of 0, want at least 1"},
		{"SplitToSequence", []*tensor.Tensor{vec(1, 2, 3), tensor.Ints(1, 1)}, "want them to add to 3"},
		{"SplitToSequence", []*tensor.Tensor{vec(1, 2, 3), tensor.Ints(4, -1)}, "want them to add to 3"},
		{"SplitToSequence {axis = 1}", []*tensor.Tensor{a}, "axis 1 is out of range for rank 1"},
		{"ConcatFromSequence {axis = 0}", []*tensor.Tensor{seq()}, "the sequence is empty"},
		{"ConcatFromSequence {axis = 0, new_axis = 1}", []*tensor.Tensor{seq(a, vec(1, 2))}, "element 1 is f32[2], element 0 is f32[1], which do not join along axis 0"},
		{"ConcatFromSequence {axis = 0}", []*tensor.Tensor{seq(a, tensor.New(tensor.F32, 1, 1))}, "element 1 is f32[1,1]"},
		{"Optional", nil, "neither an input nor a type"},
		{`Optional {type = "optional<f32[*]>[1]"}`, nil, "want that of a tensor or a sequence"},
		{"Optional", []*tensor.Tensor{tensor.NewOptional(tensor.F32, a)}, "want a tensor or a sequence"},
		{"OptionalGetElement", []*tensor.Tensor{tensor.NewOptional(tensor.F32, nil)}, "the optional is absent"},
		{"Relu", []*tensor.Tensor{seq(a)}, "input 0 is sequence<f32[1]>[1], want a tensor"},
		{"Shape", []*tensor.Tensor{seq(a)}, "want a tensor"},
	} {
		_, err := run(t, test.node, 1, test.in...)
		if err == nil || !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s of %v: error %v, want %q", test.node, test.in, err, test.want)
		}
	}
}

// unnamed matches unknowns that nobody named.
var unnamed = regexp.MustCompile(`\?[0-9]+`)

// Elements of types that differ have what they share, in every way that lists are joined.
func TestTypesOfElementsAreJoined(t *testing.T) {
	for text, want := range map[string]string{
		`%y: f32[*] = SequenceConstruct "n" (%a, %b) return %y`:                                                                                                                                                  "sequence<f32[?,3]>[2]",
		`%y: f32[*] = SequenceConstruct "n" (%a, %v) return %y`:                                                                                                                                                  "sequence<f32[*]>[2]",
		`%e: f32[*] = SequenceEmpty "e" () %y: f32[*] = SequenceInsert "n" (%e, %a) return %y`:                                                                                                                   "sequence<f32[2,3]>[1]",
		`%s: f32[*] = SequenceConstruct "s" (%a, %b) %y: f32[*] = SequenceAt "n" (%s, %i) %z: f32[*] = SequenceAt "m" (%s, %i) return %y, %z`:                                                                    "f32[?1,3] f32[?2,3]",
		`%s: f32[*] = SplitToSequence "s" (%d) {axis = 1} %y: f32[*] = SequenceLength "n" (%s) %z: f32[*] = ConcatFromSequence "z" (%s) {axis = 0} return %s, %y, %z`:                                            "sequence<f32[b,1]>[3] i64[] f32[3*b,1]",
		`%s: f32[*] = SplitToSequence "s" (%d) return %s`:                                                                                                                                                        "sequence<f32[1,3]>[b]",
		`%y: f32[*] = If "if" (%c) {then_branch = graph "t"() { %s: f32[*] = SequenceConstruct "s" (%a) return %s }, else_branch = graph "e"() { %e: f32[*] = SequenceEmpty "e" () return %e }} return %y`:       "sequence<f32[2,3]>[?]",
		`%y: f32[*] = If "if" (%c) {then_branch = graph "t"() { %s: f32[*] = SequenceConstruct "s" (%a) return %s }, else_branch = graph "e"() { %e: f32[*] = SequenceConstruct "e" (%b) return %e }} return %y`: "sequence<f32[?,3]>[1]",
		`%e: f32[*] = SequenceEmpty "e" () %y: f32[*] = Loop "loop" (%i, %c, %e) {body = graph "body"(%k: i64[], %go: bool[], %s: f32[*]) {
    %n: f32[*] = SequenceInsert "n" (%s, %a)
    return %go, %n
  }} return %y`: "sequence<f32[2,3]>[?]",
		`%e: f32[*] = SequenceConstruct "e" (%b) %y: f32[*] = Loop "loop" (%i, %c, %e) {body = graph "body"(%k: i64[], %go: bool[], %s: f32[*]) {
    %n: f32[*] = SequenceInsert "n" (%s, %a)
    return %go, %n
  }} return %y`: "sequence<f32[?,3]>[?]",
		`%s: f32[*] = SequenceConstruct "s" (%a, %b) %y: f32[*] = SequenceMap "map" (%s, %v) {body = graph "body"(%e: f32[*], %w: f32[*]) {
    %n: f32[*] = Add "n" (%e, %w)
    return %n, %w
  }} return %y`: "sequence<f32[?,3]>[2]",
	} {
		g, err := ir.Parse(`graph "g"(%a: f32[2,3], %b: f32[4,3], %d: f32[b,3], %v: f32[3], %i: i64[], %c: bool[]) { `+text+` }`, Registry)
		if err == nil {
			err = g.Infer()
		}
		if err == nil {
			err = g.Verify()
		}
		if err != nil {
			t.Errorf("%v in %s", err, text)
			continue
		}
		var have []string
		for _, v := range g.Outputs {
			have = append(have, v.Type.String())
		}
		h, err := ir.Parse(ir.Print(g), Registry)
		if err != nil || ir.Print(h) != ir.Print(g) {
			t.Errorf("%v: read again as %v", g, err)
		}
		plain := func(s string) string { return unnamed.ReplaceAllString(s, "?") }
		if h := strings.Join(have, " "); plain(h) != plain(want) {
			t.Errorf("%s, want %s in %s", h, want, text)
		}
	}
}

// Two elements of unknown sizes are not of one size.
func TestElementsAreNotOfOneSize(t *testing.T) {
	g, err := ir.Parse(`graph "g"(%s: sequence<f32[?]>[?1], %i: i64[]) {
  %a: f32[*] = SequenceAt "a" (%s, %i)
  %b: f32[*] = SequenceAt "b" (%s, %i)
  return %a, %b
}`, Registry)
	if err == nil {
		err = g.Infer()
	}
	if err != nil {
		t.Fatal(err)
	}
	if a, b := g.Outputs[0].Type.Dims[0], g.Outputs[1].Type.Dims[0]; a == b || a == ir.Any || b == ir.Any {
		t.Errorf("sizes %v and %v", a, b)
	}
}
