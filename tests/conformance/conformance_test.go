package conformance

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"spc"
	_ "spc/internal/debug/all"
	"spc/ir"
	"spc/ir/onnx/onnxtest"
	"spc/ir/tensor"
)

// sizes holds the number of tests in each group of the suite.
var sizes = map[string]int{"node": 1802, "simple": 23, "pytorch-operator": 35, "pytorch-converted": 82, "light": 9}

// floors holds how many tests of each group have to pass in every pipeline.
var floors = map[string]int{"node": 1778, "simple": 21, "pytorch-operator": 35, "pytorch-converted": 82, "light": 9}

func suite(t *testing.T) []*Test {
	t.Helper()
	archive := filepath.Join(Shared(), Archive)
	if _, err := os.Stat(archive); err != nil {
		t.Skipf("shared data missing: %v", err)
	}
	tests, err := Load(archive)
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

func TestSuiteIsWhole(t *testing.T) {
	have := map[string]int{}
	for _, test := range suite(t) {
		have[test.Group]++
		if len(test.Sets) == 0 || len(test.Sets[0].Out) == 0 {
			t.Errorf("%s/%s has no outputs", test.Group, test.Name)
		}
	}
	for group, want := range sizes {
		if have[group] != want {
			t.Errorf("%d tests in %s, want %d", have[group], group, want)
		}
	}
}

func TestEveryExcludeMatchesATest(t *testing.T) {
	tests := suite(t)
	for _, e := range Excludes {
		if !slices.ContainsFunc(tests, func(t *Test) bool { return e.Pattern.MatchString(t.Group + "/" + t.Name) }) {
			t.Errorf("%v matches no test", e.Pattern)
		}
	}
}

// TestOfficialSuite runs the suite, without its light models under -short.
func TestOfficialSuite(t *testing.T) {
	tests := suite(t)
	if testing.Short() {
		tests = Select(tests, func(t *Test) bool { return t.Group != "light" })
	}
	for _, p := range Pipelines {
		t.Run(p.Name, func(t *testing.T) {
			o := Options{Workers: runtime.GOMAXPROCS(0), Budget: time.Minute}
			c := Count(RunAll(context.Background(), p, tests, o, func(r Result) {
				if r.Status == Failed {
					t.Logf("%s/%s: %s", r.Group, r.Name, r.Reason)
				}
			}))
			for _, g := range Groups {
				n := c.Groups[g]
				t.Logf("%s: %d passed, %d failed, %d excluded", g, n.Passed, n.Failed, n.Excluded)
				if n.Sum() > 0 && n.Passed < floors[g] {
					t.Errorf("%s: %d tests passed, want at least %d", g, n.Passed, floors[g])
				}
			}
		})
	}
}

// TestSuiteIsWrittenAsONNX checks the files that spc.Prune makes of the suite's models, without the light ones.
func TestSuiteIsWrittenAsONNX(t *testing.T) {
	written := 0
	for _, test := range Select(suite(t), func(t *Test) bool { return t.Group != "light" }) {
		p, err := spc.Prune(context.Background(), spc.CompileOptions{Bytes: test.Model, Opset: spc.LeastOpset})
		if err != nil {
			continue // some have no inputs, or what cannot be compiled
		}
		var b bytes.Buffer
		if err := p.Write(&b); err != nil {
			if !errors.Is(err, ir.ErrUnsupported) {
				t.Errorf("%s/%s: %v", test.Group, test.Name, err)
			}
			continue
		}
		written++
		if err := onnxtest.Check(b.Bytes()); err != nil {
			t.Errorf("%s/%s: %v", test.Group, test.Name, err)
		}
	}
	if written < 1900 {
		t.Errorf("%d models were written, want at least 1900", written)
	}
}

// TestSuiteIsKept checks that spc.Prune gives the files of the suite's models that it does not prune as they are.
func TestSuiteIsKept(t *testing.T) {
	kept := 0
	for _, test := range Select(suite(t), func(t *Test) bool { return t.Group != "light" }) {
		p, err := spc.Prune(context.Background(), spc.CompileOptions{Bytes: test.Model})
		if err != nil {
			continue // some have no inputs, or what cannot be compiled
		}
		var b bytes.Buffer
		if err := p.Write(&b); err != nil {
			t.Errorf("%s/%s: %v", test.Group, test.Name, err)
			continue
		}
		kept++
		if !bytes.Equal(b.Bytes(), test.Model) {
			t.Errorf("%s/%s is another file: %q", test.Group, test.Name, p.Explain().Written.Anew)
		}
	}
	if kept < 1900 {
		t.Errorf("%d models were kept, want at least 1900", kept)
	}
}

func TestCompareKnowsTolerances(t *testing.T) {
	f := func(v ...float32) *tensor.Tensor { return tensor.From(v, len(v)) }
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, test := range []struct {
		name      string
		got, want *tensor.Tensor
		same      bool
	}{
		{"within rtol", f(1000.9), f(1000), true},
		{"beyond rtol", f(1001.1), f(1000), false},
		{"within atol", f(9e-8), f(0), true},
		{"beyond atol", f(2e-7), f(0), false},
		{"NaN", f(nan), f(nan), true},
		{"NaN and a number", f(nan), f(1), false},
		{"infinity", f(inf), f(inf), true},
		{"infinities of both signs", f(inf), f(-inf), false},
		{"infinity and a number", f(3e38), f(inf), false},
		{"another shape", f(1, 2), tensor.From([]float32{1, 2}, 2, 1), false},
		{"another type", tensor.From([]int32{1}, 1), tensor.From([]int64{1}, 1), false},
		{"integers one apart", tensor.From([]int64{10000}, 1), tensor.From([]int64{10001}, 1), false},
		{"equal strings", tensor.FromStrings([]string{"a"}, 1), tensor.FromStrings([]string{"a"}, 1), true},
		{"other strings", tensor.FromStrings([]string{"a"}, 1), tensor.FromStrings([]string{"b"}, 1), false},
		{"no result", nil, f(1), false},
	} {
		if err := Compare(test.got, test.want); (err == nil) != test.same {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
