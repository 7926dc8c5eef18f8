package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"spc/backend/ref"
)

// Pointwise convolutions of images of any size compute what their operator does; of small ones the rows of the weight
// are the lanes.
func TestPointwiseConvolutionsAgreeWithTheOperator(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	narrow := 0
	for round := range 150 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		x := []int{1 + r.IntN(8)/7, 1 + r.IntN(300), 1 + r.IntN(12), 1 + r.IntN(12)}
		w := []int{1 + r.IntN(200), x[1], 1, 1}
		if round%5 == 0 {
			x[1] = 256 + r.IntN(300) // more than a block
			w[1] = x[1]
		}
		g, in, err := oneConv(r, "Conv", x, w, 1, nil, nil, nil, r.IntN(2) == 0)
		if err != nil {
			t.Fatal(err)
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
		if s.main.steps[0].link() == nil && x[2]*x[3] > 1 {
			narrow++
		}
	}
	if narrow < 20 {
		t.Errorf("%d narrow convolutions", narrow)
	}
}
