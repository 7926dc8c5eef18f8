package i8

import (
	"math/rand/v2"
	"testing"

	"spc/backend/format/ikernel"
	"spc/ir/tensor"
)

// weights makes an m x k weight whose values are about spread steps from zero.
func weights(r *rand.Rand, m, k int, spread float64) *tensor.Tensor {
	w := tensor.New(tensor.I8, m, k)
	data := tensor.Data[int8](w)
	for i := range data {
		data[i] = int8(min(max(r.NormFloat64()*spread, -128), 127))
	}
	return w
}

func TestPanelsAndTokensMatchTheDefinitionOnEverySet(t *testing.T) {
	const seed = 9
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, set := range ikernel.Available() {
		for _, m := range []int{1, 4, 5, 16, 65} {
			for _, k := range []int{1, 4, 65, 260} {
				for _, spread := range []float64{30, 100} { // few pairs that are not narrow, and many
					w := weights(r, m, k, spread)
					d, data := bindDense(w, set), tensor.Data[int8](w)
					x := make([]uint8, d.Groups()*ikernel.PanelRow)
					for i := range x {
						x[i] = 255 - uint8(r.IntN(16))
					}
					for r := range m {
						sum := int32(0)
						for _, v := range data[r*k : (r+1)*k] {
							sum += int32(v)
						}
						if d.Sums()[r] != sum {
							t.Fatalf("%s: %d x %d: sum of row %d is %d, want %d", d.Name(), m, k, r, d.Sums()[r], sum)
						}
					}
					c := make([]int32, m*ikernel.Columns)
					for _, from := range []int{0, m / 2} {
						for _, cols := range []int{1, 17, 64} {
							d.Panel(c, x, cols, from, m)
							for i := from; i < m; i++ {
								for j := range cols {
									want := int32(0)
									for q, v := range data[i*k : (i+1)*k] {
										want += int32(v) * int32(x[q/4*ikernel.PanelRow+4*j+q%4])
									}
									if got := c[(i-from)*ikernel.Columns+j]; got != want {
										t.Fatalf("%s: %d x %d, %d columns: row %d column %d is %d, want %d", d.Name(), m, k, cols, i, j, got, want)
									}
								}
							}
						}
					}
					const tokens = 5
					ldx := 4 * ikernel.Groups(k)
					c = make([]int32, tokens*ikernel.Columns)
					xs := append(x[:len(x):len(x)], make([]uint8, tokens*ldx)...)
					for r0 := 0; r0 < m; r0 += ikernel.Columns {
						r1 := min(m, r0+ikernel.Columns)
						d.Tokens(c, xs, ldx, tokens, r0, r1)
						for i := range tokens {
							for j := r0; j < r1; j++ {
								want := int32(0)
								for q, v := range data[j*k : (j+1)*k] {
									want += int32(v) * int32(xs[i*ldx+q])
								}
								if got := c[i*ikernel.Columns+j-r0]; got != want {
									t.Fatalf("%s: %d x %d: token %d of row %d is %d, want %d", d.Name(), m, k, i, j, got, want)
								}
							}
						}
					}
				}
			}
		}
	}
}
