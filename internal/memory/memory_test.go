package memory

import (
	"math"
	"strings"
	"testing"
)

func TestSmallThingsFit(t *testing.T) {
	for _, n := range []int{-1, 0, 1, small} {
		if err := Check(n); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestWhatMemoryDoesNotHoldIsRefused(t *testing.T) {
	free, known := left()
	if !known {
		t.Skip("the memory that is left is not known here")
	}
	if free <= 0 {
		t.Fatalf("%d bytes are left", free)
	}
	if err := Check(math.MaxInt); err == nil || !strings.Contains(err.Error(), "GB are left") {
		t.Errorf("%v, want an error that says what is left", err)
	}
}

func TestFloatsAreZerosOfTheirOwn(t *testing.T) {
	for _, n := range []int{0, 1, huge/4 - 1, huge / 4, huge/4 + 1, huge} {
		a, b := Floats(n), Floats(n)
		if len(a) != n || cap(a) != n {
			t.Fatalf("%d elements of %d, want %d", len(a), cap(a), n)
		}
		for i := range a {
			a[i]++
		}
		for i, v := range b {
			if v != 0 || a[i] != 1 {
				t.Fatalf("element %d of %d is %g besides %g", i, n, v, a[i])
			}
		}
	}
}
