// Package nm is the format for weights of which at most N of every M
// consecutive elements along K are not zero; its configuration is N:M, with M up
// to 256. Each group of a row stores N values; a last group of T < M elements
// min(N, T). Its parts are values f32 [rows, S], S being the values of a row; and
// positions u8 [rows, ceil(S*B/8)], the place of each value in its group,
// ascending, in B bits, low bits first: B is 1, 2, 4 or 8, the first in which M-1
// fits. Groups with fewer nonzeros are filled up with zeros at places that they
// do not use.
package nm

import (
	"fmt"
	"math"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
	"spc/passes/prune"
)

// Scheme is the nm format, as sparse.New takes it.
type Scheme struct{}

// Name is nm.
func (Scheme) Name() string { return "nm" }

// pattern is N of every M elements.
type pattern struct{ n, m int }

// parse reads a configuration.
func parse(config string) (pattern, error) {
	p, err := prune.ParsePattern(config)
	if err != nil || p.Kind != prune.NM || p.M > 256 {
		return pattern{}, fmt.Errorf("configuration %q: want N:M with M up to 256, as in 2:4", config)
	}
	return pattern{p.N, p.M}, nil
}

// Parse reads a configuration as N of every M.
func Parse(config string) (n, m int, err error) {
	p, err := parse(config)
	return p.n, p.m, err
}

// bits is the size of a position.
func (p pattern) bits() int {
	b := 1
	for p.m > 1<<b {
		b *= 2
	}
	return b
}

// slots is the number of values in a row of k elements.
func (p pattern) slots(k int) int { return k/p.m*p.n + min(p.n, k%p.m) }

// positionBytes is the size of the positions of so many values.
func (p pattern) positionBytes(slots int) int { return sparse.Ceil(slots*p.bits(), 8) }

// groupSizes are the M that any weight is tried with.
var groupSizes = []int{2, 4, 8, 16, 32}

// Layouts lists groups that have room for the most nonzeros of any, to be three quarters full
// where the kernel is that of csr.
func (Scheme) Layouts(w *choose.Matrix) (out []backend.Layout) {
	for _, m := range groupSizes {
		p := pattern{w.Most(m), m}
		slots := p.slots(w.Dim(1))
		if values := w.Dim(0) * slots; p.n > 0 {
			out = append(out, backend.Layout{
				Config: fmt.Sprintf("%d:%d", p.n, m), Rows: 1, Values: values, Filled: 0.75,
				Bytes: w.Type.Size()*values + w.Dim(0)*p.positionBytes(slots),
			})
		}
	}
	return out
}

// Pack stores group by group.
func (Scheme) Pack(w *tensor.Tensor, config string) ([]ir.Part, error) {
	p, err := parse(config)
	if err != nil {
		return nil, err
	}
	rows, k := w.Dim(0), w.Dim(1)
	slots := p.slots(k)
	if slots == 0 {
		return nil, fmt.Errorf("%d values in each of %d rows: %w", slots, rows, choose.ErrFit)
	}
	values := make([]float32, 0, rows*slots)
	positions := make([]byte, rows*p.positionBytes(slots))
	for r := range rows {
		row, at := w.F32s()[r*k:(r+1)*k], 0
		for g := 0; g < k; g += p.m {
			group := row[g:min(g+p.m, k)]
			spare := min(p.n, len(group)) // slots that no nonzero takes
			for _, v := range group {
				if v != 0 {
					spare--
				}
			}
			if spare < 0 {
				return nil, fmt.Errorf("row %d has more than %d nonzeros in the %d elements from %d on: %w", r, p.n, len(group), g, choose.ErrFit)
			}
			for i, v := range group {
				if v == 0 {
					if spare == 0 {
						continue
					}
					spare--
				}
				p.put(positions[r*p.positionBytes(slots):], at, i)
				values = append(values, v)
				at++
			}
		}
	}
	return []ir.Part{
		{Name: "values", Data: tensor.From(values, rows, slots)},
		{Name: "positions", Data: tensor.From(positions, rows, p.positionBytes(slots))},
	}, nil
}

// put sets position i of a row, which was zero; get reads it.
func (p pattern) put(row []byte, i, position int) {
	bit := i * p.bits()
	row[bit/8] |= byte(position << (bit % 8))
}

func (p pattern) get(row []byte, i int) int {
	bit := i * p.bits()
	return int(row[bit/8]>>(bit%8)) & (1<<p.bits() - 1)
}

// Blocks views a store's values as 1 x 1 blocks, and checks that their positions
// lie in their groups.
func (Scheme) Blocks(s *ir.Store) (*sparse.Blocks, error) {
	p, err := parse(s.Config)
	if err != nil {
		return nil, err
	}
	slots := p.slots(s.Cols)
	parts, err := sparse.Parts(s,
		sparse.Spec{Name: "values", DType: tensor.F32, Shape: []int{s.Rows, slots}},
		sparse.Spec{Name: "positions", DType: tensor.U8, Shape: []int{s.Rows, p.positionBytes(slots)}})
	if err != nil {
		return nil, err
	}
	b := &sparse.Blocks{M: s.Rows, K: s.Cols, R: 1, C: 1, Values: sparse.Values(parts[0])}
	if slots == 0 || uint64(b.Values.Len()) > math.MaxUint32 {
		return nil, fmt.Errorf("%d values in each of %d rows", slots, s.Rows)
	}
	b.Ptr = make([]uint32, 1, s.Rows+1)
	b.Column = make([]uint32, 0, b.Values.Len())
	positions := tensor.Data[uint8](parts[1])
	for r := range s.Rows {
		row := positions[r*p.positionBytes(slots):][:p.positionBytes(slots)]
		for i := range slots {
			g := i / p.n * p.m
			at := p.get(row, i)
			if at >= min(p.m, s.Cols-g) {
				return nil, fmt.Errorf("row %d: position %d in a group of %d", r, at, min(p.m, s.Cols-g))
			}
			b.Column = append(b.Column, uint32(g+at))
		}
		if used := slots * p.bits() % 8; used != 0 && row[len(row)-1]>>used != 0 {
			return nil, fmt.Errorf("row %d: bits behind the last position are set", r)
		}
		b.Ptr = append(b.Ptr, uint32(len(b.Column)))
	}
	return b, nil
}
