package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
)

// Convolutions by sparse weights of images that are divided into bands compute what their operator does, whatever the
// kernel, strides, dilations and pads, on any number of threads.
func TestBandsAgreeWithTheOperator(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	banded, round, enough := 0, 0, rounds(8)
	for ; round < 3*enough || banded < enough && round < 120; round++ {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		x := []int{1 + r.IntN(2), 16 + r.IntN(24), 110 + r.IntN(60), 110 + r.IntN(60)}
		w := []int{1 + r.IntN(8), x[1], 1 + r.IntN(4), 2 + r.IntN(3)}
		strides, dilations := []int{1 + r.IntN(3)/2, 1 + r.IntN(3)/2}, []int{1 + r.IntN(2), 1}
		pads := []int{r.IntN(1 + w[2]/2), r.IntN(1 + w[3]/2), r.IntN(1 + w[2]/2), r.IntN(1 + w[3]/2)}
		if round%8 == 7 { // one row of the image is more than a band
			x, w = []int{1, 500 + r.IntN(200), 2 + r.IntN(3), 200 + r.IntN(60)}, []int{2, 0, 1, 2 + r.IntN(3)}
			w[1], strides, pads = x[1], []int{1, 1}, []int{0, 1, 0, 1}
		}
		if round%8 == 3 { // a volume
			x, w = []int{1, 16, 2 + r.IntN(3), 60 + r.IntN(30), 60 + r.IntN(30)}, []int{1 + r.IntN(8), 16, 1 + r.IntN(3), 3, 3}
			strides, dilations, pads = []int{1, 1, 1}, []int{1, 1, 1}, []int{w[2] / 2, 1, 1, w[2] / 2, 1, 1}
		}
		g, in, err := oneConv(r, "Conv", x, w, 1, strides, dilations, pads, r.IntN(2) == 0)
		if err != nil {
			t.Fatal(err)
		}
		want, err := ref.Run(context.Background(), g, in)
		if err != nil {
			t.Fatal(err)
		}
		store(t, g, [][2]string{{"csr", ""}, {"ell", "4x1"}, {"block", "4x1"}}[r.IntN(3)])
		for threads := 1; threads <= 3; threads++ {
			got, err := run(context.Background(), loadGraph(t, g, threads), in)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, fmt.Sprintf("round %d on %d threads: %v", round, threads, g), got[0], want[0])
		}
		if divided(t, g) {
			banded++
		}
	}
	if banded < enough {
		t.Errorf("%d of %d convolutions in bands", banded, round)
	}
}

// divided reports whether the images of the convolution of g are divided.
func divided(t *testing.T, g *ir.Graph) bool {
	n := g.Nodes[0]
	_, kernels, err := loadGraph(t, g, 1).(*program).weightOf(n, 1)
	if err != nil {
		t.Fatal(err)
	}
	geometry, err := newConvGeometry(n, n.Op.(*op.Conv), 1)
	if err != nil {
		t.Fatal(err)
	}
	l := newPlanes(geometry.sliced(), true)
	l.place(kernels)
	return l.inBands(1) != nil
}
