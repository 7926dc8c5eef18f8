package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"spc/backend/ref"
)

// Convolutions of images of any size compute what their operator does; of small ones the rows of the weight are the lanes.
func TestNarrowConvolutionsAgreeWithTheOperator(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	narrow, disjoint := map[bool]int{}, 0 // by whether windows are one pixel
	for round := range 200 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		x := []int{1 + r.IntN(8)/7, 1 + r.IntN(300), 1 + r.IntN(12), 1 + r.IntN(12)}
		w := []int{1 + r.IntN(200), x[1], 1, 1}
		if round%5 == 0 {
			x[1] = 256 + r.IntN(300) // more than a block
			w[1] = x[1]
		}
		var strides, dilations, pads []int
		if round%2 == 0 {
			w[2], w[3] = 1+r.IntN(3), 1+r.IntN(4)
			strides, dilations, pads = []int{1 + r.IntN(2), 1 + r.IntN(2)}, []int{1 + r.IntN(2), 1}, []int{r.IntN(3), r.IntN(3), r.IntN(3), r.IntN(3)}
			x[1] = min(x[1], 100)
			w[1] = x[1]
		}
		apart := round%4 == 2
		if apart { // windows that share no pixel, some of which are left out
			w[2], w[3] = 1+r.IntN(4), 2+r.IntN(4)
			dilations = []int{1 + r.IntN(2), 1}
			strides = []int{(w[2]-1)*dilations[0] + 1 + r.IntN(2), w[3] + r.IntN(2)}
			pads = []int{0, 0, r.IntN(2), 0}
			x[2], x[3] = strides[0]*(1+r.IntN(4)), strides[1]*(1+r.IntN(4))
		}
		g, in, err := oneConv(r, "Conv", x, w, 1, strides, dilations, pads, r.IntN(2) == 0)
		if err != nil {
			continue // windows beyond the padded image
		}
		want, err := ref.Run(context.Background(), g, in)
		if err != nil {
			t.Fatal(err)
		}
		threads := 1 + round%3
		p := loadGraph(t, g, threads)
		got, err := run(context.Background(), p, in)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, fmt.Sprintf("round %d: %v", round, g), got[0], want[0])
		s, err := p.(*program).specialise(in)
		if err != nil {
			t.Fatal(err)
		}
		if y := want[0].Shape(); s.main.steps[0].link() == nil && y[2]*y[3] > 1 {
			narrow[round%2 == 1]++
			if apart {
				disjoint++
			}
		}
	}
	if narrow[true] < 15 || narrow[false] < 15 || disjoint < 10 {
		t.Errorf("narrow convolutions, by whether they are pointwise: %v, %d with windows apart", narrow, disjoint)
	}
}
