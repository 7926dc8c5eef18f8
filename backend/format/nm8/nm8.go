// Package nm8 is the format for i8 weights of which at most 2 of every 4 consecutive elements of a
// row are not zero; its configuration is 2:4. Its parts are values i8 [M, groups, 2] and places
// u8 [M, groups], which say where in its group each of the two lies: the first in bits 0 and 1,
// the second, which comes behind it, in bits 2 and 3. What a group has outside of the matrix is
// zero. Sparse tensor cores multiply it; on a CPU it is multiplied as dense.
package nm8

import (
	"fmt"

	"spc/backend"
	"spc/backend/format/dense8"
	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Config is the one configuration, and group the elements of a row of which kept are stored.
const (
	Config = "2:4"
	group  = 4
	kept   = 2
)

// Format is the format.
type Format struct{}

// Name is nm8.
func (Format) Name() string { return "nm8" }

// Costs offers the one configuration to weights that have it and zeros besides it, at the cost
// of dense.
func (Format) Costs(w *choose.Matrix, n int) []choose.Cost {
	if w.Len() == 0 || w.Most(group) > kept {
		return nil
	}
	out := dense8.Format{}.Costs(w, n)
	out[0].Config, out[0].Bytes = Config, w.Dim(0)*sparse.Ceil(w.Dim(1), group)*(kept+1)
	return out
}

// Pack stores w, f32 of whole numbers.
func (Format) Pack(w *tensor.Tensor, config string) ([]ir.Part, error) {
	if config != Config {
		return nil, fmt.Errorf("unknown configuration %q", config)
	}
	m, k := w.Dim(0), w.Dim(1)
	groups := sparse.Ceil(k, group)
	values, places := tensor.New(tensor.I8, m, groups, kept), tensor.New(tensor.U8, m, groups)
	data := tensor.Data[int8](values)
	for i := range places.Bytes() {
		r, c := i/groups, i%groups*group
		var at []int
		for j, v := range w.F32s()[r*k+c : r*k+min(c+group, k)] {
			if v == 0 {
				continue
			}
			if len(at) == kept {
				return nil, fmt.Errorf("row %d has more than %d of columns %d to %d: %w", r, kept, c, c+group-1, choose.ErrFit)
			}
			x := int8(v)
			if float32(x) != v {
				return nil, fmt.Errorf("element %v, want a whole number in -128..127", v)
			}
			data[kept*i+len(at)] = x
			at = append(at, j)
		}
		// The places of zeros that fill up a group differ and ascend.
		switch {
		case len(at) == 0:
			at = []int{0, 1}
		case len(at) == 1 && at[0] == group-1:
			at = []int{group - 2, group - 1}
			data[kept*i], data[kept*i+1] = 0, data[kept*i]
		case len(at) == 1:
			at = append(at, group-1)
		}
		places.Bytes()[i] = byte(at[0] | at[1]<<2)
	}
	return []ir.Part{{Name: "values", Data: values}, {Name: "places", Data: places}}, nil
}

// pairs views a store as values and places.
func pairs(s *ir.Store) (values []int8, places []uint8, err error) {
	if s.Config != Config {
		return nil, nil, fmt.Errorf("unknown configuration %q", s.Config)
	}
	groups := sparse.Ceil(s.Cols, group)
	p, err := sparse.Parts(s,
		sparse.Spec{Name: "values", DType: tensor.I8, Shape: []int{s.Rows, groups, kept}},
		sparse.Spec{Name: "places", DType: tensor.U8, Shape: []int{s.Rows, groups}})
	if err != nil {
		return nil, nil, err
	}
	return tensor.Data[int8](p[0]), p[1].Bytes(), nil
}

// Check checks that places ascend, and that what lies outside is zero.
func (Format) Check(s *ir.Store) error {
	values, places, err := pairs(s)
	if err != nil {
		return err
	}
	groups := sparse.Ceil(s.Cols, group)
	for i, p := range places {
		first, second := int(p&3), int(p>>2)
		if first >= second || second >= group {
			return fmt.Errorf("row %d: group %d has its values at %d and %d, want them to ascend in 0..%d", i/groups, i%groups, first, second, group-1)
		}
		for j, at := range []int{first, second} {
			if i%groups*group+at >= s.Cols && values[kept*i+j] != 0 {
				return fmt.Errorf("row %d: column %d of %d is %d, want 0", i/groups, i%groups*group+at, s.Cols, values[kept*i+j])
			}
		}
	}
	return nil
}

// Unpack returns the matrix i8 [M,K].
func (Format) Unpack(s *ir.Store) (*tensor.Tensor, error) {
	values, places, err := pairs(s)
	if err != nil {
		return nil, err
	}
	w := tensor.New(tensor.I8, s.Rows, s.Cols)
	data, groups := tensor.Data[int8](w), sparse.Ceil(s.Cols, group)
	for i, p := range places {
		for j, at := range []int{int(p & 3), int(p >> 2 & 3)} {
			if v := values[kept*i+j]; v != 0 {
				data[i/groups*s.Cols+i%groups*group+at] = v
			}
		}
	}
	return w, nil
}

// Kernel is that of the dense weight.
func (f Format) Kernel(s *ir.Store) (backend.Kernel8, error) {
	w, err := f.Unpack(s)
	if err != nil {
		return nil, err
	}
	return dense8.New(w), nil
}
