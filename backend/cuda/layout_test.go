package cuda

import (
	"errors"
	"math/rand/v2"
	"testing"

	"spc/backend/format"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Columns of stored weights come in another order where a format does not care which are neighbours.
func TestReorderedWeights(t *testing.T) {
	const seed, rows, cols = 7, 64, 96
	t.Logf("seed %d", seed)
	for _, c := range []struct {
		format, config string
		keep           func(r, c int) bool
		ok             bool
	}{
		{"dense", "", func(int, int) bool { return true }, true},
		{"ell", "1x1", func(r, c int) bool { return (r+5*c)%4 == 0 }, true},
		{"ell", "4x1", func(r, c int) bool { return (r/4+5*c)%4 == 0 }, true},
		{"csr", "", func(r, c int) bool { return (r*c)%5 == 0 }, true},
		{"nm", "2:4", func(r, c int) bool { return c%4 < 2 }, false},
		{"block", "16x16", func(r, c int) bool { return (r/16+c/16)%3 == 0 }, false},
		{"block", "16x1", func(r, c int) bool { return (r/16+c)%3 == 0 }, true},
	} {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := tensor.New(tensor.F32, rows, cols)
		for i := range w.F32s() {
			if c.keep(i/cols, i%cols) {
				w.F32s()[i] = float32(rng.NormFloat64())
			}
		}
		f := format.Lookup(c.format)
		s := &ir.Store{Format: c.format, Config: c.config, View: ir.View{RowAxes: 1}, Rows: rows, Cols: cols}
		var err error
		if s.Parts, err = f.Pack(w, c.config); err != nil {
			t.Errorf("%s %s: %v", c.format, c.config, err)
			continue
		}
		columns := rng.Perm(cols)
		if _, err := f.Pack(reorder(w, columns), "nonsense"); c.format != "dense" && (err == nil || errors.Is(err, choose.ErrFit)) {
			t.Errorf("%s of an unknown configuration: %v, want an error that is not ErrFit", c.format, err)
		}
		have, err := reordered(s, columns)
		if err != nil || (have != nil) != c.ok {
			t.Errorf("%s %s: reordered %v, want %v: %v", c.format, c.config, have != nil, c.ok, err)
			continue
		}
		if have == nil {
			continue
		}
		got, err := f.Unpack(have)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range got.F32s() {
			if want := w.F32s()[i/cols*cols+columns[i%cols]]; v != want {
				t.Fatalf("%s %s: element %d is %v, want %v", c.format, c.config, i, v, want)
			}
		}
	}
}
