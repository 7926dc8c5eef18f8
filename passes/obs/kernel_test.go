package obs

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
)

// eachSet runs a test with each set of kernels that the machine has, and with none.
func eachSet(t *testing.T, do func(t *testing.T)) {
	before := fast
	defer func() { fast = before }()
	for _, k := range append(native(), nil) {
		name := "plain"
		if k != nil {
			name = k.isa
		}
		t.Run(name, func(t *testing.T) {
			fast = k
			do(t)
		})
	}
}

// TestSubRows compares bits with the definition, at every length around those of the
// vectors, and checks that elements beyond stay.
func TestSubRows(t *testing.T) {
	eachSet(t, func(t *testing.T) {
		rng := newRand(t, 14)
		fill := func(x []float64) []float64 {
			for i := range x {
				x[i] = rng.NormFloat64()
			}
			return x
		}
		for n := range 35 {
			for rows := range 19 {
				v := fill(make([]float64, 20*(n+3)))
				at := make([]int, rows)
				for q := range at {
					at[q] = rng.IntN(len(v) - n)
				}
				columns, ldc := batch(), n+2
				c := fill(make([]float64, columns*ldc))
				a := fill(make([]float64, rows*columns))
				want := append([]float64(nil), c...)
				for b := range columns {
					for j := range n {
						for q := range rows {
							want[b*ldc+j] -= float64(a[q*columns+b] * v[at[q]+j])
						}
					}
				}
				one := append([]float64(nil), c[:n+2]...)
				factors := make([]float64, rows)
				for q := range factors {
					factors[q] = a[q*columns]
				}
				subRows(one[:n], factors, v, at)
				subColumns(c, ldc, n, a, v, at, make([]float64, rows))
				for j, x := range want {
					if math.Float64bits(c[j]) != math.Float64bits(x) {
						t.Fatalf("%d rows of %d: element %d of %d columns is %v, want %v", rows, n, j, columns, c[j], x)
					}
					if j < len(one) && math.Float64bits(one[j]) != math.Float64bits(x) {
						t.Fatalf("%d rows of %d: element %d is %v, want %v", rows, n, j, one[j], x)
					}
				}
			}
		}
	})
}

// TestKernelsGiveTheSameBytes prunes with each set of kernels.
func TestKernelsGiveTheSameBytes(t *testing.T) {
	rng := newRand(t, 15)
	l := randomLayer(rng, 7, 90)
	var want []byte
	eachSet(t, func(t *testing.T) {
		var out bytes.Buffer
		s := solver(t, l)
		for _, text := range allPatterns {
			p := parse(t, text)
			for _, method := range []Method{Exact, SparseGPT} {
				r := mustPrune(t, s, Options{Pattern: p, Method: method, Keep: Keep(p, l.Rows, l.Cols, 0.5)})
				if method == Exact {
					checkLeastSquares(t, s, r)
				}
				if err := binary.Write(&out, binary.LittleEndian, r.W); err != nil {
					t.Fatal(err)
				}
			}
		}
		if want == nil {
			want = out.Bytes()
		} else if !bytes.Equal(want, out.Bytes()) {
			t.Error("other bytes than with the best kernels")
		}
	})
}
