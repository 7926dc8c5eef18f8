package passes_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes"
	"spc/tests/archs"
	"spc/tests/graphtest"
)

func TestDumpsParseBack(t *testing.T) {
	m, err := archs.Tiny[2].Build(1)
	if err != nil {
		t.Fatal(err)
	}
	g, _, err := onnx.ImportBytes(m.Bytes(), "", onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	dump, err := passes.DumpTo(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := passes.Run(t.Context(), newContext(), g, passes.Options{Dump: dump}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(passes.Pipeline) {
		t.Errorf("%d files for %d passes", len(entries), len(passes.Pipeline))
	}
	last := ""
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		last = string(b)
		h, err := ir.Parse(last, op.Registry)
		if err != nil {
			t.Errorf("%s: %v", e.Name(), err)
			continue
		}
		if err := h.Verify(); err != nil {
			t.Errorf("%s: %v", e.Name(), err)
		}
		if d := cmp.Diff(last, ir.Print(h)); d != "" {
			t.Errorf("%s: printed again it differs\n%s", e.Name(), d)
		}
	}
	if d := cmp.Diff(ir.Print(g), last); d != "" {
		t.Errorf("the last dump is not the result\n%s", d)
	}
}

func TestDumpsOfLargeModelsAreSmallAndSayHow(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%x: f32[2]) { %y: f32[2] = Relu "r" (%x) return %y }`)
	w := g.NewConst("w", tensor.New(tensor.F32, 2, 1<<18))
	o, err := op.New("MatMul")
	if err != nil {
		t.Fatal(err)
	}
	n := g.NewNode("m", o, []*ir.Value{g.Outputs[0], w}, "z")
	if err := n.Infer(); err != nil {
		t.Fatal(err)
	}
	g.Outputs = n.Outputs
	var b strings.Builder
	if err := passes.WriteDump(&b, g); err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(strings.Lines(b.String()))
	if last := lines[len(lines)-1]; b.Len() > 1000 || !strings.HasPrefix(last, "// The constants hold 2097152 bytes.") {
		t.Errorf("%d bytes that end in %q", b.Len(), last)
	}
	if _, err := ir.Parse(b.String(), op.Registry); err == nil || !strings.Contains(err.Error(), "elided") {
		t.Errorf("error %v, want one that says that elements were elided", err)
	}
}

func TestDumpToAFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := passes.DumpTo(path); err == nil {
		t.Error("a file was taken for a folder")
	}
}

func TestTransposesThatAreLeftAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"a pair cancels": {`graph "g"(%x: f32[2,3]) {
  %a: f32[3,2] = Transpose "a" (%x)
  %b: f32[2,3] = Transpose "b" (%a)
  return %b }`, []string{}},
		"one by one": {`graph "g"(%x: f32[2,3], %k: bool[]) {
  %a: f32[3,2] = Transpose "a" (%x)
  %y: f32[2,3] = If "if" (%k) {then_branch = graph "t"() {
    %r: f32[3,2] = Softmax "r" (%a)
    %b: f32[2,3] = Transpose "b" (%r)
    return %b
  }, else_branch = graph "e"() {
    return %x
  }}
  return %y }`, []string{"a", "b"}},
	} {
		pc := newContext()
		if err := passes.Run(t.Context(), pc, graphtest.Parse(t, c.text), passes.Options{}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(pc.Report.Transposes, c.want) {
			t.Errorf("%s: %q are left, want %q", name, pc.Report.Transposes, c.want)
		}
	}
}
