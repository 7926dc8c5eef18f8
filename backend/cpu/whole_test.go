package cpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// TestIntegers compares kernels of integers with their operators, in runs that follow each other.
func TestIntegers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var texts []string
	for _, kind := range []string{"Add", "Sub", "Mul", "Div", "Max", "Min"} {
		texts = append(texts,
			fmt.Sprintf(`(%%x: i64[7,3,5], %%z: i64[3,1]) { %%y: i64[7,3,5] = %s "n" (%%x, %%z) return %%y }`, kind),
			fmt.Sprintf(`(%%x: i64[4,1], %%z: i64[1,9]) { %%y: i64[4,9] = %s "n" (%%x, %%z) return %%y }`, kind))
	}
	for _, kind := range []string{"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"} {
		texts = append(texts, fmt.Sprintf(`(%%x: i64[5,6], %%z: i64[6]) { %%y: bool[5,6] = %s "n" (%%x, %%z) return %%y }`, kind))
	}
	integers := []string{"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}
	for kinds, types := range map[string][]string{
		"Add Sub Mul Div Max Min Mod PRelu Equal Less LessOrEqual Greater GreaterOrEqual": append(integers, "f64"),
		"BitwiseAnd BitwiseOr BitwiseXor":                                                 integers, "BitShift": integers[4:], "And Or Xor Equal": {"bool"},
	} {
		for kind := range strings.FieldsSeq(kinds) {
			for _, dt := range types {
				attributes, to := "", dt
				switch {
				case kind == "BitShift":
					attributes = fmt.Sprintf("{direction = %q}", []string{"LEFT", "RIGHT"}[r.IntN(2)])
				case kind == "Mod" && (dt == "f64" || r.IntN(2) == 0):
					attributes = "{fmod = 1}"
				case strings.Contains("Equal Less LessOrEqual Greater GreaterOrEqual", kind):
					to = "bool"
				}
				for _, shapes := range [][3]string{{"5,43", "5,43", "5,43"}, {"5,43", "", "5,43"}, {"4,1,3", "7,1", "4,7,3"}} {
					texts = append(texts, fmt.Sprintf(`(%%x: %[1]s[%[2]s], %%z: %[1]s[%[3]s]) { %%y: %[6]s[%[4]s] = %[5]s "n" (%%x, %%z) %[7]s return %%y }`,
						dt, shapes[0], shapes[1], shapes[2], kind, to, attributes))
				}
			}
		}
	}
	for _, dt := range append(integers, "f64", "f16", "bool") {
		for _, shapes := range [][4]string{{"5,43", "5,43", "5,43", "5,43"}, {"4,1,3", "7,1", "", "4,7,3"}, {"7,1", "1", "4,7,3", "4,7,3"}} {
			texts = append(texts, fmt.Sprintf(`(%%w: bool[%[2]s], %%x: %[1]s[%[3]s], %%z: %[1]s[%[4]s]) { %%y: %[1]s[%[5]s] = Where "n" (%%w, %%x, %%z) return %%y }`,
				dt, shapes[0], shapes[1], shapes[2], shapes[3]))
		}
	}
	for types := range casts {
		texts = append(texts, fmt.Sprintf(`(%%x: %v[37,71]) { %%y: %v[37,71] = Cast "n" (%%x) {to = %d} return %%y }`, types[0], types[1], int(types[1])))
	}
	for _, index := range []string{"i32", "i64"} {
		for _, dt := range []tensor.DType{tensor.Bool, tensor.F16, tensor.F32, tensor.I64} {
			for axis, shape := range []string{"4,5,3", "5,4,3", "5,3,4"} {
				texts = append(texts, fmt.Sprintf(`(%%x: %s[5,3], %%v: %v[2]) { %%d: i64[] = const {4} %%y: %v[%s] = OneHot "n" (%%x, %%d, %%v) {axis = %d} return %%y }`, index, dt, dt, shape, axis-3))
			}
		}
	}
	for _, text := range texts {
		g, err := ir.Parse(`graph "g"`+text, op.Registry)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Device{}.Load(g, backend.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			in := make([]*tensor.Tensor, len(g.Inputs))
			for i, v := range g.Inputs {
				shape, _ := v.Type.Shape()
				in[i] = whole(r, v.Type.DType, shape)
			}
			want, err := ref.Run(context.Background(), g, in)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]*tensor.Tensor, 1)
			if err := p.Run(context.Background(), in, got); err != nil {
				t.Fatal(err)
			}
			if !got[0].Equal(want[0]) {
				t.Errorf("%s\nof %v: %v, want %v", text, in, got[0], want[0])
			}
		}
		allFast(t, p, g)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// allFast fails unless a program has a kernel for each node of its graph.
func allFast(t *testing.T, p backend.Program, g *ir.Graph) {
	t.Helper()
	s, err := p.(*program).specialise(headers(g))
	if err != nil {
		t.Fatal(err)
	}
	for st := range s.nodes() {
		if !st.fast() {
			t.Errorf("no kernel for %v in %v", st.node, g)
		}
	}
	if err := s.drop(); err != nil {
		t.Error(err)
	}
}

func headers(g *ir.Graph) []*tensor.Tensor {
	in := make([]*tensor.Tensor, len(g.Inputs))
	for i, v := range g.Inputs {
		shape, _ := v.Type.Shape()
		in[i] = tensor.Header(v.Type.DType, shape...)
	}
	return in
}

// whole draws small numbers of a type, and floats that no integer is.
func whole(r *rand.Rand, dt tensor.DType, shape []int) *tensor.Tensor {
	x := tensor.New(tensor.F32, shape...)
	odd := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 3e9, -3e9, 1e19, -1e19, 1.5e19, 1e20, 300, -70000, 0.9, -0.9}
	some := 3
	if r.IntN(2) == 0 { // in some blocks none is
		some = 3000
	}
	for i := range x.F32s() {
		if x.F32s()[i] = float32(r.IntN(13) - 6); (dt == tensor.F32 || dt == tensor.F64) && r.IntN(some) == 0 {
			x.F32s()[i] = odd[r.IntN(len(odd))]
		}
	}
	return x.To(dt)
}
