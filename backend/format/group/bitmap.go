package group

import (
	"fmt"
	"math/bits"

	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Bitmap is a view of a weight of which a bit for each element says whether its code is stored. The codes of a row begin at a
// whole byte, in the order of their columns, those of 4 bits in the low half of a byte first.
type Bitmap struct {
	Weight
	Words int      // of a row
	Set   []uint64 // bit c%64 of word c/64 of a row is set where column c has a code
}

// BitmapBytes is the size of all parts of a bitmap with so many nonzeros in each row.
func BitmapBytes(g *ir.Grid, m, k int, nonzeros func(r int) int) int {
	n := Beyond * g.Bits / 8
	for r := range m {
		n += codeBytes(nonzeros(r), g.Bits)
	}
	return n + 8*m*sparse.Ceil(k, 64) + Bytes(g, m, k)
}

func codeBytes(n, width int) int { return sparse.Ceil(n*width, 8) }

// PackBitmap stores w [M,K], f32, as codes of its nonzeros, on a grid whose zeros are 0.
func PackBitmap(w *tensor.Tensor, g *ir.Grid) ([]ir.Part, error) {
	if g.Zeros != nil {
		return nil, fmt.Errorf("zeros that have codes: %w", choose.ErrFit)
	}
	codes, err := encode(w, g)
	if err != nil {
		return nil, err
	}
	m, k := w.Dim(0), w.Dim(1)
	words := sparse.Ceil(k, 64)
	set := make([]uint64, m*words)
	var out []byte
	for r := range m {
		first := len(out)
		n := 0
		for c, code := range codes[r*k : (r+1)*k] {
			if code == 0 {
				continue
			}
			set[r*words+c/64] |= 1 << (c % 64)
			out = append(out, make([]byte, first+codeBytes(n+1, g.Bits)-len(out))...)
			if g.Bits == 8 {
				out[first+n] = byte(code)
			} else {
				nibble(out, first+n/2, n%2 == 1, code)
			}
			n++
		}
	}
	for range Beyond * g.Bits / 8 {
		out = append(out, zeroByte(g.Bits))
	}
	data := tensor.From(out, len(out))
	if g.Bits == 8 {
		data = tensor.From(signed(out), len(out))
	}
	return parts(g, ir.Part{Name: "bits", Data: tensor.From(set, m, words)}, ir.Part{Name: "codes", Data: data}), nil
}

// zeroByte is a byte of codes of zero.
func zeroByte(width int) byte {
	if width == 4 {
		return Offset<<4 | Offset
	}
	return 0
}

// ViewBitmap views a store, which may come from a hostile file.
func ViewBitmap(s *ir.Store) (*Bitmap, error) {
	v, err := view(s, 2)
	if err != nil {
		return nil, err
	}
	w := &Bitmap{Weight: *v, Words: sparse.Ceil(v.K, 64)}
	if w.Zeros != nil {
		return nil, fmt.Errorf("a part zeros, want none")
	}
	if p := s.Parts[0]; !is(p, "bits", []tensor.DType{tensor.U64}, w.M, w.Words) {
		return nil, fmt.Errorf("part 0 is %s %v, want bits u64[%d,%d]", p.Name, p.Data, w.M, w.Words)
	}
	want := tensor.U8
	if w.Bits == 8 {
		want = tensor.I8
	}
	if p := s.Parts[1]; p.Data.Rank() != 1 || !is(p, "codes", []tensor.DType{want}, p.Data.Len()) {
		return nil, fmt.Errorf("part 1 is %s %v, want codes %v", p.Name, p.Data, want)
	}
	w.Set, w.Codes = tensor.Data[uint64](s.Parts[0].Data), s.Parts[1].Data.Bytes()
	return w, nil
}

// CheckBitmap wants finite scales, as many codes as bits are set, no bits behind the last column, and codes of zero behind the last.
func CheckBitmap(s *ir.Store) error {
	w, err := ViewBitmap(s)
	if err != nil {
		return err
	}
	if err := w.checkScales(); err != nil {
		return err
	}
	if w.K%64 != 0 {
		for r := range w.M {
			if last := w.Set[(r+1)*w.Words-1]; last>>(w.K%64) != 0 {
				return fmt.Errorf("row %d: a bit behind column %d is set", r, w.K-1)
			}
		}
	}
	starts := w.Starts()
	end := starts[w.M]
	if n := len(w.Codes) - end; n != Beyond*w.Bits/8 {
		return fmt.Errorf("%d bytes of codes behind those of the bits, want %d", n, Beyond*w.Bits/8)
	}
	for i, b := range w.Codes[end:] {
		if b != zeroByte(w.Bits) {
			return fmt.Errorf("byte %d of the codes is behind those of the bits, and none of zero", end+i)
		}
	}
	for r := range w.M {
		if n := w.count(r); n*w.Bits%8 != 0 && w.Codes[starts[r+1]-1]>>4 != 0 {
			return fmt.Errorf("row %d: a half of a byte behind its %d codes is not 0", r, n)
		}
	}
	return nil
}

// count is the number of codes of a row.
func (w *Bitmap) count(r int) int { return ones(w.Set[r*w.Words : (r+1)*w.Words]) }

// Starts lists the byte at which the codes of each row begin, and where those of the last end.
func (w *Bitmap) Starts() []int {
	out := make([]int, w.M+1)
	for r := range w.M {
		out[r+1] = out[r] + codeBytes(w.count(r), w.Bits)
	}
	return out
}

// Unpack is the inverse of PackBitmap: f32 [M,K].
func (w *Bitmap) Unpack() *tensor.Tensor {
	codes := make([]int8, w.M*w.K)
	for r, at := range w.Starts()[:w.M] {
		n := 0
		for i, word := range w.Set[r*w.Words : (r+1)*w.Words] {
			for ; word != 0; word &= word - 1 {
				code := int8(0)
				if w.Bits == 8 {
					code = int8(w.Codes[at+n])
				} else {
					code = int8(w.Codes[at+n/2]>>(4*(n%2))&15) - Offset
				}
				codes[r*w.K+64*i+bits.TrailingZeros64(word)] = code
				n++
			}
		}
	}
	return w.grid().Decode(tensor.From(codes, w.M, w.K))
}
