package op

import (
	"slices"
	"strings"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/tensor"
)

// growing is a loop whose first carried value grows and whose second keeps its
// shape; each iteration's second value is stacked.
const growing = `graph "g"(%n: i64[], %x: f32[batch,2], %y: f32[batch,3]) {
  %count: i64[] = const {5}
  %yes: bool[] = const {1}
  %a: ?, %b: ?, %s: ? = Loop "loop" (COUNT, %yes, %x, %y) {body = graph "body"(%i: i64[], %go: bool[], %u: f32[*], %v: f32[*]) {
    %w: ? = Concat "w" (%u, %u) {axis = 1}
    %z: ? = Relu "z" (%v)
    return STAY, %w, %z, %z
  }}
  return %a, %b, %s
}`

func TestLoopWidensWhatItCarries(t *testing.T) {
	for _, c := range []struct{ count, stay, stacked string }{
		{"%count", "%go", "f32[5,batch,3]"},
		{"%count", "%yes", "f32[5,batch,3]"},
		{"%n", "%go", "f32[N,batch,3]"},
		{"_", "%go", "f32[N,batch,3]"},
	} {
		types := inferred(t, strings.NewReplacer("COUNT", c.count, "STAY", c.stay).Replace(untyped(growing)))
		if a := types[0]; a.Rank() != 2 || a.Dims[0] != ir.Sym("batch") || !a.Dims[1].Fresh() {
			t.Errorf("the growing value is %v, want f32[batch,?]", a)
		}
		if b := types[1].String(); b != "f32[batch,3]" {
			t.Errorf("the other value is %s, want f32[batch,3]", b)
		}
		s := types[2]
		if s.Rank() == 3 && s.Dims[0].Fresh() {
			s.Dims[0] = ir.Sym("N")
		}
		if s.String() != c.stacked {
			t.Errorf("%s iterations stack %v, want %s", c.count, s, c.stacked)
		}
	}
}

// Whatever its body would do with it, a loop that is known to have no iterations gives what
// it takes.
func TestBodiesOfNoIterationsNeedNotFit(t *testing.T) {
	const text = `graph "g"(%x: f32[2,1], %y: f32[3,4], %n: i64[], %c: bool[]) {
  %none: i64[] = const {COUNT}
  %no: bool[] = const {GOES}
  %z: ? = Loop "loop" (TRIP, COND, %x) {body = graph "body"(%i: i64[], %go: bool[], %v: f32[*]) {
    %w: ? = Concat "w" (%v, %y) {axis = 0}
    return %go, %w
  }}
  return %z
}`
	for _, c := range []struct {
		count, goes, trip, cond string
		ok                      bool
	}{
		{"0", "1", "%none", "_", true},
		{"-2", "1", "%none", "%c", true},
		{"1", "0", "%n", "%no", true},
		{"0", "1", "_", "%no", false},
		{"1", "1", "%none", "%no", false},
		{"0", "1", "%n", "_", false},
		{"0", "1", "%n", "%c", false},
	} {
		text := strings.NewReplacer("COUNT", c.count, "GOES", c.goes, "TRIP", c.trip, "COND", c.cond).Replace(text)
		g, err := ir.Parse(untyped(text), Registry)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := g.Infer(); (err == nil) != c.ok {
				t.Errorf("%v: %v", c, err)
			}
		}
		if body := g.Nodes[0].Op.(*Loop).Body; c.ok && (body.Refused == nil || g.Outputs[0].Type.String() != "f32[2,1]") {
			t.Errorf("%v: refused for %v, of the type %v", c, body.Refused, g.Outputs[0].Type)
		}
	}
}

func TestScanWidensUnknownSizes(t *testing.T) {
	// The state begins with an unknown size and has two elements from then on.
	g, err := ir.Parse(`graph "g"(%p: f32[?1], %x: f32[3,2]) {
  %last: f32[*], %all: f32[*] = Scan "scan" (%p, %x) {body = graph "body"(%s: f32[*], %e: f32[*]) {
    %y: f32[*] = Add "y" (%s, %e)
    %z: f32[*] = Relu "z" (%s)
    return %y, %z
  }, num_scan_inputs = 1}
  return %last, %all
}`, Registry)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // what the inference before left must not tell that nothing changed
		if err := g.Infer(); err != nil {
			t.Fatal(err)
		}
		body := g.Nodes[0].Op.(*Scan).Body
		for _, v := range []*ir.Value{body.Inputs[0], body.Outputs[1]} {
			if d := v.Type.Dims[0]; d.Known() || d == ir.Sym("?1") {
				t.Errorf("%s is %v, want a size of its own", v.Name, v.Type)
			}
		}
	}
}

func TestScanTakesAndGivesSlices(t *testing.T) {
	text := `graph "g"(%h: f32[batch,4], %x: f32[batch,seq,4]) {
  %last: ?, %all: ? = Scan "scan" (%h, %x) {body = graph "body"(%s: f32[*], %e: f32[*]) {
    %y: ? = Add "y" (%s, %e)
    return %y, %y
  }, num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [-2]}
  return %last, %all
}`
	wantTypes(t, inferred(t, untyped(text)), "f32[batch,4] f32[batch,seq,4]")
	text = strings.Replace(text, "scan_input_axes = [1], scan_output_axes = [-2]", "batched = 1", 1)
	wantTypes(t, inferred(t, untyped(text)), "f32[batch,4] f32[batch,seq,4]")
}

func TestDeepLoopsAreInferredInLinearTime(t *testing.T) {
	const depth = 40
	var b strings.Builder
	b.WriteString(`graph "g"(%x0: f32[1], %n: i64[]) {` + "\n")
	for i := range depth {
		d := string(rune('a'+i/26)) + string(rune('a'+i%26))
		prev := "%x0"
		if i > 0 {
			prev = "%u" + string(rune('a'+(i-1)/26)) + string(rune('a'+(i-1)%26))
		}
		b.WriteString(`%o` + d + `: ? = Loop "l` + d + `" (%n, _, ` + prev + `) {body = graph "b"(%i` + d + `: i64[], %c` + d + `: bool[], %u` + d + `: f32[*]) {` + "\n")
		b.WriteString(`%w` + d + `: ? = Concat "w` + d + `" (%u` + d + `, %u` + d + `) {axis = 0}` + "\n")
	}
	for i := depth - 1; i >= 0; i-- {
		d := string(rune('a'+i/26)) + string(rune('a'+i%26))
		b.WriteString(`return %c` + d + `, %w` + d + "\n}}\n")
	}
	b.WriteString("return %oaa\n}")
	g, err := ir.Parse(untyped(b.String()), Registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	if v := g.Outputs[0]; v.Type.Rank() != 1 || !v.Type.Dims[0].Fresh() {
		t.Errorf("inferred %v, want f32[?]", v.Type)
	}
}

// torch splits tensors by a loop whose body takes the iteration as a list of one, and slices from there.
func TestBodiesTakeIterationAndConditionInTheRankThatTheyDeclare(t *testing.T) {
	const text = `graph "g"(%x: f32[3,2]) {
  %three: i64[] = const {3}
  %begins: i64[4] = const {0, 1, 2, 3}
  %axis: i64[1] = const {0}
  %r: ?, %c: ?, %s: ? = Loop "loop" (%three, _) {body = graph "body"(%i: i64ROUND, %go: boolCOND) {
    %one: i64[] = const {1}
    %next: ? = Add "add" (%i, %one)
    %yes: ? = Identity "id" (%go)
    %a: ? = Gather "a" (%begins, %i)
    %b: ? = Gather "b" (%begins, %next)
    %part: ? = SLICE
    return %yes, %i, %go, %part
  }}
  return %r, %c, %s
}`
	for _, c := range []struct {
		round, cond, slice string
		types              []string
	}{
		{"[1]", "[]", `Slice "slice" (%x, %a, %b, %axis)`, []string{"i64[3,1]", "bool[3]", "f32[3,1,2]"}},
		{"[1]", "[1]", `Slice "slice" (%x, %a, %b, %axis)`, []string{"i64[3,1]", "bool[3,1]", "f32[3,1,2]"}},
		{"[]", "[]", `Gather "slice" (%x, %i)`, []string{"i64[3]", "bool[3]", "f32[3,2]"}},
	} {
		g, err := ir.Parse(untyped(strings.NewReplacer("ROUND", c.round, "COND", c.cond, "SLICE", c.slice).Replace(text)), Registry)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // as graphs are that were inferred before
			if err := g.Infer(); err != nil {
				t.Fatal(err)
			}
		}
		x := tensor.FromFloat64s(tensor.F32, []float64{1, 2, 3, 4, 5, 6}, 3, 2)
		outs, err := ref.Run(t.Context(), g, []*tensor.Tensor{x})
		if err != nil {
			t.Fatal(err)
		}
		for i, y := range outs {
			if got := y.String(); got != c.types[i] {
				t.Errorf("round %s, condition %s: output %d is %s, want %s", c.round, c.cond, i, got, c.types[i])
			}
		}
		if !slices.Equal(outs[0].Ints(), []int{0, 1, 2}) || !slices.Equal(outs[2].F32s(), x.F32s()) {
			t.Errorf("round %s, condition %s: rounds %v and parts %v", c.round, c.cond, outs[0].Ints(), outs[2].F32s())
		}
	}
}
