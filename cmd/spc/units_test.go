package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spc"
	"spc/backend/measure"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/fit"
	"spc/passes/prune"
)

func TestFileNamesKeepOutputsApart(t *testing.T) {
	got := fileNames([]string{"a/b", "a:b", "a_b", "Ärger", "x.1-y", "a_b_2", ""})
	want := []string{"a_b_3", "a_b_4", "a_b", "__rger", "x.1-y", "a_b_2", "_"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWeightsOfOneNodeHaveRowNamesOfTheirOwn(t *testing.T) {
	got := rowNames([]spc.Layer{{Name: "conv", Weight: "w"}, {Name: "lstm", Weight: "W"}, {Name: "lstm", Weight: "R"}})
	if want := []string{"conv", "lstm W", "lstm R"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTheListOfBoundedLayersIsShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for layers, want := range map[int]string{
		1:  "kept one nonzero a row: a (1 row)\n",
		6:  "kept one nonzero a row: a (1 row), b (2 rows), c (3 rows), d (4 rows), e (5 rows), f (6 rows)\n",
		20: "kept one nonzero a row: a (1 row), b (2 rows), c (3 rows), d (4 rows), e (5 rows), and 15 more, which --verbose lists\n",
	} {
		r := spc.Report{Prune: &fit.Result{GraphResult: &prune.GraphResult{}}}
		for i := range layers {
			r.Prune.Layers = append(r.Prune.Layers, prune.GraphLayer{Node: string(rune('a' + i)), Bounded: i + 1})
		}
		var b strings.Builder
		if err := printCompiled(&b, &r, path, path, false); err != nil || !strings.HasSuffix(b.String(), want) {
			t.Errorf("%d layers: %q, %v, want %q at the end", layers, b.String(), err, want)
		}
	}
}

func TestMasksThatWereDroppedAreToldOf(t *testing.T) {
	p := &fit.Result{GraphResult: &prune.GraphResult{Allocate: "layer"}, Method: "gates", Samples: 64, Runs: 32}
	for dropped, want := range map[string]string{"": "by gates on 64", "it is so": "by obs, as gates would lose more, on 64"} {
		p.Dropped = dropped
		if have := fitted(&spc.Report{Prune: p}); !strings.HasPrefix(have, want) {
			t.Errorf("%q, want %q", have, want)
		}
	}
}

// Lists of names are short, whatever the model calls its nodes, unless all are asked for.
func TestNamesAreListedWhereTheyAreAskedFor(t *testing.T) {
	var names []string
	for i := range 400 {
		names = append(names, fmt.Sprintf("/model/encoder/layers.%d/%s", i, strings.Repeat("attention/", 5)))
	}
	r := spc.Report{Transposes: names, Interpreted: []spc.Interpreted{{Op: "Det", Nodes: names, Share: 0.1}}, Prune: &fit.Result{GraphResult: &prune.GraphResult{}}}
	for _, n := range names {
		r.Prune.Layers = append(r.Prune.Layers, prune.GraphLayer{Node: n, Bounded: 1, Unseen: "it is in a loop"})
	}
	var few, all strings.Builder
	for w, detail := range map[*strings.Builder]detail{&few: false, &all: true} {
		printLayers(w, &r, detail)
		if err := printCompiled(w, &r, "units_test.go", "units_test.go", detail); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range strings.Split(few.String(), "\n") {
		if len(line) > 400 {
			t.Errorf("a line of %d bytes: %.100s", len(line), line)
		}
	}
	if !strings.Contains(few.String(), "left over 400 Transposes that nothing could absorb\n") || !strings.Contains(few.String(), "and 398 more, which --verbose lists") {
		t.Errorf("printed\n%s", few.String())
	}
	for _, n := range names {
		// Transposes and nodes that were pruned unseen twice each, interpreted ones and bounded ones once.
		if k := strings.Count(all.String(), "\n    "+n); k != 6 {
			t.Errorf("%d lines with %s, want 6", k, n)
			break
		}
	}
	for _, w := range r.Warnings() {
		if len(w) > 400 {
			t.Errorf("a warning of %d bytes: %.100s", len(w), w)
		}
	}
}

func TestSplitInputFindsTheName(t *testing.T) {
	dir := t.TempDir()
	odd := filepath.Join(dir, "k=v.npy")
	if err := os.WriteFile(odd, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	one := []spc.Port{{Name: "x"}}
	two := []spc.Port{{Name: "a"}, {Name: "a=b"}}
	for _, c := range []struct {
		arg        string
		ports      []spc.Port
		name, file string
		want       string // of the error
	}{
		{"x=f.npy", one, "x", "f.npy", ""},
		{"f.npy", one, "x", "f.npy", ""},
		{"random:1:0:2", one, "x", "random:1:0:2", ""},
		{odd, one, "x", odd, ""},
		{"a=f=g.npy", two, "a", "f=g.npy", ""},
		{"a=b=g.npy", two, "a=b", "g.npy", ""},
		{"y=f.npy", one, "", "", `no input is named "y"`},
		{"f.npy", two, "", "", "want NAME=FILE"},
		{"c=f.npy", two, "", "", `no input is named "c"`},
	} {
		name, file, err := splitInput(c.arg, c.ports)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want %q", c.arg, err, c.want)
			}
		} else if err != nil || name != c.name || file != c.file {
			t.Errorf("%s: input %q from %q (%v), want %q from %q", c.arg, name, file, err, c.name, c.file)
		}
	}
}

func port(name string, dims ...ir.Dim) spc.Port {
	return spc.Port{Name: name, DType: tensor.F32, Dims: dims, Ranked: true}
}

func TestOpenDimensionsTakeSizesOrAreNamed(t *testing.T) {
	batch, seq, fresh := ir.Sym("batch"), ir.Sym("sequence"), ir.Sym("?1")
	for _, c := range []struct {
		name  string
		ports []spc.Port
		dims  map[string]int
		shape map[string][]int
		want  [][]int
		err   string
	}{
		{"the batch is 1", []spc.Port{port("x", batch, ir.Size(3))}, nil, nil, [][]int{{1, 3}}, ""},
		{"wherever it is", []spc.Port{port("s", ir.Size(2), batch), port("x", batch, ir.Size(4))}, nil, nil, [][]int{{2, 1}, {1, 4}}, ""},
		{"an unnamed leading one too", []spc.Port{port("x", fresh, ir.Size(3))}, nil, nil, [][]int{{1, 3}}, ""},
		{"a symbol has one size", []spc.Port{port("x", seq), port("y", ir.Size(2), seq)}, map[string]int{"sequence": 7}, nil, [][]int{{7}, {2, 7}}, ""},
		{"a shape binds symbols", []spc.Port{port("x", batch, seq), port("y", seq)}, nil, map[string][]int{"x": {2, 5}}, [][]int{{2, 5}, {5}}, ""},
		{"another symbol is an error", []spc.Port{port("x", batch, seq)}, nil, nil, nil, "dimension sequence of input x f32[batch,sequence] is open, give --dim sequence=N"},
		{"all are named", []spc.Port{port("x", batch, seq, ir.Sym("H"), ir.Sym("W")), port("y", seq, ir.Sym("H")), port("z", fresh, ir.Sym("V"), ir.Sym("?9"))}, nil, nil, nil,
			"dimensions sequence, H, W of input x f32[batch,sequence,H,W] and V, 2 of input z f32[?1,V,?9] are open, give --dim sequence=N --dim H=N --dim W=N --dim V=N --shape z=DIMS"},
		{"even if it leads", []spc.Port{port("x", seq, batch)}, nil, nil, nil, "dimension sequence"},
		{"so is an unnamed one", []spc.Port{port("x", batch, fresh)}, nil, nil, nil, "dimension 1 of input x f32[batch,?1] is open, give --shape x=DIMS"},
		{"and an unknown rank", []spc.Port{{Name: "x", DType: tensor.F32}}, nil, nil, nil, "no known shape"},
		{"which --shape settles", []spc.Port{{Name: "x", DType: tensor.F32}}, nil, map[string][]int{"x": {4}}, [][]int{{4}}, ""},
		{"shapes must fit sizes", []spc.Port{port("x", ir.Size(3))}, nil, map[string][]int{"x": {4}}, nil, "input x is f32[4], want f32[3]"},
		{"and ranks", []spc.Port{port("x", ir.Size(3))}, nil, map[string][]int{"x": {3, 1}}, nil, "input x is f32[3,1], want f32[3]"},
		{"and each other", []spc.Port{port("x", seq), port("y", seq)}, nil, map[string][]int{"x": {3}, "y": {4}}, nil, "sequence ="},
		{"and name inputs", []spc.Port{port("x", seq)}, nil, map[string][]int{"z": {3}}, nil, `no input is named "z"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request{ports: c.ports, sizes: sizes{shapes: c.shape, dims: c.dims}}
			b := newBinder(r.ports, c.dims)
			var got [][]int
			err := func() error {
				for name, s := range c.shape {
					if err := b.shape(name, s); err != nil {
						return err
					}
				}
				b.batch()
				for _, p := range c.ports {
					s, err := b.sizes(p)
					if err != nil {
						return err
					}
					got = append(got, s)
				}
				return nil
			}()
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil || !slices.EqualFunc(got, c.want, slices.Equal[[]int]) {
				t.Errorf("%v (%v), want %v", got, err, c.want)
			}
		})
	}
}

func TestPercentilesInterpolate(t *testing.T) {
	l := latencies([]float64{40, 10, 30, 20, 50})
	if l.Mean != 30 || l.P50 != 30 || math.Abs(l.P90-46) > 1e-9 || math.Abs(l.P99-49.6) > 1e-9 || l.Min != 10 {
		t.Errorf("%+v", l)
	}
	if l := latencies([]float64{7}); l.Mean != 7 || l.P50 != 7 || l.P99 != 7 || l.Min != 7 {
		t.Errorf("one run: %+v", l)
	}
}

func compared(t *testing.T, pairs ...*tensor.Tensor) *comparison {
	t.Helper()
	c := &comparison{Name: "y"}
	for i := 0; i < len(pairs); i += 2 {
		if err := c.add(pairs[i], pairs[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestComparisonOfFloats(t *testing.T) {
	c := compared(t, tensor.From([]float32{3, 4, 0, 1}, 2, 2), tensor.From([]float32{3, 0, 4, 1}, 2, 2))
	near := func(what string, got number, want float64) {
		t.Helper()
		if math.Abs(float64(got)-want) > 1e-9*math.Max(1, want) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	near("largest difference", c.MaxAbs, 4)
	near("largest relative difference", c.MaxRel, 4e12)
	near("relative l2 error", c.RelL2, math.Sqrt(32.0/26))
	near("cosine", c.Cosine, 10.0/26)
	if *c.Top1 != 0 {
		t.Errorf("top-1 agreement %v, want 0", *c.Top1)
	}
	if c.pass(1) || !c.pass(2) || !c.pass(-1) {
		t.Error("the tolerance does not decide")
	}
}

func TestComparisonKeepsTheWorstRun(t *testing.T) {
	one := func(v float32) *tensor.Tensor { return tensor.From([]float32{v, 2}, 1, 2) }
	c := compared(t, one(1), one(1), one(3), one(1), one(1), one(1))
	if c.MaxAbs != 2 || math.Abs(float64(c.RelL2)-2/math.Sqrt(5)) > 1e-9 || math.Abs(*c.Top1-2.0/3) > 1e-9 || c.Cosine >= 1 {
		t.Errorf("%+v, top-1 %v", c, *c.Top1)
	}
}

func TestComparisonOfEqualTensors(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, x := range []*tensor.Tensor{
		tensor.From([]float32{1, nan, inf, -inf, 0}, 5),
		tensor.New(tensor.F32, 4),
		tensor.New(tensor.F32, 0),
		tensor.Scalar(float32(2)),
		tensor.From([]int64{1, -9}, 2),
		tensor.From([]bool{true}, 1),
		tensor.From([]complex64{1 + 2i}, 1),
		tensor.FromStrings([]string{"a", ""}, 2),
		tensor.FromFloat64s(tensor.BF16, []float64{1, 2}, 2),
	} {
		c := compared(t, x, x.Clone())
		if c.MaxAbs != 0 || c.RelL2 != 0 || math.Abs(float64(c.Cosine)-1) > 1e-9 || !c.pass(0) || c.Top1 != nil && *c.Top1 != 1 {
			t.Errorf("%v: %+v", x, c)
		}
	}
}

func TestWhatMustBeEqualFailsWithoutTolerance(t *testing.T) {
	nan := float32(math.NaN())
	for name, pair := range map[string][2]*tensor.Tensor{
		"integers": {tensor.From([]int64{1, 2}, 2), tensor.From([]int64{1, 3}, 2)},
		"bools":    {tensor.From([]bool{true}, 1), tensor.From([]bool{false}, 1)},
		"strings":  {tensor.FromStrings([]string{"a"}, 1), tensor.FromStrings([]string{"b"}, 1)},
		"NaN":      {tensor.From([]float32{nan, 1}, 2), tensor.From([]float32{0, 1}, 2)},
		"NaN of b": {tensor.From([]float32{0, 1}, 2), tensor.From([]float32{nan, 1}, 2)},
	} {
		if c := compared(t, pair[0], pair[1]); c.pass(-1) || c.Unequal == "" {
			t.Errorf("%s: %+v passes", name, c)
		}
	}
	c := &comparison{Name: "y"}
	for _, other := range []*tensor.Tensor{tensor.New(tensor.F32, 3), tensor.New(tensor.F64, 2)} {
		if err := c.add(tensor.New(tensor.F32, 2), other); err == nil || !strings.Contains(err.Error(), "output y is f32[2]") {
			t.Errorf("%v: error %v", other, err)
		}
	}
}

func TestTopOneRunsAlongTheClasses(t *testing.T) {
	x := tensor.From([]float32{1, 2, 9, 0}, 2, 2, 1, 1)
	y := tensor.From([]float32{1, 2, 0, 9}, 2, 2, 1, 1)
	if c := compared(t, x, y); c.Top1 == nil || *c.Top1 != 0.5 {
		t.Errorf("%+v", c)
	}
	if got := argmax([]float64{1, 3, math.NaN(), 4, math.NaN()}); got != 2 {
		t.Errorf("the largest is at %d, want the first NaN at 2", got)
	}
}

func TestSummaryRanksClasses(t *testing.T) {
	s := summarise([]named{{"y", tensor.From([]float32{0, 3, float32(math.NaN()), 3, 5, -1, 2}, 1, 7)}})
	o := s.Outputs[0]
	if o.Min != -1 || o.Max != 5 || o.Mean != 2 || o.NaNs != 1 {
		t.Errorf("%+v", o)
	}
	if want := []top{{4, 5}, {1, 3}, {3, 3}, {6, 2}, {0, 0}}; len(o.Top) != 1 || !slices.Equal(o.Top[0], want) {
		t.Errorf("best classes %v, want %v", o.Top, want)
	}
	if s := summarise([]named{{"y", tensor.New(tensor.F32, 1, 3, 8, 8)}}); s.Outputs[0].Top != nil {
		t.Error("an image is ranked like classes")
	}
	const seed = 5
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	many := tensor.New(tensor.F32, 9000, 40)
	for i := range many.F32s() {
		many.F32s()[i] = float32(r.IntN(20))
	}
	s = summarise([]named{{"y", many}})
	for i, got := range s.Outputs[0].Top {
		row := many.F32s()[40*i:][:40]
		var want []top
		for k, v := range row {
			want = append(want, top{k, number(v)})
		}
		slices.SortStableFunc(want, func(a, b top) int { return cmp.Compare(b.Score, a.Score) })
		if !slices.Equal(got, want[:5]) {
			t.Errorf("image %d: best classes %v, want %v", i, got, want[:5])
		}
	}
	var b strings.Builder
	s.print(&b)
	if lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"); len(lines) > 60 || lines[len(lines)-1] != "... 8990 more" {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
}

func TestNumbersThatJSONLacksAreNull(t *testing.T) {
	var b strings.Builder
	if err := printJSON(&b, []number{1.5, number(math.NaN()), number(math.Inf(-1))}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(strings.Fields(b.String()), ""); got != "[1.5,null,null]" {
		t.Error(got)
	}
}

func TestSizesAreForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1 KB", 23840: "23.8 KB", 999600: "1 MB", 13900000: "13.9 MB", 2500000000: "2.50 GB"} {
		if got := size(n); got != want {
			t.Errorf("%d bytes are %q, want %q", n, got, want)
		}
	}
}

func TestNamesDoNotControlTheTerminal(t *testing.T) {
	for in, want := range map[string]string{
		"layer/1.weight é 図": "layer/1.weight é 図",
		"a\nb\tc\r":          `a\nb\tc\r`,
		"\x1b[31mred":        `\x1b[31mred`,
		"\u202egnp.\x07\x9b": `\u202egnp.\a\x9b`,
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %q, want %q", in, got, want)
		}
		var b strings.Builder
		tab := newTable(&b, "name")
		tab.AppendRow([]any{in})
		tab.Render()
		if !strings.Contains(b.String(), want) || strings.Count(b.String(), "\n") != 2 {
			t.Errorf("a table of %q is %q", in, b.String())
		}
		if got := message(errors.New(in)); strings.ContainsAny(got, "\n\t\r\x1b\u202e\x07") {
			t.Errorf("the message of %q is %q", in, got)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestOutputThatCannotBeWrittenFails(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"devices"}, {"devices", "--json"}} {
		var errs strings.Builder
		if status := spcMain(args, fullDisk{}, &errs); status != 1 || errs.String() != "spc: no space left on device\n" {
			t.Errorf("%v: status %d, errors %q", args, status, errs.String())
		}
	}
}

func TestArraysOfF32BecomeHalvesWhereThoseAreWanted(t *testing.T) {
	dir := t.TempDir()
	x := tensor.From([]float32{1.0009766, -3.14159, 70000, 1e-9}, 4)
	npy, pb := filepath.Join(dir, "x.npy"), filepath.Join(dir, "x.pb")
	if err := tensor.WriteNPY(npy, x); err != nil {
		t.Fatal(err)
	}
	if err := tensor.WriteTensorProto(pb, "x", x); err != nil {
		t.Fatal(err)
	}
	for dt, want := range map[tensor.DType]*tensor.Tensor{
		tensor.F32:  x,
		tensor.F64:  x, // which is then refused
		tensor.F16:  tensor.FromFloat64s(tensor.F16, []float64{1.0009765625, -3.140625, math.Inf(1), 0}, 4),
		tensor.BF16: tensor.FromFloat64s(tensor.BF16, []float64{1, -3.140625, 70144, 1e-9}, 4),
	} {
		got, err := readInput(spc.Port{Name: "x", DType: dt}, npy)
		if err != nil || !got.Equal(want) {
			t.Errorf("as %v: %v of %v, %v, want %v of %v", dt, got.Float64s(), got, err, want.Float64s(), want)
		}
	}
	if got, err := readInput(spc.Port{Name: "x", DType: tensor.F16}, pb); err != nil || got.DType() != tensor.F32 {
		t.Errorf("a .pb, which says its type, becomes %v, %v", got, err)
	}
}

func TestHardlyAnyDivergenceIsNone(t *testing.T) {
	p := &fit.Result{GraphResult: &prune.GraphResult{Allocate: "auto"}, Method: "obs", Samples: 8, Runs: 8, Trials: []fit.Trial{{Allocate: "layer", Divergence: 1.06e-261}, {Allocate: "curves", Divergence: 0.0123}}}
	if have, want := fitted(&spc.Report{Prune: p}), "by obs on 8 calibration samples, allocation auto: layer, divergence 0, not curves, 0.0123"; have != want {
		t.Errorf("%q, want %q", have, want)
	}
}

// A tuned model is larger by what was measured, which the summary says.
func TestWhatTuningKeepsIsToldOf(t *testing.T) {
	hints := &measure.Record{Machine: strings.Repeat("m", 2000)}
	for _, h := range []*measure.Record{nil, hints} {
		var b strings.Builder
		printTuned(&b, &spc.Report{Tuned: &spc.Tuned{Measured: 1, Kept: "predicted", Hints: h}})
		if told := strings.HasSuffix(b.String(), "kept      the program by prediction; and 2.04 KB of what was measured, which is not measured again\n"); told != (h != nil) {
			t.Errorf("%q", b.String())
		}
	}
}
