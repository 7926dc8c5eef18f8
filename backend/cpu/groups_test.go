package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"spc/backend/ref"
)

// Convolutions in groups compute what their operator does, from planes where they are, from strips of them and from
// gathered panels, on any number of threads.
func TestGroupedConvolutionsAgreeWithTheOperator(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range rounds(80) {
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

// Where pads leave only pixels between those that taps reach, the result is the bias.
func TestTransposedConvolutionsOfNoTap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, axes := range [][2][]int{{{2, 2}, {1, 1}}, {{4, 2}, {3, 1}}, {{2, 4}, {1, 3}}, {{2}, {1}}} {
		x, w := append([]int{1, 3}, axes[0]...), append([]int{3, 1}, axes[1]...)
		rank := len(axes[0])
		strides, dilations, pads := slices.Repeat([]int{1}, rank), slices.Repeat([]int{1}, rank), make([]int, 2*rank)
		for i, k := range axes[1] {
			if k == 1 { // its tap reaches pixels 0 and 4, of which 1 to 3 are left
				strides[i], pads[i], pads[rank+i] = 4, 1, 1
			}
		}
		g, in, err := oneConv(r, "ConvTranspose", x, w, 3, strides, dilations, pads, false)
		if err != nil {
			t.Fatal(err)
		}
		want, err := ref.Run(context.Background(), g, in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := run(context.Background(), loadGraph(t, g, 1), in)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, g.String(), got[0], want[0])
	}
}

// Transposed convolutions compute what their operator does, whatever the axes, groups, strides, dilations and pads, and
// with stored weights; there is a kernel for each.
func TestTransposedConvolutionsAgreeWithTheOperator(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	count := 0
	for round := range 200 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		rank, groups := 1+round%3, max(1, r.IntN(8)-4)
		x := []int{1 + r.IntN(2), groups * (1 + r.IntN(9))}
		w := []int{x[1], 1 + r.IntN(20)}
		if r.IntN(3) == 0 { // planes with windows of their own
			x[1], w = groups, []int{groups, 1 + r.IntN(4)}
		}
		var strides, dilations []int
		pads := make([]int, 2*rank)
		disjoint, pixel := r.IntN(6) == 0, r.IntN(6) == 0
		for i := range rank {
			x, w = append(x, 1+r.IntN(24/rank)), append(w, 1+r.IntN(5))
			strides, dilations = append(strides, 1+r.IntN(4)), append(dilations, 1+r.IntN(3))
			pads[i], pads[rank+i] = r.IntN(3), r.IntN(3)
			if disjoint {
				strides[i], dilations[i], pads[i], pads[rank+i] = w[2+i], 1, 0, 0
			}
			if pixel {
				x[2+i], dilations[i], pads[i], pads[rank+i] = 1, 1, 0, 0
			}
		}
		g, in, err := oneConv(r, "ConvTranspose", x, w, groups, strides, dilations, pads, r.IntN(3) == 0)
		if err != nil {
			continue // pads that leave nothing
		}
		want, err := ref.Run(context.Background(), g, in)
		if err != nil {
			t.Fatal(err)
		}
		if f := [][2]string{{"dense", ""}, {"csr", ""}, {"ell", "4x1"}, {"block", "8x1"}}[r.IntN(4)]; f[0] != "dense" && groups == 1 && g.WeightUses()[0].Dense == "" {
			store(t, g, f)
		}
		p := loadGraph(t, g, 1+round%3)
		got, err := run(context.Background(), p, in)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, fmt.Sprintf("round %d: %v", round, g), got[0], want[0])
		if want[0].Len() == 0 {
			continue
		}
		s, err := p.(*program).specialise(in)
		if err != nil {
			t.Fatal(err)
		}
		if s.main.steps[0].bound == nil {
			t.Fatalf("no kernel for %v", g)
		}
		count++
	}
	if count < 100 {
		t.Errorf("%d transposed convolutions", count)
	}
}
