package fuse_test

import (
	"strings"
	"testing"

	"spc/ir"
	"spc/passes/fuse"
	"spc/tests/graphtest"
)

func TestBandsAsMasks(t *testing.T) {
	for _, c := range []struct{ inputs, attrs, want string }{
		{"", "is_causal = 1, left_window_size = 2", "%y.band) {scale = 0.5}"},
		{"", "is_causal = 1, scale = 0.5, spc_aligned = 1", "%y.band) {scale = 0.5}"},
		{", %see", "left_window_size = 1, right_window_size = 2, spc_aligned = 1", "%y.shows.out) {scale = 0.5}"},
		{", %bias", "right_window_size = 0, spc_aligned = 1", "%y.hides.out) {scale = 0.5}"},
		{", %bias", "is_causal = 1", ""},
		{"", "left_window_size = -1", ""},
		{", _, _, _, %n", "is_causal = 1", ""},
	} {
		attrs := c.attrs
		if !strings.Contains(attrs, "scale") {
			attrs += ", scale = 0.5"
		}
		g := graphtest.Parse(t, `graph "g"(%q: f32[2,2,3,4], %k: f32[2,2,5,4], %v: f32[2,2,5,4], %see: bool[2,1,1,5], %bias: f32[2,3,5]) {
  %n: i64[2] = const {3, 5}
  %y: f32[*] = Attention "y" (%q, %k, %v`+c.inputs+`) {`+attrs+`}
  return %y }`)
		old, text := g.Clone(), ir.Print(g)
		n, err := fuse.Bands(g)
		if err != nil || n != min(1, len(c.want)) {
			t.Errorf("%s: %d changes, %v", c.attrs, n, err)
		}
		if have := ir.Print(g); !strings.Contains(have, c.want) || c.want == "" && have != text {
			t.Errorf("%s: want %s in\n%s", c.attrs, c.want, have)
		}
		graphtest.Same(t, old, g, 1e-6)
	}
}
