package i8

import (
	"spc/backend"
	"spc/backend/format/nm"
	"spc/backend/format/sparse"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// A group of which sparse tensor cores keep so many elements.
const group, kept = 4, 2

// NM is the kernels for at most 2 of every 4 elements of a row: sparse tensor cores multiply
// them, a CPU as dense.
var NM = row(nmCost, func(s *ir.Store) (backend.Kernel, error) { return unpacked(sparse.Storage(nm.Scheme{}), s) }, nmGPU{})

func nmCost(p *machine.Profile, w *choose.Matrix, n int, l backend.Layout) (choose.Cost, bool) {
	if w.Len() == 0 || !fits(l.Config) {
		return choose.Cost{}, false
	}
	return denseCost(p, w, n, l)
}

// fits reports whether a configuration leaves at most 2 of every 4 elements.
func fits(config string) bool {
	n, m, err := nm.Parse(config)
	return err == nil && m == group && n <= kept
}

// pairs lists the values of a store and where each pair lies in its group: the first in bits 0
// and 1, the second, which comes behind it, in bits 2 and 3.
func pairs(s *ir.Store) (values []int8, places []uint8, err error) {
	b, err := nm.Scheme{}.Blocks(s)
	if err != nil {
		return nil, nil, err
	}
	across := (s.Cols + group - 1) / group
	values, places = make([]int8, s.Rows*across*kept), make([]uint8, s.Rows*across)
	data := tensor.Data[int8](s.Part("values"))
	for r := range s.Rows {
		at := b.Ptr[r]
		for g := range across {
			var found []int
			i := r*across + g
			for ; at < b.Ptr[r+1] && int(b.Column[at])/group == g; at++ {
				values[kept*i+len(found)] = data[at]
				found = append(found, int(b.Column[at])%group)
			}
			// The places of zeros that fill up a group differ and ascend.
			switch {
			case len(found) == 0:
				found = []int{0, 1}
			case len(found) == 1 && found[0] == group-1:
				found = []int{group - 2, group - 1}
				values[kept*i], values[kept*i+1] = 0, values[kept*i]
			case len(found) == 1:
				found = append(found, group-1)
			}
			places[i] = byte(found[0] | found[1]<<2)
		}
	}
	return values, places, nil
}
