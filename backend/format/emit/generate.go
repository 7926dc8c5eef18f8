package emit

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"spc/backend/format/ukernel"
)

// A group's code has its sums in registers 0 to groupRows-1 and X in the last. It is
// called with x in r8, the rows of y in r9, the number of granules in rcx; rsi and
// r11 are its own. In the last block of columns it computes one granule, and leaves the sums in
// registers for runLast, which finishes them with the two that are left; for further granules it
// is entered behind its first instruction, with r11 as it was.
const (
	groupRows = 30
	xRegister = 31
)

// enterAgain is how long the first instruction of a group's code is: from there it is entered again.
const enterAgain = 7

const (
	// line is a line of the cache; passes the number of granules in which a group
	// fetches the next group, and stride the distance of the lines that it asks
	// for: the processor fetches pairs.
	line   = 64
	passes = 3
	stride = 2 * line
)

// multiplyAdds are the instructions for sums 0 to groupRows-1 without the byte that
// is the displacement from rsi in floats, their last.
var multiplyAdds = func() (t [32]uint64) {
	for r := range groupRows {
		var a assembler
		a.multiplyAdd(r, xRegister, rsi, 0)
		t[r] = binary.LittleEndian.Uint64(append(a.text, 0))
	}
	return t
}()

// multiplyAddLen is the number of their bytes.
const multiplyAddLen = 7

// generator writes the code of groups.
type generator[I Index] struct {
	assembler
	w    *Weight[I]
	s    Shape
	next []uint32  // by row, its first nonzero that is left
	mask []uint32  // by column of the block, the rows of the group with a nonzero
	vals []float32 // of the group, as its code reads them
	hole int       // of the address of the group that the last one fetches
}

// mostText bounds the bytes of a weight's code and values.
func mostText[I Index](w *Weight[I], s Shape) int {
	nonzeros := int(w.Ptr[w.M])
	chunks := (w.M + s.Chunk - 1) / s.Chunk
	groups := chunks * ((min(s.Chunk, w.M) + groupRows - 1) / groupRows)
	// Groups without a nonzero in a block have no code for it, but for the first and the last block.
	groups = min(groups*(len(s.Bounds)-1), 2*groups+nonzeros)
	return nonzeros*nonzeroText + min(nonzeros, groups*ukernel.BlockK)*columnText + groups*groupText
}

// Bytes is what code and values take for a nonzero, at 80% zeros.
const Bytes = 14

// These bound what a nonzero takes: a multiply-add, its value, its share of
// addresses and of what is fetched; a column of a group: a load and an address, and
// what is fetched; and a group: loads and stores of sums, its frame, gaps.
const (
	nonzeroText = multiplyAddLen + 4 + 1
	columnText  = 10 + 7 + 1
	groupText   = groupRows*20 + 256
)

// generate writes the code, for which there is room, to text, and returns it, but
// for its text, and how long that is.
func generate[I Index](w *Weight[I], s Shape, text []byte) (*Code, int) {
	g := &generator[I]{w: w, s: s, next: slices.Clone(w.Ptr[:w.M]), mask: make([]uint32, ukernel.BlockK), hole: -1}
	g.text = text[:0:len(text)]
	c := &Code{m: w.M, chunk: s.Chunk}
	for b := range len(s.Bounds) - 1 {
		var blk block
		for r := 0; r < w.M; r += s.Chunk {
			blk.start = append(blk.start, len(blk.calls))
			rows := min(s.Chunk, w.M-r)
			groups := (rows + groupRows - 1) / groupRows
			for i := range groups {
				lo, hi := i*rows/groups, (i+1)*rows/groups
				if at, ok := g.group(b, r+lo, r+hi); ok {
					blk.calls = append(blk.calls, call{uint32(at), uint32(lo), uint32(hi - lo)})
				}
			}
		}
		blk.start = append(blk.start, len(blk.calls))
		for k := s.Bounds[b]; k < s.Bounds[b+1]; k++ {
			blk.reach = max(blk.reach, g.element(b, k))
		}
		c.blocks = append(c.blocks, blk)
	}
	if g.hole >= 0 {
		g.set(g.hole, 0) // what runs next after the last group is the first
	}
	return c, len(g.text)
}

// element is that of the panel of block b at which the columns for column k begin.
func (g *generator[I]) element(b, k int) int {
	if g.s.At != nil {
		return g.s.At[k]
	}
	return (k - g.s.Bounds[b]) * columns
}

// group writes the code of rows r0 to r1-1 of a block and says where it begins; ok
// is false where there is nothing to do.
func (g *generator[I]) group(b, r0, r1 int) (at int, ok bool) {
	p := g.take(b, r0, r1)
	if p.used == 0 {
		return 0, false
	}
	g.align(line)
	at = len(g.text)
	if g.hole >= 0 {
		g.set(g.hole, at)
	}
	g.hole = g.address(r11)
	loop := at + enterAgain
	values := g.address(rsi)
	for rows := p.used; rows != 0; rows &= rows - 1 {
		if r := bits.TrailingZeros32(rows); b == 0 {
			g.zero(r)
		} else {
			g.load(r, r9, 4*columns*r)
		}
	}
	g.vals = slices.Grow(g.vals[:0], p.nonzeros)[:p.nonzeros]
	// The next group is about as large as this one.
	size := p.nonzeros*(multiplyAddLen+4) + len(p.mask)*8
	f := fetch{lines: (size + stride*passes - 1) / (stride * passes)}
	xBase := g.multiply(&p, &f)
	if g.last(b) {
		g.add(r11, f.lines*stride-f.base)
		g.add(r8, 4*granule-xBase)
	} else {
		for rows := p.used; rows != 0; rows &= rows - 1 {
			r := bits.TrailingZeros32(rows)
			g.store(r, r9, 4*columns*r)
		}
		g.add(r11, f.lines*stride-f.base)
		g.add(r9, 4*granule)
		g.add(r8, 4*granule-xBase)
		g.decrement(rcx)
		g.jumpUnlessZero(loop)
	}
	g.ret()

	g.align(line)
	g.set(values, len(g.text)+middle)
	n := len(g.text)
	g.text = g.text[:n+4*len(g.vals)]
	for i, v := range g.vals {
		binary.LittleEndian.PutUint32(g.text[n+4*i:], math.Float32bits(v))
	}
	return at, true
}

// middle is what rsi is ahead of the values: one byte reaches 256 floats from there.
const middle = 128 * 4

// part is what a group of rows has in a block.
type part struct {
	block    int
	mask     []uint32   // by column of the block, the rows with a nonzero
	left     [32]uint32 // by row, its next nonzero
	used     uint32     // the rows that are written
	nonzeros int
}

// take moves on to the next block with rows r0 to r1-1, and returns what they have in this one.
func (g *generator[I]) take(b, r0, r1 int) part {
	lo, hi := g.s.Bounds[b], g.s.Bounds[b+1]
	p := part{block: b, mask: g.mask[:hi-lo]}
	clear(p.mask)
	for r := r0; r < r1; r++ {
		from, j := g.next[r], g.next[r]
		for end := g.w.Ptr[r+1]; j < end && int(g.w.Index[j]) < hi; j++ {
			p.mask[int(g.w.Index[j])-lo] |= 1 << (r - r0)
		}
		if j > from {
			p.used |= 1 << (r - r0)
		}
		p.left[r-r0], g.next[r] = from, j
		p.nonzeros += int(j - from)
	}
	if b == 0 || g.last(b) {
		p.used = 1<<(r1-r0) - 1 // zeros are written, too, and what has no nonzero here is finished
	}
	return p
}

// last reports whether b is the last block of columns.
func (g *generator[I]) last(b int) bool { return b == len(g.s.Bounds)-2 }

// fetch is how far a group fetches the next one.
type fetch struct {
	lines int // that it asks for in all
	done  int
	base  int // what was added to r11
}

// multiply writes the multiply-adds of a part, column by column, among which are spread
// what fetches, and lists the values that they read. It returns what was added to r8.
func (g *generator[I]) multiply(p *part, f *fetch) (xBase int) {
	vals := g.vals
	valueBase, done := middle, 0
	for k, rows := range p.mask {
		if rows == 0 {
			continue
		}
		x := 4 * g.element(p.block, g.s.Bounds[p.block]+k)
		if g.s.At == nil {
			for x-xBase > 127*line {
				g.add(r8, 128*line)
				xBase += 128 * line
			}
		}
		g.load(xRegister, r8, x-xBase)
		for rows != 0 {
			if 4*done-valueBase > 127*4 {
				g.add(rsi, 2*middle)
				valueBase += 2 * middle
			}
			// As many as the address reaches, eight bytes each, of which the last is
			// written again.
			n, from := len(g.text), valueBase/4
			text := g.text[:cap(g.text)]
			for ; rows != 0 && done-from <= 127; rows &= rows - 1 {
				r := bits.TrailingZeros32(rows) % 32
				binary.LittleEndian.PutUint64(text[n:], multiplyAdds[r]|uint64(uint8(done-from))<<48)
				vals[done] = g.w.Value[p.left[r]]
				p.left[r]++
				n += multiplyAddLen
				done++
			}
			g.text = g.text[:n]
		}
		for f.done*p.nonzeros < f.lines*done {
			if f.done*stride-f.base > 127 {
				g.add(r11, 2*stride)
				f.base += 2 * stride
			}
			g.prefetch(r11, f.done*stride-f.base)
			f.done++
		}
	}
	return xBase
}
