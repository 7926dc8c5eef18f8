package choose_test

import (
	"testing"

	"spc/passes/choose"
)

// TestParseGrid reads what String writes, and nothing else.
func TestParseGrid(t *testing.T) {
	for _, g := range []choose.Grid{{4, 32}, {8, 64}, {4, 16}, {8, 4096}} {
		if got, err := choose.ParseGrid(g.String()); err != nil || got != g {
			t.Errorf("%v is read as %v: %v", g, got, err)
		}
	}
	for _, s := range []string{"", "int4", "int4x", "int4x8", "int5x32", "int4x032", "int4x32 ", "4x32", "int8x-32", "int4x32x32"} {
		if g, err := choose.ParseGrid(s); err == nil {
			t.Errorf("%q is read as %v", s, g)
		}
	}
}
