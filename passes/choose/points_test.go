package choose

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

func TestSizesReadBack(t *testing.T) {
	for text, want := range map[string]Sizes{
		"1..512": {From: 1, To: 512},
		"7..7":   {From: 7, To: 7},
		"1,128":  {From: 1, To: 128, Only: []int{1, 128}},
		"64,1,9": {From: 1, To: 64, Only: []int{64, 1, 9}},
		"3":      {From: 3, To: 3, Only: []int{3}},
	} {
		got, err := ParseSizes(text)
		if d := cmp.Diff(want, got); d != "" || err != nil || got.String() != text {
			t.Errorf("%s is read as %v: %v %s", text, got, err, d)
		}
	}
	for text, want := range map[string]string{
		"":           `"", want a size, a range such as 1..512, or sizes such as 1,128`,
		"T":          `"T", want a size`,
		"1..":        `"1..", want a size`,
		"..5":        `"..5", want a size`,
		"1,":         `"1,", want a size`,
		"1..2..3":    `"1..2..3", want a size`,
		"0..5":       "0..5, want sizes from 1 to 1048576",
		"1,4,1":      `"1,4,1", want the size 1 once`,
		"0,5":        "0,5, want sizes from 1 to 1048576",
		"-3..5":      "-3..5, want sizes from 1 to 1048576",
		"1..2000000": "1..2000000, want sizes from 1 to 1048576",
		"512..1":     "512..1, want the smaller size first",
		"1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17": "17 sizes, want at most 16, or a range such as 1..17",
	} {
		if got, err := ParseSizes(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s is read as %v, %v, want %s", text, got, err, want)
		}
	}
	if err := (Sizes{From: 1, To: 9, Only: []int{2, 9}}).Check(); err == nil {
		t.Error("ends that are not those of the sizes pass")
	}
	if err := (Sizes{}).Check(); err == nil {
		t.Error("no sizes pass")
	}
}

func TestSomeSizesStandForARange(t *testing.T) {
	for _, c := range []struct {
		sizes Sizes
		want  []int
	}{
		{otherSizes, []int{1, 4, 16, 64, 256, 1024}},
		{batchSizes, []int{1, 2, 3, 5, 9, 16}},
		{Sizes{From: 5, To: 5}, []int{5}},
		{Sizes{From: 1, To: 3}, []int{1, 2, 3}},
		{Sizes{From: 100, To: 110}, []int{100, 102, 104, 106, 108, 110}},
		{Sizes{From: 1, To: 128, Only: []int{128, 1, 128}}, []int{1, 128}},
	} {
		if d := cmp.Diff(c.want, c.sizes.points()); d != "" {
			t.Errorf("%v: %s", c.sizes, d)
		}
	}
}

// open is a graph with a product for each input's type, of which the last axis has 4 features.
func open(t *testing.T, types ...ir.Type) *ir.Graph {
	t.Helper()
	g := ir.NewGraph("test")
	for i, typ := range types {
		mm, err := op.New("MatMul")
		if err != nil {
			t.Fatal(err)
		}
		n := g.NewNode(fmt.Sprintf("mm%d", i), mm, []*ir.Value{g.NewInput(fmt.Sprintf("x%d", i), typ), g.NewConst(fmt.Sprintf("w%d", i), weight(4, 3, 0.5))}, fmt.Sprintf("y%d", i))
		g.Outputs = append(g.Outputs, n.Outputs[0])
	}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	return g
}

func of(dims ...any) ir.Type {
	var list []ir.Dim
	for _, d := range dims {
		switch d := d.(type) {
		case int:
			list = append(list, ir.Size(d))
		case string:
			list = append(list, ir.Sym(d))
		}
	}
	return ir.Of(tensor.F32, append(list, ir.Size(4))...)
}

// Symbols are batches by their names, those without a name by their place; what the user says of them counts more.
func TestWhatSymbolsMayBe(t *testing.T) {
	for _, c := range []struct {
		types []ir.Type
		given map[string]Sizes
		want  string
	}{
		{[]ir.Type{of(5)}, nil, ""},
		{[]ir.Type{of("batch", "T")}, nil, "T 1..1024, batch batch 1..16"},
		{[]ir.Type{of("T", "N")}, nil, "N batch 1..16, T 1..1024"},
		{[]ir.Type{of("Batch_size"), of("n"), of("number")}, nil, "Batch_size batch 1..16, n batch 1..16, number 1..1024"},
		{[]ir.Type{of("?1", "?2")}, nil, " batch 1..16,  1..1024"},
		{[]ir.Type{of("?1", "batch")}, nil, "batch batch 1..16,  1..1024"},
		{[]ir.Type{ir.Of(tensor.F32, ir.Sym("?1"))}, nil, ""}, // the one axis is that of the features
		{[]ir.Type{of("batch", "T")}, map[string]Sizes{"T": {From: 2, To: 9}, "batch": {From: 64, To: 64}}, "T 2..9, batch batch 64..64"},
		{[]ir.Type{of("batch", "T")}, map[string]Sizes{"T": {From: 1, To: 128, Only: []int{1, 128}}}, "T 1,128, batch batch 1..16"},
	} {
		var got []string
		_, opens := pointsOf(open(t, c.types...), c.given)
		for _, o := range opens {
			kind := o.Name
			if o.Batch {
				kind += " batch"
			}
			got = append(got, kind+" "+o.Sizes.String())
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%v: %q, want %q", c.types, s, c.want)
		}
	}
}

// Symbols grow together, and each alone; the same columns count once.
func TestPointsOfSeveralSymbols(t *testing.T) {
	for _, c := range []struct {
		given map[string]Sizes
		types ir.Type
		want  []int
	}{
		{nil, of(5), []int{5}},
		{nil, of("T"), []int{1, 4, 16, 64, 256, 1024}},
		{nil, of("batch", "T"), []int{1, 2 * 4, 16, 3 * 16, 5 * 64, 1024, 9 * 256, 16 * 1024}},
		{map[string]Sizes{"T": {From: 1, To: 128, Only: []int{1, 128}}}, of("batch", "T"), []int{1, 2, 3, 16, 128, 5 * 128, 9 * 128, 16 * 128}},
		{map[string]Sizes{"T": {From: 7, To: 7}, "batch": {From: 1, To: 1}}, of("batch", "T"), []int{7}},
		{map[string]Sizes{"T": {From: 1, To: 1 << 20}, "U": {From: 1, To: 1 << 20}}, of("T", "U"), []int{1, 1 << 8, 1 << 16, 1 << 20, 1 << 24}},
	} {
		l := layer(t, open(t, c.types), Options{Sizes: c.given})
		var got []int
		for _, p := range l.Points {
			got = append(got, p.N)
		}
		if got == nil {
			got = []int{l.N}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%v with %v: %s", c.types, c.given, d)
		}
	}
}

// fast has a format that takes so many nanoseconds for a column up to some, and so many for each of more.
func fast(name string, upTo int, few, many float64) fake {
	return fake{name: name, costs: func(w *Matrix, n int) []Cost {
		each := few
		if n > upTo {
			each = many
		}
		return []Cost{{Kernel: name, Work: float64(n) * each, Bytes: 10, Efficiency: 1}}
	}}
}

// pairs packs nothing of its own.
var pairs = fake{name: PairFormat, costs: func(*Matrix, int) []Cost { return nil }}

func layer(t *testing.T, g *ir.Graph, o Options, formats ...Format) Layer {
	t.Helper()
	layers, _, err := Run(g, append([]Format{fast(Dense, 1, 100, 100)}, formats...), model{}, o)
	if err != nil {
		t.Fatal(err)
	}
	return layers[0]
}

// Of one form that is chosen which takes the least time over the points, of those that are nowhere slower than dense.
func TestTheLeastTimeOverThePointsWins(t *testing.T) {
	for name, c := range map[string]struct {
		formats []Format
		want    string
		reason  string
	}{
		"faster everywhere":     {[]Format{fast("a", 10, 90, 20), fast("b", 10, 50, 25)}, "b", "predicted 3.2x faster than dense: 2.0x for 1 column to 4.0x for 1024"},
		"slower at few columns": {[]Format{fast("a", 1, 120, 10), fast("b", 1, 100, 70)}, "b", "predicted 1.3x faster than dense: 1.0x for 1 column to 1.4x for 1024"},
		"within the margin":     {[]Format{fast("a", 1, 104, 10)}, "a", "predicted 6.8x faster than dense: 1.0x for 1 column to 10.0x for 1024"},
		"nothing is safe":       {[]Format{fast("a", 300, 10, 120)}, Dense, "a would take 0.15x the time of dense at 58% zeros over 1 to 1024 columns, but 1.20x that of dense for 1024 columns"},
		"too little":            {[]Format{fast("a", 300, 97, 97)}, Dense, "a would take 0.97x the time of dense at 58% zeros over 1 to 1024 columns, a gain too small to rely on"},
		"slower":                {[]Format{fast("a", 300, 97, 150)}, Dense, "a would take 1.04x the time of dense at 58% zeros over 1 to 1024 columns"},
		"not offered at each point": {[]Format{fake{name: "a", costs: func(w *Matrix, n int) []Cost {
			if n > 64 {
				return nil
			}
			return []Cost{{Kernel: "a", Work: 1, Efficiency: 1}}
		}}}, Dense, "only 58.3% zeros: no sparse format saves storage"},
	} {
		l := layer(t, open(t, of("T")), Options{}, c.formats...)
		if l.Format != c.want || l.Reason != c.reason {
			t.Errorf("%s: %s, %q, want %s, %q", name, l.Format, l.Reason, c.want, c.reason)
		}
		if l.N != 1024 || len(l.Points) != 6 || l.Points[2].N != 16 || l.Points[2].Sizes["T"] != 16 {
			t.Errorf("%s: N = %d, points %v", name, l.N, l.Points)
		}
		for _, a := range l.Candidates {
			if len(a.PointsUs) != 6 || a.PredictedUs != geometric(a.PointsUs) || a.Why == "" || a.Chosen != (a.Format == l.Format) {
				t.Errorf("%s: %+v", name, a)
			}
		}
	}
}

func TestTwoFormsWhereThatPays(t *testing.T) {
	few, many := fast("few", 37, 40, 300), fast("many", 37, 200, 50)
	// ends is fast for few columns and for many.
	ends := fake{name: "ends", costs: func(w *Matrix, n int) []Cost {
		each := 50.
		if n > 6 && n < 30 {
			each = 180
		}
		return []Cost{{Kernel: "ends", Work: float64(n) * each, Bytes: 10, Efficiency: 1}}
	}}
	for name, c := range map[string]struct {
		formats []Format
		o       Options
		want    string
	}{
		"few and many":               {[]Format{few, many, pairs}, Options{}, "pair few<38,many"},
		"dense and many":             {[]Format{many, pairs}, Options{}, "pair dense<38,many"},
		"few and dense":              {[]Format{few, pairs}, Options{}, "pair few<38,dense"},
		"turns with dense":           {[]Format{ends, pairs}, Options{}, "pair ends<7,dense<30,ends"},
		"turns":                      {[]Format{ends, fast("a", 1, 54, 54), pairs}, Options{}, "a "},
		"turns that pay":             {[]Format{ends, fast("a", 1, 80, 80), pairs}, Options{}, "pair ends<7,a<30,ends"},
		"nothing to take turns with": {[]Format{fast("a", 1, 50, 50), fast("b", 1, 60, 60), pairs}, Options{}, "a "},
		"forbidden":                  {[]Format{few, many, pairs}, Options{OneFormat: true}, "dense "},
		"a device of one form":       {[]Format{few, many}, Options{}, "dense "},
		"a gain of 9%":               {[]Format{fast("few", 63, 50, 60), fast("many", 63, 60, 50), pairs}, Options{}, "few "},
		"a gain of 11%":              {[]Format{fast("few", 63, 50, 64), fast("many", 63, 64, 50), pairs}, Options{}, "pair few<64,many"},
		// Neither is faster than dense by the margin over its own points, which leaves dense there.
		"a form that is near dense": {[]Format{fast("few", 37, 97, 300), many, pairs}, Options{}, "pair dense<38,many"},
		// One point at which a form is slower than dense leaves it out.
		"a form that is slower": {[]Format{fast("a", 1, 110, 20), pairs}, Options{}, "pair dense<2,a"},
		"asked for":             {[]Format{fast("few", 63, 50, 51), fast("many", 63, 51, 50), pairs}, Options{Format: PairFormat}, "pair few<64,many"},
		"one size":              {[]Format{few, many, pairs}, Options{Sizes: map[string]Sizes{"T": {From: 9, To: 9}}}, "few "},
		"asked for one size":    {[]Format{few, many, pairs}, Options{Format: PairFormat, Sizes: map[string]Sizes{"T": {From: 9, To: 9}}}, "dense "},
		"few sizes":             {[]Format{few, many, pairs}, Options{Sizes: map[string]Sizes{"T": {From: 1, To: 30}}}, "few "},
		"named sizes":           {[]Format{few, many, pairs}, Options{Sizes: map[string]Sizes{"T": {From: 1, To: 128, Only: []int{1, 128}}}}, "pair few<38,many"},
	} {
		l := layer(t, open(t, of("T")), c.o, c.formats...)
		if got := l.Format + " " + l.Config; got != c.want {
			t.Errorf("%s: %s, %q, want %s", name, got, l.Reason, c.want)
		}
		if two := l.Format == PairFormat; two != (l.SecondBytes == 10) {
			t.Errorf("%s: %d bytes more", name, l.SecondBytes)
		}
		for _, a := range l.Candidates {
			if a.Chosen != (a.Format == l.Format) || a.Why == "" {
				t.Errorf("%s: %+v", name, a)
			}
		}
	}
	l := layer(t, open(t, of("T")), Options{}, few, many, pairs)
	if want := "predicted 2.2x faster than dense: 2.5x for 1 column to 2.0x for 1024, 2.24x than dense alone"; l.Reason != want {
		t.Errorf("%q, want %q", l.Reason, want)
	}
	if d := cmp.Diff([]float64{0.04, 0.16, 0.64, 3.2, 12.8, 51.2}, l.Candidates[0].PointsUs); d != "" {
		t.Error(d)
	}
}

// A weight that two nodes read has two forms where that pays for both together.
func TestReadersOfAWeightAgreeOnTwoForms(t *testing.T) {
	g := open(t, of("T"), of("T", "batch"))
	g.Nodes[1].SetInput(1, g.Nodes[0].Inputs[1])
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	formats := []Format{fast(Dense, 1, 100, 100), fast("few", 37, 40, 300), fast("many", 37, 200, 50), pairs}
	layers, _, err := Run(g, formats, model{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range layers {
		at := slices.IndexFunc(l.Candidates, is(PairFormat))
		if l.Format != PairFormat || l.Config != "few<38,many" || at < 0 || !l.Candidates[at].Chosen {
			t.Errorf("node %d: %s %s, %q", i, l.Format, l.Config, l.Reason)
		}
	}
	if a, b := layers[0].Points, layers[1].Points; len(a) != len(b) || a[1].N == b[1].N {
		t.Errorf("points %v and %v", a, b)
	}
}

// With room for them a weight that several nodes read has the two forms that it has where nothing limits it, and as it was when that is taken back.
func TestRoomForTwoForms(t *testing.T) {
	g := open(t, of("T"), of("T", "batch"))
	g.Nodes[1].SetInput(1, g.Nodes[0].Inputs[1])
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	formats := []Format{fast(Dense, 1, 100, 100), fast("few", 37, 40, 300), fast("many", 37, 200, 50), pairs}
	s := new(Sized)
	layers, _, err := Run(g, formats, model{}, Options{Sized: s})
	if err != nil {
		t.Fatal(err)
	}
	alone := layers[0].Format
	for _, room := range []int64{0, fileOverhead, 1 << 20} {
		if err := s.Grow(room); err != nil {
			t.Fatal(err)
		}
		for i, l := range layers {
			want, config := alone, ""
			if room == 1<<20 {
				want, config = PairFormat, "few<38,many"
			}
			if l.Format != want || l.Config != config {
				t.Errorf("room for %d: node %d: %s %s, %q, want %s %s", room, i, l.Format, l.Config, l.Reason, want, config)
			}
		}
	}
	if !s.Back() || s.Back() || layers[0].Format != alone || layers[1].Format != alone {
		t.Errorf("taken back: %s and %s, want %s", layers[0].Format, layers[1].Format, alone)
	}
}

// Whatever the times are, what is chosen is at no point slower than dense by more than the margin, and a pair takes less time
// than any form alone that stands beside it.
func TestNothingChosenIsSlowerThanDense(t *testing.T) {
	const seed = 11
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	two := 0
	for range 300 {
		formats := []Format{pairs}
		for i := range 1 + rng.IntN(4) {
			times := make([]float64, 6)
			for j := range times {
				times[j] = 20 + 160*rng.Float64()
			}
			formats = append(formats, fake{name: string(rune('a' + i)), costs: func(w *Matrix, n int) []Cost {
				at := 0
				for 4<<(2*at) <= n {
					at++
				}
				return []Cost{{Kernel: "k", Work: float64(n) * times[at], Efficiency: 1}}
			}})
		}
		l := layer(t, open(t, of("T")), Options{}, formats...)
		dense := l.dense()
		chosen := l.Candidates[slices.IndexFunc(l.Candidates, func(c Candidate) bool { return c.Chosen })]
		if l.Format == PairFormat {
			two++
		}
		for i, us := range chosen.PointsUs {
			if us > 1.0501*dense.PointsUs[i] {
				t.Errorf("%s %s takes %v for %d columns, dense %v", l.Format, l.Config, us, l.Points[i].N, dense.PointsUs[i])
			}
		}
		for _, a := range l.Candidates {
			if a.safe(dense) && a.PredictedUs*1.0501 < chosen.PredictedUs {
				t.Errorf("%s takes %v on average, %s %s %v", a.Format, a.PredictedUs, l.Format, l.Config, chosen.PredictedUs)
			}
		}
	}
	if two < 30 {
		t.Errorf("%d pairs", two)
	}
}

// columnsOf are the columns that times are predicted for, by layer, and for what open dimensions.
func columnsOf(t *testing.T, text string, given map[string]Sizes) string {
	t.Helper()
	g, err := ir.Parse(text, op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	layers, opens, err := Run(g, []Format{fast(Dense, 1, 100, 100)}, model{}, Options{Sizes: given})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, l := range layers {
		var list []int
		for _, p := range l.Points {
			list = append(list, p.N)
		}
		got += fmt.Sprintln(l.Name, list)
	}
	for _, o := range opens {
		got += fmt.Sprintf("%q %v %v\n", o.Name, o.Batch, o.Sizes)
	}
	return got
}

// What a dimension is behind a stride, or in data, inference of shapes does not name: columns follow all the same.
func TestColumnsFollowByInference(t *testing.T) {
	images := `graph "g"(%x: f32[1,1,H,W]) {
  %w: f32[2,1,3,3] = const {` + strings.TrimSuffix(strings.Repeat("1.0, ", 18), ", ") + `}
  %v: f32[1,2,3,3] = const {` + strings.TrimSuffix(strings.Repeat("1.0, ", 18), ", ") + `}
  %y: f32[*] = Conv "a" (%x, %w) {strides = [2, 2], pads = [1, 1, 1, 1]}
  %z: f32[*] = Conv "b" (%y, %v) {strides = [2, 2], pads = [1, 1, 1, 1]}
  return %z
}`
	sum := `graph "g"(%x: f32[T,2], %y: f32[S,2]) {
  %w: f32[2,1] = const {1.0, 2.0}
  %s: f32[*] = Add "s" (%x, %y)
  %z: f32[*] = MatMul "fc" (%s, %w)
  return %z
}`
	found := `graph "g"(%x: f32[9]) {
  %w: f32[1,2] = const {1.0, 2.0}
  %at: i64[*] = NonZero "found" (%x)
  %t: i64[*] = Transpose "t" (%at)
  %f: f32[*] = Cast "f" (%t) {to = 1}
  %z: f32[*] = MatMul "fc" (%f, %w)
  return %z
}`
	for _, c := range []struct {
		text  string
		given map[string]Sizes
		want  string
	}{
		{images, nil, "a [1 4 64 512 512 1024 16384 262144]\nb [1 16 256 256 256 4096 65536]\n\"H\" false 1..1024\n\"W\" false 1..1024\n"},
		{images, map[string]Sizes{"H": {From: 8, To: 8}, "W": {From: 8, To: 16}}, "a [16 20 24 28 32]\nb [4 6 8]\n\"W\" false 8..16\n"},
		{sum, map[string]Sizes{"T": {From: 2, To: 9}, "S": {From: 1, To: 1}}, "fc [2 3 4 5 7 9]\n\"T\" false 2..9\n"},
		// Sizes that do not go together leave what is inferred without them.
		{sum, map[string]Sizes{"T": {From: 2, To: 2}, "S": {From: 3, To: 3}}, "fc [1 4 16 64 256 1024]\n\"\" false 1..1024\n"},
		{found, nil, "fc [1 4 16 64 256 1024]\n\"\" false 1..1024\n"},
	} {
		if got := columnsOf(t, c.text, c.given); got != c.want {
			t.Errorf("%v: %s, want %s", c.given, got, c.want)
		}
	}
}

func TestUsOfColumns(t *testing.T) {
	one := &Layer{N: 8}
	for n, want := range map[int]bool{8: true, 7: false} {
		if us, ok := one.Us(&Candidate{PredictedUs: 5}, n); us != 5 || ok != want {
			t.Errorf("%d columns: %v, %v", n, us, ok)
		}
	}
	some := &Layer{Points: []Point{{N: 100}, {N: 1}, {N: 10000}}}
	c := &Candidate{PredictedUs: 40, PointsUs: []float64{20, 4, 2000}}
	for n, want := range map[int]float64{1: 4, 100: 20, 10: math.Sqrt(80), 1000: 200, 10000: 2000, 0: 0, 10001: 0} {
		if us, ok := some.Us(c, n); math.Abs(us-want) > 1e-9 || ok != (want > 0) {
			t.Errorf("%d columns: %v, %v, want %v", n, us, ok, want)
		}
	}
}

// Where forms were measured at the points, the two that are the fastest there are kept, whatever was predicted, and what was not
// measured is none of them.
// Where nothing is known of so many columns the nearest time is scaled.
func TestScaledColumns(t *testing.T) {
	open := &Layer{N: 16, Points: []Point{{N: 4}, {N: 16}}}
	fixed := &Layer{N: 10}
	for _, x := range []struct {
		l    *Layer
		c    Candidate
		n    int
		want float64
	}{
		{open, Candidate{PointsUs: []float64{2, 8}}, 4, 2}, {open, Candidate{PointsUs: []float64{2, 8}}, 8, 4}, {open, Candidate{PointsUs: []float64{2, 8}}, 32, 16},
		{open, Candidate{PointsUs: []float64{2, 8}}, 1, 0.5}, {open, Candidate{PointsUs: []float64{2, 8}}, 0, 0},
		{fixed, Candidate{PredictedUs: 5}, 10, 5}, {fixed, Candidate{PredictedUs: 5}, 20, 10}, {fixed, Candidate{PredictedUs: 5, MeasuredUs: 6}, 5, 3},
	} {
		if got := x.l.Scaled(&x.c, x.n); math.Abs(got-x.want) > 1e-9 {
			t.Errorf("%d columns of %+v: %v, want %v", x.n, x.c, got, x.want)
		}
	}
}

func TestTwoFormsByMeasurement(t *testing.T) {
	times := func(_ int, f Form, n int, predicted float64) Timing {
		switch {
		case f.Format == Dense:
			return Timing{Us: float64(n)}
		case f.Format == "few" && n < 100, f.Format == "many" && n >= 100:
			return Timing{Us: float64(n) / 3, Noise: 0.03, Scaled: n == 4 || n == 1024}
		case f.Format == "few" || f.Format == "many":
			return Timing{Us: 2 * float64(n), Noise: 0.01, Scaled: n == 1}
		}
		return Timing{}
	}
	formats := []Format{fast("few", 1, 100, 100), fast("many", 1, 100, 100), fast("other", 1, 1, 1), pairs}
	l := layer(t, open(t, of("T")), Options{Times: times}, formats...)
	if l.Format != PairFormat || l.Config != "few<100,many" {
		t.Errorf("%s %s: %s", l.Format, l.Config, l.Reason)
	}
	if want := "measured 3.0x faster than dense: 3.0x for 1 column to 3.0x for 256"; !strings.HasPrefix(l.Reason, want) {
		t.Errorf("%q, want %q", l.Reason, want)
	}
	for _, c := range l.Candidates {
		if (c.MeasuredUs > 0) != (c.Format != "other") || c.Format == PairFormat && c.Noise != 0.03 {
			t.Errorf("%s: measured %v us, noise %v", c.Format, c.MeasuredUs, c.Noise)
		}
		if want := map[string][]int{"few": {1}, "many": {0, 5}, PairFormat: {1, 5}}[c.Format]; !slices.Equal(c.ScaledPoints, want) {
			t.Errorf("%s is scaled at points %v, want %v", c.Format, c.ScaledPoints, want)
		}
	}
	if l := layer(t, open(t, of("T")), Options{Times: times, OneFormat: true}, formats...); l.Format != Dense || !strings.Contains(l.Reason, "would take") {
		t.Errorf("one format: %s, %s", l.Format, l.Reason)
	}
}

// Places are sizes of the inputs, with the columns that products have for them.
func TestPlaces(t *testing.T) {
	g := open(t, of("T"), of("T", "batch"))
	places := Places(g, map[string]Sizes{"T": {From: 2, To: 64, Only: []int{2, 64}}, "batch": {From: 3, To: 3}})
	var got []string
	for _, p := range places {
		got = append(got, fmt.Sprint(p.Shapes, p.Columns))
	}
	shape := func(g *ir.Graph, i int, sizes map[string]int) []int {
		var out []int
		for _, d := range g.Inputs[i].Type.Dims {
			n, ok := sizes[d.Symbol()]
			if !ok {
				n = d.Size()
			}
			out = append(out, n)
		}
		return out
	}
	var want []string
	for _, n := range []int{2, 64} {
		sizes := map[string]int{"T": n, "batch": 3}
		want = append(want, fmt.Sprint([][]int{shape(g, 0, sizes), shape(g, 1, sizes)}, []int{n, 3 * n}))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if places := Places(graph(t, weight(8, 8, 0.5)), nil); len(places) != 1 || fmt.Sprint(places[0].Shapes, places[0].Columns) != "[[1 5 8]] [5]" {
		t.Errorf("known sizes: %v", places)
	}
}
