package spx

import (
	"hash/crc32"
	"runtime"

	"spc/internal/mapped"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksumPart is the size of the parts of a section that are summed at the same
// time.
const checksumPart = 4 << 20

// checksum is the CRC-32C of b.
func checksum(b []byte) uint32 {
	parts := (len(b) + checksumPart - 1) / checksumPart
	if parts <= 1 {
		return crc32.Checksum(b, castagnoli)
	}
	sums := make([]uint32, parts)
	var group mapped.Group
	workers := min(parts, runtime.GOMAXPROCS(0))
	for w := range workers {
		group.Go(func() {
			for i := w; i < parts; i += workers {
				sums[i] = crc32.Checksum(b[i*checksumPart:min(len(b), (i+1)*checksumPart)], castagnoli)
			}
		})
	}
	group.Wait()
	whole := zeros(checksumPart)
	sum := sums[0]
	for i, s := range sums[1:] {
		shift := whole
		if i == parts-2 {
			shift = zeros(len(b) - (parts-1)*checksumPart)
		}
		sum = shift.apply(sum) ^ s
	}
	return sum
}

// operator is a linear map of the checksum's 32 bits: row i is the image of bit i.
type operator [32]uint32

func (o *operator) apply(v uint32) uint32 {
	out := uint32(0)
	for i := 0; v != 0; i, v = i+1, v>>1 {
		if v&1 != 0 {
			out ^= o[i]
		}
	}
	return out
}

func (o *operator) times(p *operator) operator {
	var out operator
	for i := range out {
		out[i] = o.apply(p[i])
	}
	return out
}

// zeros is what n bytes do to the checksum before them beside their own: for any A,
// and B of n bytes, crc(AB) = zeros(n)(crc(A)) ^ crc(B).
func zeros(n int) operator {
	step := operator{crc32.Castagnoli} // of one bit: divide by x
	for i := 1; i < 32; i++ {
		step[i] = 1 << (i - 1)
	}
	var out operator
	for i := range out {
		out[i] = 1 << i
	}
	for n *= 8; n > 0; n >>= 1 {
		if n&1 != 0 {
			out = step.times(&out)
		}
		step = step.times(&step)
	}
	return out
}
