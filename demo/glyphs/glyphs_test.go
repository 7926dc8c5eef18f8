package glyphs

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"testing"
)

func newSet(t *testing.T, seed uint64) *Set {
	t.Helper()
	s, err := New(seed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func hash(s *Set, split Split, n int) string {
	h := sha256.New()
	img := make([]uint8, Pixels)
	for i := range n {
		label := s.Draw(img, split, i)
		h.Write([]byte{byte(label)})
		h.Write(img)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func TestImagesAreTheSameBytesEverywhere(t *testing.T) {
	const want = "69baa188edea27c2c5bd1f820e70c7dc3278aad0882656e0d866d0dcba38f869"
	if got := hash(newSet(t, 1), Train, 360); got != want {
		t.Errorf("360 training images of seed 1 hash to %s, want %s", got, want)
	}
}

func TestSeedsAndSplitsDiffer(t *testing.T) {
	one, two := newSet(t, 1), newSet(t, 2)
	seen := map[string]string{}
	for name, got := range map[string]string{
		"seed 1 train":   hash(one, Train, 8),
		"seed 1 dev":     hash(one, Dev, 8),
		"seed 1 heldout": hash(one, HeldOut, 8),
		"seed 2 train":   hash(two, Train, 8),
	} {
		if other, ok := seen[got]; ok {
			t.Errorf("%s draws the images of %s", name, other)
		}
		seen[got] = name
	}
}

func TestImageDependsOnItsIndexOnly(t *testing.T) {
	s := newSet(t, 3)
	const n = 48
	want := make([][Pixels]uint8, n)
	for i := range want {
		s.Draw(want[i][:], Dev, i)
	}
	got := make([][Pixels]uint8, n)
	var wg sync.WaitGroup
	for i := n - 1; i >= 0; i-- {
		wg.Go(func() { s.Draw(got[i][:], Dev, i) })
	}
	wg.Wait()
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("image %d drawn alone differs from image %d drawn in turn", i, i)
		}
	}
}

func TestRunsShowEachClassOnce(t *testing.T) {
	s := newSet(t, 4)
	img := make([]uint8, Pixels)
	orders := map[[len(Classes)]int]bool{}
	for run := range 3 {
		var order [len(Classes)]int
		seen := map[int]bool{}
		for i := range order {
			order[i] = s.Draw(img, HeldOut, run*len(Classes)+i)
			seen[order[i]] = true
		}
		if len(seen) != len(Classes) {
			t.Errorf("run %d shows %d classes, want %d", run, len(seen), len(Classes))
		}
		orders[order] = true
	}
	if len(orders) != 3 {
		t.Errorf("3 runs have %d orders of labels, want 3", len(orders))
	}
}

func TestGlyphIsInsideAndVisible(t *testing.T) {
	s := newSet(t, 5)
	img := make([]uint8, Pixels)
	for face := range s.outlines {
		for label := range Classes {
			s.draw(img, label, s.random(Dev, uint64(face), uint64(label)))
			lo, hi := img[0], img[0]
			for _, v := range img {
				lo, hi = min(lo, v), max(hi, v)
			}
			if hi-lo < 40 {
				t.Errorf("typeface %d, %c: grey levels %d to %d, want a contrast of 40", face, Classes[label], lo, hi)
			}
		}
	}
}

func BenchmarkDraw(b *testing.B) {
	s, err := New(1)
	if err != nil {
		b.Fatal(err)
	}
	img := make([]uint8, Pixels)
	for i := 0; b.Loop(); i++ {
		s.Draw(img, Train, i)
	}
}
