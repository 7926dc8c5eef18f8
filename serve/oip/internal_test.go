package oip

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

// What is read quickly is what strconv reads, halves between two values of float32 among it.
func TestQuickNumbersAreExact(t *testing.T) {
	const seed = 1
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	read := 0
	check := func(text string) {
		for _, bits := range []int{32, 64} {
			v, ok := quick(text, bits)
			if !ok {
				continue
			}
			read++
			if want, err := strconv.ParseFloat(text, bits); err != nil || math.Float64bits(v) != math.Float64bits(want) {
				t.Fatalf("%s in %d bits: %v, want %v (%v)", text, bits, v, want, err)
			}
		}
	}
	for range 100000 {
		v := math.Float32frombits(rng.Uint32()&0x8fffffff | 0x38000000) // 3e-5 to 2
		w := math.Nextafter32(v, 2)
		check(strconv.FormatFloat(float64(v), 'f', -1, 32))
		check(strconv.FormatFloat(float64(v), 'f', -1, 64))
		middle := strconv.FormatFloat((float64(v)+float64(w))/2, 'f', -1, 64)
		for _, end := range []int{8, 12, 15, 16, 17, len(middle)} {
			check(middle[:min(end, len(middle))])
		}
	}
	for range 100000 { // middles of few digits: odd multiples of a half beyond 24 bits
		n := rng.Uint64N(1<<28)<<1 | 1
		check(strconv.FormatUint(n, 10) + "." + strconv.FormatUint(rng.Uint64N(10), 10))
		check("-" + strconv.FormatUint(n, 10))
		check(strconv.FormatUint(n>>4, 10) + ".5")
	}
	for _, text := range []string{"0", "-0", "0.0", "9007199254740993", "0.00000000000000000000001", "340282356779733661637539395458142568448", "1e5",
		"0.0000000000000000000000000000000000000117549435", "16777217", "16777219", "33554434.0"} {
		check(text)
	}
	if read < 400000 {
		t.Errorf("only %d numbers were read quickly", read)
	}
}
