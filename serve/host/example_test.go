package host

import (
	"errors"
	"testing"

	"spc"
	"spc/ir"
	"spc/ir/tensor"
)

// What would not fit a page is not made up.
func TestExamplesAreBounded(t *testing.T) {
	for _, c := range []struct {
		dims []ir.Dim
		ok   bool
	}{
		{[]ir.Dim{ir.Sym("n"), ir.Size(1 << 10)}, true},
		{[]ir.Dim{ir.Size(1 << 10), ir.Size(1 << 10)}, true},
		{[]ir.Dim{ir.Size(1<<10 + 1), ir.Size(1 << 10)}, false},
		{[]ir.Dim{ir.Size(1 << 40), ir.Size(1 << 40)}, false},
	} {
		h := &Model{inputs: []spc.Port{{Name: "x", DType: tensor.F32, Dims: c.dims, Ranked: true}}}
		r, err := h.Example()
		if c.ok && (err != nil || r.Inputs["x"].DType() != tensor.F32) || !c.ok && !errors.Is(err, spc.ErrUnsupported) {
			t.Errorf("%v: %v", c.dims, err)
		}
	}
}
