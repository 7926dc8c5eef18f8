package main

import (
	"runtime"
	"sync"
	"sync/atomic"

	"spc/demo/glyphs"
)

// draw returns n consecutive images of a split, scaled to [0, 1], and labels.
func draw(set *glyphs.Set, split glyphs.Split, first, n int) (act[float32], []int) {
	x := act[float32]{1, n, glyphs.Size, glyphs.Size, make([]float32, n*glyphs.Pixels)}
	labels := make([]int, n)
	var img [glyphs.Pixels]uint8
	for i := range n {
		labels[i] = set.Draw(img[:], split, first+i)
		for j, v := range img {
			x.data[i*glyphs.Pixels+j] = float32(v) / 255
		}
	}
	return x, labels
}

// accuracy is the percentage of n images of a split, from the first on, that
// net classifies rightly.
func accuracy(net chain[float32], set *glyphs.Set, split glyphs.Split, n int) float64 {
	const part = 60
	var next, right atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			replica := net.replica()
			for {
				first := int(next.Add(part)) - part
				if first >= n {
					return
				}
				x, labels := draw(set, split, first, min(part, n-first))
				right.Add(int64(hits(replica.forward(x, false), labels)))
			}
		})
	}
	wg.Wait()
	return 100 * float64(right.Load()) / float64(n)
}

// hits counts the images whose largest logit is that of their label; logits
// are [classes, n].
func hits(logits act[float32], labels []int) int {
	count := 0
	for i, label := range labels {
		best := 0
		for c := range logits.c {
			if logits.row(c)[i] > logits.row(best)[i] {
				best = c
			}
		}
		if best == label {
			count++
		}
	}
	return count
}
