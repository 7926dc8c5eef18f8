package diff

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spc/internal/debug"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

func TestMain(m *testing.M) {
	was, ok := os.LookupEnv(debug.Variable) // which variants set
	code := m.Run()
	if ok {
		os.Setenv(debug.Variable, was)
	}
	os.Exit(code)
}

func TestEveryOperatorHasARuleOrAReason(t *testing.T) {
	missing, extra := Unlisted()
	if len(missing) > 0 {
		t.Errorf("no row in Rules, or one with neither a rule nor a reason, for %v", missing)
	}
	if len(extra) > 0 {
		t.Errorf("rows in Rules for operators that op.Table does not have: %v", extra)
	}
}

func TestEveryRuleMakesNodes(t *testing.T) {
	for _, kind := range kinds {
		made := false
		for attempt := uint64(0); attempt < 60 && !made; attempt++ {
			g := newGen(11, 0, attempt)
			if g.old = Rules[kind].Until != 0; g.old && !Rules[kind].Old {
				t.Errorf("%s: only graphs of operator set %d have it, and no row says that it is the same there", kind, oldOpset)
			}
			g.newInput(g.floats(tensor.F32, 2, 3, 4, 4), g.drawer(tensor.F32))
			made = g.try(func() { Rules[kind].Make(g, kind) }) && g.kinds[kind] > 0
		}
		if !made {
			t.Errorf("%s: its rule made no node in 60 attempts", kind)
		}
	}
}

func TestEveryPatternMakesNodes(t *testing.T) {
	for _, p := range patterns {
		made := 0
		for attempt := uint64(0); attempt < 60; attempt++ {
			g := newGen(12, 0, attempt)
			g.old = false
			g.newInput(g.floats(tensor.F32, 2, 3, 4, 4), g.drawer(tensor.F32))
			if g.try(func() { p.make(g) }) {
				made++
			}
		}
		if made < 10 {
			t.Errorf("%s: made nodes in %d of 60 attempts, want 10", p.name, made)
		}
	}
}

// TestGraphs is the smallest part of what make diff does.
func TestGraphs(t *testing.T) {
	const seed, count = 5, 100
	t.Logf("seed %d", seed)
	kinds, exact, outputs := map[string]int{}, 0, 0
	for i := range uint64(count) {
		c, err := Generate(seed, i)
		if err != nil {
			t.Fatal(err)
		}
		for k, n := range c.Kinds {
			kinds[k] += n
		}
		for _, f := range c.Check(context.Background()) {
			t.Errorf("graph %d: %v", i, f)
		}
		want, err := c.oracle(c.Model, c.Runs[0].Inputs, passes)
		if err != nil {
			t.Errorf("graph %d: the interpreter refuses its first inputs: %v", i, err)
		}
		for _, v := range want {
			if outputs++; v.exact {
				exact++
			}
			if _, ok := v.spread(); !ok {
				t.Errorf("graph %d: noise changes the shape or integers of an output, so that nothing is compared", i)
			}
		}
	}
	if len(kinds) < 100 || outputs < 2*count || exact < outputs/4 || exact > outputs*9/10 {
		t.Errorf("%d operators, %d outputs, %d of them exact", len(kinds), outputs, exact)
	}
}

func TestGraphsRepeat(t *testing.T) {
	for i := range uint64(20) {
		a, errA := Generate(3, i)
		b, errB := Generate(3, i)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if string(a.Model) != string(b.Model) || len(a.Runs) != len(b.Runs) {
			t.Errorf("graph %d is another one when it is drawn again", i)
		}
	}
}

// TestDiffers checks what counts as a difference: of exact values any, of others what is
// larger than what noise does, and of what noise makes jump nothing.
func TestDiffers(t *testing.T) {
	f := func(x ...float32) *tensor.Tensor { return tensor.From(x, len(x)) }
	empty := func(shape ...int) *tensor.Tensor { return tensor.New(tensor.F32, shape...) }
	noisy := func(base *tensor.Tensor, other *tensor.Tensor) *value {
		return &value{base: base, noisy: []*tensor.Tensor{other}}
	}
	for name, c := range map[string]struct {
		want  *value
		got   *tensor.Tensor
		want2 string
	}{
		"equal":                       {plain(f(1, 2)), f(1, 2), ""},
		"one bit":                     {plain(f(1, 2)), f(1, 2.0000002), "value"},
		"zeros of both signs":         {plain(f(0)), f(float32(-1) * 0), ""},
		"a shape":                     {plain(f(1, 2)), f(1), "shape"},
		"a type":                      {plain(f(1)), tensor.From([]float64{1}, 1), "shape"},
		"nothing":                     {plain(f(1)), nil, "missing"},
		"within noise":                {noisy(f(1, 2), f(1.001, 2)), f(1.0015, 2), ""},
		"beyond noise":                {noisy(f(1, 2), f(1.001, 2)), f(1.01, 2), "value"},
		"beside noise elsewhere":      {noisy(f(1, 2), f(1.001, 2)), f(1, 2.1), "value"},
		"integers that noise changes": {noisy(tensor.Ints(1), tensor.Ints(2)), tensor.Ints(3), ""},
		"integers that it does not":   {noisy(tensor.Ints(1), tensor.Ints(1)), tensor.Ints(3), "value"},
		"an open size of no round":    {&value{base: empty(0, 4, 0), exact: true, loops: true, open: []int{0, 2}}, empty(0, 4, 9), ""},
		"an open rank of no round":    {&value{base: empty(0), exact: true, loops: true, rank: true, open: []int{0}}, empty(0, 4), ""},
		"another rank of no round":    {&value{base: empty(0), exact: true, loops: true, open: []int{0}}, empty(0, 4), "shape"},
		"another size of no round":    {&value{base: empty(0, 4, 0), exact: true, loops: true, open: []int{0, 2}}, empty(0, 5, 0), "shape"},
		"a size where nothing loops":  {&value{base: empty(0, 4, 0), exact: true, open: []int{0, 2}}, empty(0, 4, 9), "shape"},
		"an open size of a round":     {&value{base: empty(0, 4, 0), exact: true, loops: true, open: []int{0, 2}}, empty(1, 4, 1), "shape"},
	} {
		if class, detail := c.want.differs(c.got); class != c.want2 {
			t.Errorf("%s: %q (%s), want %q", name, class, detail, c.want2)
		}
	}
}

// TestShrink has a difference that a graph shows wherever it has a Neg.
func TestShrink(t *testing.T) {
	found := 0
	for i := uint64(0); found < 3 && i < 400; i++ {
		c, err := Generate(9, i)
		if err != nil {
			t.Fatal(err)
		}
		if c.Kinds["Neg"] == 0 || c.Kinds["Loop"]+c.Kinds["If"]+c.Kinds["Scan"] > 0 {
			continue
		}
		differs := func(_ context.Context, c *Case) *Finding {
			if _, err := c.oracle(c.Model, c.Runs[0].Inputs, passes); err != nil || !strings.Contains(c.Text(), "= Neg ") {
				return nil
			}
			return &Finding{Class: "value"}
		}
		f := differs(context.Background(), c)
		if f == nil {
			continue
		}
		found++
		small, last := Shrink(context.Background(), c, f, 1<<40, differs)
		if last == nil || small.Nodes() != 1 || len(small.Runs) != 1 || len(small.Runs[0].Inputs) > 1 {
			t.Errorf("graph %d of %d nodes: %d nodes are left, want 1 of 1 input and 1 run:\n%s", i, c.Nodes(), small.Nodes(), small.Text())
		}
		if again := differs(context.Background(), small); !f.Same(again) {
			t.Errorf("graph %d: what is left shows %v", i, again)
		}
	}
	if found < 3 {
		t.Errorf("%d graphs with a Neg", found)
	}
}

func TestMutantsFitTheirFiles(t *testing.T) {
	names := map[string]bool{}
	for _, m := range Mutants {
		b, err := os.ReadFile(filepath.Join("../..", m.File))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), m.Old); n != 1 {
			t.Errorf("%s: %s has its text %d times, want once", m.Name, m.File, n)
		}
		if names[m.Name] || m.Old == m.New {
			t.Errorf("%s: twice, or nothing", m.Name)
		}
		names[m.Name] = true
	}
	if len(Mutants) < 12 {
		t.Errorf("%d mutants", len(Mutants))
	}
}

// Elements that noise may bring together are the same afterwards, with those between them, and others stay.
func TestTied(t *testing.T) {
	nan := float32(math.NaN())
	a, b := tensor.From([]float32{-1.5, 3, nan, -1.5, 0}, 5), tensor.From([]float32{-1.4999999, 3.01, nan, -1.4999998, 1e-9}, 5)
	got := tied([]*tensor.Tensor{a, b})
	for i, want := range []bool{true, false, false, true, true} {
		if same := got[0].F32s()[i] == got[1].F32s()[i]; same != want {
			t.Errorf("%v and %v: %v and %v", a.F32s()[i], b.F32s()[i], got[0].F32s()[i], got[1].F32s()[i])
		}
	}
	if !math.IsNaN(float64(got[0].F32s()[2])) || got[0].F32s()[1] != 3 {
		t.Errorf("others change: %v", got[0].F32s())
	}
	ints := []*tensor.Tensor{tensor.Ints(1, 2), tensor.Ints(1, 3)}
	if out := tied(ints); out[0] != ints[0] || out[1] != ints[1] {
		t.Error("integers change")
	}
}

// Loops within loops are bounded by what they run together, whatever repeats; one loop over as
// many elements as a list may have is not refused.
func TestWhole(t *testing.T) {
	near := float32(1 - 1.0/(1<<24))
	got := whole([]*tensor.Tensor{tensor.From([]float32{near, -near, 2.5, 0, 1e-30, 3.001}, 6), tensor.From([]int64{7}, 1), nil})
	if want := tensor.From([]float32{1, -1, 2.5, 0, 1e-30, 3.001}, 6); !got[0].Equal(want) {
		t.Errorf("got %v, want %v", got[0].Float64s(), want.Float64s())
	}
	if got[1].Int64s()[0] != 7 || got[2] != nil {
		t.Error("what is no float is changed")
	}
}

func TestRoundsOfNestedLoopsAreBounded(t *testing.T) {
	repeats := map[string]string{ // N is a name, and V a value that is carried or the same in each round
		"Loop":        `Loop "N" (%n, _, V) {body = graph "bN"(%iN: i64[], %cN: bool[], %vN: f32[]) { BODY return %cN, %vN }}`,
		"Scan":        `Scan "N" (V, %x) {body = graph "bN"(%vN: f32[], %eN: f32[]) { BODY return %vN }, num_scan_inputs = 1}`,
		"SequenceMap": `SequenceMap "N" (%s, V) {body = graph "bN"(%eN: f32[], %vN: f32[]) { BODY return %vN }}`,
	}
	node := func(kind, name, v, body string) string {
		return "%r" + name + ": f32[*] = " + strings.NewReplacer("N", name, "V", v, "BODY", body).Replace(repeats[kind])
	}
	check := func(node string, rounds int, refused bool) {
		t.Helper()
		items := make([]*tensor.Tensor, rounds)
		for i := range items {
			items[i] = tensor.Scalar[float32](1)
		}
		g, err := ir.Parse(`graph "g"(%n: i64[], %x: f32[k], %s: sequence<f32[]>[?1], %v: f32[]) { `+node+` return %rp }`, op.Registry)
		if err == nil {
			err = g.Infer()
		}
		if err != nil {
			t.Fatalf("%v in %s", err, node)
		}
		in := []*value{plain(tensor.Scalar(int64(rounds))), plain(tensor.New(tensor.F32, rounds)), plain(tensor.NewSequence(tensor.F32, items...)), plain(items[0])}
		_, err = evaluate(context.Background(), g, in, 1, passes)
		if refused != (err != nil && strings.Contains(err.Error(), "subgraphs run more than")) || !refused && err != nil {
			t.Errorf("%d rounds of each of %s: error %v", rounds, node, err)
		}
	}
	for outer := range repeats {
		check(node(outer, "p", "%v", ""), maxElems/2, false)
		for inner := range repeats {
			nested := node(outer, "p", "%v", node(inner, "q", "%vp", ""))
			check(nested, 80, false)
			check(nested, 200, true)
		}
	}
}
