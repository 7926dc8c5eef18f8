package spx

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

func TestChecksumInPartsIsTheWholeOnes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 3*checksumPart+1)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	for _, n := range []int{0, 1, checksumPart - 1, checksumPart, checksumPart + 1, 2 * checksumPart, 3*checksumPart - 7, len(b)} {
		if got, want := checksum(b[:n]), crc32.Checksum(b[:n], castagnoli); got != want {
			t.Errorf("%d bytes: %08x, want %08x", n, got, want)
		}
	}
}
