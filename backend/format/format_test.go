package format

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/machine"
	"spc/backend/predict"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

func TestFormatsHaveNamesOfTheirOwn(t *testing.T) {
	if Table[0].Name() != choose.Dense {
		t.Errorf("%s comes first", Table[0].Name())
	}
	for i, f := range Table {
		if Lookup(f.Name()) != f || Choices(machine.Default)[i].Name() != f.Name() {
			t.Errorf("%s is found as something else", f.Name())
		}
	}
	if Lookup("ellpack") != nil {
		t.Error("there is a format ellpack")
	}
}

// chosen is the format and the configuration that the default model prefers.
func chosen(t *testing.T, w *tensor.Tensor, pattern string, n int) string {
	t.Helper()
	name, _ := best(choose.NewMatrix(w, pattern), n)
	return name
}

// best is the candidate that the default model prefers, and its kernel.
func best(w *choose.Matrix, n int) (name, kernel string) {
	var best choose.Cost
	var least float64
	for _, f := range Table {
		for _, c := range f.Costs(machine.Default, w, n) {
			s, _ := predict.Of(machine.Default).Predict(c, w.Dim(0), w.Dim(1), n)
			if name == "" || s < least || s == least && c.Bytes < best.Bytes {
				best, least, name = c, s, f.Name()+":"+c.Config
			}
		}
	}
	return name, best.Kernel
}

func TestPatternsFindTheirFormats(t *testing.T) {
	for _, c := range []struct {
		pattern  string
		sparsity float64
		n        int
		want     string
	}{
		{"unstructured", 0, 196, "dense:"},
		{"unstructured", 0.1, 196, "dense:"},
		{"unstructured", 0.9, 196, "csr:"},
		{"uniform", 0.9, 196, "ell:1x1"},
		{"uniform-block:4x1", 0.8, 196, "ell:4x1"},
		{"block:4x1", 0.8, 196, "block:4x1"},
		{"block:8x1", 0.5, 196, "block:8x1"},
		{"block:8x8", 0.9, 196, "block:8x8"},
		{"1:8", 0, 196, "nm:1:8"},
		{"block:16x1", 0.9, 1, "block:16x1"},
		{"unstructured", 0.3, 1, "dense:"},
	} {
		if got := chosen(t, pruned(t, 256, 512, c.pattern, c.sparsity), c.pattern, c.n); got != c.want {
			t.Errorf("%s at %v, N = %d: %s, want %s", c.pattern, c.sparsity, c.n, got, c.want)
		}
	}
}

// Of what is sparse but for a few rows hyb stores single elements for few columns, where rows of csr wait for the long ones, and
// blocks for any number; for many columns csr has code for single elements.
func TestFewLongRowsFindTheirFormat(t *testing.T) {
	for _, c := range []struct {
		pattern string
		n       int
		want    string
	}{
		{"uniform", 1, "hyb:1x1+51"}, {"uniform", 196, "csr:"},
		{"uniform-block:16x1", 1, "hyb:16x1+51"}, {"uniform-block:4x1", 49, "hyb:4x1+51"}, {"uniform-block:8x1", 196, "hyb:8x1+51"},
	} {
		w := pruned(t, 512, 512, c.pattern, 0.9)
		if got := chosen(t, w, c.pattern, c.n); strings.HasPrefix(got, "hyb") {
			t.Errorf("%s without long rows, N = %d: %s", c.pattern, c.n, got)
		}
		for row := 50; row < 512; row += 100 {
			for i := range 512 {
				w.F32s()[row*512+i] = 1
			}
		}
		if got := chosen(t, w, "", c.n); got != c.want {
			t.Errorf("%s with long rows, N = %d: %s, want %s", c.pattern, c.n, got, c.want)
		}
	}
}

// What takes no work has an efficiency all the same, by which it is divided.
func TestWeightsOfZerosHaveCosts(t *testing.T) {
	for _, f := range Table {
		for _, n := range []int{1, 4, 7, 64, 1000} {
			for _, c := range f.Costs(machine.Default, choose.NewMatrix(tensor.New(tensor.F32, 4, 16), ""), n) {
				if s, _ := predict.Of(machine.Default).Predict(c, 4, 16, n); !(c.Efficiency > 0) || !(s >= 0) {
					t.Errorf("%s %s of %d columns: efficiency %v, %v s", f.Name(), c.Config, n, c.Efficiency, s)
				}
			}
		}
	}
}

// A convolution whose dense kernels run by Winograd's algorithm needs more zeros
// than another product of its size before a sparse format wins.
func TestSparseConvolutionsCompeteWithWinograd(t *testing.T) {
	slide := func(stride int) *ir.Slide {
		return &ir.Slide{Kernel: []int{3, 3}, Stride: []int{stride, stride}, Dilation: []int{1, 1}, Images: ir.Sym("batch"), Out: []ir.Dim{ir.Size(28), ir.Size(28)}}
	}
	for _, c := range []struct {
		slide    *ir.Slide
		sparsity float64
		want     string
		kernel   string
	}{
		{nil, 0, "dense:", "f32_gemm"},
		{slide(1), 0, "dense:", "f32_winograd_4x4"},
		{slide(2), 0, "dense:", "f32_gemm"},
		{nil, 0.6, "csr:", "f32_csr_1x64"},
		{slide(1), 0.6, "dense:", "f32_winograd_4x4"},
		{slide(2), 0.6, "csr:", "f32_csr_1x64"},
		{slide(1), 0.9, "csr:", "f32_csr_1x64"},
	} {
		mat := choose.NewMatrix(pruned(t, 128, 9*128, "unstructured", c.sparsity), "unstructured")
		mat.Slide = c.slide
		if got, kernel := best(mat, 28*28); got != c.want || kernel != c.kernel {
			t.Errorf("%+v at %v: %s by %s, want %s by %s", c.slide, c.sparsity, got, kernel, c.want, c.kernel)
		}
	}
}

func TestCheckComparesTheStoreWithTheType(t *testing.T) {
	w := pruned(t, 12, 20, "unstructured", 0.8)
	s, _ := stored(t, w, "csr", "")
	s.View = ir.View{Perm: []int{1, 0}, RowAxes: 1}
	typ := ir.Shaped(tensor.F32, 20, 12)
	if err := Check(s, typ); err != nil {
		t.Fatal(err)
	}
	back, err := Unpack(s, typ)
	if err != nil || !back.Equal(w.Permute(1, 0)) {
		t.Errorf("unpacked as %v, %v", back, err)
	}
	for name, c := range map[string]struct {
		change func(s *ir.Store)
		typ    ir.Type
		want   error
	}{
		"unknown format": {func(s *ir.Store) { s.Format = "ellpack" }, typ, ir.ErrUnsupported},
		"other format":   {func(s *ir.Store) { s.Format = "ell" }, typ, ir.ErrCorrupt},
		"other shape":    {func(s *ir.Store) {}, ir.Shaped(tensor.F32, 12, 20), ir.ErrCorrupt},
		"other type":     {func(s *ir.Store) {}, ir.Shaped(tensor.F64, 20, 12), ir.ErrCorrupt},
		"open shape":     {func(s *ir.Store) {}, ir.Of(tensor.F32, ir.Sym("n"), ir.Size(12)), ir.ErrCorrupt},
		"huge shape":     {func(s *ir.Store) {}, ir.Shaped(tensor.F32, 1<<40, 1<<40), ir.ErrCorrupt},
		"broken view":    {func(s *ir.Store) { s.View.Perm = []int{1, 1} }, typ, ir.ErrCorrupt},
		"broken part":    {func(s *ir.Store) { s.Parts = s.Parts[1:] }, typ, ir.ErrCorrupt},
	} {
		broken := *s
		c.change(&broken)
		if err := Check(&broken, c.typ); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// Each row of kernels has those of its types: what a weight stored in a type is multiplied by says so.
func TestRowsHaveKernelsOfTheirTypes(t *testing.T) {
	w := tensor.New(tensor.F32, 32, 64)
	for i := range w.F32s() {
		if i%4 == i/64%4 {
			w.F32s()[i] = float32(i%100 - 50)
		}
	}
	config := map[string]string{"ell": "1x1", "nm": "2:4", "block": "1x4", "hyb": "1x1+3"}
	for _, f := range Table {
		types := map[tensor.DType]bool{}
		for _, row := range f.Kernels {
			for _, dt := range row.Weights {
				what := fmt.Sprintf("%s of %v", f.Name(), dt)
				if types[dt] || f.For(dt) == nil || f.For(dt).Sums != row.Sums {
					t.Errorf("%s stands in two rows", what)
				}
				types[dt] = true
				parts, err := f.Pack(w, config[f.Name()])
				if err != nil {
					t.Fatal(err)
				}
				s := &ir.Store{Format: f.Name(), Config: config[f.Name()], Rows: 32, Cols: 64, Parts: choose.Narrow(parts, dt)}
				if err := f.Check(s); err != nil || backend.Elements(s) != dt {
					t.Errorf("%s: elements %v, %v", what, backend.Elements(s), err)
				}
				k, err := f.Kernel(s)
				if err != nil {
					t.Errorf("%s: %v", what, err)
					continue
				}
				_, floats := k.(backend.FloatKernel)
				_, integers := k.(backend.IntegerKernel)
				if floats != (row.Sums == tensor.F32 && row.X == tensor.F32) || integers != (row.Sums == tensor.I32 && row.X == tensor.U8) || !strings.HasSuffix(k.Name(), "__"+row.ISA) {
					t.Errorf("%s by %v with sums %v on %s is multiplied by %s", what, row.X, row.Sums, row.ISA, k.Name())
				}
				x := row.X
				if x == tensor.F32 {
					x = tensor.F16
				}
				if kernels, err := f.GPU(s, x); row.GPU != nil && (len(kernels) == 0 || err != nil) {
					t.Errorf("%s: %d kernels of a GPU, %v", what, len(kernels), err)
				}
			}
		}
	}
}

// How much faster than dense tokens are multiplied is predicted within two fifths of what one core of an EPYC (family 25
// model 17) measured on 2026-11-26, whether they are few, rows are short, or rows are few.
func TestTokensAreRatedAsMeasured(t *testing.T) {
	for _, c := range []struct {
		m, k, n                 int
		pattern, format, config string
		measured                float64
	}{
		{4096, 16, 1, "uniform", "nm", "3:16", 1.5}, {4096, 24, 1, "uniform", "nm", "5:32", 2.05},
		{64, 2048, 1, "uniform", "ell", "1x1", 2.68}, {64, 2048, 1, "2:4", "nm", "2:4", 1.65},
		{64, 2048, 4, "uniform", "ell", "1x1", 1.29}, {64, 2048, 4, "2:4", "nm", "2:4", 0.74},
		{64, 2048, 8, "2:4", "nm", "2:4", 0.53}, {64, 2048, 8, "block:4x1", "block", "4x1", 1.53},
		{64, 2048, 20, "uniform", "ell", "1x1", 1.20}, {64, 2048, 20, "2:4", "nm", "2:4", 0.62},
		{64, 2048, 20, "block:4x1", "block", "4x1", 1.56}, {64, 2048, 32, "2:4", "nm", "2:4", 1.06},
		{64, 2048, 128, "uniform", "ell", "1x1", 2.76}, {64, 2048, 128, "2:4", "nm", "2:4", 1.53},
		{256, 512, 4, "uniform", "ell", "1x1", 1.30}, {256, 512, 4, "2:4", "nm", "2:4", 0.75},
		{16, 4096, 20, "uniform", "ell", "1x1", 0.98}, {16, 4096, 32, "uniform", "ell", "1x1", 1.23},
		{16, 4096, 128, "uniform", "ell", "1x1", 0.68}, {16, 4096, 128, "block:4x1", "block", "4x1", 0.78},
	} {
		sparsity := 0.8
		if c.pattern == "2:4" {
			sparsity = 0
		}
		mat := choose.NewMatrix(pruned(t, c.m, c.k, c.pattern, sparsity), "")
		got := seconds(mat, "dense", "", c.n) / seconds(mat, c.format, c.config, c.n)
		if !(got > c.measured/1.4 && got < 1.4*c.measured) {
			t.Errorf("%d x %d, %s in %s %s, %d tokens: predicted %.2f times as fast as dense, measured %.2f", c.m, c.k, c.pattern, c.format, c.config, c.n, got, c.measured)
		}
	}
}
