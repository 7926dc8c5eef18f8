package cpu

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/format"
	"spc/backend/format/dense"
	"spc/backend/ref"
	"spc/internal/debug"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	formats "spc/passes/choose"
)

// recurrentCase is a node of a recurrent operator.
type recurrentCase struct {
	kind                             string
	attrs                            map[string]any
	seq, batch, inputs, hidden, dirs int
	given                            [7]bool // the inputs from the bias on that are there
	format, config                   string  // of the weights; empty leaves them dense
}

func (c *recurrentCase) String() string { return fmt.Sprintf("%+v", *c) }

// randomRecurrent draws a case.
func randomRecurrent(rng *rand.Rand) *recurrentCase {
	pick := func(of ...int) int { return of[rng.IntN(len(of))] }
	c := &recurrentCase{
		kind: []string{"LSTM", "GRU", "RNN"}[rng.IntN(3)], attrs: map[string]any{}, dirs: 1,
		seq: pick(1, 2, 5), batch: pick(1, 2, 3, 17, 63, 64, 65), inputs: pick(1, 7, 16), hidden: pick(1, 4, 15, 16, 17, 63, 64, 65, 100),
	}
	for i := range c.given {
		c.given[i] = rng.IntN(2) == 0
	}
	switch rng.IntN(3) {
	case 1:
		c.attrs["direction"] = "reverse"
	case 2:
		c.attrs["direction"], c.dirs = "bidirectional", 2
	}
	if c.kind == "GRU" && rng.IntN(2) == 0 {
		c.attrs["linear_before_reset"] = 1
	}
	if c.kind == "LSTM" && rng.IntN(2) == 0 {
		c.attrs["activations"] = []string{"sigmoid", "tanh", "tanh", "sigmoid", "tanh", "tanh"}[:3*c.dirs]
	}
	stored := [][2]string{{}, {}, {"csr", ""}, {"block", "2x1"}, {"block", "16x1"}, {"block", "1x4"}, {"ell", "8x1"}, {"dense", ""}, {"bitmap", ""}}[rng.IntN(9)]
	c.format, c.config = stored[0], stored[1]
	return c
}

// graph builds the node twice, the second time with its weights stored, and inputs.
func (c *recurrentCase) graph(t *testing.T, rng *rand.Rand) (plain, stored *ir.Graph, in []*tensor.Tensor) {
	t.Helper()
	m := map[string]int{"LSTM": 4, "GRU": 3, "RNN": 1}[c.kind] * c.hidden
	density, scale := 1.0, float32(0.1) // errors do not grow from step to step
	if c.format != "" {
		density = 0.3
	}
	random := func(density float64, scale float32, shape ...int) *tensor.Tensor {
		v := tensor.New(tensor.F32, shape...)
		for i := range v.F32s() {
			if rng.Float64() < density {
				v.F32s()[i] = scale * float32(rng.NormFloat64())
			}
		}
		return v
	}
	g := ir.NewGraph("g")
	input := func(i int, v *tensor.Tensor) *ir.Value {
		if i > 2 && !c.given[i] {
			return nil
		}
		in = append(in, v)
		return g.NewInput(fmt.Sprint("x", i), ir.TypeOf(v))
	}
	args := []*ir.Value{
		input(0, random(1, 1, c.seq, c.batch, c.inputs)),
		g.NewConst("w", random(density, scale, c.dirs, m, c.inputs)), g.NewConst("r", random(density, scale, c.dirs, m, c.hidden)),
		nil, nil, nil,
	}
	if c.given[3] {
		args[3] = g.NewConst("b", random(1, 1, c.dirs, 2*m))
	}
	lengths := tensor.New(tensor.I32, c.batch)
	for i := range c.batch {
		tensor.Data[int32](lengths)[i] = int32(rng.IntN(c.seq + 1))
	}
	args[4] = input(4, lengths)
	args[5] = input(5, random(1, 1, c.dirs, c.batch, c.hidden))
	outs := []string{"y", "h"}
	if c.kind == "LSTM" {
		outs = append(outs, "c")
		args = append(args, input(6, random(1, 1, c.dirs, c.batch, c.hidden)))
	}
	o, err := op.New(c.kind)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range c.attrs {
		if err := ir.SetAttr(o, name, v); err != nil {
			t.Fatal(err)
		}
	}
	n := g.NewNode("n", o, args, outs...)
	g.Outputs = append(g.Outputs, n.Outputs...)
	if err := g.Infer(); err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	stored = g.Clone()
	if c.format == "" {
		return g, stored, in
	}
	for _, w := range stored.WeightUses() {
		mat := w.View.Matrix(w.Value.Const)
		elements := tensor.F32
		if c.format == dense.Name && c.hidden%2 == 0 { // in 16 bits, which hold both
			elements = tensor.BF16
			mat = mat.To(elements).To(tensor.F32)
			for _, v := range g.Constants() {
				if v.Name == w.Value.Name {
					v.Const.CopyFrom(mat.Reshape(v.Const.Shape()...))
				}
			}
		}
		parts, err := format.Lookup(c.format).Pack(mat, c.config)
		if err != nil {
			t.Fatal(err)
		}
		w.Value.Store = &ir.Store{Format: c.format, Config: c.config, View: w.View, Rows: mat.Dim(0), Cols: mat.Dim(1), Parts: formats.Narrow(parts, elements)}
		w.Value.Const = nil
	}
	return g, stored, in
}

// Recurrent kernels compute what their operators do, with dense and stored weights,
// for one sample and many, in both directions.
func TestRecurrentKernelsAgreeWithOperators(t *testing.T) {
	const seed = 30
	t.Logf("seed %d", seed)
	rounds := 150
	if testing.Short() {
		rounds = 20
	}
	for round := range rounds {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		c := randomRecurrent(rng)
		plain, stored, in := c.graph(t, rng)
		want, err := ref.Run(context.Background(), plain, in)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Device{}.Load(stored, backend.Options{Threads: 1 + round%3})
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.(*program).specialise(in)
		if err != nil {
			t.Fatal(err)
		}
		if !s.main.steps[0].fast() {
			t.Fatalf("no kernel was bound for %v", c)
		}
		for range 2 { // buffers hold the states of the run before
			got, err := run(context.Background(), p, in)
			if err != nil {
				t.Fatalf("%v: %v", c, err)
			}
			for i := range want {
				compare(t, fmt.Sprintf("output %d of %v", i, c), got[i], want[i])
			}
		}
		p.Close()
	}
}

// What has no kernel is left to the operator.
func TestOtherRecurrentCellsAreNotBound(t *testing.T) {
	for name, attrs := range map[string]map[string]any{
		"clip":        {"clip": float32(1)},
		"activations": {"activations": []string{"Sigmoid", "Relu", "Tanh"}},
		"coupled":     {"input_forget": 1},
		"layout":      {"layout": 1},
	} {
		c := &recurrentCase{kind: "LSTM", attrs: attrs, seq: 2, batch: 2, inputs: 3, hidden: 4, dirs: 1}
		g, _, in := c.graph(t, rand.New(rand.NewPCG(1, 2)))
		p, err := Device{}.Load(g, backend.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.(*program).specialise(in)
		if err != nil {
			t.Fatal(err)
		}
		if s.main.steps[0].fast() {
			t.Errorf("%s: a kernel was bound", name)
		}
		p.Close()
	}
}

func TestLengthsBeyondTheSequenceAreRefused(t *testing.T) {
	c := &recurrentCase{kind: "GRU", seq: 2, batch: 2, inputs: 3, hidden: 4, dirs: 1, given: [7]bool{4: true}}
	g, _, in := c.graph(t, rand.New(rand.NewPCG(1, 2)))
	p, err := Device{}.Load(g, backend.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, n := range []int32{-1, 3} {
		in[1] = tensor.From([]int32{1, n}, 2)
		if _, err := run(context.Background(), p, in); !errors.Is(err, ir.ErrInvalid) || !strings.Contains(fmt.Sprint(err), fmt.Sprintf("n (GRU): sequence_lens has %d, want 0 to 2", n)) {
			t.Errorf("error %v", err)
		}
	}
}

// A run of a recurrent operator allocates nothing.
func TestRecurrentRunsAllocateNothing(t *testing.T) {
	t.Setenv(debug.Variable, "") // checks allocate
	if raceDetector {
		t.Skip("a sync.Pool allocates under the race detector")
	}
	for _, c := range []*recurrentCase{
		{kind: "LSTM", seq: 3, batch: 1, inputs: 8, hidden: 70, dirs: 1},
		{kind: "GRU", seq: 3, batch: 20, inputs: 8, hidden: 40, dirs: 2, attrs: map[string]any{"direction": "bidirectional"}},
		{kind: "GRU", seq: 3, batch: 2, inputs: 40, hidden: 100, dirs: 1, format: "block", config: "16x1", given: [7]bool{3: true, 5: true}},
	} {
		_, g, in := c.graph(t, rand.New(rand.NewPCG(1, 2)))
		p, err := Device{}.Load(g, backend.Options{Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		out, err := run(context.Background(), p, in)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(20, func() {
			if err := p.Run(context.Background(), in, out); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations in a run", c, n)
		}
		p.Close()
	}
}
