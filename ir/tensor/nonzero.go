package tensor

import "math"

// Nonzeros sets bit k%64 of word k/64 where element k of a row is not zero, and clears the others. There is a word for each 64 elements, and
// one for the rest. Zeros of either sign are zeros.
func Nonzeros(words []uint64, row []float32) {
	for i := range words {
		part := row[64*i : min(64*(i+1), len(row))]
		w := uint64(0)
		for _, v := range part {
			w = w>>1 | uint64(notZero(v))<<63
		}
		words[i] = w >> (64 - len(part))
	}
}

// CountZeros counts the elements that are zero.
func CountZeros(s []float32) int {
	n := 0
	for _, v := range s {
		n += int(notZero(v))
	}
	return len(s) - n
}

// notZero is 1 where v is not zero, else 0. It has no branch, which zeros in no order would have mispredicted.
func notZero(v float32) uint32 {
	x := math.Float32bits(v) << 1
	return (x | -x) >> 31
}
