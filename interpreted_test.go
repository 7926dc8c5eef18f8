package spc_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"spc"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// withoutKernel compiles a model whose output is what body makes of %x, and its node "slow" something without a kernel of the
// CPU, whatever that is just now. It returns the operator.
func withoutKernel(t *testing.T, input, body string) (*spc.Model, string) {
	t.Helper()
	for _, kind := range []string{"Det", "Hardmax", "LRN {size = 3}", "CumSum", "MeanVarianceNormalization"} {
		kind, attributes, _ := strings.Cut(kind, " ")
		args := "%r"
		if kind == "CumSum" {
			args = "%r, %axis"
		}
		m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: graphtest.ONNX(t, fmt.Sprintf(`graph "g"(%s) {
  %%axis: i64[] = const {1}
  %s
  %%y: f32[*] = %s "slow" (%s) %s
  return %%y, %%r
}`, input, body, kind, args, attributes))})
		if err != nil {
			t.Fatal(err)
		}
		if list := m.Interpreted(); len(list) > 0 && list[0].Op == kind {
			return m, kind
		}
		m.Close()
	}
	t.Fatal("every operator has a kernel")
	return nil, ""
}

func TestTimeInTheInterpreterIsToldOnce(t *testing.T) {
	const relu = `%r: f32[*] = Relu "r" (%x)`
	for name, c := range map[string]struct {
		input, body string
		shares      bool
		told        bool
	}{
		"known sizes":         {"%x: f32[2,8,32,32]", relu, true, true},
		"an open batch":       {"%x: f32[batch,8,32,32]", relu, true, true},
		"sizes that are open": {"%x: f32[2,8,n,n]", relu, false, false},
		"a small part of a model": {"%x: f32[1,8,5,5], %z: f32[900,900]", `%q: f32[*] = Relu "q" (%x)
  %s: f32[*] = MatMul "much" (%z, %z)
  %m: f32[*] = ReduceMean "mean" (%s)
  %r: f32[*] = Add "r" (%q, %m)`, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, kind := withoutKernel(t, c.input, c.body)
			defer m.Close()
			check := func(r *spc.Report) {
				t.Helper()
				list := r.Interpreted
				if len(list) != 1 || list[0].Op != kind || !slices.Equal(list[0].Nodes, []string{"slow"}) || list[0].Share > 0 != c.shares {
					t.Errorf("%s: %+v", kind, list)
				}
				told := 0
				for _, w := range r.Warnings() {
					if strings.HasPrefix(w, "about ") && strings.Contains(w, "% of the time will be spent in the interpreter: "+kind+" ") && strings.HasSuffix(w, "% (1 node)") {
						told++
					}
				}
				if want := map[bool]int{true: 1}[c.told]; told != want || len(r.Warnings()) != want {
					t.Errorf("%s: warnings %q", kind, r.Warnings())
				}
			}
			check(m.Explain())
			var file bytes.Buffer
			if err := m.Write(&file); err != nil {
				t.Fatal(err)
			}
			again, err := spc.Read(file.Bytes(), spc.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			check(again.Explain())
			if !c.shares || strings.Contains(c.input, "%z") {
				return
			}
			places, err := again.Placements(map[string]*tensor.Tensor{"x": tensor.New(tensor.F32, 2, 8, 32, 32)})
			if err != nil || len(places) != 2 {
				t.Fatalf("%+v, %v", places, err)
			}
			for _, p := range places {
				if p.Interpreted != (p.Node == "slow") {
					t.Errorf("%+v", p)
				}
			}
		})
	}
}

// An open number of samples counts as one, also in what products with weights are predicted to take.
func TestOpenBatchesCountAsOneSample(t *testing.T) {
	var shares []float64
	for _, batch := range []string{"1", "batch"} {
		m, kind := withoutKernel(t, "%x: f32["+batch+",9,9]", `%w: f32[9,9] = const {`+strings.TrimSuffix(strings.Repeat("1.0, ", 9*9), ", ")+`}
  %r: f32[*] = MatMul "r" (%x, %w)`)
		list := m.Interpreted()
		if len(list) != 1 || !(list[0].Share > 0 && list[0].Share < 1) {
			t.Fatalf("%s: %+v", kind, list)
		}
		shares = append(shares, list[0].Share)
		m.Close()
	}
	if shares[0] != shares[1] {
		t.Errorf("shares %v of one sample and of an open number", shares)
	}
}

func TestNothingIsSaidWhereAllHaveKernels(t *testing.T) {
	m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: tinyBytes(t, "resnet")})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if r := m.Explain(); len(r.Interpreted) > 0 || len(r.Warnings()) > 0 {
		t.Errorf("%+v, %q", r.Interpreted, r.Warnings())
	}
}

func TestTheSlowestOperatorsAreNamed(t *testing.T) {
	var r spc.Report
	r.Options.Format = "auto"
	for i, share := range []float64{0.2, 0.1, 0.05, 0.02, 0.01, 0.005} {
		r.Interpreted = append(r.Interpreted, spc.Interpreted{Op: fmt.Sprintf("Op%d", i), Nodes: make([]string, 1+i%2), Share: share})
	}
	want := "about 39% of the time will be spent in the interpreter: Op0 20% (1 node), Op1 10% (2 nodes), Op2 5% (1 node), Op3 2% (2 nodes) and 2 more"
	if have := r.Warnings(); len(have) != 1 || have[0] != want {
		t.Errorf("%q, want %q", have, want)
	}
	r.Interpreted = r.Interpreted[2:3]
	if have := r.Warnings(); len(have) > 0 {
		t.Errorf("%q, of no more than 5%%", have)
	}
}
