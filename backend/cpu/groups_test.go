package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"spc/backend/ref"
)

// Convolutions in groups compute what their operator does, from planes where they are, from strips of them and from
// gathered panels, on any number of threads.
func TestGroupedConvolutionsAgreeWithTheOperator(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range 80 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		groups := 2 + r.IntN(6)
		x := []int{1 + r.IntN(2), groups * (1 + r.IntN(20)), 1 + r.IntN(20), 1 + r.IntN(40)}
		w := []int{groups * (1 + r.IntN(40)), x[1] / groups, 1 + r.IntN(5), 1 + r.IntN(5)}
		strides, dilations := []int{1 + r.IntN(3), 1 + r.IntN(3)}, []int{1 + r.IntN(2), 1 + r.IntN(2)}
		switch round % 8 {
		case 0: // planes of which few fit into a panel
			x[2], x[3] = 60+r.IntN(100), 60+r.IntN(100)
		case 1: // rows of a kernel that lie far apart
			w[3], dilations[0] = 1, 1+r.IntN(9)
		case 2: // a long kernel over one axis
			x[2], w[2], w[3] = 1, 1, 100+r.IntN(200)
		case 3:
			w[2], w[3] = 1, 1
		}
		pads := []int{r.IntN(1 + w[2]/2), r.IntN(1 + w[3]/2), r.IntN(1 + w[2]/2), r.IntN(1 + w[3]/2)}
		if round%8 == 2 {
			pads[1], pads[3], dilations[1] = w[3]/2, w[3]/2, 1
		}
		g, in, err := oneConv(r, "Conv", x, w, groups, strides, dilations, pads, r.IntN(2) == 0)
		if err != nil {
			continue // a window larger than the image
		}
		want, err := ref.Run(context.Background(), g, in)
		if err != nil {
			t.Fatal(err)
		}
		for threads := 1; threads <= 3; threads++ {
			got, err := run(context.Background(), loadGraph(t, g, threads), in)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, fmt.Sprintf("round %d: %v", round, g), got[0], want[0])
		}
	}
}
