package choose

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// fake is a format with the costs of a table.
type fake struct {
	name  string
	costs func(w *Matrix, n int) []Cost
	err   error // of Pack
}

func (f fake) Name() string                  { return f.name }
func (f fake) Costs(w *Matrix, n int) []Cost { return f.costs(w, n) }
func (f fake) Pack(w *tensor.Tensor, config string) ([]ir.Part, error) {
	return []ir.Part{{Name: config, Data: w}}, f.err
}

func (f fake) Unpack(s *ir.Store) (*tensor.Tensor, error) { return s.Parts[0].Data, f.err }

var dense = fake{name: Dense, costs: func(w *Matrix, n int) []Cost {
	return []Cost{{Kernel: "gemm", Work: 2 * float64(w.Len()*n), Bytes: 4 * w.Len(), Efficiency: 1}}
}}

// rows stores the nonzeros at half the speed, in two configurations.
var rows = fake{name: "rows", costs: func(w *Matrix, n int) []Cost {
	if 8*w.Nonzeros >= 4*w.Len() {
		return nil
	}
	work := 2 * float64(w.Nonzeros*n)
	return []Cost{
		{Config: "slow", Kernel: "rows_slow", Work: work, Bytes: 8 * w.Nonzeros, Efficiency: 0.25},
		{Config: "fast", Kernel: "rows_fast", Work: work, Bytes: 8 * w.Nonzeros, Efficiency: 0.5},
	}
}}

// padded does twice the work.
var padded = fake{name: "padded", costs: func(w *Matrix, n int) []Cost {
	if w.Nonzeros == w.Len() {
		return nil
	}
	return []Cost{{Config: "2x2", Kernel: "padded", Work: 4 * float64(w.Nonzeros*n), Bytes: 9 * w.Nonzeros, Efficiency: 0.8}}
}}

var formats = []Format{dense, rows, padded}

// model has a peak of 1 Gop/s and 1 GB/s.
type model struct{}

func (model) Predict(c Cost, m, k, n int) (seconds, peak float64) {
	return max(c.Work/(1e9*c.Efficiency), float64(c.Bytes)/1e9), 1e9
}

// graph has a product of [batch,k] with each of the weights.
func graph(t *testing.T, weights ...*tensor.Tensor) *ir.Graph {
	t.Helper()
	g := ir.NewGraph("test")
	for i, w := range weights {
		mm, err := op.New("MatMul")
		if err != nil {
			t.Fatal(err)
		}
		x := g.NewInput(fmt.Sprintf("x%d", i), ir.Of(tensor.F32, ir.Size(1), ir.Size(5), ir.Size(w.Dim(0))))
		n := g.NewNode(fmt.Sprintf("mm%d", i), mm, []*ir.Value{x, g.NewConst(fmt.Sprintf("w%d", i), w)}, fmt.Sprintf("y%d", i))
		g.Outputs = append(g.Outputs, n.Outputs[0])
	}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	return g
}

// weight is [k,m] with the given share of nonzeros, as a MatMul has it.
func weight(k, m int, density float64) *tensor.Tensor {
	rng := rand.New(rand.NewPCG(1, uint64(k*m)))
	w := tensor.New(tensor.F32, k, m)
	for i := range w.F32s() {
		if rng.Float64() < density {
			w.F32s()[i] = rng.Float32() + 1
		}
	}
	return w
}

func run(t *testing.T, g *ir.Graph, o Options) []Layer {
	t.Helper()
	layers, _, err := Run(g, formats, model{}, o)
	if err != nil {
		t.Fatal(err)
	}
	return layers
}

func TestTheFastestCandidateIsChosen(t *testing.T) {
	g := graph(t, weight(40, 30, 0.1), weight(40, 30, 0.6), weight(40, 30, 1))
	layers := run(t, g, Options{Recognise: func(*tensor.Tensor) string { return "some" }})
	for i, want := range []struct{ format, config, pattern string }{{"rows", "fast", "some"}, {"dense", "", "some"}, {"dense", "", "dense"}} {
		l := layers[i]
		if l.Format != want.format || l.Config != want.config || l.Pattern != want.pattern {
			t.Errorf("%s: %s %q of pattern %s, want %v", l.Name, l.Format, l.Config, l.Pattern, want)
		}
		if l.Rows != 30 || l.Cols != 40 || l.N != 5 || l.DenseBytes != 4*30*40 {
			t.Errorf("%s: %d x %d x %d, %d bytes", l.Name, l.Rows, l.Cols, l.N, l.DenseBytes)
		}
	}
	w := g.Nodes[0].Inputs[1]
	if w.Const != nil || w.Store == nil || w.Store.Format != "rows" || w.Store.Rows != 30 || w.Store.Cols != 40 {
		t.Errorf("stored as %+v", w.Store)
	}
	if layers[0].StoredBytes != w.Store.Bytes() {
		t.Errorf("%d bytes stored, want %d", layers[0].StoredBytes, w.Store.Bytes())
	}
	if w := g.Nodes[1].Inputs[1]; w.Const == nil || w.Store != nil {
		t.Error("a weight that stays dense is stored")
	}
}

func TestEveryCandidateIsKeptWithAReason(t *testing.T) {
	l := run(t, graph(t, weight(40, 30, 0.1)), Options{})[0]
	var got []string
	for _, c := range l.Candidates {
		got = append(got, c.Format+" "+c.Config+": "+c.Why)
		if c.Chosen != (c.Why == "chosen") {
			t.Errorf("%s %s: chosen %v, %q", c.Format, c.Config, c.Chosen, c.Why)
		}
	}
	want := []string{
		"rows fast: chosen",
		"padded 2x2: 1.25x the time: 2.00x the work at 80% of the peak",
		"rows slow: 2.00x the time: 1.00x the work at 25% of the peak",
	}
	work := l.Candidates[3].Work / l.Candidates[0].Work
	want = append(want, fmt.Sprintf("dense : %.2fx the time: %.2fx the work at 100%% of the peak", work/2, work))
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if !strings.Contains(l.Reason, "faster than dense") {
		t.Error(l.Reason)
	}
}

func TestBytesAreNamedWhereTheyBound(t *testing.T) {
	g := graph(t, weight(40, 30, 0.1))
	g.Inputs[0].Type.Dims[1] = ir.Size(1)
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	l := run(t, g, Options{})[0]
	if i := slices.IndexFunc(l.Candidates, is(Dense)); !strings.Contains(l.Candidates[i].Why, "the bytes") {
		t.Errorf("N = %d: %q", l.N, l.Candidates[i].Why)
	}
}

// What was measured counts more than what was predicted; what was not cannot win then, and what is faster by less than the noise
// does not.
func TestMeasurementsCountMoreThanPredictions(t *testing.T) {
	const us = 3.0
	for name, c := range map[string]struct {
		times  map[Form]Timing
		format string
		config string
		reason string
		why    map[Form]string // of some candidates
	}{
		"dense is faster": {
			map[Form]Timing{{Dense, ""}: {Us: us, Noise: 0}, {"rows", "fast"}: {Us: 2 * us, Noise: 0.02}}, Dense, "", "would take 2.00x the time",
			map[Form]string{{"rows", "slow"}: "not measured: predicted 0.41x the time that dense was", {"rows", "fast"}: "2.00x the time"},
		},
		"another is faster": {
			map[Form]Timing{{Dense, ""}: {Us: us, Noise: 0}, {"rows", "fast"}: {Us: us, Noise: 0.02}, {"padded", "2x2"}: {Us: us / 2, Noise: 0.02}}, "padded", "2x2", "measured 2.0x faster than dense",
			map[Form]string{{"rows", "slow"}: "not measured", {"rows", "fast"}: "2.00x the time"},
		},
		"within the noise": {
			map[Form]Timing{{Dense, ""}: {Us: us, Noise: 0}, {"rows", "fast"}: {Us: 2.85, Noise: 0.06}}, Dense, "", "0.95x the time of dense at 90% zeros, which may be off by 6%",
			map[Form]string{{"rows", "fast"}: "0.95x the time, which may be off by 6%"},
		},
		"beyond the noise": {map[Form]Timing{{Dense, ""}: {Us: us, Noise: 0}, {"rows", "fast"}: {Us: 2.85, Noise: 0.04}}, "rows", "fast", "measured 1.1x faster than dense", nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := run(t, graph(t, weight(40, 30, 0.1)), Options{Times: func(number int, f Form, n int, predicted float64) Timing {
				if number != 0 || n != 5 || !(predicted > 0) {
					t.Errorf("asked for use %d with %d columns, predicted %v us", number, n, predicted)
				}
				return c.times[f]
			}})[0]
			if l.Format != c.format || l.Config != c.config || !strings.Contains(l.Reason, c.reason) {
				t.Errorf("%s %s: %s", l.Format, l.Config, l.Reason)
			}
			for i := range l.Candidates {
				a := &l.Candidates[i]
				if got := (Timing{Us: a.MeasuredUs, Noise: a.Noise}); got != c.times[a.form()] {
					t.Errorf("%v has %v, want %v", a.form(), got, c.times[a.form()])
				}
				if !strings.Contains(a.Why, c.why[a.form()]) {
					t.Errorf("%v: %s", a.form(), a.Why)
				}
			}
		})
	}
}

func TestDenseWinsWhereAPredictionIsTooClose(t *testing.T) {
	// At 49% of nonzeros the rows are 2% faster than dense by prediction.
	layers := run(t, graph(t, weight(40, 30, 0.49)), Options{})
	var fast *Candidate
	for i := range layers[0].Candidates {
		if c := &layers[0].Candidates[i]; c.Config == "fast" {
			fast = c
		}
	}
	if l := layers[0]; l.Format != Dense || fast == nil || !strings.Contains(fast.Why, "too close") {
		t.Errorf("%s is chosen: %+v", l.Format, l.Candidates)
	}
	measured := map[Form]float64{{Dense, ""}: 1e3, {"rows", "fast"}: 0.98e3, {"rows", "slow"}: 2e3, {"padded", "2x2"}: 2e3}
	times := func(_ int, f Form, _ int, _ float64) Timing { return Timing{Us: measured[f]} }
	if l := run(t, graph(t, weight(40, 30, 0.49)), Options{Times: times})[0]; l.Format != "rows" {
		t.Errorf("%s is chosen though rows were measured to be faster", l.Format)
	}
}

func TestTiesGoToTheFirstFormat(t *testing.T) {
	same := dense
	same.name = "same"
	for range 3 {
		layers, _, err := Run(graph(t, weight(8, 8, 0.5)), []Format{dense, same}, model{}, Options{})
		if err != nil || layers[0].Format != Dense {
			t.Fatalf("%v, %v", layers, err)
		}
	}
}

func TestTheFormatAskedForIsUsedWhereItSuits(t *testing.T) {
	g := graph(t, weight(40, 30, 0.1), weight(40, 30, 1), weight(40, 30, 0.6))
	layers := run(t, g, Options{Format: "padded"})
	for i, want := range []struct{ format, reason string }{
		{"padded", "asked for"}, {"dense", "padded does not suit this weight"}, {"padded", "asked for"},
	} {
		l := layers[i]
		if l.Format != want.format || l.Reason != want.reason {
			t.Errorf("%s: %s, %q, want %v", l.Name, l.Format, l.Reason, want)
		}
		for _, c := range l.Candidates {
			if c.Chosen != (c.Format == l.Format) || c.Why == "" {
				t.Errorf("%s: %s: chosen %v, %q", l.Name, c.Format, c.Chosen, c.Why)
			}
		}
	}
}

// What is to be small is, whatever the time: in the faster of two ways that take as many bytes.
func TestSmallWeightsTakeTheFewestBytes(t *testing.T) {
	at := func(small map[string]bool, format string) []Layer {
		return run(t, graph(t, weight(40, 30, 0.48), weight(40, 30, 0.48), weight(40, 30, 1)), Options{Small: small, Format: format})
	}
	small := map[string]bool{"w0": true, "w2": true}
	layers := at(small, Auto)
	for i, want := range []string{"rows", Dense, Dense} {
		if l := layers[i]; l.Format != want || l.Config == "slow" || strings.HasPrefix(l.Reason, "as few bytes as may be") != small[l.Weight] {
			t.Errorf("%s is %s %s, %q; want %s", l.Weight, l.Format, l.Config, l.Reason, want)
		}
	}
	if s := layers[0].Smallest(); s == nil || s.StoredBytes >= layers[0].DenseBytes {
		t.Errorf("%+v is the smallest, dense has %d bytes", s, layers[0].DenseBytes)
	}
	for _, c := range layers[0].Candidates {
		if c.Why == "" || c.Chosen != (c.Config == "fast") {
			t.Errorf("%s %s: chosen %v, %q", c.Format, c.Config, c.Chosen, c.Why)
		}
	}
	if l := at(small, "padded")[0]; l.Format != "padded" || l.Reason != "asked for" {
		t.Errorf("%s, %q, want the format that was asked for", l.Format, l.Reason)
	}
}

func TestOptionsThatCannotBeMetAreRefused(t *testing.T) {
	if _, _, err := Run(graph(t), formats, model{}, Options{Format: "ellpack"}); !errors.Is(err, ir.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "want auto or dense, rows, padded") {
		t.Error(err)
	}
	if _, _, err := Run(graph(t), []Format{rows}, model{}, Options{}); !errors.Is(err, ir.ErrUnsupported) {
		t.Error(err)
	}
	broken := rows
	broken.err = errors.New("too wide")
	_, _, err := Run(graph(t, weight(40, 30, 0.1)), []Format{dense, broken}, model{}, Options{})
	if want := "mm0 (MatMul): weight w0 as rows: too wide"; !errors.Is(err, ir.ErrInvalid) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestWeightsThatMustStayPlainDo(t *testing.T) {
	for name, c := range map[string]struct {
		change func(g *ir.Graph)
		reason string
	}{
		"output": {func(g *ir.Graph) { g.Outputs = append(g.Outputs, g.Nodes[0].Inputs[1]) }, "kept dense: the weight is an output of the model"},
		"read in two ways": {func(g *ir.Graph) {
			gemm, err := op.New("Gemm")
			if err != nil {
				t.Fatal(err)
			}
			gemm.(*op.Gemm).TransB = true
			g.NewNode("columns", gemm, []*ir.Value{g.NewInput("u", ir.Of(tensor.F32, ir.Size(2), ir.Size(30))), g.Nodes[0].Inputs[1]}, "v")
		}, "kept dense: the weight is read as different matrices"},
		"read as data": {func(g *ir.Graph) {
			relu, err := op.New("Relu")
			if err != nil {
				t.Fatal(err)
			}
			g.NewNode("data", relu, []*ir.Value{g.Nodes[0].Inputs[1]}, "z")
		}, "kept dense: another operator reads the weight as data"},
	} {
		g := graph(t, weight(40, 30, 0.1))
		c.change(g)
		l := run(t, g, Options{})[0]
		if l.Format != Dense || l.Reason != c.reason || g.Nodes[0].Inputs[1].Const == nil {
			t.Errorf("%s: %s, %q, want %q", name, l.Format, l.Reason, c.reason)
		}
	}
}

func TestWeightsOfOtherTypesStayDense(t *testing.T) {
	g := ir.NewGraph("test")
	mm, err := op.New("MatMul")
	if err != nil {
		t.Fatal(err)
	}
	x := g.NewInput("x", ir.Shaped(tensor.F64, 2, 3))
	g.NewNode("mm", mm, []*ir.Value{x, g.NewConst("w", tensor.New(tensor.F64, 3, 4))}, "y")
	l := run(t, g, Options{})[0]
	if l.Format != Dense || l.DenseBytes != 96 || l.Reason != "kept dense: no sparse kernel for f64 weights" {
		t.Errorf("%+v", l)
	}
}

func TestChoosingAgainChangesNothing(t *testing.T) {
	g := graph(t, weight(40, 30, 0.1), weight(40, 30, 0.1))
	first := run(t, g, Options{})
	if second := run(t, g, Options{}); second[0].Format != first[0].Format || second[0].Reason != "stored before" {
		t.Errorf("%+v", second[0])
	}
	var steps []int
	again := run(t, graph(t, weight(40, 30, 0.1), weight(40, 30, 0.1)), Options{Progress: func(done, total int) { steps = append(steps, done, total) }})
	if d := cmp.Diff(first, again); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]int{1, 2, 2, 2}, steps); d != "" {
		t.Error(d)
	}
}

// TestMatrixCountsBlocks compares with counts made element by element.
func TestMatrixCountsBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		w := weight(1+rng.IntN(20), 1+rng.IntN(200), []float64{0, 0.01, 0.1, 0.5, 1}[rng.IntN(5)])
		m := NewMatrix(w, "")
		r, c := 1+rng.IntN(9), 1+rng.IntN(80)
		size := 2 << rng.IntN(5)
		rows, cols := w.Dim(0), w.Dim(1)
		var want Tally
		most := 0
		for i := 0; i < rows; i += r {
			n := 0
			for j := 0; j < cols; j += c {
				k := count(w, i, j, r, c)
				if k > 0 {
					n++
				}
			}
			want.Blocks += n
			want.Widest = max(want.Widest, n)
		}
		if got := m.Blocks(r, c); got != want {
			t.Fatalf("%d x %d in blocks of %d x %d: %+v, want %+v", rows, cols, r, c, got, want)
		}
		for i := range rows {
			for j := 0; j < cols; j += size {
				most = max(most, count(w, i, j, 1, size))
			}
		}
		if got := m.Most(size); got != most {
			t.Fatalf("%d x %d in groups of %d: at most %d, want %d", rows, cols, size, got, most)
		}
		if got := count(w, 0, 0, rows, cols); m.Nonzeros != got || m.Density() != float64(got)/float64(rows*cols) {
			t.Fatalf("%d nonzeros, want %d", m.Nonzeros, got)
		}
	}
	if d := NewMatrix(tensor.New(tensor.F32, 0, 5), "").Density(); d != 0 {
		t.Errorf("the density of nothing is %v", d)
	}
}

// count counts the nonzeros of the block of r x c from row i, column j on.
func count(w *tensor.Tensor, i, j, r, c int) (n int) {
	for a := i; a < min(i+r, w.Dim(0)); a++ {
		for b := j; b < min(j+c, w.Dim(1)); b++ {
			if w.F32s()[a*w.Dim(1)+b] != 0 {
				n++
			}
		}
	}
	return n
}

func TestReasonsSayWhatLimitsAKernel(t *testing.T) {
	dense := &Candidate{Work: 4, StoredBytes: 100}
	for _, c := range []struct {
		Candidate
		want string
	}{
		{Candidate{Work: 1, Peak: 1e6, Efficiency: 0.5, PredictedUs: 2}, "0.25x the work at 50% of the peak"},
		{Candidate{Work: 1, Peak: 1e6, Efficiency: 0.5, PredictedUs: 3, StoredBytes: 30}, "bound by 0.30x the bytes"},
		{Candidate{Work: 1, Peak: 1e6, Efficiency: 0.5, PredictedUs: 2, StoredBytes: 30, Bound: "the bytes"}, "bound by 0.30x the bytes"},
		{Candidate{Work: 1, Peak: 1e6, Efficiency: 0.5, PredictedUs: 2, Bound: "the launch"}, "bound by the launch"},
	} {
		if have := c.bound(dense); have != c.want {
			t.Errorf("%q, want %q", have, c.want)
		}
	}
}

// heard notes what it is asked to predict, by several goroutines.
type heard struct {
	sync.Mutex
	again map[[2]int]bool
}

func (h *heard) Predict(c Cost, m, k, n int) (seconds, peak float64) {
	h.Lock()
	defer h.Unlock()
	h.again[[2]int{m, k}] = c.Again
	return 1, 1
}

// Of a recurrent operator the weight of the input meets all steps at once, that of the state each on its own.
func TestWeightsOfEveryStepAreReadAgain(t *testing.T) {
	gru, err := op.New("GRU")
	if err != nil {
		t.Fatal(err)
	}
	hidden := 8
	gru.(*op.GRU).HiddenSize = &hidden
	g := ir.NewGraph("test")
	x := g.NewInput("x", ir.Of(tensor.F32, ir.Size(7), ir.Size(1), ir.Size(5)))
	w, r := weight(24, 5, 0.5).Reshape(1, 24, 5), weight(24, 8, 0.5).Reshape(1, 24, 8)
	g.Outputs = g.NewNode("gru", gru, []*ir.Value{x, g.NewConst("w", w), g.NewConst("r", r)}, "y").Outputs
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	h := &heard{again: map[[2]int]bool{}}
	if _, _, err := Run(g, formats, h, Options{}); err != nil {
		t.Fatal(err)
	}
	if want := map[[2]int]bool{{24, 5}: false, {24, 8}: true}; !maps.Equal(h.again, want) {
		t.Errorf("read again: %v, want %v", h.again, want)
	}
}

// A weight that several nodes read is stored as suits them together, and each layer says so.
func TestReadersOfAWeightAgree(t *testing.T) {
	// few is fast for few columns and slow for many.
	few := fake{name: "few", costs: func(w *Matrix, n int) []Cost {
		return []Cost{{Kernel: "few", Work: 2 * float64(w.Len()*n), Efficiency: map[bool]float64{true: 100, false: 0.5}[n < 10]}}
	}}
	for _, c := range []struct {
		rows         int // of the second node's operand
		format       string
		first, again string // why few lost or won in each
	}{
		{3, "few", "chosen", "chosen"},
		{300, Dense, "0.01x the time, more in all nodes that read the weight", "2.00x the time: 1.00x the work at 50% of the peak"},
	} {
		g := graph(t, weight(40, 30, 1))
		w := g.Nodes[0].Inputs[1]
		x := g.NewInput("again", ir.Of(tensor.F32, ir.Size(c.rows), ir.Size(40)))
		g.Outputs = append(g.Outputs, g.NewNode("again", g.Nodes[0].Op, []*ir.Value{x, w}, "z").Outputs[0])
		if err := g.Infer(); err != nil {
			t.Fatal(err)
		}
		layers, _, err := Run(g, []Format{dense, few}, model{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if (w.Const == nil) != (c.format != Dense) || w.Store != nil && w.Store.Format != c.format {
			t.Errorf("%d rows: stored as %+v, want %s", c.rows, w.Store, c.format)
		}
		for i, why := range []string{c.first, c.again} {
			l := layers[i]
			few := l.Candidates[slices.IndexFunc(l.Candidates, is("few"))]
			if l.Format != c.format || !strings.HasSuffix(l.Reason, ", for the 2 nodes together that read the weight") || few.Why != why || few.Chosen != (why == "chosen") {
				t.Errorf("%d rows, node %d: %s, %q; few: %q, want %s and %q", c.rows, i, l.Format, l.Reason, few.Why, c.format, why)
			}
		}
	}
}
