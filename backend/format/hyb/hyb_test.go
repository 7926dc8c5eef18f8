package hyb

import (
	"math/rand/v2"
	"slices"
	"testing"

	"spc/backend"
	"spc/backend/format/csr"
	"spc/backend/format/formattest"
	"spc/backend/format/sparse"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

var configs = []string{"1x1+1", "2x1+3", "4x1+2", "8x1+5", "16x1+1"}

func TestHYB(t *testing.T) { formattest.Run(t, New(), configs...) }

func TestKernelsMayRunConcurrently(t *testing.T) { formattest.Concurrently(t, New(), configs...) }

func FuzzCheck(f *testing.F) { formattest.Fuzz(f, New(), configs...) }

func TestCheckRefusesBrokenLists(t *testing.T) {
	columns := func(s *ir.Store) []uint16 { return tensor.Data[uint16](s.Part("columns")) }
	rows := func(s *ir.Store) []uint32 { return tensor.Data[uint32](s.Part("rows")) }
	for _, config := range []string{"1x1+2", "4x1+3", "16x1+2"} {
		parsed, err := parse(config)
		if err != nil {
			t.Fatal(err)
		}
		vectors := sparse.Ceil(48, parsed.height) * parsed.width
		formattest.Refuses(t, New(), formattest.Sample(48, 40), config,
			formattest.Mutation{Name: "column of a vector out of range", Apply: func(s *ir.Store) { columns(s)[vectors-1] = 40 }},
			formattest.Mutation{Name: "column of the rest out of range", Apply: func(s *ir.Store) { columns(s)[len(columns(s))-1] = 40 }},
			formattest.Mutation{Name: "column of a vector twice", Apply: func(s *ir.Store) { columns(s)[1] = columns(s)[0] }},
			formattest.Mutation{Name: "columns of the rest that step back", Apply: func(s *ir.Store) {
				c := columns(s)[vectors:]
				c[0], c[1] = c[1], c[0]
			}},
			formattest.Mutation{Name: "an element in both lists", Apply: func(s *ir.Store) { columns(s)[vectors] = columns(s)[0] }},
			formattest.Mutation{Name: "a rest that begins late", Apply: func(s *ir.Store) { rows(s)[0] = 1 }},
			formattest.Mutation{Name: "a rest that steps back", Apply: func(s *ir.Store) { rows(s)[2] = rows(s)[3] + 1 }},
			formattest.Mutation{Name: "a rest past the end", Apply: func(s *ir.Store) { rows(s)[48]++ }},
			formattest.Mutation{Name: "a rest that ends early", Apply: func(s *ir.Store) { rows(s)[48]-- }},
			formattest.Mutation{Name: "no width", Apply: func(s *ir.Store) { s.Config = "4x1" }},
			formattest.Mutation{Name: "a width of nothing", Apply: func(s *ir.Store) { s.Config = "4x1+0" }},
			formattest.Mutation{Name: "a width that is no number", Apply: func(s *ir.Store) { s.Config = config + "x" }},
			formattest.Mutation{Name: "a width that overflows", Apply: func(s *ir.Store) { s.Config = "4x1+9223372036854775807" }},
			formattest.Mutation{Name: "blocks that are no vectors", Apply: func(s *ir.Store) { s.Config = "4x2+3" }},
			formattest.Mutation{Name: "a height without kernels", Apply: func(s *ir.Store) { s.Config = "3x1+3" }},
			formattest.Mutation{Name: "another height", Apply: func(s *ir.Store) { s.Config = "2x1+3" }},
			formattest.Mutation{Name: "columns of the narrow type", Apply: func(s *ir.Store) { s.Cols = 1 << 16 }},
		)
	}
}

func TestCheckRefusesValuesBelowTheMatrix(t *testing.T) {
	formattest.Refuses(t, New(), formattest.Sample(15, 40), "4x1+3",
		formattest.Mutation{Name: "a value below the last row", Apply: func(s *ir.Store) { s.Part("values").F32s()[4*3*4-1] = 1 }})
}

// longRows returns a matrix [m,k] that has vectors of r rows in a share of its places, the same in each block row, and some rows,
// one in so many, of which nothing is zero.
func longRows(m, k, r int, share float64, every int) *tensor.Tensor {
	rng := rand.New(rand.NewPCG(uint64(m), uint64(k)))
	w := tensor.New(tensor.F32, m, k)
	var used []int
	for i := range m {
		if i%r == 0 {
			used = rng.Perm(k)[:int(share*float64(k))]
		}
		for c := range k {
			if i%every == every/2 || slices.Contains(used, c) {
				w.F32s()[i*k+c] = rng.Float32() + 0.1
			}
		}
	}
	return w
}

func TestVectorsAreTheFullestAndTheRestWhatIsLeft(t *testing.T) {
	const m, k = 96, 64
	w := longRows(m, k, 4, 0.125, 48)
	parts, err := New().Pack(w, "4x1+8")
	if err != nil {
		t.Fatal(err)
	}
	s := &ir.Store{Format: Name, Config: "4x1+8", Rows: m, Cols: k, Parts: parts}
	vectors, rest, err := lists(s)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range vectors.Values.Float32s() {
		if v == 0 {
			t.Fatalf("element %d of a vector is zero: a single one was taken in place of a whole vector", i)
		}
	}
	for row := range m {
		want := 0
		if row%48 == 24 {
			want = k - 8
		}
		if n := int(rest.Ptr[row+1] - rest.Ptr[row]); n != want {
			t.Errorf("row %d has a rest of %d, want %d", row, n, want)
		}
	}
}

func TestOfferedIsWhatAFewRowsMakeLong(t *testing.T) {
	for _, c := range []struct {
		what string
		w    *tensor.Tensor
		want []string
	}{
		{"long rows among vectors of 4 rows", longRows(256, 128, 4, 0.125, 64), []string{"1x1+16", "2x1+16", "4x1+16", "8x1+31"}},
		{"long rows among single ones", longRows(256, 128, 1, 0.125, 64), []string{"1x1+16", "2x1+31"}},
		{"rows of one length", longRows(256, 128, 4, 0.125, 1000), nil},
		{"every second row long", longRows(256, 128, 1, 0.125, 2), nil},
		{"zeros", tensor.New(tensor.F32, 16, 64), nil},
	} {
		var got []string
		for _, cost := range New().Costs(machine.Default, choose.NewMatrix(c.w, ""), 64) {
			got = append(got, cost.Config)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// What a GPU multiplies is what csr has for the same weight.
func TestGPUsMultiplyItAsCSR(t *testing.T) {
	w := longRows(64, 96, 4, 0.125, 32)
	same := func(f *backend.Format, config string) []backend.GPUKernel {
		parts, err := f.Pack(w, config)
		if err != nil {
			t.Fatal(err)
		}
		k, err := f.GPU(&ir.Store{Format: f.Name(), Config: config, Rows: 64, Cols: 96, Parts: parts}, tensor.F16)
		if err != nil || len(k) == 0 {
			t.Fatalf("%s: %d kernels, %v", f.Name(), len(k), err)
		}
		return k
	}
	a, b := same(New(), "4x1+12"), same(sparse.New(csr.Scheme{}), "")
	if len(a) != len(b) {
		t.Fatalf("%d kernels, csr has %d", len(a), len(b))
	}
	for i := range a {
		if a[i].Name != b[i].Name || !slices.EqualFunc(a[i].Parts, b[i].Parts, (*tensor.Tensor).Equal) {
			t.Errorf("kernel %d is %s, csr has %s", i, a[i].Name, b[i].Name)
		}
	}
}
