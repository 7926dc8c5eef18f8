package prune

import "slices"

// A key is the bit pattern of a non-negative float32, which orders as the
// number does; the sign bit is clear. A unit's key is 0 exactly where all of
// its weights are zero.

// smallSort is the length from which counting digits beats comparing.
const smallSort = 128

// sortKeys returns the keys in ascending order in a or b, each at least as
// long as keys, which stay as they are.
func sortKeys(keys, a, b []uint32) []uint32 {
	n := len(keys)
	a, b = a[:n], b[:n]
	if n < smallSort {
		copy(a, keys)
		slices.Sort(a)
		return a
	}
	var counts [4][256]uint32
	for _, k := range keys {
		counts[0][k&255]++
		counts[1][k>>8&255]++
		counts[2][k>>16&255]++
		counts[3][k>>24]++
	}
	src := keys
	for d := range counts {
		shift := 8 * d
		count := &counts[d]
		if count[keys[0]>>shift&255] == uint32(n) {
			continue
		}
		next := uint32(0)
		for i, c := range count {
			count[i] = next
			next += c
		}
		for _, k := range src {
			digit := k >> shift & 255
			a[count[digit]] = k
			count[digit]++
		}
		src, a, b = a, b, a
	}
	return src
}

// nthLargest returns the n-th largest key, n from 1 to len(keys), and how many
// keys are larger than it. buf is at least as long as keys, which stay as they
// are. The time is linear whatever the keys.
func nthLargest(keys []uint32, n int, buf []uint32) (key uint32, larger int) {
	if len(keys) <= 32 {
		s := buf[:len(keys)]
		copy(s, keys)
		for i := 1; i < len(s); i++ {
			k, j := s[i], i
			for ; j > 0 && s[j-1] < k; j-- {
				s[j] = s[j-1]
			}
			s[j] = k
		}
		key = s[n-1]
		for larger = n - 1; larger > 0 && s[larger-1] == key; larger-- {
		}
		return key, larger
	}
	cand := keys
	for shift := 23; ; shift -= 8 {
		up, mask := max(shift, 0), uint32(255)
		if shift < 0 {
			mask = 127
		}
		var count [256]int
		for _, k := range cand {
			count[k>>up&mask]++
		}
		digit := mask
		for larger+count[digit] < n {
			larger += count[digit]
			digit--
		}
		key |= digit << up
		if shift < 0 {
			return key, larger
		}
		kept := buf[:0]
		for _, k := range cand {
			if k>>up&mask == digit {
				kept = append(kept, k)
			}
		}
		cand = kept
	}
}

// keepLargest marks in keep the n largest keys, the earlier among equals.
func keepLargest(keys []uint32, n int, keep []bool, buf []uint32) {
	if n <= 0 || n >= len(keys) {
		for i := range keys {
			keep[i] = n > 0
		}
		return
	}
	key, larger := nthLargest(keys, n, buf)
	ties := n - larger
	for i, k := range keys {
		keep[i] = k > key
		if k == key && ties > 0 {
			keep[i] = true
			ties--
		}
	}
}
