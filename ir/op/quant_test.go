package op

import (
	"strings"
	"testing"
)

func TestQuantisedProductsRefuseWhatIsNoScale(t *testing.T) {
	for _, c := range []struct{ attrs, inputs, want string }{
		{"spc_w_zero = [1, 2]", "%s, %z", ""},
		{"spc_w_zero = [1, 2, 3]", "%s, %z", "3 zero points of the weight, want 1 or 2"},
		{"spc_w_zero = [128]", "%s, %z", "zero point 128 of the weight, want one in -128..127"},
		{"spc_x_zero = 3", "%s, %z", "scale 1 and zero point 3 beside those that are inputs, want 1 and 0"},
		{"spc_w_zero = [1]", "%s", "only one of scale (input 4) and zero point (input 5), want both or none"},
		{"spc_w_zero = [1]", "%v, %z", "input 4 of a quantised product is f32[1], want a scalar f32"},
		{"spc_w_zero = [1]", "%s, %s", "input 5 of a quantised product is f32[], want a scalar u8"},
	} {
		err := inferError(t, `graph "g"(%x: u8[3,4], %w: i8[4,2], %s: f32[], %v: f32[1], %z: u8[]) {
  %y: f32[*] = MatMul "m" (%x, %w, _, _, `+c.inputs+`) {spc_w_scale = [0.5], spc_x_scale = 1.0, `+c.attrs+`}
  return %y
}`)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %s: %v, want %q", c.attrs, c.inputs, err, c.want)
		}
	}
}
