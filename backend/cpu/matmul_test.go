package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"spc/backend"
	"spc/backend/ref"
)

// Gemm adds a C of every shape that broadcasts to the result, constant or not, whatever
// the sizes, the other attributes, and whether the right side is constant.
func TestGemmTakesEveryC(t *testing.T) {
	const seed = 40
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	bound := 0
	for _, size := range [][3]int{{1, 1, 1}, {1, 7, 5}, {7, 1, 5}, {7, 5, 1}, {2, 40, 9}, {40, 2, 9}, {33, 65, 17}} {
		rows, cols, k := size[0], size[1], size[2]
		for _, c := range [][]int{nil, {}, {1}, {1, 1}, {cols}, {1, cols}, {rows, 1}, {rows, cols}} {
			for choice := range 48 {
				ta, tb, constant, computed := choice&1, choice>>1&1, choice>>2&1 == 1, choice >= 24
				factors := [][2]float64{{1, 1}, {0.5, -2}, {1, 0}}[choice>>3%3]
				x := &text{rng: r}
				x.input([][]int{{rows, k}, {k, rows}}[ta]...)
				if right := [][]int{{k, cols}, {cols, k}}[tb]; computed {
					x.input(right...)
				} else {
					x.constant(right...)
				}
				switch {
				case c == nil:
				case constant:
					x.constant(c...)
				default:
					x.input(c...)
				}
				src, g, in := x.node(t, func(*text) (string, string) {
					return "Gemm", fmt.Sprintf("transA = %d, transB = %d, alpha = %.1f, beta = %.1f", ta, tb, factors[0], factors[1])
				}, func() float32 { return float32(r.NormFloat64()) })
				if g == nil {
					t.Fatalf("no types in\n%s", src)
				}
				want, err := ref.Run(context.Background(), g, in)
				if err != nil {
					t.Fatal(err)
				}
				p, err := Device{}.Load(g, backend.Options{Threads: 1})
				if err != nil {
					t.Fatal(err)
				}
				got, err := run(context.Background(), p, in)
				if err != nil {
					t.Fatalf("%v in\n%s", err, src)
				}
				if s, err := p.(*program).specialise(in); err == nil && s.main.steps[0].fast() {
					bound++
				}
				p.Close()
				compare(t, src, got[0], want[0])
			}
		}
	}
	if bound < 1500 {
		t.Errorf("a kernel was bound to only %d nodes", bound)
	}
}
