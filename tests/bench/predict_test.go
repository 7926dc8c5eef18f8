package bench

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"spc"
	"spc/backend/machine"
)

// What nodes took leads back to the rates by which they were made, and threads to what they add.
func TestFitNodes(t *testing.T) {
	const seed, peak = 5, 1e11
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	truth := map[string]machine.NodeCost{"Softmax": {Start: 2e-6, FLOP: 6, Byte: 1}, "Add": {Start: 1e-6, FLOP: 1, Byte: 5}}
	var all []Predicted
	for i := range 40 {
		var nodes []spc.NodeTime
		ms := 0.0
		for _, kind := range slices.Sorted(maps.Keys(truth)) {
			n := truth[kind]
			flops, bytes := math.Exp(8+8*rng.Float64()), fewBytes+math.Exp(8+8*rng.Float64())
			seconds := n.Start + (n.FLOP*flops+n.Byte*bytes)/peak
			nodes = append(nodes, spc.NodeTime{Op: kind, FLOPs: flops, Bytes: bytes, Sized: true, Time: time.Duration(seconds * 1e9)})
			ms += 1e3 * seconds
		}
		flops := math.Exp(8 + 8*rng.Float64())
		nodes = append(nodes, spc.NodeTime{Op: "MatMul", FLOPs: flops, Bytes: fewBytes, Sized: true, Time: time.Duration(2 * flops / peak * 1e9)})
		// Products that are predicted, and what has no size, fit nothing.
		nodes = append(nodes, spc.NodeTime{Op: "Conv", FLOPs: 1, Sized: true, Time: time.Second, Predicted: time.Second}, spc.NodeTime{Op: "Add", Time: time.Second})
		nodes = append(nodes, spc.NodeTime{Node: "slow", Op: "Add", FLOPs: 1, Bytes: 1e4, Sized: true, Time: time.Second}, spc.NodeTime{Op: "Add", FLOPs: 1, Bytes: 1, Sized: true, Time: time.Second})
		name := fmt.Sprint("m", i)
		all = append(all, Predicted{Name: name, Threads: 3, Ms: ms / 2.4}, Predicted{Name: name, Threads: 1, Ms: ms, nodes: nodes, interpreted: []string{"slow"}})
	}
	all = append(all, Predicted{Name: "bad", Threads: 1, Error: "failed"})
	p := machine.Profile{Peak: peak, Nodes: map[string]machine.NodeCost{"LSTM": {Start: 7, Step: 8, State: 9}, "MatMul": {Start: 1e-5, FLOP: 3}}}
	FitNodes(&p, all)
	for kind, want := range truth {
		got := p.Nodes[kind]
		for name, x := range map[string][2]float64{"start": {got.Start, want.Start}, "flop": {got.FLOP, want.FLOP}, "byte": {got.Byte, want.Byte}} {
			if !(math.Abs(math.Log(x[0]/x[1])) < 0.1) {
				t.Errorf("%s: %s is %v, want %v", kind, name, x[0], x[1])
			}
		}
	}
	if math.Abs(p.Threads-0.7) > 0.01 {
		t.Errorf("a thread adds %v, want 0.7", p.Threads)
	}
	if got, want := p.Nodes["LSTM"], (machine.NodeCost{Start: 7, Step: 8, State: 9}); got != want {
		t.Errorf("what nodes with products take besides is %+v, want %+v", got, want)
	}
	if got := p.Nodes["MatMul"]; got.Start != 1e-5 || !(math.Abs(math.Log(got.FLOP/2)) < 0.1) {
		t.Errorf("products are %+v", got)
	}
}

func TestPredictedIsPrinted(t *testing.T) {
	r := Results{Predicted: []Predicted{
		{Name: "near", Threads: 1, PredictedMs: 1.1, Ms: 1}, {Name: "far", Threads: 1, PredictedMs: 1.5, Ms: 1}, {Name: "small", Threads: 1, PredictedMs: 1, Ms: 0.1},
		{Name: "pruned", Threads: 1, Sparsity: 0.8, PredictedMs: 0.8, Ms: 1}, {Name: "broken", Error: "no such file"},
	}}
	var out bytes.Buffer
	r.Print(&out)
	for _, want := range []string{
		"0% zeros, 1 thread: of 2 models 1 are predicted within 15% (bar 90%), 1 within 30% (bar all); in the mean 1.28 times what they take",
		"80% zeros, 1 thread: of 1 model 0 are predicted within 15% (bar 90%), 1 within 30% (bar all); in the mean 0.80 times what they take",
		"far", "broken: no such file",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s\nwant %s", &out, want)
		}
	}
	if strings.Contains(out.String(), "small") || strings.Index(out.String(), "far") > strings.Index(out.String(), "near") {
		t.Errorf("%s", &out)
	}
}
