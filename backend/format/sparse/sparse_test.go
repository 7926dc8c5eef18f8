package sparse

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/format/emit"
	"spc/backend/format/ukernel"
	"spc/backend/machine"
	"spc/ir/tensor"
)

// random returns a matrix of which about one in so many elements is not zero.
func random(m, k, in int) *tensor.Tensor {
	rng := rand.New(rand.NewPCG(uint64(m), uint64(k)))
	w := tensor.New(tensor.F32, m, k)
	for i := range w.F32s() {
		if rng.IntN(in) == 0 {
			w.F32s()[i] = rng.Float32() - 0.5
		}
	}
	return w
}

// TestKernelsOfEveryInstructionSet multiplies in one segment and in several,
// with 16 and with 32 bit indices.
func TestKernelsOfEveryInstructionSet(t *testing.T) {
	for _, c := range []struct{ m, k, in, r, c int }{
		{9, 100, 3, 1, 1}, {33, 700, 2, 1, 1}, {7, 900, 2, 1, 3}, {3, 70_000, 10, 1, 1}, {3, 70_000, 5000, 1, 1},
		{21, 50, 4, 2, 1}, {21, 900, 3, 4, 4}, {5, 70_000, 3000, 4, 1}, {40, 600, 9, 32, 8}, {13, 33, 2, 6, 5},
	} {
		w := random(c.m, c.k, c.in)
		b, err := Find(w, c.r, c.c, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, kern := range ukernel.Available() {
			k, err := b.bind("test", kern)
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("f32_test_%dx64__%s", Height(c.r), kern.ISA); k.Name() != want {
				t.Errorf("kernel %s, want %s", k.Name(), want)
			}
			check(t, k, w, fmt.Sprintf("%+v by %s", c, k.Name()))
		}
	}
}

func TestManyColumnsAreMultipliedByGeneratedCode(t *testing.T) {
	if !emit.Available() {
		t.Skip("no code is generated here")
	}
	const k = 300
	w := random(70, k, 4)
	b, err := Find(w, 1, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	few, err := b.Kernel("test")
	if err != nil {
		t.Fatal(err)
	}
	sizer := few.(backend.Sizer)
	if sizer.Sized(generatedColumns-1) != few {
		t.Error("code is generated for few columns")
	}
	many := sizer.Sized(generatedColumns)
	if want := "f32_test_1x64_generated__" + ukernel.Best().ISA; many.Name() != want {
		t.Errorf("kernel %s, want %s", many.Name(), want)
	}
	if sizer.Sized(generatedColumns+1) != many {
		t.Error("code is generated twice")
	}
	at, bounds := make([]int, k), []int{0, 200, k}
	for i := range at {
		at[i] = i % 200 * backend.Panel
	}
	placed := many.(backend.Placer).Placed(bounds, at)
	for _, kern := range []backend.FloatKernel{many, placed} {
		kern.(backend.Warmer).Warm(false)
		d := kern.(*kernel[uint16])
		if d.code() == nil {
			t.Fatalf("%s has no code", d.Name())
		}
		check(t, d, w, "generated")
		d.code = func() *emit.Code { return nil }
		check(t, d, w, "generated, without code")
	}
}

func TestBlocksAreNotMultipliedByGeneratedCode(t *testing.T) {
	w := random(40, 90, 3)
	for _, rows := range []int{2, 4, 8} {
		b, err := Find(w, rows, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		kern, err := b.Kernel("test")
		if err != nil {
			t.Fatal(err)
		}
		if kern.(backend.Sizer).Sized(math.MaxInt) != kern {
			t.Errorf("blocks of %d rows have another kernel for many columns", rows)
		}
	}
}

func check(t *testing.T, k backend.FloatKernel, w *tensor.Tensor, what string) {
	t.Helper()
	rows, cols := w.Dim(0), w.Dim(1)
	for _, n := range []int{1, backend.Panel} {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		x := make([]float32, cols*n)
		for i := range x {
			x[i] = rng.Float32() - 0.5
		}
		y := make([]float32, (rows+k.Tile())*n)
		if n == 1 {
			k.Vec(y, x, 0, rows)
		} else {
			for b, at := range k.Bounds()[:len(k.Bounds())-1] {
				k.Panel(y, x[at*n:], b, n/backend.Granule, 0, rows)
			}
		}
		for i := range rows * n {
			var sum float64
			for j, v := range w.F32s()[i/n*cols : (i/n+1)*cols] {
				sum += float64(v) * float64(x[j*n+i%n])
			}
			if math.Abs(float64(y[i])-sum) > 1e-4 {
				t.Fatalf("%s: y[%d,%d] = %v, want %v", what, i/n, i%n, y[i], sum)
			}
		}
	}
}

func TestHeightDividesTheBlock(t *testing.T) {
	for r, want := range map[int]int{1: 1, 2: 2, 3: 1, 4: 4, 6: 2, 12: 4, 16: 16, 24: 8, 32: 16, 1023: 1, 1024: 16} {
		if got := Height(r); got != want {
			t.Errorf("blocks of %d rows in vectors of %d, want %d", r, got, want)
		}
	}
}

func TestShapeReadsWhatItWrites(t *testing.T) {
	if r, c, err := Shape("16x4"); r != 16 || c != 4 || err != nil {
		t.Errorf("%d x %d, %v", r, c, err)
	}
	for _, s := range []string{"", "4", "4x", "x4", "0x1", "1x0", "-1x1", "+1x1", "04x1", "4x1 ", "4X1", "4x1x1", "1025x1", "4x4+2:4", "99999999999999999999x1"} {
		if _, _, err := Shape(s); err == nil || !strings.Contains(err.Error(), "want RxC") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestIndicesAreAsNarrowAsTheyCanBe(t *testing.T) {
	for n, want := range map[int]tensor.DType{1: tensor.U16, 65535: tensor.U16, 65536: tensor.U32, 1 << 20: tensor.U32} {
		last := []uint32{0, uint32(n - 1)}
		narrow := Narrow(last, n, 2)
		if narrow.DType() != want || IndexType(n) != want {
			t.Errorf("indices of %d are %v, want %v", n, narrow.DType(), want)
		}
		if wide := Widen(narrow); wide[1] != last[1] {
			t.Errorf("%d comes back as %d", last[1], wide[1])
		}
	}
}

func TestFindRefusesAWidthThatIsTooSmallOrTooLarge(t *testing.T) {
	w := tensor.From([]float32{1, 2, 0, 4}, 2, 2)
	for width, want := range map[int]string{1: "rows from 0 on have 2 blocks, want at most 1: it does not fit", 3: "3 blocks in a row of 2"} {
		if _, err := Find(w, 1, 1, width); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Weights of 16 bits are widened once for many columns, with code where f32 ones have some.
func TestManyColumnsWidenOnce(t *testing.T) {
	for _, rows := range []int{1, 4} {
		w := random(40, 90, 3).To(tensor.BF16).To(tensor.F32)
		b, err := Find(w, rows, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		full, err := b.Kernel("test")
		if err != nil {
			t.Fatal(err)
		}
		b.Values = Values(tensor.From(b.Values.Float32s(), b.Values.Len()).To(tensor.BF16))
		narrow, err := b.Kernel("test")
		if err != nil {
			t.Fatal(err)
		}
		sizer := narrow.(backend.Sizer)
		if sizer.Sized(machine.WidenedColumns-1) != narrow {
			t.Errorf("blocks of %d rows: a weight is widened for few columns", rows)
		}
		wide := sizer.Sized(math.MaxInt)
		if wide == narrow || wide != sizer.Sized(math.MaxInt) {
			t.Errorf("blocks of %d rows: a weight is not widened once", rows)
		}
		if want := full.(backend.Sizer).Sized(math.MaxInt).Name(); wide.Name() != want {
			t.Errorf("blocks of %d rows: kernel %s, want %s", rows, wide.Name(), want)
		}
		check(t, wide, w, "widened")
	}
}
