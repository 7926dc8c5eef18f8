package calib_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/tests/graphtest"
)

// surveyed is a graph with two weights that can be seen and one that cannot, and a value
// that is infinite.
func surveyed(t *testing.T) (*ir.Graph, *lab) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	g := recurrentGraph(t, rng)
	log := graphtest.Parse(t, `graph "g"(%x: f32[2]) {
  %y: f32[2] = Log "log" (%x)
  return %y
}`).Nodes[0].Op
	relu := graphtest.Parse(t, `graph "g"(%x: f32[2]) {
  %y: f32[2] = Relu "relu" (%x)
  return %y
}`).Nodes[0].Op
	product := graphtest.Parse(t, `graph "g"(%x: f32[2,2]) {
  %y: f32[2,2] = MatMul "product" (%x, %x)
  return %y
}`).Nodes[0].Op
	r := g.NewNode("relu", relu, g.Outputs, "relu")
	g.NewNode("log", log, r.Outputs, "log")
	g.Outputs = g.NewNode("fc", product, []*ir.Value{r.Outputs[0], g.NewConst("fc.weight", normal(rng, 2, 3))}, "z").Outputs
	g.Outputs = append(g.Outputs, g.Nodes[2].Outputs...)
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	l := &lab{}
	for range 3 {
		l.samples = append(l.samples, []*tensor.Tensor{normal(rng, 4, 3, 5), tensor.From([]int32{4, 3, 1}, 3)})
	}
	return g, l
}

func TestSurveyKeepsWhatSamplesShow(t *testing.T) {
	g, l := surveyed(t)
	path := filepath.Join(t.TempDir(), "calib")
	o := calib.SurveyOptions{Samples: "three of them"}
	made, err := l.observer().Survey(t.Context(), g, path, o)
	if err != nil {
		t.Fatal(err)
	}
	reads := l.reads
	read, err := l.observer().Survey(t.Context(), g, path, o)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	if l.reads != reads {
		t.Error("the samples were evaluated though there was a file")
	}
	if err := made.Close(); err != nil {
		t.Error(err)
	}
	if read.Samples != 3 {
		t.Errorf("%d samples, want 3", read.Samples)
	}
	uses := g.WeightUses()
	if len(uses) != 3 {
		t.Fatalf("%d weights, want 3", len(uses))
	}
	for _, u := range uses {
		want, errWant := calib.GramOf(t.Context(), l.observer().Frontier(g, 0), u, calib.GramOptions{})
		have, errHave := read.Gram(u)
		if errWant != nil {
			if errHave == nil || errHave.Error() != errWant.Error() || !errors.Is(errHave, ir.ErrUnsupported) {
				t.Errorf("%s: error %v, want %v", u.Value.Name, errHave, errWant)
			}
			continue
		}
		if errHave != nil {
			t.Fatal(errHave)
		}
		if have.K != want.K || have.N != want.N || have.Seen != want.Seen || !slices.Equal(have.XX, want.XX) || !slices.Equal(have.X, want.X) {
			t.Errorf("%s: the moments differ from those that were seen", u.Value.Name)
		}
	}
}

func TestSurveyOfAnotherModelIsRefused(t *testing.T) {
	g, l := surveyed(t)
	path := filepath.Join(t.TempDir(), "calib")
	o := calib.SurveyOptions{Samples: "even"}
	s, err := l.observer().Survey(t.Context(), g, path, o)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	refused := func(what string, g *ir.Graph, o calib.SurveyOptions) {
		t.Helper()
		_, err := l.observer().Survey(t.Context(), g, path, o)
		if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), path+": the statistics belong to another model or other samples") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("other samples", g, calib.SurveyOptions{Samples: "odd"})
	refused("fewer columns", g, calib.SurveyOptions{Samples: "even", MaxColumns: 5})
	w := g.WeightUses()[0].Value
	w.Const.F32s()[3]++
	refused("another weight", g, o)
	w.Const.F32s()[3]--
	other := g.Clone()
	other.Nodes[0].Name = "other"
	refused("another graph", other, o)
	if s, err = l.observer().Survey(t.Context(), g, path, o); err != nil {
		t.Error(err)
	} else {
		s.Close()
	}
}

func TestSurveyThatFailsLeavesNoFile(t *testing.T) {
	g, l := surveyed(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "calib")
	if _, err := (&lab{}).observer().Survey(t.Context(), g, path, calib.SurveyOptions{}); !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), "no calibration samples") {
		t.Errorf("no samples: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := l.observer().Survey(ctx, g, path, calib.SurveyOptions{Progress: func(int, int) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("%v was left behind", files)
	}
	if _, err := l.observer().Survey(t.Context(), g, filepath.Join(dir, "none", "calib"), calib.SurveyOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that does not exist: %v", err)
	}
}

// surveyFile returns the content of a survey's file.
func surveyFile(t testing.TB) []byte {
	t.Helper()
	g := graphtest.Parse(t, pair)
	path := filepath.Join(t.TempDir(), "calib")
	s, err := (&lab{samples: imageSamples(1, 1, 2, 4, 4)}).observer().Survey(t.Context(), g, path, calib.SurveyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDamagedSurveysAreRefused(t *testing.T) {
	b := surveyFile(t)
	if err := calib.ReadSurvey(b); err != nil {
		t.Fatal(err)
	}
	known := func(err error) bool { return errors.Is(err, ir.ErrCorrupt) || errors.Is(err, ir.ErrVersion) }
	for n := range b {
		if err := calib.ReadSurvey(b[:n:n]); !known(err) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(b), err)
		}
		bad := bytes.Clone(b)
		bad[n] ^= 1 << (n % 8)
		if err := calib.ReadSurvey(bad); !known(err) {
			t.Fatalf("another byte %d: %v", n, err)
		}
	}
	if err := calib.ReadSurvey(append(bytes.Clone(b), 0)); !known(err) {
		t.Errorf("a byte behind the end: %v", err)
	}
	newer := bytes.Clone(b)
	newer[8]++
	if err := calib.ReadSurvey(newer); !errors.Is(err, ir.ErrVersion) {
		t.Errorf("the next version: %v", err)
	}
	// With right checksums, sizes that do not fit are found all the same.
	for _, size := range []uint64{0, 1 << 20, 1 << 40, math.MaxInt64, math.MaxUint64} {
		bad := bytes.Clone(b)
		at := bytes.Index(bad, []byte("GRAM"))
		binary.LittleEndian.PutUint64(bad[at+8:], size) // of the payload
		calib.Reseal(bad)
		if err := calib.ReadSurvey(bad); !known(err) {
			t.Errorf("a payload of %d bytes: %v", size, err)
		}
		bad = bytes.Clone(b)
		name := int(binary.LittleEndian.Uint32(bad[at+4:]))
		binary.LittleEndian.PutUint64(bad[at+32+name:], size) // columns
		calib.Reseal(bad)
		if err := calib.ReadSurvey(bad); !known(err) {
			t.Errorf("a weight of %d columns: %v", size, err)
		}
	}
}

func FuzzSurvey(f *testing.F) {
	b := surveyFile(f)
	f.Add(b)
	f.Add(b[:64])
	f.Fuzz(func(t *testing.T, b []byte) {
		calib.ReadSurvey(b)
		b = bytes.Clone(b)
		calib.Reseal(b)
		if err := calib.ReadSurvey(b); err != nil && !errors.Is(err, ir.ErrCorrupt) {
			t.Errorf("%v wraps nothing that is known", err)
		}
	})
}
