package spc_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"spc"
	"spc/backend"
	"spc/backend/cpu"
	"spc/ir"
	"spc/ir/tensor"
)

// The work of products counts what formats store, and that of others what their types say.
func TestProfileCountsWhatIsStored(t *testing.T) {
	for _, format := range []spc.Format{"dense", "csr", "ell", "block"} {
		m := tiny(t, "resnet", spc.CompileOptions{Format: format, Prune: spc.PruneOptions{Sparsity: 0.75, KeepNone: true, Pattern: spc.Pattern{Kind: spc.Unstructured}}})
		in := randomInputs(m, 1, 1)
		out, times, err := m.Profile(context.Background(), in)
		if err != nil || len(out) != 1 {
			t.Fatal(out, err)
		}
		layers := map[string]spc.Layer{}
		for _, l := range m.Explain().Layers {
			layers[l.Name] = l
		}
		products, sum := 0, 0.0
		for _, n := range times {
			sum += n.Bytes
			if !n.Sized || n.Bytes < 0 || n.FLOPs < 0 {
				t.Errorf("%s: %+v", format, n)
			}
			l, ok := layers[n.Node]
			if !ok || l.Format != string(format) {
				continue
			}
			products++
			if len(l.Points) > 0 {
				l.N = l.Points[0].N // of one image
			}
			values := float64(l.Rows * l.Cols)
			switch l.Format {
			case "csr":
				values = float64(l.Nonzeros)
			case "ell", "block":
				if n.FLOPs < 2*float64(l.Nonzeros*l.N) || n.FLOPs > 2*values*float64(l.N)+1 {
					t.Errorf("%s %s: %g operations, of %d nonzeros and %g weights by %d columns", format, n.Node, n.FLOPs, l.Nonzeros, values, l.N)
				}
				values = n.FLOPs / 2 / float64(l.N)
			}
			if want := 2 * values * float64(l.N); n.FLOPs < want*0.999 || n.FLOPs > want*1.001 {
				t.Errorf("%s %s: %g operations, want %g", format, n.Node, n.FLOPs, want)
			}
			if n.Format != l.Format || n.Bytes < float64(l.StoredBytes) || n.Predicted <= 0 {
				t.Errorf("%s: %+v, stored are %d bytes", format, n, l.StoredBytes)
			}
		}
		if products < 5 {
			t.Errorf("%d products are %s", products, format)
		}
		if again := randomInputs(m, 2, 2); len(again) > 0 { // other columns, between points
			_, two, err := m.Profile(context.Background(), again)
			if err != nil {
				t.Fatal(err)
			}
			for i, n := range two {
				if 10*n.Predicted < 9*times[i].Predicted {
					t.Errorf("%v: predicted for a batch of two, %v for one", n, times[i].Predicted)
				}
				if n.FLOPs < times[i].FLOPs {
					t.Errorf("%s: %g operations for two images, %g for one", n.Node, n.FLOPs, times[i].FLOPs)
				}
			}
		}
		m.Close()
	}
}

// What is predicted is of the products, with what is stored.
func TestPredictedIsOfTheChosenFormats(t *testing.T) {
	for _, name := range []string{"resnet", "lstm", "bert"} {
		m := tiny(t, name, spc.CompileOptions{Format: "csr", Prune: spc.PruneOptions{Sparsity: 0.75, KeepNone: true}})
		layers := map[string][]spc.Layer{}
		for _, l := range m.Explain().Layers {
			layers[l.Name] = append(layers[l.Name], l)
		}
		products := 0
		for _, n := range m.Predicted() {
			if len(layers[n.Node]) != 1 || n.Format != "csr" {
				continue
			}
			products++
			l := layers[n.Node][0]
			if want := 2 * float64(l.Nonzeros) * float64(l.N); n.FLOPs != want || n.Bytes < float64(l.StoredBytes) || n.Predicted <= 0 || n.Time != 0 {
				t.Errorf("%s: %+v, want %g operations and %d bytes or more", name, n, want, l.StoredBytes)
			}
		}
		if products == 0 && name != "lstm" {
			t.Errorf("%s: no product is predicted", name)
		}
		m.Close()
	}
}

// portioned is the CPU, but tells of each step in two portions.
type portioned struct{ cpu.Device }

type portionedProgram struct{ backend.Program }

func (d portioned) Load(g *ir.Graph, o backend.Options) (backend.Program, error) {
	p, err := d.Device.Load(g, o)
	return portionedProgram{p}, err
}

func (p portionedProgram) Trace(ctx context.Context, in, out []*tensor.Tensor, f func(*ir.Node, time.Duration)) error {
	var told []func()
	err := p.Program.Trace(ctx, in, out, func(n *ir.Node, d time.Duration) {
		told = append(told, func() { f(n, time.Millisecond) })
	})
	for _, tell := range slices.Concat(told, told) {
		tell()
	}
	return err
}

// A profile has each node once, a trace its portions, none of which begins before another ends.
func TestPortionsAreSummed(t *testing.T) {
	m := tiny(t, "resnet", spc.CompileOptions{Run: spc.RunOptions{Device: portioned{}}})
	defer m.Close()
	in := randomInputs(m, 1, 1)
	_, steps, err := m.Trace(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	_, nodes, err := m.Profile(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) != 2*len(nodes) || steps[0].Start != 0 {
		t.Fatalf("%d steps of %d nodes from %v on", len(steps), len(nodes), steps[0].Start)
	}
	for i, s := range steps {
		if n := nodes[i%len(nodes)]; n.Node != s.Node || n.FLOPs != 2*s.FLOPs || n.Bytes != 2*s.Bytes || n.Time != 2*s.Time || n.Predicted != 2*s.Predicted || !n.Sized {
			t.Errorf("step %+v of %+v", s, n)
		}
		if i > 0 && s.Start < steps[i-1].Start+steps[i-1].Time {
			t.Errorf("%s begins at %v, before the end of what ran before", s.Node, s.Start)
		}
	}
}

// The work that inference does not know is not made up.
func TestWorkOfOpenSizesIsNotKnown(t *testing.T) {
	m := parse(t, `graph "g"(%x: f32[4]) {
  %i: i64[1,?2] = NonZero "places" (%x)
  %y: i64[1,?2] = Neg "neg" (%i)
  %z: f32[4] = Exp "exp" (%x)
  return %y, %z
}`)
	defer m.Close()
	_, nodes, err := m.Profile(context.Background(), map[string]*tensor.Tensor{"x": tensor.From([]float32{1, 0, 2, 3}, 4)})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Sized != (n.Node == "exp") {
			t.Errorf("%+v", n)
		}
	}
}
