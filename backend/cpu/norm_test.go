package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/machine"
	"spc/backend/ref"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// Norms have kernels whatever axes they are over, and whatever factors broadcast to them, constants or not.
func TestNormsOverAnyAxes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	shape := []int{2, 3, 4, 5}
	for _, kind := range []string{"LayerNormalization", "RMSNormalization", "LpNormalization"} {
		for axis := range shape {
			for range 40 {
				threads := 1 + r.IntN(3)
				text := fmt.Sprintf("graph \"g\"(%%x: f32%s", dims(shape))
				var consts, names []string
				in := []*tensor.Tensor{tensor.New(tensor.F32, shape...)}
				for i := range map[string]int{"LayerNormalization": 1 + r.IntN(2), "RMSNormalization": 1, "LpNormalization": 0}[kind] {
					of := slices.Clone(shape[r.IntN(len(shape)+1):])
					for k := range of {
						if r.IntN(3) == 0 {
							of[k] = 1
						}
					}
					name := fmt.Sprintf("f%d", i)
					names = append(names, ", %"+name)
					if f := tensor.New(tensor.F32, of...); r.IntN(2) == 0 {
						text += fmt.Sprintf(", %%%s: f32%s", name, dims(of))
						in = append(in, f)
					} else {
						_, data, _ := strings.Cut(constantText(r, f.Len()), " = ")
						consts = append(consts, fmt.Sprintf("%%%s: f32%s = %s", name, dims(of), data))
					}
				}
				for _, x := range in {
					for k := range x.F32s() {
						x.F32s()[k] = apart(r, k)
					}
				}
				outputs, results := "%y", "%y"
				if kind == "LayerNormalization" && r.IntN(3) == 0 {
					outputs, results = "%y, %mean, %inv", "%y, %mean, %inv"
				}
				at := axis - r.IntN(2)*len(shape)
				types := strings.ReplaceAll(outputs, "%mean", "%mean: f32[*]")
				types = strings.ReplaceAll(strings.ReplaceAll(types, "%inv", "%inv: f32[*]"), "%y", "%y: f32[*]")
				text += fmt.Sprintf(") {\n%s\n%s = %s \"y\" (%%x%s) {axis = %d}\nreturn %s }", strings.Join(consts, "\n"), types, kind, strings.Join(names, ""), at, results)
				g := graphtest.Parse(t, text)
				want, err := ref.Run(context.Background(), g, in)
				if err != nil {
					t.Fatal(err)
				}
				got, nodes := runChained(t, g, in, backend.Options{Threads: threads})
				for i := range want {
					compare(t, text, got[i], want[i])
				}
				if len(nodes) != 1 {
					t.Errorf("%d nodes of %s", len(nodes), text)
				}
			}
		}
	}
	// None of that is left to the interpreter.
	for _, node := range []string{`LayerNormalization "y" (%x, %f) {axis = 1}`, `RMSNormalization "y" (%x, %x) {axis = -2}`, `LpNormalization "y" (%x) {axis = 0}`} {
		g := graphtest.Parse(t, `graph "g"(%x: f32[2,3,4], %f: f32[3,1]) {
  %y: f32[*] = `+node+`
  return %y }`)
		list, err := Predict(g, []*tensor.Tensor{tensor.New(tensor.F32, 2, 3, 4), tensor.New(tensor.F32, 3, 1)}, backend.Options{Threads: 1}, Rates{Profile: machine.Default, Threads: 1})
		if err != nil || len(list) != 1 || list[0].Interpreted {
			t.Errorf("%s: %+v, %v, want a kernel", node, list, err)
		}
	}
}

// Sums of elements and squares that float32 does not hold, a mean that dwarfs the deviation, and zeros.
func TestNormsOfExtremes(t *testing.T) {
	rows := [][]float32{{1.5e38, 1.5e38, 1e38, 1.2e38}, {1e-30, -2e-30, 1e-30, 0}, {1000, 1000.25, 999.75, 1000}, {0, 0, 0, 0}, {7, 7, 7, 7}}
	in := tensor.New(tensor.F32, 1, len(rows), 4)
	for i, r := range rows {
		copy(in.F32s()[4*i:], r)
	}
	for _, node := range []string{
		`InstanceNormalization "n" (%x, %w, %w)`, `GroupNormalization "n" (%x, %w, %w) {num_groups = 5}`,
		`LpNormalization "n" (%x) {p = 1}`, `LpNormalization "n" (%x) {p = 2}`,
		`LpNormalization "n" (%x) {p = 1, axis = 1}`, `LpNormalization "n" (%x) {p = 2, axis = 1}`,
	} {
		matchesReference(t, node, in, fmt.Sprintf(`graph "g"(%%x: f32[1,5,4]) {
  %%w: f32[5] = const {1.0, 2.0, 1.0, 2.0, 3.0}
  %%y: f32[1,5,4] = %s
  return %%y }`, node))
	}
}

// matchesReference compares what a program makes of the text of a graph and of in with what the interpreter makes of them.
func matchesReference(t *testing.T, name string, in *tensor.Tensor, text string) {
	t.Helper()
	g := graphtest.Parse(t, text)
	want, err := ref.Run(context.Background(), g, []*tensor.Tensor{in})
	if err != nil {
		t.Fatal(err)
	}
	p, err := Device{}.Load(g, backend.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	got, err := run(context.Background(), p, []*tensor.Tensor{in})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, name, got[0], want[0])
}
