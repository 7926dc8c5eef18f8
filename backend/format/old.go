package format

import (
	"cmp"
	"fmt"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// old lists the formats that weights i8 had in version 1 of the container, with the names and the
// layouts of version 2.
var old = map[string]struct {
	name    string
	upgrade func(s *ir.Store) (*ir.Store, error)
}{
	"block8": {"block", upgradeBlock8},
	"nm8":    {"nm", upgradeNM8},
}

// Upgrade brings the stored weights of a graph, which may come from a hostile file of version 1 of
// the container, into the formats of this one. CheckAll checks the result.
func Upgrade(g *ir.Graph) error {
	for _, v := range g.Constants() {
		if v.Store == nil || old[v.Store.Format].upgrade == nil {
			continue
		}
		s, err := old[v.Store.Format].upgrade(v.Store)
		if err != nil {
			return fmt.Errorf("weight %s: %s: %w: %w", v.Name, v.Store.Format, err, ir.ErrCorrupt)
		}
		v.Store = s
	}
	return nil
}

// UpgradedName is the name in this version of a format of version 1.
func UpgradedName(name string) string {
	return cmp.Or(old[name].name, name)
}

// upgradeBlock8 brings values [blocks, 4] into the shape [blocks, 4, 1].
func upgradeBlock8(s *ir.Store) (*ir.Store, error) {
	out := *s
	out.Format, out.Parts = "block", append([]ir.Part(nil), s.Parts...)
	for i, p := range out.Parts {
		if p.Name == "values" {
			if p.Data == nil || p.Data.Rank() != 2 {
				return nil, fmt.Errorf("values are %v, want i8[blocks,4]", p.Data)
			}
			out.Parts[i].Data = p.Data.Reshape(p.Data.Dim(0), p.Data.Dim(1), 1)
		}
	}
	return &out, nil
}

// upgradeNM8 stores anew what was stored as values [M, groups, 2] with a byte of places for each
// group of four: that of the first value in bits 0 and 1, that of the second in bits 2 and 3.
func upgradeNM8(s *ir.Store) (*ir.Store, error) {
	values, places := s.Part("values"), s.Part("places")
	if s.Rows < 0 || s.Cols <= 0 || s.Cols > 1<<31 || s.Config != "2:4" || len(s.Parts) != 2 || values == nil || places == nil ||
		values.DType() != tensor.I8 || places.DType() != tensor.U8 || places.Rank() != 2 {
		return nil, fmt.Errorf("want 2:4 with parts values i8 and places u8")
	}
	groups := (s.Cols + 3) / 4
	if shape := places.Shape(); shape[0] != s.Rows || shape[1] != groups || values.Rank() != 3 || values.Dim(0) != s.Rows || values.Dim(1) != groups || values.Dim(2) != 2 {
		return nil, fmt.Errorf("values are %v and places %v, want %d x %d groups", values, places, s.Rows, groups)
	}
	w := tensor.New(tensor.F32, s.Rows, s.Cols)
	for i, p := range places.Bytes() {
		first, second := int(p&3), int(p>>2)
		if first >= second || second > 3 {
			return nil, fmt.Errorf("group %d has its values at %d and %d, want them to ascend in 0..3", i, first, second)
		}
		for j, at := range []int{first, second} {
			v, c := tensor.Data[int8](values)[2*i+j], i%groups*4+at
			if v != 0 && c >= s.Cols {
				return nil, fmt.Errorf("column %d of %d is %d, want 0", c, s.Cols, v)
			}
			if v != 0 {
				w.F32s()[i/groups*s.Cols+c] = float32(v)
			}
		}
	}
	f := Lookup("nm")
	parts, err := f.Pack(w, s.Config)
	if err != nil {
		return nil, err
	}
	return &ir.Store{Format: f.Name(), Config: s.Config, View: s.View, Rows: s.Rows, Cols: s.Cols, Parts: choose.Narrow(parts, tensor.I8)}, nil
}
