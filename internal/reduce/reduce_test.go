package reduce_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"spc/internal/reduce"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// chain is n nodes in a row.
func chain(t *testing.T, n int) *ir.Graph {
	var b strings.Builder
	b.WriteString("graph \"g\"(%v0: f32[2]) {\n")
	for i := range n {
		fmt.Fprintf(&b, "  %%v%d: f32[2] = Relu \"n%d\" (%%v%d)\n", i+1, i, i)
	}
	fmt.Fprintf(&b, "  return %%v%d\n}", n)
	return graphtest.Parse(t, b.String())
}

func names(nodes []*ir.Node) []string {
	var s []string
	for _, n := range nodes {
		s = append(s, n.Name)
	}
	return s
}

// TestNodesFindsTheNodesThatFailTogether plants a fault that needs a few nodes at once.
func TestNodesFindsTheNodesThatFailTogether(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 100 {
		g := chain(t, 1+r.IntN(60))
		var guilty []string
		for range 1 + r.IntN(3) {
			guilty = append(guilty, g.Nodes[r.IntN(len(g.Nodes))].Name)
		}
		slices.Sort(guilty)
		guilty = slices.Compact(guilty)
		near := g.Nodes[r.IntN(len(g.Nodes))]
		if r.IntN(3) == 0 {
			near = nil
		}
		tries := 0
		got, err := reduce.Nodes(context.Background(), g, near, func(nodes []*ir.Node) (bool, error) {
			tries++
			have := names(nodes)
			for _, n := range guilty {
				if !slices.Contains(have, n) {
					return false, nil
				}
			}
			return true, nil
		})
		have := names(got)
		slices.Sort(have)
		if err != nil || !slices.Equal(have, guilty) {
			t.Fatalf("%d nodes: %v, %v, want %v", len(g.Nodes), have, err, guilty)
		}
		if tries > 20*len(g.Nodes)+60 {
			t.Errorf("%d tries for %d nodes", tries, len(g.Nodes))
		}
	}
}

func TestNodesEndsWithAnError(t *testing.T) {
	broken := errors.New("broken")
	_, err := reduce.Nodes(context.Background(), chain(t, 8), nil, func([]*ir.Node) (bool, error) { return false, broken })
	if err != broken {
		t.Errorf("%v, want %v", err, broken)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := reduce.Nodes(ctx, chain(t, 8), nil, func([]*ir.Node) (bool, error) { return true, nil }); err != context.Canceled {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

const branches = `graph "g"(%x: f32[n], %c: bool[]) {
  %w: f32[1] = const {10.0}
  %h: f32[n] = Relu "relu" (%x)
  %k: f32[n] = Add "add" (%h, %w)
  %y: f32[n] = If "if" (%c) {then_branch = graph "t"() {
    %a: f32[n] = Add "inner" (%h, %k)
    return %a
  }, else_branch = graph "e"() {
    return %h
  }}
  %z: f32[n] = Mul "mul" (%y, %k)
  return %z, %k
}`

func TestCutMakesInputsOfWhatOthersComputed(t *testing.T) {
	g := graphtest.Parse(t, branches)
	x := func(v float32) *tensor.Tensor { return tensor.From([]float32{v}, 1) }
	values := reduce.Values{g.Inputs[0]: x(1), g.Inputs[1]: tensor.Scalar(true)}
	for i, n := range g.Nodes {
		values[n.Outputs[0]] = x(float32(i + 2))
	}
	part, in, err := reduce.Cut(g, g.Nodes[1:3], values)
	if err != nil {
		t.Fatal(err)
	}
	if err := part.Verify(); err != nil {
		t.Fatal(err)
	}
	want := `(%h: f32[n], %c: bool[])`
	if text := part.String(); !strings.Contains(text, want) || !strings.Contains(text, "return %k, %y") || len(in) != 2 || in[0].F32s()[0] != 2 {
		t.Errorf("%v of\n%s\nwant %s", in, text, want)
	}
	part, _, err = reduce.Cut(g, g.Nodes[:2], values, g.Nodes[0].Outputs[0])
	if err != nil || !strings.Contains(part.String(), "return %k, %h") {
		t.Errorf("%v, %v, want h as an output, too", part, err)
	}
	delete(values, g.Nodes[0].Outputs[0])
	if _, _, err := reduce.Cut(g, g.Nodes[1:2], values); !errors.Is(err, ir.ErrUnsupported) {
		t.Errorf("%v, want one that says that h is not known", err)
	}
}

func TestSaveWritesATestCase(t *testing.T) {
	g := graphtest.Parse(t, branches)
	path := filepath.Join(t.TempDir(), "repro.onnx")
	x, y := tensor.From([]float32{1, 2}, 2), tensor.From([]float32{3, 4}, 2)
	if err := reduce.Save(path, g, []*tensor.Tensor{x, tensor.Scalar(true)}, []*tensor.Tensor{y, x}, "spc", "1"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := onnx.Import(path, onnx.Options{}); err != nil {
		t.Error(err)
	}
	files := reduce.Files(path, 2, 2)
	for i, want := range []*tensor.Tensor{nil, x, tensor.Scalar(true), y, x} {
		if want == nil {
			continue
		}
		got, name, err := tensor.ReadTensorProto(files[i])
		if err != nil || !got.Equal(want) || name == "" {
			t.Errorf("%s: %v named %q, %v, want %v", files[i], got, name, err, want)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
	// A graph that ONNX cannot hold leaves nothing.
	fused := graphtest.Parse(t, `graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1, 2, 3, 4}
  %y: f32[2,2] = MatMul "m" (%x, %w) {spc_act = "Relu"}
  return %y
}`)
	other := filepath.Join(t.TempDir(), "no.onnx")
	if err := reduce.Save(other, fused, nil, nil, "spc", "1"); !errors.Is(err, ir.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(other)); len(entries) != 0 {
		t.Errorf("%v is left", entries)
	}
}
